//! By what a volume is reached. A response that was begun on one disk ends on that one: where it could go on with another, what is fenced there says nothing of who still changes the
//! first, and clients would be sent, as settled, to data that nobody compared.

use super::RecoverError;
use super::machine::{Phase, Response};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// In which caches are counted: no part of the way to the data, which is the same by another, but an appliance keeps the one that it was ordered with.
const BLOCK_SIZE: &str = "block_size";

/// By what a volume's data, its lease and its clients are reached, and in which blocks it is cached: keys and values as the configuration has them, without secrets. They are compared as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Way(BTreeMap<String, String>);

impl Way {
    /// With these keys and values.
    pub fn new(keys: impl IntoIterator<Item = (&'static str, String)>) -> Way {
        Way(keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The keys in which `now` is another.
    fn differs<'a>(&'a self, now: &'a Way) -> BTreeSet<&'a String> {
        // Earlier versions do not tell of it.
        let is_told = |key: &&String| *key != BLOCK_SIZE || self.0.contains_key(*key);
        let keys = self.0.keys().chain(now.0.keys()).filter(is_told);
        keys.filter(|key| self.0.get(*key) != now.0.get(*key)).collect()
    }

    /// Where `now` is another, in words.
    fn changed(&self, now: &Way) -> String {
        let value = |way: &Way, key: &String| {
            way.0.get(key).map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
        };
        let told = |key| format!("its `{key}` is {} now, and was {}", value(now, key), value(self, key));
        self.differs(now).into_iter().map(told).collect::<Vec<_>>().join("; ")
    }
}

impl Response {
    /// Goes on from a journal by the way of now. `holds` says in words what there is of the volume.
    ///
    /// # Errors
    /// [`RecoverError::WayChanged`] where the journal has another and the response is under way.
    pub(super) fn keep_to_its_way(&mut self, holds: impl FnOnce() -> String) -> Result<(), RecoverError> {
        let now = self.route().way.clone();
        // Earlier versions do not tell of it.
        if let Some(before) = self.way.clone().filter(|before| !before.differs(&now).is_empty()) {
            // Where nobody was fenced in order to bring clients back, of whom it is not known where they are, the file may have been wrong: they are looked for by the way of now.
            self.look_again();
            // Who only looks has ordered nothing, by whatever way.
            if !matches!(self.phase, Phase::Original | Phase::Looking) {
                let (volume, changed) = (self.route().name.clone(), before.changed(&now));
                return Err(RecoverError::WayChanged { volume, holds: holds(), changed });
            }
            // Another storage side was never fenced, and has lost nothing.
            if before.differs(&now).into_iter().any(|key| key != BLOCK_SIZE) {
                self.forget_fence();
            }
        }
        self.way = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draining, Holder, Journal, Outcome, ResponseRules, Responses, VolumeRoute, Wish};
    use super::*;
    use crate::inventory::{HostId, HostSpec, VolumeId};
    use forebay_units::{Bytes, Nanos};
    use serde_json::{Value, json};

    const VOLUME: VolumeId = VolumeId(0);

    fn hosts() -> Vec<HostSpec> {
        vec![HostSpec::new(HostId(0), "h1", 0, Bytes::gib(1))]
    }

    /// Of a volume `db` with this origin.
    fn route(origin: &str) -> VolumeRoute {
        VolumeRoute {
            name: "db".to_owned(),
            draining: Draining::ByItself,
            leased: true,
            home: HostId(0),
            unfit: Vec::new(),
            apart: Vec::new(),
            way: Way::new([("origin", origin.to_owned()), ("leased", "true".to_owned())]),
        }
    }

    /// The same in blocks of this size.
    fn in_blocks(block_size: &str) -> VolumeRoute {
        let mut route = route("nbd://s/db");
        route.way.0.insert(BLOCK_SIZE.to_owned(), block_size.to_owned());
        route
    }

    fn kept(responses: &Responses) -> Value {
        serde_json::to_value(responses.journal()).unwrap()
    }

    fn recovered(journal: Value, origin: &str) -> Result<Responses, RecoverError> {
        recovered_by(journal, route(origin))
    }

    fn recovered_by(journal: Value, route: VolumeRoute) -> Result<Responses, RecoverError> {
        let journal: Journal = serde_json::from_value(journal).unwrap();
        Responses::recover(journal, ResponseRules::default(), hosts(), vec![(VOLUME, route)])
    }

    /// An appliance is being started.
    fn begun(route: VolumeRoute) -> Responses {
        let mut responses = Responses::new(ResponseRules::default(), hosts());
        responses.register(VOLUME, route);
        responses.want(VOLUME, Wish { cache: Bytes::mib(1), flash: Bytes::ZERO, rate: 1.0, host: None });
        assert_eq!(responses.step(Nanos::secs(1)).len() + responses.step(Nanos::secs(2)).len(), 1);
        responses
    }

    #[test]
    fn what_was_begun_in_blocks_of_one_size_is_not_gone_on_with_in_another() {
        let responses = begun(in_blocks("4KiB"));
        let refused = recovered_by(kept(&responses), in_blocks("16KiB")).unwrap_err().to_string();
        assert!(refused.contains("its `block_size` is `16KiB` now, and was `4KiB`: "), "{refused}");
        assert!(recovered_by(kept(&responses), in_blocks("4KiB")).is_ok());
        // An earlier version's journal does not tell; what goes on from it does.
        let next = recovered_by(kept(&begun(route("nbd://s/db"))), in_blocks("16KiB")).unwrap();
        assert!(recovered_by(kept(&next), in_blocks("4KiB")).is_err());
        // At the original route it may be another, of the same storage side: what that is fenced by holds.
        let mut responses = Responses::new(ResponseRules::default(), hosts());
        responses.register(VOLUME, in_blocks("4KiB"));
        let mut journal = kept(&responses);
        journal["responses"][0][1]["fence"] = json!([5, "original"]);
        let mut next = recovered_by(journal, in_blocks("16KiB")).unwrap();
        next.lease_seen(VOLUME, 0, Holder::Original);
        assert_eq!(next.decisions().len(), 1, "its lease is lost");
    }

    /// Whose journal is lost may have been started with a file that is wrong, which is mended then.
    #[test]
    fn clients_who_are_looked_for_by_a_wrong_way_are_looked_for_by_the_right_one() {
        let mut responses = Responses::new(ResponseRules::default(), hosts());
        responses.register(VOLUME, route("nbd://s/db2"));
        responses.adopt_unknown(VOLUME);
        let mut heard = |outcome: Outcome, at: u64| {
            let orders = responses.step(Nanos::secs(at));
            responses.report(orders[0].id, outcome, Nanos::secs(at));
            kept(&responses)
        };
        heard(Outcome::Found { epoch: 7 }, 1);
        let refused = || Outcome::Refused("there is no such export".to_owned());
        let unsettled = (0..3).map(|at| heard(refused(), 10 * at + 10)).last().unwrap();
        let next = recovered(unsettled, "nbd://s/db").unwrap();
        assert_eq!(next.status(VOLUME).unwrap().step, "looking what was done before");
        // Behind a fence there is no other way.
        heard(Outcome::Found { epoch: 7 }, 100);
        heard(Outcome::NotDrained("it is dead".to_owned()), 110);
        let settled = heard(Outcome::Done, 200);
        assert!(matches!(recovered(settled, "nbd://s/db"), Err(RecoverError::WayChanged { .. })));
    }

    #[test]
    fn what_was_begun_by_one_origin_is_not_ended_by_another() {
        let responses = begun(route("nbd://s/db"));
        let refused = recovered(kept(&responses), "nbd://s/db2").unwrap_err().to_string();
        let said = "volume `db` has appliance 1 on host `h1` in the journal, and its `origin` is `nbd://s/db2` now, and was `nbd://s/db`: what was begun";
        assert!(refused.starts_with(said), "{refused}");
        assert!(!refused.contains("leased"), "{refused}");
        assert!(recovered(kept(&responses), "nbd://s/db").is_ok());
        // An earlier version's journal does not tell; what goes on from it does.
        let mut earlier = kept(&responses);
        earlier["responses"][0][1].as_object_mut().unwrap().remove("way").expect("it is kept");
        let next = recovered(earlier, "nbd://s/db").unwrap();
        assert!(recovered(kept(&next), "nbd://s/db2").is_err());
        // Nothing was ordered by the one that is only looked at.
        let mut looking = Responses::new(ResponseRules::default(), hosts());
        looking.register(VOLUME, route("nbd://s/db"));
        looking.adopt_unknown(VOLUME);
        assert!(recovered(kept(&looking), "nbd://s/db2").is_ok());
    }

    /// It was fenced at the storage side before, of which the other knows nothing.
    #[test]
    fn another_storage_side_of_a_volume_at_its_original_route_has_lost_no_lease() {
        let mut responses = Responses::new(ResponseRules::default(), hosts());
        responses.register(VOLUME, route("nbd://s/db"));
        let mut journal = kept(&responses);
        journal["responses"][0][1]["fence"] = json!([5, "original"]);
        journal["responses"][0][1]["epoch"] = json!(5);
        for (origin, loses) in [("nbd://s/db", 1), ("nbd://s/db2", 0)] {
            let mut next = recovered(journal.clone(), origin).unwrap();
            next.lease_seen(VOLUME, 0, Holder::Original);
            assert_eq!(next.decisions().len(), loses, "{origin}");
            assert_eq!(next.status(VOLUME).unwrap().epoch, 5, "epochs are used once");
            assert_eq!(kept(&next)["responses"][0][1]["way"]["origin"], origin);
        }
    }
}
