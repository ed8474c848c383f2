//! The data path: the sans-I/O request machine of a volume, its NBD service, and the drivers around them.
//!
//! [`Appliance`] is what daemons, demonstrations and tests start. Below it, from the inside out: [`volume::VolumeMachine`]
//! keeps reads true while a cache fills, shrinks and is written around; the service parses and answers NBD for
//! the connections and volumes of one worker; the driver moves bytes between sockets, service and origins. The two
//! inner ones do no I/O and read no clock, so that a whole data path can run on a simulated network, disk and clock.
//!
//! It decides nothing about sizes, objectives or warm-up: it is told quotas and plans, and tells what it observes. It
//! serves whether or not anybody tells it anything.

mod appliance;
mod clock;
mod driver;
mod refusals;
mod retarget;
pub mod service;
mod slab;
pub mod volume;

pub use appliance::{
    AddVolumeError, Appliance, ApplianceConfig, CommandError, Drained, LeaseError, StartError, VolumeConfig,
    VolumeFlashConfig, VolumeSnapshot, WorkerGone,
};
pub use driver::{
    BATCH_WAIT, BoundAddress, FLASH_ALIGNMENT, FLASH_REQUESTS_MAX, FLASH_SEGMENT_BYTES, FLASH_VOLUMES_MAX,
    FlashConfig, FlashMissing, FlashOpenError, FlashStore, HANDSHAKE_TIME_MAX, HANDSHAKES_MAX, ListenError,
    ListenerConfig, OriginStamp, RECEIVE_BYTES, RetargetError, SocketFile, flash_capacity,
    remove_stale_socket, trouble_of_flash,
};
pub use forebay_ring::{Engine, EngineChoice};
pub use refusals::Refusals;
pub use retarget::{RetargetFailure, RetargetOptions, Retargeted};
pub use service::{Entrance, FenceError, Holder, Lease, RaiseError, ServiceLimits};
