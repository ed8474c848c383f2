//! What is to be started, and what is there then: plain data, which a controller keeps on disk before it acts.

use crate::api::ApiAddress;
use crate::secrets;
use forebay_nbd::Uri;
use forebay_units::{BlockSize, Bytes, Secret};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// The name of an appliance: unique among all appliances of all hosts that a controller knows.
///
/// 1 to 32 lower-case letters, digits and `-`, with a letter or digit first: it becomes part of the names of folders, sockets and virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ApplianceId(String);

/// A text that cannot name an appliance.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` cannot name an appliance: expected 1 to 32 lower-case letters, digits and `-`, and no `-` first"
)]
pub struct ParseIdError(String);

impl FromStr for ApplianceId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<ApplianceId, ParseIdError> {
        let is_good = (1..=32).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if is_good { Ok(ApplianceId(text.to_owned())) } else { Err(ParseIdError(text.to_owned())) }
    }
}

impl TryFrom<String> for ApplianceId {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<ApplianceId, ParseIdError> {
        text.parse()
    }
}

impl From<ApplianceId> for String {
    fn from(id: ApplianceId) -> String {
        id.0
    }
}

impl fmt::Display for ApplianceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where an export is served, and how to get in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Server and export. It may hold the export's secret: it is shown to those only who are to connect.
    #[serde(with = "as_text")]
    pub uri: Uri,
    /// For a URI that asks for TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EndpointTls>,
}

impl Endpoint {
    /// An export without TLS.
    pub fn new(uri: Uri) -> Endpoint {
        Endpoint { uri, tls: None }
    }
}

/// Whom to believe, and what to show, over TLS: PEM files of the machine that connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointTls {
    /// Authorities of which the server's certificate must come.
    pub authorities: Option<PathBuf>,
    /// Our certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A volume that an appliance is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeOrder {
    /// Its name.
    pub name: String,
    /// Where its data is, as the appliance reaches it; the epoch of a lease is part of the export's name.
    pub origin: Endpoint,
    /// The unit of caching.
    #[serde(with = "as_number")]
    pub block_size: BlockSize,
    /// What its cache may hold at the start; the control API changes it.
    #[serde(with = "as_number")]
    pub cache: Bytes,
    /// Whether it refuses every change.
    #[serde(default)]
    pub read_only: bool,
    /// What clients over a network must show for it; the order's token unless set.
    #[serde(default, with = "secrets::optional", skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
}

impl VolumeOrder {
    /// A writable volume of 4 KiB blocks.
    pub fn new(name: impl Into<String>, origin: Endpoint, cache: Bytes) -> VolumeOrder {
        let (name, block_size) = (name.into(), BlockSize::DEFAULT);
        VolumeOrder { name, origin, block_size, cache, read_only: false, secret: None }
    }
}

/// An appliance that is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplianceOrder {
    /// Its name.
    pub id: ApplianceId,
    /// The host that it is to run on, as the inventory names it.
    pub host: String,
    /// All the memory that it may take: caches, and what it needs besides.
    #[serde(with = "as_number")]
    pub memory: Bytes,
    /// What it serves.
    pub volumes: Vec<VolumeOrder>,
    /// The port at which clients come whose address moves: it serves there on every address of its host. Unless set, where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// How often it looks at what it serves, in milliseconds: as often as whoever ordered it decides. A second unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// What its control API asks for, where that is not a socket of its owner's alone; volumes that are served over a network carry it too.
    #[serde(with = "secrets")]
    pub token: Secret,
}

/// Why an order can be carried out by nobody.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderError {
    /// It serves nothing.
    #[error("the order for appliance `{id}` names no volume")]
    NoVolume {
        /// Whose.
        id: ApplianceId,
    },
    /// A name that a volume cannot have.
    #[error(
        "the order for appliance `{id}` names a volume `{name}`: expected 1 to 255 bytes without control characters, each name once"
    )]
    Name {
        /// Whose.
        id: ApplianceId,
        /// The name.
        name: String,
    },
    /// The caches do not fit.
    #[error(
        "the order for appliance `{id}` has caches of {caches} in {memory} of memory, of which it needs {overhead} besides"
    )]
    Memory {
        /// Whose.
        id: ApplianceId,
        /// All caches together.
        caches: Bytes,
        /// The memory.
        memory: Bytes,
        /// What it takes besides its caches.
        overhead: Bytes,
    },
}

impl ApplianceOrder {
    /// Whether what was ordered by `earlier` is what this orders. How often it looks says nothing of what it serves.
    pub fn is_met_by(&self, earlier: &ApplianceOrder) -> bool {
        *earlier == ApplianceOrder { interval_ms: earlier.interval_ms, ..self.clone() }
    }

    /// All caches together.
    pub fn caches(&self) -> Bytes {
        Bytes(self.volumes.iter().fold(0, |sum: u64, volume| sum.saturating_add(volume.cache.get())))
    }

    /// What may be cache, where `overhead` of the memory is needed besides.
    ///
    /// # Errors
    /// [`OrderError`] if the order asks for what cannot be.
    pub fn check(&self, overhead: Bytes) -> Result<Bytes, OrderError> {
        let id = || self.id.clone();
        if self.volumes.is_empty() {
            return Err(OrderError::NoVolume { id: id() });
        }
        let mut names = BTreeSet::new();
        for VolumeOrder { name, .. } in &self.volumes {
            let is_good = (1..=255).contains(&name.len()) && !name.chars().any(char::is_control);
            if !is_good || !names.insert(name) {
                return Err(OrderError::Name { id: id(), name: name.escape_debug().to_string() });
            }
        }
        let (caches, memory) = (self.caches(), self.memory);
        match memory.get().checked_sub(overhead.get()) {
            Some(room) if caches.get() <= room => Ok(Bytes(room)),
            _ => Err(OrderError::Memory { id: id(), caches, memory, overhead }),
        }
    }
}

/// Where an appliance takes orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Where.
    pub address: ApiAddress,
    /// What must be shown there; `None` where the socket is its owner's alone.
    #[serde(default, with = "secrets::optional")]
    pub token: Option<Secret>,
}

/// An appliance that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its name.
    pub id: ApplianceId,
    /// Where it serves each volume, by the volume's name.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// Where it takes orders.
    pub control: Control,
}

/// An appliance that is there, and what was ordered of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What it may take.
    #[serde(with = "as_number")]
    pub memory: Bytes,
    /// Which it is, and where.
    pub running: Running,
}

/// Values that are written as people write them.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Numbers of bytes.
mod as_number {
    use forebay_units::{BlockSize, Bytes};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) trait Number: Sized {
        fn number(&self) -> u64;
        fn of(number: u64) -> Result<Self, String>;
    }

    impl Number for Bytes {
        fn number(&self) -> u64 {
            self.get()
        }

        fn of(number: u64) -> Result<Bytes, String> {
            Ok(Bytes(number))
        }
    }

    impl Number for BlockSize {
        fn number(&self) -> u64 {
            self.bytes()
        }

        fn of(number: u64) -> Result<BlockSize, String> {
            BlockSize::new(Bytes(number)).map_err(|error| error.to_string())
        }
    }

    pub(super) fn serialize<T: Number, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.number())
    }

    pub(super) fn deserialize<'de, T: Number, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::of(u64::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> ApplianceOrder {
        let origin = Endpoint::new("nbd://storage:10810/db@7".parse().unwrap());
        ApplianceOrder {
            id: "db-1".parse().unwrap(),
            host: "h1".to_owned(),
            memory: Bytes::mib(100),
            volumes: vec![VolumeOrder::new("db", origin, Bytes::mib(64))],
            port: None,
            interval_ms: None,
            token: Secret::new("0123456789abcdef").unwrap(),
        }
    }

    /// One that an earlier version ordered is found, and a host of an earlier version takes an order.
    #[test]
    fn how_often_it_looks_makes_no_other_order() {
        let order = order();
        assert!(!serde_json::to_string(&order).unwrap().contains("interval"));
        let often = ApplianceOrder { interval_ms: Some(200), ..order.clone() };
        let text = serde_json::to_string(&often).unwrap();
        assert_eq!(serde_json::from_str::<ApplianceOrder>(&text).unwrap(), often);
        assert!(often.is_met_by(&order) && order.is_met_by(&often));
        assert!(!often.is_met_by(&ApplianceOrder { memory: Bytes::mib(1), ..order }));
    }

    #[test]
    fn an_order_survives_being_written() {
        let mut order = order();
        order.volumes[0].origin.tls =
            Some(EndpointTls { authorities: Some("ca.pem".into()), identity: None });
        let text = serde_json::to_string(&order).unwrap();
        assert!(text.contains(r#""id":"db-1""#) && text.contains(r#""cache":67108864"#), "{text}");
        assert_eq!(serde_json::from_str::<ApplianceOrder>(&text).unwrap(), order);
        assert!(serde_json::from_str::<ApplianceOrder>(&text.replace("db-1", "DB/1")).is_err());
        let uri = order.volumes[0].origin.uri.clone();
        let running = Running {
            id: order.id.clone(),
            endpoints: [("db".to_owned(), Endpoint::new(uri))].into(),
            control: Control {
                address: "unix:/run/a.sock".parse().unwrap(),
                token: Some(order.token.clone()),
            },
        };
        let text = serde_json::to_string(&running).unwrap();
        assert_eq!(serde_json::from_str::<Running>(&text).unwrap(), running);
        assert!(!format!("{order:?} {running:?}").contains("0123456789abcdef"), "secrets are not printed");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        // 100 MiB less 36 MiB is just what the cache asks for.
        assert_eq!(order().check(Bytes::mib(36)), Ok(Bytes::mib(64)));
        assert!(matches!(order().check(Bytes::mib(37)), Err(OrderError::Memory { .. })));
        assert!(matches!(order().check(Bytes::mib(101)), Err(OrderError::Memory { .. })));
        let mut twice = order();
        twice.volumes.push(twice.volumes[0].clone());
        assert!(matches!(twice.check(Bytes::ZERO), Err(OrderError::Name { .. })));
        let mut none = order();
        none.volumes.clear();
        assert!(matches!(none.check(Bytes::ZERO), Err(OrderError::NoVolume { .. })));
        let mut huge = order();
        huge.volumes[0].cache = Bytes(u64::MAX);
        huge.volumes.push(VolumeOrder { name: "b".to_owned(), ..huge.volumes[0].clone() });
        assert!(matches!(huge.check(Bytes::ZERO), Err(OrderError::Memory { .. })));
    }

    #[test]
    fn names_can_stand_in_paths() {
        for bad in ["", "-a", "A", "a/b", "a.b", "a b", &"a".repeat(33)] {
            assert!(bad.parse::<ApplianceId>().is_err(), "{bad}");
        }
        assert_eq!("a-1".parse::<ApplianceId>().unwrap().to_string(), "a-1");
    }
}
