//! Claims: room on hosts that is spoken for, so that two plans never count on the same memory.
//!
//! A claim is made before anything is ordered, has a number that is never used again, and stands until it is
//! released. Plain data: it is kept in the journal of responses and outlasts a restart.
//! It is *not* a promise to an application (that is a reservation of the daemon).
//! Invariant: of no host more is claimed than it has.

use crate::host::{self, Room};
use crate::inventory::{HostId, HostSpec, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(pub u64);

/// Room that is spoken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its number.
    pub id: ClaimId,
    /// On which host.
    pub host: HostId,
    /// How much of it.
    pub room: Room,
    /// For whose cache.
    pub volume: VolumeId,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClaimError {
    /// The host is not known.
    #[error("there is no host {}", .host.0)]
    Unknown {
        /// Which.
        host: HostId,
    },
    /// It has less than is asked for.
    #[error("host `{host}` has {free} free, expected {needed}")]
    Full {
        /// Its name.
        host: String,
        /// What it can still give.
        free: Room,
        /// What was asked for.
        needed: Room,
    },
    /// No host has as much.
    #[error("no host has {needed} free: {}", list(.hosts))]
    NothingFits {
        /// What was asked for.
        needed: Room,
        /// What each has free, why it is left out, if it is.
        hosts: Vec<(String, Room, Option<String>)>,
    },
}

/// At most eight hosts are named.
fn list(hosts: &[(String, Room, Option<String>)]) -> String {
    let each = |(name, free, left_out): &(String, Room, Option<String>)| match left_out {
        Some(why) => format!("`{name}` {why}"),
        None => format!("`{name}` {free}"),
    };
    let mut words: Vec<String> = hosts.iter().take(8).map(each).collect();
    match hosts.len() {
        0 => words.push("there are none".to_owned()),
        9.. => words.push(format!("{} more", hosts.len() - 8)),
        _ => {}
    }
    words.join("; ")
}

/// All claims on all hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimBook {
    hosts: Vec<HostSpec>,
    claims: BTreeMap<ClaimId, Claim>,
    /// By host: what is claimed of it, all together.
    taken: BTreeMap<HostId, Room>,
    next: u64,
}

impl ClaimBook {
    /// Nothing claimed of `hosts`.
    pub(crate) fn new(hosts: Vec<HostSpec>) -> ClaimBook {
        ClaimBook { hosts, claims: BTreeMap::new(), taken: BTreeMap::new(), next: 1 }
    }

    /// The hosts.
    pub(crate) fn hosts(&self) -> &[HostSpec] {
        &self.hosts
    }

    /// All claims, by number.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    /// The number that the next claim gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// What a host can still give; nothing for an unknown one. `O(hosts)`.
    pub(crate) fn free(&self, host: HostId) -> Room {
        self.hosts.iter().find(|spec| spec.id == host).map_or(Room::default(), |spec| self.free_of(spec))
    }

    fn free_of(&self, spec: &HostSpec) -> Room {
        spec.room().less(self.taken.get(&spec.id).copied().unwrap_or_default())
    }

    /// Adds up what is claimed of a host, whose claims have changed: it is asked far more often. `O(claims)`.
    fn add_up(&mut self, host: HostId) {
        let claims = self.claims.values().filter(|claim| claim.host == host);
        let taken = claims.fold(Room::default(), |sum, claim| sum.with(claim.room));
        self.taken.insert(host, taken);
    }

    /// Claims room on a host.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has changed then.
    pub(crate) fn claim(
        &mut self,
        host: HostId,
        room: Room,
        volume: VolumeId,
    ) -> Result<ClaimId, ClaimError> {
        let spec = self.hosts.iter().find(|spec| spec.id == host).ok_or(ClaimError::Unknown { host })?;
        let free = self.free(host);
        if !free.holds(room) {
            return Err(ClaimError::Full { host: spec.name.clone(), free, needed: room });
        }
        let id = ClaimId(self.next);
        self.next += 1;
        self.claims.insert(id, Claim { id, host, room, volume });
        self.add_up(host);
        Ok(id)
    }

    /// Claims room where [`host::choose`] finds it, leaving out hosts of which `left_out` says why.
    ///
    /// # Errors
    /// [`ClaimError::NothingFits`] with the arithmetic; nothing has changed then.
    pub(crate) fn claim_near(
        &mut self,
        home: HostId,
        room: Room,
        volume: VolumeId,
        left_out: impl Fn(HostId) -> Option<String>,
    ) -> Result<(ClaimId, HostId), ClaimError> {
        let free: Vec<Room> = self
            .hosts
            .iter()
            .map(|host| if left_out(host.id).is_some() { Room::default() } else { self.free_of(host) })
            .collect();
        match host::choose(home, room, &self.hosts, &free) {
            Some(host) => Ok((self.claim(host, room, volume)?, host)),
            None => {
                let each = |host: &HostSpec| (host.name.clone(), self.free_of(host), left_out(host.id));
                Err(ClaimError::NothingFits { needed: room, hosts: self.hosts.iter().map(each).collect() })
            }
        }
    }

    /// Whether a host would have room if a claim were gone; hosts of which `left_out` holds are not asked.
    pub(crate) fn would_fit(&self, room: Room, without: ClaimId, left_out: impl Fn(HostId) -> bool) -> bool {
        self.without(Some(without), left_out).any(|free| free.holds(room))
    }

    /// What each host could give if a claim were gone; hosts of which `left_out` holds are left out.
    pub(crate) fn without(
        &self,
        claim: Option<ClaimId>,
        left_out: impl Fn(HostId) -> bool,
    ) -> impl Iterator<Item = Room> {
        let gone = claim.and_then(|claim| self.claims.get(&claim));
        let given_back = move |host: HostId| gone.filter(|claim| claim.host == host).map(|claim| claim.room);
        let hosts = self.hosts.iter().filter(move |host| !left_out(host.id));
        hosts.map(move |host| self.free_of(host).with(given_back(host.id).unwrap_or_default()))
    }

    /// Gives the room back; what it was, if it still stood.
    pub(crate) fn release(&mut self, id: ClaimId) -> Option<Claim> {
        let released = self.claims.remove(&id)?;
        self.add_up(released.host);
        Some(released)
    }

    /// Gives no number below `next` any more: an earlier run did.
    pub(crate) fn go_on_from(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Puts a claim of an earlier run back, even where the host says that it has less now: who holds it is there.
    pub(crate) fn restore(&mut self, claim: Claim) {
        self.go_on_from(claim.id.0 + 1);
        self.claims.insert(claim.id, claim);
        self.add_up(claim.host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Bytes;
    use proptest::prelude::*;

    fn room(memory: u64, cpu_milli: u32) -> Room {
        Room { memory: Bytes(memory), flash: Bytes::ZERO, cpu_milli }
    }

    fn hosts() -> Vec<HostSpec> {
        (0..3)
            .map(|id| HostSpec {
                cpu_milli: 1_000,
                ..HostSpec::new(HostId(id), format!("h{id}"), id / 2, Bytes(100))
            })
            .collect()
    }

    #[test]
    fn who_finds_no_room_is_told_the_sums() {
        let mut book = ClaimBook::new(hosts());
        let volume = VolumeId(7);
        let (first, host) = book.claim_near(HostId(1), room(60, 100), volume, |_| None).unwrap();
        assert_eq!(host, HostId(1));
        let (_, host) = book.claim_near(HostId(1), room(60, 100), volume, |_| None).unwrap();
        assert_eq!(host, HostId(0)); // the same rack
        let left_out = |host: HostId| (host == HostId(2)).then(|| "is resting".to_owned());
        let error = book.claim_near(HostId(1), room(60, 100), volume, left_out).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no host has 60B of memory, 0.10 processors free: `h0` 40B of memory, 0.90 processors; \
             `h1` 40B of memory, 0.90 processors; `h2` is resting"
        );
        assert_eq!(book.release(first).map(|claim| claim.room), Some(room(60, 100)));
        assert_eq!(book.free(HostId(1)), room(100, 1_000));
    }

    #[test]
    fn what_a_claim_would_give_back_is_room_on_its_own_host_alone() {
        let mut book = ClaimBook::new(hosts());
        let mut claim = |host, memory| book.claim(HostId(host), room(memory, 100), VolumeId(7)).unwrap();
        let (_, own, _) = (claim(0, 60), claim(1, 60), claim(2, 90));
        let memory = |claim| book.without(claim, |_| false).map(|free| free.memory.get()).collect::<Vec<_>>();
        assert_eq!((memory(None), memory(Some(own))), (vec![40, 40, 10], vec![40, 100, 10]));
        let fits = |memory, left_out: Option<u32>| {
            book.would_fit(room(memory, 900), own, |host| Some(host.0) == left_out)
        };
        assert!(fits(100, None) && !fits(101, None));
        assert!(fits(40, Some(1)) && !fits(41, Some(1)));
    }

    #[test]
    fn a_claim_of_an_earlier_run_stands_whatever_the_host_has_now() {
        let mut book = ClaimBook::new(hosts());
        let kept = Claim { id: ClaimId(7), host: HostId(1), room: room(150, 100), volume: VolumeId(7) };
        book.restore(kept);
        assert_eq!((book.claims().collect::<Vec<_>>(), book.free(HostId(1))), (vec![&kept], room(0, 900)));
        assert_eq!(book.claim(HostId(0), room(1, 1), VolumeId(7)), Ok(ClaimId(8)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Claim(u32, u64, u32),
        Near(u32, u64, u32),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (host, memory, cpu) = (0..4u32, 0..120u64, 0..1_200u32);
        prop_oneof![
            (host.clone(), memory.clone(), cpu.clone())
                .prop_map(|(host, memory, cpu)| Step::Claim(host, memory, cpu)),
            (host, memory, cpu).prop_map(|(host, memory, cpu)| Step::Near(host, memory, cpu)),
            (0..20usize).prop_map(Step::Release),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Against a plain list of who holds what: nothing is claimed twice, numbers are never used again, and a refusal changes nothing.
        #[test]
        fn two_plans_never_claim_the_same_room(steps in proptest::collection::vec(step(), 1..60)) {
            let mut book = ClaimBook::new(hosts());
            let mut held: Vec<(ClaimId, HostId, Room)> = Vec::new();
            let mut highest = 0;
            for step in steps {
                let made = match step {
                    Step::Claim(host, memory, cpu) => {
                        let (host, room) = (HostId(host), room(memory, cpu));
                        book.claim(host, room, VolumeId(0)).ok().map(|id| (id, host, room))
                    }
                    Step::Near(home, memory, cpu) => {
                        let room = room(memory, cpu);
                        let found = book.claim_near(HostId(home), room, VolumeId(0), |_| None);
                        let fits = |host: u32| (held.iter().filter(|(_, at, ..)| at.0 == host))
                            .fold(room, |sum, (_, _, taken)| sum.with(*taken));
                        let some = (0..3).any(|host| fits(host).memory <= Bytes(100) && fits(host).cpu_milli <= 1_000);
                        prop_assert_eq!(found.is_ok(), some);
                        found.ok().map(|(id, host)| (id, host, room))
                    }
                    Step::Release(at) => {
                        if at < held.len() {
                            prop_assert!(book.release(held.remove(at).0).is_some());
                        }
                        None
                    }
                };
                if let Some(made) = made {
                    prop_assert!(made.0.0 > highest);
                    highest = made.0.0;
                    held.push(made);
                }
                prop_assert_eq!(book.claims().count(), held.len());
                for host in 0..3 {
                    let taken = held.iter().filter(|(_, at, ..)| at.0 == host);
                    let taken = taken.fold(Room::default(), |sum, (_, _, room)| sum.with(*room));
                    prop_assert!(taken.memory <= Bytes(100) && taken.cpu_milli <= 1_000);
                    prop_assert_eq!(book.free(HostId(host)), room(100, 1_000).less(taken));
                }
            }
        }
    }
}
