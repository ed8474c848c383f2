//! With the appliance on another machine, by a real `sshd`.

use super::{Appliances, Controller, HASTE, Ledger, Telling, Work, count, drive, step};
use crate::provision::ssh::Machine;
use crate::reroute::SECRET;
use crate::support::{SetOnDrop, file, folder, secret_file};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use std::sync::atomic::Ordering;

#[test]
fn an_appliance_on_another_machine_serves_and_outlives_its_controller() {
    if !programs("a controller with a host by ssh", &Machine::PREREQUISITES, true) {
        return;
    }
    let folder = folder();
    let machine = Machine::new(2, folder.path());
    let (here, there) = (machine.host.here, machine.host.there);
    file(&folder, "db.img", vec![0; 1 << 20]);
    let watch = format!(
        "listen = [\"tcp:{here}:0\"]\nleases.path = \"leases.json\"\nhttp.listen = \"off\"\nhttp.socket = \"watch.sock\"\ncontrol.interval = \"200ms\"\n\
         [[volume]]\nname = \"db\"\norigin = \"db.img\"\nsecret = \"{SECRET}\"\nlayers = [{{ type = \"delay\", read = \"8ms\", write = \"8ms\" }}]\n"
    );
    let watch = Config::read(&secret_file(&folder, "watch.toml", watch)).expect("a good configuration");
    let watch = Daemon::start(watch.watching().expect("a good configuration")).expect("it starts");
    let origin = watch.uris("db")[0].clone();
    let (server, _) = origin.rsplit_once('/').expect("an export");
    let proxy = format!(
        "listen = [\"unix:nbd.sock\"]\nroutes.path = \"routes.json\"\nhttp.listen = \"off\"\nhttp.socket = \"proxy.sock\"\ncontrol.enabled = false\n\
         [[volume]]\nname = \"db\"\norigin = {{ type = \"nbd\", uri = \"{server}/db.{SECRET}\" }}\ncache = \"0\"\n"
    );
    let proxy = Config::read(&secret_file(&folder, "proxy.toml", proxy)).expect("a good configuration");
    let proxy = Daemon::start(proxy).expect("it starts");
    // In the name of its folder, by which a test finds its appliances.
    let kept = folder.path().join("state/hosts/there");
    let control = format!(
        "socket = \"control.sock\"\nstate = \"state\"\ninterval = \"200ms\"\n{HASTE}\
         response = {{ probe_every_ms = 200, probe_within_ms = 1000, retry_first_ms = 200 }}\n\
         [[host]]\nname = \"h0\"\nmemory = \"256MiB\"\nprovider = {{ type = \"ssh\", destination = \"{there}\", address = \"{there}\", options = [\"-F\", \"none\", \"-p\", \"9\"] }}\n\
         [[host]]\nname = \"h1\"\nmemory = \"256MiB\"\nprovider = {{ type = \"ssh\", destination = \"{there}\", address = \"{there}\", options = {:?}, program = {:?}, folder = {kept:?} }}\n\
         [[volume]]\nname = \"db\"\nhome = \"h0\"\norigin = \"{server}/db\"\nsecret = \"{SECRET}\"\nwatch = \"unix:watch.sock\"\nroute = {{ type = \"proxy\", server = \"unix:proxy.sock\" }}\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\n",
        machine.options(),
        env!("CARGO_BIN_EXE_forebay"),
    );
    secret_file(&folder, "control.toml", control);
    let appliances = Appliances(folder.path().to_owned());
    let mut controller = Controller::start(folder.path(), None);
    let telling = Telling(folder.path());

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = proxy.uris("db")[0].parse().expect("a daemon's URI");
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        telling.wait("the end of the violation", |told| {
            count(told, "cache_in_place") == 1 && count(told, "violation_ended") == 1
        });
        assert_eq!(appliances.pids().len(), 1);
        // The application's own host cannot be reached: nothing was asked of it, and the next one is.
        let told = telling.explained("db").expect("it answers").to_string();
        assert!(told.contains("Connection refused"), "{told}");
        // The next controller asks that machine what runs there.
        controller.kill();
        controller = Controller::start(folder.path(), None);
        telling.wait("the appliance in the hands of the next controller", |told| {
            step(told).contains("serving: appliance 2 on h1")
        });
        assert_eq!(appliances.pids().len(), 1);
        let before = work.done.load(Ordering::Relaxed);
        telling.wait("clients that go on", |_| work.done.load(Ordering::Relaxed) > before + 1000);
        drop(stops);
    });
    telling.wait("the original route", |told| step(told).contains("original route"));
    telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
    assert_eq!((ledger.failed, proxy.status().volumes[0].errors), (0, 0));
}
