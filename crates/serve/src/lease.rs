//! Leases on volumes: who is let in, kept over a restart, raised over the control socket.
//!
//! The data path keeps out whom a lease does not admit (`forebay_appliance::Lease`); here is what makes that hold over a restart: an epoch is on
//! stable storage before anybody is told that it is raised. A file of leases that is not understood keeps the daemon from starting, since it
//! would let in whom somebody was promised to be rid of.

use crate::config::VolumeConfig;
use crate::daemon::Shared;
use crate::kept;
use forebay_appliance::{CommandError, FenceError, Holder, Lease, RaiseError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

const SCHEMA: &str = "forebay.leases/1";

/// How long a raise waits for what is at the origin, unless it is told otherwise; and at most.
const WITHIN_S: f64 = 10.0;
const WITHIN_S_MAX: f64 = 30.0;

/// Who holds the epoch of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseHolder {
    /// Clients that name no epoch.
    Original,
    /// Clients that name this epoch.
    Named,
}

/// A lease as it is kept and told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseStatus {
    /// Who names a lower one is fenced.
    pub epoch: u64,
    /// Who holds it.
    pub holder: LeaseHolder,
}

/// What is asked of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Raise it to this epoch.
    pub epoch: u64,
    /// For whom.
    pub holder: LeaseHolder,
    /// How long to wait for what is at the origin, in seconds; 10 unless set, at most 30.
    #[serde(default)]
    pub within_s: Option<f64>,
}

/// Why a lease was not raised, or its fence cannot be vouched for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Leases are not configured.
    #[error("this daemon has no leases: `leases.path` is not set")]
    NotConfigured,
    /// A field cannot be what it is.
    #[error("`{field}` is {found}, expected {expected}")]
    Refused {
        /// Which.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// There is no such volume, or its origin is absent.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The epoch is over. Nothing has changed.
    #[error("volume `{volume}`: {source}")]
    Stale {
        /// The volume.
        volume: String,
        /// What holds.
        source: RaiseError,
    },
    /// It could not be kept, and so was not raised.
    #[error("the file of leases `{path}` cannot be written: {reason}")]
    NotKept {
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
    /// It is raised, and whom it fences is refused, but what they sent before may yet reach the data: ask again for the same.
    #[error("the lease is raised, but {source}")]
    NotDrained {
        /// What is still on its way.
        source: forebay_appliance::LeaseError,
    },
}

/// Why the daemon does not start.
#[derive(Debug, Error)]
#[error("the leases in `{path}` are not known: {reason}; nobody can be let in without them")]
pub struct LeasesUnreadable {
    path: String,
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: String,
    leases: BTreeMap<String, LeaseStatus>,
}

/// Why nobody could be let in by what the file at `path` keeps.
pub(crate) fn trouble(path: &Path) -> Option<LeasesUnreadable> {
    kept(path).err()
}

/// What the file keeps; `None` where there is none.
fn kept(path: &Path) -> Result<Option<Kept>, LeasesUnreadable> {
    let unreadable = |reason: String| LeasesUnreadable { path: path.display().to_string(), reason };
    match kept::read::<Kept>(path).map_err(unreadable)? {
        Some(kept) if kept.schema != SCHEMA => {
            Err(unreadable(format!("found layout `{}`, expected `{SCHEMA}`", kept.schema)))
        }
        kept => Ok(kept),
    }
}

/// The leases of all volumes, and the file that keeps them.
#[derive(Debug)]
pub(crate) struct LeaseBook {
    path: PathBuf,
    leases: BTreeMap<String, Lease>,
}

impl LeaseBook {
    /// Those that the file keeps, also of volumes that are no longer served; the first of their kind for those that it does not know.
    pub(crate) fn open(path: &Path, volumes: &[VolumeConfig]) -> Result<LeaseBook, LeasesUnreadable> {
        let unreadable = |reason: String| LeasesUnreadable { path: path.display().to_string(), reason };
        let kept = kept(path)?;
        let is_new = kept.is_none();
        let kept = kept.unwrap_or_else(|| Kept { schema: SCHEMA.to_owned(), leases: BTreeMap::new() });
        let mut book = LeaseBook { path: path.to_owned(), leases: BTreeMap::new() };
        book.leases.extend(kept.leases.into_iter().map(|(volume, lease)| (volume, lease.into())));
        for volume in volumes {
            book.leases.entry(volume.name.clone()).or_insert(Lease::FIRST);
        }
        if is_new {
            // So that it is known now whether it can be written, and noticed later if it is gone.
            book.keep().map_err(|error| unreadable(error.to_string()))?;
            // Whoever had one before should hear that it is lost.
            tracing::info!(path = %path.display(), "no leases were kept: they begin at epoch 0, and everybody is let in");
        }
        Ok(book)
    }

    pub(crate) fn of(&self, volume: &str) -> Option<Lease> {
        self.leases.get(volume).copied()
    }

    /// Those of `volumes`, by name.
    pub(crate) fn served(&self, volumes: &[VolumeConfig]) -> BTreeMap<String, LeaseStatus> {
        let of = |volume: &VolumeConfig| Some((volume.name.clone(), self.of(&volume.name)?.into()));
        volumes.iter().filter_map(of).collect()
    }

    /// Notes the lease of a volume as raised; it is on stable storage when this returns.
    fn raise(&mut self, volume: &str, lease: Lease) -> Result<(), LeaseError> {
        let unknown = || CommandError::Unknown { name: volume.to_owned() };
        let now = self.of(volume).ok_or_else(unknown)?;
        let raised = now.raised(lease).map_err(|source| refused(volume, source))?;
        if raised == now {
            return Ok(());
        }
        self.leases.insert(volume.to_owned(), raised);
        self.keep().map_err(|error| {
            self.leases.insert(volume.to_owned(), now);
            LeaseError::NotKept { path: self.path.display().to_string(), reason: error.to_string() }
        })
    }

    fn keep(&self) -> std::io::Result<()> {
        let leases = self.leases.iter().map(|(volume, lease)| (volume.clone(), (*lease).into())).collect();
        kept::replace(&self.path, &Kept { schema: SCHEMA.to_owned(), leases })
    }
}

/// Why the lease of a volume is not raised.
fn refused(volume: &str, source: RaiseError) -> LeaseError {
    match source {
        RaiseError::TooHigh { asked } => LeaseError::Refused {
            field: "epoch",
            found: asked.to_string(),
            expected: "at most 4611686018427387904 (2^62), since epochs only rise, and others are to follow",
        },
        source => LeaseError::Stale { volume: volume.to_owned(), source },
    }
}

impl From<Lease> for LeaseStatus {
    fn from(lease: Lease) -> LeaseStatus {
        let holder = match lease.holder {
            Holder::Original => LeaseHolder::Original,
            Holder::Named => LeaseHolder::Named,
        };
        LeaseStatus { epoch: lease.epoch, holder }
    }
}

impl From<LeaseStatus> for Lease {
    fn from(status: LeaseStatus) -> Lease {
        let holder = match status.holder {
            LeaseHolder::Original => Holder::Original,
            LeaseHolder::Named => Holder::Named,
        };
        Lease { epoch: status.epoch, holder }
    }
}

/// Raises the lease of a volume, and waits until nothing of whom it fences is at the origin.
pub(crate) fn raise(shared: &Shared, volume: &str, request: LeaseRequest) -> Result<LeaseStatus, LeaseError> {
    let within = request.within_s.unwrap_or(WITHIN_S);
    if !(0.0..=WITHIN_S_MAX).contains(&within) {
        let (field, expected) = ("within_s", "0 to 30");
        return Err(LeaseError::Refused { field, found: within.to_string(), expected });
    }
    let status = LeaseStatus { epoch: request.epoch, holder: request.holder };
    {
        let mut book = shared.books.leases().ok_or(LeaseError::NotConfigured)?;
        book.raise(volume, status.into())?;
    }
    tracing::info!(volume, epoch = status.epoch, holder = ?status.holder, "the lease is raised");
    // Beyond the lock: another volume need not wait for this one's origin. Who raised this one meanwhile answers for it.
    match shared.appliance.raise_lease(volume, status.into(), Duration::from_secs_f64(within)) {
        Ok(()) => Ok(status),
        Err(forebay_appliance::LeaseError::Stale { source, .. }) => Err(refused(volume, source)),
        Err(forebay_appliance::LeaseError::Fence { source: FenceError::Overtaken { now }, .. }) => {
            let source = RaiseError::Stale { asked: status.epoch, now };
            Err(LeaseError::Stale { volume: volume.to_owned(), source })
        }
        Err(forebay_appliance::LeaseError::Command(error)) => Err(error.into()),
        Err(source) => {
            tracing::warn!(%source, "a lease is raised, but its fence cannot be vouched for");
            Err(LeaseError::NotDrained { source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OriginConfig;
    use forebay_units::Bytes;

    #[test]
    fn epochs_outlast_the_daemon_and_a_file_that_is_not_understood_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.json");
        let volumes = [VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) })];
        let mut book = LeaseBook::open(&path, &volumes).unwrap();
        assert_eq!(book.of("db"), Some(Lease::FIRST));
        let out = Lease { epoch: 3, holder: Holder::Named };
        book.raise("db", out).unwrap();
        book.raise("db", out).unwrap();
        assert!(matches!(book.raise("db", Lease::FIRST), Err(LeaseError::Stale { .. })));
        assert!(matches!(book.raise("other", out), Err(LeaseError::Command(_))));
        // Nothing could follow, which is no epoch that is over.
        let refused = book.raise("db", Lease { epoch: u64::MAX, ..out }).unwrap_err();
        let said = "`epoch` is 18446744073709551615, expected at most 4611686018427387904 (2^62)";
        assert!(
            matches!(refused, LeaseError::Refused { .. }) && refused.to_string().contains(said),
            "{refused}"
        );
        assert!(said.contains(&forebay_units::EPOCH_MAX.to_string()));
        // Also of a volume that is not served for a while.
        drop(LeaseBook::open(&path, &[]).unwrap());
        assert_eq!(LeaseBook::open(&path, &volumes).unwrap().of("db"), Some(out));
        // What cannot be kept is not raised.
        std::fs::create_dir(folder.path().join("leases.json.new")).unwrap();
        let refused = book.raise("db", Lease { epoch: 4, ..out });
        assert!(matches!(refused, Err(LeaseError::NotKept { .. })), "{refused:?}");
        assert_eq!(book.of("db"), Some(out));
        for wrong in ["", "{}", r#"{"schema": "forebay.leases/2", "leases": {}}"#] {
            std::fs::write(&path, wrong).unwrap();
            assert!(LeaseBook::open(&path, &volumes).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_fence_of_a_volume_that_is_not_served_outlasts_what_is_raised_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.json");
        let volumes =
            ["db", "web"].map(|name| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) }));
        let out = Lease { epoch: 3, holder: Holder::Named };
        LeaseBook::open(&path, &volumes).unwrap().raise("db", out).unwrap();
        LeaseBook::open(&path, &volumes[1..]).unwrap().raise("web", Lease { epoch: 1, ..out }).unwrap();
        let book = LeaseBook::open(&path, &volumes).unwrap();
        assert_eq!((book.of("db"), book.of("web")), (Some(out), Some(Lease { epoch: 1, ..out })));
    }

    #[test]
    fn a_file_of_leases_that_could_not_be_written_is_told_before_anybody_is_let_in() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("leases.json.new")).unwrap();
        let refused = LeaseBook::open(&folder.path().join("leases.json"), &[]).unwrap_err();
        assert!(refused.to_string().contains("leases.json"), "{refused}");
    }
}
