//! How long a worker lets the next batch form, before it looks for requests again.
//!
//! Most clients send each request by a call of its own (fio, QEMU, the kernel): a worker that looks at once finds the first, answers it,
//! and is woken for the next. Others send all that became free together: for them, every wait is time lost. Which it is
//! shows when the wait is left out: a batch comes whole again, or in pieces. So the wait is left out now and then.
//!
//! Invariant: who has few requests in flight never waits, unless among pieces of a batch.

use std::time::Duration;

/// Requests in a turn below which the next one does not wait at all: waiting takes longer than it saves (ours; with any
/// batch of two waiting 20 us, 4 KiB reads at a queue depth of 4 took 28 us instead of the 14 us of a server that never waits).
const BATCH_MIN: usize = 8;

/// Batches from one that is not waited for to the next: at first, and at most, where they come in pieces each time (ours).
const PROBE_EVERY: (u32, u32) = (16, 1024);

/// Batches that must come whole one after the other before the next ones are not waited for (ours: a client that sends one by one is
/// sometimes quick enough for one or two).
const WHOLE_MIN: u32 = 8;

/// What a worker knows of how its batches come.
#[derive(Debug)]
pub(super) struct BatchWait {
    max: Duration,
    /// Batches come in pieces, as far as is known.
    waits: bool,
    /// Requests of the last batch, if the next one was not waited for.
    not_waited_for: Option<usize>,
    /// Of the batches not waited for, those that came whole since the last that did not.
    whole: u32,
    probe_in: u32,
    probe_every: u32,
    /// The last wait.
    usual: Duration,
}

impl BatchWait {
    /// No wait is longer than `max`.
    pub(super) fn new(max: Duration) -> BatchWait {
        let usual = Duration::ZERO;
        let (probe_every, _) = PROBE_EVERY;
        BatchWait {
            max,
            waits: true,
            not_waited_for: None,
            whole: 0,
            probe_in: probe_every,
            probe_every,
            usual,
        }
    }

    /// A turn served `requests`; how long to wait before the next one, where `turn` says how long this one took.
    ///
    /// It is half of that, so that it keeps pace with the machine: a client needs longer for a request than a worker, and
    /// still finds replies when the wait is over.
    pub(super) fn after(&mut self, requests: usize, turn: impl FnOnce() -> Duration) -> Duration {
        if requests == 0 {
            return Duration::ZERO;
        }
        if let Some(batch) = self.not_waited_for.take() {
            if requests * 2 < batch {
                self.came_in_pieces();
                // The others are on their way.
                return self.usual;
            }
            self.whole += 1;
            self.waits &= self.whole < WHOLE_MIN;
        }
        if requests < BATCH_MIN {
            return Duration::ZERO;
        }
        if self.waits && self.whole == 0 && self.probe_in > 0 {
            self.probe_in -= 1;
            self.usual = (turn() / 2).min(self.max);
            return self.usual;
        }
        self.not_waited_for = Some(requests);
        Duration::ZERO
    }

    fn came_in_pieces(&mut self) {
        let (min, max) = PROBE_EVERY;
        self.probe_every = if self.waits { (self.probe_every * 2).min(max) } else { min };
        self.probe_in = self.probe_every;
        self.waits = true;
        self.whole = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(40);
    const WAIT: Duration = Duration::from_micros(20);

    fn after(wait: &mut BatchWait, requests: usize) -> Duration {
        wait.after(requests, || TURN)
    }

    /// How many of `turns` waited, where `next` says how many requests come after a wait, and how many without.
    fn waits(wait: &mut BatchWait, turns: usize, next: impl Fn(bool) -> usize) -> usize {
        let mut waited = true;
        (0..turns)
            .filter(|_| {
                waited = !after(wait, next(waited)).is_zero();
                waited
            })
            .count()
    }

    #[test]
    fn few_requests_never_wait_and_a_wait_has_a_maximum() {
        let mut wait = BatchWait::new(Duration::from_micros(32));
        for requests in (0..BATCH_MIN).cycle().take(10_000) {
            assert_eq!(after(&mut wait, requests), Duration::ZERO);
        }
        assert_eq!(after(&mut wait, BATCH_MIN), WAIT);
        assert_eq!(wait.after(32, || Duration::from_millis(1)), Duration::from_micros(32));
        assert_eq!(waits(&mut BatchWait::new(Duration::ZERO), 10_000, |_| 32), 0);
    }

    #[test]
    fn batches_that_come_whole_are_not_waited_for() {
        let mut wait = BatchWait::new(TURN);
        // 16 waits until the first probe, then never again.
        assert_eq!(waits(&mut wait, 10_000, |_| 32), 16);
        // A turn without requests, such as one that took completions, says nothing.
        assert_eq!((after(&mut wait, 0), after(&mut wait, 32)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn batches_that_come_in_pieces_are_waited_for() {
        let mut wait = BatchWait::new(TURN);
        let next = |waited| if waited { 32 } else { 3 };
        // Waits until probes: 16, 32, ... 512 (1,008 of them), 1,024 each from there on. A probe is one turn without
        // a wait; the one behind it, with the first piece, waits. Of 20,000 turns the probes are 6 + 18 or 19.
        let waited = waits(&mut wait, 20_000, next);
        assert!((19_974..=19_977).contains(&waited), "{waited}");
    }

    #[test]
    fn it_follows_a_client_that_changes() {
        let mut wait = BatchWait::new(TURN);
        assert_eq!(waits(&mut wait, 1000, |_| 32), 16);
        let pieces = |waited| if waited { 32 } else { 3 };
        // Noticed by the first batch; then as from the start: probes after 16, 32, 64, 128 and 256 batches.
        assert_eq!(waits(&mut wait, 600, pieces), 600 - 6);
        // Now whole again: at the latest after 512 batches.
        assert!(waits(&mut wait, 1000, |_| 32) <= 512);
        assert_eq!(waits(&mut wait, 1000, |_| 32), 0);
    }

    #[test]
    fn a_client_that_is_sometimes_quick_is_waited_for() {
        let mut wait = BatchWait::new(TURN);
        let mut turn = 0;
        let mut waited = true;
        let mut waits = 0;
        for _ in 0..10_000 {
            turn += 1;
            // Of what is not waited for, every fourth batch comes in pieces.
            let requests = if waited || turn % 4 != 0 { 32 } else { 3 };
            waited = !after(&mut wait, requests).is_zero();
            waits += usize::from(waited);
        }
        assert!(waits > 9_000, "{waits}");
    }
}
