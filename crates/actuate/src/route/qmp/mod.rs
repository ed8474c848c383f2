//! QEMU's block graph: below the node that a disk is attached to, one NBD client takes the place of another.
//!
//! Each disk needs a permanent node that passes everything through (`raw`), with the NBD client as its `file`; filters belong above it:
//!
//! ```text
//! -blockdev nbd,node-name=db-first,server.type=unix,server.path=/run/watch.sock,export=db
//! -blockdev raw,node-name=db,file=db-first -device virtio-blk,drive=db
//! ```
//!
//! A switch adds the new NBD client under a name of its own (`blockdev-add`, which connects it), has the old path flushed by a client of ours, has the
//! permanent node reopen with the new one as its `file` (`blockdev-reopen`), and deletes the old one (`blockdev-del`). QEMU drains the node
//! in the reopening and flushes it, so no request is out on the old connection when the new one gets its first; guests and exports on top
//! notice a pause. The options of a reopening must repeat those of the opening, so they are told to [`QmpRoute`].
//!
//! The pause is how long the reopening takes: until QEMU's monitor takes the command, until what is out has come back, until what was
//! written since the flush ahead is flushed, and the change of the graph. It is held in QEMU's main loop, so a guest's other disks
//! wait as well, and an old path that hangs would have QEMU hang with it: one that does not answer the flush ahead is not left this way.
//!
//! A path whose server is dead cannot be flushed: see `dead`.
//!
//! Names are `fb<epoch>-<count>-<node>`: the epoch in force, and what an earlier try left over, are read from the graph.

mod dead;

use super::{Passage, Pause, Route, RouteError};
use crate::export::{Errand, VisitError, visit};
use crate::qmp::{Qmp, QmpError};
use crate::{Deadline, Endpoint};
use forebay_nbd::{Transport, Uri};
use serde_json::{Map, Value, json};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Instant;

/// QEMU's names of nodes have at most so many bytes.
const NODE_NAME_BYTES_MAX: usize = 31;

/// The route of one disk of a QEMU, or of one node of a `qemu-storage-daemon`.
#[derive(Clone, Debug)]
pub struct QmpRoute {
    /// The monitor's socket; nobody else may hold it for long, since it takes one client at a time.
    pub socket: PathBuf,
    /// The permanent node, at most 20 bytes.
    pub node: String,
    /// All options that it was opened with, but for `node-name` and `file`; the `driver` is among them.
    pub options: Map<String, Value>,
    /// The NBD client that it was opened with, which is deleted when it was left.
    pub first: String,
    /// Seconds for which an NBD client waits for a server that is gone before it fails requests, as `first` may; 0: not at all. Where the guest's device is known, that is for the storage side alone, once
    /// clients are back there: an appliance that is gone is left.
    pub reconnect_delay_s: u32,
    /// The guest's device on the permanent node, by its `id`: with it a path that is dead can be left.
    pub device: Option<String>,
    /// Where `first` must lead to: another disk's data must not be taken for this one's. Not looked at unless set.
    pub original: Option<Uri>,
}

/// What is known of a node.
struct Node {
    name: String,
    file: String,
    size: u64,
    read_only: bool,
}

impl QmpRoute {
    /// A `raw` node without further options, whose first NBD client is `first`.
    pub fn raw(socket: impl Into<PathBuf>, node: impl Into<String>, first: impl Into<String>) -> QmpRoute {
        let options = Map::from_iter([("driver".to_owned(), json!("raw"))]);
        let (socket, node, first) = (socket.into(), node.into(), first.into());
        QmpRoute { socket, node, options, first, reconnect_delay_s: 0, device: None, original: None }
    }

    fn unheard(&self, reason: impl ToString) -> RouteError {
        RouteError::Unheard { who: format!("QEMU at {}", self.socket.display()), reason: reason.to_string() }
    }

    /// QEMU's monitor. It ends with the process, which removes its socket if it can: with nobody behind it there are no clients.
    fn monitor(&self, deadline: Deadline) -> Result<Qmp, RouteError> {
        Qmp::connect(&self.socket, deadline).map_err(|error| match error {
            QmpError::Silent { source, .. }
                if matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
            {
                RouteError::NoClient {
                    who: format!("QEMU's monitor {}", self.socket.display()),
                    reason: source.to_string(),
                }
            }
            error => self.unheard(error),
        })
    }

    fn name(&self, epoch: u64, count: u32) -> String {
        format!("fb{epoch}-{count}-{}", self.node)
    }

    /// The epoch and the count of a node that a switch of ours added.
    fn parse(&self, name: &str) -> Option<(u64, u32)> {
        let numbers = name.strip_prefix("fb")?.strip_suffix(&self.node)?.strip_suffix('-')?;
        let (epoch, count) = numbers.split_once('-')?;
        Some((epoch.parse().ok()?, count.parse().ok()?))
    }

    fn nodes(&self, qmp: &mut Qmp, deadline: Deadline) -> Result<Vec<Node>, RouteError> {
        let found = qmp
            .run("query-named-block-nodes", json!({ "flat": true }), deadline)
            .map_err(|error| self.unheard(error))?;
        let node = |node: &Value| {
            Some(Node {
                name: node["node-name"].as_str()?.to_owned(),
                file: node["file"].as_str()?.to_owned(),
                size: node["image"]["virtual-size"].as_u64()?,
                read_only: node["ro"].as_bool()?,
            })
        };
        Ok(found.as_array().into_iter().flatten().filter_map(node).collect())
    }

    /// The node that requests enter, and the epoch of the NBD client that they leave by: 0 for the first.
    fn in_force<'a>(&self, nodes: &'a [Node], entry: &str) -> Result<(&'a Node, u64), RouteError> {
        let top = nodes.iter().find(|node| node.name == entry);
        let top = top.ok_or_else(|| self.unheard(format!("it has no node `{entry}`")))?;
        let below: Vec<&Node> =
            nodes.iter().filter(|node| node.file == top.file && self.is_client(&node.name)).collect();
        self.check_graph(top, &below).map_err(|reason| self.unheard(reason))?;
        let epoch = below.iter().filter_map(|node| self.parse(&node.name)).map(|(epoch, _)| epoch).max();
        Ok((top, epoch.unwrap_or(0)))
    }

    /// Whether a node is the first NBD client, or one of ours.
    fn is_client(&self, name: &str) -> bool {
        name == self.first || self.parse(name).is_some()
    }

    /// What is wrong with a graph in which requests enter by `top` and leave by one of the clients `below`: with a filter between, which a switch would leave out, or
    /// with the first client at other data, which would be taken for those of the volume.
    fn check_graph(&self, top: &Node, below: &[&Node]) -> Result<(), String> {
        let QmpRoute { node, first, .. } = self;
        if top.name != *node && !self.is_client(&top.name) {
            return Err(format!(
                "the guest's device is on its node `{}`, expected `{node}` with nothing between them",
                top.name
            ));
        }
        if below.is_empty() {
            return Err(format!(
                "its node `{node}` is not directly above `{first}`, the NBD client that it is said to have been started with: it leads to {}. Filters, \
                 as a throttle, belong above `{node}`",
                shown(&top.file)
            ));
        }
        let is_at_first = below.iter().all(|client| client.name == *first);
        let Some(original) = self.original.as_ref().filter(|_| is_at_first) else { return Ok(()) };
        let leads_there = top.file.parse::<Uri>().is_ok_and(|found| is_same(&found, original));
        match leads_there {
            true => Ok(()),
            false => Err(format!(
                "its node `{first}` leads to {}, expected the volume's origin `{}`, by the same path or address: another disk's data are not these",
                shown(&top.file),
                original.shown()
            )),
        }
    }

    /// The options of a new NBD client, of a server that `comes_back` or not where it is gone.
    fn client(&self, to: &Uri, name: &str, read_only: bool, comes_back: bool) -> Value {
        let server = match &to.transport {
            Transport::Unix { path } => json!({ "type": "unix", "path": path.display().to_string() }),
            Transport::Tcp { host, port } => {
                json!({ "type": "inet", "host": host, "port": port.to_string() })
            }
        };
        let mut options = json!({
            "driver": "nbd", "node-name": name, "server": server, "export": to.export, "read-only": read_only,
        });
        let is_waited_for = comes_back || self.device.is_none();
        if is_waited_for && self.reconnect_delay_s > 0 {
            options["reconnect-delay"] = self.reconnect_delay_s.into();
        }
        options
    }

    /// Has the old path flushed before clients wait for it, so that little is left to flush when they do.
    ///
    /// It refuses what would have QEMU hang or refuse: a path that does not answer in time, that says it has not flushed, or where nobody is for now, so that QEMU may wait for who was. Whoever cannot be asked,
    /// for being gone for good, or letting in one client only, is left to QEMU. What does not answer is left behind a fence where a guest's device is known, and else not at all: of that nothing is said that
    /// would be answered by a fence, behind which QEMU could only wait.
    fn flush_ahead(&self, top: &Node, passage: &Passage, deadline: Deadline) -> Result<(), RouteError> {
        let Ok(old) = top.file.parse::<Uri>() else { return Ok(()) };
        let can_leave = self.device.is_some();
        if (passage.settled && can_leave) || top.read_only || old.tls_required {
            return Ok(());
        }
        // Who is fenced does not say whether it has flushed, but that it is there. Half of the time is for QEMU.
        let errand = if passage.settled { Errand::Look } else { Errand::Flush };
        let Err(error) = visit(&old, errand, deadline.within(deadline.left() / 2)) else {
            return Ok(());
        };
        let old = old.shown();
        let is_away = passage.comes_back && !passage.settled && error.is_of_nobody();
        let would_hang = is_away || error.is_silence();
        if would_hang && !can_leave {
            let who = format!("QEMU, which would wait for its path `{old}`,");
            return Err(RouteError::Unheard { who, reason: error.to_string() });
        }
        if would_hang || matches!(error, VisitError::NotFlushed { .. }) {
            return Err(RouteError::NotDrained { reason: format!("the old path `{old}`: {error}") });
        }
        tracing::debug!(%old, %error, "the old path is not flushed ahead");
        Ok(())
    }

    /// Has the permanent node reopen with another NBD client as its `file`.
    fn reopen(&self, qmp: &mut Qmp, client: &str, deadline: Deadline) -> Result<(), QmpError> {
        let mut options = self.options.clone();
        options.insert("node-name".to_owned(), self.node.clone().into());
        options.insert("file".to_owned(), client.into());
        qmp.run("blockdev-reopen", json!({ "options": [options] }), deadline).map(drop)
    }

    /// Deletes NBD clients of ours, and the first, but for `kept`. One that is in use stays: QEMU says no, and that is as it should be.
    fn delete_others(&self, qmp: &mut Qmp, nodes: &[Node], kept: &str, deadline: Deadline) {
        for node in nodes {
            if self.is_client(&node.name) && node.name != kept {
                self.delete(qmp, &node.name, deadline);
            }
        }
    }

    /// Deletes a node that is not in use. Where its server is gone QEMU would wait for that as long as requests do, and with it everything else: one of ours, which nobody else can be at, is cut
    /// off first.
    fn delete(&self, qmp: &mut Qmp, node: &str, deadline: Deadline) {
        if self.reconnect_delay_s > 0 && self.parse(node).is_some() {
            cut(qmp, node, deadline);
        }
        if let Err(error) = qmp.run("blockdev-del", json!({ "node-name": node }), deadline) {
            tracing::debug!(node, %error, "a node stays in QEMU's graph");
        }
    }
}

/// Has the connection of an NBD client end at once; what is out on it fails.
fn cut(qmp: &mut Qmp, node: &str, deadline: Deadline) {
    let instance = json!({ "type": "block-node", "node-name": node });
    if let Err(error) = qmp.run("yank", json!({ "instances": [instance] }), deadline) {
        tracing::debug!(node, %error, "a connection is not cut");
    }
}

impl Route for QmpRoute {
    fn drains(&self) -> bool {
        true
    }

    fn switch(&self, passage: &Passage, deadline: Deadline) -> Result<Pause, RouteError> {
        let shown = passage.to.uri.shown();
        // QEMU repeats what it was told.
        let unusable = |reason: String| RouteError::Unusable {
            to: shown.to_string(),
            reason: reason.replace(&passage.to.uri.export, &shown.export),
        };
        if passage.to.uri.tls_required {
            return Err(unusable("TLS credentials of QEMU are not supported here".to_owned()));
        }
        let mut qmp = self.monitor(deadline)?;
        let nodes = self.nodes(&mut qmp, deadline)?;
        let entry = self.entry(&mut qmp, deadline)?;
        let (top, now) = self.in_force(&nodes, &entry)?;
        if passage.epoch < now {
            return Err(RouteError::Stale { asked: passage.epoch, now });
        }
        if entry != self.node {
            self.enter_by_the_permanent_node(&mut qmp, &entry, deadline)
                .map_err(|error| self.unheard(error))?;
        }
        if reaches(top, &passage.to.uri) {
            // What an earlier try left behind is not in use: what is, QEMU keeps.
            let left: Vec<&Node> = nodes.iter().filter(|node| node.file != top.file).collect();
            left.iter().filter(|node| self.parse(&node.name).is_some()).for_each(|node| {
                self.delete(&mut qmp, &node.name, deadline);
            });
            if passage.settled {
                self.let_go_on(&mut qmp, deadline);
            }
            return Ok(Pause(std::time::Duration::ZERO));
        }
        let taken = |name: &String| nodes.iter().any(|node| node.name == *name);
        let name = (0..).map(|count| self.name(passage.epoch, count)).find(|name| !taken(name));
        let name = name.expect("there are more numbers than nodes");
        if name.len() > NODE_NAME_BYTES_MAX {
            return Err(self.unheard(format!("`{name}` is too long for a node's name")));
        }
        let options = self.client(&passage.to.uri, &name, top.read_only, !passage.comes_back);
        match qmp.run("blockdev-add", options, deadline) {
            Ok(_) => {}
            Err(QmpError::Refused { description, .. }) => return Err(unusable(description)),
            // It may be added yet; nobody uses it, and the next switch deletes it.
            Err(error) => return Err(self.unheard(error)),
        }
        let added = self.nodes(&mut qmp, deadline)?;
        let size = added.iter().find(|node| node.name == name).map(|node| node.size);
        if size != Some(top.size) {
            self.delete(&mut qmp, &name, deadline);
            let found = size.map_or_else(|| "an unknown number of".to_owned(), |size| size.to_string());
            let reason = format!("it has {found} bytes, and the disk {}", top.size);
            return Err(RouteError::OtherData { to: shown.to_string(), reason });
        }
        if let Err(error) = self.flush_ahead(top, passage, deadline) {
            self.delete(&mut qmp, &name, deadline);
            return Err(error);
        }
        if passage.settled {
            self.cut_what_hangs(&mut qmp, &nodes, top, deadline);
        }
        let began = Instant::now();
        match self.reopen(&mut qmp, &name, deadline) {
            Ok(()) => {}
            Err(QmpError::Refused { description, .. }) => {
                let left = self.leave_dead_path(&mut qmp, &name, passage, &description, deadline);
                if left.as_ref().is_err_and(RouteError::had_no_effect) {
                    self.delete(&mut qmp, &name, deadline);
                }
                left?;
            }
            Err(error) => return Err(RouteError::Unknown { reason: error.to_string() }),
        }
        let pause = Pause(began.elapsed());
        self.delete_others(&mut qmp, &nodes, &name, deadline);
        Ok(pause)
    }

    fn go_on(&self, deadline: Deadline) {
        if self.device.is_none() {
            return;
        }
        // Nobody is there, or it is heard of at the next switch.
        if let Ok(mut qmp) = self.monitor(deadline) {
            self.let_go_on(&mut qmp, deadline);
        }
    }

    fn epoch(&self, deadline: Deadline) -> Result<u64, RouteError> {
        let mut qmp = self.monitor(deadline)?;
        let nodes = self.nodes(&mut qmp, deadline)?;
        let entry = self.entry(&mut qmp, deadline)?;
        Ok(self.in_force(&nodes, &entry)?.1)
    }

    fn now(&self, deadline: Deadline) -> Result<Endpoint, RouteError> {
        let mut qmp = self.monitor(deadline)?;
        let nodes = self.nodes(&mut qmp, deadline)?;
        let entry = self.entry(&mut qmp, deadline)?;
        let (top, _) = self.in_force(&nodes, &entry)?;
        let uri = top.file.parse().map_err(|error| self.unheard(format!("`{}`: {error}", top.file)))?;
        Ok(Endpoint::new(uri))
    }
}

/// Whether a node's requests go to this export.
fn reaches(node: &Node, to: &Uri) -> bool {
    let Ok(found) = node.file.parse::<Uri>() else { return false };
    found.transport == to.transport && found.export == to.export
}

/// What QEMU calls a node's file, without the secret of its export: of what is no URI it is not known where in it that stands.
fn shown(file: &str) -> String {
    file.parse::<Uri>()
        .map_or_else(|_| "what is no NBD client".to_owned(), |uri| format!("`{}`", uri.shown()))
}

/// Whether two lead to one export of one server: by one path, or by one port of hosts with an address in common.
fn is_same(found: &Uri, expected: &Uri) -> bool {
    let is_there = match (&found.transport, &expected.transport) {
        (Transport::Unix { path: found }, Transport::Unix { path: expected }) => {
            let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
            found == expected || real(found) == real(expected)
        }
        (
            Transport::Tcp { host: found, port: found_port },
            Transport::Tcp { host: expected, port: expected_port },
        ) => found_port == expected_port && (found == expected || have_one_address(found, expected)),
        _ => false,
    };
    is_there && found.export == expected.export
}

fn have_one_address(one: &str, other: &str) -> bool {
    let addresses = |host: &str| -> Vec<IpAddr> {
        let found = (host, 0).to_socket_addrs();
        found.into_iter().flatten().map(|address| address.ip()).collect()
    };
    let others = addresses(other);
    addresses(one).iter().any(|address| others.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_epoch() {
        let route = QmpRoute::raw("/run/qmp.sock", "db-1", "db-first");
        assert_eq!(route.name(7, 2), "fb7-2-db-1");
        assert_eq!(route.parse("fb7-2-db-1"), Some((7, 2)));
        for other in ["db-1", "db-first", "fb7-2-db-2", "fb7-db-1", "fbx-2-db-1"] {
            assert_eq!(route.parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_disk_that_leads_to_its_volume_by_what_is_known_is_moved() {
        let original: Uri = "nbd+unix:///db?socket=/run/watch.sock".parse().unwrap();
        let route = QmpRoute { original: Some(original), ..QmpRoute::raw("/run/qmp.sock", "disk", "first") };
        let node = |name: &str, file: &str| Node {
            name: name.to_owned(),
            file: file.to_owned(),
            size: 1 << 20,
            read_only: false,
        };
        let epoch = |entry: &str, graph: &[(&str, &str)]| {
            let nodes: Vec<Node> = graph.iter().map(|(name, file)| node(name, file)).collect();
            route.in_force(&nodes, entry).map(|(_, epoch)| epoch).map_err(|error| error.to_string())
        };
        let there = "nbd+unix:///db?socket=/run/watch.sock";
        let cached = "nbd://10.0.0.2:10809/db";
        assert_eq!(epoch("disk", &[("disk", there), ("first", there)]), Ok(0));
        assert_eq!(epoch("disk", &[("disk", cached), ("first", there), ("fb3-0-disk", cached)]), Ok(3));
        assert_eq!(epoch("fb3-0-disk", &[("disk", there), ("fb3-0-disk", cached)]), Ok(3));
        let refused = |entry: &str, graph: &[(&str, &str)], why: &str| {
            let error = epoch(entry, graph).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        for other in [
            "nbd+unix:///db2?socket=/run/watch.sock",
            "nbd+unix:///db?socket=/run/other.sock",
            "nbd://10.0.0.1:10810/db",
        ] {
            let why = format!("`first` leads to `{other}`, expected the volume's origin `{there}`");
            refused("disk", &[("disk", other), ("first", other)], &why);
        }
        let filtered = "json:{\"driver\": \"throttle\", \"file\": {\"export\": \"db.0123456789abcdef\"}}";
        refused("disk", &[("disk", filtered), ("first", there)], "not directly above `first`");
        let told = epoch("disk", &[("disk", filtered), ("first", there)]).unwrap_err();
        assert!(told.contains("leads to what is no NBD client") && !told.contains("0123456789"), "{told}");
        refused("disk", &[("disk", there), ("nbd0", there)], "not directly above `first`");
        refused(
            "job",
            &[("job", there), ("disk", there), ("first", there)],
            "on its node `job`, expected `disk`",
        );
        refused("disk", &[("first", there)], "it has no node `disk`");
    }

    #[test]
    fn one_server_is_known_by_its_path_or_by_its_address_and_port() {
        let is_same =
            |found: &str, expected: &str| super::is_same(&found.parse().unwrap(), &expected.parse().unwrap());
        assert!(is_same("nbd://localhost:10809/db", "nbd://127.0.0.1/db"));
        assert!(is_same("nbd://nobody.invalid/db", "nbd://nobody.invalid:10809/db"));
        for other in [
            "nbd://127.0.0.2/db",
            "nbd://localhost:10810/db",
            "nbd://localhost/db2",
            "nbd+unix:///db?socket=/run/s",
        ] {
            assert!(!is_same(other, "nbd://localhost/db"), "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("s"), folder.path().join("link"));
        std::fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let unix = |path: &std::path::Path| format!("nbd+unix:///db?socket={}", path.display());
        assert!(is_same(&unix(&link), &unix(&path)) && !is_same(&unix(&link), &unix(folder.path())));
    }

    /// A process that ended leaves nobody at its socket, or no socket. One that hangs may have clients.
    #[test]
    fn where_nobody_is_at_the_monitor_there_are_no_clients() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp.sock");
        let route = QmpRoute::raw(&path, "db", "db-first");
        let is_deserted = || {
            let found = route.epoch(Deadline::after(std::time::Duration::from_millis(50)));
            matches!(found, Err(RouteError::NoClient { .. }))
        };
        assert!(is_deserted());
        let monitor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(!is_deserted(), "it listens, and says nothing");
        drop(monitor);
        // A process that another test starts has the socket, too, until it is another program.
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !is_deserted() {
            assert!(std::time::Instant::now() < give_up, "nobody listens");
        }
    }
}
