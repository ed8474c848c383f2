//! Why a scenario is refused.

use forebay_control::StatedError;
use forebay_units::{Bytes, Nanos};
use std::fmt::Display;

/// Why a scenario is refused. Every variant has the key, as in `volume[0].load[1].rate`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// A value outside its range.
    #[error("{found} is out of range, expected {expected}")]
    OutOfRange {
        /// Which key.
        key: String,
        /// What it is.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A key that must be there is not.
    #[error("missing key `{missing}`, which {because} needs")]
    Missing {
        /// The table.
        key: String,
        /// Which key.
        missing: &'static str,
        /// What needs it.
        because: &'static str,
    },
    /// A name that nothing bears, or that two things bear.
    #[error("`{name}` {problem}")]
    Name {
        /// Which key.
        key: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An objective that cannot be judged.
    #[error("{source}")]
    Objective {
        /// Which table.
        key: String,
        /// What is wrong with it.
        source: StatedError,
    },
    /// An objective that nothing could keep.
    #[error("{bound} cannot be kept: {because} takes {least}")]
    BelowFastestTier {
        /// Which key.
        key: String,
        /// What was promised.
        bound: Nanos,
        /// What is faster than nothing else.
        because: &'static str,
        /// How long that takes.
        least: Nanos,
    },
    /// A rate that so many clients cannot ask for.
    #[error(
        "{iops} requests/s cannot be reached: {} {least} for every answer {} for {} at most",
        if *.clients == 1 { "1 client that waits".to_owned() } else { format!("{clients} clients that wait") },
        if *.clients == 1 { "asks" } else { "ask" },
        super::rates::told_apart([*.iops, *.reachable])[1],
    )]
    BeyondClients {
        /// Which key.
        key: String,
        /// What was promised.
        iops: f64,
        /// How many clients there are.
        clients: u32,
        /// The shortest round.
        least: Nanos,
        /// What they can reach.
        reachable: f64,
    },
    /// A load that must reach the origin and that it can never serve.
    #[error(
        "origin `{origin}` can never serve it: {} requests/s from {at} on reach it whatever is cached, and {servers} at {service} each serve {} at most{}{}{remark}",
        super::rates::told_apart([*.unavoidable, *.at_most])[0], super::rates::told_apart([*.unavoidable, *.at_most])[1],
        super::arithmetic::all_in_one_place(*.times), super::arithmetic::each_costs(*.accesses)
    )]
    Overload {
        /// Which key.
        key: String,
        /// Which origin.
        origin: Box<str>,
        /// Requests per second that no cache takes.
        unavoidable: f64,
        /// From when on.
        at: Nanos,
        /// How many disks or servers, in words.
        servers: Box<str>,
        /// The time of one access.
        service: Nanos,
        /// Accesses of a request.
        accesses: f64,
        /// The most that it serves.
        at_most: f64,
        /// How many times what it serves in turn that is.
        times: f64,
        /// In words what caches answer at most, where that is less than all, and what would be shed by when, where it does not last to the end of the run.
        remark: Box<str>,
    },
    /// Bytes or requests that must pass through something that never takes so many.
    #[error("{what} can never keep up: {asked} from {at} on, and it does {at_most} at most{remark}")]
    Narrow {
        /// Which key.
        key: String,
        /// What is too narrow.
        what: Box<str>,
        /// What is asked of it.
        asked: String,
        /// From when on.
        at: Nanos,
        /// What it can do.
        at_most: String,
        /// In words what caches answer at most, where that is less than all, and what would be shed by when, where it does not last to the end of the run.
        remark: Box<str>,
    },
    /// Volumes that do not fit on their device.
    #[error("the volumes of origin `{origin}` need {needed}, it has {capacity}")]
    DisksTooSmall {
        /// Which key.
        key: String,
        /// Which origin.
        origin: String,
        /// Sum of the volumes' sizes.
        needed: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// A tier that does not fit on its device. In bytes: flash holds a little less than is said of it.
    #[error(
        "a tier of {} bytes does not fit on origin `{origin}`, which holds {} bytes: a smaller tier, or a larger device",
        size.get(), capacity.get()
    )]
    TierTooLarge {
        /// Which key.
        key: String,
        /// The tier's size.
        size: Bytes,
        /// Which origin.
        origin: String,
        /// What there is.
        capacity: Bytes,
    },
}

impl ScenarioError {
    /// The key that is wrong, as in `volume[0].load[1].rate`.
    pub fn key(&self) -> &str {
        match self {
            ScenarioError::OutOfRange { key, .. }
            | ScenarioError::Missing { key, .. }
            | ScenarioError::Name { key, .. }
            | ScenarioError::Objective { key, .. }
            | ScenarioError::BelowFastestTier { key, .. }
            | ScenarioError::BeyondClients { key, .. }
            | ScenarioError::Overload { key, .. }
            | ScenarioError::Narrow { key, .. }
            | ScenarioError::DisksTooSmall { key, .. }
            | ScenarioError::TierTooLarge { key, .. } => key,
        }
    }
}

pub(super) fn out_of_range(
    key: impl Into<String>,
    found: impl Display,
    expected: &'static str,
) -> Result<(), ScenarioError> {
    Err(ScenarioError::OutOfRange { key: key.into(), found: found.to_string(), expected })
}

pub(super) fn missing(
    key: impl Into<String>,
    missing: &'static str,
    because: &'static str,
) -> Result<(), ScenarioError> {
    Err(ScenarioError::Missing { key: key.into(), missing, because })
}
