//! What an appliance and its volumes are started with.

use crate::driver::{BATCH_WAIT, FlashStore, ListenerConfig, OriginStamp};
use crate::service::{Lease, ServiceLimits};
use crate::volume::{ClientAddress, FlashPlacing, VolumeLimits};
use forebay_locality::LiveConfig;
use forebay_origin::Origin;
use forebay_ring::EngineChoice;
use forebay_tls::ServerTls;
use forebay_units::{BlockSize, Bytes, Ratio, Secret};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What an appliance is started with.
#[derive(Clone)]
pub struct ApplianceConfig {
    /// Where to listen; may be empty.
    pub listeners: Vec<ListenerConfig>,
    /// What is shown to clients that ask for TLS; needed where a listener is [`ListenerConfig::Tls`]. Default: none.
    pub tls: Option<ServerTls>,
    /// Threads that own volumes; at least 1. Each volume has one, so more than there are volumes is a waste. Default 2.
    pub workers: usize,
    /// Client connections at once, handshakes included. Default 4,096. Half of them are kept for all volumes in equal shares, as far as a volume has not used its own.
    pub connections_max: usize,
    /// Maxima of each worker.
    pub limits: ServiceLimits,
    /// How long a worker lets a batch form at most after a turn of 8 or more requests: half of what the turn took, or this. Default
    /// 32 us; zero never waits.
    pub batch_wait: Duration,
    /// How files are read and written. Default: by io_uring where the kernel allows it.
    pub io: EngineChoice,
    /// The volumes at the start.
    pub volumes: Vec<VolumeConfig>,
}

impl Default for ApplianceConfig {
    fn default() -> ApplianceConfig {
        ApplianceConfig {
            listeners: Vec::new(),
            tls: None,
            workers: 2,
            connections_max: 4096,
            limits: ServiceLimits::default(),
            batch_wait: BATCH_WAIT,
            io: EngineChoice::Auto,
            volumes: Vec::new(),
        }
    }
}

/// One volume.
#[derive(Clone)]
pub struct VolumeConfig {
    /// The export's name: unique, at most 4,096 bytes, and not empty.
    pub name: String,
    /// For people who list exports; may be empty.
    pub description: String,
    /// Where the data lives.
    pub origin: Arc<dyn Origin>,
    /// The unit of caching. Default 4 KiB.
    pub block_size: BlockSize,
    /// The partition at the start, in bytes; 0 (default): a proxy without a cache.
    pub quota: Bytes,
    /// The share of the single-touch pool. Default 0.2, as in PRESTO.
    pub single_touch_share: Ratio,
    /// Refuses every change, whatever the origin allows.
    pub read_only: bool,
    /// What is observed of curve, working set and hot zones; `None`: nothing. Default: on.
    pub locality: Option<LiveConfig>,
    /// Maxima.
    pub limits: VolumeLimits,
    /// A second tier below the memory; `None` (default): there is none.
    pub flash: Option<VolumeFlashConfig>,
    /// Who is let in at the start, where clients are to be told apart by the entrance that they name; `None` (default): everybody is.
    pub lease: Option<Lease>,
    /// Clients must name the export `NAME.SECRET`; any other name is one that does not exist, and the volume is not listed. `None` (default):
    /// whoever reaches a listener may use it.
    pub secret: Option<Secret>,
}

/// A volume's share of a flash device.
#[derive(Clone, Debug)]
pub struct VolumeFlashConfig {
    /// The device.
    pub store: Arc<FlashStore>,
    /// How much of it, in bytes; whole segments are used.
    pub quota: Bytes,
    /// Who is let onto it; `None`: whatever memory evicts.
    pub placing: Option<FlashPlacing>,
    /// Clients whose requests bring no chunk onto it.
    pub left_out: BTreeSet<ClientAddress>,
    /// How to know at the next start that nobody changed the origin meanwhile.
    pub stamp: OriginStamp,
}

impl VolumeConfig {
    /// A writable volume without a cache, observed, with the defaults above.
    pub fn new(name: impl Into<String>, origin: Arc<dyn Origin>) -> VolumeConfig {
        VolumeConfig {
            name: name.into(),
            description: String::new(),
            origin,
            block_size: BlockSize::DEFAULT,
            quota: Bytes::ZERO,
            single_touch_share: Ratio::clamped(0.2),
            read_only: false,
            locality: Some(LiveConfig::default()),
            limits: VolumeLimits::default(),
            flash: None,
            lease: None,
            secret: None,
        }
    }
}
