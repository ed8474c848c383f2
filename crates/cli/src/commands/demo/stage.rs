//! What the demonstration is made of: two volumes on one emulated disk group, their objectives, and the daemon in front.
//!
//! All numbers are fixed here, none is taken from a run. They were chosen in this way: the disks carry either workload alone
//! and not both; the objectives lie between the levels that were seen without and with a cache in front of `orders`: 49 ms on
//! average and 5 to 10 ms, 540 and 850 requests/s. Single windows stray: without Forebay about one in twenty of `reports` keeps
//! its objective, and alone one in ten of `orders` may miss.

use crate::failure::{Context, Failure};
use forebay_appliance::ListenerConfig;
use forebay_control::{Objective, Operations};
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_locality::LiveConfig;
use forebay_origin::MemoryImage;
use forebay_replay::{Content, SECTOR_BYTES, Shadow};
use forebay_serve::config::{
    Config, ControlSettings, DiskBacking, DiskGroupConfig, HistoryConfig, OriginConfig, VolumeConfig,
};
use forebay_trace::{ReadOptions, Request, Source, TraceReader};
use forebay_units::{ByteRange, Bytes, Nanos, mix64};
use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The volume of the recorded database, and that of the random reader.
pub(super) const ORDERS: &str = "orders";
pub(super) const REPORTS: &str = "reports";

/// Both volumes; the recording was made on one of this size.
pub(super) const VOLUME_BYTES: u64 = 512 << 20;
/// Disks of 15,000 rpm that serve first in, first out.
pub(super) const SPINDLES: u32 = 4;
/// Of each disk; the volumes fill half of it, so that seeks are as long as they are on disks in use.
const DISK_BYTES: u64 = 1 << 30;
/// Requests that the reader always has outstanding.
pub(super) const READER_OUTSTANDING: usize = 24;
/// What the reader reads at a time.
pub(super) const READER_BYTES: u64 = 4096;
/// The recording is played so fast: all of it lasts as long as the phases that play it, none of it twice.
pub(super) const SPEED: f64 = 0.8;
/// All the cache that the controller may grant: a quarter of either volume.
pub(super) const CACHE_BYTES: Bytes = Bytes::mib(128);
/// The promise to `orders`: the mean latency of reads.
pub(super) const LATENCY_MAX: Nanos = Nanos::millis(28);
/// The promise to `reports`, in requests per second.
pub(super) const IOPS_MIN: f64 = 640.0;
/// Both are judged in windows of this length.
pub(super) const WINDOW: Nanos = Nanos::secs(1);
/// How often the controller observes and decides.
pub(super) const CONTROL_INTERVAL: Duration = Duration::from_millis(500);
/// The window of the working set that is named in the results.
pub(super) const WORKING_SET_WINDOW: Nanos = Nanos::secs(10);

const RECORDING: &[u8] = include_bytes!("../../../assets/pgbench.fbt.zst");

/// The recording.
pub(super) fn recording() -> Result<Vec<Request>, Failure> {
    let source = Source::new("pgbench.fbt.zst", Cursor::new(RECORDING));
    let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).context("the recording")?;
    let (mut batch, mut requests) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).context("the recording")? > 0 {
        requests.extend_from_slice(&batch);
    }
    Ok(requests)
}

/// The bytes of one volume, readable past the emulated disks.
pub(super) enum Store {
    /// In memory.
    Memory(Arc<MemoryImage>),
    /// In a file that is kept.
    File(PathBuf),
}

impl Store {
    fn backing(&self) -> DiskBacking {
        match self {
            Store::Memory(image) => DiskBacking::Image(Arc::clone(image)),
            Store::File(path) => DiskBacking::File(path.clone()),
        }
    }
}

/// The pieces in which volumes are filled and checked past the disks.
const PIECE_BYTES: u64 = 1 << 20;

/// Fills a volume with version 0 of `content`, in memory or in a file of `keep`.
pub(super) fn fill(content: Content, name: &str, keep: Option<&Path>) -> Result<Store, Failure> {
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut make = |offset: u64| {
        let first = offset / SECTOR_BYTES as u64;
        for (sector, bytes) in (first..).zip(piece.chunks_exact_mut(SECTOR_BYTES)) {
            content.fill_sector(sector, 0, bytes);
        }
        piece.clone()
    };
    let offsets = (0..VOLUME_BYTES).step_by(PIECE_BYTES as usize);
    let Some(folder) = keep else {
        let image = MemoryImage::new(Bytes(VOLUME_BYTES));
        offsets.for_each(|offset| image.write_at(offset, &make(offset)));
        return Ok(Store::Memory(Arc::new(image)));
    };
    let path = folder.join(format!("{name}.img"));
    let shown = path.display().to_string();
    let file = File::options().write(true).create_new(true).open(&path);
    let file = file.context(format_args!("cannot create `{shown}`"))?;
    for offset in offsets {
        file.write_all_at(&make(offset), offset).context(format_args!("cannot write `{shown}`"))?;
    }
    Ok(Store::File(path))
}

/// Compares every byte of a volume, past the disks, with what its shadow allows: (bytes compared, what is wrong first).
pub(super) fn compare(store: &Store, shadow: &Shadow) -> Result<(u64, Option<String>), Failure> {
    let file = match store {
        Store::Memory(_) => None,
        Store::File(path) => {
            Some(File::open(path).context(format_args!("cannot open `{}`", path.display()))?)
        }
    };
    let mut piece = vec![0; PIECE_BYTES as usize];
    for offset in (0..VOLUME_BYTES).step_by(PIECE_BYTES as usize) {
        match (store, &file) {
            (Store::Memory(image), _) => image.read_at(offset, &mut piece),
            (Store::File(path), Some(file)) => file
                .read_exact_at(&mut piece, offset)
                .context(format_args!("cannot read `{}`", path.display()))?,
            (Store::File(_), None) => unreachable!("opened above"),
        }
        let range = ByteRange::new(offset, PIECE_BYTES);
        if let Err(found) = shadow.check_read(range, &shadow.submit_read(range), &piece) {
            return Ok((offset, Some(found)));
        }
    }
    Ok((VOLUME_BYTES, None))
}

/// The contents of both volumes.
pub(super) fn contents(seed: u64) -> [Content; 2] {
    [Content::new(mix64(seed ^ 1)), Content::new(mix64(seed ^ 2))]
}

/// Fails where there is not enough room for both volumes.
pub(super) fn check_room(keep: Option<&Path>) -> Result<(), Failure> {
    let wanted = Bytes(2 * VOLUME_BYTES + (64 << 20));
    if let Some(folder) = keep {
        let room =
            rustix::fs::statvfs(folder).context(format_args!("cannot look at `{}`", folder.display()))?;
        let free = Bytes(room.f_bavail.saturating_mul(room.f_frsize));
        if free < wanted {
            let shown = folder.display();
            return Err(Failure::new(format!("`{shown}` has {free} free: the volumes need {wanted}")));
        }
        return Ok(());
    }
    // Volumes and caches are held in memory. Where the kernel does not say what is free, it is tried.
    let wanted = Bytes(wanted.get() + CACHE_BYTES.get());
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    match free.map(|kib| Bytes(kib << 10)) {
        Some(free) if free < wanted => {
            Err(Failure::new(format!("{free} of memory are free: volumes and caches need {wanted}"))
                .with_hint("hold the volumes in files with --keep DIR"))
        }
        _ => Ok(()),
    }
}

/// The daemon's configuration: nothing in it says what to do about the violations, only what was promised.
pub(super) fn config(socket: &Path, stores: &[Store; 2], keep: Option<&Path>) -> Config {
    let objectives = [
        Objective::mean_latency(LATENCY_MAX, Operations::Reads).over(WINDOW),
        Objective::iops_floor(IOPS_MIN).over(WINDOW),
    ];
    let volumes = [ORDERS, REPORTS]
        .into_iter()
        .zip(stores)
        .zip(objectives)
        .map(|((name, store), objective)| VolumeConfig {
            objectives: vec![objective],
            ..VolumeConfig::new(
                name,
                OriginConfig::DiskGroup { group: "disks".into(), backing: store.backing(), offset: None },
            )
        })
        .collect();
    let disk = DiskParameters::rpm_15000(DISK_BYTES);
    Config {
        listen: vec![ListenerConfig::Unix { path: socket.to_owned() }],
        disk_groups: vec![DiskGroupConfig {
            parameters: DiskGroupParameters::striped(SPINDLES, disk),
            ..DiskGroupConfig::new("disks")
        }],
        cache_memory: CACHE_BYTES,
        flash: None,
        observe: Some(LiveConfig { window: WORKING_SET_WINDOW, ..LiveConfig::default() }),
        control: ControlSettings { enabled: false, interval: CONTROL_INTERVAL, ..ControlSettings::default() },
        history: keep.map(|folder| HistoryConfig::new(folder.join("history.sqlite"))),
        ..Config::new(volumes)
    }
}
