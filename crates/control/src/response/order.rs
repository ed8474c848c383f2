//! Orders, and what they come to.
//!
//! What is promised of each kind is said here; the machine keeps to it, and whoever carries orders out does.

use super::ApplianceId;
use crate::decision::ZoneRange;
use crate::host::Room;
use crate::inventory::{HostId, VolumeId};
use forebay_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The number of an order, for its report; of one run of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// Where clients are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Straight to the storage side.
    Original,
    /// Through an appliance.
    Appliance {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
}

/// Who is let in at the storage side at the lease's epoch; those of higher epochs always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// Who names no epoch.
    Original,
    /// Who names this epoch.
    Named,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Ask at which epoch the volume's lease and its route are: of both, where it has both. Done only if they answer.
    Look,
    /// Start an appliance, unless it runs. It reaches the storage side by `epoch`, and caches nothing until it is told so by
    /// [`What::Resize`]: whoever looks whether it tells the truth before clients are on it must not leave anything in its cache.
    Start {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// The most that it may take.
        room: Room,
        /// How much it is to be able to cache in memory.
        cache: Bytes,
        /// How much on flash.
        flash: Bytes,
        /// Its epoch.
        epoch: u64,
    },
    /// Ask whether an appliance serves. Done only if it answers for the volume.
    Probe {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
    /// Raise the volume's lease. Once it is done nothing of whom the lease does not admit changes data any more.
    Fence {
        /// To this epoch,
        epoch: u64,
        /// held by.
        holder: Holder,
    },
    /// Move the clients. Once it is done their requests take the new path only. An order with a lower epoch than one carried out is stale and has no effect.
    Switch {
        /// Where to.
        to: Target,
        /// The epoch that the new path names.
        epoch: u64,
        /// What was out on the old path is settled already; else the route drains it, or refuses.
        settled: bool,
    },
    /// Let the appliance cache so much.
    Resize {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// How much.
        cache: Bytes,
    },
    /// Have the appliance load these zones, at most so fast.
    Warm {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// What to load, the most important first.
        zones: Vec<ZoneRange>,
        /// How fast.
        bytes_per_second: u64,
    },
    /// Stop an appliance. Done once it does not run, whether or not it ever did.
    Stop {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
}

impl What {
    /// A word for it.
    pub fn word(&self) -> &'static str {
        match self {
            What::Look => "look",
            What::Start { .. } => "start",
            What::Probe { .. } => "probe",
            What::Fence { .. } => "fence",
            What::Switch { .. } => "switch",
            What::Resize { .. } => "resize",
            What::Warm { .. } => "warm",
            What::Stop { .. } => "stop",
        }
    }

    /// Whether it only asks, so that nobody need know of it after a restart.
    pub fn only_asks(&self) -> bool {
        matches!(self, What::Look | What::Probe { .. })
    }
}

/// Something to be done now. The journal is kept before it is begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Its number, for the report.
    pub id: OrderId,
    /// Of which volume.
    pub volume: VolumeId,
    /// When it is to be given up.
    pub deadline: Nanos,
    /// What.
    pub what: What,
}

/// What an order came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The appliance answers, and has so much for its cache.
    Healthy {
        /// How much.
        cache: Bytes,
        /// Somebody is connected to its volume.
        has_clients: bool,
        /// Why it has nothing of the volume's origin now, where it says so.
        origin_trouble: Option<String>,
    },
    /// The higher of the epochs that were asked for; 0 where there was never any.
    Found {
        /// Which.
        epoch: u64,
    },
    /// The clients are switched.
    Switched {
        /// For how long requests were held, at most; what the old path did not answer before is not in it.
        pause: Nanos,
    },
    /// It had no effect and will have none.
    Refused(String),
    /// The same of a switch, because what is out on the old path cannot be brought to its end.
    NotDrained(String),
    /// The same of a switch, because the new path leads to other data, or to what cannot take the place of the old one, a disk of another size say: whoever comes there comes to data that is not theirs.
    OtherData(String),
    /// The same of a switch, because nobody is there who would be moved: who comes next takes the original path.
    NoClient(String),
    /// The same of a switch, because who would move them cannot be told: they stay where they are, and are served there.
    Unheard(String),
    /// The lease, or the route, is at a higher epoch already; nothing has changed.
    Stale {
        /// At which.
        epoch: u64,
    },
    /// It may have had its effect, or have it yet.
    Unknown(String),
}
