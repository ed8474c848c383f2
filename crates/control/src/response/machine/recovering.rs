//! A response whose journal was lost: what it does not know of its clients, and how it comes to know it.

use super::super::shared::Burial;
use super::super::{ApplianceId, Shared};
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
