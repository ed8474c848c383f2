//! Scenarios that cannot be run, since no cache and no order could serve what they ask for: refused with the arithmetic. What is refused by a key alone is in
//! `keys`, and what can be run but says little in `flags`.

use crate::scenario;
use forebay_sim::scenario::{Popularity, Scenario, ScenarioError};
use forebay_sim::{Simulation, Traces};
use forebay_units::{Bytes, Nanos};

/// A scenario that can be run, from which tests make others by replacing a key.
pub(crate) const GOOD: &str = r#"
    name = "good"
    duration = "60s"
    cache.memory = "64MiB"
    origin = [{ name = "o", type = "servers", servers = 2, service = "10ms" }]
    [[volume]]
    name = "v"
    size = "1GiB"
    load = [{ arrivals = "poisson", rate = 100 }]
    [[objective]]
    volume = "v"
    latency = "5ms"
"#;

/// The servers of the good one, and disks in their place.
pub(crate) const ON_DISKS: (&str, &str) = (r#""servers", servers = 2, service = "10ms""#, r#""disks","#);

/// What is said of the good one with `to` in place of `from`.
pub(crate) fn refused(from: &str, to: &str) -> ScenarioError {
    assert!(GOOD.contains(from), "{from}");
    scenario(&GOOD.replace(from, to)).check().expect_err(to)
}

#[test]
fn the_good_one_passes() {
    assert_eq!(scenario(GOOD).check(), Ok(Vec::new()));
}

#[test]
fn doomed_scenarios_are_refused_with_the_arithmetic() {
    // 2 servers of 10 ms serve 200/s; 500/s of which half write leave 250/s that no cache takes.
    let error = refused("rate = 100", "rate = 500, read_share = 0.5, working_set = \"64MiB\"").to_string();
    assert_eq!(
        error,
        "origin `o` can never serve it: 250 requests/s from 0s on reach it whatever is cached, and 2 at 10ms each serve 200 at most"
    );
    let error = refused("\"5ms\"", "\"100us\"").to_string();
    assert_eq!(error, "100us cannot be kept: a hit in the fastest tier takes 150us");
}

/// Five disks that need 10 ms for whatever is asked of them, in RAID `raid`, and a volume with these other keys and this load.
fn on_fixed_disks(raid: u32, volume: &str, load: &str) -> Scenario {
    let spindles = if raid == 1 { 4 } else { 5 };
    // All that may be cached at all fits.
    let memory = if volume.contains("may_cache") { "64MiB" } else { "100GiB" };
    scenario(&format!(
        r#"
        name = "fixed"
        duration = "60s"
        cache.memory = "{memory}"
        origin = [{{ name = "o", type = "disks", disk = "fixed", service = "10ms", spindles = {spindles}, raid = "{raid}", stripe_unit = "64KiB" }}]
        volume = [{{ name = "v", size = "100GiB"{volume}, load = [{{ popularity = "uniform", {load} }}] }}]
        "#
    ))
}

#[test]
fn the_share_of_hits_that_is_needed_counts_what_writes_cost_and_that_no_hit_spares_them() {
    // 110 reads/s are .22 of the time of five disks, and 110 writes/s of four accesses each .88: of 1.10 the tenth part too much is 45 % of
    // the reads, and these are half of all.
    let open = |rate: u32, reads: f64| format!("arrivals = \"poisson\", rate = {rate}, read_share = {reads}");
    let flags = on_fixed_disks(5, "", &open(220, 0.5)).check().expect("it can be run");
    let said = &flags[0].message;
    let wanted = "serves about 200 of them in turn (5 at 10ms each, at 2.5 accesses a request)";
    assert!(said.contains(wanted), "{said}");
    assert!(
        said.ends_with("at least 23 % of them must be hits (45 % of those that a cache may answer)"),
        "{said}"
    );
    // Of a reader of 50/s and a writer of 100/s, who asks for most, 450 accesses of 10 ms are 4.5 of five disks; with 120/s 5.3.
    let two = |writes: u32| {
        let mut both = on_fixed_disks(5, "", &open(50, 1.0));
        let mut writer = on_fixed_disks(5, "", &open(writes, 0.0)).volume.remove(0);
        writer.name = "w".to_owned();
        both.volume.push(writer);
        both.check()
    };
    assert_eq!(two(100), Ok(Vec::new()));
    let flags = two(120).expect("the reads may be hits");
    // 170 requests and 530 accesses a second: 160 at 3.1 each are 500.
    let wanted = "170 random requests/s are asked of origin `o`, which serves about 160 of them in turn (5 at 10ms each, at 3.1 accesses a request)";
    assert!(flags[0].key == "volume[1].load[0].rate" && flags[0].message.contains(wanted), "{flags:?}");
    // On the parity disk of RAID 4 no hit helps; there 50 writes/s are all that it does.
    let flags = on_fixed_disks(4, "", &open(500, 0.92)).check().expect("it can be run");
    // 460 reads and 80 accesses for 40 writes on four data disks are 1.35 of their time: .35 of 1.15 for the reads.
    assert!(
        flags[0]
            .message
            .ends_with("at least 28 % of them must be hits (30 % of those that a cache may answer)"),
        "{flags:?}"
    );
    let error = on_fixed_disks(4, "", &open(60, 0.0)).check().expect_err("50/s are served").to_string();
    assert!(
        error.contains("and 1 parity disk at 10ms each serve 50 at most, at 2.0 accesses a request"),
        "{error}"
    );
    // What is written alone is refused where no order serves it.
    let error = on_fixed_disks(5, "", &open(150, 0.0)).check().expect_err("125/s are served").to_string();
    assert!(error.contains("and 5 at 10ms each serve 125 at most, at 4.0 accesses a request"), "{error}");
    // And where an order might, no share of hits is named.
    let seek = DISKS
        .replace("rate = 100", "rate = 150, read_share = 0.0")
        .replace("\"disks\" }", "\"disks\", spindles = 5, raid = \"5\" }");
    let flags = scenario(&seek).check().expect("shortest positioning might");
    assert!(flags[0].message.contains("no cache helps, as 150 of them reach it"), "{flags:?}");
    assert!(!flags[0].message.contains("hits"), "{flags:?}");
}

#[test]
fn what_keeps_different_devices_of_an_origin_busy_is_not_added_up() {
    // On RAID 4 240 reads/s are .60 of four data disks; a write is two accesses of its disk and two of the parity disk, so that 30/s are .15 and .60.
    let two = |writes: u32| {
        let open = |rate: u32, reads: f64| {
            on_fixed_disks(
                4,
                ", may_cache = false",
                &format!("arrivals = \"poisson\", rate = {rate}, read_share = {reads:?}"),
            )
        };
        let mut both = open(240, 1.0);
        let mut writer = open(writes, 0.0).volume.remove(0);
        writer.name = "w".to_owned();
        both.volume.iter_mut().for_each(|volume| volume.size = Bytes::gib(50));
        writer.size = Bytes::gib(50);
        both.volume.push(writer);
        both.check()
    };
    assert_eq!(two(30), Ok(Vec::new()));
    let error = two(51).expect_err("1.02 of the parity disk").to_string();
    assert!(error.contains("291 requests/s") && error.contains("serve 285 at most"), "{error}");
}

#[test]
fn flash_serves_what_its_dies_and_its_channels_do() {
    let flash = |load: &str| {
        scenario(&format!(
            r#"
            name = "flash"
            duration = "5s"
            cache.interval = "1s"
            origin = [{{ name = "o", type = "ssd", transfer_per_second = "100MB", flash = {{ capacity = "1GiB", channels = 2, filled_share = 0 }} }}]
            volume = [{{ name = "v", size = "1GiB", load = [{load}] }}]
            "#
        ))
    };
    let open = |rate: u32, reads: f64| {
        flash(&format!(
            "{{ arrivals = \"constant\", rate = {rate}, read_share = {reads:?}, popularity = \"uniform\" }}"
        ))
        .check()
    };
    // Whole pages of 16 KiB are written: 163.84 us of two channels each, and 600 us of eight dies.
    assert_eq!(open(12_000, 0.0), Ok(Vec::new()));
    let error = open(13_000, 0.0).expect_err("12,207/s").to_string();
    assert!(error.ends_with("and 2 at 164us each serve 12207 at most"), "{error}");
    // Of a read 4 KiB alone: 40.96 us of a channel, and 60 us of a die.
    assert_eq!(open(48_000, 1.0), Ok(Vec::new()));
    let error = open(49_000, 1.0).expect_err("48,828/s").to_string();
    assert!(error.ends_with("and 2 at 40.96us each serve 48828 at most"), "{error}");
    // As many are served: clients that always wait write each page once, and then read.
    let served = |reads: f64| {
        let closed =
            "arrivals = \"closed\", clients = 64, popularity = \"sequential\", request_size = \"16KiB\"";
        let scenario = flash(&format!("{{ {closed}, read_share = {reads:?} }}"));
        let outcome = Simulation::new(&scenario, &Traces::new(), None).unwrap().run();
        outcome.requests as f64 / 5.0
    };
    let (written, read) = (served(0.0), served(1.0));
    println!("{written:.0} writes/s and {read:.0} reads/s of 16 KiB");
    assert!(
        (11_900.0..=12_300.0).contains(&written) && (11_900.0..=12_300.0).contains(&read),
        "{written} {read}"
    );
}

#[test]
fn runs_of_which_too_much_would_be_kept_are_refused() {
    let run = |volumes: usize| {
        let mut scenario = scenario(&GOOD.replace("\"60s\"", "\"13107200ms\""));
        scenario.cache.interval = Nanos::millis(100);
        let volume = scenario.volume[0].clone();
        for number in 1..volumes {
            let mut another = volume.clone();
            (another.name, another.load) = (format!("v{number}"), Vec::new());
            scenario.volume.push(another);
        }
        scenario.check()
    };
    assert!(run(100).is_ok());
    let error = run(1_024).expect_err("some 20 GiB of rows");
    println!("{error}");
    assert_eq!(error.key(), "duration");
    assert!(error.to_string().contains("131072 intervals of volumes, 1024"), "{error}");
}

#[test]
fn requests_over_several_stripe_units_count_as_an_access_for_each() {
    // 256 KiB over units of 64 KiB keep four of the five disks busy for 10 ms: 125/s.
    let open = |rate: u32| format!("arrivals = \"poisson\", rate = {rate}, request_size = \"256KiB\"");
    let flags = on_fixed_disks(0, "", &open(300)).check().expect("a cache may help");
    assert!(
        flags[0]
            .message
            .contains("serves about 125 of them in turn (5 at 10ms each, at 4.0 accesses a request)"),
        "{flags:?}"
    );
    let error = on_fixed_disks(0, ", may_cache = false", &open(300))
        .check()
        .expect_err("nothing is cached")
        .to_string();
    assert!(error.ends_with("serve 125 at most, at 4.0 accesses a request"), "{error}");
    assert_eq!(on_fixed_disks(0, ", may_cache = false", &open(124)).check(), Ok(Vec::new()));
    // A disk that takes as long for whatever it is asked has no use for an order, unless it reads on.
    let mut in_order = on_fixed_disks(0, ", may_cache = false", "arrivals = \"constant\", rate = 501");
    in_order.volume[0].load[0].popularity = Popularity::Sequential;
    assert!(matches!(in_order.check(), Err(ScenarioError::Overload { .. })));
    in_order.origin[0].disk = None;
    in_order.origin[0].service = None;
    assert_eq!(in_order.check(), Ok(Vec::new()));
}

#[test]
fn what_is_refused_is_more_than_the_simulator_serves() {
    for raid in [0, 1, 4, 5] {
        for (kib, exact) in [
            (4, true),
            (64, true),
            (96, false),
            (128, true),
            (192, false),
            (256, true),
            (320, false),
            (1024, false),
        ] {
            for (reads, share) in [(true, 1.0), (false, 0.0)] {
                let size = format!("request_size = \"{kib}KiB\", read_share = {share:?}");
                let open = format!("arrivals = \"poisson\", rate = 100000, {size}");
                let error =
                    on_fixed_disks(raid, ", may_cache = false", &open).check().expect_err("far too many");
                let ScenarioError::Overload { at_most, .. } = error else { panic!("{error}") };
                // Clients that always wait ask for as much as there is.
                let closed = format!("arrivals = \"closed\", clients = 100, {size}");
                let outcome = Simulation::new(
                    &on_fixed_disks(raid, ", may_cache = false", &closed),
                    &Traces::new(),
                    None,
                )
                .unwrap()
                .run();
                // All that was done from the first second on, so that nothing was begun before.
                let rows = &outcome.volumes[0].intervals;
                let served = rows.iter().map(|row| row.iops).sum::<f64>() / rows.len() as f64;
                let said = format!(
                    "RAID {raid}, {kib} KiB, reads {reads}: {served:.1}/s served, {at_most:.1} at most"
                );
                assert!(served <= at_most + 1e-6, "{said}");
                // Where requests begin at units and each costs the same.
                assert!(!exact || served >= at_most * 0.9, "{said}");
            }
        }
    }
}

#[test]
fn what_lies_side_by_side_is_served_faster_than_in_turn_and_not_refused() {
    let on_disk = |queue: &str, working_set: &str, load: &str| {
        scenario(&format!(
            r#"
            name = "side by side"
            duration = "60s"
            origin = [{{ name = "o", type = "disks", spindles = 1, queue = "{queue}" }}]
            volume = [{{ name = "v", size = "16GiB", load = [{{ popularity = "uniform", working_set = "{working_set}", {load} }}] }}]
            "#
        ))
    };
    for queue in ["fifo", "c-look", "shortest-positioning"] {
        for working_set in ["1MiB", "64MiB", "16GiB"] {
            for size in ["request_size = \"4KiB\"", "request_size = \"64KiB\""] {
                let open = format!("arrivals = \"poisson\", rate = 100000, {size}");
                let error = on_disk(queue, working_set, &open).check().expect_err("far too many");
                let ScenarioError::Overload { at_most, .. } = error else { panic!("{error}") };
                let closed = format!("arrivals = \"closed\", clients = 64, {size}");
                let closed = on_disk(queue, working_set, &closed);
                let outcome = Simulation::new(&closed, &Traces::new(), None).unwrap().run();
                let served = outcome.volumes[0].totals.iops;
                let said =
                    format!("{queue}, {working_set}, {size}: {served:.1}/s served, {at_most:.1} at most");
                assert!(served <= at_most, "{said}");
            }
        }
    }
    // Half a turn of 8.33 ms for each.
    let open = |rate: u32| format!("arrivals = \"poisson\", rate = {rate}");
    let error = on_disk("fifo", "16GiB", &open(241)).check().expect_err("too many").to_string();
    let wanted =
        "1 at 12.69ms each serve 240 at most (3.0 times what they serve in turn, were all in one place)";
    assert!(error.ends_with(wanted), "{error}");
    // Where data take a part of the disk seeks are shorter.
    let flags = on_disk("fifo", "16GiB", &open(239)).check().expect("it can be run");
    let wanted = "serves about 79 of them in turn (1 at 12.69ms each, by the average seek of a whole disk)";
    assert!(flags[0].message.contains(wanted), "{flags:?}");
}

#[test]
fn floors_beyond_the_clients_are_refused_while_they_stand() {
    // A client that waits 150 us for every hit asks 6,667 times a second at most, and eight ask for more.
    let loads = "\"closed\", clients = 1 }, { from = \"20s\", arrivals = \"closed\", clients = 8 }, { from = \"40s\", arrivals = \"idle\" }";
    let with = |times: &str| {
        let text = GOOD.replace("\"poisson\", rate = 100 }", loads);
        scenario(&text.replace("latency = \"5ms\"", &format!("iops = 10000\n{times}"))).check()
    };
    assert_eq!(with("from = \"20s\""), Ok(Vec::new()));
    for times in ["", "from = \"10s\"", "until = \"10s\""] {
        let error = with(times).expect_err(times);
        assert!(matches!(error, ScenarioError::BeyondClients { clients: 1, .. }), "{times}: {error}");
    }
    // What is told differs as what is compared does: 1 s / 20.15 ms is 49.6, which is 50 to the whole.
    let thinks = |clients: u32, iops: u32| {
        let load = format!("\"closed\", think = \"20ms\", clients = {clients} }}");
        let text = GOOD.replace("\"poisson\", rate = 100 }", &load);
        scenario(&text.replace("latency = \"5ms\"", &format!("iops = {iops}")))
            .check()
            .expect_err("too many")
            .to_string()
    };
    assert_eq!(
        thinks(1, 50),
        "50 requests/s cannot be reached: 1 client that waits 20.15ms for every answer asks for 49.6 at most"
    );
    assert_eq!(
        thinks(2, 120),
        "120 requests/s cannot be reached: 2 clients that wait 20.15ms for every answer ask for 99 at most"
    );
}

const DISKS: &str = r#"
    name = "disks"
    duration = "60s"
    cache.memory = "64MiB"
    origin = [{ name = "o", type = "disks" }]
    [[volume]]
    name = "v"
    size = "1GiB"
    load = [{ arrivals = "poisson", rate = 100 }]
"#;

#[test]
fn what_is_too_narrow_is_refused_with_the_arithmetic() {
    let disks = |keys: &str, load: &str| {
        let text = DISKS.replace("\"disks\" }]", &format!("\"disks\"{keys} }}]")).replace("rate = 100", load);
        scenario(&text).check()
    };
    let said = |keys, load| disks(keys, load).expect_err(load).to_string();
    // 100 writes of 4 KiB a second are 400 KiB/s.
    assert_eq!(
        said(", link_per_second = \"100KiB\"", "rate = 100, read_share = 0"),
        "the link to origin `o` can never keep up: 400KiB/s from 0s on, and it does 100KiB/s at most"
    );
    // Reads may all be hits where all of them fit.
    let fits = "rate = 100, working_set = \"64MiB\"";
    let flags = disks(", link_per_second = \"100KiB\"", fits).expect("a cache may help");
    assert!(
        flags.len() == 1
            && flags[0].message.ends_with("caches must answer at least 75 % of that, and can answer 100 %"),
        "{flags:?}"
    );
    // 3,000 sequential writes of 1 MiB each are 2.93 GiB/s; four disks of 200 MB/s at most do a quarter of that.
    let sequential = "rate = 3000, read_share = 0, popularity = \"sequential\", request_size = \"1MiB\"";
    assert!(
        said("", sequential).starts_with("the disks of origin `o` can never keep up: 2.93GiB/s"),
        "{}",
        said("", sequential)
    );
    // A read of 16 KiB takes a channel of 800 MB/s 20.48 us, of which there are eight, and a die 60 us, of which there are 32.
    let flash =
        DISKS.replace("\"disks\" }]", "\"ssd\", flash = { capacity = \"16GiB\" } }]").replace("64MiB", "0B");
    let error = scenario(&flash.replace("rate = 100", "rate = 500000, request_size = \"16KiB\"")).check();
    assert_eq!(
        error.expect_err("too much").to_string(),
        "origin `o` can never serve it: 500000 requests/s from 0s on reach it whatever is cached, and 8 at 20.48us each serve 390625 at most"
    );
    // What an array's cache takes, no disk need ever see: overwritten pages are written once.
    assert!(disks(", array = { cache = \"1GiB\" }", sequential).is_ok());
    for (keys, key) in [
        (", array = { cache = \"1GiB\", dirty_share_max = nan }", "origin[0].array.dirty_share_max"),
        (", array = { cache = \"1GiB\", flush_share = -0.1 }", "origin[0].array.flush_share"),
        (", seek_average = \"10h\"", "origin[0].seek_average"),
        (", rotation = \"2s\"", "origin[0].rotation"),
        (", disk = \"fixed\", service = \"11s\"", "origin[0].service"),
    ] {
        assert_eq!(disks(keys, "rate = 1").expect_err(keys).key(), key);
    }
    // A worker that takes 20 ms for a request, hit or not, does 50 a second.
    let appliance = format!("{DISKS}[[appliance]]\nname = \"a\"\nrequest_time = \"20ms\"\n");
    assert_eq!(
        scenario(&appliance).check().expect_err("100 requests/s").to_string(),
        "a worker of appliance `a` can never keep up: 2.00 s of work per second from 0s on, and it does 1.00 s of work per second at most"
    );
    // What is little too much is told so.
    let little = appliance.replace("20ms", "10.01ms");
    assert_eq!(
        scenario(&little).check().expect_err("1.001 s").to_string(),
        "a worker of appliance `a` can never keep up: 1.001 s of work per second from 0s on, and it does 1.000 s of work per second at most"
    );
    assert_eq!(
        said(", link_per_second = \"409599B\"", "rate = 100, read_share = 0"),
        "the link to origin `o` can never keep up: 409600 B/s from 0s on, and it does 409599 B/s at most"
    );
    let narrow = appliance.replace("request_time = \"20ms\"", "link_per_second = \"100KiB\"");
    assert!(
        scenario(&narrow)
            .check()
            .expect_err("400 KiB/s")
            .to_string()
            .starts_with("the link from appliance `a`")
    );
}

/// 64 MiB of cache before 8 GiB, of reads that go there evenly, by Zipf's law, or one after the other.
#[test]
fn what_no_cache_of_that_size_can_answer_is_refused() {
    let checked = |origin: &str, cache: &str, volume: &str, load: &str| {
        let text = DISKS
            .replace("\"disks\" }]", &format!("\"disks\"{origin} }}]"))
            .replace("cache.memory = \"64MiB\"", &format!("cache = {{ memory = \"64MiB\"{cache} }}"))
            .replace("size = \"1GiB\"", &format!("size = \"8GiB\"{volume}"))
            .replace("rate = 100", load);
        scenario(&text).check()
    };
    let refused = |origin: &str, load: &str| {
        checked(origin, "", "", load).expect_err("more than a cache can take").to_string()
    };
    // 1/128 of them are answered, and 1/512 wait for one of 4,096 that are under way.
    assert_eq!(
        refused("", "rate = 5000, popularity = \"uniform\""),
        "origin `o` can never serve it: 4951 requests/s from 0s on reach it whatever is cached, and 4 at 12.69ms each serve 960 at most (3.0 times what \
         they serve in turn, were all in one place) (of the reads of `v`, which go evenly to 8GiB, a cache of 64MiB answers 0.8 % at most, and 1.0 % with \
         those that wait for the same reads)"
    );
    let narrow = ", link_per_second = \"100KiB\"";
    let said = refused(narrow, "rate = 100, popularity = \"uniform\"");
    assert!(
        said.starts_with("the link from origin `o` can never keep up: 396.09KiB/s from 0s on, and it does 100KiB/s at most (of the reads of `v`"),
        "{said}"
    );
    // By Zipf's law some get much more: half of them, and no more.
    let said = refused(narrow, "rate = 100");
    assert!(
        said.contains("which go by Zipf's law to 8GiB, a cache of 64MiB answers 53 % at most, and 55 %"),
        "{said}"
    );
    assert!(checked(narrow, "", "", "rate = 50").is_ok());
    // 100 times 32 MiB a second are too much for the media; with no more of them under way than a cache might be
    // quick enough to wait for it is refused, and else said.
    let sequential = "rate = 100, popularity = \"sequential\", request_size = \"32MiB\"";
    let said = refused("", &format!("{sequential}, outstanding_max = 16"));
    assert!(said.starts_with("the disks of origin `o` can never keep up: 2.9"), "{said}");
    assert!(
        said.contains(
            "which go one after the other to 8GiB, a cache of 64MiB answers 0.8 % at most, and 7.3 %"
        ),
        "{said}"
    );
    let flags = checked("", "", "", sequential).expect("reads may wait for each other");
    assert!(
        flags.len() == 1
            && flags[0]
                .message
                .starts_with("where nothing is cached 3.12GiB/s pass the disks of origin `o` from 0s on")
            && flags[0]
                .message
                .contains("caches must answer at least 75 % of that, and can answer 0.8 % (of the reads"),
        "{flags:?}"
    );
    // A volume has no more than its maximum; sizes that are set are tried out, and a tier may hold all.
    let uniform = "rate = 900, popularity = \"uniform\", working_set = \"64MiB\", outstanding_max = 16";
    assert!(checked("", "", "", &uniform.replace("900", "2000")).is_ok());
    assert!(checked("", "", "\nmaximum = \"16MiB\"", &uniform.replace("900", "2000")).is_err());
    let flags = checked("", ", sizing = \"fixed\"", "\ncache = \"16MiB\"", &uniform.replace("900", "2000"))
        .expect("sizes that are set");
    assert!(
        flags.len() == 1
            && flags[0]
                .message
                .contains("% of them must be hits, and caches can answer 25 % of them at most (of the reads"),
        "{flags:?}"
    );
    assert!(
        checked("", ", sizing = \"fixed\", shared = true", "", "rate = 5000, popularity = \"uniform\"")
            .is_err()
    );
    // What is asked for is no more than devices serve of what is left: of two blocks of which one may be cached one is left.
    let two = "rate = 1000, popularity = \"uniform\", request_size = \"128KiB\", working_set = \"120MiB\", outstanding_max = 1";
    assert!(checked("", "", "", two).is_ok());
}

#[test]
fn the_scenarios_that_are_shipped_can_be_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a text");
        scenario(&text).check().unwrap_or_else(|error| panic!("{}: {error}", entry.path().display()));
        names.push(entry.file_name());
    }
    assert!(names.len() >= 3, "{names:?}");
}

/// Sizes whose sum is no number any more are no less than what disks hold; requests that come after all time do not come.
#[test]
fn numbers_may_be_as_large_as_they_are() {
    let (from, to) = ON_DISKS;
    let large = GOOD.replace(from, to).replace("1GiB", "18446744073709551615B");
    let two = large + "[[volume]]\nname = \"w\"\nsize = \"1GiB\"\nload = [{ arrivals = \"idle\" }]\n";
    assert!(matches!(scenario(&two).check(), Err(ScenarioError::DisksTooSmall { .. })));
    let thinks = "arrivals = \"closed\", clients = 2, think = \"200000d\"";
    for load in ["arrivals = \"poisson\", rate = 1e-300", thinks] {
        let seldom = scenario(&GOOD.replace("arrivals = \"poisson\", rate = 100", load));
        let outcome = crate::run(&seldom, 1);
        assert_eq!(outcome.volumes[0].totals.arrivals, 0, "{load}");
    }
}
