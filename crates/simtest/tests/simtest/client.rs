//! A simulated client: a real NBD client session, and what it waits for.

use forebay_nbd::client::Session;
use forebay_units::ByteRange;
use std::collections::{BTreeMap, VecDeque};

/// What was asked and not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) started: u64,
    pub(crate) kind: AskedKind,
    pub(crate) range: ByteRange,
    pub(crate) version: u64,
    /// Bytes of a read.
    pub(crate) data: Vec<u8>,
    /// Extents of a block status: bytes, and whether they read as zeroes.
    pub(crate) extents: Vec<(u64, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedKind {
    Read,
    Write,
    WriteZeroes,
    Trim,
    Flush,
    Cache,
    BlockStatus,
}

impl AskedKind {
    pub(crate) fn changes_content(self) -> bool {
        matches!(self, AskedKind::Write | AskedKind::WriteZeroes | AskedKind::Trim)
    }
}

/// One client, which connects again whenever its connection ends.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) volume: usize,
    pub(crate) session: Option<Session>,
    pub(crate) connection: Option<u64>,
    pub(crate) is_ready: bool,
    pub(crate) input: Vec<u8>,
    /// What the connection does not take yet.
    pub(crate) outbox: VecDeque<u8>,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) next_cookie: u64,
    /// Requests in flight at most.
    pub(crate) depth: usize,
    /// Takes nothing from its connection until then.
    pub(crate) deaf_until: u64,
    /// It said goodbye: whatever it asked is still answered.
    pub(crate) is_leaving: bool,
    /// A goodbye need not be answered: the volume, the daemon or the wire ended first.
    pub(crate) is_forsaken: bool,
    /// A think is in the queue of events.
    pub(crate) is_scheduled: bool,
}
