//! Scenarios that cannot be run for one key: unknown, missing, out of its range, or without effect; and the reference names every key.

use crate::refusals::{GOOD, ON_DISKS, refused};
use crate::scenario;
use forebay_sim::scenario::Scenario;

#[test]
fn unknown_keys_and_missing_ones_are_refused_by_the_reader() {
    for (from, to, said) in [
        ("rate = 100", "rade = 100", "unknown field `rade`"),
        ("servers = 2", "server = 2", "unknown field `server`"),
        ("duration = \"60s\"", "", "missing field `duration`"),
        ("duration = \"60s\"", "duration = 60", "a text in quotes, with a unit"),
        ("cache.memory", "control.gain = 1\ncache.memory", "unknown field `gain`"),
        ("\"poisson\"", "\"poison\"", "unknown variant `poison`"),
    ] {
        let error = toml::from_str::<Scenario>(&GOOD.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn values_out_of_range_are_refused_by_key() {
    let expected = "latency = \"5ms\"\n[[expected]]\nby = \"nobody\"\nvolume = ";
    for (from, to, key) in [
        ("\"60s\"", "\"5s\"", "duration"),
        ("servers = 2", "servers = 0", "origin[0].servers"),
        ("servers = 2", "spindles = 2", "origin[0].spindles"),
        (", service = \"10ms\"", "", "origin[0]"),
        ("rate = 100", "rate = -1", "volume[0].load[0].rate"),
        ("rate = 100", "clients = 3", "volume[0].load[0]"),
        ("rate = 100", "rate = 1, think = \"1s\"", "volume[0].load[0].think"),
        ("rate = 100", "rate = 1, read_share = 1.5", "volume[0].load[0].read_share"),
        ("rate = 100", "rate = 1, working_set = \"2GiB\"", "volume[0].load[0].working_set"),
        ("rate = 100 }", "rate = 1 }, { arrivals = \"idle\" }", "volume[0].load[1].from"),
        ("size = \"1GiB\"", "size = \"1GiB\"\ncache = \"65MiB\"", "volume[0].cache"),
        ("volume = \"v\"", "volume = \"w\"", "objective[0].volume"),
        ("latency = \"5ms\"", "latency = \"5ms\"\niops = 5", "objective[0]"),
        ("latency = \"5ms\"", "latency = \"5ms\"\nstatistic = \"p0\"", "objective[0].statistic"),
        ("cache.memory", "control.feedback.gain = 0\ncache.memory", "control.feedback.gain"),
        ("cache.memory", "cache.control_from = \"60s\"\ncache.memory", "cache.control_from"),
        (
            "cache.memory",
            "cache.sizing = \"fixed\"\ncache.control_from = \"5s\"\ncache.memory",
            "cache.control_from",
        ),
        ("cache.memory", "observe.curve_memory = \"1KiB\"\ncache.memory", "observe.curve_memory"),
        ("cache.memory", "observe.epoch = \"8d\"\ncache.memory", "observe.epoch"),
        ("cache.memory", "observe.window = \"0s\"\ncache.memory", "observe.window"),
        ("cache.memory", "observe.zone_size = \"100KiB\"\ncache.memory", "observe.zone_size"),
        ("size = \"1GiB\"", "size = \"1GiB\"\nblock_size = \"128KiB\"", "volume[0].block_size"),
        ("size = \"1GiB\"", "size = \"1GiB\"\ncache = \"1MiB\"\nmay_cache = false", "volume[0].may_cache"),
        ("size = \"1GiB\"", "size = \"1GiB\"\nminimum = \"1MiB\"\nmay_cache = false", "volume[0].may_cache"),
        (
            ON_DISKS.0,
            &format!("{} array = {{ cache = \"1GiB\", dirty_share_max = 0.255 }}", ON_DISKS.1),
            "origin[0].array.dirty_share_max",
        ),
        ("servers = 2", "transfer_per_second = \"0B\"", "origin[0].transfer_per_second"),
        ("servers = 2", "servers = 2, hangs = [{ from = \"1s\", for = \"0s\" }]", "origin[0].hangs[0].for"),
        (ON_DISKS.0, &format!("{} buffer = {{ segments = 0 }}", ON_DISKS.1), "origin[0].buffer.segments"),
        (
            ON_DISKS.0,
            &format!("{} buffer = {{ interface_per_second = \"0B\" }}", ON_DISKS.1),
            "origin[0].buffer.interface_per_second",
        ),
        ("latency = \"5ms\"", "latency = \"2h\"", "objective[0].latency"),
        ("latency = \"5ms\"", &format!("{expected}\"w\"\nhit_ratio = 1"), "expected[0].volume"),
        ("latency = \"5ms\"", &format!("{expected}\"v\""), "expected[0]"),
        ("latency = \"5ms\"", &format!("{expected}\"v\"\nhit_ratio = 1.1"), "expected[0]"),
        (
            "latency = \"5ms\"",
            &format!("{expected}\"v\"\nhit_ratio = 1\nrequests_per_second = 5"),
            "expected[0]",
        ),
        ("latency = \"5ms\"", "latency = \"5ms\"\nwindow = \"50ms\"", "objective[0].window"),
        // Keys that would be without effect.
        ("rate = 100", "rate = 100, speed = 2.0", "volume[0].load[0].speed"),
        ("rate = 100", "rate = 100, repeat = true", "volume[0].load[0].repeat"),
        (
            "\"poisson\", rate = 100",
            "\"closed\", clients = 1, outstanding_max = 4",
            "volume[0].load[0].outstanding_max",
        ),
        ("\"poisson\", rate = 100", "\"idle\", outstanding_max = 4", "volume[0].load[0].outstanding_max"),
        ("\"poisson\", rate = 100", "\"idle\", read_share = 0.5", "volume[0].load[0].read_share"),
        ("\"poisson\", rate = 100", "\"idle\", theta = 1.0", "volume[0].load[0].theta"),
        (
            "\"poisson\", rate = 100",
            "\"trace\", trace = \"t\", working_set = \"1MiB\"",
            "volume[0].load[0].working_set",
        ),
        (
            "\"poisson\", rate = 100",
            "\"trace\", trace = \"t\", offset = \"1MiB\"",
            "volume[0].load[0].offset",
        ),
        (
            "\"poisson\", rate = 100",
            "\"trace\", trace = \"t\", request_size = \"8KiB\"",
            "volume[0].load[0].request_size",
        ),
        (
            "\"poisson\", rate = 100",
            "\"trace\", trace = \"t\", popularity = \"uniform\"",
            "volume[0].load[0].popularity",
        ),
        ("cache.memory", "eafc.gain = 1\ncache.memory", "eafc"),
        (
            "cache.memory",
            "control.warmup.score = \"frequency-per-byte\"\ncache.memory",
            "control.warmup.score",
        ),
        (
            "cache.memory",
            "control.warmup.cache_share_max = 0.5\ncache.memory",
            "control.warmup.cache_share_max",
        ),
        ("cache.memory", "control.warmup.hit_ratio_min = 0.5\ncache.memory", "control.warmup.hit_ratio_min"),
        ("cache.memory", "control.warmup.spared_min = 0.5\ncache.memory", "control.warmup.spared_min"),
        ("cache.memory", "control.warmup.insertion = \"head\"\ncache.memory", "control.warmup.insertion"),
        (
            ON_DISKS.0,
            &format!("{} disk = \"fixed\", service = \"1ms\", seek_average = \"1ms\"", ON_DISKS.1),
            "origin[0].seek_average",
        ),
        (
            ON_DISKS.0,
            &format!("{} array = {{ cache = \"1GiB\", flush_share = 0.6 }}", ON_DISKS.1),
            "origin[0].array.flush_share",
        ),
        (
            ON_DISKS.0,
            &format!(
                "{} array = {{ cache = \"1GiB\", dirty_share_max = 0.05, flush_share = 0.06 }}",
                ON_DISKS.1
            ),
            "origin[0].array.flush_share",
        ),
    ] {
        let error = refused(from, to);
        assert_eq!(error.key(), key, "{error}");
    }
}

/// What is not set goes with what is.
#[test]
fn few_dirty_pages_are_flushed_at_once_unless_a_share_is_set() {
    let few = format!("{} array = {{ cache = \"1GiB\", dirty_share_max = 0.05 }}", ON_DISKS.1);
    let same = few.replace("0.05", "0.05, flush_share = 0.05");
    for array in [few, same] {
        assert_eq!(scenario(&GOOD.replace(ON_DISKS.0, &array)).check(), Ok(Vec::new()), "{array}");
    }
}

#[test]
fn reservations_that_cannot_be_are_refused_by_key() {
    let reserved = |keys: &str| {
        let text = format!("{GOOD}\n[[reservation]]\n{keys}\n");
        scenario(&text).check()
    };
    let good = "volumes = [\"v\"]\niops = 50\nfor = \"30s\"";
    assert_eq!(reserved(good), Ok(Vec::new()));
    for (from, to, key) in [
        ("[\"v\"]", "[]", "reservation[0].volumes"),
        ("[\"v\"]", "[\"v\", \"w\"]", "reservation[0].volumes[1]"),
        ("[\"v\"]", "[\"v\", \"v\"]", "reservation[0].volumes[1]"),
        ("iops = 50", "", "reservation[0]"),
        ("iops = 50", "iops = nan", "reservation[0].iops"),
        ("iops = 50", "iops = 0", "reservation[0].iops"),
        ("iops = 50", "latency = \"0ns\"", "reservation[0].latency"),
        ("iops = 50", "weight = 0\niops = 50", "reservation[0].weight"),
        ("\"30s\"", "\"0s\"", "reservation[0].for"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = reserved(&good.replace(from, to)).expect_err(to);
        assert_eq!(error.key(), key, "{error}");
    }
    // What no cache could keep is refused as of any objective, and what cannot be missed is flagged.
    let error = reserved(&good.replace("iops = 50", "latency = \"100us\"")).expect_err("below a hit");
    assert_eq!(error.key(), "reservation[0].latency");
    let flags = reserved(&good.replace("50", "500")).expect("it can be run");
    assert_eq!((flags.len(), flags[0].key.as_str()), (1, "reservation[0].iops"));
}

#[test]
fn the_reference_names_every_key() {
    let reference = include_str!("../../../../docs/reference/scenario.md");
    // A key that nobody knows makes the reader name all those that it does.
    for (from, to) in [
        ("name = \"good\"", "name = \"good\"\nzz = 1"),
        ("cache.memory", "cache.zz = 1\ncache.memory"),
        ("servers = 2", "zz = 2"),
        ("servers = 2", "hangs = [{ zz = 2 }]"),
        ("size = \"1GiB\"", "size = \"1GiB\"\nzz = 1"),
        ("rate = 100", "zz = 1"),
        ("latency = \"5ms\"", "zz = 1"),
        ("[[objective]]", "[[reservation]]\nzz = 1\n[[objective]]"),
        ("[[objective]]", "[[expected]]\nzz = 1\n[[objective]]"),
        ("cache.memory", "observe.zz = 1\ncache.memory"),
    ] {
        let error = toml::from_str::<Scenario>(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        let (_, keys) = error.split_once("expected one of ").expect("the reader lists the keys");
        let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
        assert!(keys.len() >= 3, "{error}");
        for key in keys {
            assert!(reference.contains(&format!("`{key}`")), "`{key}` is not in docs/reference/scenario.md");
        }
    }
}

#[test]
fn bounds_of_sizes_want_somebody_who_sizes() {
    let with = |sizing: &str, key: &str| {
        let text = GOOD.replace("cache.memory", &format!("cache.sizing = \"{sizing}\"\ncache.memory"));
        scenario(&text.replace("size = \"1GiB\"", &format!("size = \"1GiB\"\n{key} = \"4MiB\""))).check()
    };
    for (sizing, key, passes) in [
        ("control", "minimum", true),
        ("control", "maximum", true),
        ("eafc", "minimum", false),
        ("eafc", "maximum", true),
        ("fixed", "minimum", false),
        ("fixed", "maximum", false),
    ] {
        let found = with(sizing, key);
        let key = format!("volume[0].{key}");
        assert!(
            if passes { found == Ok(Vec::new()) } else { found.unwrap_err().key() == key },
            "{sizing}, {key}"
        );
    }
    // What is compared with and without is one file: parameters of a controller that has nothing to do are told, and not refused.
    let text =
        GOOD.replace("cache.memory", "control.sizing_margin = 0.2\ncache.sizing = \"fixed\"\ncache.memory");
    let flags = scenario(&text).check().expect("it can be run");
    assert!(flags[0].key == "control" && flags[0].message.contains("nobody decides"), "{flags:?}");
}
