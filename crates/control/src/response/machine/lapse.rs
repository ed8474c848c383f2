//! A lease that has lapsed: its storage side began anew without what it had kept of it, or with what it had kept before. Whom it fenced is let in again.
//!
//! It is raised again as it was, which is safe to do twice, and needs no journal. What came past a cache meanwhile that cache does not know of, so clients are taken off it; the
//! next one begins with nothing.

use super::super::{Holder, OrderId, Outcome, Shared, What};
use super::phase::Leaving;
use super::{Asked, Phase, Response};
use crate::decision::{DecisionKind, Fact};
use forebay_units::EPOCH_MAX;

impl Response {
    /// The storage side tells that its lease is at `epoch` and `holder`'s, asked after all that was heard of orders.
    pub(in super::super) fn lease_seen(&mut self, epoch: u64, holder: Holder, shared: &mut Shared) {
        // Where nothing is ordered nothing else tells that it is mended.
        let is_quiet = matches!(self.phase, Phase::Original | Phase::Serving);
        if self.route().leased && (is_quiet || epoch >= EPOCH_MAX) {
            self.note_epoch(epoch, shared);
        }
        if self.beyond.is_some() {
            return;
        }
        self.note_holder(epoch, holder, shared);
        // Whoever cannot be moved stays, and the storage side refuses epochs that are over by now.
        let is_over = |of: &Leaving| !of.settled && epoch >= of.epochs.all;
        if self.phase == Phase::SwitchingBack && self.leaving.as_ref().is_some_and(is_over) {
            self.epoch = self.epoch.max(epoch);
            self.new_epochs();
            shared.changes += 1;
        }
        if self.route().leased && epoch > self.epoch && self.phase == Phase::Serving {
            (self.epoch, self.raised_to) = (epoch, Some(epoch));
            shared.changes += 1;
        }
        let fence = self.fence.filter(|(fenced, _)| self.route().leased && epoch < *fenced);
        let Some((fenced, _)) = fence else { return };
        if std::mem::replace(&mut self.has_lapsed, true) {
            return;
        }
        shared.changes += 1;
        self.raise_from = shared.now;
        let summary = format!(
            "the storage side of {} has lost its lease: it is at epoch {epoch}, expected {fenced}; whom it fenced was let in, until it is raised again",
            self.route().name
        );
        let facts =
            vec![Fact::number("epoch", epoch as f64, ""), Fact::number("expected_epoch", fenced as f64, "")];
        self.tell(shared, DecisionKind::LeaseLost, summary, facts);
    }

    /// Who is at the original route has given the lease back: where somebody holds it, that is another controller, or an operator.
    fn note_holder(&mut self, epoch: u64, holder: Holder, shared: &mut Shared) {
        let is_home = self.route().leased && self.phase == Phase::Original;
        if is_home && epoch > self.epoch {
            // Or an epoch would be given out that somebody has, whom the next fence would not keep out.
            self.epoch = epoch;
            shared.changes += 1;
        }
        let held = (is_home && holder == Holder::Named).then_some(epoch);
        if std::mem::replace(&mut self.held, held).is_none()
            && let Some(what) = self.sentence_of_holder()
        {
            let facts = vec![Fact::number("epoch", epoch as f64, "")];
            self.tell(shared, DecisionKind::NothingHelps, format!("{}: {what}", self.route().name), facts);
        }
    }

    /// That somebody else holds its lease, and what to do.
    pub(super) fn sentence_of_holder(&self) -> Option<String> {
        let (epoch, name) = (self.held?, &self.route().name);
        Some(format!(
            "its lease is at epoch {epoch} and held by somebody whom this controller did not give it to, a controller with another `state` or an operator: its clients may be on an appliance of theirs, and nothing \
             is done for it; expected one controller for each volume, or `forebay lease {name} --raise {} --original` of the storage side where nobody holds it any more",
            epoch.saturating_add(1)
        ))
    }

    /// Whether no epoch can follow the one that its lease or its route is at, which is told.
    pub(super) fn note_epoch(&mut self, epoch: u64, shared: &mut Shared) -> bool {
        let beyond = Some(epoch).filter(|epoch| *epoch >= EPOCH_MAX);
        if std::mem::replace(&mut self.beyond, beyond).is_none()
            && let Some(what) = self.sentence_of_epochs()
        {
            let facts = vec![Fact::number("epoch", epoch as f64, "")];
            self.tell(shared, DecisionKind::NothingHelps, format!("{}: {what}", self.route().name), facts);
        }
        beyond.is_some()
    }

    /// Goes on from the last epoch of its own where the journal of an earlier version has one that none can follow, and that was somebody else's: what was given out since is not as many.
    pub(super) fn come_down(&mut self) {
        const SINCE: u64 = 16;
        if self.epoch < EPOCH_MAX {
            return;
        }
        let own = [self.fence.map(|(epoch, _)| epoch), self.placed.map(|placed| placed.epoch)];
        let last = own.into_iter().flatten().filter(|epoch| *epoch < EPOCH_MAX / 2).max();
        self.epoch = last.unwrap_or(0) + SINCE;
        if self.leaving.is_some() {
            self.new_epochs();
        }
    }

    /// That its clients can neither be moved nor fenced, since no epoch is left for that, and what to do.
    pub(super) fn sentence_of_epochs(&self) -> Option<String> {
        let epoch = self.beyond?;
        Some(format!(
            "its lease or its route is at epoch {epoch}, and none can follow, since the highest is {EPOCH_MAX} (2^62): its clients can neither be moved nor fenced; end the storage side (or the proxy, \
             whichever `forebay lease` or `forebay route` shows to be there), lower that epoch in its file (`leases.path`, `routes.path`) to {}, where the line of `checksum` and the comma before it are taken out, and start it again",
            self.epoch
        ))
    }

    /// Its lease is another storage side's from now on.
    pub(in super::super) fn forget_fence(&mut self) {
        (self.fence, self.has_lapsed) = (None, false);
    }

    /// Leaves the appliance if somebody else raised its lease, since it may not be let in any more; whatever is ordered next goes beyond that. Whether it did.
    pub(super) fn leave_to_who_raised(&mut self, shared: &mut Shared) -> bool {
        let Some(epoch) = self.raised_to else { return false };
        let why = format!(
            "its lease is at epoch {epoch}: somebody else raised it, an operator or a controller with another `state`"
        );
        self.leave_stale(&why, false, shared);
        true
    }

    /// Orders a lease that has lapsed to be raised; whether it did.
    pub(super) fn raise_again(&mut self, shared: &mut Shared) -> bool {
        let Some((epoch, holder)) = self.fence.filter(|_| self.has_lapsed && self.route().leased) else {
            return false;
        };
        let what = What::Fence { epoch, holder };
        if shared.now < self.raise_from {
            return false;
        }
        let (id, lost) = shared.order(self.volume, what);
        self.pending = Some((id, lost, Asked::Lapse));
        true
    }

    /// Whether this order is out to do so.
    pub(in super::super) fn raises_again(&self, order: OrderId) -> bool {
        self.pending.is_some_and(|(id, _, asked)| id == order && asked == Asked::Lapse)
    }

    pub(super) fn heard_of_lapse(&mut self, outcome: &Outcome, shared: &mut Shared) {
        // On the way back already, they leave a cache that may be stale, too.
        if let (Some(leaving), Outcome::Done | Outcome::Stale { .. }) = (&mut self.leaving, outcome) {
            (leaving.stale, leaving.other_data) = (true, None);
        }
        match outcome {
            Outcome::Done => {
                self.has_lapsed = false;
                shared.changes += 1;
                if self.phase == Phase::Serving {
                    self.leave_stale(
                        "the storage side had lost its lease, so that data may have changed past its cache",
                        true,
                        shared,
                    );
                }
            }
            Outcome::Stale { epoch } if self.note_epoch(*epoch, shared) => {
                self.raise_from = shared.after_ms(shared.rules.probe_every_ms);
            }
            // Somebody else raised it since. Who of ours is still let in shows with the next fence, and an appliance that is not, with its probes.
            Outcome::Stale { epoch } => {
                self.epoch = self.epoch.max(*epoch);
                self.has_lapsed = false;
                shared.changes += 1;
                if self.phase == Phase::Serving {
                    let why =
                        format!("its lease was lost, and is at epoch {epoch} since: somebody else raised it");
                    self.leave_stale(&why, false, shared);
                }
            }
            // Nothing is safe before it is: for as long as it takes.
            _ => self.raise_from = shared.after_ms(shared.rules.probe_every_ms),
        }
    }
}
