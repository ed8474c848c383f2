//! What a test needs of its machine: real peers, recorded traces, root. Where something is missing the check is skipped, and that is said aloud:
//! `scripts/test` counts the lines that begin with `skipped: `. Under `CI=true` it is a failure.
//!
//! Each function says whether what it is asked for is there; a test that hears that it is not returns.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says that a check is skipped, of what and why: "`what`: `why`".
///
/// # Panics
///
/// Where the environment says `CI=true`.
#[track_caller]
pub fn skip(what: impl Display, why: impl Display) {
    println!("skipped: {what}: {why}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}: {why}, and CI=true");
}

/// Whether all of `programs` are installed and, if `as_root`, this is root.
///
/// # Panics
///
/// As [`skip`], if not.
#[track_caller]
pub fn programs(what: &str, programs: &[&str], as_root: bool) -> bool {
    let mut missing: Vec<&str> = programs.iter().copied().filter(|program| !is_installed(program)).collect();
    if as_root && Command::new("id").arg("-u").output().expect("`id` runs").stdout != b"0\n" {
        missing.push("root");
    }
    if !missing.is_empty() {
        skip(what, format_args!("missing {missing:?}"));
    }
    missing.is_empty()
}

/// Programs of root's are looked for too: who may not run all of them may still ask some for their version.
fn is_installed(program: &str) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    folders.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// The file or folder `name` of the recorded traces: those of `FOREBAY_TRACES`, or of a folder `shared/traces` beside the project. `""` is that folder.
///
/// # Panics
///
/// As [`skip`], if it is absent.
#[track_caller]
pub fn recorded(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    let path = std::env::var_os("FOREBAY_TRACES").map_or_else(beside, PathBuf::from).join(name);
    if path.exists() {
        return Some(path);
    }
    skip(path.display(), "a recorded trace is absent (set FOREBAY_TRACES)");
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only one of the two can be seen in a run; both are what a run of its kind has to see.
    #[test]
    fn what_is_missing_is_a_failure_where_the_environment_says_so() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        let missed = std::panic::catch_unwind(|| programs("a test", &["sh", "no-such-program"], false));
        assert_eq!(missed.ok(), if is_ci { None } else { Some(false) });
        let absent = std::panic::catch_unwind(|| recorded("no-such-trace"));
        assert_eq!(absent.ok(), if is_ci { None } else { Some(None) });
    }

    #[test]
    fn what_is_there_is_found() {
        assert!(programs("a test", &["sh"], false));
    }
}
