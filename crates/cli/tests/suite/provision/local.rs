//! Appliances as processes of this machine.

use super::{Place, Storage, live_and_die, order, soon, use_volume};
use forebay_actuate::provision::LocalProcess;
use forebay_actuate::{Deadline, Endpoint, Provider, ProvisionError};
use forebay_prerequisite::programs;
use forebay_units::Bytes;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

fn provider(folder: &Path) -> LocalProcess {
    LocalProcess::new(folder.join("appliances"), FOREBAY).expect("the folder can be made")
}

/// A program in `folder` that is run in place of `forebay`.
fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The number that is kept of the appliance's process.
fn process(folder: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join("appliances/a/process.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn signal(name: &str, folder: &Path) {
    let pid = process(folder)["pid"].to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn a_process_lives_does_as_told_and_dies() {
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let order = order("a", storage.endpoint());
    let before = storage.requests();
    live_and_die(&provider(folder.path()), &provider(folder.path()), &order, &storage);
    assert!(storage.requests() > before);
    let left: Vec<_> = std::fs::read_dir(folder.path().join("appliances")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_listed_runs_and_is_known_to_have_been_ordered() {
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let provider = provider(folder.path());
    let orders = ["a", "b", "c"].map(|id| order(id, storage.endpoint()));
    let running = orders.each_ref().map(|order| provider.start(order, soon()).unwrap());
    // What else is there is none.
    std::fs::create_dir(folder.path().join("appliances/Not one")).unwrap();
    std::fs::create_dir(folder.path().join("appliances/empty")).unwrap();
    std::fs::write(folder.path().join("appliances/b/order.json"), "rubbish").unwrap();
    signal("-KILL", folder.path());
    let listed = || provider.list(&orders[0].token, soon()).unwrap();
    let only_c = || (listed().iter().map(|of| &of.running).eq([&running[2]])).then_some(());
    soon().wait_for(only_c).expect("the dead, and what nobody knows of, are left out");
    std::fs::remove_dir_all(folder.path().join("appliances/Not one")).unwrap();
}

#[test]
fn whoever_comes_next_finds_the_process_and_takes_no_other_for_it() {
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let order = order("a", storage.endpoint());
    let first = provider(folder.path());
    let running = first.start(&order, soon()).unwrap();
    drop(first);
    // The controller died before it wrote down which process it had started.
    std::fs::remove_file(folder.path().join("appliances/a/process.json")).unwrap();
    let next = provider(folder.path());
    assert_eq!(next.find(&order.id).unwrap(), Some(running.clone()));
    let known = process(folder.path());
    // It was killed, and its number is another's now: ours, as it happens.
    signal("-KILL", folder.path());
    soon()
        .wait_for(|| next.find(&order.id).unwrap().is_none().then_some(()))
        .expect("the dead are not found");
    let mut reused = known.clone();
    reused["pid"] = std::process::id().into();
    std::fs::write(folder.path().join("appliances/a/process.json"), reused.to_string()).unwrap();
    assert_eq!(next.find(&order.id).unwrap(), None);
    next.stop(&order.id, soon()).expect("there is nothing to stop, and we live");
    // What is left of a dead one is no obstacle to the next.
    assert_eq!(next.start(&order, soon()).unwrap(), running);
    signal("-KILL", folder.path());
    assert_eq!(next.start(&order, soon()).unwrap(), running);
    use_volume(&running.endpoints["db"].uri, &storage);
    next.stop(&order.id, soon()).unwrap();
}

#[test]
fn what_cannot_serve_is_told_in_its_own_words_and_nothing_is_left() {
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let left = || std::fs::read_dir(folder.path().join("appliances")).unwrap().count();
    // Its origin is not there.
    let absent = Endpoint::new(forebay_nbd::Uri::unix(folder.path().join("nobody.sock"), "db"));
    let error = provider(folder.path()).start(&order("a", absent), soon()).unwrap_err();
    assert!(matches!(&error, ProvisionError::Died { said, .. } if said.contains("nobody.sock")), "{error}");
    assert_eq!(left(), 0);
    // There is no program.
    let none = LocalProcess::new(folder.path().join("appliances"), "/nowhere/forebay").unwrap();
    let error = none.start(&order("a", storage.endpoint()), soon()).unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Spawn { program, .. } if program == "/nowhere/forebay"),
        "{error}"
    );
    assert_eq!(left(), 0);
    // It hangs, and does not listen to reason.
    let script = script(folder.path(), "trap '' TERM; echo 'I think'; while :; do sleep 0.05; done");
    let hanging = LocalProcess::new(folder.path().join("appliances"), script).unwrap();
    let began = Instant::now();
    let deadline = Deadline::after(Duration::from_millis(700));
    let error = hanging.start(&order("a", storage.endpoint()), deadline).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20), "the deadline is kept: {:?}", began.elapsed());
    let in_words = error.to_string();
    assert!(matches!(error, ProvisionError::NotInTime { .. }) && in_words.contains("I think"), "{in_words}");
    assert_eq!(left(), 0);
    // The caches leave nothing for the rest.
    let mut greedy = order("a", storage.endpoint());
    greedy.memory = Bytes::mib(5);
    let error = hanging.start(&greedy, soon()).unwrap_err();
    assert!(matches!(error, ProvisionError::Order(_)), "{error}");
}

#[test]
fn a_process_that_is_stopped_in_its_tracks_is_killed_in_time() {
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let order = order("a", storage.endpoint());
    let provider = provider(folder.path());
    provider.start(&order, soon()).unwrap();
    signal("-STOP", folder.path());
    let began = Instant::now();
    provider.stop(&order.id, Deadline::after(Duration::from_secs(2))).expect("it is killed");
    assert!(began.elapsed() < Duration::from_secs(20), "the deadline is kept: {:?}", began.elapsed());
    assert_eq!(provider.find(&order.id).unwrap(), None);
}

/// A control group of 48 MiB that is removed at the end.
pub(crate) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// `None` where none can be made.
    pub(crate) fn new(name: &str) -> Option<ControlGroup> {
        let name = format!("forebay-test-{}-{name}", std::process::id());
        [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
            .iter()
            .find_map(|(root, limit)| {
                let path = Path::new(root).join(&name);
                std::fs::create_dir(&path).ok()?;
                let group = ControlGroup(path);
                // A folder in something else has no limits.
                let limits = group.0.join(limit).exists();
                limits.then(|| std::fs::write(group.0.join(limit), (48 << 20).to_string()).ok())??;
                Some(group)
            })
    }
}

impl ControlGroup {
    /// What a shell says to be in it.
    pub(crate) fn join(&self) -> String {
        format!("echo $$ >{}/cgroup.procs; ", self.0.display())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_host_that_promised_more_memory_than_it_has_is_found_out() {
    if !programs("a control group", &[], true) {
        return;
    }
    let Some(group) = ControlGroup::new("host") else {
        println!("skipped: a host with too little memory: no control group can be made here");
        return;
    };
    let folder = Place::new();
    let storage = Storage::local(folder.path());
    let shared = tempfile::tempdir_in("/dev/shm").expect("there is shared memory");
    let join = group.join();
    let serve = format!("exec {FOREBAY} \"$@\"");
    let script = script(folder.path(), &(join.clone() + &serve));
    let liar = LocalProcess::new(folder.path().join("appliances"), script).unwrap();
    // Said to be there: 96 MiB for an appliance with 40 MiB of cache. The group has 48.
    let mut order = order("a", storage.endpoint());
    (order.memory, order.volumes[0].cache) = (Bytes::mib(96), Bytes::mib(40));
    let error = liar.start(&order, soon()).unwrap_err().to_string();
    assert!(error.contains("64MiB is more than nine tenths of the 48MiB"), "{error}");
    // It would fit, if the others had not taken what the host promised.
    order.memory = Bytes::mib(74);
    let take = format!("head -c {} /dev/zero >{}/taken; ", 16 << 20, shared.path().display());
    self::script(folder.path(), &(join + &take + &serve));
    let error = liar.start(&order, soon()).unwrap_err();
    assert!(matches!(&error, ProvisionError::Short { what: "memory", .. }), "{error}");
    assert_eq!(liar.find(&order.id).unwrap(), None);
}
