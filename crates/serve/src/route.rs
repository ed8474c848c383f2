//! Routes: where a volume's requests go, changed over the control socket while the volume serves.
//!
//! A volume of a permanent proxy goes to the origin of the configuration until it is sent elsewhere, as to an appliance in front of that same
//! origin, and back. Each change names an epoch; one with a lower epoch than the last has no effect, so that an order that comes late harms nobody.
//! That both ways lead to the same data is for who asks to know. How it is done without an error for clients is
//! `forebay_appliance`'s ([`forebay_appliance::Retargeted`]).

use crate::config::{Config, OriginConfig, OriginTls, VolumeConfig, is_readable_by_others, is_same_file};
use crate::daemon::{Shared, begin};
use crate::kept;
use crate::origins::OriginFailure;
use forebay_appliance::{BoundAddress, CommandError, Entrance, RetargetFailure, RetargetOptions};
use forebay_nbd::{Transport, Uri};
use forebay_origin::{NbdOriginOptions, Origin, OriginState};
use forebay_units::{EPOCH_MAX, Secret, with_causes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

const SCHEMA: &str = "forebay.routes/1";

/// How long a change may take, unless it is told otherwise; and at most.
const WITHIN_S: f64 = 5.0;
const WITHIN_S_MAX: f64 = 30.0;

/// Where a volume is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRequest {
    /// The NBD URI of an export that leads to the same data.
    pub to: String,
    /// The number of the change; one with a lower number than the last is refused. The last one's unless set.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// The old way was fenced: it is left at once, also if it does not answer.
    #[serde(default)]
    pub settled: bool,
    /// For how long the old way may refuse connections, in seconds, until it is given up as one on which nobody is any more; for as long as the change may take unless set.
    #[serde(default)]
    pub refused_s: Option<f64>,
    /// Forget what is cached.
    #[serde(default)]
    pub drop_cache: bool,
    /// How long it may take, in seconds; 5 unless set, at most 30.
    #[serde(default)]
    pub within_s: Option<f64>,
}

/// Where a volume goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The NBD URI, as it is shown ([`Uri::shown`]) where others than the daemon itself are told; absent: to the origin of the configuration, which
    /// is not an export.
    pub to: Option<String>,
    /// The number of the last change; 0 before the first.
    pub epoch: u64,
}

impl Route {
    /// The same without what lets in whoever knows it: for answers, which more may read than may use the export.
    fn shown(mut self) -> Route {
        // What does not parse cannot be told in parts. It is never sent to either.
        self.to = self.to.and_then(|to| Some(to.parse::<Uri>().ok()?.shown().to_string()));
        self
    }
}

/// A volume goes where it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    /// Where it goes.
    #[serde(flatten)]
    pub route: Route,
    /// How long requests that needed the origin waited at most, in seconds; 0 if it went there already and was not opened anew.
    pub pause_s: f64,
    /// How much of it the old way took to complete what was on it, in seconds.
    pub drain_s: f64,
}

/// Why a volume goes where it went before, but for [`RouteError::NotKept`] and [`RouteError::AskedAgain`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A field cannot be what it is.
    #[error("`{field}` is {found}, expected {expected}")]
    Refused {
        /// Which.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// There is no such volume.
    #[error("there is no volume `{volume}`")]
    Unknown {
        /// Which.
        volume: String,
    },
    /// The new way cannot be opened.
    #[error("`{to}` cannot be reached: {reason}")]
    Unreachable {
        /// Where to.
        to: String,
        /// Why.
        reason: String,
    },
    /// The volume cannot leave the old way, or the new one does not fit.
    #[error(transparent)]
    Kept(#[from] RetargetFailure),
    /// It is not served where it goes, and what an earlier run of the daemon sent there may not be over.
    #[error(
        "nothing answers where `{volume}` goes, and what was sent there before this daemon was started may still be carried out: once that way is fenced, \
         or what was sent there is over, say so (`settled`)"
    )]
    Unsettled {
        /// Which.
        volume: String,
    },
    /// It goes the new way, which has not answered what is asked of it again.
    #[error(
        "the volume goes there, and {parts} requests for changes are still out there that the way before it may have made already: whoever writes the same blocks by another way may \
         be overwritten by them; ask for the same again to hear when they are answered"
    )]
    AskedAgain {
        /// How many requests.
        parts: usize,
    },
    /// It goes the new way, and a restart would not.
    #[error("the volume goes there, but the file of routes `{path}` cannot be written: {reason}")]
    NotKept {
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
}

/// Why the daemon does not start.
#[derive(Debug, Error)]
#[error("where volumes go, in `{path}`, is not known: {reason}")]
pub struct RoutesUnreadable {
    path: String,
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: String,
    routes: BTreeMap<String, Sent>,
}

/// Where a volume was sent last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    /// The NBD URI; absent: to the origin of the configuration, which is not an export.
    to: Option<String>,
    /// The number of the change.
    epoch: u64,
    /// That was its origin of then, perhaps under an epoch: after a restart it goes to its origin of now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    original: bool,
}

/// Why it could not be told from the file at `path` where volumes go.
pub(crate) fn trouble(path: &Path) -> Option<RoutesUnreadable> {
    kept(path).err()
}

/// What the file keeps; `None` where there is none.
fn kept(path: &Path) -> Result<Option<Kept>, RoutesUnreadable> {
    let unreadable = |reason: String| RoutesUnreadable { path: path.display().to_string(), reason };
    let Some(kept) = kept::read::<Kept>(path).map_err(unreadable)? else { return Ok(None) };
    if kept.schema != SCHEMA {
        return Err(unreadable(format!("found layout `{}`, expected `{SCHEMA}`", kept.schema)));
    }
    Ok(Some(kept))
}

/// Where volumes were sent, and the file that keeps it.
pub(crate) struct RouteBook {
    path: Option<PathBuf>,
    routes: BTreeMap<String, Sent>,
    /// What the configuration says of those that this sent elsewhere at the start.
    configured: BTreeMap<String, OriginConfig>,
}

impl RouteBook {
    /// What the file keeps; `config` sends its volumes there.
    pub(crate) fn open(config: &mut Config) -> Result<RouteBook, RoutesUnreadable> {
        let mut book =
            RouteBook { path: config.routes.clone(), routes: BTreeMap::new(), configured: BTreeMap::new() };
        let Some(path) = &book.path else { return Ok(book) };
        let unreadable = |reason: String| RoutesUnreadable { path: path.display().to_string(), reason };
        let Some(kept) = kept(path)? else { return Ok(book) };
        if is_readable_by_others(path) {
            tracing::warn!(path = %path.display(), "others could read where volumes were sent, and with which secrets; from now on its owner alone can");
            kept::replace(path, &kept).map_err(|error| unreadable(error.to_string()))?;
        }
        book.routes = kept.routes;
        for volume in &mut config.volumes {
            let Some(sent) = book.routes.get_mut(&volume.name) else { continue };
            let Some(to) = &sent.to else { continue };
            let mut uri: Uri = to.parse().map_err(|error| unreadable(format!("`{to}`: {error}")))?;
            if sent.original {
                let Some(now) = under_epoch_of(&uri, &volume.origin) else {
                    sent.to = None;
                    continue;
                };
                sent.to = Some(now.to_string());
                uri = now;
            }
            tracing::info!(volume = volume.name, to = %uri.shown(), "the volume goes where it was sent before the restart");
            let origin = sent_to(&volume.origin, uri);
            book.configured.insert(volume.name.clone(), std::mem::replace(&mut volume.origin, origin));
        }
        Ok(book)
    }

    /// The origin of the configuration.
    fn configured<'a>(&'a self, volume: &'a VolumeConfig) -> &'a OriginConfig {
        self.configured.get(&volume.name).unwrap_or(&volume.origin)
    }

    /// Whether it sends a volume anywhere.
    pub(crate) fn sends(&self, volume: &str) -> bool {
        self.routes.contains_key(volume)
    }

    /// Notes where a volume goes; what is to be written, and where.
    fn note(&mut self, volume: &str, sent: Sent) -> Option<(PathBuf, Kept)> {
        self.routes.insert(volume.to_owned(), sent);
        let path = self.path.clone()?;
        Some((path, Kept { schema: SCHEMA.to_owned(), routes: self.routes.clone() }))
    }
}

/// The origin of a volume that is sent to `uri`; how it is reached is as the configuration says, if it is an export there, too. But what becomes of the
/// requests of a lost connection is said of the configured server alone: an appliance on the way to it serves its next connection while it still carries them out.
fn sent_to(configured: &OriginConfig, uri: Uri) -> OriginConfig {
    match configured {
        OriginConfig::Nbd { uri: own, options, tls } => {
            let is_own = uri.transport == own.transport;
            let fences_on_disconnect = options.fences_on_disconnect && is_own;
            let options = NbdOriginOptions { fences_on_disconnect, ..*options };
            OriginConfig::Nbd { uri, options, tls: tls.clone() }
        }
        _ => OriginConfig::Nbd { uri, options: NbdOriginOptions::default(), tls: OriginTls::default() },
    }
}

/// The export's name without an epoch, and that.
fn without_epoch(export: &str) -> (&str, Option<&str>) {
    match export.rsplit_once('@') {
        Some((name, epoch)) if !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, Some(epoch))
        }
        _ => (export, None),
    }
}

/// Whether `uri` is `volume` itself, as a daemon that listens at `listeners` serves it: its requests would come back to it for ever.
pub(crate) fn leads_back(uri: &Uri, volume: &VolumeConfig, listeners: &[BoundAddress]) -> bool {
    let name = without_epoch(&uri.export).0;
    let with_secret = |secret: &Secret| name == format!("{}.{}", volume.name, secret.reveal());
    let is_own = name == volume.name || volume.secret.as_ref().is_some_and(with_secret);
    is_own && listeners.iter().any(|listener| is_at(&uri.transport, listener))
}

/// Whether who connects by `transport` comes to `listener`, which is one of this machine.
fn is_at(transport: &Transport, listener: &BoundAddress) -> bool {
    match (transport, listener) {
        (Transport::Unix { path }, BoundAddress::Unix(own)) => is_same_file(path, own),
        // Names are asked for only where the rest fits.
        (Transport::Tcp { host, port }, BoundAddress::Tcp(own)) if *port == own.port() => {
            let is_of_this_machine = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
            let leads = |address: SocketAddr| {
                address.ip() == own.ip() || own.ip().is_unspecified() && is_of_this_machine(address.ip())
            };
            (host.as_str(), *port).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(leads))
        }
        _ => false,
    }
}

/// Whether that is where the configuration leads; an epoch is somebody's who sends volumes back.
fn is_original(uri: &Uri, configured: &OriginConfig) -> bool {
    under_epoch_of(uri, configured).is_some_and(|original| original == *uri)
}

/// Where the configuration leads, under the epoch that `uri` names; `None` where that is no export. A configuration that names an epoch itself means that.
fn under_epoch_of(uri: &Uri, configured: &OriginConfig) -> Option<Uri> {
    let OriginConfig::Nbd { uri: own, .. } = configured else { return None };
    let (_, epoch) = without_epoch(&uri.export);
    let export = match (without_epoch(&own.export), epoch) {
        ((name, None), Some(epoch)) => format!("{name}@{epoch}"),
        _ => own.export.clone(),
    };
    Some(Uri { export, ..own.clone() })
}

/// Opens the origin that a volume goes to now.
pub(crate) fn open(shared: &Shared, index: usize) -> Result<Arc<dyn Origin>, OriginFailure> {
    let config = &shared.config.volumes[index];
    let origin = {
        let book = shared.books.routes();
        let to = book.routes.get(&config.name).and_then(|sent| sent.to.as_ref()?.parse().ok());
        to.map(|uri| sent_to(book.configured(config), uri))
    };
    match origin {
        Some(origin) => shared.shop.open_as(&shared.config, index, &origin),
        None => shared.shop.open(&shared.config, index),
    }
}

/// Where the volume goes, as it is shown; `None` for an unknown one.
pub(crate) fn told(shared: &Shared, volume: &str) -> Option<Route> {
    of(shared, volume).map(Route::shown)
}

/// Where the volume goes, with what its export keeps secret; `None` for an unknown one.
fn of(shared: &Shared, volume: &str) -> Option<Route> {
    let config = shared.config.volumes.iter().find(|config| config.name == volume)?;
    let sent = shared.books.routes().routes.get(volume).cloned();
    Some(sent.map(|Sent { to, epoch, .. }| Route { to, epoch }).unwrap_or_else(|| {
        let to = match &config.origin {
            OriginConfig::Nbd { uri, .. } => Some(uri.to_string()),
            _ => None,
        };
        Route { to, epoch: 0 }
    }))
}

/// Whether the one to whom the change with this number sends the volume comes back to it by one hop: who is made for a change names its number at the origin, and numbers are used once.
fn has_client_of(shared: &Shared, volume: &str, epoch: u64) -> bool {
    shared.appliance.is_entered_by(volume, Entrance::Epoch(epoch)).unwrap_or(false)
}

/// Whether the origin that the volume goes to is not used any more, whatever answers there.
fn has_failed(shared: &Shared, volume: &str) -> bool {
    let seen = shared.appliance.observe(volume, false);
    seen.is_ok_and(|seen| matches!(seen.origin_statistics.state, OriginState::Failed { .. }))
}

/// Sends a volume elsewhere, and waits until it goes there. Where it goes there already nothing is done, unless somebody says without an epoch that
/// nothing more comes of what is in doubt there, that the cache is to be forgotten, or of an origin that has failed that it is good again.
pub(crate) fn change(shared: &Shared, volume: &str, request: &RouteRequest) -> Result<Routed, RouteError> {
    let began = Instant::now();
    let refused = |field, found: String, expected: String| RouteError::Refused { field, found, expected };
    let within = request.within_s.unwrap_or(WITHIN_S);
    if !(0.0..=WITHIN_S_MAX).contains(&within) {
        return Err(refused("within_s", within.to_string(), "0 to 30".to_owned()));
    }
    let within = Duration::from_secs_f64(within);
    let waits_refused = request.refused_s.unwrap_or(WITHIN_S_MAX);
    if !(0.0..=WITHIN_S_MAX).contains(&waits_refused) {
        return Err(refused("refused_s", waits_refused.to_string(), "0 to 30".to_owned()));
    }
    let uri: Uri = request
        .to
        .parse()
        .map_err(|error| refused("to", format!("`{}`", request.to), format!("an NBD URI: {error}")))?;
    // One change at a time, so that what is kept is what was done last. Requests and other questions wait for none of this.
    let _one = shared.books.changes_of_routes();
    let unknown = || RouteError::Unknown { volume: volume.to_owned() };
    let now = of(shared, volume).ok_or_else(unknown)?;
    let epoch = request.epoch.unwrap_or(now.epoch);
    if epoch < now.epoch {
        return Err(refused("epoch", epoch.to_string(), format!("at least {}, the last one's", now.epoch)));
    }
    // What goes there already may be asked for again.
    if epoch > EPOCH_MAX && epoch != now.epoch {
        let expected =
            format!("at most {EPOCH_MAX} (2^62), since epochs only rise, and others are to follow");
        return Err(refused("epoch", epoch.to_string(), expected));
    }
    let route = Route { to: Some(uri.to_string()), epoch };
    let mut routed = Routed { route: route.clone().shown(), pause_s: 0.0, drain_s: 0.0 };
    let index = shared.config.volumes.iter().position(|config| config.name == volume).ok_or_else(unknown)?;
    let itself = &shared.config.volumes[index];
    if leads_back(&uri, itself, shared.appliance.listeners()) {
        let expected = "an export that leads to its data elsewhere: that one is the volume itself";
        return Err(refused("to", format!("`{}`", uri.shown()), expected.to_owned()));
    }
    if epoch > now.epoch && has_client_of(shared, volume, epoch) {
        let expected = format!(
            "an export that leads to its data elsewhere: a client is connected to the volume here that names epoch {epoch}, as who is to be sent there does, so that requests would come back for ever; the \
             route is to be that of the volume's proxy, not of the storage side"
        );
        return Err(refused("to", format!("`{}`", uri.shown()), expected));
    }
    let configured = shared.books.routes().configured(itself).clone();
    let is_absent = shared.state().absent.contains_key(volume);
    if is_absent && now.to != route.to && !request.settled {
        // An earlier run may have sent changes that way, to a machine that stands still, say, which carries them out when others were written by the new one. Whoever is there would see to that.
        return Err(RouteError::Unsettled { volume: volume.to_owned() });
    }
    // Who names an epoch repeats what was ordered, and means the way before this one. Who names none is at this one, and knows what became of it.
    let is_told_of_it = !is_absent && now.to == route.to && request.epoch.is_none();
    let is_opened_anew = is_told_of_it && (request.drop_cache || has_failed(shared, volume));
    if is_told_of_it && request.settled && !is_opened_anew {
        // What is under way there goes on, but for what is in doubt.
        shared.appliance.settle(volume).map_err(RetargetFailure::from)?;
        tracing::info!(volume, "writes of unknown outcome are settled");
    }
    if is_absent || now.to != route.to || is_opened_anew {
        let unreachable = |error: OriginFailure| RouteError::Unreachable {
            to: uri.shown().to_string(),
            reason: with_causes(&error),
        };
        let mut origin = sent_to(&configured, uri.clone());
        if let OriginConfig::Nbd { options, .. } = &mut origin {
            options.connect_timeout = options.connect_timeout.min(within.into());
        }
        let origin = shared.shop.open_as(&shared.config, index, &origin).map_err(unreachable)?;
        if is_absent {
            // Nobody is served where it went before, and what was sent there is over: it begins where it is to go.
            begin(shared, index, origin)
                .map_err(|reason| RouteError::Unreachable { to: uri.shown().to_string(), reason })?;
        } else {
            let timeout = within.saturating_sub(began.elapsed());
            let options = RetargetOptions {
                timeout,
                refused: Duration::from_secs_f64(waits_refused),
                settled: request.settled,
                drops_cache: request.drop_cache,
            };
            let done = match shared.appliance.retarget(volume, origin, options) {
                Err(RetargetFailure::Command(CommandError::Unknown { .. })) => return Err(unknown()),
                done => done?,
            };
            (routed.pause_s, routed.drain_s) = (done.pause.as_secs_f64(), done.drain.as_secs_f64());
            tracing::info!(volume, to = %uri.shown(), epoch, pause = ?done.pause, "the volume goes elsewhere");
            // Its connections end behind the answer: nothing is on them. Where there is no thread left they end here.
            let _ = std::thread::Builder::new().spawn(move || drop(done.old));
        }
    }
    // Written beyond the lock of the book, for which others wait.
    let sent = Sent { to: route.to, epoch, original: is_original(&uri, &configured) };
    if let Some((path, kept)) = { shared.books.routes().note(volume, sent) } {
        kept::replace(&path, &kept).map_err(|error| RouteError::NotKept {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
    }
    // Whoever ordered this may let others write behind the answer, and they see what the way before has made.
    match shared.appliance.await_asked_again(volume, within.saturating_sub(began.elapsed())) {
        Ok(0) => Ok(routed),
        Ok(parts) => Err(RouteError::AskedAgain { parts }),
        Err(CommandError::Unknown { .. }) => Err(unknown()),
        Err(error) => Err(RetargetFailure::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Bytes;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn where_volumes_were_sent_stays_the_same_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.json");
        let mut config =
            Config::new(vec![VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) })]);
        config.routes = Some(path.clone());
        let to = Some("nbd://appliance/db.0123456789abcdef@7".to_owned());
        let route = Sent { to, epoch: 7, original: false };
        let (_, kept) = RouteBook::open(&mut config).unwrap().note("db", route.clone()).unwrap();
        // As earlier versions left it.
        std::fs::write(&path, serde_json::to_string(&kept).unwrap()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            assert_eq!(RouteBook::open(&mut config).unwrap().routes["db"], route);
            assert!(!is_readable_by_others(&path));
        }
    }

    #[test]
    fn who_was_sent_back_follows_the_configuration_and_who_was_sent_elsewhere_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.json");
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let at = |text: &str| OriginConfig::Nbd {
            uri: uri(text),
            options: NbdOriginOptions { fences_on_disconnect: true, ..NbdOriginOptions::default() },
            tls: OriginTls::default(),
        };
        // What was kept, and what the configuration says: where the volume goes, and what is known of that server.
        let file = OriginConfig::Memory { size: forebay_units::Bytes::mib(1) };
        for (to, original, configured, goes) in [
            ("nbd://storage/db@4", true, at("nbd://elsewhere/db"), Some(("nbd://elsewhere/db@4", true))),
            ("nbd://storage/db", true, at("nbd://elsewhere/other"), Some(("nbd://elsewhere/other", true))),
            ("nbd://storage/db@4", true, at("nbd://storage/db@9"), Some(("nbd://storage/db@9", true))),
            ("nbd://appliance/db", false, at("nbd://elsewhere/db"), Some(("nbd://appliance/db", false))),
            ("nbd://storage/db@4", true, file, None),
        ] {
            let sent = Sent { to: Some(to.to_owned()), epoch: 4, original };
            let routes = BTreeMap::from([("db".to_owned(), sent)]);
            kept::replace(&path, &Kept { schema: SCHEMA.to_owned(), routes }).unwrap();
            let mut config = Config::new(vec![VolumeConfig::new("db", configured.clone())]);
            config.routes = Some(path.clone());
            let book = RouteBook::open(&mut config).unwrap();
            let told = book.routes["db"].to.clone();
            assert_eq!((told, book.routes["db"].epoch), (goes.map(|(uri, _)| uri.to_owned()), 4));
            let found = match &config.volumes[0].origin {
                OriginConfig::Nbd { uri, options, .. } => {
                    Some((uri.to_string(), options.fences_on_disconnect))
                }
                _ => None,
            };
            assert_eq!(found, goes.map(|(uri, fences)| (uri.to_owned(), fences)));
            if let OriginConfig::Nbd { uri: own, .. } = book.configured(&config.volumes[0]) {
                let OriginConfig::Nbd { uri: wanted, .. } = configured else { panic!() };
                assert_eq!(*own, wanted, "what the configuration says is forgotten");
            }
        }
        let configured = at("nbd://storage/db");
        for (to, original) in [
            ("nbd://storage/db", true),
            ("nbd://storage/db@12", true),
            ("nbd://storage/db@", false),
            ("nbd://storage/web@12", false),
            ("nbd://appliance/db@12", false),
        ] {
            assert_eq!(is_original(&uri(to), &configured), original, "{to}");
        }
    }

    #[test]
    fn who_is_sent_to_itself_is_told_by_its_name_and_by_where_the_daemon_listens() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("nbd.sock"), folder.path().join("link.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        volume.secret = Secret::new("0123456789abcdef");
        let tcp = |address: &str| BoundAddress::Tcp(address.parse().unwrap());
        let listeners = [BoundAddress::Unix(socket), tcp("127.0.0.1:10809"), tcp("0.0.0.0:10810")];
        let unix = |export: &str| format!("nbd+unix:///{export}?socket={}", link.display());
        for (uri, back) in [
            (unix("db"), true),
            (unix("db@7"), true),
            (unix("db.0123456789abcdef@7"), true),
            (unix("web"), false),
            ("nbd+unix:///db?socket=/run/another.sock".to_owned(), false),
            ("nbd://127.0.0.1/db".to_owned(), true),
            ("nbd://127.0.0.2/db".to_owned(), false),
            ("nbd://127.0.0.1:10811/db".to_owned(), false),
            ("nbd://127.0.0.2:10810/db".to_owned(), true),
            ("nbd://192.0.2.1:10810/db".to_owned(), false),
        ] {
            assert_eq!(leads_back(&uri.parse().unwrap(), &volume, &listeners), back, "{uri}");
        }
    }

    #[test]
    fn what_is_said_of_the_configured_server_is_not_believed_of_another() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let options = NbdOriginOptions {
            fences_on_disconnect: true,
            keeps_acknowledged_writes: true,
            connections: 2,
            ..NbdOriginOptions::default()
        };
        let configured =
            OriginConfig::Nbd { uri: uri("nbd://storage/db"), options, tls: OriginTls::default() };
        let options_at = |to: &str| match sent_to(&configured, uri(to)) {
            OriginConfig::Nbd { options, .. } => options,
            other => panic!("{other:?}"),
        };
        let appliance = NbdOriginOptions { fences_on_disconnect: false, ..options };
        assert_eq!(options_at("nbd://appliance/db@7"), appliance);
        assert_eq!(options_at("nbd+unix:///db?socket=/run/appliance"), appliance);
        assert_eq!((options_at("nbd://storage/db"), options_at("nbd://storage/db@8")), (options, options));
    }
}
