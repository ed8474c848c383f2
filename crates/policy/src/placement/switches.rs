//! For which volumes and clients a tier is there.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// Volumes, and clients, whose switches differ from the default.
pub(super) const SWITCHES_MAX: usize = 4_096;

/// There are as many switches as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchesFull;

impl Display for SwitchesFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SWITCHES_MAX} volumes or clients have a switch of their own, which is the most")
    }
}

impl std::error::Error for SwitchesFull {}

/// For whom the tier is there.
#[derive(Clone, Debug)]
pub(super) struct Switches {
    pub(super) by_default: bool,
    pub(super) volumes: BTreeMap<u32, bool>,
    pub(super) clients: BTreeMap<u32, bool>,
}

impl Switches {
    pub(super) fn are_on(&self, volume: u32, client: u32) -> bool {
        self.is_on(volume) && self.clients.get(&client).copied().unwrap_or(true)
    }

    pub(super) fn is_on(&self, volume: u32) -> bool {
        self.volumes.get(&volume).copied().unwrap_or(self.by_default)
    }
}
