//! A response whose journal was lost: what it does not know of its clients, and how it comes to know it.

use super::super::shared::Burial;
use super::super::{ApplianceId, Outcome, Shared};
use super::phase::Placed;
use super::{Phase, Response};
use crate::decision::{DecisionKind, Fact};
use crate::inventory::HostId;
use forebay_units::Bytes;

impl Response {
    pub(in super::super) fn has(&self, appliance: ApplianceId) -> bool {
        self.placed.is_some_and(|placed| placed.appliance == appliance)
    }

    /// Clients are brought back, and nobody knows from which appliance.
    fn is_leaving_the_unknown(&self) -> bool {
        self.leaving.is_some() && self.placed.is_none()
    }

    /// Whether clients are where this controller brought them, or found them after all that one before could do to them.
    pub(in super::super) fn knows_where_clients_are(&self) -> bool {
        self.phase != Phase::Looking && !self.is_leaving_the_unknown()
    }

    /// Whether a switch that came to `outcome` leaves clients, of whom it is not known where they are, to who may serve them. A fence would keep them out there, and nothing says
    /// that they would be served where they are to go: it may refuse them by a secret or an export that is wrong in the configuration, or the route be another's. It takes the word of
    /// the route that the path they are on does not end ([`Outcome::NotDrained`]), which it has only of a destination that answers, or that nobody is there.
    pub(super) fn may_be_served_where_they_are(&self, outcome: &Outcome) -> bool {
        let says_nothing = matches!(outcome, Outcome::Refused(_) | Outcome::Unheard(_) | Outcome::Unknown(_));
        says_nothing && self.route().leased && self.is_leaving_the_unknown() && self.is_unsettled()
    }

    /// Looks again where clients are who are brought back from the unknown, unless somebody was fenced for that.
    pub(in super::super) fn look_again(&mut self) {
        if self.phase == Phase::SwitchingBack && self.is_leaving_the_unknown() && self.is_unsettled() {
            (self.phase, self.leaving) = (Phase::Looking, None);
        }
    }

    /// The epochs that the lease and the route of clients who are brought back from the unknown are at now: beyond them are those of the way back.
    pub(super) fn heard_of_epochs(&mut self, outcome: &Outcome, shared: &mut Shared) {
        let leaving = self.leaving.as_mut().expect("on the way back");
        leaving.doubted = false;
        let first = leaving.epochs.all;
        if let Outcome::Found { epoch } = outcome
            && !self.note_epoch(*epoch, shared)
            && *epoch >= first
        {
            self.epoch = self.epoch.max(*epoch);
            self.new_epochs();
            shared.changes += 1;
        }
    }

    /// Whether clients are on some appliance that was tried to be drained, and cannot be fenced.
    pub(in super::super) fn is_stranded(&self) -> bool {
        let is_settled = self.leaving.as_ref().is_some_and(|leaving| leaving.settled);
        let waits = self.phase == Phase::SwitchingBack && self.tries > 0 && self.pending.is_none();
        // Where they would go is known to be other data.
        let may_go = !self.leads_to_other_data();
        waits && may_go && self.is_leaving_the_unknown() && !is_settled && !self.route().leased
    }

    /// No appliance of this volume runs anywhere: what clients were on is gone.
    pub(in super::super) fn find_nothing(&mut self, shared: &mut Shared) {
        self.leaving.as_mut().expect("on the way back").settled = true;
        self.go(Phase::SwitchingBack, shared);
    }

    /// The only appliance of this volume that runs anywhere: what clients are on is this one, or gone.
    pub(in super::super) fn take_for_its_own(&mut self, found: &Burial, shared: &mut Shared) {
        let room = shared.claims.claims().find(|claim| claim.id == found.claim).map(|claim| claim.room);
        self.placed = Some(Placed {
            appliance: found.appliance,
            host: found.host,
            claim: found.claim,
            room: room.unwrap_or_default(),
            cache: Bytes::ZERO,
            doubted: false,
            cache_least: Bytes::ZERO,
            flash: Bytes::ZERO,
            epoch: self.epoch,
            late: found.late,
            settled: false,
        });
        self.leaving.as_mut().expect("on the way back").doubted = true;
        self.go(Phase::SwitchingBack, shared);
    }

    pub(in super::super) fn tell_found(
        &self,
        appliance: ApplianceId,
        host: HostId,
        memory: Bytes,
        shared: &mut Shared,
    ) {
        let at = shared.host_name(host);
        let summary = format!(
            "an appliance for {} runs on {at} of which no journal tells: it is stopped once none of its clients is there",
            self.route().name
        );
        let facts = vec![
            Fact::number("appliance", appliance.0 as f64, ""),
            Fact::text("host", at),
            Fact::number("memory", memory.as_f64(), "bytes"),
        ];
        self.tell(shared, DecisionKind::StrayFound, summary, facts);
    }
}
