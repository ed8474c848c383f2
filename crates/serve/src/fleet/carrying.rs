//! Carrying orders out: a thread for each volume, so that of each volume one thing is done after another, and what hangs keeps nobody else.

use super::config::{FleetConfig, VolumeTable};
use crate::lease::{LeaseHolder, LeaseRequest};
use crate::status::Status;
use forebay_actuate::api::{ApiAddress, ApiError, encoded};
use forebay_actuate::provision::{LocalProcess, probe};
use forebay_actuate::{
    ApplianceId as ApplianceName, ApplianceOrder, Control, Deadline, Endpoint, Provider, ProvisionError,
    Running, VolumeOrder,
};
use forebay_control::response::{ApplianceId, Holder, Order, OrderId, Outcome, Target, What};
use forebay_control::{HostId, VolumeId};
use forebay_nbd::Uri;
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos, Secret};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What an order came to.
pub(super) type Report = (OrderId, Outcome);

/// What all threads need.
struct Means {
    hosts: Vec<(String, Box<dyn Provider>)>,
    volumes: Vec<VolumeTable>,
    secret: Secret,
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
        let itself = std::env::current_exe()?;
        let mut hosts: Vec<(String, Box<dyn Provider>)> = Vec::new();
        for host in &config.host {
            let folder: PathBuf = config.state.join("hosts").join(&host.name);
            let program = host.program.clone().unwrap_or_else(|| itself.clone());
            hosts.push((host.name.clone(), Box::new(LocalProcess::new(folder, program)?)));
        }
        let means = Arc::new(Means {
            hosts,
            volumes: config.volume.clone(),
            secret,
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

    /// Where an appliance is told and asked, if it is known to run.
    pub(super) fn control_of(&self, appliance: ApplianceId, host: HostId) -> Option<Control> {
        self.means.running(appliance, host).ok().flatten().map(|running| running.control)
    }
}

fn carry(means: &Means, index: usize, orders: &Receiver<Order>, reports: &Sender<Report>) {
    while let Ok(order) = orders.recv() {
        let until = means.started + Duration::from_nanos(order.deadline.0);
        let deadline = Deadline::at(until);
        let outcome = if Instant::now() >= until {
            // It waited behind one that hung, and was not begun.
            Outcome::Unknown("its time was over before it could begin".to_owned())
        } else {
            means.carry_out(&means.volumes[index], &order, deadline)
        };
        tracing::debug!(volume = means.volumes[index].name, what = ?order.what, ?outcome, "carried out");
        if reports.send((order.id, outcome)).is_err() {
            return;
        }
    }
}

/// An appliance's name for its provider.
fn name_of(appliance: ApplianceId) -> ApplianceName {
    format!("forebay-{}", appliance.0).parse().expect("letters, digits and a dash, and short")
}

/// The export on the storage side, as who names this epoch calls it.
fn named(uri: &Uri, epoch: Option<u64>) -> Uri {
    match epoch {
        Some(epoch) => Uri { export: format!("{}@{epoch}", uri.export), ..uri.clone() },
        None => uri.clone(),
    }
}

/// An error with its causes, in one line.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    crate::daemon::chain(error)
}

impl Means {
    fn running(&self, appliance: ApplianceId, host: HostId) -> Result<Option<Running>, ProvisionError> {
        let known = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = known().get(&appliance) {
            return Ok(Some(running.clone()));
        }
        let found = self.provider(host).find(&name_of(appliance))?;
        if let Some(running) = &found {
            known().insert(appliance, running.clone());
        }
        Ok(found)
    }

    fn provider(&self, host: HostId) -> &dyn Provider {
        &*self.hosts[host.0 as usize].1
    }

    fn carry_out(&self, volume: &VolumeTable, order: &Order, deadline: Deadline) -> Outcome {
        match &order.what {
            What::Start { appliance, host, room, cache, epoch, .. } => {
                let origin = Endpoint::new(named(&volume.origin, volume.leased.then_some(*epoch)));
                let block_size = BlockSize::new(volume.block_size).expect("the configuration was checked");
                let order = ApplianceOrder {
                    id: name_of(*appliance),
                    host: self.hosts[host.0 as usize].0.clone(),
                    memory: room.memory,
                    volumes: vec![VolumeOrder {
                        block_size,
                        ..VolumeOrder::new(&volume.name, origin, *cache)
                    }],
                    token: self.secret.clone(),
                };
                match self.provider(*host).start(&order, deadline) {
                    Ok(running) => {
                        // Until clients are on it: what it reads before could be stale by then.
                        if let Err(error) = running.control.set_quota(&volume.name, Bytes::ZERO, deadline) {
                            return Outcome::Unknown(told(&error));
                        }
                        let mut known = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                        known.insert(*appliance, running);
                        Outcome::Done
                    }
                    // It may run, or come to.
                    Err(
                        error @ (ProvisionError::OtherOrder { .. }
                        | ProvisionError::Busy { .. }
                        | ProvisionError::State { .. }
                        | ProvisionError::StillThere { .. }),
                    ) => Outcome::Unknown(told(&error)),
                    Err(error) => Outcome::Refused(told(&error)),
                }
            }
            What::Probe { appliance, host } => self.probe(volume, *appliance, *host, deadline),
            What::Fence { epoch, holder } => fence(volume, *epoch, *holder, deadline),
            What::Switch { to, epoch, settled } => self.switch(volume, *to, *epoch, *settled, deadline),
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
                self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(appliance);
                match self.provider(*host).stop(&name_of(*appliance), deadline) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Unknown(told(&error)),
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
            Err(error) => Outcome::Unknown(told(&error)),
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
            Err(error) => return Outcome::Unknown(told(&error)),
        };
        match probe(&running, deadline) {
            Ok(status) => match status.volumes.iter().find(|of| of.name == volume.name) {
                Some(of) if ["absent", "drained"].contains(&&*of.state) => {
                    Outcome::Refused(format!("the volume is {} in it", of.state))
                }
                Some(_) => Outcome::Healthy { cache: Bytes(status.cache.capacity_bytes) },
                None => Outcome::Refused("it does not serve the volume".to_owned()),
            },
            Err(error) => Outcome::Unknown(told(&error)),
        }
    }

    fn switch(
        &self,
        volume: &VolumeTable,
        to: Target,
        epoch: u64,
        settled: bool,
        deadline: Deadline,
    ) -> Outcome {
        let Some(proxy) = &volume.proxy else { return Outcome::Refused("it has no proxy".to_owned()) };
        let uri = match to {
            Target::Original => named(&volume.origin, volume.leased.then_some(epoch)),
            Target::Appliance(appliance) => {
                let known = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                let endpoint = known.get(&appliance).and_then(|running| running.endpoints.get(&volume.name));
                match endpoint {
                    Some(endpoint) => endpoint.uri.clone(),
                    None => return Outcome::Refused("the appliance is not known to run".to_owned()),
                }
            }
        };
        let within_s = deadline.sooner_by(Duration::from_millis(200)).left().as_secs_f64();
        let body = json!({ "to": uri.to_string(), "epoch": epoch, "settled": settled, "within_s": within_s });
        let body = body.to_string();
        let path = format!("/api/v1/volumes/{}/route", encoded(&volume.name));
        match ask::<Value>(proxy, "POST", &path, &body, deadline) {
            Ok(answer) => Outcome::Switched {
                pause: Nanos::from_secs_f64(answer["pause_s"].as_f64().unwrap_or(0.0).clamp(0.0, 1e6)),
            },
            Err(error) => failed(&error),
        }
    }
}

fn fence(volume: &VolumeTable, epoch: u64, holder: Holder, deadline: Deadline) -> Outcome {
    let Some(watch) = &volume.watch else { return Outcome::Refused("nothing has its lease".to_owned()) };
    let holder = match holder {
        Holder::Original => LeaseHolder::Original,
        Holder::Named => LeaseHolder::Named,
    };
    let within_s = Some(deadline.sooner_by(Duration::from_millis(200)).left().as_secs_f64().min(30.0));
    let request = LeaseRequest { epoch, holder, within_s };
    let body = serde_json::to_string(&request).expect("plain data");
    let path = format!("/api/v1/volumes/{}/lease", encoded(&volume.origin.export));
    match ask::<Value>(watch, "POST", &path, &body, deadline) {
        Ok(_) => Outcome::Done,
        Err(error @ ApiError::Refused { .. }) => {
            // Whether it is at a higher epoch, or what was there is not done yet.
            let now = ask::<Status>(watch, "GET", "/api/v1/status", "", deadline).ok();
            let of =
                |status: Status| status.volumes.into_iter().find(|of| of.name == volume.origin.export)?.lease;
            match now.and_then(of) {
                Some(lease) if lease.epoch > epoch || (lease.epoch == epoch && lease.holder != holder) => {
                    Outcome::Stale { epoch: lease.epoch }
                }
                _ => Outcome::Unknown(told(&error)),
            }
        }
        Err(error) => Outcome::Unknown(told(&error)),
    }
}

/// Asks a daemon of this machine, which needs no token.
pub(super) fn ask<T: serde::de::DeserializeOwned>(
    address: &ApiAddress,
    method: &str,
    path: &str,
    body: &str,
    deadline: Deadline,
) -> Result<T, ApiError> {
    Control { address: address.clone(), token: None }.ask(method, path, body, deadline)
}

/// A daemon that says no has done nothing, unless it had trouble of its own.
fn failed(error: &ApiError) -> Outcome {
    match error {
        ApiError::Refused { status, .. } if *status != 500 => Outcome::Refused(told(error)),
        _ => Outcome::Unknown(told(error)),
    }
}

/// The volume that the orders of a thread are of.
pub(super) fn id_of(index: usize) -> VolumeId {
    VolumeId(index as u32)
}
