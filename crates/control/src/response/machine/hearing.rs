//! Where each outcome of an order leads.

use super::super::{Draining, Outcome, Shared, What};
use super::{Asked, Phase, Placed, Response};
use crate::decision::DecisionKind;
use Outcome::{Done, Found, Healthy, NoClient, NotDrained, OtherData, Refused, Stale, Switched, Unheard};
use forebay_units::Bytes;

/// Probes in a row at which nobody is connected to an appliance before its clients are taken for gone (ours): a connection that broke is made anew sooner.
const DESERTED_PROBES: u32 = 5;

impl Response {
    pub(in super::super) fn heard(&mut self, outcome: Outcome, shared: &mut Shared) {
        let Some((_, _, asked)) = self.pending.take() else { return };
        match asked {
            Asked::Step => self.heard_of_step(outcome, shared),
            Asked::Probe => self.heard_of_probe(outcome, shared),
            Asked::Lapse => self.heard_of_lapse(&outcome, shared),
            Asked::DoubtOfEpochs => self.heard_of_epochs(&outcome, shared),
            Asked::Doubt => {
                let leaving = self.leaving.as_mut().expect("on the way back");
                leaving.doubted = false;
                // Of one that was left since it does not answer that is told.
                let counts = leaving.healthy || self.probes_failed > 0;
                leaving.healthy = matches!(outcome, Outcome::Healthy { .. });
                leaving.deserted = matches!(outcome, Outcome::Healthy { has_clients: false, .. });
                self.next_probe = shared.after_ms(shared.rules.probe_every_ms);
                if leaving.healthy {
                    self.probes_failed = 0;
                    self.outage.answers(shared.now);
                } else {
                    self.probes_failed += u32::from(counts);
                    self.outage.begin();
                    if counts && self.probes_failed == shared.rules.probe_failures.max(1) {
                        self.tell_step(&format!("it does not answer: {}", why(&outcome)), shared);
                    }
                }
            }
            Asked::Resize(cache) => match outcome {
                Outcome::Done => {
                    let placed = self.placed.as_mut().expect("it serves");
                    (placed.cache, placed.cache_least, placed.doubted) = (cache, cache, false);
                    self.resize_said = None;
                    shared.changes += 1;
                }
                other => {
                    // Without any cache it is of no use.
                    let none_yet = self.placed().cache == Bytes::ZERO;
                    let rules = &shared.rules;
                    let pause_ms = if none_yet { rules.retry_first_ms } else { rules.retry_max_ms };
                    self.resize_from = shared.after_ms(pause_ms);
                    let what = format!("its cache is not {cache}: {}", why(&other));
                    if self.says_anew(&what) {
                        self.tell_step(&what, shared);
                    }
                }
            },
            Asked::Warm => {
                if outcome != Outcome::Done {
                    self.tell_step(&format!("nothing is loaded into it: {}", why(&outcome)), shared);
                }
            }
        }
    }

    pub(super) fn tell_step(&self, what: &str, shared: &mut Shared) {
        let summary = format!("the appliance for {}: {what}", self.route().name);
        let facts = self.facts(shared);
        self.tell(shared, DecisionKind::ApplianceFailed, summary, facts);
    }

    fn heard_of_probe(&mut self, outcome: Outcome, shared: &mut Shared) {
        self.next_probe = shared.after_ms(shared.rules.probe_every_ms);
        match outcome {
            Outcome::Healthy { cache, has_clients, origin_trouble } if cache >= self.placed().cache_least => {
                self.probes_failed = 0;
                self.outage.answers(shared.now);
                self.origin_trouble = origin_trouble;
                // Who moves them keeps their connection; those of an address come and go.
                let are_gone = !has_clients && self.route().draining == Draining::ByItself;
                self.probes_deserted = if are_gone { self.probes_deserted + 1 } else { 0 };
                if self.probes_deserted >= DESERTED_PROBES {
                    self.failures += 1;
                    self.leave("none of its clients is connected to it any more", true, shared);
                }
            }
            Outcome::Healthy { cache, .. } => {
                let why = format!("it has {cache} for its cache, expected {}", self.placed().cache_least);
                self.fail(&why, shared);
                self.leave(&why, true, shared);
            }
            other => {
                self.probes_failed += 1;
                if self.probes_failed >= shared.rules.probe_failures.max(1) {
                    let why = format!("it does not answer: {}", why(&other));
                    self.outage.begin();
                    self.fail(&why, shared);
                    self.leave(&why, false, shared);
                }
            }
        }
    }

    fn heard_of_step(&mut self, outcome: Outcome, shared: &mut Shared) {
        if let (Outcome::Done, Some(What::Fence { epoch, holder })) = (&outcome, self.ordered()) {
            self.fence = Some((epoch, holder));
            self.has_lapsed = false;
        }
        let seen = match &outcome {
            Found { epoch } | Stale { epoch } => Some(*epoch),
            Switched { .. } => Some(0),
            Done if matches!(self.ordered(), Some(What::Fence { .. })) => Some(0),
            _ => None,
        };
        // It is asked or ordered again until that is mended.
        let none_can_follow = seen.is_some_and(|epoch| self.note_epoch(epoch, shared));
        let failed = match self.phase {
            _ if none_can_follow => Err(outcome),
            Phase::Looking => self.heard_of_look(outcome, shared),
            Phase::Starting | Phase::Proving => self.heard_of_start(outcome, shared),
            Phase::FencingOriginal | Phase::Switching | Phase::FencingBehind => {
                self.heard_on_the_way_there(outcome, shared)
            }
            Phase::FencingAppliance
            | Phase::StoppingFirst
            | Phase::SwitchingBack
            | Phase::FencingBehindBack => self.heard_on_the_way_back(outcome, shared),
            Phase::Stopping => self.heard_of_stop(outcome, shared),
            Phase::Original | Phase::Reserved | Phase::Serving => Err(outcome),
        };
        // What leads nowhere is tried again: on the way back for as long as it takes.
        if let Err(outcome) = failed {
            self.hindrance = Some(why(&outcome));
            if self.tries + 1 == shared.rules.tries_max.max(1) {
                let word = self.phase.word();
                self.tell_step(
                    &format!("{word} does not succeed and is tried again: {}", why(&outcome)),
                    shared,
                );
            }
            self.again(shared);
        }
    }

    /// Whether a step that fails now was tried as often as it is to be.
    fn is_last_try(&self, shared: &Shared) -> bool {
        self.tries + 1 >= shared.rules.tries_max.max(1)
    }

    /// What is known of a volume of which no journal tells; or the outcome that says nothing of it, as of the other steps below.
    fn heard_of_look(&mut self, outcome: Outcome, shared: &mut Shared) -> Result<(), Outcome> {
        match outcome {
            // What was ordered before the journal was lost may yet move them.
            Found { epoch: 0 } if shared.now < shared.forgotten_until => self.again(shared),
            Found { epoch: 0 } => {
                let was_told = self.tries > 0;
                self.go(Phase::Original, shared);
                if was_told {
                    let summary =
                        format!("{} is on the original route: it was never moved", self.route().name);
                    self.tell(shared, DecisionKind::OriginalRoute, summary, Vec::new());
                }
            }
            Found { epoch } => {
                self.epoch = self.epoch.max(epoch);
                self.leave("what was done before is not known", true, shared);
            }
            other => return Err(other),
        }
        Ok(())
    }

    fn heard_of_start(&mut self, outcome: Outcome, shared: &mut Shared) -> Result<(), Outcome> {
        match (self.phase, outcome) {
            (Phase::Starting, Done) => self.go(Phase::Proving, shared),
            (Phase::Starting, other) => {
                let why = format!("it does not start: {}", why(&other));
                self.fail(&why, shared);
                self.abandon(&why, !matches!(other, Refused(_)), shared);
            }

            (_, Healthy { cache, .. }) if cache >= self.placed().cache_least => {
                let drains = self.route().drains();
                self.go(if drains { Phase::Switching } else { Phase::FencingOriginal }, shared);
            }
            (_, Healthy { cache, .. }) => {
                let host = shared.host_name(self.placed().host);
                let why =
                    format!("{host} gives it {cache} for its cache, expected {}", self.placed().cache_least);
                self.fail(&why, shared);
                self.abandon(&why, false, shared);
            }
            (_, other) => {
                if self.prove_until.is_some_and(|until| shared.now >= until) {
                    let why = format!("it has started and does not answer: {}", why(&other));
                    self.fail(&why, shared);
                    self.abandon(&why, false, shared);
                } else {
                    self.pause_until = shared.after_ms(shared.rules.probe_every_ms);
                }
            }
        }
        Ok(())
    }

    fn heard_on_the_way_there(&mut self, outcome: Outcome, shared: &mut Shared) -> Result<(), Outcome> {
        let last_try = self.is_last_try(shared);
        let (drains, leased) = (self.route().drains(), self.route().leased);
        match (self.phase, outcome) {
            (Phase::FencingOriginal, Done) => self.go(Phase::Switching, shared),
            (Phase::FencingOriginal | Phase::FencingBehind, Stale { epoch }) => {
                // Somebody whom no journal tells of had the lease: nobody of ours is admitted by it.
                self.epoch = self.epoch.max(epoch);
                let why = format!(
                    "the lease is at epoch {epoch} already, expected at most {}",
                    self.placed().epoch
                );
                self.failures += 1;
                self.leave(&why, false, shared);
            }
            (Phase::FencingOriginal, other) if last_try => {
                self.failures += 1;
                self.leave(&format!("the original path cannot be fenced: {}", why(&other)), false, shared);
            }

            (Phase::Switching, Done | Switched { .. }) if drains && leased => {
                self.go(Phase::FencingBehind, shared);
            }
            (Phase::Switching, Done | Switched { .. }) => self.arrive(shared),
            // Somebody whom no journal tells of has moved the clients.
            (Phase::Switching, Stale { epoch }) => {
                self.epoch = self.epoch.max(epoch);
                self.failures += 1;
                self.leave(&format!("the route is at epoch {epoch} already"), true, shared);
            }
            // The storage side had begun anew, say, and what became of a write is not known: a fence settles it.
            (Phase::Switching, NotDrained(_)) if drains && leased && !self.placed().settled => {
                self.placed.as_mut().expect("it is switched to").settled = true;
                self.go(Phase::FencingOriginal, shared);
            }
            // An earlier try, of which nothing was heard, may have had its effect; behind a fence clients cannot stay where they are.
            (
                Phase::Switching,
                Refused(why) | NotDrained(why) | OtherData(why) | NoClient(why) | Unheard(why),
            ) if drains && self.tries == 0 && !self.placed().settled => {
                self.failures += 1;
                self.abandon(&format!("the route is not switched: {why}"), false, shared);
            }
            (Phase::Switching, other) if last_try => {
                self.failures += 1;
                self.leave(&format!("the route is not switched: {}", why(&other)), true, shared);
            }

            (Phase::FencingBehind, Done) => self.arrive(shared),
            (Phase::FencingBehind, other) if last_try => {
                self.failures += 1;
                let why = format!("what was left behind cannot be fenced: {}", why(&other));
                self.leave(&why, true, shared);
            }
            (_, other) => return Err(other),
        }
        Ok(())
    }

    fn heard_on_the_way_back(&mut self, outcome: Outcome, shared: &mut Shared) -> Result<(), Outcome> {
        let last_try = self.is_last_try(shared);
        let (drains, leased) = (self.route().drains(), self.route().leased);
        match (self.phase, outcome) {
            (Phase::FencingAppliance, Done) => {
                self.leaving.as_mut().expect("on the way back").settled = true;
                self.go(Phase::SwitchingBack, shared);
            }
            (Phase::FencingAppliance | Phase::FencingBehindBack, Stale { epoch }) => {
                self.epoch = self.epoch.max(epoch);
                self.new_epochs();
                self.leave_without_draining(shared);
            }
            (Phase::SwitchingBack, other) if self.may_be_served_where_they_are(&other) => {
                // It is tried for as long as it takes, and somebody may raise the lease meanwhile.
                self.leaving.as_mut().expect("on the way back").doubted = last_try;
                return Err(other);
            }
            // Whoever cannot be stopped may be reached by its clients, who drain it.
            (Phase::StoppingFirst, other) if other != Done && last_try => {
                let leaving = self.leaving.as_mut().expect("on the way back");
                if !std::mem::replace(&mut leaving.told, true) {
                    let why = why(&other);
                    self.tell_step(
                        &format!(
                            "its clients wait for it, since nothing fences it and it cannot be stopped: {why}"
                        ),
                        shared,
                    );
                }
                self.go(Phase::SwitchingBack, shared);
                self.pause_until = shared.after_ms(shared.rules.retry_max_ms);
            }
            (Phase::StoppingFirst, Done) => {
                self.leaving.as_mut().expect("on the way back").settled = true;
                self.go(Phase::SwitchingBack, shared);
            }
            (Phase::SwitchingBack, Stale { epoch }) => {
                self.epoch = self.epoch.max(epoch);
                self.new_epochs();
                self.again(shared);
            }
            (Phase::SwitchingBack, Done | Switched { .. }) => {
                // It is what they were compared with.
                self.leaving.as_mut().expect("on the way back").other_data = None;
                // Where the route does not drain the fence has come first.
                if leased && drains {
                    self.go(Phase::FencingBehindBack, shared);
                } else {
                    self.end(shared);
                }
                self.outage.end(shared.now);
            }
            (Phase::SwitchingBack, OtherData(why)) if !self.may_be_stale() => {
                self.stay_off_other_data(why, shared);
            }
            (Phase::SwitchingBack, other) if self.cannot_drain(&other, last_try) => {
                self.leave_without_draining(shared);
            }
            (Phase::SwitchingBack, Unheard(why) | Refused(why))
                if leased && self.placed.is_some() && self.is_unsettled() =>
            {
                self.hindrance = Some(why.clone());
                let leaving = self.leaving.as_mut().expect("on the way back");
                leaving.doubted = true;
                if last_try && !std::mem::replace(&mut leaving.told, true) {
                    self.tell_step(
                        &format!("its clients stay on it, since they cannot be moved: {why}"),
                        shared,
                    );
                }
                self.again(shared);
            }
            (Phase::SwitchingBack, NotDrained(why)) if !leased && self.placed.is_some() => {
                self.hindrance = Some(why);
                self.leaving.as_mut().expect("on the way back").doubted = true;
                self.again(shared);
            }
            // Nobody can be moved, and nothing of theirs can come any more. Whoever starts them anew has them begin by the original path, which is closed to them as long as
            // the lease is not given back. More than one try, since they may be starting just now.
            (Phase::SwitchingBack, NoClient(_)) if last_try => {
                if leased {
                    self.go(Phase::FencingBehindBack, shared);
                } else {
                    self.end(shared);
                }
            }
            // The storage side may refuse the epoch of the new path, since somebody else has raised the lease: a fence tells at which it is.
            (Phase::SwitchingBack, other) if last_try && leased && !self.leads_to_other_data() => {
                let leaving = self.leaving.as_mut().expect("on the way back");
                if !std::mem::replace(&mut leaving.told, true) {
                    let why = why(&other);
                    self.tell_step(
                        &format!("switching back does not succeed and is tried again: {why}"),
                        shared,
                    );
                }
                self.go(Phase::FencingAppliance, shared);
            }
            (Phase::FencingBehindBack, Done) => self.end(shared),
            (_, other) => return Err(other),
        }
        Ok(())
    }

    fn heard_of_stop(&mut self, outcome: Outcome, shared: &mut Shared) -> Result<(), Outcome> {
        let Placed { appliance, host, claim, late, .. } = *self.placed();
        if outcome == Done && !late {
            shared.claims.release(claim);
        } else if outcome == Done || self.is_last_try(shared) {
            shared.start_burial(appliance, host, self.volume, claim, late);
        } else {
            return Err(outcome);
        }
        self.settle(shared);
        Ok(())
    }
}

/// Why an order does not succeed that came to this.
pub(in super::super) fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(why)
        | Outcome::NotDrained(why)
        | Outcome::OtherData(why)
        | Outcome::NoClient(why)
        | Outcome::Unheard(why)
        | Outcome::Unknown(why) => why.clone(),
        Outcome::Stale { epoch } => format!("it is at epoch {epoch} already"),
        Outcome::Done | Outcome::Healthy { .. } | Outcome::Found { .. } | Outcome::Switched { .. } => {
            "the answer is none to this order".to_owned()
        }
    }
}
