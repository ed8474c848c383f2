//! Which volumes there are, and which worker owns each: asked during handshakes only.

use super::lease::{Entrance, Holder, Lease, parse_entrance};
use crate::refusals::Reason;
use crate::slab::SlabKey;
use forebay_nbd::server::Exports;
use forebay_nbd::{ExportInfo, RunId, Succeeds};
use forebay_origin::Origin;
use forebay_units::Secret;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Names of at most this many bytes are accepted (the protocol's own limit).
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// Where a volume lives.
#[derive(Clone)]
pub(crate) struct DirectoryEntry {
    pub(crate) export: ExportInfo,
    pub(crate) worker: usize,
    /// That worker serves nobody any more, by a panic say.
    pub(crate) worker_ended: Arc<AtomicBool>,
    pub(crate) volume: SlabKey,
    /// A write of it has an unknown outcome.
    pub(crate) is_in_doubt: Arc<AtomicBool>,
    /// Connections in the transmission phase.
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) origin: Arc<dyn Origin>,
    /// Who is let in; `None`: everybody.
    pub(crate) lease: Option<Lease>,
    /// What must stand behind the name, after a dot.
    pub(crate) secret: Option<Secret>,
    /// Who loses a connection knows by it, once connected again, that what was acknowledged is there. Said in words, too, where there is a lease: whom it keeps out knows then that
    /// who does so has all that it was told is written.
    pub(crate) run: RunId,
}

/// A run of its own for a volume, from when it is added to when it is drained.
pub(crate) fn new_run() -> RunId {
    // Seeded by the system, anew for each process; two of one process differ too.
    RunId(RandomState::new().build_hasher().finish())
}

/// Of a name that is none of ours as much is said in the log (ours).
const SAID_CHARS_MAX: usize = 64;

/// Why a name lets nobody in, in words for the log. Nothing of what was shown as a secret is in them.
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) why: &'static str,
    /// What it was about.
    pub(crate) of: String,
}

/// All volumes by name.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) entries: BTreeMap<String, DirectoryEntry>,
}

/// What clients are told whom a lease keeps out.
const FENCED: &str = "the volume's lease is held by others: this epoch is over, or a lease is out";

impl Directory {
    /// Whether a volume may have one more of the `most` connections at once, of which there are `connections` with it: half of them are kept for all volumes in
    /// equal shares, so that the clients of one keep those of no other out. What others have not used of theirs is all that is kept.
    ///
    /// Linear in the number of volumes where more than half of the connections are there.
    pub(crate) fn has_room(&self, volume: &DirectoryEntry, connections: usize, most: usize) -> bool {
        if connections <= most - most / 2 {
            return true;
        }
        let share = (most / 2).checked_div(self.entries.len()).unwrap_or(0);
        let has = |entry: &DirectoryEntry| entry.connections.load(Ordering::Relaxed);
        let is_other = |entry: &&DirectoryEntry| !Arc::ptr_eq(&entry.connections, &volume.connections);
        let kept: usize =
            self.entries.values().filter(is_other).map(|entry| share.saturating_sub(has(entry))).sum();
        has(volume) < share || connections + kept <= most
    }

    /// The volume of this name, for those who show its secret where it has one.
    fn named(&self, name: &str) -> Option<&DirectoryEntry> {
        let open = self.entries.get(name).filter(|entry| entry.secret.is_none());
        open.or_else(|| {
            let (volume, shown) = name.rsplit_once('.')?;
            let has_shown =
                |entry: &&DirectoryEntry| entry.secret.as_ref().is_some_and(|secret| secret.is(shown));
            self.entries.get(volume).filter(has_shown)
        })
    }

    /// The volume that an export's name means, and the entrance that it names.
    fn meant(&self, name: &str) -> Option<(&DirectoryEntry, Entrance)> {
        // The default export is the only one there is.
        let only = || {
            let is_only = |entry: &&DirectoryEntry| entry.secret.is_none() && self.entries.len() == 1;
            self.entries.values().next().filter(|_| name.is_empty()).filter(is_only)
        };
        if let Some(entry) = self.named(name).or_else(only) {
            return Some((entry, Entrance::Original));
        }
        let (volume, entrance) = parse_entrance(name);
        let entry = self.named(volume).filter(|entry| entry.lease.is_some())?;
        Some((entry, entrance))
    }

    /// The volume that an export's name means, for clients that are let in.
    pub(crate) fn resolve(&self, name: &str) -> Option<(&DirectoryEntry, Entrance)> {
        self.meant(name).filter(|(entry, entrance)| entry.lease.is_none_or(|lease| lease.admits(*entrance)))
    }

    /// The volume with a secret that a name means, whatever it shows.
    fn secured(&self, name: &str) -> Option<&DirectoryEntry> {
        let of = |name: &str| self.entries.get(name).filter(|entry| entry.secret.is_some());
        let names = [name, parse_entrance(name).0];
        names.into_iter().find_map(|name| of(name).or_else(|| of(name.rsplit_once('.')?.0)))
    }

    /// Why [`Directory::resolve`] finds nothing by this name.
    pub(crate) fn refused(&self, name: &str) -> Refused {
        if let Some((entry, entrance)) = self.meant(name) {
            let asked = match entrance {
                Entrance::Original => "without an epoch".to_owned(),
                Entrance::Epoch(epoch) => format!("with epoch {epoch}"),
            };
            let lease = match entry.lease {
                Some(Lease { epoch, holder: Holder::Original }) => {
                    format!("; the original route has it, since epoch {epoch}")
                }
                Some(Lease { epoch, holder: Holder::Named }) => format!("; epoch {epoch} has it"),
                None => String::new(),
            };
            return Refused {
                reason: Reason::Fenced,
                why: "client is fenced by the volume's lease; refused",
                of: format!("volume `{}`, asked for {asked}{lease}", entry.export.name),
            };
        }
        if let Some(entry) = self.secured(name) {
            return Refused {
                reason: Reason::Secret,
                why: "client shows no secret, or a wrong one; refused",
                of: format!("volume `{}`", entry.export.name),
            };
        }
        // Behind a dot there may be a secret, with a mistake in the volume's name; and a secret may stand alone.
        let said = name.split('.').next().unwrap_or_default();
        let is_secret = |entry: &DirectoryEntry| entry.secret.as_ref().is_some_and(|secret| secret.is(said));
        let said = if self.entries.values().any(is_secret) { "" } else { said };
        let rest = if said.len() < name.len() { ".." } else { "" };
        let said: String = said.chars().take(SAID_CHARS_MAX).collect();
        Refused {
            reason: Reason::Export,
            why: "client asks for an export that is not here; refused",
            of: format!("`{}{rest}`", said.escape_debug()),
        }
    }
}

impl Exports for Directory {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let (entry, entrance) = self.resolve(name)?;
        let mut export = entry.export.clone();
        if entry.lease.is_some() {
            export.description = entry.run.said_in(&export.description);
        }
        // What came of a write that is in doubt is not over when all of a client's requests are.
        let vouches =
            !entry.worker_ended.load(Ordering::Acquire) && !entry.is_in_doubt.load(Ordering::Acquire);
        let (run, origin) = (entry.run, &entry.origin);
        export.succeeds =
            vouches.then(|| Succeeds { run, storage: origin.storage(), keeper: origin.keeper(run) });
        if entry.secret.is_some() || matches!(entrance, Entrance::Epoch(_)) {
            // As it was asked for, so that secret and epoch are known when it is chosen.
            name.clone_into(&mut export.name);
        }
        Some(export)
    }

    fn refusal(&self, name: &str) -> Option<String> {
        let (entry, _) = self.meant(name).filter(|_| self.resolve(name).is_none())?;
        if entry.worker_ended.load(Ordering::Acquire) {
            // What the origin had said, and nobody was told of yet, is lost with it: nothing is kept.
            return Some(FENCED.to_owned());
        }
        Some(entry.run.said_in(FENCED))
    }

    fn list(&self, visit: &mut dyn FnMut(&str, &str)) {
        for entry in self.entries.values().filter(|entry| entry.secret.is_none()) {
            visit(&entry.export.name, &entry.export.description);
        }
    }
}
