//! What is read of a fleet's file, and what is refused of it.

use super::*;

const GOOD: &str = r#"
    socket = "control.sock"
    state = "state"
    interval = "1s"
    [[host]]
    name = "h1"
    memory = "1GiB"
    [[volume]]
    name = "db"
    home = "h1"
    origin = "nbd+unix:///db?socket=/run/watch.sock"
    watch = "unix:/run/watch-http.sock"
    route = { type = "proxy", server = "unix:/run/proxy-http.sock" }
    [[objective]]
    volume = "db"
    latency = "5ms"
"#;

#[test]
fn a_file_is_read_and_its_mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        FleetConfig::read(&path)
    };
    let config = read(GOOD).unwrap();
    assert_eq!(config.socket, folder.path().join("control.sock"));
    assert_eq!(config.objectives("db")[0].window, Nanos::secs(1));
    assert!(config.volume[0].leased && config.objectives("other").is_empty());
    // Of what is only watched nothing is cached, and what is no number behind an `@` is no epoch.
    let route = "route = { type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }";
    read(&GOOD.replace(route, "block_size = \"128KiB\"").replace("/db?", "/db@snap?")).unwrap();
    let watched = read(&GOOD.replace(route, "")).unwrap();
    assert_eq!(
        watched.volume[0].uncacheable(),
        Some("its clients cannot be moved to one: it has no `route`")
    );
    let told = "prometheus = { url = \"http://127.0.0.1:9090\", reads = \"r\", read_seconds = \"s\" }";
    let heard = GOOD.replace(route, "").replace("watch = \"unix:/run/watch-http.sock\"", told);
    let why = read(&heard).unwrap().volume[0].uncacheable().unwrap();
    assert!(
        why.starts_with("nobody knows its locality") && why.ends_with("no `watch` and no `route`"),
        "{why}"
    );
    assert_eq!(config.volume[0].uncacheable(), None);
    let beside = read(&GOOD.replace("/run/", "")).unwrap();
    let [watch, origin, proxy] =
        ["watch-http.sock", "watch.sock", "proxy-http.sock"].map(|name| folder.path().join(name));
    assert_eq!(beside.volume[0].watch, Some(ApiAddress::Unix(watch)));
    assert_eq!(beside.volume[0].origin.transport, Transport::Unix { path: origin });
    let Some(RouteTable::Proxy { server, .. }) = &beside.volume[0].route else { panic!() };
    assert_eq!(*server, ApiAddress::Unix(proxy));
    for (from, to, told) in [
        ("\"1s\"", "\"1ms\"", "line 4, `interval`: 1ms, expected 100ms to 1h"),
        ("\"1s\"", "\"often\"", "control.toml`, line 4, `interval`: `often` is not a span of time"),
        (
            "home = \"h1\"",
            "home = \"h2\"",
            "line 10, `volume[0].home`: `h2` of volume `db`, expected the name of a host: `h1`",
        ),
        ("watch = ", "watc = ", "line 12, `volume[0].watc`: unknown field `watc`"),
        ("server = ", "servr = ", "`volume[0].route`: unknown field `servr`"),
        ("\"proxy\"", "\"nfs\"", ": `nfs`, expected one of `proxy`, `qmp`, `address`"),
        (", server = \"unix:/run/proxy-http.sock\"", "", "missing field `server`"),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = { type = \"kvm\" }",
            "`kvm`, expected one of `process`, `namespace`",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = { type = \"qemu\", image = \"i\", namespace = \"n\" }",
            "unknown field `namespace`",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = { type = \"qemu\", image = \"i\" }",
            "`h1` runs virtual machines, which do not reach the volume's origin: neither on a unix socket, nor",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"999TiB\"\nprovider = { type = \"ssh\", destination = \"h1\", address = \"10.0.0.2\" }",
            "`h1` is another machine, which does not reach the volume's origin on a unix socket",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = { type = \"ssh\", destination = \"-oProxyCommand=x\", address = \"10.0.0.2\" }",
            "expected a machine, as in `user@machine`",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = { type = \"ssh\", destination = \"h1\", address = \"0.0.0.0\" }",
            "`host[0].provider.address`: `0.0.0.0` on `h1`, expected the address of it",
        ),
        (
            "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
            "{ type = \"address\", address = \"10.0.0.9/24\", interface = \"eth0\" }",
            "`h1` has no interface that the volume's address could move to",
        ),
        (
            "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
            "{ type = \"address\", address = \"10.0.0.9\", interface = \"eth0\" }",
            "expected an address and a prefix",
        ),
        (
            "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
            "{ type = \"qmp\", socket = \"q\", node = \"a-node-of-many-letters\", first = \"f\" }",
            "expected a node's name of 1 to 20 bytes",
        ),
        (
            "watch = ",
            "secret = \"short\"\nwatch = ",
            "line 12, `volume[0].secret`: the text is no secret: expected 16 to 128",
        ),
        ("interval = \"1s\"", "[control.feedback]\ngain = 0", "line 5, `control.feedback.gain`: 0"),
        ("watch = ", "secret = \"0123456789abcdef\"\nwatch = ", "others than its owner may read it"),
        ("latency = \"5ms\"", "", "one of them"),
        (
            "latency = \"5ms\"",
            "latency = \"0s\"",
            "line 16, `objective[0].latency`: 0s, expected a span above 0",
        ),
        ("latency = \"5ms\"", "latency = \"2h\"", "expected at most 1h"),
        ("latency = \"5ms\"", "iops = -1", "`objective[0].iops`: -1, expected a number above 0"),
        (
            "latency = \"5ms\"",
            "iops = 5\nwindow = \"1ms\"",
            "`objective[0].window`: 1ms, expected 100ms to 1d",
        ),
        ("latency = \"5ms\"", "iops = 5\nconforming = 2", "`objective[0].conforming_share`: 2"),
        (
            "latency = \"5ms\"",
            "iops = 5\nconforming_share = 2",
            "line 17, `objective[0].conforming_share`: 2",
        ),
        ("latency = \"5ms\"", "iops = 5\nweight = 0", "`objective[0].weight`: 0"),
        (
            "memory = \"1GiB\"",
            "memory = \"0B\"",
            "line 7, `host[0].memory`: 0B on `h1`, expected a size above 0",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"64MiB\"",
            "line 7, `host[0].memory`: 64MiB on `h1`, where no volume can ever have a cache, expected a block more than the 64MiB at least",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"100MiB\"\n[response.cost]\nmemory_bytes = 104857600\n[[host]]\nname = \"h2\"\nmemory = \"1GiB\"",
            "`host[0].memory`: 100MiB on `h1`, where no volume can ever have a cache, expected a block more than the 100MiB",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"999TiB\"",
            "`host[0].memory`: 999TiB on `h1`, expected at most the",
        ),
        ("volume = \"db\"", "volume = \"d\"", "the name of a volume"),
        (
            "watch = ",
            "block_size = \"128KiB\"\nwatch = ",
            "line 12, `volume[0].block_size`: 128KiB, expected",
        ),
        ("/db?", "/db@3?", "expected an export without an epoch"),
        ("name = \"db\"", "name = \"d\\nb\"", "`volume[0].name`: `d\\nb`, expected a name without"),
        ("\"control.sock\"", "\"none/control.sock\"", "line 2, `socket`: the folder `"),
        ("\"control.sock\"", "\".\"", "exists and is no socket"),
        ("\"state\"", "\"control.toml\"", "line 3, `state`: `"),
        ("interval = ", "listen = \"0.0.0.0:9810\"\ninterval = ", "`listen`: `0.0.0.0:9810`, which is not"),
        ("interval = ", "listen = \"localhost\"\ninterval = ", "`listen`: "),
        ("interval = ", "history = \"/dev/null\"\ninterval = ", "which is there and is no file"),
        (
            "interval = ",
            "response.starting_max = 0\ninterval = ",
            "line 4, `response.starting_max`: 0, expected at least 1",
        ),
        (
            "interval = ",
            "response.cost.memory_share = -5\ninterval = ",
            "`response.cost.memory_share`: -5, expected 0 to 10",
        ),
        ("name = \"db\"", "name = \"d@b\"", "without `@`"),
        (
            "name = \"h1\"\n    memory = \"1GiB\"",
            "name = \"h1\"\n    memory = \"much\"",
            "line 7, `host[0].memory`: `much`",
        ),
        ("name = \"h1\"", "", "line 5, `host[0]`: missing field `name`"),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprovider = 5",
            "line 8, `host[0].provider`: `5`, expected a table",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nrack = -1",
            "line 8, `host[0].rack`: `-1`, expected a whole number from 0 to 4294967295",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        let place = format!("`{}`", path.display());
        let mut lines = error.lines();
        assert!(lines.all(|line| line.starts_with(&place) || line.starts_with("  hint: ")), "{error}");
        assert!(error.contains(told), "{from}: {error}");
    }
}

#[test]
fn hosts_of_this_machine_offer_no_more_memory_together_than_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let total = crate::config::memory_total().expect("a system that says so").get();
    let read = |second: u64| {
        let host = format!("[[host]]\nname = \"h2\"\nmemory = \"{second}B\"\n[[volume]]");
        std::fs::write(&path, GOOD.replacen("[[volume]]", &host, 1)).unwrap();
        FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read(total - (1 << 30)), Ok(()));
    let error = read(total - (1 << 30) + 1).unwrap_err();
    assert!(
        error.contains("`host[1].memory`") && error.contains("with 1GiB on the hosts before it"),
        "{error}"
    );
}

#[test]
fn hosts_of_this_machine_offer_no_more_processors_together_than_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let here = std::thread::available_parallelism().unwrap().get() as f64;
    let read = |second: f64| {
        let hosts = GOOD.replacen("memory = \"1GiB\"", "memory = \"1GiB\"\ncpus = 0.5", 1);
        let host = format!("[[host]]\nname = \"h2\"\nmemory = \"128MiB\"\ncpus = {second}\n[[volume]]");
        std::fs::write(&path, hosts.replacen("[[volume]]", &host, 1)).unwrap();
        FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read(here - 0.5), Ok(()));
    let error = read(here - 0.25).unwrap_err();
    assert!(error.contains("`host[1].cpus`") && error.contains("with 0.5 on the hosts before it"), "{error}");
}

#[test]
fn what_nobody_can_be_had_or_reached_by_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let provider = |text: &str| ("memory = \"1GiB\"", format!("memory = \"1GiB\"\nprovider = {{ {text} }}"));
    let route = |text: &str| {
        ("{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }", format!("{{ {text} }}"))
    };
    let namespace = |text: &str| provider(&format!("type = \"namespace\", {text}"));
    let qmp = |text: &str| route(&format!("type = \"qmp\", {text}"));
    let address =
        |text: &str| route(&format!("type = \"address\", interface = \"eth0\", address = \"{text}\""));
    let long = "q".repeat(120);
    // As a copy on a full disk leaves it.
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("vmlinuz"), "").unwrap();
    std::fs::write(empty.join("initramfs"), "not empty").unwrap();
    for ((from, to), told) in [
        (provider("type = \"qemu\", image = \"empty\""), "in it, neither of them empty"),
        (provider("type = \"process\", program = \"./none\""), "host[0].provider.program`: `"),
        (provider("type = \"process\", program = \"\""), "host[0].provider.program`: ``"),
        // A name is looked for in PATH, whatever lies beside the file.
        (
            provider("type = \"process\", program = \"control.toml\""),
            "expected a program in one of the folders of PATH",
        ),
        (provider("type = \"qemu\", image = \"none\""), "expected the folder of an image"),
        // It is there, and holds none.
        (provider("type = \"qemu\", image = \".\""), "expected the folder of an image, with `vmlinuz`"),
        (provider("type = \"qemu\", image = \".\", accelerator = \"\""), "host[0].provider.accelerator`: ``"),
        (
            provider("type = \"libvirt\", image = \".\", connection = \"qemu:///session\", kind = \"xen\""),
            "host[0].provider.kind`: `xen` on `h1`, expected `kvm` or `qemu`",
        ),
        (
            provider("type = \"libvirt\", image = \".\", connection = \"\""),
            "host[0].provider.connection`: ``",
        ),
        (namespace("namespace = \"../x\", address = \"10.0.0.1\""), "host[0].provider.namespace`: `../x`"),
        (namespace("namespace = \"n\", address = \"0.0.0.0\""), "host[0].provider.address`: `0.0.0.0`"),
        (
            namespace("namespace = \"n\", address = \"10.0.0.1\", interface = \"sixteen-letters-\""),
            "host[0].provider.interface`: `sixteen-letters-`",
        ),
        (
            qmp(&format!("socket = \"{long}\", node = \"db\", first = \"f\"")),
            "`volume[0].route.socket`: a path of 1",
        ),
        (qmp("socket = \"q\", node = \"d b\", first = \"f\""), "volume[0].route.node`: `d b`"),
        (qmp("socket = \"q\", node = \"db\", first = \"db\""), "volume[0].route.first`: `db`"),
        (
            qmp("socket = \"q\", node = \"db\", first = \"f\", device = \"a/b\""),
            "volume[0].route.device`: `a/b`",
        ),
        (route("type = \"proxy\", server = \"127.0.0.1:0\""), "volume[0].route.server`: `127.0.0.1:0`"),
        (address("127.0.0.1/8"), "volume[0].route.address`: 127.0.0.1"),
        (address("224.0.0.1/4"), "volume[0].route.address`: 224.0.0.1"),
        (
            ("watch = \"unix:/run/watch-http.sock\"", "watch = \"0.0.0.0:1\"".to_owned()),
            "volume[0].watch`: `0.0.0.0:1`",
        ),
        (
            ("name = \"h1\"", "name = \"../h1\"".to_owned()),
            "host[0].name`: `../h1`, expected a name that a folder can have",
        ),
        (
            ("memory = \"1GiB\"", "memory = \"1GiB\"\ncpus = 5000".to_owned()),
            "host[0].cpus`: 5000 on `h1`, expected at most the",
        ),
        (("\"control.sock\"", "\"state\"".to_owned()), "state`, which is the folder of `state`"),
        (("\"control.sock\"", "\"state/secret.json\"".to_owned()), "which is what `state` keeps"),
        (("nbd+unix:///db?", "nbds+unix:///db?".to_owned()), "expected an export without TLS"),
        (
            (
                "interval = ",
                "response.rest_first_ms = 70000\nresponse.rest_max_ms = 60000\ninterval = ".to_owned(),
            ),
            "`response.rest_first_ms`: 70000, expected at most the longest",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        std::fs::write(&path, GOOD.replacen(from, &to, 1)).unwrap();
        let error = FleetConfig::read(&path).expect_err(&to).to_string();
        assert!(error.contains(told), "{to}: {error}");
    }
}

/// Two hosts that are namespaces, and a volume whose clients come by an address.
const BY_ADDRESS: &str = r#"
    socket = "control.sock"
    state = "state"
    [[host]]
    name = "h1"
    memory = "128MiB"
    provider = { type = "namespace", namespace = "n1", address = "10.0.0.3", interface = "eth1" }
    [[host]]
    name = "h2"
    memory = "128MiB"
    provider = { type = "namespace", namespace = "n2", address = "10.0.0.4", interface = "eth1" }
    [[volume]]
    name = "db"
    home = "h1"
    origin = "nbd://10.0.0.2/db"
    secret = "0123456789abcdef"
    watch = "10.0.0.2:80"
    route = { type = "address", address = "10.0.0.9/24", interface = "eth0" }
"#;

/// All that is wrong, a line each, with `from` replaced by `to`.
fn wrong_by_address(from: &str, to: &str) -> Vec<String> {
    assert!(BY_ADDRESS.contains(from), "{from}");
    match reading::parse("c.toml", &BY_ADDRESS.replacen(from, to, 1), Path::new("/etc")) {
        Ok(_) => Vec::new(),
        Err(error) => error.to_string().lines().map(ToOwned::to_owned).collect(),
    }
}

#[test]
fn a_storage_side_at_an_address_that_moves_is_a_mistake() {
    let moves = "at the address that the route of volume `db` moves, expected an address that stays with the storage side";
    let other = "[[volume]]\nname = \"web\"\nhome = \"h1\"\norigin = \"nbd://[::ffff:10.0.0.9]:1/web\"\nwatch = \"10.0.0.2:80\"\n[[volume]]";
    for (from, to, told) in [
        (
            "nbd://10.0.0.2/",
            "nbd://10.0.0.9:5/",
            format!("`volume[0].origin`: `nbd://10.0.0.9:5/db`, {moves}"),
        ),
        ("10.0.0.9/24", "10.0.0.2/24", format!("`volume[0].origin`: `nbd://10.0.0.2/db`, {moves}")),
        ("10.0.0.2:80", "10.0.0.9:80", format!("`volume[0].watch`: `10.0.0.9:80`, {moves}")),
        ("[[volume]]", other, format!("`volume[0].origin`: `nbd://[::ffff:10.0.0.9]:1/web`, {moves}")),
    ] {
        let wrong = wrong_by_address(from, to);
        assert!(wrong[0].ends_with(&told), "{to}: {wrong:#?}");
    }
    assert_eq!(wrong_by_address("nbd://10.0.0.2/", "nbd://10.0.0.8/"), [""; 0]);
}

#[test]
fn an_address_that_moves_is_the_volumes_alone_and_one_that_hosts_can_have() {
    let can_have = "expected an address that a host can have";
    let on_the_wire = "expected an interface by which others reach the address";
    for (from, to, told) in [
        (
            "10.0.0.9/24",
            "10.0.0.4/24",
            "`volume[0].route.address`: 10.0.0.4, which is that of host `h2`, expected one that is the volume's alone: it moves".to_owned(),
        ),
        (
            "10.0.0.9/24",
            "10.0.0.0/24",
            format!("`volume[0].route.address`: 10.0.0.0/24, the address of its network itself, {can_have}"),
        ),
        (
            "10.0.0.9/24",
            "10.0.0.11/30",
            format!("`volume[0].route.address`: 10.0.0.11/30, the broadcast address of its network, {can_have}"),
        ),
        (
            "10.0.0.9/24",
            "10.0.0.9/0",
            "`volume[0].route.address`: 10.0.0.9/0, expected a prefix of 1 to 32".to_owned(),
        ),
        ("\"eth0\"", "\"lo\"", format!("`volume[0].route.interface`: `lo`, {on_the_wire}")),
        ("\"eth1\"", "\"lo\"", format!("`host[0].provider.interface`: `lo` on `h1`, {on_the_wire}")),
        (
            "\"n2\"",
            "\"n1\"",
            "`host[1].provider.namespace`: `n1` on `h2`, as on `h1`, expected a namespace of the host's own".to_owned(),
        ),
        (
            "10.0.0.4",
            "10.0.0.3",
            "`host[1].provider.address`: `10.0.0.3` on `h2`, as on `h1`, expected an address of the host's own".to_owned(),
        ),
    ] {
        let wrong = wrong_by_address(from, to);
        assert!(wrong.len() == 1 && wrong[0].ends_with(&told), "{to}: {wrong:#?}");
    }
    // Networks of 31 and 32 bits have neither.
    for good in ["10.0.0.9/24", "10.0.0.10/31", "10.0.0.11/31", "10.0.0.0/32", "10.0.1.0/16"] {
        assert_eq!(wrong_by_address("10.0.0.9/24", good), [""; 0], "{good}");
    }
}

#[test]
fn what_stands_in_the_place_of_a_secret_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let (proxy, with_token) = ("http.sock\" }", "http.sock\", token = VALUE }");
    for (value, kind) in [
        ("1234567890123456", "a number"),
        ("12345678901234567890123", "a number"),
        ("0x1234567890123456", "a number"),
        ("1234567890.123456", "a number"),
        ("true", "a boolean"),
        ("[\"1234567890123456\"]", "an array"),
        ("{ key = \"1234567890123456\" }", "a table or a time"),
        ("1234-05-06", "a table or a time"),
        ("1234-05-06T07:08:09.123456Z", "a table or a time"),
        ("\"123456789 123456\"", "the text"),
    ] {
        let refused =
            format!("{kind} is no secret: expected 16 to 128 letters, digits, `-` and `_` in quotes");
        for (from, to, place) in [
            ("watch = ", "secret = VALUE\nwatch = ", "line 12, `volume[0].secret`"),
            ("watch = ", "watch_token = VALUE\nwatch = ", "line 12, `volume[0].watch_token`"),
            (proxy, with_token, "line 13, `volume[0].route.token`"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            std::fs::write(&path, GOOD.replacen(from, &to.replace("VALUE", value), 1)).unwrap();
            let error = FleetConfig::read(&path).unwrap_err().to_string();
            assert_eq!(error, format!("`{}`, {place}: {refused}", path.display()));
        }
    }
    // Without quotes it may be no TOML at all.
    for value in ["0123456789abcdef", "1234567890abcdef", "abcdef0123456789", "123456789012345_"] {
        std::fs::write(&path, GOOD.replacen("watch = ", &format!("secret = {value}\nwatch = "), 1)).unwrap();
        let error = FleetConfig::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 12: ") && !error.contains("23456"), "{error}");
    }
}

/// Also where nothing of it is there yet: the first start makes it.
#[test]
fn a_history_in_the_place_of_what_the_state_keeps_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let read = |history: &str| {
        let text = GOOD.replacen("interval = ", &format!("history = \"{history}\"\ninterval = "), 1);
        std::fs::write(&path, text).unwrap();
        FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
    };
    let of_appliances = "which is where `state` keeps what is known of appliances";
    for (history, told) in [
        ("state", "which is the folder of `state`, or one around it"),
        ("state/hosts", of_appliances),
        ("state/hosts/h1", of_appliances),
        ("state/responses.json", "which is what `state` keeps"),
        ("state/secret.json.new", "which is what `state` keeps"),
    ] {
        let error = read(history).unwrap_err();
        let told = format!("line 4, `history`: `{}`, {told}", folder.path().join(history).display());
        assert!(error.contains(&told) && error.matches("`history`").count() == 1, "{history}: {error}");
    }
    assert_eq!(read("state/history.db"), Ok(()));
    assert_eq!(read("state/hosts.db"), Ok(()));
}

/// Else the file is good, the controller starts, and no appliance ever does.
#[test]
fn a_state_in_which_sockets_of_appliances_would_be_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let read = |state: &Path, provider: &str| {
        let text = format!(
            "socket = \"c.sock\"\nstate = \"{}\"\n[[host]]\nname = \"h1\"\nmemory = \"128MiB\"\n{provider}\n[[volume]]\nname = \"db\"\nhome = \"h1\"\n\
             origin = \"nbd://s/db\"\nwatch = \"unix:w.sock\"\n",
            state.display()
        );
        let path = root.join("c.toml");
        std::fs::write(&path, text).unwrap();
        FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
    };
    // `/hosts/h1/forebay-1234567890/http.sock` are 38 bytes of 107.
    let state = |length: usize| root.join("s".repeat(length - root.as_os_str().len() - 1));
    assert_eq!(read(&state(69), ""), Ok(()));
    let refused = read(&state(70), "").unwrap_err();
    let said = "a path of 70 bytes, with which the socket of an appliance on `h1` has one of 108";
    assert!(refused.contains("`state`") && refused.contains(said), "{refused}");
    assert!(refused.contains("expected a path of at most 69 bytes with that host"), "{refused}");
    // They are made by the path without links.
    std::fs::create_dir(state(70)).unwrap();
    std::os::unix::fs::symlink(state(70), root.join("l")).unwrap();
    assert!(read(&root.join("l"), "").is_err_and(|refused| refused.contains("a path of 70 bytes")));
    let elsewhere = "provider = { type = \"ssh\", destination = \"h1\", address = \"10.1.0.2\" }";
    assert_eq!(read(&state(70), elsewhere), Ok(()), "it has no sockets there");
}

#[test]
fn volumes_whose_clients_are_moved_share_neither_their_way_nor_their_lease() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.toml");
    let other = |origin: &str, route: &str| {
        let text = format!(
            "{GOOD}[[volume]]\nname = \"web\"\nhome = \"h1\"\norigin = \"{origin}\"\nwatch = \"unix:/run/watch-http.sock\"\n{route}"
        );
        std::fs::write(&path, text).unwrap();
        FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
    };
    let (db, web) = ("nbd+unix:///db?socket=/run/watch.sock", "nbd+unix:///web?socket=/run/watch.sock");
    let proxy = "route = { type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }";
    assert_eq!(other(web, proxy), Ok(()));
    // Who is only watched is not moved.
    assert_eq!(other(db, ""), Ok(()));
    let error = other(db, proxy).unwrap_err();
    assert!(error.contains("`volume[1].origin`: that of volume `db`, too"), "{error}");
    assert_eq!(other(db, &format!("{proxy}\nleased = false")), Ok(()), "both may only read");
    let qmp = "route = { type = \"qmp\", socket = \"q\", node = \"n\", first = \"f\" }";
    let first = GOOD.replace("route = { type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }", qmp);
    assert_ne!(first, GOOD);
    let second = format!(
        "{first}[[volume]]\nname = \"web\"\nhome = \"h1\"\norigin = \"{web}\"\nwatch = \"unix:/w.sock\"\n{qmp}"
    );
    std::fs::write(&path, second).unwrap();
    let error = FleetConfig::read(&path).unwrap_err().to_string();
    assert!(error.contains("`volume[1].route`: that of volume `db`, too"), "{error}");
}
