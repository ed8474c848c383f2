//! What more than can be served comes to, where it does not last: a queue, or a loss.
//!
//! It is *not* a prediction: what is told is the least that waits, and the earliest that it is served, with all else at its best. Invariant: what is said to be
//! lost is lost, on average, in any order of the queues and with any cache.

use forebay_units::Nanos;

/// A time in which loads stay as they are, and what they ask of something that has a limit: in requests, in bytes or in seconds of work.
pub(super) struct Phase {
    /// When it begins.
    pub(super) from: Nanos,
    /// When the next one does, or the run ends; later than `from`.
    pub(super) until: Nanos,
    /// Per second.
    pub(super) asked: f64,
    /// What can be done of it per second.
    pub(super) at_most: f64,
    /// What may be outstanding: more is shed.
    pub(super) held_max: f64,
}

impl Phase {
    fn seconds(&self) -> f64 {
        self.until.saturating_since(self.from).as_secs_f64()
    }
}

/// How a phase ends in which more is asked than can be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Excess {
    /// With the run: what waits then is never served.
    Never,
    /// With more waiting than may be outstanding.
    Shed {
        /// What would wait, if it could.
        waiting: f64,
    },
    /// With a queue.
    Queued {
        /// How long it is, what was left by phases before included.
        waiting: f64,
        /// When it has been served at the earliest; `None` where that is not within the run.
        served_by: Option<Nanos>,
    },
}

/// The phases in which more is asked than can be done, by their place, of those that follow each other up to the end of a run.
pub(super) fn excesses(phases: &[Phase]) -> Vec<(usize, Excess)> {
    let mut waiting = 0.0;
    let mut found = Vec::new();
    for (place, phase) in phases.iter().enumerate() {
        waiting = f64::max(0.0, waiting + (phase.asked - phase.at_most) * phase.seconds());
        if phase.asked <= phase.at_most {
            continue;
        }
        let rest = &phases[place + 1..];
        let excess = match rest {
            [] => Excess::Never,
            _ if waiting > phase.held_max => Excess::Shed { waiting },
            _ => Excess::Queued { waiting, served_by: served_by(waiting, rest) },
        };
        found.push((place, excess));
    }
    found
}

/// When what waits has been served, with what the phases that follow leave.
fn served_by(waiting: f64, rest: &[Phase]) -> Option<Nanos> {
    let mut waiting = waiting;
    for phase in rest {
        let spare = phase.at_most - phase.asked;
        if waiting <= spare * phase.seconds() {
            return Some(phase.from + Nanos::from_secs_f64(waiting / spare));
        }
        waiting -= spare * phase.seconds();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phases of 10 s each, of something that does 100 a second, and holds 500.
    fn found(asked: &[f64]) -> Vec<(usize, Excess)> {
        let phases = asked.iter().enumerate().map(|(place, asked)| Phase {
            from: Nanos::secs(10 * place as u64),
            until: Nanos::secs(10 * place as u64 + 10),
            asked: *asked,
            at_most: 100.0,
            held_max: 500.0,
        });
        excesses(&phases.collect::<Vec<_>>())
    }

    #[test]
    fn what_waits_is_served_by_what_later_phases_leave() {
        let queued = |waiting, served_by: Option<u64>| Excess::Queued {
            waiting,
            served_by: served_by.map(Nanos::secs),
        };
        // 10 s at 40 too many are 400, which 100 a second serve within 4 s of nothing else, and 50 within 8.
        assert_eq!(found(&[140.0, 0.0]), [(0, queued(400.0, Some(14)))]);
        assert_eq!(found(&[140.0, 50.0]), [(0, queued(400.0, Some(18)))]);
        // 20 a second serve 200 of them within 10 s; behind those nobody asks.
        assert_eq!(found(&[140.0, 80.0, 0.0]), [(0, queued(400.0, Some(22)))]);
        // What was left by one is there when the next begins: 200 and 300.
        let twice = [(0, queued(400.0, None)), (2, queued(500.0, None))];
        assert_eq!(found(&[140.0, 80.0, 130.0, 90.0]), twice);
        assert_eq!(found(&[100.0, 0.0, 100.0]), []);
    }

    #[test]
    fn what_outlasts_the_run_or_is_more_than_may_wait_is_lost() {
        assert_eq!(found(&[0.0, 101.0]), [(1, Excess::Never)]);
        assert_eq!(found(&[151.0, 0.0]), [(0, Excess::Shed { waiting: 510.0 })]);
        // Two phases of 30 too many: 300, then 600.
        let [first, second] = found(&[130.0, 130.0, 0.0])[..] else { panic!("two") };
        assert!(matches!(first, (0, Excess::Queued { .. })));
        assert_eq!(second, (1, Excess::Shed { waiting: 600.0 }));
    }
}
