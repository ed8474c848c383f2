//! What most tests begin with: an appliance on a unix socket in a folder of its own, volumes in memory, and patience.

use forebay_appliance::{Appliance, ApplianceConfig, ListenerConfig, ServiceLimits, VolumeConfig};
use forebay_origin::{MemoryImage, MemoryOrigin, Origin};
use forebay_units::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    pub(crate) appliance: Appliance,
    pub(crate) path: PathBuf,
    pub(crate) _directory: tempfile::TempDir,
}

pub(crate) fn scene(volumes: Vec<VolumeConfig>, limits: ServiceLimits) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let listeners = vec![ListenerConfig::Unix { path: path.clone() }];
    let config = ApplianceConfig { listeners, limits, volumes, ..ApplianceConfig::default() };
    Scene { appliance: Appliance::start(config).unwrap(), path, _directory: directory }
}

pub(crate) fn memory(size: u64) -> (Arc<MemoryImage>, Arc<dyn Origin>) {
    let image = Arc::new(MemoryImage::new(Bytes(size)));
    (image.clone(), Arc::new(MemoryOrigin::new(image)))
}

/// Waits until `condition` holds; what it waits for is always some other thread's progress.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Tells other threads of a test to stop, also when the test fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
