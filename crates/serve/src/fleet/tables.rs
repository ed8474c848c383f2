//! The tables of a fleet's configuration: hosts and how appliances are had there, volumes and how their clients are moved, promises.

use super::prometheus::Server;
use forebay_actuate::Control;
use forebay_actuate::api::ApiAddress;
use forebay_actuate::provision::{MACHINE_OVERHEAD, PROCESS_OVERHEAD};
use forebay_actuate::route::{Ipv4Prefix, StorageLease};
use forebay_actuate::secrets;
use forebay_nbd::Uri;
use forebay_units::{BlockSize, Bytes, Nanos, Secret};
use serde::{Deserialize, Deserializer};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    /// Its name.
    pub name: String,
    /// The rack that it stands in.
    #[serde(default)]
    pub rack: u32,
    /// Memory that it offers for appliances.
    #[serde(deserialize_with = "parsed")]
    pub memory: Bytes,
    /// Processors that it offers for appliances; not counted unless set.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// How appliances are had there.
    #[serde(default)]
    pub provider: ProviderTable,
    /// Whether it is to be free of appliances: none is started there, and those that are there are left.
    #[serde(default)]
    pub drain: bool,
}

/// How appliances are had on a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum ProviderTable {
    /// As processes of this machine.
    Process {
        /// What runs them: `forebay` itself unless set.
        program: Option<PathBuf>,
    },
    /// As processes in a network namespace of this machine.
    Namespace {
        /// Its name.
        namespace: String,
        /// The address in it at which appliances are reached.
        address: IpAddr,
        /// The interface in it that addresses move to; none do unless set.
        interface: Option<String>,
        /// What runs them: `forebay` itself unless set.
        program: Option<PathBuf>,
    },
    /// As processes of another machine, by `ssh`.
    Ssh {
        /// The machine, and who logs in there, as `ssh` takes it.
        destination: String,
        /// The address of it at which appliances are reached.
        address: IpAddr,
        /// Options of `ssh`.
        #[serde(default)]
        options: Vec<String>,
        /// `forebay` there: `forebay` unless set.
        program: Option<String>,
        /// Where what must be known of appliances is kept there: `forebay-appliances`, in the folder in which logins begin, unless set.
        folder: Option<String>,
    },
    /// As virtual machines of this machine, by QEMU.
    Qemu {
        /// The folder of the image, as `make appliance-image` makes it.
        image: PathBuf,
        /// QEMU: `qemu-system-x86_64` unless set.
        program: Option<PathBuf>,
        /// What runs the machine's instructions, as QEMU calls it: `kvm:tcg` unless set.
        accelerator: Option<String>,
    },
    /// As virtual machines of this machine, by libvirt.
    Libvirt {
        /// The folder of the image.
        image: PathBuf,
        /// Which libvirt, as in `qemu:///session`.
        connection: String,
        /// The type of domain: `kvm` unless set, or `qemu` for software.
        kind: Option<String>,
    },
}

impl ProviderTable {
    /// Whether its appliances are on a machine of their own.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, ProviderTable::Ssh { address, .. } if !address.is_loopback())
    }

    /// By what its appliances are found again, in words: what else may change while there are any.
    pub(super) fn shown(&self) -> String {
        match self {
            ProviderTable::Process { .. } => "process".to_owned(),
            ProviderTable::Namespace { namespace, .. } => format!("namespace {namespace}"),
            ProviderTable::Ssh { destination, folder: Some(folder), .. } => {
                format!("ssh {destination}, folder {folder}")
            }
            ProviderTable::Ssh { destination, folder: None, .. } => format!("ssh {destination}"),
            ProviderTable::Qemu { .. } => "qemu".to_owned(),
            ProviderTable::Libvirt { connection, .. } => format!("libvirt {connection}"),
        }
    }

    /// What an appliance takes there beside its cache.
    pub(super) fn overhead(&self) -> Bytes {
        match self {
            ProviderTable::Process { .. } | ProviderTable::Namespace { .. } | ProviderTable::Ssh { .. } => {
                PROCESS_OVERHEAD
            }
            ProviderTable::Qemu { .. } | ProviderTable::Libvirt { .. } => MACHINE_OVERHEAD,
        }
    }
}

impl Default for ProviderTable {
    fn default() -> ProviderTable {
        ProviderTable::Process { program: None }
    }
}

/// A volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeTable {
    /// Its name, here and in appliances.
    pub name: String,
    /// The application's host.
    pub home: String,
    /// Its export on the storage side, without an epoch and without a secret.
    #[serde(deserialize_with = "parsed")]
    pub origin: Uri,
    /// What its export asks for.
    #[serde(default, with = "secrets::optional")]
    pub secret: Option<Secret>,
    /// Volumes with the same word here compete for the same disks; the address of `watch` unless set.
    #[serde(default)]
    pub array: Option<String>,
    /// Where `forebay watch` on the storage side answers: it tells of the volume while no appliance serves it, and has its lease.
    #[serde(default)]
    pub watch: Option<ApiAddress>,
    /// What is to be shown there; nothing on a unix socket.
    #[serde(default, with = "secrets::optional")]
    pub watch_token: Option<Secret>,
    /// Whether it has leases there.
    #[serde(default = "yes")]
    pub leased: bool,
    /// How its clients are moved; `None`: it is only watched.
    #[serde(default)]
    pub route: Option<RouteTable>,
    /// The unit of caching.
    #[serde(default = "block_size", deserialize_with = "parsed")]
    pub block_size: Bytes,
    /// Counters of a Prometheus server that tell of it, where no `watch` does.
    #[serde(default)]
    pub prometheus: Option<PrometheusTable>,
    /// Whether it is to have no cache: the one that it has is taken back, and none is put in front of it.
    #[serde(default)]
    pub drain: bool,
}

/// How the clients of a volume are moved.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RouteTable {
    /// By a daemon that they are always connected to.
    Proxy {
        /// Where it answers.
        server: ApiAddress,
        /// What is to be shown there; nothing on a unix socket.
        #[serde(default, with = "secrets::optional")]
        token: Option<Secret>,
    },
    /// By the block graph of a QEMU.
    Qmp {
        /// The socket of its monitor.
        socket: PathBuf,
        /// The permanent node, of the driver `raw`.
        node: String,
        /// The NBD client below it that QEMU was started with.
        first: String,
        /// For how long an NBD client waits for a server that is gone, in seconds.
        #[serde(default)]
        reconnect_delay_s: u32,
        /// The guest's device on that node, by its `id`: needed to leave a path whose server is dead.
        #[serde(default)]
        device: Option<String>,
    },
    /// By an address that moves between hosts.
    Address {
        /// The address that is the volume's alone, and the length of its network's prefix.
        #[serde(deserialize_with = "parsed")]
        address: Ipv4Prefix,
        /// The interface on the storage side's host that has it while no appliance serves.
        interface: String,
        /// The storage side's host, as a network namespace; this one unless set.
        namespace: Option<String>,
    },
}

impl VolumeTable {
    /// The control API of the storage side.
    pub(super) fn watch(&self) -> Option<Control> {
        let (address, token) = (self.watch.clone()?, self.watch_token.clone());
        Some(Control { address, token })
    }

    /// Its lease, where it has one.
    pub(super) fn lease(&self) -> Option<StorageLease> {
        let control = self.watch().filter(|_| self.leased)?;
        Some(StorageLease { control, volume: self.origin.export.clone() })
    }

    /// Why no cache can be put in front of it, whatever it asks for, and what to add; `None` where one can.
    pub(super) fn uncacheable(&self) -> Option<&'static str> {
        match (&self.watch, &self.route) {
            (Some(_), Some(_)) => None,
            (None, Some(_)) => {
                Some("nobody knows its locality, which Prometheus does not tell: it has no `watch`")
            }
            (Some(_), None) => Some("its clients cannot be moved to one: it has no `route`"),
            (None, None) => Some(
                "nobody knows its locality, which Prometheus does not tell, and its clients cannot be moved to one: it has no `watch` and no `route`",
            ),
        }
    }

    /// Why no cache is put in front of it, also where that is for now alone; `None` where one may be.
    pub(super) fn why_forbidden(&self) -> Option<&'static str> {
        self.uncacheable().or(self.drain.then_some("it is drained (`drain = true`)"))
    }

    /// The export on the storage side, as who names this epoch calls it.
    pub(super) fn export(&self, epoch: Option<u64>) -> Uri {
        let mut export = self.origin.export.clone();
        if let Some(secret) = &self.secret {
            export = format!("{export}.{}", secret.reveal());
        }
        if let Some(epoch) = epoch {
            export = format!("{export}@{epoch}");
        }
        Uri { export, ..self.origin.clone() }
    }
}

/// Counters of a volume on a Prometheus server, each a query with one series as its result, but for buckets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrometheusTable {
    /// The server, as in `http://127.0.0.1:9090`.
    pub url: String,
    /// Reads completed.
    pub reads: String,
    /// The sum of their latencies, in seconds.
    pub read_seconds: String,
    /// Writes completed.
    #[serde(default)]
    pub writes: Option<String>,
    /// The sum of their latencies, in seconds.
    #[serde(default)]
    pub write_seconds: Option<String>,
    /// Bytes of reads.
    #[serde(default)]
    pub read_bytes: Option<String>,
    /// Bytes of writes.
    #[serde(default)]
    pub write_bytes: Option<String>,
    /// The buckets of a histogram of the latencies of reads in seconds: one series for each `le`.
    #[serde(default)]
    pub read_buckets: Option<String>,
    /// The buckets of a histogram of the latencies of writes, likewise.
    #[serde(default)]
    pub write_buckets: Option<String>,
    /// Whether whoever uses the volume asks for the next request when the last is answered, all along: counters do not tell who is held back from who asks for no
    /// more, so that floors need somebody to vouch for it.
    #[serde(default)]
    pub waits: bool,
}

impl PrometheusTable {
    /// The key that is wrong, what it is, and what it may be. The address itself is not shown: it may hold a password.
    pub(super) fn wrong(&self) -> Option<(&'static str, &'static str, &'static str)> {
        if let Err(found) = Server::of(&self.url) {
            let expected = "an address as in `http://127.0.0.1:9090`, without a user";
            return Some(("url", found, expected));
        }
        let empty = [("reads", &self.reads), ("read_seconds", &self.read_seconds)];
        if let Some((key, _)) = empty.into_iter().find(|(_, query)| query.trim().is_empty()) {
            return Some((key, "empty", "a query with one series as its result"));
        }
        let of_writes = [
            ("write_seconds", &self.write_seconds),
            ("write_bytes", &self.write_bytes),
            ("write_buckets", &self.write_buckets),
        ];
        let (key, _) = of_writes.into_iter().find(|(_, query)| self.writes.is_none() && query.is_some())?;
        Some((key, "there without `writes`", "both or none: nobody knows of how many writes it is"))
    }
}

pub(super) fn ten_seconds() -> Nanos {
    Nanos::secs(10)
}

fn yes() -> bool {
    true
}

fn block_size() -> Bytes {
    Bytes(BlockSize::DEFAULT.bytes())
}

pub(super) fn parsed<'de, T: FromStr<Err: std::fmt::Display>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

pub(super) fn parsed_option<'de, T: FromStr<Err: std::fmt::Display>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from).map(Some)
}
