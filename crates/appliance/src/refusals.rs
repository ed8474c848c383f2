//! Lines of the log on clients that are sent away.
//!
//! Anybody who reaches a listener can have one written, as often as a connection is made: of many the log gets the first few and then sums, so that who means no
//! good does not fill it. Who is sent away before it has a volume is counted, too, and each reason has lines of its own: a fenced client that tries again and again
//! hides nobody who guesses a secret.

use forebay_units::{Nanos, Sparing};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many are told one by one (ours): what somebody tries who has a client that does not get in.
const AT_ONCE_MAX: u32 = 8;
/// From then on one line a minute is (ours).
const SPAN: Nanos = Nanos::secs(60);

/// The clients that are sent away at one place, each told of in a line or in a sum.
#[derive(Debug)]
pub struct Refusals(Sparing);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Sparing::new(AT_ONCE_MAX, SPAN))
    }
}

impl Refusals {
    /// One more was.
    pub fn tell(&mut self, now: Nanos, peer: Option<&str>, why: &str, error: Option<&dyn Display>) {
        let all = || {
            let peer = peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            format!("{peer}{why}{error}")
        };
        if self.0.tells(now, all) {
            let (peer, error) = (peer.map(tracing::field::display), error.map(tracing::field::display));
            tracing::warn!(peer, error, "{why}");
        }
    }

    /// Tells how many were of whom nothing was told, if it is time.
    pub fn sum_up(&mut self, now: Nanos) {
        if let Some((untold, last)) = self.0.untold(now) {
            tracing::warn!(untold, last, "more clients were sent away than are told of one by one");
        }
    }

    /// When there is something to sum up.
    pub fn due(&self) -> Option<Nanos> {
        self.0.due()
    }
}

/// Why a client is sent away before it has a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no export of that name.
    Export,
    /// The volume has a secret, and the name shows none, or another one.
    Secret,
    /// The volume's lease keeps it out.
    Fenced,
    /// There are as many connections as may be, in all or of one volume.
    Limit,
    /// It did not choose in time, or gave way to others.
    Timeout,
    /// It did without TLS where that is required, or failed in it.
    Tls,
    /// It breaks the protocol.
    Protocol,
}

impl Reason {
    /// All of them in their order, with their words in metrics.
    const ALL: [(Reason, &str); 7] = [
        (Reason::Export, "export"),
        (Reason::Secret, "secret"),
        (Reason::Fenced, "fenced"),
        (Reason::Limit, "limit"),
        (Reason::Timeout, "timeout"),
        (Reason::Tls, "tls"),
        (Reason::Protocol, "protocol"),
    ];
}

/// How many were sent away for each reason.
#[derive(Debug, Default)]
pub(crate) struct RefusedCounts([AtomicU64; Reason::ALL.len()]);

impl RefusedCounts {
    /// By word; `failed_in_tls` are those of [`Reason::Tls`] that somebody else counts.
    pub(crate) fn by_word(&self, failed_in_tls: u64) -> Vec<(&'static str, u64)> {
        let count = |&(reason, word): &(Reason, &'static str)| {
            let elsewhere = if reason == Reason::Tls { failed_in_tls } else { 0 };
            (word, self.0[reason as usize].load(Ordering::Relaxed) + elsewhere)
        };
        Reason::ALL.iter().map(count).collect()
    }
}

/// Where handshakes are held: whom it sends away it tells of, reason by reason, and counts.
#[derive(Debug, Default)]
pub(crate) struct Door {
    by_reason: [Refusals; Reason::ALL.len()],
    counts: Arc<RefusedCounts>,
}

impl Door {
    pub(crate) fn new(counts: Arc<RefusedCounts>) -> Door {
        Door { counts, ..Door::default() }
    }

    /// One more is sent away.
    pub(crate) fn refuse(
        &mut self,
        now: Nanos,
        reason: Reason,
        peer: &str,
        why: &str,
        error: Option<&dyn Display>,
    ) {
        self.counts.0[reason as usize].fetch_add(1, Ordering::Relaxed);
        self.by_reason[reason as usize].tell(now, Some(peer), why, error);
    }

    /// [`Refusals::sum_up`] of all reasons.
    pub(crate) fn sum_up(&mut self, now: Nanos) {
        self.by_reason.iter_mut().for_each(|refusals| refusals.sum_up(now));
    }

    /// When there is something to sum up.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.by_reason.iter().filter_map(Refusals::due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tries_again_and_again_for_one_reason_hides_nobody_with_another() {
        let mut door = Door::default();
        let (begin, minute) = (Nanos::secs(5), Nanos::secs(60));
        for _ in 0..100_000 {
            door.refuse(begin, Reason::Fenced, "a", "fenced", None);
        }
        assert_eq!(door.due(), Some(begin + minute));
        for _ in 0..AT_ONCE_MAX {
            door.refuse(begin, Reason::Secret, "b", "guesses", None);
        }
        assert_eq!(door.by_reason[Reason::Secret as usize].due(), None, "each was told of by itself");
        door.sum_up(begin + minute);
        assert_eq!(door.due(), None);
        let mut counts = door.counts.by_word(2);
        counts.retain(|(_, count)| *count > 0);
        assert_eq!(counts, [("secret", AT_ONCE_MAX.into()), ("fenced", 100_000), ("tls", 2)]);
        assert!(Reason::ALL.iter().enumerate().all(|(at, (reason, _))| *reason as usize == at));
    }
}
