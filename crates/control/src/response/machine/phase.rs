//! Where a response is, and what it holds there: plain data, which the journal keeps.

use super::super::ApplianceId;
use crate::claims::ClaimId;
use crate::host::Room;
use crate::inventory::HostId;
use crate::plain;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

/// Where a response is. Steps in which clients may be on the appliance come from `Switching` to `SwitchingBack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Phase {
    /// No journal tells of it: it is asked whether its lease or its route was changed before. Nothing else is done before that is answered.
    Looking,
    /// Nothing is there.
    Original,
    /// Room is claimed.
    Reserved,
    /// The appliance is being started.
    Starting,
    /// It is asked whether it serves.
    Proving,
    /// The original path is fenced, because the route cannot drain it, or cannot now.
    FencingOriginal,
    /// Clients are being moved to the appliance.
    Switching,
    /// Who is still on the original path is fenced.
    FencingBehind,
    /// The cache is in place.
    Serving,
    /// The appliance is fenced, because its path cannot be drained.
    FencingAppliance,
    /// Where there is no lease it is stopped instead.
    StoppingFirst,
    /// Clients are being moved back.
    SwitchingBack,
    /// Who is still on the appliance is fenced.
    FencingBehindBack,
    /// The appliance is being stopped; no client is on it.
    Stopping,
}

impl Phase {
    pub(in super::super) fn word(self) -> &'static str {
        match self {
            Phase::Looking => "looking what was done before",
            Phase::Original => "original route",
            Phase::Reserved => "room claimed",
            Phase::Starting => "starting",
            Phase::Proving => "waiting for an answer",
            Phase::FencingOriginal => "fencing the original path",
            Phase::Switching => "switching",
            Phase::FencingBehind => "fencing what is left behind",
            Phase::Serving => "serving",
            Phase::FencingAppliance => "fencing the appliance",
            Phase::StoppingFirst => "stopping before the way back",
            Phase::SwitchingBack => "switching back",
            Phase::FencingBehindBack => "fencing what is left behind",
            Phase::Stopping => "stopping",
        }
    }
}

/// An appliance, from the claim to the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Placed {
    pub(in super::super) appliance: ApplianceId,
    pub(in super::super) host: HostId,
    pub(in super::super) claim: ClaimId,
    pub(super) room: Room,
    /// What it was last told to cache at most. Nothing until clients are on it: what it read before could be stale by then.
    #[serde(rename = "cache_bytes", with = "plain::bytes")]
    pub(super) cache: Bytes,
    /// It was told so, or to cache something else, and is not known to have heard it.
    #[serde(default)]
    pub(super) doubted: bool,
    /// What it must have room for at least: what it was started for, or less if it was told so since.
    #[serde(rename = "cache_least_bytes", with = "plain::bytes")]
    pub(super) cache_least: Bytes,
    #[serde(rename = "flash_bytes", with = "plain::bytes")]
    pub(super) flash: Bytes,
    pub(super) epoch: u64,
    /// Its start may still have an effect after it was stopped.
    pub(super) late: bool,
    /// What was out on the original path is settled by a fence, since the route could not drain it.
    #[serde(default)]
    pub(super) settled: bool,
}

/// The way back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Leaving {
    pub(super) why: String,
    /// The appliance answers, so that draining it is worth more than one try.
    pub(super) healthy: bool,
    /// That is to be asked again.
    pub(super) doubted: bool,
    /// It answers, and nobody is connected to it.
    #[serde(default)]
    pub(super) deserted: bool,
    /// The appliance is fenced, or is known not to run: nothing is to be drained.
    pub(super) settled: bool,
    /// Why what it would switch to is not the same data, as was found by a comparison. Only one that succeeds says otherwise: until then nothing is fenced or stopped, behind which nothing would be compared.
    #[serde(default)]
    pub(super) other_data: Option<String>,
    /// What its lease kept out may have been let in meanwhile, so that its cache may be stale, and is then what a comparison finds.
    #[serde(default)]
    pub(super) stale: bool,
    /// It was told that the switch does not succeed, or that clients wait for what cannot be stopped.
    #[serde(default)]
    pub(super) told: bool,
    pub(super) epochs: BackEpochs,
}

/// The epochs of a way back. The lease admits its holder and all epochs above it, so each is admitted until the next fence is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackEpochs {
    /// To fence everybody, where it is not known which path clients are on and none can be drained.
    pub(super) all: u64,
    /// At which the volume is the original route's again.
    pub(super) home: u64,
    /// Of the switch, which clients of the original path name where the route can have them name one; else it is `home`.
    pub(super) path: u64,
}
