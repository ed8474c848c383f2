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
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    println!("{}", said(what, why, is_ci));
}

/// The line that says so; where it `must` not be skipped that is a panic.
#[track_caller]
fn said(what: impl Display, why: impl Display, must: bool) -> String {
    assert!(!must, "{what}: {why}, and CI=true");
    format!("skipped: {what}: {why}")
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

    #[test]
    fn what_is_missing_is_said_and_a_failure_where_it_must_not_be() {
        assert_eq!(said("a guest", "no kernel", false), "skipped: a guest: no kernel");
        let failed = std::panic::catch_unwind(|| said("a guest", "no kernel", true)).unwrap_err();
        assert_eq!(failed.downcast_ref::<String>().unwrap(), "a guest: no kernel, and CI=true");
    }

    #[test]
    fn what_is_there_is_found_and_nothing_else() {
        assert!(programs("a test", &["sh"], false));
        assert!(!is_installed("no-such-program"));
    }
}
