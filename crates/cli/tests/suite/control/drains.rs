//! A host and a volume are drained while a client works: the cache goes to another host, the volume goes without one, and the client sees no error, whenever the controller is killed.

use super::{Appliances, Controller, Ledger, Telling, Work, count, drive, one_machine, step};
use crate::support::{SetOnDrop, fail, file, folder, run, succeed};
use forebay_nbd::Uri;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_serve::lease::LeaseHolder;
use serde_json::Value;

#[test]
fn a_drained_host_and_a_drained_volume_end_without_an_appliance_and_clients_see_no_error() {
    let folder = folder();
    one_machine(&folder);
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path().to_owned());
    let telling = Telling(folder.path());
    let server = telling.server();
    let control = folder.path().join("control.toml");
    let before = std::fs::read_to_string(&control).unwrap();
    let hosts = |hosts: &[(&str, &str)], volume: &str| {
        let (head, rest) = before.split_once("[[host]]").expect("a host");
        let (_, rest) = rest.split_once("[[volume]]").expect("a volume");
        let hosts = hosts
            .iter()
            .map(|(name, more)| format!("[[host]]\nname = \"{name}\"\nmemory = \"256MiB\"\n{more}"));
        let text = format!("{head}{}[[volume]]\n{volume}{rest}", hosts.collect::<String>());
        file(&folder, "control.toml", text.replace("home = \"h1\"", "home = \"h2\""));
    };
    let drain = "drain = true\n";
    let status = || succeed(["status", "--once", "--server", &server]);
    let holder = || watch.status().volumes[0].lease.expect("it has leases").holder;
    // Tried first is `h2`, the home, which is left for `h1`.
    hosts(&[("h1", ""), ("h2", "")], "");
    let mut controller = Controller::start(folder.path(), None);

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        let serves = |told: &Value, host: &str| {
            step(told).contains("serving: appliance") && step(told).ends_with(host)
        };
        telling.wait("a cache on its home", |told| serves(told, " on h2"));
        telling.wait("the end of the violation", |told| count(told, "violation_ended") == 1);

        // Whoever removes the host first is told how to, and with what its cache stays.
        controller.kill();
        hosts(&[("h1", ""), ("h3", "")], "");
        let renamed = std::fs::read_to_string(&control).unwrap().replace("home = \"h2\"", "home = \"h1\"");
        file(&folder, "control.toml", renamed);
        let (_, said) = fail(["control", &control.display().to_string()]);
        assert!(
            said.contains("host `h2` has appliance 1 of volume `db`") && said.contains("`drain = true`"),
            "{said}"
        );

        // The host is drained, and the controller killed in the middle of it.
        hosts(&[("h1", ""), ("h2", drain)], "");
        controller = Controller::start(folder.path(), None);
        telling.wait("the drain has begun", |told| count(told, "removed") > 0);
        controller.kill();
        controller = Controller::start(folder.path(), None);
        let told = telling.wait("a cache on the other host", |told| serves(told, " on h1"));
        assert_eq!(count(&told, "appliance_failed"), 0, "{told}");
        telling.wait("the end of what was drained", |_| {
            status().contains("host `h2` is drained: nothing is on it, and it may be removed from the file")
        });
        assert_eq!((appliances.pids().len(), holder()), (1, LeaseHolder::Named));
        assert_eq!(telling.metrics().get("forebay_host_draining{host=\"h2\"}"), Some(&0.0));

        // So it may be; its volume's home is anywhere. Now the volume is to have none.
        controller.kill();
        hosts(&[("h2", "")], "");
        let (_, said) = fail(["control", &control.display().to_string()]);
        assert!(said.contains("host `h1` has appliance"), "{said}");
        hosts(&[("h1", ""), ("h2", "")], drain);
        controller = Controller::start(folder.path(), None);
        telling.wait("the original route", |told| step(told).contains("original route"));
        telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
        telling.wait("nothing left of the volume", |_| {
            status().contains("volume `db` is drained: it has no appliance, and may be removed from the file")
        });
        assert_eq!(telling.metrics().get("forebay_volume_draining{volume=\"db\"}"), Some(&0.0));
        assert_eq!(holder(), LeaseHolder::Original);
        telling.wait("why it has no cache", |told| {
            count(told, "not_cacheable") > 0
                && told["decisions"].to_string().contains("it is drained (`drain = true`)")
        });

        // It is allowed one again, and no host is.
        controller.kill();
        hosts(&[("h1", drain), ("h2", drain)], "");
        let checked = run(["control", "--check", &control.display().to_string()]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && said.contains("are drained: `h1`, `h2`"), "{said}");
        controller = Controller::start(folder.path(), None);
        telling.wait("why nothing is placed", |told| {
            told["decisions"].to_string().contains("h1 is drained, h2 is drained")
        });
        assert!(appliances.pids().is_empty());

        controller.kill();
        hosts(&[("h1", drain), ("h2", "")], "");
        controller = Controller::start(folder.path(), None);
        telling.wait("a cache again", |told| serves(told, " on h2"));
        drop(stops);
    });
    telling.wait("the original route", |told| step(told).contains("original route"));
    telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
    assert_eq!((ledger.failed, proxy.status().volumes[0].errors), (0, 0), "clients are told of no error");
    drop(controller);
}
