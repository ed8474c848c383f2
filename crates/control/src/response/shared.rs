//! What all responses share: claims, the records of hosts, appliances that are to be gone, and what is ordered and told in a step.

use super::{ApplianceId, Drained, Order, OrderId, ResponseRules, What};
use crate::claims::{Claim, ClaimBook, ClaimId};
use crate::decision::{Decision, DecisionKind, Fact};
use crate::host::Room;
use crate::inventory::{HostId, VolumeId};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What all responses share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: ResponseRules,
    pub(super) claims: ClaimBook,
    pub(super) records: BTreeMap<HostId, HostRecord>,
    pub(super) burials: Vec<Burial>,
    pub(super) next_appliance: u64,
    pub(super) next_order: u64,
    /// What is to be free of appliances.
    pub(super) drained: Drained,
    /// Hosts of which no list was had since the journal was lost, and the number below which appliances there are of before.
    pub(super) unlisted: BTreeMap<HostId, ApplianceId>,
    /// The journal was lost, and all hosts have said since what runs there.
    pub(super) are_listed: bool,
    /// What was ordered before that may have its effect until then.
    pub(super) forgotten_until: Nanos,
    pub(super) now: Nanos,
    pub(super) starting: usize,
    /// The journal cannot be kept now.
    pub(super) held: bool,
    pub(super) changes: u64,
    pub(super) orders: Vec<Order>,
    pub(super) tells: Vec<Decision>,
}

impl Shared {
    pub(super) fn after_ms(&self, span_ms: u64) -> Nanos {
        self.now.saturating_add(Nanos::millis(span_ms))
    }

    /// The pause after so many failures.
    pub(super) fn pause_ms(&self, failures: u32) -> u64 {
        let doubled = self.rules.retry_first_ms.saturating_mul(1 << failures.saturating_sub(1).min(20));
        doubled.min(self.rules.retry_max_ms)
    }

    pub(super) fn host_name(&self, host: HostId) -> String {
        let spec = self.claims.hosts().iter().find(|spec| spec.id == host);
        spec.map_or_else(|| format!("host {}", host.0), |spec| spec.name.clone())
    }

    /// Gives an order out; its number, and when it is taken for lost.
    pub(super) fn order(&mut self, volume: VolumeId, what: What) -> (OrderId, Nanos) {
        let rules = &self.rules;
        let within = match &what {
            What::Start { .. } => rules.start_within_ms,
            What::Look | What::Probe { .. } | What::Resize { .. } | What::Warm { .. } => {
                rules.probe_within_ms
            }
            What::Fence { .. } => rules.fence_within_ms,
            What::Switch { .. } => rules.switch_within_ms,
            What::Stop { .. } => rules.stop_within_ms,
        };
        let lost = self.after_ms(within.saturating_add(rules.report_grace_ms));
        let id = OrderId(self.next_order);
        self.next_order += 1;
        self.orders.push(Order { id, volume, deadline: self.after_ms(within), what });
        (id, lost)
    }

    pub(super) fn tell(
        &mut self,
        volume: VolumeId,
        name: &str,
        kind: DecisionKind,
        summary: String,
        facts: Vec<Fact>,
    ) {
        let volume_name = name.to_owned();
        let at = self.now;
        let alternatives = Vec::new();
        self.tells.push(Decision { at, volume, volume_name, kind, summary, facts, alternatives });
    }

    /// An appliance failed on this host: it is left out for a while.
    pub(super) fn host_failed(&mut self, host: HostId, appliance: ApplianceId, why: &str) {
        let record = self.records.entry(host).or_default();
        record.failures += 1;
        record.failed = Some(appliance);
        record.why = why.to_owned();
        self.rest(host);
    }

    /// An appliance on this host came to its end. Where it was what failed there last, the host rests from now on: one that does not answer takes so long to be left that
    /// its rest would be over by then, and it would be tried again before others.
    pub(super) fn host_is_left(&mut self, host: HostId, appliance: ApplianceId) {
        let record = self.records.get_mut(&host).filter(|record| record.failures > 0);
        if record.is_some_and(|record| record.failed.take_if(|failed| *failed == appliance).is_some()) {
            self.rest(host);
        }
    }

    fn rest(&mut self, host: HostId) {
        let (now, rules) = (self.now, &self.rules);
        if let Some(record) = self.records.get_mut(&host) {
            let doubled = rules.rest_first_ms.saturating_mul(1 << record.failures.saturating_sub(1).min(20));
            record.rests_until = now.saturating_add(Nanos::millis(doubled.min(rules.rest_max_ms)));
        }
    }

    /// Why nothing new is started on a host.
    pub(super) fn why_left_out(&self, host: HostId) -> Option<String> {
        let is_drained = self.drained.hosts.contains(&host);
        if is_drained { Some("is drained".to_owned()) } else { self.rests(host) }
    }

    /// Why a host is left out for a while.
    pub(super) fn rests(&self, host: HostId) -> Option<String> {
        if self.unlisted.contains_key(&host) {
            return Some(
                "is left out until it is known what runs there, of which a journal told that is lost"
                    .to_owned(),
            );
        }
        let record = self.records.get(&host).filter(|record| self.now < record.rests_until)?;
        let left = record.rests_until.saturating_since(self.now).as_secs_f64();
        Some(format!("rests for {left:.0} s: {}", record.why))
    }

    /// Whether this may be ordered now.
    pub(super) fn may_order(&self, what: &What) -> bool {
        !self.held || what.only_asks()
    }

    pub(super) fn bury(&mut self) {
        let mut burials = std::mem::take(&mut self.burials);
        for burial in &mut burials {
            if burial.pending.is_some_and(|(_, lost)| self.now > lost) {
                burial.heard(Err("nothing was heard of it".to_owned()), self);
            }
            let what = What::Stop { appliance: burial.appliance, host: burial.host };
            let is_due = burial.pending.is_none() && !burial.until_known && self.now >= burial.pause_until;
            if is_due && self.may_order(&what) {
                burial.pending = Some(self.order(burial.volume, what));
            }
        }
        self.burials = burials;
    }

    /// A claim for what is there already, whether or not the host is said to have as much.
    pub(super) fn claim_found(&mut self, host: HostId, room: Room, volume: VolumeId) -> ClaimId {
        let id = ClaimId(self.claims.next());
        self.claims.restore(Claim { id, host, room, volume });
        self.changes += 1;
        id
    }

    pub(super) fn start_burial(
        &mut self,
        appliance: ApplianceId,
        host: HostId,
        volume: VolumeId,
        claim: ClaimId,
        late: bool,
    ) {
        let late_until = if late { self.after_ms(self.rules.late_max_ms) } else { Nanos::ZERO };
        self.burials.push(Burial {
            appliance,
            host,
            volume,
            claim,
            late,
            until_known: false,
            has_clients: false,
            late_until,
            pause_until: self.now,
            tries: 0,
            why: None,
            pending: None,
        });
        self.changes += 1;
    }
}

/// How a host has fared.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRecord {
    pub(super) failures: u32,
    /// What failed there last, as long as it is not gone.
    failed: Option<ApplianceId>,
    rests_until: Nanos,
    why: String,
}

/// An appliance that is to be gone and is not known to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Burial {
    pub(super) appliance: ApplianceId,
    pub(super) host: HostId,
    pub(super) volume: VolumeId,
    pub(super) claim: ClaimId,
    /// Its start may still have an effect.
    pub(super) late: bool,
    /// Its volume's clients may be on it: it is not stopped before it is known where they are.
    #[serde(default)]
    pub(super) until_known: bool,
    /// They are known to be, as far as one can know of a route that may be moved yet.
    #[serde(default)]
    pub(super) has_clients: bool,
    #[serde(skip)]
    pub(super) late_until: Nanos,
    #[serde(skip)]
    pub(super) pause_until: Nanos,
    #[serde(skip)]
    pub(super) tries: u32,
    /// Why it was not stopped when that was tried last.
    #[serde(skip)]
    pub(super) why: Option<String>,
    #[serde(skip)]
    pub(super) pending: Option<(OrderId, Nanos)>,
}

impl Burial {
    pub(super) fn heard(&mut self, gone: Result<(), String>, shared: &Shared) {
        self.pending = None;
        self.why = gone.err();
        if self.why.is_none() {
            self.tries = 0;
            self.pause_until = self.late_until;
        } else {
            self.tries += 1;
            self.pause_until = shared.after_ms(shared.pause_ms(self.tries));
        }
    }
}
