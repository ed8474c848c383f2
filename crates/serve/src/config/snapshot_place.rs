//! What can be wrong with where snapshots are kept.

use super::check::{is_same_file, size_of, unfit};
use super::problem::Finding;
use super::{Config, OriginConfig, SnapshotPlace};
use crate::snapshots::{slots, trouble_of_database};
use forebay_cache::snapshot::SLOT_HEADER_BYTES;
use forebay_units::{Bytes, with_causes};

/// A header, and a snapshot of some thousand blocks.
const SNAPSHOT_SLOT_MIN: Bytes = Bytes::kib(16);
/// All headers, 4 MiB of them, are read for each snapshot that is written.
const SNAPSHOT_SLOTS_MAX: u64 = 1024;

/// Adds what no snapshot could be written for as things are. A daemon serves without, and goes on trying: only who asks is told.
pub(super) fn in_vain(config: &Config, findings: &mut Vec<Finding>) {
    let mut wrong =
        |key: &str, message: String| findings.push(Finding::new(format!("snapshots.{key}"), message));
    match config.snapshots.as_ref().map(|snapshots| &snapshots.place) {
        Some(SnapshotPlace::Database(path)) => {
            let trouble = trouble_of_database(path);
            trouble.iter().for_each(|error| {
                wrong("database", format!("`{}`: {}", path.display(), with_causes(error)));
            });
        }
        Some(SnapshotPlace::Range { origin, range, .. }) => {
            let Some(path) = origin.path() else { return };
            let (name, end) = (path.display(), Bytes(range.offset.saturating_add(range.length)));
            match std::fs::metadata(path) {
                Err(error) => wrong("origin", format!("cannot open origin `{name}`: {error}")),
                Ok(metadata) => match (unfit(origin, path, &metadata), size_of(&metadata)) {
                    (Some(message), _) => wrong("origin", message),
                    (None, size) if end > size && (size > Bytes::ZERO || metadata.is_file()) => {
                        wrong(
                            "length",
                            format!("the range ends at {end}, behind the end of `{name}` at {size}"),
                        );
                    }
                    _ => {}
                },
            }
        }
        Some(SnapshotPlace::Folder(_)) | None => {}
    }
}

/// A folder that is there, or a range that nothing else is in.
pub(super) fn snapshot_place(config: &Config, place: &SnapshotPlace, findings: &mut Vec<Finding>) {
    let mut wrong =
        |key: &str, message: String| findings.push(Finding::new(format!("snapshots.{key}"), message));
    match place {
        SnapshotPlace::Folder(path) if !path.is_dir() => {
            wrong("directory", format!("the folder `{}` does not exist", path.display()));
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
