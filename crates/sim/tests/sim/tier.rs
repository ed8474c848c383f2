//! The chunk tier in a scenario: what is hot comes to it and is served from it, in either way to write, while it is switched on; what cannot be is refused.

use crate::{run, scenario};
use forebay_sim::scenario::{ArrivalKind, LoadTable, OriginKind, OriginTable, Scenario};
use forebay_sim::{Outcome, TierRow};
use forebay_units::{Bytes, Nanos};

/// 32 MiB of a volume, 512 chunks, asked for at random; 64 MiB of tier.
fn tiered(tier: &str, used: &str, load: &str) -> Scenario {
    scenario(&format!(
        r#"
        name = "tier"
        duration = "120s"
        measure_from = "60s"
        cache.hit_latency = "0us"
        tier = {{ origin = "flash", size = "64MiB", {tier} }}
        origin = [
            {{ name = "disks", type = "disks", spindles = 8 }},
            {{ name = "flash", type = "ssd", flash = {{ capacity = "1GiB", filled_share = 0 }} }},
        ]
        [[volume]]
        name = "v"
        origin = "disks"
        size = "8GiB"
        tier = {{ {used} }}
        load = [{{ arrivals = "poisson", rate = 300, popularity = "uniform", working_set = "32MiB", {load} }}]
        "#
    ))
}

fn rows(outcome: &Outcome) -> &[TierRow] {
    &outcome.tier.as_ref().expect("there is a tier").intervals
}

#[test]
fn what_is_hot_comes_once_and_is_served_from_the_tier() {
    let outcome = run(&tiered(r#"admission = "threshold-2""#, "", ""), 1);
    let totals = outcome.tier.as_ref().unwrap().totals;
    assert_eq!((totals.read_hits, totals.promoted_bytes), (totals.reads, 0));
    // Every chunk of 32 MiB has come, and none twice.
    let promoted: u64 = rows(&outcome).iter().map(|row| row.totals.promoted_bytes).sum();
    assert_eq!((promoted, rows(&outcome)[11].held_chunks), (32 << 20, 512));
    // 60 us to read a page, its transfer, and 20 us in the controller: no disk is asked.
    let mean = outcome.volumes[0].totals.latency.mean_ms.unwrap();
    assert!((0.08..0.15).contains(&mean), "{mean} ms");
    assert_eq!(outcome.origins[0].intervals[11].utilisation, 0.0);
    assert!(rows(&outcome)[0].totals.read_hit_ratio() < 0.9);
    assert_eq!(outcome.hash, run(&tiered(r#"admission = "threshold-2""#, "", ""), 1).hash);
}

#[test]
fn a_migration_keeps_nobody_from_the_disk_who_brought_it() {
    // Reads of one disk, two a second, none of what was read before: nobody waits. Each has its chunk moved, whose read takes a seek, half a turn and 64 KiB more; ahead of the request's own it would double
    // the mean.
    let mean = |used: &str| {
        let mut scenario = tiered(r#"admission = "threshold-1""#, used, "");
        scenario.origin[0].spindles = Some(1);
        let load = &mut scenario.volume[0].load[0];
        (load.rate, load.working_set) = (Some(2.0), None);
        let outcome = run(&scenario, 5);
        let promoted: u64 = rows(&outcome).iter().map(|row| row.totals.promoted_bytes).sum();
        (outcome.volumes[0].totals.latency.mean_ms.unwrap(), promoted)
    };
    // Switched on so late that nothing comes before.
    let ((with, promoted), (without, none)) = (mean(""), mean(r#"from = "119s""#));
    assert!(promoted > 200 * (64 << 10) && none < 5 * (64 << 10), "{promoted} and {none}");
    assert!((0.95..1.05).contains(&(with / without)), "{with} and {without} ms");
}

#[test]
fn writes_are_copied_or_taken() {
    let load = "read_share = 0.5";
    let through = run(&tiered(r#"writes = "through""#, "", load), 2);
    let home = run(&tiered(r#"writes = "home""#, "", load), 2);
    let write_ms = |outcome: &Outcome| outcome.volumes[0].totals.write_latency.mean_ms.unwrap();
    assert!(write_ms(&through) > 3.0 && write_ms(&home) < 1.5, "{} {}", write_ms(&through), write_ms(&home));
    for outcome in [&through, &home] {
        // Writes of 4 KiB find their chunk in the tier, and are written there: some 150 a second. Where they are copied, one that is only written for a while leaves.
        let totals = outcome.tier.as_ref().unwrap().totals;
        assert_eq!(totals.written_bytes, 4_096 * totals.write_hits);
        assert!(totals.writes - totals.write_hits <= 9, "{totals:?}");
        assert!((8_000..10_000).contains(&totals.writes), "{}", totals.writes);
    }
    assert!(through.origins[0].intervals[11].utilisation > 0.05);
    assert_eq!(home.origins[0].intervals[11].utilisation, 0.0);
}

#[test]
fn copies_that_the_tier_is_too_slow_for_cost_their_chunks_the_place() {
    // 16 chunks come within 20 s; then 2,000 writes/s are asked of them, and the tier takes 100: some 10,000 of 200,000 until the end.
    let mut scenario = tiered(r#"admission = "lru""#, "", "");
    let servers = |name: &str, servers, service| OriginTable {
        servers: Some(servers),
        service: Some(service),
        ..OriginTable::new(name, OriginKind::Servers)
    };
    scenario.origin = vec![servers("disks", 64, Nanos::millis(1)), servers("flash", 1, Nanos::millis(10))];
    let mut reads = scenario.volume[0].load[0].clone();
    (reads.rate, reads.working_set) = (Some(100.0), Some(Bytes::mib(1)));
    let writes = LoadTable { from: Nanos::secs(20), rate: Some(2_000.0), read_share: 0.0, ..reads.clone() };
    scenario.volume[0].load = vec![reads, writes];
    let outcome = run(&scenario, 7);
    let written: u64 = rows(&outcome).iter().map(|row| row.totals.written_bytes).sum();
    let dropped: u64 = rows(&outcome).iter().map(|row| row.totals.dropped).sum();
    println!("{} MiB were copied, {dropped} times a chunk was dropped", written >> 20);
    // At most what the tier served, and what was on its way at the end.
    assert!(written <= (100 * 100 + 256) * 4_096, "{written}");
    assert!(dropped > 0 && outcome.flags.iter().any(|flag| flag.key == "tier.writes"), "{:?}", outcome.flags);
    // No client waits for any of it.
    assert_eq!(outcome.volumes[0].totals.write_latency.p99_ms.map(f64::round), Some(1.0));
}

#[test]
fn a_long_write_to_an_idle_tier_costs_no_chunk_its_place() {
    // Once the reads have brought 512 chunks, a write of all of them every two seconds: 32 MiB, for which the tier has time.
    let mut scenario = tiered(r#"admission = "lru""#, "", "");
    let reads = scenario.volume[0].load[0].clone();
    let size = Some(Bytes::mib(32));
    let writes = LoadTable {
        from: Nanos::secs(30),
        arrivals: ArrivalKind::Constant,
        rate: Some(0.5),
        read_share: 0.0,
        request_size: size,
        ..reads.clone()
    };
    scenario.volume[0].load = vec![reads, writes];
    let outcome = run(&scenario, 8);
    let sum = |of: fn(&TierRow) -> u64| rows(&outcome).iter().map(of).sum::<u64>();
    let held = rows(&outcome).last().map(|row| row.held_chunks);
    assert_eq!((held, sum(|row| row.totals.dropped)), (Some(512), 0));
    assert_eq!(sum(|row| row.totals.written_bytes), (64 << 10) * sum(|row| row.totals.write_hits));
    assert!(sum(|row| row.totals.write_hits) >= 30 * 512);
    assert!(!outcome.flags.iter().any(|flag| flag.key == "tier.writes"), "{:?}", outcome.flags);
}

#[test]
fn what_leaves_is_written_back_if_the_origin_does_not_have_it() {
    // The load moves to another 32 MiB: of a tier of 32 MiB, all that was written leaves.
    let totals = |writes: &str| {
        let mut scenario =
            tiered(&format!(r#"admission = "lru", writes = "{writes}""#), "", "read_share = 0.5");
        scenario.tier.as_mut().unwrap().size = forebay_units::Bytes::mib(32);
        let mut second = scenario.volume[0].load[0].clone();
        (second.from, second.offset) = (forebay_units::Nanos::secs(60), forebay_units::Bytes::mib(512));
        scenario.volume[0].load.push(second);
        run(&scenario, 3).tier.unwrap().totals
    };
    let (through, home) = (totals("through"), totals("home"));
    assert_eq!(through.demoted_bytes, 0);
    // Every chunk was written within the first minute (9,000 writes to 512 chunks), a few again while they were on their way.
    assert!((30 << 20..36 << 20).contains(&home.demoted_bytes), "{}", home.demoted_bytes);
}

#[test]
fn a_tier_is_switched_on_while_it_serves() {
    let outcome = run(&tiered("", r#"from = "40s", until = "80s""#, ""), 4);
    let held: Vec<u32> = rows(&outcome).iter().map(|row| row.held_chunks).collect();
    assert_eq!((held[3], held[7]), (0, 512), "{held:?}");
    // What is there is still served from there.
    assert!(rows(&outcome)[11].totals.read_hit_ratio() > 0.99);
}

#[test]
fn a_place_on_the_tier_is_a_quota_that_reads_join_by() {
    // Two disks, and a load of one chunk, which more ask for than its disk can read it: without a tier every read costs an access.
    let outcome = |used: &str| {
        let mut scenario = tiered("", "", "");
        scenario.origin[0].spindles = Some(2);
        if used.is_empty() {
            scenario.volume[0].tier = None;
            scenario.tier = None;
            scenario.origin.pop();
        } else {
            scenario.volume[0].tier = tiered("", used, "").volume[0].tier.clone();
        }
        let load = &mut scenario.volume[0].load[0];
        (load.rate, load.working_set) = (Some(475.0), Some(Bytes::kib(64)));
        run(&scenario, 6).volumes[0].totals.clone()
    };
    // Switched on so late that nothing comes before.
    let (with, without) = (outcome(r#"from = "119s""#), outcome(""));
    println!("with: {:.0}/s, {:?} ms; without {:.0}/s", with.iops, with.latency.mean_ms, without.iops);
    assert!(with.iops > 451.0 && without.iops < 356.0, "{} {}", with.iops, without.iops);
}

#[test]
fn hits_of_the_tier_do_not_tell_what_a_migration_costs() {
    // What is asked for is another part of the volume every 15 s: then all wait for a disk and meet a migration, and later few do either. Compared with hits of the tier, which are quick and meet
    // none, migrations would seem to do harm, and their pace would be halved.
    let mut scenario = tiered(r#"admission = "threshold-1""#, "", "");
    let load = scenario.volume[0].load[0].clone();
    scenario.volume[0].load = (0..8)
        .map(|number| {
            let offset = Bytes::mib(64 * number);
            LoadTable { from: Nanos::secs(15 * number), offset, ..load.clone() }
        })
        .collect();
    let halvings = |seed| rows(&run(&scenario, seed)).iter().map(|row| row.totals.halvings).sum::<u64>();
    // Two in four runs by chance; fifteen where hits are compared with.
    let total: u64 = (1..=4).map(halvings).sum();
    assert!(total <= 4, "{total} halvings");
}

#[test]
fn a_tier_that_cannot_be_is_refused() {
    let key = |scenario: Scenario| scenario.check().unwrap_err().key().to_owned();
    let good = tiered("", "", "");
    assert_eq!(good.check().map(|flags| flags.len()), Ok(0));
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = good.clone();
        change(&mut scenario);
        key(scenario)
    };
    assert_eq!(with(&|scenario| scenario.tier = None), "volume[0].tier");
    assert_eq!(with(&|scenario| scenario.tier.as_mut().unwrap().origin = "disks".into()), "tier.origin");
    assert_eq!(with(&|scenario| scenario.tier.as_mut().unwrap().origin = "tape".into()), "tier.origin");
    let size = |bytes| with(&|scenario| scenario.tier.as_mut().unwrap().size = forebay_units::Bytes(bytes));
    assert_eq!((size(0), size(2 << 30)), ("tier.size".into(), "tier.size".into()));
    for (key, tier) in [
        ("tier.chunk", r#"chunk = "100KiB""#),
        ("tier.cooling", "cooling = 0"),
        ("tier.margin", "margin = -1"),
        ("tier.migration_cost", "migration_cost = nan"),
        ("tier.moving_max", "moving_max = 0"),
        ("tier.migration_per_second", r#"migration_per_second = "0B""#),
    ] {
        assert_eq!(tiered(tier, "", "").check().unwrap_err().key(), key);
    }
    assert_eq!(key(tiered("", r#"from = "5s", until = "5s""#, "")), "volume[0].tier.until");
}

#[test]
fn a_tier_has_room_on_its_device() {
    let flash = r#"type = "ssd", flash = { capacity = "1GiB", filled_share = 0 }"#;
    let of = |device: &str, size: &str| {
        let mut scenario = tiered("", "", "");
        let other = toml::from_str(&format!("name = \"flash\"\n{device}")).expect("an origin");
        scenario.origin[1] = other;
        scenario.tier.as_mut().unwrap().size = size.parse().expect("a size");
        scenario.check().err().map(|error| format!("{}: {error}", error.key()))
    };
    // Four disks of 1 MiB, in whole stripe units.
    let disks = "type = \"disks\"\ndisk_capacity = \"1MiB\"";
    assert_eq!(of(disks, "4MiB"), None);
    assert_eq!(
        of(disks, "64MiB").as_deref(),
        Some(
            "tier.size: a tier of 67108864 bytes does not fit on origin `flash`, which holds 4194304 bytes: a smaller tier, or a larger device"
        )
    );
    // 32 dies of whole pages of 16 KiB hold 512 KiB of what is called 1000 kB.
    let small = "type = \"ssd\"\nflash = { capacity = \"1000KB\" }";
    assert!(of(small, "1000KB").is_some_and(|said| said.contains("holds 524288 bytes")));
    assert_eq!(of(small, "512KiB"), None);
    // What is less than a chunk is not used.
    assert_eq!(of(small, "575KiB"), None);
    assert_eq!(of(&flash.replace(", flash", "\nflash"), "1GiB"), None);
}
