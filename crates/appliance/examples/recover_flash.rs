//! How long a full flash tier takes to save, to recover and to drop: `cargo run --release -p forebay-appliance --example recover_flash PATH GIB
//! [written]`.
//!
//! Makes a file of that size at PATH, and removes it at the end. Blocks are entered into the index; they are written too where `written` says so. Neither
//! stop nor start reads or writes them.

use forebay_appliance::{FlashConfig, FlashStore};
use forebay_cache::flash::{FlashVolumeSettings, Stamp, VolumeId};
use forebay_units::{BlockIndex, BlockSize, Bytes};
use std::error::Error;
use std::os::unix::fs::FileExt;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected a path and a size in GiB")?;
    let gib: u64 = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let is_written = arguments.next().is_some_and(|word| word == "written");
    let config = FlashConfig { path: path.clone().into(), size: Some(Bytes::gib(gib)) };
    let settings = FlashVolumeSettings {
        volume: VolumeId::new("disk", "measured"),
        stamp: Some(Stamp::Seen([1; 32])),
        read_only: false,
        block_size: BlockSize::DEFAULT,
        // What is left is for the index.
        quota_segments: (gib * 1024 / 128 * 127) as u32,
        seed: 1,
    };
    let store = FlashStore::open(&config)?;
    let (mut partition, _) = store.tier().load(&settings)?;
    let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    let mut block = 0u64;
    let mut content = [0; 4096];
    while partition.segments() < settings.quota_segments || partition.is_writing() {
        // Scattered, as a workload's blocks are.
        content[..8].copy_from_slice(&block.to_le_bytes());
        partition.append(BlockIndex(block.wrapping_mul(0x9e37_79b9) % (1 << 40)), &content);
        block += 1;
        while let Some(write) = partition.take_write() {
            if is_written {
                file.write_all_at(&write.data, write.offset)?;
            }
            partition.write_ended(write.sequence, true);
        }
    }
    partition.seal_open();
    while let Some(write) = partition.take_write() {
        partition.write_ended(write.sequence, true);
    }
    file.sync_all()?;
    let blocks = partition.resident_blocks();
    let per_block = partition.footprint_bytes() as f64 / f64::from(blocks);
    println!("{blocks} blocks ({} GiB), {per_block:.1} bytes of memory each", u64::from(blocks) >> 18);
    let start = Instant::now();
    println!(
        "saved: {:?} in {:.3} s",
        store.tier().save(partition, settings.stamp)?,
        start.elapsed().as_secs_f64()
    );
    drop(store);
    let start = Instant::now();
    let store = FlashStore::open(&config)?;
    let (partition, recovery) = store.tier().load(&settings)?;
    println!(
        "opened and recovered: {recovery:?} in {:.3} s (direct I/O: {})",
        start.elapsed().as_secs_f64(),
        store.is_direct()
    );
    let start = Instant::now();
    store.tier().discard(partition);
    println!("dropped in {:.3} s", start.elapsed().as_secs_f64());
    drop(store);
    std::fs::remove_file(path)?;
    Ok(())
}
