//! Lines of the log on clients that are sent away.
//!
//! Anybody who reaches a listener can have one written, as often as a connection is made: of many the log gets the first few and then sums, so that who means no
//! good does not fill it.

use forebay_units::{Nanos, Sparing};
use std::fmt::Display;

/// So many are told one by one (ours): what somebody tries who has a client that does not get in.
const AT_ONCE_MAX: u32 = 8;
/// From then on one line a minute is (ours).
const SPAN: Nanos = Nanos::secs(60);

/// The clients that one thread sends away.
#[derive(Debug)]
pub(crate) struct Refusals(Sparing);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Sparing::new(AT_ONCE_MAX, SPAN))
    }
}

impl Refusals {
    /// One more was.
    pub(crate) fn tell(&mut self, now: Nanos, peer: Option<&str>, why: &str, error: Option<&dyn Display>) {
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
    pub(crate) fn sum_up(&mut self, now: Nanos) {
        if let Some((untold, last)) = self.0.untold(now) {
            tracing::warn!(untold, last, "more clients were sent away than are told of one by one");
        }
    }

    /// When there is something to sum up.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.0.due()
    }
}
