//! A lease that has lapsed: its storage side began anew without what it had kept of it, or with what it had kept before. Whom it fenced is let in again.
//!
//! It is raised again as it was, which is safe to do twice, and needs no journal. What came past a cache meanwhile that cache does not know of, so clients are taken off it; the
//! next one begins with nothing.

use super::super::{OrderId, Outcome, Shared, What};
use super::{Asked, Phase, Response};
use crate::decision::{DecisionKind, Fact};

impl Response {
    /// The storage side tells that its lease is at `epoch`, asked after all that was heard of orders.
    pub(in super::super) fn lease_seen(&mut self, epoch: u64, shared: &mut Shared) {
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
