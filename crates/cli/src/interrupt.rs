//! Signals for commands that have something to say, or to bring to an end, when they are ended.

use crate::failure::{Context, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first Ctrl-C sets; the second one ends the process at once.
pub(crate) fn watch() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
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
