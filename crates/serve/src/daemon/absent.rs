//! Volumes whose origins were not there when the daemon was started: they are exported as those appear.

use super::Shared;
use super::start::{served_volume, starts_with_cache};
use forebay_appliance::{AddVolumeError, VolumeConfig as ServedVolume};
use forebay_origin::Origin;
use forebay_units::with_causes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before an absent origin is tried again.
const ABSENT_RETRY: Duration = Duration::from_millis(500);

/// Exports volumes whose origins were absent as they appear.
pub(super) fn wait_for_origins(shared: &Shared) {
    while shared.sleep_until(Instant::now() + ABSENT_RETRY) {
        let absent: Vec<String> = shared.state().absent.keys().cloned().collect();
        if absent.is_empty() {
            return;
        }
        for (index, volume) in shared.config.volumes.iter().enumerate() {
            if !absent.contains(&volume.name) {
                continue;
            }
            // Each may take its timeout, and whoever stops does not wait for all of them.
            if shared.is_stopping() {
                return;
            }
            // Nor does whoever sends another volume elsewhere, so this one is opened first.
            let opened = crate::route::open(shared, index).map_err(|error| with_causes(&error));
            let _one = shared.books.changes_of_routes();
            // It may have been sent elsewhere meanwhile, where it begins at once.
            if !shared.state().absent.contains_key(&volume.name) {
                continue;
            }
            if let Err(reason) = opened.and_then(|origin| begin(shared, index, origin)) {
                shared.state().absent.insert(volume.name.clone(), reason);
            }
        }
    }
}

/// Exports a volume that was absent, on an origin that is there; why not, if not.
pub(crate) fn begin(shared: &Shared, index: usize, origin: Arc<dyn Origin>) -> Result<(), String> {
    let volume = &shared.config.volumes[index];
    // Locked, so that no lease is raised between the look and the start.
    let leases = shared.books.leases();
    let served = ServedVolume {
        lease: leases.as_ref().and_then(|book| book.of(&volume.name)),
        ..served_volume(&shared.config, volume, origin, shared.flash.as_ref())
            .map_err(|error| with_causes(&error))?
    };
    match shared.appliance.add_volume(served) {
        Ok(()) | Err(AddVolumeError::Exists { .. }) => {}
        Err(error) => return Err(with_causes(&error)),
    }
    drop(leases);
    tracing::info!(volume = volume.name, "origin is there; the volume is exported");
    shared.state().absent.remove(&volume.name);
    if starts_with_cache(volume) {
        shared.books.loads().begins(&volume.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, OnAbsent, OriginConfig, OriginTls, VolumeConfig};
    use crate::daemon::Daemon;
    use crate::route::RouteRequest;
    use forebay_appliance::ListenerConfig;
    use forebay_origin::NbdOriginOptions;
    use forebay_units::{Bytes, Nanos};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;

    /// A volume that waits for its origin, a server that listens and says nothing.
    fn waits_for(name: &str, server: &TcpListener, connect_timeout: Nanos) -> VolumeConfig {
        let uri = format!("nbd://{}/{name}", server.local_addr().unwrap()).parse().unwrap();
        let options = NbdOriginOptions { connect_timeout, ..NbdOriginOptions::default() };
        let origin = OriginConfig::Nbd { uri, options, tls: OriginTls::default() };
        VolumeConfig { on_absent: OnAbsent::Wait, ..VolumeConfig::new(name, origin) }
    }

    /// A daemon that finds out at its start that these servers are gone.
    fn started(folder: &Path, volumes: Vec<VolumeConfig>, gone: &[&TcpListener]) -> Daemon {
        let mut config = Config::new(volumes);
        config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
        thread::scope(|scope| {
            scope.spawn(|| gone.iter().for_each(|server| drop(server.accept().unwrap())));
            Daemon::start(config).unwrap()
        })
    }

    fn server() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn a_route_is_changed_while_another_volume_waits_for_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let memory = |name: &str| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) });
        let mut storage = Config::new(vec![memory("one"), memory("two")]);
        storage.listen = vec![ListenerConfig::Unix { path: folder.path().join("storage.sock") }];
        let storage = Daemon::start(storage).unwrap();
        let [one, two] = ["one", "two"].map(|name| storage.uris(name).remove(0));
        let absent = server();
        let there = VolumeConfig::new(
            "there",
            OriginConfig::Nbd {
                uri: one.parse().unwrap(),
                options: NbdOriginOptions::default(),
                tls: OriginTls::default(),
            },
        );
        let late = waits_for("late", &absent, Nanos::secs(3600));
        let daemon = started(folder.path(), vec![late, there], &[&absent]);
        // Somebody takes the connection, and does not say a word.
        let (silent, _) = absent.accept().unwrap();
        drop(absent);
        let (sender, answer) = channel();
        thread::scope(|scope| {
            let request: RouteRequest = serde_json::from_value(serde_json::json!({ "to": two })).unwrap();
            let daemon = &daemon;
            scope.spawn(move || sender.send(daemon.route("there", &request).map(|routed| routed.route)));
            let routed = answer.recv_timeout(Duration::from_secs(20));
            drop(silent);
            assert_eq!(routed.expect("it waits for the other volume").unwrap().to, Some(two));
        });
        daemon.shutdown();
        storage.shutdown();
    }

    #[test]
    fn who_stops_waits_for_one_absent_origin_and_not_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (server(), server());
        let volumes =
            vec![waits_for("first", &first, Nanos::secs(3600)), waits_for("second", &second, Nanos::secs(1))];
        let daemon = started(folder.path(), volumes, &[&first, &second]);
        let (silent, _) = first.accept().unwrap();
        daemon.shared().stop();
        drop(silent);
        daemon.shutdown();
        second.set_nonblocking(true).unwrap();
        assert!(second.accept().is_err(), "the second was tried after the stop");
    }
}
