//! Asking hosts what runs there, after the journal that told it was lost. What becomes of what they tell, `control::response` decides.

use super::FleetConfig;
use super::carrying::{Carriers, id_of, number_of};
use forebay_actuate::Listed;
use forebay_control::HostId;
use forebay_control::response::{Found, Responses};
use forebay_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A host is asked again so long after it has answered (ours).
const AGAIN: Nanos = Nanos::secs(5);
/// One that does not answer is asked less and less often, down to this (ours).
const AGAIN_MAX: Nanos = Nanos::secs(600);

/// What a host told.
pub(super) struct Listing {
    pub(super) host: HostId,
    /// When it was asked.
    pub(super) asked: Nanos,
    /// Each with whether its volume's clients are there, as far as that is known; or why it does not say.
    pub(super) listed: Result<Vec<(Listed, bool)>, String>,
}

/// How asking a host goes.
#[derive(Default)]
struct Asking {
    is_out: bool,
    next: Nanos,
    failures: u32,
}

/// Hosts that are asked.
pub(super) struct Strays {
    reporter: Sender<Listing>,
    listings: Receiver<Listing>,
    hosts: BTreeMap<HostId, Asking>,
    /// By name: those that are left to people, and were told of.
    left: BTreeSet<String>,
}

impl Strays {
    pub(super) fn new() -> Strays {
        let (reporter, listings) = channel();
        Strays { reporter, listings, hosts: BTreeMap::new(), left: BTreeSet::new() }
    }

    /// How many were found that are left to people.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    /// Hears what was told, and asks those that have not said enough yet.
    pub(super) fn go_on(
        &mut self,
        config: &FleetConfig,
        responses: &mut Responses,
        carriers: &Carriers,
        now: Nanos,
    ) {
        for Listing { host, asked, listed } in self.listings.try_iter() {
            let asking = self.hosts.entry(host).or_default();
            asking.is_out = false;
            let name = &config.host[host.0 as usize].name;
            match listed {
                Ok(listed) => {
                    (asking.failures, asking.next) = (0, now.saturating_add(AGAIN));
                    let found = |of: &(Listed, bool)| found(config, of);
                    for (of, _) in listed.iter().filter(|of| found(of).is_none()) {
                        if self.left.insert(of.running.id.to_string()) {
                            tell_left(name, of);
                        }
                    }
                    responses.listed(host, asked, listed.iter().filter_map(found).collect());
                }
                Err(reason) => {
                    if asking.failures == 0 {
                        tracing::warn!(
                            host = name,
                            reason,
                            "it is not known what runs there, and nothing is started there until it is"
                        );
                    }
                    let pause = AGAIN.0.saturating_mul(1 << asking.failures.min(10)).min(AGAIN_MAX.0);
                    asking.next = now.saturating_add(Nanos(pause));
                    asking.failures += 1;
                }
            }
        }
        for host in responses.unlisted() {
            let asking = self.hosts.entry(host).or_default();
            if !asking.is_out && now >= asking.next {
                asking.is_out = true;
                carriers.list(host, now, &self.reporter);
            }
        }
    }
}

/// As an appliance of a volume whose clients are moved; `None`: of no such.
fn found(config: &FleetConfig, (listed, has_clients): &(Listed, bool)) -> Option<Found> {
    let serves = |name: &str| listed.running.endpoints.contains_key(name);
    let volume = config.volume.iter().position(|volume| volume.route.is_some() && serves(&volume.name))?;
    Some(Found {
        appliance: number_of(&listed.running.id)?,
        volume: id_of(volume),
        memory: listed.memory,
        has_clients: *has_clients,
    })
}

/// Nobody here could bring its clients anywhere.
fn tell_left(host: &str, of: &Listed) {
    let volumes = of.running.endpoints.keys().cloned().collect::<Vec<_>>().join(", ");
    if volumes.is_empty() {
        tracing::warn!(
            host,
            appliance = %of.running.id,
            memory = %of.memory,
            "an appliance runs whose folder was removed, and nothing says of which volume it is, nor of which controller: it is left alone, and its memory is not counted; end it (SIGTERM) once nobody is on it"
        );
        return;
    }
    tracing::warn!(
        host,
        appliance = %of.running.id,
        volumes,
        memory = %of.memory,
        "an appliance of this controller runs for a volume whose clients it does not move: it is left alone, and its memory is not counted; end it (SIGTERM) once nobody is on it"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_actuate::api::ApiAddress;
    use forebay_actuate::{Control, Endpoint, Running};
    use forebay_control::HostSpec;
    use forebay_control::response::{ApplianceId, ResponseRules};
    use forebay_units::{Bytes, Secret};
    use std::time::{Duration, Instant};

    #[test]
    fn a_host_is_asked_until_it_has_said_enough_and_less_often_while_it_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let config = super::super::tests::config(folder.path(), super::super::tests::MOVED);
        let secret = Secret::new("0123456789abcdef0123456789abcdef".to_owned()).unwrap();
        let (reporter, _reports) = channel();
        let carriers = Carriers::start(&config, secret, Instant::now(), &reporter).unwrap();
        let forgetful = || {
            let hosts = vec![HostSpec::new(HostId(0), "h1", 0, Bytes::gib(1))];
            let mut responses = Responses::new(ResponseRules::default(), hosts);
            responses.forget(ApplianceId(90));
            (responses, Strays::new())
        };
        // In which of so many seconds it is asked; its answer is heard a moment later.
        let asked = |responses: &mut Responses, strays: &mut Strays, seconds: std::ops::Range<u64>| {
            let is_asked = |second: &u64| {
                let mut go_on = || {
                    strays.go_on(&config, responses, &carriers, Nanos::secs(*second));
                    strays.hosts[&HostId(0)].is_out
                };
                let is_asked = go_on();
                let deadline = Instant::now() + Duration::from_secs(20);
                while go_on() {
                    assert!(Instant::now() < deadline, "nothing is heard");
                }
                is_asked
            };
            seconds.filter(is_asked).collect::<Vec<_>>()
        };
        // As long as something may come late.
        let (mut responses, mut strays) = forgetful();
        let seconds: Vec<u64> = (0..=60).step_by(5).collect();
        assert_eq!(asked(&mut responses, &mut strays, 0..200), seconds);
        assert_eq!(responses.unlisted().count(), 0);
        // What it keeps is gone: it cannot say.
        let kept = config.state.join("hosts/h1");
        std::fs::remove_dir_all(&kept).unwrap();
        let (mut responses, mut strays) = forgetful();
        let seconds = [0, 5, 15, 35, 75, 155, 315, 635, 1_235, 1_835];
        assert_eq!(asked(&mut responses, &mut strays, 0..2_000), seconds);
        assert_eq!(responses.unlisted().count(), 1);
        std::fs::create_dir_all(&kept).unwrap();
        assert_eq!(asked(&mut responses, &mut strays, 2_000..3_000), [2_435]);
        assert_eq!(responses.unlisted().count(), 0);
    }

    #[test]
    fn what_is_found_is_of_a_volume_whose_clients_are_moved_or_left_to_people() {
        let folder = tempfile::tempdir().unwrap();
        let moved = super::super::tests::config(folder.path(), super::super::tests::MOVED);
        let watched = super::super::tests::config(folder.path(), "leased = false");
        let listed = |id: &str, volume: &str| {
            let endpoint = Endpoint::new("nbd://h1/db".parse().unwrap());
            let control = Control { address: ApiAddress::Unix("nowhere".into()), token: None };
            let endpoints = BTreeMap::from([(volume.to_owned(), endpoint)]);
            let running = Running { id: id.parse().unwrap(), endpoints, control };
            (Listed { memory: Bytes::mib(64), running }, true)
        };
        let of = |config, id, volume| found(config, &listed(id, volume)).map(|found| found.appliance.0);
        assert_eq!(of(&moved, "forebay-7", "db"), Some(7));
        assert_eq!(of(&moved, "forebay-7", "another"), None);
        assert_eq!(of(&moved, "somebody", "db"), None);
        assert_eq!(of(&watched, "forebay-7", "db"), None);
        let found = found(&moved, &listed("forebay-7", "db")).unwrap();
        assert_eq!((found.volume, found.memory, found.has_clients), (id_of(0), Bytes::mib(64), true));
    }
}
