//! Which client this daemon is to the Forebays that its origins are at, and which run of it: so that what a killed run had sent there is over, or never taken, before this one writes.
//!
//! Each start takes the next number for its run, and has it on stable storage before it connects to anybody. Two that have the same client's number keep each other out of what they share, so
//! the file is one daemon's at a time, and of a copy of the whole machine it is known by `/etc/machine-id`.

use crate::kept;
use forebay_nbd::Succession;
use forebay_origin::Lineage;
use forebay_units::mix64;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

const SCHEMA: &str = "forebay.succession/1";

/// Why the daemon does not start.
#[derive(Debug, Error)]
#[error("which run this is, in `{path}`, {reason}")]
pub struct SuccessionUnusable {
    path: String,
    reason: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: String,
    /// A random number of 40 bits.
    client: u64,
    /// The last run.
    generation: u32,
    /// What its machine was told by; absent where that had no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<u64>,
}

/// Why it could not be told from the file at `path` which run is the next.
pub(crate) fn trouble(path: &Path) -> Option<SuccessionUnusable> {
    kept(path).err()
}

fn unusable(path: &Path, reason: impl FnOnce() -> String) -> SuccessionUnusable {
    SuccessionUnusable { path: path.display().to_string(), reason: reason() }
}

/// What the file keeps; `None` where there is none.
fn kept(path: &Path) -> Result<Option<Kept>, SuccessionUnusable> {
    let unknown = |reason: String| unusable(path, || format!("is not known: {reason}"));
    let Some(kept) = kept::read::<Kept>(path).map_err(unknown)? else { return Ok(None) };
    if kept.schema != SCHEMA {
        return Err(unknown(format!("found layout `{}`, expected `{SCHEMA}`", kept.schema)));
    }
    if kept.client >= Succession::CLIENTS || kept.generation == 0 {
        let Kept { client, generation, .. } = kept;
        return Err(unknown(format!(
            "found client {client} and run {generation}, expected a client of 40 bits and a run from 1"
        )));
    }
    Ok(Some(kept))
}

/// Begins the next run, which is on stable storage when this returns. No other daemon may have the file meanwhile.
///
/// # Errors
/// The file is not understood, or cannot be written.
pub(crate) fn begin(path: &Path) -> Result<Lineage, SuccessionUnusable> {
    begin_on(path, machine())
}

fn begin_on(path: &Path, machine: Option<u64>) -> Result<Lineage, SuccessionUnusable> {
    let before = kept(path)?;
    let next = next(before, machine, path);
    kept::replace(path, &next).map_err(|error| unusable(path, || format!("cannot be written: {error}")))?;
    tracing::info!(path = %path.display(), run = next.generation, "connections to other Forebays take the place of those that an earlier run had");
    Ok(Lineage::new(next.client, next.generation))
}

/// The run behind `before`, on this machine.
fn next(before: Option<Kept>, machine: Option<u64>, path: &Path) -> Kept {
    let new = || Kept { schema: SCHEMA.to_owned(), client: Lineage::draw_client(), generation: 1, machine };
    let Some(before) = before else { return new() };
    // Who has no number cannot be told from anybody.
    if before.machine.zip(machine).is_some_and(|(then, now)| then != now) {
        tracing::warn!(
            path = %path.display(),
            "the file of runs is of another machine (/etc/machine-id), or a copy of it: this daemon is another client from now on, which takes nobody's place"
        );
        return new();
    }
    match before.generation.checked_add(1) {
        Some(generation) => Kept { generation, machine: machine.or(before.machine), ..before },
        None => new(),
    }
}

/// A number for this machine, if it has one. It is none from which that of the machine could be told, which is not for everybody.
fn machine() -> Option<u64> {
    let id = std::fs::read_to_string("/etc/machine-id").ok()?;
    let id = id.trim();
    // The first start of a system begins with this.
    let is_known = !id.is_empty() && id != "uninitialized";
    is_known.then(|| id.bytes().fold(0, |number, byte| mix64(number ^ u64::from(byte))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn begun(path: &Path, machine: Option<u64>) -> (u64, u32) {
        begin_on(path, machine).unwrap();
        let kept = kept(path).unwrap().unwrap();
        (kept.client, kept.generation)
    }

    #[test]
    fn each_start_is_the_next_run_of_the_same_client_and_a_copy_of_the_machine_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("succession.json");
        let (client, run) = begun(&path, None);
        assert!(client < 1 << 40 && run == 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // What tells machines apart may come later, and may be missing for once.
        for (run, machine) in [(2, None), (3, Some(5)), (4, None), (5, Some(5))] {
            assert_eq!(begun(&path, machine), (client, run));
        }
        let (other, run) = begun(&path, Some(6));
        assert_eq!(run, 1);
        assert_ne!(other, client);
        assert_eq!(begun(&path, Some(6)), (other, 2));
    }

    #[test]
    fn behind_the_last_run_another_client_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("succession.json");
        let last = Kept { schema: SCHEMA.to_owned(), client: 1 << 39, generation: u32::MAX, machine: None };
        kept::replace(&path, &last).unwrap();
        let (client, run) = begun(&path, None);
        assert_eq!(run, 1);
        assert_ne!(client, 1 << 39);
    }

    #[test]
    fn what_is_not_understood_or_cannot_be_written_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("succession.json");
        for (text, told) in [
            ("{", "is not known: it is no JSON"),
            (
                r#"{"schema":"forebay.succession/9","client":1,"generation":1}"#,
                "found layout `forebay.succession/9`",
            ),
            (
                r#"{"schema":"forebay.succession/1","client":1099511627776,"generation":1}"#,
                "found client 1099511627776",
            ),
            (r#"{"schema":"forebay.succession/1","client":1,"generation":0}"#, "and run 0"),
        ] {
            std::fs::write(&path, text).unwrap();
            for error in [trouble(&path), begin(&path).err()] {
                let error = error.expect(text).to_string();
                assert!(error.contains(told) && error.contains("succession.json"), "{error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is left as it is");
        }
        let nowhere = folder.path().join("none/succession.json");
        let error = begin(&nowhere).unwrap_err().to_string();
        assert!(error.contains("none/succession.json`, cannot be written: "), "{error}");
    }
}
