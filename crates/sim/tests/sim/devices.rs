//! Every kind of device in a scenario: it can be chosen, it behaves as its model does, and what it cannot be is refused.

use crate::{compare, run, scenario};
use forebay_sim::Outcome;
use forebay_sim::scenario::Scenario;

fn mean_ms(outcome: &Outcome) -> f64 {
    outcome.volumes[0].totals.latency.mean_ms.expect("requests completed")
}

/// One volume of 32 GiB that is read at random without a cache, on `origin`.
fn one_volume(origin: &str, load: &str) -> Scenario {
    scenario(&format!(
        r#"
        name = "device"
        duration = "600s"
        measure_from = "60s"
        cache.hit_latency = "0us"
        origin = [{{ name = "o", {origin} }}]
        volume = [{{ name = "v", size = "32GiB", load = [{{ {load} }}] }}]
        "#
    ))
}

#[test]
fn servers_with_a_queue_each_and_uniform_service_are_m_g_1() {
    // Pollaczek and Khinchine: T = s + u s (1 + c2) / (2 (1 - u)). Uniform on 2 to 12 ms: s = 7, c2 = 10^2 / 12 / 7^2. 20
    // servers of 7 ms at 2,000/s are busy for 0.7 of the time.
    let origin = r#"type = "servers", servers = 20, queues = "each", service = "7ms", distribution = "uniform", service_spread = "5ms""#;
    let outcome =
        run(&one_volume(origin, r#"arrivals = "poisson", rate = 2000, popularity = "uniform""#), 11);
    let (s, u, c2) = (7.0, 0.7, 100.0 / 12.0 / 49.0);
    compare("20 x M/G/1, uniform", mean_ms(&outcome), s + u * s * (1.0 + c2) / (2.0 * (1.0 - u)), 0.02);
}

#[test]
fn writes_cost_what_their_raid_level_says() {
    // Disks of 5 ms; 64 clients that write at random keep them busy: n / s for each request that a write takes. Of three with parity
    // the third is read in place of the old data and the old parity.
    for (raid, spindles, expected) in [
        ("0", 6, 1_200.0),
        ("1", 6, 600.0),
        ("4", 6, 100.0),
        ("5", 6, 300.0),
        ("4", 3, 200.0),
        ("5", 3, 200.0),
    ] {
        let origin = format!(
            r#"type = "disks", spindles = {spindles}, disk = "fixed", service = "5ms", raid = "{raid}""#
        );
        let load =
            r#"arrivals = "closed", clients = 256, think = "1us", read_share = 0, popularity = "uniform""#;
        let mut scenario = one_volume(&origin, load);
        scenario.duration = forebay_units::Nanos::secs(160);
        let rate = run(&scenario, 12).volumes[0].totals.iops;
        compare(&format!("RAID {raid}, writes/s"), rate, expected, 0.04);
    }
}

#[test]
fn links_hold_back_and_delay() {
    // 64 KiB over 100 MB/s are 655.36 us, in turn; 1,000/s are a load of 0.655. An infinitely fast device with 1 ms of
    // latency each way is left: M/D/1 plus 2 ms and the service of 1 us.
    let origin =
        r#"type = "servers", servers = 64, service = "1us", link_latency = "1ms", link_per_second = "100MB""#;
    let load = r#"arrivals = "poisson", rate = 1000, popularity = "uniform", request_size = "64KiB""#;
    let outcome = run(&one_volume(origin, load), 13);
    let (s, u) = (0.65536, 0.65536);
    compare("link", mean_ms(&outcome), 2.001 + s + u * s / (2.0 * (1.0 - u)), 0.02);
}

#[test]
fn an_appliances_workers_are_as_many_m_d_1() {
    // Two volumes on two workers of 100 us, each at 8,000/s: 100 us / (2 * 0.2) * 0.8 of waiting besides. All are hits.
    let text = |workers: u32| {
        format!(
            r#"
            name = "appliance"
            duration = "100s"
            measure_from = "20s"
            cache = {{ memory = "8MiB", hit_latency = "0us", sizing = "fixed" }}
            origin = [{{ name = "o", type = "servers", servers = 64, service = "1ms" }}]
            appliance = [{{ name = "a", workers = {workers}, request_time = "100us", link_latency = "50us" }}]
            volume = [
                {{ name = "v", size = "4MiB", cache = "4MiB", load = [{{ arrivals = "poisson", rate = 8000, popularity = "uniform", outstanding_max = 100 }}] }},
                {{ name = "w", size = "4MiB", cache = "4MiB", load = [{{ arrivals = "poisson", rate = 8000, popularity = "uniform", outstanding_max = 100 }}] }},
            ]
            "#
        )
    };
    let outcome = run(&scenario(&text(2)), 14);
    compare("appliance with two workers", mean_ms(&outcome), 0.1 + 0.1 + 0.8 * 0.1 / (2.0 * 0.2), 0.02);
    // One worker for both is asked for 1.6 of what it can do, and no cache helps it.
    let error = scenario(&text(1)).check().expect_err("one worker").to_string();
    assert!(error.contains("1.60 s of work per second from 0s on, and it does 1.00"), "{error}");
}

#[test]
fn a_neighbours_writes_on_flash_hurt_the_reader() {
    let latency_ms = |rate: f64| {
        let text = format!(
            r#"
            name = "flash"
            duration = "60s"
            measure_from = "20s"
            cache.hit_latency = "0us"
            origin = [{{ name = "o", type = "ssd", flash = {{ capacity = "2GiB", channels = 2, dies_per_channel = 2, spare_share = 0.15, pages_per_block = 64 }} }}]
            volume = [
                {{ name = "v", size = "512MiB", load = [{{ arrivals = "poisson", rate = 2000, popularity = "uniform" }}] }},
                {{ name = "w", size = "1GiB", load = [{{ arrivals = "poisson", rate = {rate}, popularity = "uniform", read_share = 0, request_size = "16KiB" }}] }},
            ]
            "#
        );
        let outcome = run(&scenario(&text.replace("rate = 0,", "rate = 1,")), 15);
        (mean_ms(&outcome), outcome.origins[0].intervals.last().unwrap().utilisation)
    };
    let ((alone, idle), (flooded, busy)) = (latency_ms(0.0), latency_ms(1_500.0));
    println!(
        "reads of flash: {alone:.3} ms alone (dies busy {idle:.2}), {flooded:.3} ms beside writes (dies busy {busy:.2})"
    );
    // 60 us of flash, 5 us of channel, 20 us of controller and little waiting.
    assert!((0.085..0.095).contains(&alone), "{alone}");
    assert!(flooded > 3.0 * alone && busy > 0.6, "{flooded} {busy}");
}

#[test]
fn an_array_cache_answers_writes_until_a_flood_fills_it() {
    let outcome = |rate: u32| {
        let text = format!(
            r#"
            name = "array"
            duration = "120s"
            measure_from = "60s"
            origin = [{{ name = "o", type = "disks", spindles = 8, disk = "15000rpm", raid = "5", queue = "c-look", array = {{ cache = "64MiB" }}, buffer = {{}} }}]
            volume = [
                {{ name = "v", size = "8GiB", load = [{{ arrivals = "poisson", rate = 100, theta = 1.0, working_set = "16MiB", read_share = 0.5 }}] }},
                {{ name = "w", size = "128GiB", load = [{{ arrivals = "poisson", rate = {rate}, popularity = "uniform", read_share = 0, outstanding_max = 64 }}] }},
            ]
            "#
        );
        run(&scenario(&text), 16)
    };
    let (calm, flood) = (outcome(10), outcome(3_000));
    let of = |outcome: &Outcome| {
        let totals = &outcome.volumes[0].totals;
        (totals.read_latency.mean_ms.unwrap(), totals.write_latency.mean_ms.unwrap())
    };
    let ((reads, writes), (reads_flooded, writes_flooded)) = (of(&calm), of(&flood));
    println!(
        "array: reads {reads:.2} and writes {writes:.2} ms, beside a flood {reads_flooded:.2} and {writes_flooded:.2} ms"
    );
    assert!(writes < 0.5 && reads < 1.0, "{reads} {writes}");
    assert!(reads_flooded > 5.0 * reads && writes_flooded > 5.0, "{reads_flooded} {writes_flooded}");
}

#[test]
fn volumes_that_share_a_cache_compete_for_it() {
    // 8 MiB for two volumes of 8 MiB each, of which one is asked four times as often: under one LRU it has four times the
    // chance of a page being younger. In partitions of 4 MiB both hit every second time.
    let text = |cache: &str, own: &str| {
        format!(
            r#"
            name = "shared"
            duration = "200s"
            measure_from = "100s"
            cache = {{ memory = "8MiB", policy = "lru", sizing = "fixed", {cache} }}
            origin = [{{ name = "o", type = "servers", servers = 64, service = "1ms" }}]
            volume = [
                {{ name = "v", size = "8MiB", {own} load = [{{ arrivals = "poisson", rate = 800, popularity = "uniform" }}] }},
                {{ name = "w", size = "8MiB", {own} load = [{{ arrivals = "poisson", rate = 200, popularity = "uniform" }}] }},
            ]
            "#
        )
    };
    let hits = |outcome: &Outcome| {
        outcome.volumes.iter().map(|volume| volume.totals.hit_ratio.unwrap()).collect::<Vec<_>>()
    };
    let shared = hits(&run(&scenario(&text("shared = true", "")), 17));
    let split = hits(&run(&scenario(&text("", r#"cache = "4MiB","#)), 17));
    // Che: 2,048 (1 - exp(-800/2048 t)) + 2,048 (1 - exp(-200/2048 t)) = 2,048: with x = exp(-200/2048 t), x^4 + x = 1, x =
    // 0.7245: hits 0.7245 of v's are 1 - x^4, and 1 - x of w's.
    compare("shared LRU, the busy volume", shared[0], 0.7245, 0.03);
    compare("shared LRU, the other", shared[1], 0.2755, 0.05);
    compare("partition", split[0], 0.5, 0.03);
    compare("partition", split[1], 0.5, 0.03);
}

#[test]
fn what_devices_cannot_be_is_refused_by_key() {
    let base = r#"arrivals = "poisson", rate = 1, popularity = "uniform""#;
    for (origin, key) in [
        (r#"type = "disks", raid = "5", spindles = 2"#, "origin[0].spindles"),
        (r#"type = "disks", raid = "1", spindles = 3"#, "origin[0].spindles"),
        (r#"type = "disks", array = { cache = "1KiB" }"#, "origin[0].array.cache"),
        (
            r#"type = "disks", array = { cache = "1GiB", dirty_share_max = 0.95 }"#,
            "origin[0].array.dirty_share_max",
        ),
        (r#"type = "disks", buffer = { segments = 1000 }"#, "origin[0].buffer.segments"),
        (r#"type = "disks", buffer = { segment = "1KiB" }"#, "origin[0].buffer.segment"),
        (r#"type = "disks", flash = { capacity = "1GiB" }"#, "origin[0].flash"),
        (r#"type = "disks", link_per_second = "0B""#, "origin[0].link_per_second"),
        (r#"type = "ssd""#, "origin[0]"),
        (r#"type = "ssd", flash = { capacity = "1GiB" }"#, "origin[0].flash.capacity"),
        (r#"type = "ssd", flash = { capacity = "64GiB", channels = 0 }"#, "origin[0].flash.channels"),
        (r#"type = "ssd", flash = { capacity = "64GiB", page = "1B" }"#, "origin[0].flash.page"),
        (r#"type = "ssd", flash = { capacity = "60000TiB" }"#, "origin[0].flash.capacity"),
        (r#"type = "ssd", flash = { capacity = "64GiB", filled_share = 2 }"#, "origin[0].flash.filled_share"),
        (r#"type = "servers", service = "1ms", raid = "5""#, "origin[0].raid"),
        (r#"type = "servers", service = "1ms", service_spread = "1ms""#, "origin[0].service_spread"),
        (
            r#"type = "servers", service = "1ms", distribution = "uniform", service_spread = "2ms""#,
            "origin[0].service_spread",
        ),
    ] {
        let error = one_volume(origin, base).check().expect_err(origin);
        assert_eq!(error.key(), key, "{error}");
    }
    let good = r#"type = "servers", servers = 2, service = "10ms""#;
    for (table, key) in [
        (r#"appliance = [{ name = "a", workers = 0 }]"#, "appliance[0].workers"),
        (r#"appliance = [{ name = "a", copy_per_second = "0B" }]"#, "appliance[0].copy_per_second"),
        (r#"appliance = [{ name = "a", link_latency = "1h" }]"#, "appliance[0].link_latency"),
        (r#"appliance = [{ name = "a" }, { name = "a" }]"#, "appliance[1].name"),
        (r#"cache.shared = true"#, "cache.shared"),
    ] {
        let text = format!(
            "name = \"x\"\nduration = \"60s\"\n{table}\norigin = [{{ name = \"o\", {good} }}]\nvolume = [{{ name = \"v\", size = \"1GiB\", load = [{{ {base} }}] }}]"
        );
        let error = scenario(&text).check().expect_err(table);
        assert_eq!(error.key(), key, "{error}");
    }
}

#[test]
fn raid_counts_in_what_can_never_be_served() {
    // Six disks of 5 ms serve 300 small writes a second at RAID 5.
    let origin = r#"type = "disks", spindles = 6, disk = "fixed", service = "5ms", raid = "5""#;
    let error = one_volume(origin, r#"arrivals = "poisson", rate = 301, read_share = 0"#)
        .check()
        .unwrap_err()
        .to_string();
    assert!(error.contains("6 at 5ms each serve 300 at most"), "{error}");
    assert!(one_volume(origin, r#"arrivals = "poisson", rate = 299, read_share = 0"#).check().is_ok());
    // Three serve 200: one read and two writes each.
    for raid in ["4", "5"] {
        let three =
            format!(r#"type = "disks", spindles = 3, disk = "fixed", service = "5ms", raid = "{raid}""#);
        let writes = |rate: u32| format!(r#"arrivals = "poisson", rate = {rate}, read_share = 0"#);
        let error = one_volume(&three, &writes(201)).check().unwrap_err().to_string();
        assert!(error.contains("3 at 5ms each serve 200 at most"), "{error}");
        assert!(one_volume(&three, &writes(199)).check().is_ok());
    }
    // What an array's cache may take is not refused but said.
    let array = format!("{origin}, array = {{ cache = \"1GiB\" }}");
    let flags = one_volume(&array, r#"arrivals = "poisson", rate = 301, read_share = 0"#).check().unwrap();
    assert_eq!(flags.len(), 1, "{flags:?}");
}
