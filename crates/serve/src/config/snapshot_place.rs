//! What can be wrong with where snapshots are kept.

use super::check::{is_same_file, size_of, unfit};
use super::problem::Finding;
use super::{Config, OriginConfig, SnapshotPlace};
use crate::snapshots::{DatabaseError, slots, trouble_of_database};
use forebay_cache::snapshot::SLOT_HEADER_BYTES;
use forebay_units::{Bytes, with_causes};
use std::path::Path;

/// A header, and a snapshot of some thousand blocks.
const SNAPSHOT_SLOT_MIN: Bytes = Bytes::kib(16);
/// All headers, 4 MiB of them, are read for each snapshot that is written.
const SNAPSHOT_SLOTS_MAX: u64 = 1024;

/// Adds what is wrong with what is there in the place. It is opened.
///
/// One rule for all kinds of place: what is there and is something else than the configuration says is refused, by who checks and by who starts. What is only absent (a
/// folder, a disk, an export, hosts that have it, a later layout that another host has made) may be there the next minute: a daemon serves without, tells so and tries again.
pub(super) fn is_another(config: &Config, findings: &mut Vec<Finding>) {
    if let Some(SnapshotPlace::Database(path)) = config.snapshots.as_ref().map(|snapshots| &snapshots.place)
        && let Some(error @ (DatabaseError::NoDatabase | DatabaseError::Stranger { .. })) =
            trouble_of_database(path)
    {
        let message = format!("`{}`: {}", path.display(), with_causes(&error));
        findings.push(Finding::new("snapshots.database", message).hint("name another file"));
    }
}

/// What is absent of the place now, with its key; `None` where it is there, or where only who connects to it would know.
pub(super) fn absent(place: &SnapshotPlace) -> Option<(&'static str, String)> {
    match place {
        SnapshotPlace::Folder(path) => no_folder(path).map(|told| ("snapshots.directory", told)),
        SnapshotPlace::Database(path) => {
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            let told = no_folder(folder).or_else(|| {
                Some(format!("`{}`: {}", path.display(), with_causes(&trouble_of_database(path)?)))
            });
            told.map(|told| ("snapshots.database", told))
        }
        SnapshotPlace::Range { origin, range, .. } => {
            let path = origin.path()?;
            let (name, end) = (path.display(), Bytes(range.offset.saturating_add(range.length)));
            match std::fs::metadata(path) {
                Err(error) => Some(("snapshots.origin", format!("cannot open origin `{name}`: {error}"))),
                Ok(metadata) => {
                    let size = size_of(&metadata);
                    let is_short = end > size && (size > Bytes::ZERO || metadata.is_file());
                    is_short.then(|| {
                        let told = format!("the range ends at {end}, behind the end of `{name}` at {size}");
                        ("snapshots.length", told)
                    })
                }
            }
        }
    }
}

fn no_folder(path: &Path) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(format!("the folder `{}` is not there: {error}", path.display()))
}

/// A folder, or a range that nothing else is in.
pub(super) fn snapshot_place(config: &Config, place: &SnapshotPlace, findings: &mut Vec<Finding>) {
    let mut wrong =
        |key: &str, message: String| findings.push(Finding::new(format!("snapshots.{key}"), message));
    match place {
        SnapshotPlace::Folder(path) if path.exists() && !path.is_dir() => {
            wrong("directory", format!("`{}` exists and is no folder", path.display()));
        }
        // Its file is looked at with the others that the daemon writes.
        SnapshotPlace::Folder(_) | SnapshotPlace::Database(_) => {}
        SnapshotPlace::Range { origin, range, slot } => {
            let unit = SLOT_HEADER_BYTES as u64;
            for (key, bytes) in [("offset", range.offset), ("length", range.length), ("slot", slot.get())] {
                if bytes % unit > 0 {
                    wrong(key, format!("{bytes} bytes are no multiple of {unit}"));
                }
            }
            let count = slots(range.length, slot.get());
            if *slot < SNAPSHOT_SLOT_MIN {
                wrong("slot", format!("{slot} is out of range: expected at least {SNAPSHOT_SLOT_MIN}"));
            } else if !(2..=SNAPSHOT_SLOTS_MAX).contains(&count) {
                let length = Bytes(range.length);
                wrong(
                    "slot",
                    format!(
                        "{length} hold {count} slots of {slot}, each with a header of {unit} bytes: expected 2 to {SNAPSHOT_SLOTS_MAX}"
                    ),
                );
            }
            if range.offset.checked_add(range.length).is_none() {
                wrong("offset", format!("{} is beyond any origin", Bytes(range.offset)));
            }
            let origin: &OriginConfig = origin;
            let found = origin.path().and_then(|path| Some((path, std::fs::metadata(path).ok()?)));
            if let Some(message) = found.and_then(|(path, metadata)| unfit(origin, path, &metadata)) {
                wrong("origin", message);
            }
            if !matches!(
                origin,
                OriginConfig::File { .. }
                    | OriginConfig::BlockDevice { .. }
                    | OriginConfig::Nbd { .. }
                    | OriginConfig::Image(_)
            ) {
                wrong(
                    "origin",
                    "snapshots do not outlast it: expected a file, a block device or an export".to_owned(),
                );
            }
            for volume in &config.volumes {
                let same = match (origin, &volume.origin) {
                    (OriginConfig::Nbd { uri, .. }, OriginConfig::Nbd { uri: other, .. }) => {
                        uri.to_string() == other.to_string()
                    }
                    (origin, other) => {
                        origin.path().zip(other.path()).is_some_and(|(a, b)| is_same_file(a, b))
                    }
                };
                if same {
                    wrong(
                        "origin",
                        format!("it is the origin of volume `{}` and would be overwritten", volume.name),
                    );
                }
            }
            let flash = config.flash.as_ref().map(|flash| flash.path.as_path());
            if flash.zip(origin.path()).is_some_and(|(flash, path)| is_same_file(flash, path)) {
                wrong("origin", "it is `flash.path` and would be overwritten".to_owned());
            }
        }
    }
}
