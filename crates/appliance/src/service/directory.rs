//! Which volumes there are, and which worker owns each: asked during handshakes only.

use crate::slab::SlabKey;
use forebay_nbd::ExportInfo;
use forebay_nbd::server::Exports;
use forebay_origin::Origin;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Names of at most this many bytes are accepted (the protocol's own limit).
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// Where a volume lives.
#[derive(Clone)]
pub(crate) struct DirectoryEntry {
    pub(crate) export: ExportInfo,
    pub(crate) worker: usize,
    pub(crate) volume: SlabKey,
    /// Connections in the transmission phase.
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) origin: Arc<dyn Origin>,
}

/// All volumes by name.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) entries: BTreeMap<String, DirectoryEntry>,
}

impl Exports for Directory {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        // The default export is the only one there is.
        let only = || self.entries.values().next().filter(|_| name.is_empty() && self.entries.len() == 1);
        self.entries.get(name).or_else(only).map(|entry| entry.export.clone())
    }

    fn list(&self, visit: &mut dyn FnMut(&str, &str)) {
        for entry in self.entries.values() {
            visit(&entry.export.name, &entry.export.description);
        }
    }
}
