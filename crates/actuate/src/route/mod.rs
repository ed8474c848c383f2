//! Moves clients from one path to their data to another.
//!
//! Three ways, for whoever owns what is between clients and data: a permanent proxy that is told where to go ([`ProxyRoute`]), a QEMU whose block graph is
//! changed ([`QmpRoute`]), and an address that moves from host to host, after which clients connect again ([`AddressRoute`]).
//!
//! A switch is exact: the new path serves only after what was out on the old one has ended. The first two see to that themselves; an address cannot, so
//! somebody must fence the old path in between: the storage side by a lease ([`StorageLease`]), or who asks has done so before and says that it is
//! settled. Where neither is to be had the switch is refused. A switch carries an epoch; one with a lower epoch than that of the path
//! in force has no effect, so an order that comes late harms nobody.
//!
//! Nothing is remembered here: where clients are is asked of who moves them ([`Route::now`]).

mod address;
mod lease;
mod proxy;
mod qmp;

pub use address::{AddressPlace, AddressRoute, Ipv4Prefix, ParsePrefixError};
pub use lease::{LeaseHolder, StorageLease};
pub use proxy::ProxyRoute;
pub use qmp::QmpRoute;

use crate::{Deadline, Endpoint};
use std::time::Duration;
use thiserror::Error;

/// Where clients are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The export that they are to reach.
    pub to: Endpoint,
    /// The number of the switch, which is the epoch that the new path names at the storage side.
    pub epoch: u64,
    /// Nothing that is out on the old path can change data any more, because it was fenced or stopped: it need not be drained.
    pub settled: bool,
    /// Whether the old path may serve again once it refuses connections, and the new one does not. Storage may be about to begin anew; an appliance that has ended does not come back, and nothing on it is waited for.
    pub comes_back: bool,
}

/// How long neither path answered, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pause(pub Duration);

/// A way to move clients.
pub trait Route: Send + Sync {
    /// Whether a switch lets what is out on the old path end by itself; if not, only what is settled is switched.
    fn drains(&self) -> bool;

    /// Moves the clients, unless they are there. Once this returns well their requests take the new path only.
    ///
    /// # Errors
    /// [`RouteError`]; [`RouteError::had_no_effect`] says whether they are where they were.
    fn switch(&self, passage: &Passage, deadline: Deadline) -> Result<Pause, RouteError>;

    /// The epoch of the last switch, as whoever moves the clients knows it; 0 where there was none.
    ///
    /// # Errors
    /// [`RouteError`].
    fn epoch(&self, deadline: Deadline) -> Result<u64, RouteError>;

    /// Clients that stopped for an error of the path that they were on before go on, where there are such: for who knows that the path that they are on now serves, and that
    /// nothing of theirs is left on another.
    fn go_on(&self, _deadline: Deadline) {}

    /// Where the clients are now.
    ///
    /// # Errors
    /// [`RouteError`].
    fn now(&self, deadline: Deadline) -> Result<Endpoint, RouteError>;
}

/// Why clients were not moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The order is older than the path in force.
    #[error("epoch {asked} is over: the path in force is of epoch {now}")]
    Stale {
        /// What was asked for.
        asked: u64,
        /// What is in force.
        now: u64,
    },
    /// What is out on the old path cannot be brought to its end, and is not settled.
    #[error("the old path is not drained: {reason}")]
    NotDrained {
        /// Why.
        reason: String,
    },
    /// The new path does not serve.
    #[error("the new path `{to}` does not serve: {reason}")]
    Unusable {
        /// Where to.
        to: String,
        /// Why.
        reason: String,
    },
    /// The new path serves, and leads to other data, or to what cannot take the place of the old one: another size, read-only, other units.
    #[error("the new path `{to}` does not lead to the same data: {reason}")]
    OtherData {
        /// Where to.
        to: String,
        /// What is other.
        reason: String,
    },
    /// Somebody else has the address.
    #[error("address {address} is in use by {by}")]
    AddressInUse {
        /// The address.
        address: std::net::Ipv4Addr,
        /// The hardware address of who answered for it.
        by: String,
    },
    /// The kernel would remove other addresses with the one that is to move. Nothing was done.
    #[error(
        "{address} cannot leave {place}: Linux removes {} with it; set `net.ipv4.conf.{interface}.promote_secondaries` to 1 there, or configure {address} after them",
        others.join(", ")
    )]
    AddressIsPrimary {
        /// The address.
        address: std::net::Ipv4Addr,
        /// The interface that has it, and of which namespace.
        place: String,
        /// The interface's name.
        interface: String,
        /// The addresses that would be lost, with their prefixes.
        others: Vec<String>,
    },
    /// Where it would go another interface has the address. Nothing was done.
    #[error(
        "{address} is not given to {place}: interface `{interface}` there has it; remove it there, or name that one in its place"
    )]
    AddressElsewhere {
        /// The address.
        address: std::net::Ipv4Addr,
        /// The interface that was to have it, and of which namespace.
        place: String,
        /// The one that has it.
        interface: String,
    },
    /// Who moves the clients cannot be told to, or is no such thing. Nothing was asked of it.
    #[error("{who} cannot be told: {reason}")]
    Unheard {
        /// Who.
        who: String,
        /// Why.
        reason: String,
    },
    /// Nobody is there whose way it would change. Nothing was asked of anybody.
    #[error("nobody is at {who}, whom it would move: {reason}")]
    NoClient {
        /// Who is missing.
        who: String,
        /// Why that is thought.
        reason: String,
    },
    /// It was told, and what became of that is not known: it may have had its effect, or have it yet.
    #[error("what became of the switch is not known: {reason}")]
    Unknown {
        /// What was heard last.
        reason: String,
    },
    /// Clients reach nothing now: the old path was left, the new one could not be opened, and the old one could not be taken back.
    #[error("clients reach neither path: {reason}")]
    Between {
        /// Why.
        reason: String,
    },
}

impl RouteError {
    /// Whether clients are where they were, and will stay there.
    pub fn had_no_effect(&self) -> bool {
        !matches!(self, RouteError::Unknown { .. } | RouteError::Between { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_neither_path_is_not_where_it_was() {
        let reason = || "why".to_owned();
        let lost = [RouteError::Unknown { reason: reason() }, RouteError::Between { reason: reason() }];
        assert!(lost.iter().all(|error| !error.had_no_effect()));
        assert!(RouteError::NotDrained { reason: reason() }.had_no_effect());
    }

    #[test]
    fn a_path_that_does_not_serve_is_told_without_the_secret_of_its_export() {
        let to = Endpoint::new("nbds://h1/db.0123456789abcdef@3".parse().unwrap());
        let passage = Passage { to, epoch: 3, settled: true, comes_back: true };
        let address = "10.0.0.9/24".parse().unwrap();
        let routes: [Box<dyn Route>; 2] = [
            Box::new(QmpRoute::raw("/nowhere", "node", "first")),
            Box::new(AddressRoute { address, places: Vec::new(), lease: None }),
        ];
        for route in routes {
            let error = route.switch(&passage, Deadline::after(Duration::ZERO)).unwrap_err().to_string();
            assert!(error.contains("db.SECRET@3") && !error.contains("0123456789"), "{error}");
        }
    }
}
