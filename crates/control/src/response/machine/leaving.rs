//! Giving up, the way back, and where both end; and the arrival, which is the other end.

use super::super::{Draining, Outcome, Shared};
use super::phase::{BackEpochs, Leaving};
use super::{Phase, Response};
use crate::decision::{DecisionKind, Fact};

impl Response {
    /// Gives up an appliance to which no client was ever switched.
    pub(super) fn abandon(&mut self, why: &str, late: bool, shared: &mut Shared) {
        self.placed.as_mut().expect("it was ordered").late |= late;
        self.leaving = Some(Leaving {
            why: why.to_owned(),
            healthy: true,
            doubted: false,
            deserted: false,
            settled: true,
            other_data: None,
            stale: false,
            told: false,
            epochs: BackEpochs::default(),
        });
        self.go(Phase::Stopping, shared);
    }

    /// The appliance, or its host, did not do what it should.
    pub(super) fn fail(&mut self, why: &str, shared: &mut Shared) {
        let host = self.placed().host;
        shared.host_failed(host, self.placed().appliance, why);
        self.failures += 1;
        let summary = format!(
            "the appliance for {} on {} is given up: {why}",
            self.route().name,
            shared.host_name(host)
        );
        let mut facts = self.facts(shared);
        facts.push(Fact::text("step", self.phase.word()));
        self.tell(shared, DecisionKind::ApplianceFailed, summary, facts);
    }

    /// Begins the way back from wherever clients may be.
    pub(super) fn leave(&mut self, why: &str, healthy: bool, shared: &mut Shared) {
        self.leaving = Some(Leaving {
            why: why.to_owned(),
            healthy,
            doubted: false,
            deserted: false,
            settled: false,
            other_data: None,
            stale: false,
            told: false,
            epochs: BackEpochs::default(),
        });
        self.raised_to = None;
        self.new_epochs();
        // Also one that does not answer us may answer its clients: a route that drains tries.
        let phase = if self.route().drains() { Phase::SwitchingBack } else { Phase::FencingAppliance };
        self.go(phase, shared);
    }

    /// The same of an appliance past which data may have changed.
    pub(super) fn leave_stale(&mut self, why: &str, healthy: bool, shared: &mut Shared) {
        self.leave(why, healthy, shared);
        self.leaving.as_mut().expect("on the way back").stale = true;
    }

    /// Whether data may have changed past the cache that clients are to leave: then it is no other disk that differs from it, and they are not left there.
    pub(super) fn may_be_stale(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.stale)
    }

    pub(super) fn new_epochs(&mut self) {
        let (all, home) = (self.epoch + 1, self.epoch + 2);
        let path = home + u64::from(self.route().draining == Draining::ByItself);
        let leaving = self.leaving.as_mut().expect("on the way back");
        leaving.epochs = BackEpochs { all, home, path };
        self.epoch = path;
    }

    /// Whether draining is given up. Without a lease that takes the route's word that the old path does not answer, and ours, or that nobody is there who would be moved: an
    /// appliance that serves its clients is not stopped.
    pub(super) fn cannot_drain(&self, outcome: &Outcome, last_try: bool) -> bool {
        let may = |leaving: &&Leaving| !leaving.settled && leaving.other_data.is_none();
        let Some(leaving) = self.leaving.as_ref().filter(may) else { return false };
        // A fence moves nobody, and would have those fail who are served: the original route may refuse them for long, as by a secret that is wrong.
        let says_nothing = matches!(outcome, Outcome::Unheard(_) | Outcome::Refused(_));
        let are_served = self.placed.is_some() && !leaving.deserted && says_nothing;
        match self.route().leased {
            true => !leaving.healthy || (last_try && !are_served),
            false => {
                let is_dead = !leaving.healthy && matches!(outcome, Outcome::NotDrained(_));
                let is_deserted = last_try && matches!(outcome, Outcome::NoClient(_));
                self.placed.is_some() && (is_dead || is_deserted)
            }
        }
    }

    /// What clients would be switched to is other data: they stay where they are. It is tried again, since the right disk may be put back; not often, since clients wait while
    /// both are compared.
    pub(super) fn stay_off_other_data(&mut self, why: String, shared: &mut Shared) {
        let leaving = self.leaving.as_mut().expect("on the way back");
        // Meanwhile it may die.
        leaving.doubted = true;
        if leaving.other_data.replace(why).is_none() {
            let what = self.sentence_of_other_data().expect("it is just set");
            self.tell_step(&what, shared);
        }
        self.hindrance = None;
        self.tries += 1;
        self.pause_until = shared.after_ms(shared.rules.retry_max_ms);
        shared.changes += 1;
    }

    /// That clients stay since their original route leads to other data, and what to do.
    pub(super) fn sentence_of_other_data(&self) -> Option<String> {
        let why = self.leaving.as_ref()?.other_data.as_ref()?;
        Some(format!(
            "its clients stay where they are, since their original route does not lead to their data: {why}; put the right disk back, or, if that is the right one, send them there by hand, as settled"
        ))
    }

    /// Whether a comparison found that clients would be switched to other data.
    pub(super) fn leads_to_other_data(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.other_data.is_some())
    }

    /// On the way back, from what is neither fenced nor stopped.
    pub(super) fn is_unsettled(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| !leaving.settled)
    }

    /// Not by draining after all.
    pub(super) fn leave_without_draining(&mut self, shared: &mut Shared) {
        let phase = if self.route().leased { Phase::FencingAppliance } else { Phase::StoppingFirst };
        self.go(phase, shared);
    }

    pub(super) fn arrive(&mut self, shared: &mut Shared) {
        self.failures = 0;
        self.outage.answers(shared.now);
        self.next_probe = shared.after_ms(shared.rules.probe_every_ms);
        self.go(Phase::Serving, shared);
        if let Some(record) = shared.records.get_mut(&self.placed().host) {
            record.failures = 0;
        }
        let summary = format!(
            "the cache of {} is in place on {}",
            self.route().name,
            shared.host_name(self.placed().host)
        );
        self.tell(shared, DecisionKind::CacheInPlace, summary, self.facts(shared));
    }

    /// Clients are on the original route.
    pub(super) fn end(&mut self, shared: &mut Shared) {
        match self.placed {
            Some(_) => self.go(Phase::Stopping, shared),
            None => self.settle(shared),
        }
    }

    /// The appliance is gone, or is somebody else's to bury; clients are on the original route.
    pub(super) fn settle(&mut self, shared: &mut Shared) {
        let why = self.leaving.take().map_or_else(String::new, |leaving| leaving.why);
        let facts = self.facts(shared);
        if let Some(placed) = self.placed.take() {
            shared.host_is_left(placed.host, placed.appliance);
        }
        self.go(Phase::Original, shared);
        self.pause_until = match self.failures {
            0 => shared.now,
            failures => shared.after_ms(shared.pause_ms(failures)),
        };
        let summary = format!("{} is on the original route: {why}", self.route().name);
        self.why = Some(why);
        self.tell(shared, DecisionKind::OriginalRoute, summary, facts);
    }
}
