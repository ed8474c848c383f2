use super::*;
use proptest::prelude::*;

const VOLUME: VolumeId = VolumeId(77);

fn header(volume_blocks: u64) -> SnapshotHeader {
    SnapshotHeader {
        volume: VOLUME,
        block_bytes: 4_096,
        volume_blocks,
        sequence: 3,
        taken_at_unix_s: 1_700_000_000,
        activity: Activity {
            lookups: 900,
            hits: 700,
            span_ms: 60_000,
            working_set_blocks: 80,
            quota_blocks: 90,
        },
    }
}

fn write(volume_blocks: u64, blocks: &[(u64, u8)], scored: bool) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(header(volume_blocks), scored).unwrap();
    blocks.iter().for_each(|(block, score)| writer.push(*block, *score).unwrap());
    writer.finish()
}

fn read(bytes: Vec<u8>) -> Vec<(u64, u8)> {
    let mut blocks = Vec::new();
    Snapshot::parse(bytes, VOLUME).unwrap().for_each(|block, score| blocks.push((block, score)));
    blocks
}

#[test]
fn a_small_snapshot_byte_by_byte() {
    // Blocks 2 and 3: gaps 2 and 0, in half a byte each, are shorter than a run of four bytes. Scores 5 and 9 share a byte.
    let bytes = write(100, &[(2, 5), (3, 9)], true);
    assert_eq!(bytes.len(), 104 + 12 + 1 + 1 + 8);
    assert_eq!(&bytes[..12], b"FBSNAP\0\0\x04\0\0\0");
    assert_eq!(&bytes[104..118], [0, 0, 0, 0, 4, 0, 1, 0, 1, 0, 0, 0, 2, 0x95]);
    assert_eq!(bytes[64..72], [0x84, 3, 0, 0, 0, 0, 0, 0], "900 look-ups");
    assert_eq!(*Snapshot::parse(bytes.clone(), VOLUME).unwrap().header(), header(100));
    assert_eq!(read(bytes), [(2, 5), (3, 9)]);
    let empty = Snapshot::parse(write(0, &[], true), VOLUME).unwrap();
    assert_eq!((empty.blocks(), empty.encoded_bytes(), empty.header().sequence), (0, 112, 3));
}

#[test]
fn each_code_is_used_where_it_is_shortest() {
    let code = |blocks: &[u64]| {
        let scored: Vec<(u64, u8)> = blocks.iter().map(|block| (*block, 0)).collect();
        let bytes = write(1 << 16, &scored, false);
        assert_eq!(read(bytes.clone()), scored);
        (bytes[108], bytes.len() - 104 - 12 - 8)
    };
    assert_eq!(code(&(0..65_536).collect::<Vec<_>>()), (2, 4), "one run");
    assert_eq!(code(&(0..65_536).step_by(2).collect::<Vec<_>>()), (0, 8_192), "a bitmap");
    assert_eq!(code(&(0..65_536).step_by(25).collect::<Vec<_>>()), (1, 2_622), "gaps: 65,536 / 25");
    assert_eq!(code(&[60_000]), (3, 2), "a list");
    assert_eq!(
        code(&(0..65_536).step_by(5).collect::<Vec<_>>()),
        (4, 6_554),
        "gaps in half-bytes: 13,108 of 4"
    );
    // 164 blocks: 9 bits for the gap of 0, and 10 for each of 399 = 1 * 256 + 143: 1,639, and a byte for the eight.
    assert_eq!(code(&(0..65_536).step_by(400).collect::<Vec<_>>()), (5, 206), "a stretch");
}

#[test]
fn scores_of_0_and_1_take_a_bit_each() {
    // A run of forty: four bytes, and five of scores.
    let blocks: Vec<(u64, u8)> = (0..40).map(|block| (block, u8::from(block == 0 || block == 9))).collect();
    let bytes = write(100, &blocks, true);
    assert_eq!(bytes[104..125], [0, 0, 0, 0, 2, 1, 39, 0, 4, 0, 0, 0, 0, 0, 39, 0, 0b1, 0b10, 0, 0, 0]);
    assert_eq!(read(bytes.clone()), blocks);
    let mut places = Vec::new();
    Snapshot::parse(bytes.clone(), VOLUME).unwrap().places_scored(0, 1, &mut places);
    assert_eq!(places, [0, 9]);
    let mut unknown = bytes;
    unknown[109] = 2;
    assert!(Snapshot::parse(resealed(unknown), VOLUME).unwrap_err().to_string().contains("scores"));
}

#[test]
fn a_stretch_byte_by_byte() {
    // Blocks 3, 70,000 and 199,999: gaps 3, 69,996 and 129,998, on average 66,665, so 16 low bits; 69,996 = 1 * 65,536 + 4,460 and 129,998 = 1 * 65,536 + 64,462.
    // 17 + 18 + 18 bits, from the lowest on: 1, 3 (16), 01, 4,460 (16), 01, 64,462 (16). 15 low bits take 16 + 18 + 19 as well, and the fewer are taken.
    let blocks = [(3, 1), (70_000, 0), (199_999, 1)];
    let bytes = write(200_000, &blocks, true);
    let code = bytes[104 + 12..].iter().take(8).rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    assert_eq!(
        bytes[104..116],
        [0, 0, 0, 0, 5, 1, 2, 0, 8, 0, 0, 0],
        "chunk 0, code 5, bits, three blocks, 8 bytes"
    );
    assert_eq!(code & 0xff, 15);
    // 1 and 3; twice 32,768 and 4,460; three times 32,768 and 31,694.
    let expected = 1 | 3 << 1 | 4 << 16 | 4_460 << 19 | 8 << 34 | 31_694 << 38;
    assert_eq!(code >> 8, expected);
    assert_eq!((bytes[124], bytes.len()), (0b101, 104 + 12 + 8 + 1 + 8));
    assert_eq!(read(bytes.clone()), blocks);
    let snapshot = Snapshot::parse(bytes.clone(), VOLUME).unwrap();
    let mut found = Vec::new();
    snapshot.for_each_chunk(|chunk| found.push(chunk));
    assert_eq!(found, [0, 1, 3]);
    let mut places = Vec::new();
    for (chunk, least, expected) in
        [(0, 0, &[3][..]), (1, 0, &[4_464]), (1, 1, &[]), (2, 0, &[]), (3, 1, &[3_391]), (4, 0, &[])]
    {
        snapshot.places_scored(chunk, least, &mut places);
        assert_eq!(places, expected, "chunk {chunk}");
    }
    let refused = |at: usize, value: u8| {
        let mut bad = bytes.clone();
        bad[at] = value;
        Snapshot::parse(resealed(bad), VOLUME).unwrap_err().to_string()
    };
    assert!(refused(116, 47).contains("low bits"));
    assert!(refused(110, 3).contains("cut off"), "a fourth block");
    assert!(refused(110, 1).contains("as many blocks as it says"), "two blocks");
    assert!(refused(123, 0xff).contains("as many blocks as it says"), "bits behind its end");
    assert!(refused(117, 0).contains("begin"), "the first gap is 15 times 32,768 at least");
    assert!(refused(34, 2).contains("beyond the volume's end"), "131,072 blocks and some");
}

#[test]
fn any_block_of_a_large_volume_takes_two_bytes_at_most() {
    // With mean gap m, low bits of a gap's code, a one, and m / 2^low zeros: at most log2(m) + 2 bits, and a bit for the score. So 2^13 takes 16.
    let mut random = 7u64;
    for (mean, cluster) in [(400, 1), (1_600, 1), (1_600, 3), (8_000, 1), (8_000, 20), (1 << 27, 1)] {
        let mut blocks = Vec::new();
        let mut next = 0;
        while blocks.len() < 20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            next += (random >> 33) % (2 * mean * cluster) + 1;
            blocks.extend((next..next + cluster).map(|block| (block, (block % 2) as u8)));
            next += cluster;
        }
        let bytes = write(next, &blocks, true);
        let each = bytes.len() as f64 / blocks.len() as f64;
        let bound = if mean < 8_192 { 2.0 } else { ((mean as f64).log2() + 3.0) / 8.0 };
        assert!(each <= bound + 0.01, "{each} bytes per block, mean {mean}, clusters of {cluster}");
        let snapshot = Snapshot::parse(bytes, VOLUME).unwrap();
        let (mut found, mut chunks, mut places) = (Vec::new(), Vec::new(), Vec::new());
        snapshot.for_each(|block, score| found.push((block, score)));
        assert_eq!(found, blocks);
        snapshot.for_each_chunk(|chunk| chunks.push(chunk));
        found.clear();
        for chunk in chunks {
            for score in [0, 1] {
                snapshot.places_scored(chunk, score, &mut places);
                let first = u64::from(chunk) * CHUNK_BLOCKS;
                found.extend(places.iter().map(|place| (first + u64::from(*place), score)));
            }
        }
        // Each of score 1 is among those of 0, too.
        found.sort_unstable();
        found.retain(|(block, score)| u64::from(*score) == block % 2);
        assert_eq!(found, blocks);
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let mut writer = SnapshotWriter::new(header(70_000), true).unwrap();
    writer.push(66_000, 99).unwrap();
    assert_eq!(writer.push(66_000, 1), Err(WriteError::Order { block: 66_000, before: 66_000 }));
    assert_eq!(writer.push(5, 1), Err(WriteError::Order { block: 5, before: 66_000 }));
    assert_eq!(writer.push(70_000, 1), Err(WriteError::BeyondEnd { block: 70_000, blocks: 70_000 }));
    assert_eq!(read(writer.finish()), [(66_000, SCORE_MAX)]);
    assert!(matches!(SnapshotWriter::new(header(1 << 50), true), Err(WriteError::VolumeTooLarge { .. })));
}

/// Bytes with a checksum that fits them, so that what lies behind it is tried.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 8);
    seal(&mut bytes);
    bytes
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let good = write(1 << 20, &[(1, 1), (2, 2), (70_000, 3), (70_001, 4), (900_000, 15)], true);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Snapshot::parse(bad, VOLUME).is_err(), "bit {bit}");
    }
    for length in 0..good.len() {
        assert!(Snapshot::parse(good[..length].to_vec(), VOLUME).is_err(), "length {length}");
    }
    let foreign = SnapshotError::Foreign { found: VOLUME, expected: VolumeId(78) };
    assert_eq!(Snapshot::parse(good.clone(), VolumeId(78)).unwrap_err(), foreign);
    let mut newer = good.clone();
    newer[8] = 5;
    assert_eq!(Snapshot::parse(newer, VOLUME).unwrap_err(), SnapshotError::Version { found: 5 });
    // A list, and half a byte for the score, are the same in the versions before.
    for version in [2, 3] {
        let mut older = write(1 << 20, &[(60_000, 5)], true);
        older[8] = version;
        assert_eq!(read(resealed(older)), [(60_000, 5)]);
    }
    // A block beyond the end of a volume that is said to be smaller.
    let mut small = good.clone();
    small[32..40].copy_from_slice(&100u64.to_le_bytes());
    let error = Snapshot::parse(resealed(small), VOLUME).unwrap_err();
    assert!(error.to_string().contains("beyond the volume's end"), "{error}");
    assert_eq!(Snapshot::parse(good, VOLUME).unwrap().blocks(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        runs in prop::collection::vec((0u64..3_000, 1u64..200, any::<u8>()), 0..60), spread in 1u64..2_000, scored: bool, bits: bool, short: bool,
    ) {
        let mut blocks = Vec::new();
        let mut next = 0;
        for (gap, length, score) in runs {
            let first = next + gap * if short { spread % 4 } else { spread };
            let length = if short { length % 3 + 1 } else { length };
            let most = if bits { 1 } else { 15 };
            blocks.extend((first..first + length).map(|block| (block, if scored { score & most } else { 0 })));
            next = first + length;
        }
        let bytes = write(next, &blocks, scored);
        let most = 112 + blocks.len() * 5 / 2 + 13 * blocks.iter().map(|(block, _)| block / CHUNK_BLOCKS).collect::<std::collections::BTreeSet<_>>().len();
        prop_assert!(bytes.len() <= most, "{} bytes for {} blocks", bytes.len(), blocks.len());
        let snapshot = Snapshot::parse(bytes.clone(), VOLUME).unwrap();
        prop_assert_eq!(snapshot.blocks(), blocks.len() as u64);
        let mut places = Vec::new();
        let mut of_chunks = Vec::new();
        for chunk in 0..=(next / CHUNK_BLOCKS) as u32 {
            snapshot.places(chunk, &mut places);
            of_chunks.extend(places.iter().map(|place| u64::from(chunk) * CHUNK_BLOCKS + u64::from(*place)));
        }
        let mut good = Vec::new();
        let least = if bits { 1 } else { 7 };
        let mut chunks = Vec::new();
        snapshot.for_each_chunk(|chunk| chunks.push(chunk));
        for chunk in chunks {
            snapshot.places_scored(chunk, least, &mut places);
            good.extend(places.iter().map(|place| u64::from(chunk) * CHUNK_BLOCKS + u64::from(*place)));
        }
        prop_assert!(good.iter().eq(blocks.iter().filter(|(_, score)| *score >= least).map(|(block, _)| block)));
        prop_assert!(of_chunks.iter().eq(blocks.iter().map(|(block, _)| block)));
        prop_assert_eq!(read(bytes), blocks);
    }

    #[test]
    fn a_changed_stretch_with_a_good_checksum_does_no_harm(
        gaps in prop::collection::vec(0u64..50_000, 1..400), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut next = 0;
        let blocks: Vec<(u64, u8)> = gaps.into_iter().map(|gap| {
            next += gap + 1;
            (next - 1, (gap % 2) as u8)
        }).collect();
        let mut bytes = write(next, &blocks, true);
        let length = bytes.len();
        changes.into_iter().for_each(|(at, value)| bytes[56 + at.index(length - 56)] = value);
        if let Ok(snapshot) = Snapshot::parse(resealed(bytes), VOLUME) {
            let mut found = Vec::new();
            snapshot.for_each(|block, _| found.push(block));
            prop_assert!(found.is_sorted_by(|a, b| a < b) && found.last().is_none_or(|last| *last < next));
            prop_assert_eq!(found.len() as u64, snapshot.blocks());
            let (mut chunks, mut places, mut again) = (Vec::new(), Vec::new(), Vec::new());
            snapshot.for_each_chunk(|chunk| chunks.push(chunk));
            for chunk in chunks {
                snapshot.places(chunk, &mut places);
                again.extend(places.iter().map(|place| u64::from(chunk) * CHUNK_BLOCKS + u64::from(*place)));
            }
            prop_assert_eq!(again, found);
        }
    }

    #[test]
    fn rubbish_with_a_good_checksum_does_no_harm(tail in prop::collection::vec(any::<u8>(), 0..300), chunks in 0u32..4) {
        let mut bytes = write(1 << 30, &[], true);
        bytes.truncate(104);
        bytes[56..60].copy_from_slice(&chunks.to_le_bytes());
        bytes.extend(tail);
        bytes.extend([0; 8]);
        if let Ok(snapshot) = Snapshot::parse(resealed(bytes), VOLUME) {
            let mut before = None;
            snapshot.for_each(|block, _| {
                assert!(before.is_none_or(|before| before < block) && block < 1 << 30);
                before = Some(block);
            });
        }
    }
}
