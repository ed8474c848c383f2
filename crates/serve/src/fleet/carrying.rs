//! Carrying orders out: a thread for each volume, so that of each volume one thing is done after another, and what hangs keeps nobody else. What stops an appliance
//! begins in its turn and goes on beside the rest: its host may be dead, and the volume's next appliance is to be probed meanwhile.

use super::config::FleetConfig;
use super::making;
use super::strays::Listing;
use super::tables::VolumeTable;
use crate::supervised::panic_text;
use forebay_actuate::api::{ApiError, OriginReport, VolumeReport};
use forebay_actuate::provision::probe;
use forebay_actuate::route::{LeaseHolder, StorageLease};
use forebay_actuate::{
    ApplianceId as ApplianceName, ApplianceOrder, Control, Deadline, Endpoint, Listed, Passage, Pause,
    Provider, ProvisionError, Route, RouteError, Running, VolumeOrder,
};
use forebay_control::response::{ApplianceId, Draining, Holder, Order, OrderId, Outcome, Target, What};
use forebay_control::{HostId, VolumeId};
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos, Secret, with_causes};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A host that is asked what runs there is waited for so long (ours).
const LIST_WITHIN: Duration = Duration::from_secs(10);

/// What an order came to.
pub(super) type Report = (OrderId, Outcome);

/// A volume, and by what its clients are moved.
struct Way {
    table: VolumeTable,
    route: Option<Box<dyn Route>>,
    lease: Option<StorageLease>,
    switches: Mutex<Switches>,
}

impl Way {
    fn switches(&self) -> MutexGuard<'_, Switches> {
        // Plain numbers.
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume's re-routes that succeeded, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    pub(super) to_appliance: u64,
    pub(super) to_original: u64,
    /// How long requests were held in the last one, as who moved the clients says. Not what the path that they left did not answer before.
    pub(super) pause_last: Option<Nanos>,
    pub(super) pause_max: Option<Nanos>,
}

impl Switches {
    fn count(&mut self, to: Target, pause: Nanos) {
        match to {
            Target::Appliance { .. } => self.to_appliance += 1,
            Target::Original => self.to_original += 1,
        }
        (self.pause_last, self.pause_max) = (Some(pause), self.pause_max.max(Some(pause)));
    }
}

/// What all threads need.
struct Means {
    hosts: Vec<(String, Box<dyn Provider>)>,
    volumes: Vec<Way>,
    secret: Secret,
    /// How often the controller hears of them.
    interval: Nanos,
    /// What runs, as far as is known.
    running: Mutex<BTreeMap<ApplianceId, Running>>,
    started: Instant,
}

/// Carries orders out.
pub(super) struct Carriers {
    means: Arc<Means>,
    queues: Vec<Sender<Order>>,
}

impl Carriers {
    /// Threads for the volumes of `config`, which report to `reports`. Deadlines of orders count from `started`.
    pub(super) fn start(
        config: &FleetConfig,
        secret: Secret,
        started: Instant,
        reports: &Sender<Report>,
    ) -> io::Result<Carriers> {
        let mut hosts = Vec::new();
        for host in &config.host {
            let folder = config.state.join("hosts").join(&host.name);
            hosts.push((host.name.clone(), making::provider(host, folder)?));
        }
        let way = |table: &VolumeTable| Way {
            route: making::route(config, table),
            lease: table.lease(),
            table: table.clone(),
            switches: Mutex::default(),
        };
        let means = Arc::new(Means {
            hosts,
            volumes: config.volume.iter().map(way).collect(),
            secret,
            interval: config.interval,
            running: Mutex::default(),
            started,
        });
        let mut queues = Vec::new();
        for index in 0..config.volume.len() {
            let (queue, orders) = channel();
            let (means, reports) = (Arc::clone(&means), reports.clone());
            thread::Builder::new()
                .name(format!("carry-{index}"))
                .spawn(move || carry(&means, index, &orders, &reports))?;
            queues.push(queue);
        }
        Ok(Carriers { means, queues })
    }

    /// Has an order carried out; its report comes later.
    pub(super) fn take(&self, order: Order) {
        if let Some(queue) = self.queues.get(order.volume.0 as usize) {
            // A thread that is gone reports nothing, and the order is taken for lost.
            let _ = queue.send(order);
        }
    }

    /// Has a host asked which of this controller's appliances run there, beside all else. What it says is told later, once.
    pub(super) fn list(&self, host: HostId, asked: Nanos, to: &Sender<Listing>) {
        let (means, reporter) = (Arc::clone(&self.means), to.clone());
        let list = move || {
            let carry_out = || means.list(host, Deadline::after(LIST_WITHIN));
            let listed = catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or_else(|panic| {
                let what = panic_text(&*panic);
                tracing::error!(what, "asking a host what runs there panicked");
                Err(format!("asking it panicked: {what}"))
            });
            let _ = reporter.send(Listing { host, asked, listed });
        };
        if let Err(error) = thread::Builder::new().name(format!("list-{}", host.0)).spawn(list) {
            let _ = to.send(Listing { host, asked, listed: Err(with_causes(&error)) });
        }
    }

    /// How a switch of a volume's route brings the old path to its end.
    pub(super) fn draining(&self, volume: VolumeId) -> Draining {
        let way = &self.means.volumes[volume.0 as usize];
        making::draining(&way.table, way.route.as_deref())
    }

    /// The re-routes of a volume so far.
    pub(super) fn switches(&self, volume: VolumeId) -> Switches {
        *self.means.volumes[volume.0 as usize].switches()
    }

    /// Where an appliance is told and asked, if it is known to run. After a restart the first order that needs it finds it: who asks here must not wait for a host.
    pub(super) fn control_of(&self, appliance: ApplianceId) -> Option<Control> {
        Some(self.means.known(appliance)?.control)
    }

    #[cfg(test)]
    pub(super) fn knows(&self, appliance: ApplianceId, running: Running) {
        self.means.all_known().insert(appliance, running);
    }
}

fn carry(means: &Arc<Means>, index: usize, orders: &Receiver<Order>, reports: &Sender<Report>) {
    while let Ok(order) = orders.recv() {
        let id = order.id;
        let sent = if matches!(order.what, What::Stop { .. }) {
            // What was asked for before has ended, a start of the same appliance too; what comes next does not wait for a host that may be dead.
            let (means, to) = (Arc::clone(means), reports.clone());
            let stop = move || drop(to.send(carried(&means, index, &order)));
            match thread::Builder::new().name(format!("stop-{index}")).spawn(stop) {
                Ok(_) => Ok(()),
                Err(error) => reports.send((id, Outcome::Unknown(with_causes(&error)))),
            }
        } else {
            reports.send(carried(means, index, &order))
        };
        if sent.is_err() {
            return;
        }
    }
}

fn carried(means: &Means, index: usize, order: &Order) -> Report {
    let until = means.started + Duration::from_nanos(order.deadline.0);
    let outcome = if Instant::now() >= until {
        // It waited behind one that hung, and was not begun.
        Outcome::Unknown("its time was over before it could begin".to_owned())
    } else {
        let carry_out = || means.carry_out(&means.volumes[index], order, Deadline::at(until));
        // The next order is carried out by this thread, too.
        catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or_else(|panic| {
            let what = panic_text(&*panic);
            tracing::error!(what, order = ?order.what, "carrying an order out panicked");
            Outcome::Unknown(format!("carrying it out panicked: {what}"))
        })
    };
    tracing::debug!(volume = means.volumes[index].table.name, what = ?order.what, ?outcome, "carried out");
    (order.id, outcome)
}

/// An appliance's name for its provider.
fn name_of(appliance: ApplianceId) -> ApplianceName {
    format!("forebay-{}", appliance.0).parse().expect("letters, digits and a dash, and short")
}

/// The other way round; `None` for a name that is none of ours.
pub(super) fn number_of(name: &ApplianceName) -> Option<ApplianceId> {
    name.to_string().strip_prefix("forebay-")?.parse().ok().map(ApplianceId)
}

impl Means {
    /// The appliances of this controller on a host, each with whether the route of its volume is known to lead there.
    fn list(&self, host: HostId, deadline: Deadline) -> Result<Vec<(Listed, bool)>, String> {
        let listed = self.provider(host).list(&self.secret, deadline).map_err(|error| with_causes(&error))?;
        let has_clients = |of: &Listed| {
            let leads_there = |way: &Way| {
                let at = way.route.as_ref()?.now(deadline).ok()?;
                Some(at.uri.transport == of.running.endpoints.get(&way.table.name)?.uri.transport)
            };
            let its = self.volumes.iter().filter(|way| of.running.endpoints.contains_key(&way.table.name));
            its.filter_map(leads_there).any(|leads| leads)
        };
        let with_clients = |of: Listed| {
            let has_clients = has_clients(&of);
            (of, has_clients)
        };
        Ok(listed.into_iter().map(with_clients).collect())
    }

    fn running(&self, appliance: ApplianceId, host: HostId) -> Result<Option<Running>, ProvisionError> {
        if let Some(running) = self.known(appliance) {
            return Ok(Some(running));
        }
        let found = self.provider(host).find(&name_of(appliance))?;
        if let Some(running) = &found {
            self.all_known().insert(appliance, running.clone());
        }
        Ok(found)
    }

    fn known(&self, appliance: ApplianceId) -> Option<Running> {
        self.all_known().get(&appliance).cloned()
    }

    fn all_known(&self) -> MutexGuard<'_, BTreeMap<ApplianceId, Running>> {
        // Whole at every moment.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn provider(&self, host: HostId) -> &dyn Provider {
        &*self.hosts[host.0 as usize].1
    }

    fn carry_out(&self, way: &Way, order: &Order, deadline: Deadline) -> Outcome {
        let volume = &way.table;
        match &order.what {
            What::Look => look(way, deadline),
            What::Start { appliance, host, room, cache, epoch, .. } => {
                let origin = Endpoint::new(volume.export(way.lease.as_ref().map(|_| *epoch)));
                let block_size = BlockSize::new(volume.block_size).expect("the configuration was checked");
                let port = making::port(volume);
                let order = ApplianceOrder {
                    id: name_of(*appliance),
                    host: self.hosts[host.0 as usize].0.clone(),
                    memory: room.memory,
                    port,
                    interval_ms: Some(self.interval.0 / 1_000_000),
                    volumes: vec![VolumeOrder {
                        block_size,
                        // Who comes by an address that moves shows the same as on the storage side.
                        secret: port.and(volume.secret.clone()),
                        ..VolumeOrder::new(&volume.name, origin, *cache)
                    }],
                    token: self.secret.clone(),
                };
                match self.provider(*host).start(&order, deadline) {
                    Ok(running) => {
                        // Until clients are on it: what it reads before could be stale by then.
                        if let Err(error) = running.control.set_quota(&volume.name, Bytes::ZERO, deadline) {
                            return Outcome::Unknown(with_causes(&error));
                        }
                        self.all_known().insert(*appliance, running);
                        Outcome::Done
                    }
                    Err(error) if error.may_run() => Outcome::Unknown(with_causes(&error)),
                    Err(error) => Outcome::Refused(with_causes(&error)),
                }
            }
            What::Probe { appliance, host } => {
                let outcome = self.probe(volume, *appliance, *host, deadline);
                if matches!(outcome, Outcome::Healthy { .. }) {
                    go_on(way, deadline);
                }
                outcome
            }
            What::Fence { epoch, holder } => {
                let outcome = fence(way, *epoch, *holder, deadline);
                if outcome == Outcome::Done && *holder == Holder::Original {
                    go_on(way, deadline);
                }
                outcome
            }
            What::Switch { to, epoch, settled } => self.switch(way, *to, *epoch, *settled, deadline),
            What::Resize { appliance, host, cache } => {
                self.told_done(*appliance, *host, |control| control.set_quota(&volume.name, *cache, deadline))
            }
            What::Warm { appliance, host, zones, bytes_per_second } => {
                let block = volume.block_size.get();
                let range = |zone: &forebay_control::ZoneRange| {
                    ByteRange::new(zone.first_block * block, zone.blocks * block)
                };
                let ranges: Vec<ByteRange> = zones.iter().map(range).collect();
                self.told_done(*appliance, *host, |control| {
                    control.warm(&volume.name, &ranges, Some(Bytes(*bytes_per_second)), deadline)
                })
            }
            What::Stop { appliance, host } => {
                self.all_known().remove(appliance);
                match self.provider(*host).stop(&name_of(*appliance), deadline) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Unknown(with_causes(&error)),
                }
            }
        }
    }

    fn told_done(
        &self,
        appliance: ApplianceId,
        host: HostId,
        tell: impl FnOnce(&Control) -> Result<(), ApiError>,
    ) -> Outcome {
        match self.running(appliance, host) {
            Ok(Some(running)) => match tell(&running.control) {
                Ok(()) => Outcome::Done,
                Err(error) => failed(&error),
            },
            Ok(None) => Outcome::Refused("it does not run".to_owned()),
            Err(error) => Outcome::Unknown(with_causes(&error)),
        }
    }

    fn probe(
        &self,
        volume: &VolumeTable,
        appliance: ApplianceId,
        host: HostId,
        deadline: Deadline,
    ) -> Outcome {
        let running = match self.running(appliance, host) {
            Ok(Some(running)) => running,
            Ok(None) => return Outcome::Refused("it does not run".to_owned()),
            Err(error) => return Outcome::Unknown(with_causes(&error)),
        };
        match probe(&running, deadline) {
            Ok(status) => match status.volumes.iter().find(|of| of.name == volume.name) {
                Some(of) if ["absent", "drained"].contains(&&*of.state) => {
                    Outcome::Refused(format!("the volume is {} in it", of.state))
                }
                Some(of) => Outcome::Healthy {
                    cache: Bytes(status.cache.capacity_bytes.saturating_sub(unbacked(of))),
                    has_clients: of.connections.is_none_or(|connections| connections > 0),
                    origin_trouble: of.origin.as_ref().and_then(OriginReport::trouble),
                },
                None => Outcome::Refused("it does not serve the volume".to_owned()),
            },
            Err(error) => Outcome::Unknown(with_causes(&error)),
        }
    }

    fn switch(&self, way: &Way, to: Target, epoch: u64, settled: bool, deadline: Deadline) -> Outcome {
        let Some(route) = &way.route else { return Outcome::Refused("it has no route".to_owned()) };
        let volume = &way.table;
        let endpoint = match to {
            // Who comes by an address that moves names no epoch.
            Target::Original => {
                let names_epoch = way.lease.is_some() && making::port(volume).is_none();
                Endpoint::new(volume.export(names_epoch.then_some(epoch)))
            }
            Target::Appliance { appliance, host } => {
                let endpoint = match self.running(appliance, host) {
                    Ok(running) => running.and_then(|mut running| running.endpoints.remove(&volume.name)),
                    // Nothing was asked of the route.
                    Err(error) => return Outcome::Refused(with_causes(&error)),
                };
                match endpoint {
                    Some(endpoint) => endpoint,
                    None => return Outcome::Refused("the appliance does not run".to_owned()),
                }
            }
        };
        let comes_back = !matches!(to, Target::Original);
        match route.switch(&Passage { to: endpoint, epoch, settled, comes_back }, deadline) {
            Ok(Pause(pause)) => {
                let pause = Nanos::from(pause);
                way.switches().count(to, pause);
                Outcome::Switched { pause }
            }
            Err(RouteError::Stale { now, .. }) => Outcome::Stale { epoch: now },
            Err(error @ RouteError::NotDrained { .. }) => Outcome::NotDrained(with_causes(&error)),
            Err(error @ RouteError::OtherData { .. }) => Outcome::OtherData(with_causes(&error)),
            Err(error @ RouteError::NoClient { .. }) => Outcome::NoClient(with_causes(&error)),
            Err(error @ RouteError::Unheard { .. }) => Outcome::Unheard(with_causes(&error)),
            Err(error) if error.had_no_effect() => Outcome::Refused(with_causes(&error)),
            Err(error) => Outcome::Unknown(with_causes(&error)),
        }
    }
}

/// How long a probe waits for who would tell whether clients have stopped (ours).
const GO_ON_WITHIN: Duration = Duration::from_secs(1);

/// Clients that stopped for an error go on: what they were on is drained or fenced by now.
fn go_on(way: &Way, deadline: Deadline) {
    if let Some(route) = &way.route {
        route.go_on(deadline.within((deadline.left() / 2).min(GO_ON_WITHIN)));
    }
}

/// The highest epoch of a volume's lease and of its route. One that does not say may be the one that was changed.
fn look(way: &Way, deadline: Deadline) -> Outcome {
    let lease = way.lease.as_ref().map(|lease| lease.epoch(deadline));
    let route = way.route.as_ref().map(|route| route.epoch(deadline));
    match [lease, route].into_iter().flatten().collect::<Result<Vec<u64>, RouteError>>() {
        Ok(epochs) => Outcome::Found { epoch: epochs.into_iter().max().unwrap_or(0) },
        Err(error) => Outcome::Unknown(with_causes(&error)),
    }
}

fn fence(way: &Way, epoch: u64, holder: Holder, deadline: Deadline) -> Outcome {
    let Some(lease) = &way.lease else { return Outcome::Refused("nothing has its lease".to_owned()) };
    let holder = match holder {
        Holder::Original => LeaseHolder::Original,
        Holder::Named => LeaseHolder::Named,
    };
    match lease.raise(epoch, holder, deadline) {
        Ok(()) => Outcome::Done,
        Err(RouteError::Stale { now, .. }) => Outcome::Stale { epoch: now },
        Err(error) => Outcome::Unknown(with_causes(&error)),
    }
}

/// A daemon that says no has done nothing, unless it had trouble of its own.
fn failed(error: &ApiError) -> Outcome {
    match error {
        ApiError::Refused { status, .. } if *status != 500 => Outcome::Refused(with_causes(error)),
        _ => Outcome::Unknown(with_causes(error)),
    }
}

/// The volume that the orders of a thread are of.
pub(super) fn id_of(index: usize) -> VolumeId {
    VolumeId(index as u32)
}

/// How much of its cache an appliance does not have because the system refuses it the memory. What is short by less than half is told and kept: it is filled, and another one begins empty.
fn unbacked(volume: &VolumeReport) -> u64 {
    let is_most = volume.refused_bytes > volume.quota_bytes / 2;
    if is_most { volume.refused_bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_actuate::api::ApiAddress;
    use forebay_control::host::Room;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_cache_that_lacks_most_of_its_memory_is_none_and_one_that_lacks_some_stays() {
        let of = |refused_bytes| VolumeReport {
            name: "db".to_owned(),
            state: "conforming".to_owned(),
            connections: None,
            origin: None,
            quota_bytes: 1_000,
            used_bytes: 0,
            refused_bytes,
            requests_in_flight: 0,
        };
        assert_eq!([0, 500, 501, 1_000].map(|refused| unbacked(&of(refused))), [0, 0, 501, 1_000]);
    }

    /// Appliances that are stopped only when told to be, and that are found.
    struct Dead {
        held: Mutex<Receiver<()>>,
        runs: Option<Running>,
        looked: Arc<AtomicU64>,
    }

    impl Provider for Dead {
        fn start(&self, _: &ApplianceOrder, _: Deadline) -> Result<Running, ProvisionError> {
            unreachable!("nothing is started")
        }

        fn find(&self, _: &ApplianceName) -> Result<Option<Running>, ProvisionError> {
            self.looked.fetch_add(1, Ordering::Relaxed);
            Ok(self.runs.clone())
        }

        fn list(&self, _: &Secret, _: Deadline) -> Result<Vec<Listed>, ProvisionError> {
            unreachable!("nothing is listed")
        }

        fn stop(&self, _: &ApplianceName, _: Deadline) -> Result<(), ProvisionError> {
            let _ = self.held.lock().unwrap().recv();
            Ok(())
        }
    }

    /// Takes orders down, and starts nothing.
    #[derive(Default)]
    struct Clerk(Arc<Mutex<Vec<ApplianceOrder>>>);

    impl Provider for Clerk {
        fn start(&self, order: &ApplianceOrder, _: Deadline) -> Result<Running, ProvisionError> {
            self.0.lock().unwrap().push(order.clone());
            Err(ProvisionError::Busy { id: order.id.clone() })
        }

        fn find(&self, _: &ApplianceName) -> Result<Option<Running>, ProvisionError> {
            unreachable!("nothing is looked for")
        }

        fn list(&self, _: &Secret, _: Deadline) -> Result<Vec<Listed>, ProvisionError> {
            unreachable!("nothing is listed")
        }

        fn stop(&self, _: &ApplianceName, _: Deadline) -> Result<(), ProvisionError> {
            unreachable!("nothing is stopped")
        }
    }

    /// What is needed for a volume `db` on one host, with an interval of 100 ms.
    fn means(host: impl Provider + 'static) -> Arc<Means> {
        let folder = tempfile::tempdir().unwrap();
        let mut config = super::super::tests::config(folder.path(), "leased = false");
        let table = config.volume.remove(0);
        Arc::new(Means {
            hosts: vec![("h1".to_owned(), Box::new(host))],
            volumes: vec![Way { table, route: None, lease: None, switches: Mutex::default() }],
            secret: Secret::new("0123456789abcdef0123456789abcdef".to_owned()).unwrap(),
            interval: config.interval,
            running: Mutex::default(),
            started: Instant::now(),
        })
    }

    #[test]
    fn after_a_restart_an_appliance_is_looked_for_by_those_who_carry_orders_out() {
        let (_release, held) = channel();
        let folder = tempfile::tempdir().unwrap();
        // Nobody answers there.
        let control = Control { address: ApiAddress::Unix(folder.path().join("nobody.sock")), token: None };
        let appliance = ApplianceId(7);
        let (id, endpoints) = (name_of(appliance), BTreeMap::new());
        let runs = Running { id, endpoints, control: control.clone() };
        let looked = Arc::new(AtomicU64::new(0));
        let host = Dead { held: Mutex::new(held), runs: Some(runs), looked: Arc::clone(&looked) };
        let carriers = Carriers { means: means(host), queues: Vec::new() };
        assert_eq!(carriers.control_of(appliance), None);
        assert_eq!(looked.load(Ordering::Relaxed), 0, "the loop waited for a host");
        let what = What::Probe { appliance, host: HostId(0) };
        let probe = Order { id: OrderId(1), volume: id_of(0), what, deadline: Nanos::secs(600) };
        assert!(matches!(carried(&carriers.means, 0, &probe), (OrderId(1), Outcome::Unknown(_))));
        assert_eq!(carriers.control_of(appliance), Some(control));
        assert_eq!(looked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_panics_carrying_an_order_out_carries_the_next_one_out() {
        let means = means(Clerk::default());
        let stop = What::Stop { appliance: ApplianceId(1), host: HostId(0) };
        let order = |what| Order { id: OrderId(1), volume: id_of(0), what, deadline: Nanos::secs(600) };
        // It stops nothing.
        let (_, outcome) = carried(&means, 0, &order(stop));
        assert!(
            matches!(&outcome, Outcome::Unknown(why) if why.contains("nothing is stopped")),
            "{outcome:?}"
        );
        let fence = What::Fence { epoch: 1, holder: Holder::Named };
        assert!(matches!(carried(&means, 0, &order(fence)), (OrderId(1), Outcome::Refused(_))));
    }

    /// Whoever took it for a path that does not serve would fence the one that clients are on, sooner or later.
    #[test]
    fn a_proxy_whose_volume_would_go_to_other_data_says_so() {
        use crate::Daemon;
        use crate::config::{Config, OriginConfig, OriginTls, VolumeConfig};
        use forebay_appliance::ListenerConfig;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let daemon = |name: &str, origin: OriginConfig| {
            let mut config = Config::new(vec![VolumeConfig::new("db", origin)]);
            config.listen = vec![ListenerConfig::Unix { path: path(&format!("{name}.nbd")) }];
            config.http.socket = Some(path(&format!("{name}.sock")));
            config.control.enabled = false;
            Daemon::start(config).unwrap()
        };
        let disk = |name: &str, byte: u8, size: usize| {
            std::fs::write(path(&format!("{name}.img")), vec![byte; size]).unwrap();
            daemon(name, OriginConfig::file(path(&format!("{name}.img"))))
        };
        let (right, other, small) =
            (disk("right", 5, 1 << 20), disk("other", 6, 1 << 20), disk("small", 5, 1 << 19));
        let uri = right.uris("db")[0].parse().unwrap();
        let options = forebay_origin::NbdOriginOptions::default();
        let proxy = daemon("proxy", OriginConfig::Nbd { uri, options, tls: OriginTls::default() });
        let mut config = super::super::tests::config(folder.path(), super::super::tests::MOVED);
        let mut table = config.volume.remove(0);
        let mut switched = |to: &Daemon, settled: bool| {
            table.origin = to.uris("db")[0].parse().unwrap();
            let (route, switches) = (making::route(&config, &table), Mutex::default());
            let way = Way { table: table.clone(), route, lease: None, switches };
            let means = means(Clerk::default());
            means.switch(&way, Target::Original, 1, settled, Deadline::after(Duration::from_secs(10)))
        };
        for to in [&other, &small] {
            let outcome = switched(to, false);
            assert!(matches!(outcome, Outcome::OtherData(_)), "{outcome:?}");
        }
        assert!(matches!(switched(&small, true), Outcome::OtherData(_)), "of a fenced one the size is known");
        assert!(matches!(switched(&right, false), Outcome::Switched { .. }));
        [proxy, right, other, small].into_iter().for_each(|daemon| {
            daemon.shutdown();
        });
    }

    /// Else a controller hears nothing new in most of its intervals, or misses some of theirs.
    #[test]
    fn an_appliance_looks_as_often_as_its_controller() {
        let clerk = Clerk::default();
        let orders = Arc::clone(&clerk.0);
        let what = What::Start {
            appliance: ApplianceId(7),
            host: HostId(0),
            room: Room::default(),
            cache: Bytes::mib(1),
            flash: Bytes::ZERO,
            epoch: 1,
        };
        let start = Order { id: OrderId(1), volume: id_of(0), what, deadline: Nanos::secs(600) };
        carried(&means(clerk), 0, &start);
        assert_eq!(orders.lock().unwrap()[0].interval_ms, Some(100));
    }

    #[test]
    fn what_stops_on_a_dead_host_keeps_nothing_of_the_same_volume() {
        let (release, held) = channel();
        let means = means(Dead { held: Mutex::new(held), runs: None, looked: Arc::default() });
        let (queue, orders) = channel();
        let (reporter, reports) = channel();
        let thread = thread::spawn(move || carry(&means, 0, &orders, &reporter));
        let order = |id, what| Order { id: OrderId(id), volume: id_of(0), what, deadline: Nanos::secs(600) };
        let host = HostId(0);
        queue.send(order(1, What::Stop { appliance: ApplianceId(1), host })).unwrap();
        queue.send(order(2, What::Probe { appliance: ApplianceId(2), host })).unwrap();
        let heard = || reports.recv_timeout(Duration::from_secs(20)).map(|(id, _)| id);
        let probed = heard();
        release.send(()).unwrap();
        assert_eq!(probed, Ok(OrderId(2)), "it waited for the dead host");
        assert_eq!(heard(), Ok(OrderId(1)));
        drop(queue);
        thread.join().unwrap();
    }
}
