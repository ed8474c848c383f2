//! When a cache that was left to fill itself is looked at again, and what is known of it then (ours).
//!
//! Snapshots tell how much was asked of a warm cache. Clients that wait for their answers ask far less of a cold one, in front of a slow origin:
//! what would be filled in a second takes minutes. Only who asks now can tell, so that the decision is made once more by it. Not here: the
//! decision ([`decide_takeover`](super::decide_takeover), with that rate).

use super::takeover::HORIZON_S;
use forebay_units::Nanos;

/// The shortest time of use that says something: who reconnects does not ask evenly.
const USE_MIN: Nanos = Nanos::secs(5);

/// A cache that should have filled itself soon.
#[derive(Clone, Copy, Debug)]
pub struct SecondLook {
    wait: Nanos,
    since: Nanos,
    /// Block look-ups until then,
    lookups: u64,
    /// and when and how many were first seen after it.
    used: Option<(Nanos, u64)>,
}

/// What comes of a look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// It is too early.
    Wait,
    /// So many block look-ups per second are asked of it now: to be decided by.
    Decide(f64),
    /// Nobody used it for so long as a load is for.
    Abandon,
}

impl SecondLook {
    /// Of a cache of which was decided `at` that its own misses fill it within `own_s` seconds, with so many block look-ups until then.
    pub fn new(own_s: f64, at: Nanos, lookups: u64) -> SecondLook {
        // Twice as long, since the rate of the first seconds may be half of what it was.
        let wait = Nanos::from_secs_f64(2.0 * own_s).max(USE_MIN);
        SecondLook { wait, since: at, lookups, used: None }
    }

    /// Looks, with so many block look-ups until `now`. `O(1)`.
    pub fn look(&mut self, now: Nanos, lookups: u64) -> Look {
        match self.used {
            None if lookups > self.lookups => {
                self.used = Some((now, lookups));
                Look::Wait
            }
            None if now.saturating_since(self.since) > Nanos::from_secs_f64(HORIZON_S) => Look::Abandon,
            Some((from, before)) if now.saturating_since(from) >= self.wait => {
                let span = now.saturating_since(from).as_secs_f64();
                Look::Decide(lookups.saturating_sub(before) as f64 / span)
            }
            None | Some(_) => Look::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_decided_by_what_is_asked_once_it_is_used_for_long_enough() {
        let mut look = SecondLook::new(1.5, Nanos::secs(100), 7);
        assert_eq!(look.look(Nanos::secs(160), 7), Look::Wait);
        // Used from here on: 5 s are more than twice 1.5 s.
        assert_eq!(look.look(Nanos::secs(161), 20), Look::Wait);
        assert_eq!(look.look(Nanos::millis(165_999), 900), Look::Wait);
        assert_eq!(look.look(Nanos::secs(166), 120), Look::Decide(20.0));
        let mut slow = SecondLook::new(2.9, Nanos::ZERO, 0);
        assert_eq!(slow.look(Nanos::ZERO, 1), Look::Wait);
        assert_eq!(slow.look(Nanos::millis(5_799), 30), Look::Wait);
        assert!(matches!(slow.look(Nanos::millis(5_800), 30), Look::Decide(_)));
    }

    #[test]
    fn who_is_not_used_is_forgotten() {
        let mut look = SecondLook::new(1.5, Nanos::ZERO, 7);
        assert_eq!(look.look(Nanos::secs(300), 7), Look::Wait);
        assert_eq!(look.look(Nanos::secs(301), 7), Look::Abandon);
    }
}
