//! A controller that may die, and what belongs to its life: the daemon's loop and a fleet's ask theirs through this alone.
//!
//! A panic ends the controller and not who asks it: the next one starts after a pause, which doubles with every one that dies before it has decided anything.

use crate::clock::{Stamp, unix_ms};
use crate::history::History;
use crate::interfering::{InterferenceTable, InterferenceTurns};
use crate::past::PastFile;
use forebay_control::{Controller, Observation, StepOutcome};
use forebay_units::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Pause before a controller that died is started again; it doubles with each death,
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// up to this (ours).
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// A controller, or the time from which on there may be one.
pub(crate) struct Supervised {
    alive: Option<Alive>,
    backoff: Duration,
    start_at: Instant,
}

/// A controller that was started, with what it remembers.
pub(crate) struct Alive {
    pub(crate) controller: Controller,
    /// What is kept of the past, once it has recalled that.
    past: Option<PastFile>,
    /// When it was asked last: as of when it remembers what it does.
    asked: Option<Stamp>,
    interference: InterferenceTurns,
}

/// What it said of an interval.
pub(crate) struct Answer {
    pub(crate) outcome: StepOutcome,
    /// Who interferes with whom on the origin whose turn it is.
    pub(crate) interference: Option<InterferenceTable>,
}

impl Supervised {
    /// Without a controller; the first may start now.
    pub(crate) fn new() -> Supervised {
        Supervised { alive: None, backoff: BACKOFF_MIN, start_at: Instant::now() }
    }

    pub(crate) fn controller(&self) -> Option<&Controller> {
        self.alive.as_ref().map(|alive| &alive.controller)
    }

    /// Whether there is none, and the time for one has come.
    pub(crate) fn is_due(&self) -> bool {
        self.alive.is_none() && Instant::now() >= self.start_at
    }

    pub(crate) fn start(&mut self, controller: Controller) {
        let interference = InterferenceTurns::default();
        self.alive = Some(Alive { controller, past: None, asked: None, interference });
    }

    /// Asks the controller, if there is one. Where that panics it is dead, and what the panic said is the error.
    pub(crate) fn ask(&mut self, ask: impl FnOnce(&mut Alive) -> Answer) -> Option<Result<Answer, String>> {
        let alive = self.alive.as_mut()?;
        let answered = catch_unwind(AssertUnwindSafe(|| ask(alive)));
        Some(match answered {
            Ok(answer) => {
                self.backoff = BACKOFF_MIN;
                alive.asked = Some(Stamp::now());
                Ok(answer)
            }
            Err(panic) => {
                self.died();
                Err(panic_text(&*panic))
            }
        })
    }

    /// It is dead, or could not be started. The next one may start after a pause.
    pub(crate) fn died(&mut self) {
        self.alive = None;
        self.start_at = Instant::now() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    /// Keeps what the controller remembers, where a history is kept.
    pub(crate) fn keep_past(&mut self, interval: Nanos, history: Option<&History>) {
        let Some(Alive { controller, past: Some(past), asked: Some(asked), .. }) = &mut self.alive else {
            return;
        };
        if let Some(history) = history {
            past.keep(controller, asked.clone(), interval, history.counters());
        }
    }

    /// The next one may start now.
    #[cfg(test)]
    pub(crate) fn skip_pause(&mut self) {
        self.start_at = Instant::now();
    }
}

impl Alive {
    /// Has it recall, once, what was kept beside `history` of the volumes that are called so in this order in the configuration.
    pub(crate) fn recall_once(
        &mut self,
        history: &Path,
        names: impl Iterator<Item = String>,
        interval: Nanos,
    ) {
        if self.past.is_none() {
            self.past = Some(PastFile::recall(history, &mut self.controller, names, &Stamp::now(), interval));
        }
    }

    pub(crate) fn step(&mut self, observation: &Observation) -> Answer {
        let outcome = self.controller.step(observation);
        Answer { outcome, interference: self.interference.table(&self.controller, unix_ms()) }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::{ControlConfig, HostId, HostSpec};
    use forebay_units::Bytes;

    fn controller() -> Controller {
        let host = HostSpec::new(HostId(0), "here", 0, Bytes::mib(1));
        Controller::new(ControlConfig::default(), Bytes::mib(1), vec![host], Vec::new()).unwrap()
    }

    #[test]
    fn a_controller_that_dies_again_and_again_is_started_ever_later_until_it_decides() {
        let mut supervised = Supervised::new();
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                supervised.skip_pause();
                assert!(supervised.is_due());
                supervised.start(controller());
                assert!(!supervised.is_due() && supervised.controller().is_some());
                let (pause, now) = (supervised.backoff, Instant::now());
                let said = supervised.ask(|_| panic!("said by a test"));
                assert_eq!(said.unwrap().err().as_deref(), Some("said by a test"));
                assert!(supervised.controller().is_none() && !supervised.is_due());
                assert!(supervised.start_at >= now + pause);
                pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(supervised.ask(|_| panic!("nobody is asked")).is_none());
        supervised.start(controller());
        let observation = Observation::default();
        assert!(supervised.ask(|alive| alive.step(&observation)).unwrap().is_ok());
        assert_eq!(supervised.backoff, BACKOFF_MIN);
    }
}
