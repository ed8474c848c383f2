//! An IPv4 address that moves from host to host: clients are cut off, and connect again to whoever has it.
//!
//! The address is allotted to the workload when that is made, and nobody else uses it. On each host an interface of the same wire waits for it, and
//! a server that listens on every address. Hosts are network namespaces of this machine; a host of its own needs this code to run there.
//!
//! A switch has the old path flush, takes the address from where it is, asks on the wire whether anybody else has it while the old path flushes what clients wrote meanwhile, has the storage
//! side fence the old path, gives it to the new host, and announces it. Between the first and the last step clients reach nobody. What was out on the old path is done or
//! refused by then; who asked did not hear, and asks again on the new path. If a step fails the address goes back to where it was.
//!
//! Linux removes what is secondary to an address with it. An address to which others are is not moved: nobody would put those back.

mod arp;
mod flushing;

use super::{LeaseHolder, Passage, Pause, Route, RouteError, StorageLease};
use crate::api::connect_tcp;
use crate::netlink::{Assigned, Netlink, promotes_secondaries};
use crate::{Deadline, Endpoint};
use arp::Wire;
use flushing::{flush_ahead, flush_behind};
use forebay_nbd::Transport;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Announcements behind the first, for who lost that; clients do not wait for them.
const ANNOUNCED_AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(20)];

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Prefix {
    /// The address.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

impl FromStr for Ipv4Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Ipv4Prefix, ParsePrefixError> {
        let parts = text.split_once('/').and_then(|(address, prefix)| {
            Some(Ipv4Prefix { address: address.parse().ok()?, prefix: prefix.parse().ok()? })
        });
        parts.filter(|found| found.prefix <= 32).ok_or_else(|| ParsePrefixError(text.to_owned()))
    }
}

/// A text that is no address with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("found `{0}`, expected an address and a prefix, as in `10.0.0.9/24`")]
pub struct ParsePrefixError(String);

/// A host on which the address may be.
#[derive(Clone, Debug)]
pub struct AddressPlace {
    /// What clients reach when it is here: what it is called in a [`Passage`].
    pub endpoint: Endpoint,
    /// The network namespace, as `/run/netns/NAME`; `None`: that of this process.
    pub namespace: Option<PathBuf>,
    /// The interface.
    pub interface: String,
    /// Who of the storage side's lease serves here: the original route there, a holder of an epoch elsewhere.
    pub holder: LeaseHolder,
}

/// The route of one workload by its address. Needs the right to administer the network (`CAP_NET_ADMIN` and `CAP_NET_RAW`; for namespaces `CAP_SYS_ADMIN`).
#[derive(Clone, Debug)]
pub struct AddressRoute {
    /// The address that is allotted to the workload.
    pub address: Ipv4Prefix,
    /// The hosts, each on the same wire.
    pub places: Vec<AddressPlace>,
    /// Of the storage side, which fences the old path; `None`: only what is settled is switched.
    pub lease: Option<StorageLease>,
}

impl AddressRoute {
    fn unheard(&self, place: &AddressPlace, error: impl ToString) -> RouteError {
        RouteError::Unheard { who: place.shown(), reason: error.to_string() }
    }

    /// Whether nothing but the address itself is lost where it is removed from a place.
    fn check_leaves_alone(&self, place: &AddressPlace) -> Result<(), RouteError> {
        let Ipv4Prefix { address, prefix } = self.address;
        let lost = place.within(|host| {
            let all = host.netlink.addresses()?;
            let is_it =
                |of: &&Assigned| (of.interface, of.address, of.prefix) == (host.index, address, prefix);
            let Some(it) = all.iter().find(is_it) else { return Ok(Vec::new()) };
            let lost = all.iter().filter(|other| other.goes_with(it));
            let lost: Vec<String> = lost.map(|other| format!("{}/{}", other.address, other.prefix)).collect();
            Ok(if lost.is_empty() || promotes_secondaries(&place.interface)? { Vec::new() } else { lost })
        });
        match lost {
            Ok(others) if others.is_empty() => Ok(()),
            Ok(others) => {
                let (place, interface) = (place.shown(), place.interface.clone());
                Err(RouteError::AddressIsPrimary { address, place, interface, others })
            }
            Err(error) => Err(self.unheard(place, error)),
        }
    }

    /// Whether no other interface of a place's namespace has the address. Clients may be served by that one, and the wire does not tell of it.
    fn check_nowhere_else(&self, place: &AddressPlace) -> Result<(), RouteError> {
        let address = self.address.address;
        let elsewhere = place.within(|host| {
            let all = host.netlink.addresses()?;
            let other = all.iter().find(|of| of.address == address && of.interface != host.index);
            other.map(|other| host.netlink.name(other.interface)).transpose()
        });
        match elsewhere {
            Ok(None) => Ok(()),
            Ok(Some(interface)) => {
                Err(RouteError::AddressElsewhere { address, place: place.shown(), interface })
            }
            Err(error) => Err(self.unheard(place, error)),
        }
    }

    /// The places that have the address, and why one was not asked that cannot be: its host is gone, say. One that could not be asked at a switch may have it yet when it is back, so there may be several.
    fn holders(&self) -> (Vec<&AddressPlace>, Option<RouteError>) {
        let (mut holders, mut unheard) = (Vec::new(), None);
        for place in &self.places {
            match place.within(|host| host.netlink.has(host.index, self.address.address.into())) {
                Ok(true) => holders.push(place),
                Ok(false) => {}
                Err(error) => unheard = Some(self.unheard(place, error)),
            }
        }
        (holders, unheard)
    }

    /// Of several places that have or had the address, those at which somebody serves; if that is said of none, all.
    fn serving<'a>(&self, places: &[&'a AddressPlace], deadline: Deadline) -> Vec<&'a AddressPlace> {
        let serves = |place: &&&AddressPlace| self.check_serves(place, deadline).is_ok();
        let serving: Vec<_> = match places {
            [] | [_] => Vec::new(),
            several => several.iter().filter(serves).copied().collect(),
        };
        if serving.is_empty() { places.to_vec() } else { serving }
    }

    /// Gives the address to a host and announces it. A machine is changed by that, so the log tells of it, whoever asked.
    fn give(&self, place: &AddressPlace) -> io::Result<()> {
        let Ipv4Prefix { address, prefix } = self.address;
        let announced = place.within(|host| {
            host.netlink.add(host.index, address.into(), prefix)?;
            Ok(host.wire.announce(address))
        })?;
        tracing::info!("{address}/{prefix} was given to {}", place.shown());
        announced
    }

    fn remove_from(&self, place: &AddressPlace) -> io::Result<()> {
        let Ipv4Prefix { address, prefix } = self.address;
        place.within(|host| host.netlink.remove(host.index, address.into(), prefix))
    }

    /// Takes the address back to where it was, after `error`.
    fn take_back(&self, old: &[&AddressPlace], error: RouteError, deadline: Deadline) -> RouteError {
        let old = self.serving(old, deadline);
        let given = old.iter().map(|place| self.give(place)).reduce(io::Result::and);
        match given {
            Some(Ok(())) => error,
            Some(Err(failure)) => {
                RouteError::Between { reason: format!("{error}; and it cannot go back: {failure}") }
            }
            None => RouteError::Between { reason: error.to_string() },
        }
    }

    /// Whether somebody listens where the clients are to go.
    fn check_serves(&self, place: &AddressPlace, deadline: Deadline) -> Result<(), RouteError> {
        let uri = &place.endpoint.uri;
        let unusable = |reason: String| RouteError::Unusable { to: uri.shown().to_string(), reason };
        let Transport::Tcp { host, port } = &uri.transport else {
            return Err(unusable("an address is moved for TCP only".to_owned()));
        };
        let address: IpAddr = host.parse().map_err(|_| unusable(format!("`{host}` is no address")))?;
        let connected = place.within(|_| connect_tcp(SocketAddr::new(address, *port), deadline).map(drop));
        connected.map_err(|error| unusable(error.to_string()))
    }
}

/// One host's end of the wire, from a thread in its namespace.
struct Host<'a> {
    netlink: &'a mut Netlink,
    index: u32,
    wire: &'a mut Wire,
}

impl AddressPlace {
    /// Its interface, and of which namespace.
    fn shown(&self) -> String {
        let own = || "the controller's own network namespace".to_owned();
        let namespace = self.namespace.as_ref().map_or_else(own, |path| path.display().to_string());
        format!("interface `{}` of {namespace}", self.interface)
    }

    /// Does something in the place's namespace: on a thread of its own, which ends with it.
    fn within<T: Send>(&self, act: impl FnOnce(&mut Host<'_>) -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let acting = scope.spawn(move || {
                if let Some(path) = &self.namespace {
                    let namespace = File::open(path)?;
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                }
                let mut netlink = Netlink::open()?;
                let index = netlink.index(&self.interface)?;
                let mut wire = Wire::open(&self.interface, netlink.hardware(index)?)?;
                act(&mut Host { netlink: &mut netlink, index, wire: &mut wire })
            });
            acting.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended in a panic")))
        })
    }
}

impl Route for AddressRoute {
    fn drains(&self) -> bool {
        self.lease.is_some()
    }

    fn switch(&self, passage: &Passage, deadline: Deadline) -> Result<Pause, RouteError> {
        let address = self.address.address;
        let new = self.places.iter().find(|place| place.endpoint == passage.to).ok_or_else(|| {
            let to = passage.to.uri.shown().to_string();
            RouteError::Unusable { to, reason: format!("{address} has no place on its host") }
        })?;
        if let Some(lease) = &self.lease {
            let now = lease.epoch(deadline)?;
            if passage.epoch < now {
                return Err(RouteError::Stale { asked: passage.epoch, now });
            }
        } else if !passage.settled {
            let reason =
                "a move of an address drains nothing, and there is no lease to fence the old path".to_owned();
            return Err(RouteError::NotDrained { reason });
        }
        // A host that cannot be asked may have it yet: then it is fenced, and answers on the wire where it can be heard.
        let (old, _) = self.holders();
        if matches!(old[..], [old] if old.endpoint == new.endpoint) {
            new.within(|host| host.wire.announce(address)).map_err(|error| self.unheard(new, error))?;
            return Ok(Pause(Duration::ZERO));
        }
        old.iter().try_for_each(|place| self.check_leaves_alone(place))?;
        self.check_nowhere_else(new)?;
        self.check_serves(new, deadline)?;
        let may_flush = if passage.settled { Vec::new() } else { flush_ahead(&old, deadline)? };
        let began = Instant::now();
        for (index, place) in old.iter().enumerate() {
            if let Err(error) = self.remove_from(place) {
                let error = self.unheard(place, error);
                return Err(if index == 0 { error } else { self.take_back(&old[..index], error, deadline) });
            }
        }
        // Clients hear of nothing any more that is done there. What they have heard of is flushed while it is asked who else has the address.
        let (used_by, flushed) = std::thread::scope(|scope| {
            let flushing = scope.spawn(|| flush_behind(&may_flush, deadline));
            let used_by = new.within(|host| host.wire.probe(address));
            (used_by, flushing.join().expect("it does not panic"))
        });
        if let Err(error) = flushed {
            return Err(self.take_back(&old, error, deadline));
        }
        match used_by {
            Ok(None) => {}
            Ok(Some(by)) => {
                return Err(self.take_back(&old, RouteError::AddressInUse { address, by }, deadline));
            }
            Err(error) => return Err(self.take_back(&old, self.unheard(new, error), deadline)),
        }
        // The old path cannot answer any more; now it is made sure that it does nothing either.
        if let Some(lease) = self.lease.as_ref().filter(|_| !passage.settled)
            && let Err(error) = lease.raise(passage.epoch, new.holder, deadline)
        {
            let error = match error {
                RouteError::NotDrained { reason } | RouteError::Unknown { reason } => RouteError::Between {
                    reason: format!(
                        "the lease may have been taken from the old path, to which they return: {reason}"
                    ),
                },
                other => other,
            };
            return Err(self.take_back(&old, error, deadline));
        }
        let given = self.give(new);
        let pause = Pause(began.elapsed());
        if let Err(error) = given {
            // The old path is fenced, so there is no way back for its clients before the lease is given back.
            let reason = format!("{}; the old path is fenced", self.unheard(new, error));
            // It may have come, and not be announced. Where that cannot be undone it does not go back: two hosts would answer for it.
            let undone = new.within(|host| {
                let is_there = host.netlink.has(host.index, address.into())?;
                if is_there {
                    host.netlink.remove(host.index, address.into(), self.address.prefix)
                } else {
                    Ok(())
                }
            });
            return Err(match undone {
                Ok(()) => self.take_back(&old, RouteError::Between { reason }, deadline),
                Err(_) => RouteError::Between { reason },
            });
        }
        for span in ANNOUNCED_AGAIN {
            std::thread::sleep(span);
            if let Err(error) = new.within(|host| host.wire.announce(address)) {
                tracing::warn!(%address, %error, "an address was announced once only");
            }
        }
        Ok(pause)
    }

    /// The lease's. An address that is not on the original route's host was moved, or a move ended in the middle before there was any other: then it is 1 at least. Without a lease nobody is moved.
    fn epoch(&self, deadline: Deadline) -> Result<u64, RouteError> {
        let Some(lease) = &self.lease else { return Ok(0) };
        let epoch = lease.epoch(deadline)?;
        let home = self.places.iter().find(|place| place.holder == LeaseHolder::Original);
        match home.filter(|_| epoch == 0) {
            Some(home) => {
                let is_home = home.within(|host| host.netlink.has(host.index, self.address.address.into()));
                is_home.map(|is_home| u64::from(!is_home)).map_err(|error| self.unheard(home, error))
            }
            None => Ok(epoch),
        }
    }

    fn now(&self, deadline: Deadline) -> Result<Endpoint, RouteError> {
        let nobody = || RouteError::Between { reason: format!("no host has {}", self.address.address) };
        let (holders, unheard) = self.holders();
        match self.serving(&holders, deadline).first() {
            Some(place) => Ok(place.endpoint.clone()),
            None => Err(unheard.unwrap_or_else(nobody)),
        }
    }
}

#[cfg(test)]
mod tests;
