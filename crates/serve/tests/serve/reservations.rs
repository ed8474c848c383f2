//! Promises for a while: made over the socket, judged and served while they stand, kept over a restart, gone by themselves.

use super::control::{config, read_skewed};
use super::http::ask;
use super::support::{SetOnDrop, eventually};
use forebay_control::DecisionKind;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_serve::reservation::ReservationRequest;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The volume of `control`, to which nothing is promised in the configuration.
fn promises_nothing(folder: &Path) -> Config {
    let mut config = config(folder);
    config.volumes[0].objectives.clear();
    config.http.socket = Some(folder.join("http.sock"));
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    config.reservations = Some(folder.join("reservations.json"));
    config
}

fn over_socket(daemon: &Daemon, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, body) = ask(stream, method, path, body);
    (status, serde_json::from_str(&body).unwrap())
}

const RESERVATIONS: &str = "/api/v1/reservations";

#[test]
fn a_reservation_gets_a_cache_and_stands_over_a_restart_until_it_is_cancelled_or_over() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(promises_nothing(folder.path())).unwrap();
    let uri = daemon.uris("zipf").remove(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        scope.spawn(|| read_skewed(&uri, &stop));
        eventually("the volume is observed", Duration::from_secs(20), || {
            daemon.status().volumes[0].iops > 0.0
        });
        assert!(daemon.status().volumes[0].objectives.is_empty());
        // Two disks of 5 ms serve 400 requests/s; four outstanding wait for some 10 ms.
        let body = r#"{"volumes": ["zipf"], "iops": 800, "latency_s": 0.004, "duration_s": 2400}"#;
        let (status, made) = over_socket(&daemon, "POST", RESERVATIONS, body);
        assert_eq!(
            (status, made["id"].as_u64(), made["active"].as_bool()),
            (200, Some(1), Some(true)),
            "{made}"
        );
        assert_eq!(
            (made["kept"].as_bool(), made["schema"].as_str()),
            (Some(true), Some("forebay.reservation/1"))
        );
        assert_eq!(made["unproven"][0], "zipf", "nothing was a hit yet: {made}");
        let granted =
            || daemon.decisions("zipf").iter().any(|dated| dated.decision.kind == DecisionKind::Granted);
        eventually("a cache is granted", Duration::from_secs(30), granted);
        let volume = daemon.status().volumes.remove(0);
        let of: Vec<Option<u64>> = volume.objectives.iter().map(|objective| objective.reservation).collect();
        assert_eq!(of, [Some(1), Some(1)], "{:?}", volume.objectives);
        assert_eq!(daemon.explain("zipf").unwrap().reservations.len(), 1);
        // What not even hits keep is refused, once it is known how long they take.
        let body = r#"{"volumes": ["zipf"], "latency_s": 0.000001, "duration_s": 2400}"#;
        eventually("a latency of 1 us is refused", Duration::from_secs(30), || {
            let (status, answer) = over_socket(&daemon, "POST", RESERVATIONS, body);
            if status == 200 {
                over_socket(&daemon, "DELETE", &format!("{RESERVATIONS}/{}", answer["id"]), "");
                return false;
            }
            answer["error"].as_str().is_some_and(|said| said.contains("so long took the hits of `zipf`"))
        });
        // Metrics have the series of the configuration alone.
        assert!(!daemon.metrics().contains("forebay_slo_windows_total{"));
        drop(stops);
    });
    daemon.shutdown();

    let daemon = Daemon::start(promises_nothing(folder.path())).unwrap();
    let kept = daemon.status().reservations;
    assert_eq!((kept.len(), kept[0].reservation.id, kept[0].active), (1, 1, true));
    let judged = || daemon.status().volumes[0].objectives.len();
    eventually("it is judged again", Duration::from_secs(20), || judged() == 2);
    let (status, _) = over_socket(&daemon, "DELETE", "/api/v1/reservations/1", "");
    assert_eq!((status, daemon.status().reservations.len()), (200, 0));
    eventually("it is judged no longer", Duration::from_secs(20), || judged() == 0);
    // One of a second ends by itself.
    let body = r#"{"volumes": ["zipf"], "latency_s": 0.1, "duration_s": 1}"#;
    let request: ReservationRequest = serde_json::from_str(body).unwrap();
    assert!(daemon.reserve(request).unwrap().reservation.id > 1);
    eventually("it is judged", Duration::from_secs(20), || judged() == 1);
    eventually("it is over", Duration::from_secs(20), || judged() == 0);
    assert!(daemon.status().reservations.is_empty());
    daemon.shutdown();
}

#[test]
fn what_is_wrong_is_refused_and_over_tcp_everything() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(promises_nothing(folder.path())).unwrap();
    for (body, status, said) in [
        ("", 400, "not understood"),
        (r#"{"volumes": ["zipf"], "iops": 1, "duration_s": 9, "iopps": 1}"#, 400, "unknown field `iopps`"),
        (
            r#"{"volumes": ["zip"], "iops": 1, "duration_s": 9}"#,
            400,
            "`volumes` is `zip`, expected one of `zipf`",
        ),
        (r#"{"volumes": ["zipf"], "iops": -5, "duration_s": 9}"#, 400, "`iops` is -5"),
        (r#"{"volumes": ["zipf"], "iops": 5, "duration_s": 1e300}"#, 400, "`duration_s` is 1000"),
        (r#"{"volumes": ["zipf"], "duration_s": 9}"#, 400, "one of them, or both"),
    ] {
        let (found, answer) = over_socket(&daemon, "POST", RESERVATIONS, body);
        assert_eq!(found, status, "{body}");
        assert!(answer["error"].as_str().unwrap().contains(said), "{answer}");
    }
    assert_eq!(over_socket(&daemon, "DELETE", "/api/v1/reservations/9", "").0, 404);
    let body = r#"{"volumes": ["zipf"], "iops": 1, "duration_s": 9}"#;
    for (method, path) in [("POST", RESERVATIONS), ("DELETE", "/api/v1/reservations/1")] {
        let stream = TcpStream::connect(daemon.http_address().unwrap()).unwrap();
        let (status, answer) = ask(stream, method, path, body);
        assert!(status == 403 && answer.contains("unix socket"), "{status} {answer}");
    }
    assert!(daemon.status().reservations.is_empty());
    daemon.shutdown();
}
