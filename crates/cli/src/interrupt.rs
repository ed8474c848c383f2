//! Signals for commands that have something to say, or to bring to an end, when they are ended.

use crate::failure::{Context, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// Whether a command ends by itself when a signal asks for it.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// What is removed when a signal ends the process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that is not whole yet: it is removed if a signal ends the process before this is dropped.
pub(crate) struct Unfinished(PathBuf);

/// Marks the file at `path` as not whole. Of a command that ends by itself when it is asked to ([`watch`], [`ends_and`]) nothing is removed: it
/// comes to the end of what it writes.
pub(crate) fn unfinished(path: &Path) -> Unfinished {
    static STARTED: Once = Once::new();
    change_unfinished(|paths| paths.push(path.to_owned()));
    // Where signals cannot be watched they do what they do anyway, and leave the file.
    STARTED.call_once(|| {
        let _ = remove_when_ended();
    });
    Unfinished(path.to_owned())
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        change_unfinished(|paths| paths.retain(|path| *path != self.0));
    }
}

fn change_unfinished(change: impl FnOnce(&mut Vec<PathBuf>)) {
    change(&mut UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Starts a thread that waits for a signal that ends the process, and removes what is not whole before it does. A signal that is ignored
/// stays so.
fn remove_when_ended() -> std::io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignores(&status, *signal)))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever().filter(|_| !IS_WATCHED.load(Ordering::SeqCst)) {
            change_unfinished(|paths| {
                for path in paths.iter() {
                    // It may not be there yet, or not be ours to remove.
                    let _ = std::fs::remove_file(path);
                }
                // The process ends here as it would have without this.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            });
        }
    })?;
    Ok(())
}

/// A flag that the first Ctrl-C sets; the second one ends the process at once.
pub(crate) fn watch() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    IS_WATCHED.store(true, Ordering::SeqCst);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .context("cannot watch for signals")?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    Ok(stop)
}

/// The signals that ask for an orderly end, and `others`: Ctrl-C, SIGTERM, and a terminal that is gone, unless whoever started this said that it
/// should stay then (`nohup`). A write past the limit for files (`ulimit -f`, systemd's `LimitFSIZE`) fails from then on, and does not kill; nor do the signals by which
/// rotation of logs has other daemons open theirs anew.
pub(crate) fn ends_and(others: &[i32]) -> Result<Signals, Failure> {
    IS_WATCHED.store(true, Ordering::SeqCst);
    // Handlers, since what is ignored stays so in whatever is started.
    for signal in [SIGXFSZ, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default()).context("cannot watch for signals")?;
    }
    let mut signals = [&[SIGINT, SIGTERM], others].concat();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !ignores(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    Signals::new(signals).context("cannot watch for signals")
}

/// Whether a process of which the kernel tells `status` ignores `signal`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_bit_by_bit_from_signal_1() {
        let status = "Name:\tforebay\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert_eq!(
            [SIGHUP, SIGINT, 13, SIGTERM].map(|signal| ignores(status, signal)),
            [true, false, true, false]
        );
        assert!(!ignores("", SIGHUP));
    }
}
