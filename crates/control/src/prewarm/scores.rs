//! Scores from a series of snapshots: PRESTO's four, and two more.

/// How important a block is, told from the snapshots that have it. Snapshots are numbered from 1, the oldest, to m.
///
/// Source: PRESTO (slides, "Cache mechanics: analyzing snapshots") for the first four; frequency per byte and decayed frequency are ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Heuristic {
    /// k-Recent: the number of the last snapshot that has it.
    Recent,
    /// k-Frequent: how many snapshots have it.
    Frequent,
    /// k-Frerecent, linear: the sum of the numbers of the snapshots that have it.
    FrerecentLinear,
    /// k-Frerecent, quadratic: the sum of the squares of these numbers.
    FrerecentQuadratic,
    /// How many snapshots have it, over its bytes.
    FrequencyPerByte,
    /// How many snapshots have it, each counting half as much as the one so many snapshots after it.
    Decayed {
        /// In snapshots; above 0.
        half_life: f32,
    },
}

impl Heuristic {
    /// PRESTO's own four.
    pub const PUBLISHED: [Heuristic; 4] =
        [Heuristic::Recent, Heuristic::Frequent, Heuristic::FrerecentLinear, Heuristic::FrerecentQuadratic];

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Heuristic::Recent => "k-Recent",
            Heuristic::Frequent => "k-Frequent",
            Heuristic::FrerecentLinear => "k-Frerecent (linear)",
            Heuristic::FrerecentQuadratic => "k-Frerecent (quadratic)",
            Heuristic::FrequencyPerByte => "frequency per byte",
            Heuristic::Decayed { .. } => "decayed frequency",
        }
    }
}

/// The scores of all blocks, from snapshots that are given from the oldest to the newest.
///
/// Exact while scores are below 2^24 (all but quadratic scores of more than 368 snapshots, which are rounded to 24 bits). Memory: 4 bytes per block, whatever the number of snapshots. Cost: a few nanoseconds for each block of each snapshot.
#[derive(Clone, Debug)]
pub struct ScoreTable {
    heuristic: Heuristic,
    scores: Vec<f32>,
    snapshots: u32,
    /// Decayed frequency counts a snapshot's worth in halves from here on: see `rebase`.
    half_lives_base: f32,
}

/// Half lives after which worths are counted from anew: growing weights stay far below the 2^127 that an f32 can hold.
const REBASE_HALF_LIVES: f32 = 100.0;

impl ScoreTable {
    /// Scores of blocks `0..blocks`, all 0.
    pub fn new(heuristic: Heuristic, blocks: usize) -> ScoreTable {
        ScoreTable { heuristic, scores: vec![0.0; blocks], snapshots: 0, half_lives_base: 0.0 }
    }

    /// How many snapshots were added.
    pub fn snapshots(&self) -> u32 {
        self.snapshots
    }

    /// Weights that grow towards the newest are weights that fall towards the oldest, but for a factor, which changes no order. It is taken
    /// out before it overflows; what is then below 2^-100 of the newest is lost.
    fn rebase(&mut self, half_life: f32) {
        while (self.snapshots as f32 + 1.0) / half_life - self.half_lives_base > REBASE_HALF_LIVES {
            self.scores.iter_mut().for_each(|score| *score *= (-REBASE_HALF_LIVES).exp2());
            self.half_lives_base += REBASE_HALF_LIVES;
        }
    }

    /// Adds the next `count` snapshots at once. `visit(number, add)` is called for each of them, with 0 for the oldest, as often as
    /// `spans` says: for each span of blocks, all snapshots one after the other. So the scores of a span stay in the processor's cache.
    ///
    /// `visit` gives `add` the places, within the span, of the blocks that its snapshot has; places beyond the end are ignored.
    pub fn add_spans(
        &mut self,
        count: u32,
        span: usize,
        mut visit: impl FnMut(usize, u32, &mut dyn FnMut(&[u16])),
    ) {
        let heuristic = self.heuristic;
        if let Heuristic::Decayed { half_life } = heuristic {
            self.rebase(half_life);
        }
        let (before, base) = (self.snapshots, self.half_lives_base);
        for (place, scores) in self.scores.chunks_mut(span).enumerate() {
            for number in 0..count {
                let position = (before + number + 1) as f32;
                match heuristic {
                    Heuristic::Recent => visit(place, number, &mut |blocks| {
                        for &block in blocks {
                            if let Some(score) = scores.get_mut(usize::from(block)) {
                                *score = position;
                            }
                        }
                    }),
                    _ => {
                        let worth = match heuristic {
                            Heuristic::FrerecentLinear => position,
                            Heuristic::FrerecentQuadratic => position * position,
                            Heuristic::Decayed { half_life } => {
                                (position / half_life - base).min(126.0).exp2()
                            }
                            _ => 1.0,
                        };
                        visit(place, number, &mut |blocks| {
                            for &block in blocks {
                                if let Some(score) = scores.get_mut(usize::from(block)) {
                                    *score += worth;
                                }
                            }
                        });
                    }
                }
            }
        }
        self.snapshots += count;
    }

    /// Adds the next snapshot, given as one bit per block.
    pub fn add_words(&mut self, words: &[u64]) {
        let mut blocks = Vec::with_capacity(1 << 16);
        self.add_spans(1, 1 << 16, |place, _, add| {
            blocks.clear();
            let first = (place << 10).min(words.len());
            for (index, &word) in words[first..(first + 1024).min(words.len())].iter().enumerate() {
                let mut word = word;
                while word != 0 {
                    blocks.push((index * 64 + word.trailing_zeros() as usize) as u16);
                    word &= word - 1;
                }
            }
            add(&blocks);
        });
    }

    /// The score of a block; per byte it is for the ranking to divide.
    pub fn score(&self, block: usize) -> f32 {
        self.scores[block]
    }

    /// All blocks with a score, the best first. **Ties**: the block with the smaller number first.
    ///
    /// `bytes` gives the size of a block; it counts only where the heuristic is per byte. `O(n log n)` for the n blocks with a score.
    pub fn ranked(&self, bytes: impl Fn(u32) -> u64) -> Vec<u32> {
        self.ranked_numbered(bytes, |block| block)
    }

    /// [`ScoreTable::ranked`], but ties are broken by what `number` says of a block, the smaller first, and only then by the block's own number.
    /// PRESTO's published simulator breaks them by its objects' place in its lists, where the small ones come first: so these win under a small limit.
    pub fn ranked_numbered(&self, bytes: impl Fn(u32) -> u64, number: impl Fn(u32) -> u32) -> Vec<u32> {
        let per_byte = self.heuristic == Heuristic::FrequencyPerByte;
        let mut keyed: Vec<(u32, u32, u32)> = self
            .scores
            .iter()
            .zip(0u32..)
            .filter(|(score, _)| **score > 0.0)
            .map(|(&score, block)| {
                let score = if per_byte { score / bytes(block) as f32 } else { score };
                // Positive floats are in the order of their bits; the best is to come first.
                (!score.to_bits(), number(block), block)
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(.., block)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The five snapshots of the slides, of ten objects.
    const SLIDES: [u64; 5] = [0b1001100001, 0b0011011000, 0b1101000011, 0b1110111000, 0b0110110101];

    fn ranked(heuristic: Heuristic) -> (Vec<f32>, Vec<u32>) {
        let mut table = ScoreTable::new(heuristic, 10);
        SLIDES.iter().for_each(|words| table.add_words(&[*words]));
        ((0..10).map(|block| table.score(block)).collect(), table.ranked(|_| 1))
    }

    #[test]
    fn the_slides_examples() {
        // Objects are the slides' columns from left to right; the words above have column 0 in the lowest bit.
        let (recent, order) = ranked(Heuristic::Recent);
        assert_eq!(recent, [5.0, 3.0, 5.0, 4.0, 5.0, 5.0, 3.0, 5.0, 5.0, 4.0]);
        assert_eq!(order, [0, 2, 4, 5, 7, 8, 3, 9, 1, 6]);
        let (frequent, order) = ranked(Heuristic::Frequent);
        assert_eq!(frequent, [3.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
        assert_eq!(order, [0, 4, 5, 6, 7, 8, 9, 3, 1, 2]);
        // 1, 9 and 25 for column 0, and so on. Two columns are lost in the slide's text: 1 + 4 + 9 = 14 and 4 + 16 + 25 = 45.
        let (quadratic, order) = ranked(Heuristic::FrerecentQuadratic);
        assert_eq!(quadratic, [35.0, 9.0, 25.0, 20.0, 45.0, 42.0, 14.0, 45.0, 50.0, 26.0]);
        assert_eq!(order, [8, 4, 7, 5, 0, 9, 2, 3, 6, 1]);
        let (linear, _) = ranked(Heuristic::FrerecentLinear);
        assert_eq!(linear[..3], [9.0, 3.0, 5.0]);
    }

    #[test]
    fn per_byte_small_blocks_win_and_old_snapshots_fade() {
        let mut table = ScoreTable::new(Heuristic::FrequencyPerByte, 3);
        [0b111, 0b101, 0b001].iter().for_each(|words| table.add_words(&[*words]));
        // 3 / 30, 1 / 10, 2 / 10: block 2 leads, and 0 and 1 tie.
        assert_eq!(table.ranked(|block| if block == 0 { 30 } else { 10 }), [2, 0, 1]);
        let mut table = ScoreTable::new(Heuristic::Decayed { half_life: 1.0 }, 2);
        // Twice long ago is 1/8 + 1/4 of once now.
        [0b01, 0b01, 0b00, 0b10].iter().for_each(|words| table.add_words(&[*words]));
        assert!((table.score(0) / table.score(1) - 0.375).abs() < 1e-6);
        // Whatever is counted anew after a hundred half lives, the old are to each other as before: 1/2 + 1 to 1.
        let mut table = ScoreTable::new(Heuristic::Decayed { half_life: 1.0 }, 2);
        (0..98).for_each(|_| table.add_words(&[0b00]));
        [0b01, 0b11, 0b00, 0b00, 0b00].iter().for_each(|words| table.add_words(&[*words]));
        assert!((table.score(0) / table.score(1) - 1.5).abs() < 1e-6);
        // However long the series, the newest leads and nothing overflows.
        let mut table = ScoreTable::new(Heuristic::Decayed { half_life: 0.5 }, 2);
        (0..500).for_each(|_| table.add_words(&[0b01]));
        table.add_words(&[0b10]);
        assert!(table.score(0).is_finite() && table.ranked(|_| 1) == [1, 0]);
    }

    #[test]
    fn blocks_of_a_large_volume_are_scored_where_they_lie() {
        // Spans are of 65,536 blocks: four of them, the last one short.
        let (blocks, held) = (200_000, [5u32, 65_535, 65_536, 131_071, 131_072, 199_999]);
        let words = |held: &[u32]| {
            let mut words = vec![0u64; 200_000 / 64];
            held.iter().for_each(|block| words[*block as usize / 64] |= 1 << (block % 64));
            words
        };
        let mut table = ScoreTable::new(Heuristic::Frequent, blocks);
        table.add_words(&words(&held));
        // Their sizes count only where it is scored per byte.
        assert_eq!(table.ranked(|block| 1 + u64::from(block)), held);
        table.add_words(&words(&held[3..5]));
        assert_eq!(table.ranked(|_| 1), [131_071, 131_072, 5, 65_535, 65_536, 199_999]);
        assert_eq!((table.snapshots(), (0..blocks).map(|block| table.score(block)).sum::<f32>()), (2, 8.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn batches_and_single_snapshots_score_the_same(
            snapshots in prop::collection::vec(prop::collection::vec(any::<u64>(), 3), 1..9), split in 0usize..9,
        ) {
            for heuristic in Heuristic::PUBLISHED {
                let mut one = ScoreTable::new(heuristic, 180);
                snapshots.iter().for_each(|words| one.add_words(words));
                let mut two = ScoreTable::new(heuristic, 180);
                let (first, rest) = snapshots.split_at(split.min(snapshots.len()));
                for batch in [first, rest] {
                    two.add_spans(batch.len() as u32, 64, |place, number, add| {
                        let word = batch[number as usize][place];
                        let blocks: Vec<u16> = (0..64).filter(|bit| word >> bit & 1 == 1).collect();
                        add(&blocks);
                    });
                }
                prop_assert_eq!(&one.scores, &two.scores);
                let naive = |block: usize| -> f32 {
                    let has = |words: &Vec<u64>| words[block / 64] >> (block % 64) & 1 == 1;
                    let numbers = snapshots.iter().enumerate().filter(|(_, words)| has(words)).map(|(n, _)| n as f32 + 1.0);
                    match heuristic {
                        Heuristic::Recent => numbers.fold(0.0, f32::max),
                        Heuristic::Frequent => numbers.count() as f32,
                        Heuristic::FrerecentLinear => numbers.sum(),
                        _ => numbers.map(|number| number * number).sum(),
                    }
                };
                for block in 0..180 {
                    prop_assert_eq!(one.score(block), naive(block));
                }
                let order = one.ranked(|_| 1);
                let best_first = order.windows(2).all(|pair| {
                    let [a, b] = [one.score(pair[0] as usize), one.score(pair[1] as usize)];
                    a > b || a == b && pair[0] < pair[1]
                });
                prop_assert!(best_first);
            }
        }
    }
}
