//! By what a volume is reached. A response that was begun on one disk ends on that one: where it could go on with another, what is fenced there says nothing of who still changes the
//! first, and clients would be sent, as settled, to data that nobody compared.

use super::RecoverError;
use super::machine::{Phase, Response};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// By what a volume's data, its lease and its clients are reached: keys and values as the configuration has them, without secrets. They are compared as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Way(BTreeMap<String, String>);

impl Way {
    /// With these keys and values.
    pub fn new(keys: impl IntoIterator<Item = (&'static str, String)>) -> Way {
        Way(keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Where `now` is another, in words.
    fn changed(&self, now: &Way) -> String {
        let keys: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let differs = |key: &&String| self.0.get(*key) != now.0.get(*key);
        let value = |way: &Way, key: &String| {
            way.0.get(key).map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
        };
        let told = |key| format!("its `{key}` is {} now, and was {}", value(now, key), value(self, key));
        keys.into_iter().filter(differs).map(told).collect::<Vec<_>>().join("; ")
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
        if let Some(before) = self.way.as_ref().filter(|before| **before != now) {
            // Who only looks has ordered nothing, by whatever way.
            if !matches!(self.phase, Phase::Original | Phase::Looking) {
                let (volume, changed) = (self.route().name.clone(), before.changed(&now));
                return Err(RecoverError::WayChanged { volume, holds: holds(), changed });
            }
            // Another storage side was never fenced, and has lost nothing.
            self.forget_fence();
        }
        self.way = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draining, Journal, ResponseRules, Responses, VolumeRoute, Wish};
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

    fn kept(responses: &Responses) -> Value {
        serde_json::to_value(responses.journal()).unwrap()
    }

    fn recovered(journal: Value, origin: &str) -> Result<Responses, RecoverError> {
        let journal: Journal = serde_json::from_value(journal).unwrap();
        Responses::recover(journal, ResponseRules::default(), hosts(), vec![(VOLUME, route(origin))])
    }

    #[test]
    fn what_was_begun_by_one_origin_is_not_ended_by_another() {
        let mut responses = Responses::new(ResponseRules::default(), hosts());
        responses.register(VOLUME, route("nbd://s/db"));
        responses.want(VOLUME, Wish { cache: Bytes::mib(1), flash: Bytes::ZERO, rate: 1.0, host: None });
        assert_eq!(responses.step(Nanos::secs(1)).len() + responses.step(Nanos::secs(2)).len(), 1);
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
            next.lease_seen(VOLUME, 0);
            assert_eq!(next.decisions().len(), loses, "{origin}");
            assert_eq!(next.status(VOLUME).unwrap().epoch, 5, "epochs are used once");
            assert_eq!(kept(&next)["responses"][0][1]["way"]["origin"], origin);
        }
    }
}
