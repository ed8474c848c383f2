//! The fleet with real daemons and files.

use super::turning::due;
use super::*;
use crate::Daemon;
use crate::config::{Config, OriginConfig, VolumeConfig};
use crate::status::{ControllerState, DrainedWhat, Status};
use forebay_actuate::api::{ApiAddress, ApiError};
use forebay_actuate::{Control, Deadline};
use forebay_control::response::{Draining, Outcome, ResponseRules, VolumeRoute, Way, What, Wish};
use forebay_control::{HostId, HostSpec};
use forebay_nbd::Transport;
use forebay_units::{Bytes, Nanos};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

/// Lines of a volume whose clients are moved.
pub(super) const MOVED: &str = "route = { type = \"proxy\", server = \"unix:proxy.sock\" }\nleased = false";

/// A controller of one volume, `db`, on one host, with all that it needs in `folder`; `more` are further lines of the volume.
pub(super) fn config(folder: &Path, more: &str) -> FleetConfig {
    let file = folder.join("control.toml");
    let text = format!(
        r#"
        socket = "control.sock"
        state = "state"
        interval = "100ms"
        [[host]]
        name = "h1"
        memory = "128MiB"
        [[volume]]
        name = "db"
        home = "h1"
        origin = "nbd+unix:///db?socket=nowhere.sock"
        watch = "unix:watch.sock"
        {more}
        "#
    );
    std::fs::write(&file, text).unwrap();
    FleetConfig::read(&file).unwrap()
}

/// A daemon's configuration with that volume, which is asked at `socket` in `folder`.
fn daemon(folder: &Path, socket: &str) -> Config {
    let mut config = Config::new(vec![VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) })]);
    config.control.interval = Duration::from_millis(100);
    config.http.socket = Some(folder.join(socket));
    config
}

fn wait(fleet: &Fleet, what: &str, done: impl Fn(&Status) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done(&fleet.status()) {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until its volume is at that step.
fn wait_at(fleet: &Fleet, step: &str) {
    wait(fleet, step, |status| status.volumes.first().is_some_and(|of| of.origin.description.contains(step)));
}

#[test]
fn the_secret_of_appliances_stays_the_same_and_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.json");
    let made = secret(folder.path()).unwrap();
    assert!(!is_readable_by_others(&path));
    // As earlier versions left it.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(secret(folder.path()).unwrap(), made);
    assert!(!is_readable_by_others(&path));
    for other in ["1234567890123456", "\"1234567890 123456\""] {
        std::fs::write(&path, other).unwrap();
        let (_, reason) = secret(folder.path()).unwrap_err();
        assert!(
            reason.contains("not what is kept here: line 1")
                && reason.contains("expected a secret, 16 to")
                && !reason.contains("12345"),
            "{reason}"
        );
    }
}

#[test]
fn a_controller_that_panics_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Daemon::start(daemon(folder.path(), "watch.sock")).unwrap();
    let fleet = Fleet::start(config(folder.path(), "leased = false")).unwrap();
    wait(&fleet, "the volume is heard of", |status| {
        status.volumes.first().is_some_and(|of| of.size_bytes > 0)
    });
    fleet.shared.panics_next_step.store(true, Ordering::Relaxed);
    wait(&fleet, "it panics", |status| status.controller.restarts == 1);
    assert_eq!(fleet.status().controller.last_panic.as_deref(), Some("injected by a test"));
    let steps = fleet.status().controller.steps;
    wait(&fleet, "it comes back", |status| {
        status.controller.state == ControllerState::Running && status.controller.steps >= steps + 3
    });
    drop(fleet);
    storage.shutdown();
}

/// Or whoever supervises it would never learn that nobody looks after its volumes any more.
#[test]
fn a_control_loop_that_panics_ends_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Daemon::start(daemon(folder.path(), "watch.sock")).unwrap();
    let fleet = Fleet::start(config(folder.path(), "leased = false")).unwrap();
    assert_eq!(fleet.failure(), None);
    fleet.shared.panics_next_turn.store(true, Ordering::Relaxed);
    wait(&fleet, "it dies", |status| status.controller.state == ControllerState::Dead);
    assert_eq!(fleet.failure().as_deref(), Some("injected by a test"));
    drop(fleet);
    let fleet = Fleet::start(config(folder.path(), "leased = false")).unwrap();
    wait(&fleet, "the volume is heard of", |status| {
        status.volumes.first().is_some_and(|of| of.size_bytes > 0)
    });
    drop(fleet);
    storage.shutdown();
}

#[test]
fn a_paused_controller_decides_nothing_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Daemon::start(daemon(folder.path(), "watch.sock")).unwrap();
    let promised = "leased = false\n[[objective]]\nvolume = \"db\"\nlatency = \"5ms\"";
    let fleet = Fleet::start(config(folder.path(), promised)).unwrap();
    // Nobody asks for anything, which keeps nothing.
    let is_judged = |status: &Status| status.volumes.first().is_some_and(|of| of.state == "low_load");
    wait(&fleet, "the volume is judged", is_judged);
    let control = Control { address: ApiAddress::Unix(folder.path().join("control.sock")), token: None };
    let switch = |enabled: bool| -> Switched {
        let body = format!("{{\"enabled\": {enabled}}}");
        let deadline = Deadline::after(Duration::from_secs(10));
        let answer: serde_json::Value = control.ask("PUT", "/api/v1/controller", &body, deadline).unwrap();
        assert_eq!(answer["schema"], "forebay.controller/1");
        serde_json::from_value(answer).unwrap()
    };
    let paused = Switched { enabled: false, was_enabled: true, state: ControllerState::Disabled };
    assert_eq!(switch(false), paused);
    assert_eq!(switch(false), Switched { was_enabled: false, ..paused });
    // Whoever asks it to decide would hear of it.
    fleet.shared.panics_next_step.store(true, Ordering::Relaxed);
    let steps = fleet.status().controller.steps;
    wait(&fleet, "five turns", |status| status.controller.steps >= steps + 5);
    let status = fleet.status();
    assert_eq!((status.controller.state, status.controller.restarts), (ControllerState::Disabled, 0));
    assert!(status.controller.switched_at_unix_ms.is_some());
    let volume = &status.volumes[0];
    assert!(volume.state == "unjudged" && volume.origin.state == "up" && volume.size_bytes > 0, "{volume:?}");
    let resumed = Switched { enabled: true, was_enabled: false, state: ControllerState::Running };
    assert_eq!(switch(true), resumed);
    wait(&fleet, "it is asked again", |status| status.controller.restarts == 1);
    wait(&fleet, "it judges again", is_judged);
    drop(fleet);
    storage.shutdown();
}

#[test]
fn who_does_not_tell_of_an_origin_does_not_say_that_it_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(config(folder.path(), "leased = false")).unwrap();
    wait(&fleet, "a trouble", |status| status.volumes.first().is_some_and(|of| of.origin.reason.is_some()));
    let told = &fleet.status().volumes[0].origin;
    let reason = told.reason.as_deref().unwrap();
    assert!(reason.starts_with("the storage side: no daemon answers at unix:"), "{reason}");
    assert_eq!(told.state, "unknown");
}

#[test]
fn what_only_who_serves_a_volume_does_is_refused_with_whom_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    let _fleet = Fleet::start(config(folder.path(), MOVED)).unwrap();
    let control = Control { address: ApiAddress::Unix(folder.path().join("control.sock")), token: None };
    let looked_after = "`db` is not served here but looked after: ";
    let (served, its_cache) = ("proxy.sock`), by `--server`", "`forebay pause` has it stay as it is");
    for (method, path, begin, end) in [
        ("POST", "volumes/db/lease", looked_after, served),
        ("POST", "volumes/db/route", looked_after, served),
        ("POST", "volumes/db/drain", looked_after, served),
        ("POST", "volumes/db/prewarm", looked_after, its_cache),
        ("DELETE", "volumes/db/prewarm", looked_after, its_cache),
        ("PUT", "volumes/db/quota", looked_after, its_cache),
        ("POST", "volumes/db/placement", looked_after, its_cache),
        ("POST", "reservations", "a controller of volumes that others serve", "(`[[objective]]`)"),
        ("DELETE", "reservations/1", "a controller of volumes that others serve", "(`[[objective]]`)"),
        ("POST", "volumes/other/lease", "there is no volume `other`", ""),
    ] {
        let deadline = Deadline::after(Duration::from_secs(10));
        let answer = control.ask::<serde_json::Value>(method, &format!("/api/v1/{path}"), "{}", deadline);
        let Err(ApiError::Refused { status, said, .. }) = answer else { panic!("{path}: {answer:?}") };
        assert!(said.starts_with(begin) && said.ends_with(end), "{method} {path}: {said}");
        assert_eq!(status, if path.contains("other/") { 404 } else { 409 }, "{path}");
    }
}

#[test]
fn a_lost_journal_is_told_and_nothing_is_done_before_the_route_says_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut config = config(folder.path(), MOVED);
        config.response.late_max_ms = 500;
        Fleet::start(config).unwrap()
    };
    let journal = folder.path().join("state/responses.json");
    let next_appliance = || {
        let journal: serde_json::Value = kept::read(&journal).unwrap().unwrap();
        journal["next_appliance"].as_u64().unwrap()
    };
    let fleet = start();
    wait_at(&fleet, "looking what was done before");
    assert_eq!(next_appliance(), 1);
    drop(fleet);
    std::fs::remove_file(&journal).unwrap();
    // Nor after a restart in the middle of it.
    drop(start());
    let fleet = start();
    wait_at(&fleet, "looking what was done before");
    assert!(next_appliance() > 1_700_000_000, "numbers of before are used again");
    let proxy = Daemon::start(daemon(folder.path(), "proxy.sock")).unwrap();
    wait_at(&fleet, "original route");
    // Its host has nothing of before, and has said so.
    let is_unlisted = || {
        let journal: serde_json::Value = kept::read(&journal).unwrap().unwrap();
        journal.get("unlisted").is_some()
    };
    wait(&fleet, "the host's word", |_| !is_unlisted());
    drop(fleet);
    proxy.shutdown();
}

/// Leaves a journal behind of an appliance for `db` that was just ordered on `h1`.
fn begun(config: &FleetConfig) {
    let host = HostSpec::new(HostId(0), "h1".to_owned(), 0, Bytes::mib(200));
    let draining =
        |_, volume: &VolumeTable| making::draining(volume, making::route(config, volume).as_deref());
    let mut responses = Responses::new(ResponseRules::default(), vec![host]);
    routes(config, draining).into_iter().for_each(|(id, route)| responses.register(id, route));
    responses.want(id_of(0), Wish { cache: Bytes::mib(1), flash: Bytes::ZERO, rate: 1.0, host: None });
    assert_eq!(responses.step(Nanos::secs(1)).len() + responses.step(Nanos::secs(2)).len(), 1);
    std::fs::create_dir_all(&config.state).unwrap();
    kept::replace(&resuming::journal_file(&config.state), &responses.journal()).unwrap();
}

/// Without a route nothing could bring its clients back.
#[test]
fn a_journal_whose_volume_has_lost_its_route_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Fleet::start(config(folder.path(), MOVED)).unwrap());
    // Nothing is on the way: it may go.
    drop(Fleet::start(config(folder.path(), "leased = false")).unwrap());
    let mut config = config(folder.path(), MOVED);
    begun(&config);
    config.volume[0].route = None;
    let refused = Fleet::start(config).err().expect("nobody could be brought back").to_string();
    assert!(
        refused.contains("volume `db` has appliance 1 on host `h1` and no `route` any more")
            && refused.contains("`drain = true`"),
        "{refused}"
    );
}

/// Nobody would ever take its cache back, and nobody could raise its lease. An earlier version's journal does not tell by what it was reached.
#[test]
fn a_journal_whose_volume_is_not_watched_any_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let counted = "[volume.prometheus]\nurl = \"http://127.0.0.1:1\"\nreads = \"r\"\nread_seconds = \"s\"";
    let mut unwatched = config(folder.path(), &format!("{MOVED}\n{counted}"));
    begun(&config(folder.path(), MOVED));
    unwatched.volume[0].watch = None;
    let file = resuming::journal_file(&unwatched.state);
    for tells in [true, false] {
        if !tells {
            let mut journal: serde_json::Value = kept::read(&file).unwrap().unwrap();
            journal["responses"][0][1].as_object_mut().unwrap().remove("way").expect("it is kept");
            kept::replace(&file, &journal).unwrap();
        }
        let looked = Fleet::check(&unwatched).expect_err("nobody takes its cache back").to_string();
        assert!(
            looked.starts_with("volume `db` has appliance 1 on host `h1` and no `watch` any more")
                && looked.contains("`drain = true`"),
            "{looked}"
        );
        assert_eq!(Fleet::start(unwatched.clone()).err().map(|error| error.to_string()), Some(looked));
    }
}

/// What the journal of the controller before tells of, the file of now has drained.
#[test]
fn what_the_file_has_drained_is_taken_back_and_may_then_be_removed() {
    for what in [DrainedWhat::Host, DrainedWhat::Volume] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), MOVED);
        config.response.late_max_ms = 1;
        begun(&config);
        let gone = |mut config: FleetConfig| {
            config.host[0].name = "h2".to_owned();
            config.volume[0].home = "h2".to_owned();
            Fleet::start(config)
        };
        let refused = gone(config.clone()).err().expect("it has an appliance").to_string();
        assert!(refused.contains("put it back with `drain = true`"), "{refused}");
        match what {
            DrainedWhat::Host => config.host[0].drain = true,
            DrainedWhat::Volume => config.volume[0].drain = true,
        }
        // A kill in the middle is a start with the same file.
        drop(Fleet::start(config.clone()).unwrap());
        let fleet = Fleet::start(config.clone()).unwrap();
        wait(&fleet, "the end of its appliance", |status| {
            status.drained.len() == 1 && status.drained[0].left.is_none()
        });
        let status = fleet.status();
        assert_eq!((status.drained[0].what, &*status.volumes[0].name), (what, "db"));
        let (family, name) = match what {
            DrainedWhat::Host => ("forebay_host_draining{host", "h1"),
            DrainedWhat::Volume => ("forebay_volume_draining{volume", "db"),
        };
        assert_eq!(status.drained[0].name, name);
        let metrics = fleet.metrics();
        assert!(metrics.contains(&format!("{family}=\"{name}\"}} 0")), "{metrics}");
        drop(fleet);
        if what == DrainedWhat::Host {
            // The wish for the volume's cache stays: another host may have it.
            let journal = std::fs::read_to_string(folder.path().join("state/responses.json")).unwrap();
            assert!(journal.contains("\"wish\": {"), "{journal}");
        }
        gone(config).expect("nothing is left on it");
    }
}

/// What an operator does to the file.
type Change = fn(&mut FleetConfig);

/// What is fenced at one disk says nothing of another, to which clients would be sent as settled.
#[test]
fn a_journal_of_another_origin_is_refused_at_the_start_and_by_a_look() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/responses.json");
    let good = || config(folder.path(), MOVED);
    assert!(Fleet::check(&good()).unwrap(), "nothing is there");
    begun(&good());
    assert!(Fleet::check(&good()).unwrap());
    let changes: [(&str, Change); 5] = [
        ("origin", |config| config.volume[0].origin.export = "db2".to_owned()),
        ("watch", |config| config.volume[0].watch = Some(ApiAddress::Unix("/w".into()))),
        ("leased", |config| config.volume[0].leased = true),
        ("block_size", |config| config.volume[0].block_size = Bytes::kib(16)),
        ("route.server", |config| {
            let server = ApiAddress::Unix("/p".into());
            config.volume[0].route = Some(RouteTable::Proxy { server, token: None });
        }),
    ];
    for (key, change) in changes {
        let mut changed = good();
        change(&mut changed);
        let looked = Fleet::check(&changed).expect_err(key).to_string();
        let began = "volume `db` has appliance 1 on host `h1` in the journal, and its `";
        assert!(looked.starts_with(&format!("{began}{key}` is ")), "{looked}");
        assert_eq!(Fleet::start(changed).err().expect(key).to_string(), looked);
    }
    // What else the start refuses a look refuses, too.
    std::fs::write(&file, "{").unwrap();
    let looked = Fleet::check(&good()).unwrap_err().to_string();
    assert!(looked.contains("no JSON"), "{looked}");
    // And what is to be done about it.
    assert!(
        looked.contains("; put back what was kept of it") && looked.contains("or remove it: then"),
        "{looked}"
    );
    assert_eq!(Fleet::start(good()).err().expect("it is damaged").to_string(), looked);
}

/// They are shown alike, as if what is behind the dot were a secret.
#[test]
fn exports_that_are_shown_alike_are_two() {
    let folder = tempfile::tempdir().unwrap();
    let way = |export: &str| {
        let mut config = config(folder.path(), MOVED);
        config.volume[0].origin.export = export.to_owned();
        making::way(&config.volume[0])
    };
    assert_ne!(way("db.the-first-of-two-disks"), way("db.the-second-of-two-disks"));
    assert_eq!(way("db.the-first-of-two-disks"), way("db.the-first-of-two-disks"));
    assert!(!format!("{:?}", way("db.the-first-of-two-disks")).contains("first-of"));
}

#[test]
fn appliances_at_one_port_to_which_addresses_move_are_kept_apart() {
    let mut text = r#"
        socket = "control.sock"
        state = "state"
        [[host]]
        name = "h1"
        memory = "128MiB"
        provider = { type = "namespace", namespace = "n1", address = "10.0.0.3", interface = "eth1" }
    "#
    .to_owned();
    let proxy = r#"{ type = "proxy", server = "10.0.0.5:80" }"#.to_owned();
    let address =
        |last: u8| format!(r#"{{ type = "address", address = "10.0.0.{last}/24", interface = "eth0" }}"#);
    for (name, port, route) in
        [("a", 5, address(9)), ("b", 5, address(10)), ("c", 6, address(11)), ("d", 5, proxy)]
    {
        text += &format!(
            r#"
            [[volume]]
            name = "{name}"
            home = "h1"
            origin = "nbd://10.0.0.2:{port}/{name}"
            secret = "0123456789abcdef"
            watch = "10.0.0.2:80"
            route = {route}
            "#
        );
    }
    let config = reading::parse("c.toml", &text, Path::new("/etc")).unwrap();
    let why = |name| format!("has the appliance of volume `{name}`, which serves at port 5 as well");
    assert_eq!(apart(&config, 0), [(id_of(1), why("b"))]);
    assert_eq!(apart(&config, 1), [(id_of(0), why("a"))]);
    assert_eq!([apart(&config, 2), apart(&config, 3)], [vec![], vec![]]);
}

/// Appliances begin in folders of their own, and proxies are told paths.
/// The storage side would send the volume to an appliance whose origin it is.
#[test]
fn a_route_by_the_storage_side_itself_or_by_the_controller_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("here")).unwrap();
    let found = |watch: &str, server: &str, export: &str| -> Vec<String> {
        let mut config = config(folder.path(), MOVED);
        let place = |text: &str| match text.strip_prefix("unix:") {
            Some(path) => ApiAddress::Unix(folder.path().join(path)),
            None => text.parse().unwrap(),
        };
        config.listen = Some("127.0.0.1:9810".parse().unwrap());
        config.volume[0].watch = Some(place(watch));
        config.volume[0].origin.export = export.to_owned();
        config.volume[0].route = Some(RouteTable::Proxy { server: place(server), token: None });
        let problems = config.check().err().map(|error| error.problems).unwrap_or_default();
        problems.into_iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect()
    };
    for (watch, server) in [
        ("unix:watch.sock", "unix:watch.sock"),
        ("unix:watch.sock", "unix:here/watch.sock"),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("10.0.0.1:80", "[::ffff:10.0.0.1]:80"),
    ] {
        let found = found(watch, server, "db");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("volume[0].route.server: ") && found[0].contains("the storage side's own"),
            "{found:?}"
        );
    }
    // Others, and another volume of one daemon.
    assert_eq!(found("10.0.0.1:80", "10.0.0.1:81", "db"), [""; 0]);
    assert_eq!(found("10.0.0.1:80", "10.0.0.1:80", "disk"), [""; 0]);
    for own in ["unix:control.sock", "127.0.0.1:9810"] {
        let found = [found(own, "unix:proxy.sock", "db"), found("unix:watch.sock", own, "db")].concat();
        let told = format!("{found:?}");
        assert!(
            found.len() == 2 && told.matches("where this controller answers itself").count() == 2,
            "{told}"
        );
        assert!(
            found[0].starts_with("volume[0].watch: ") && found[1].starts_with("volume[0].route.server: "),
            "{told}"
        );
    }
}

#[test]
fn paths_are_absolute_although_the_file_is_named_from_here() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let here = Path::new(folder.path().file_name().unwrap());
    let config = config(here, MOVED);
    let Transport::Unix { path } = &config.volume[0].origin.transport else { panic!("{config:?}") };
    for path in [&config.state, &config.socket, path] {
        assert!(path.is_absolute(), "{}", path.display());
    }
}

#[test]
fn the_lease_of_a_volume_that_is_only_watched_stays_its_holders() {
    let folder = tempfile::tempdir().unwrap();
    let mut storage = daemon(folder.path(), "watch.sock");
    storage.leases = Some(folder.path().join("leases.json"));
    let storage = Daemon::start(storage.watching().unwrap()).unwrap();
    let raise = serde_json::json!({ "epoch": 5, "holder": "named" });
    storage.raise_lease("db", serde_json::from_value(raise).unwrap()).unwrap();
    let fleet = Fleet::start(config(folder.path(), "")).unwrap();
    wait(&fleet, "five turns", |status| status.controller.steps >= 5);
    drop(fleet);
    assert_eq!(storage.status().volumes[0].lease.as_ref().map(|lease| lease.epoch), Some(5));
    storage.shutdown();
}

#[test]
fn who_cannot_write_its_journal_asks_on() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = Daemon::start(daemon(folder.path(), "proxy.sock")).unwrap();
    // Nothing can be written beside it.
    std::fs::create_dir_all(folder.path().join("state/responses.json.new")).unwrap();
    let fleet = Fleet::start(config(folder.path(), MOVED)).unwrap();
    wait_at(&fleet, "original route");
    assert!(!folder.path().join("state/responses.json").exists());
    drop(fleet);
    proxy.shutdown();
}

/// What it orders is refused then: it would go on from sizes that no cache has.
#[test]
fn a_controller_decides_nothing_while_its_journal_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Daemon::start(daemon(folder.path(), "watch.sock")).unwrap();
    let proxy = Daemon::start(daemon(folder.path(), "proxy.sock")).unwrap();
    let beside = folder.path().join("state/responses.json.new");
    std::fs::create_dir_all(&beside).unwrap();
    let promised = format!("{MOVED}\n[[objective]]\nvolume = \"db\"\nlatency = \"5ms\"");
    let fleet = Fleet::start(config(folder.path(), &promised)).unwrap();
    wait(&fleet, "its trouble", |status| status.journal_trouble.is_some());
    // Whoever asks it to decide would hear of it.
    fleet.shared.panics_next_step.store(true, Ordering::Relaxed);
    let steps = fleet.status().controller.steps;
    wait(&fleet, "five turns", |status| status.controller.steps >= steps + 5);
    let status = fleet.status();
    assert_eq!((status.controller.restarts, &*status.volumes[0].state), (0, "unjudged"));
    let told = status.journal_trouble.unwrap();
    assert!(told.contains("state/responses.json`: "), "{told}");
    std::fs::remove_dir(&beside).unwrap();
    wait(&fleet, "the end of its trouble", |status| status.journal_trouble.is_none());
    wait(&fleet, "it is asked again", |status| status.controller.restarts == 1);
    wait(&fleet, "it judges again", |status| status.volumes[0].state == "low_load");
    drop(fleet);
    proxy.shutdown();
    storage.shutdown();
}

#[test]
fn what_was_reported_during_a_slow_turn_is_not_lost() {
    let host = HostSpec::new(HostId(0), "h1", 0, Bytes::gib(4));
    let mut responses = Responses::new(ResponseRules::default(), vec![host]);
    for index in 0..3 {
        let route = VolumeRoute {
            name: format!("v{index}"),
            draining: Draining::ByItself,
            leased: false,
            home: HostId(0),
            unfit: Vec::new(),
            apart: Vec::new(),
            way: Way::default(),
        };
        responses.register(id_of(index), route);
        let wish = Wish { cache: Bytes::mib(16), flash: Bytes::ZERO, rate: 64.0, host: None };
        responses.want(id_of(index), wish);
    }
    let (reporter, reports) = channel();
    let starts: Vec<_> = (1..4).flat_map(|at| due(&mut responses, &reports, Nanos::secs(at))).collect();
    assert_eq!(starts.len(), 3);
    starts.iter().for_each(|order| reporter.send((order.id, Outcome::Done)).unwrap());
    // Long after each of them counts as lost, if nothing is heard.
    let next = due(&mut responses, &reports, Nanos::secs(100));
    assert!(next.len() == 3 && next.iter().all(|order| matches!(order.what, What::Probe { .. })), "{next:?}");
}

#[test]
fn a_folder_of_state_is_one_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        |socket: &str| FleetConfig { socket: folder.path().join(socket), ..config(folder.path(), "") };
    let first = Fleet::start(config("one.sock")).unwrap();
    let refused = Fleet::start(config("two.sock")).err().map(|error| error.to_string());
    let refused = refused.expect("two controllers with one state");
    assert!(refused.contains("another process has it"), "{refused}");
    assert!(refused.contains("end the other `forebay control` that has this one, or give each"), "{refused}");
    drop(first);
    drop(Fleet::start(config("two.sock")).unwrap());
}

/// Prometheus asks no unix socket. Whoever comes by TCP is told the same, and changes nothing.
#[test]
fn over_tcp_it_is_read_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "leased = false");
    config.listen = Some("127.0.0.1:0".parse().unwrap());
    let fleet = Fleet::start(config).unwrap();
    let address = fleet.http_address().expect("it listens");
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!("{request}Host: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = ask("GET /metrics HTTP/1.1\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("forebay_controller_up 1"), "{metrics}");
    assert!(ask("GET /api/v1/status HTTP/1.1\r\n").starts_with("HTTP/1.1 200"));
    let pause =
        ask("PUT /api/v1/controller HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 0\r\n");
    assert!(pause.starts_with("HTTP/1.1 403") && pause.contains("use the unix socket"), "{pause}");
    assert!(fleet.set_controller_enabled(false).was_enabled);
}
