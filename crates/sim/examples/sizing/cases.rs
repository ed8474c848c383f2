//! The cases: what is asked of which origin, and what was promised.

use forebay_sim::scenario::{LoadTable, Scenario};
use forebay_sim::{RecordedRequest, Traces};
use forebay_trace::{Operation, ReadOptions, Source, TraceReader, VolumeIndex};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A case; its first volume is the one that is judged, by its first objective.
#[derive(Debug)]
pub(crate) struct Case {
    /// Without spaces.
    pub(crate) name: String,
    /// As for the controller.
    pub(crate) scenario: Scenario,
    /// Recorded requests.
    pub(crate) traces: Traces,
    /// When what is judged begins, in seconds: 0, or the step.
    pub(crate) step_s: f64,
    /// Intervals besides filling in which conformance is to be restored after the step.
    pub(crate) restored_intervals: u32,
}

impl Case {
    /// Of control.
    pub(crate) fn interval_s(&self) -> f64 {
        self.scenario.cache.interval.as_secs_f64()
    }
}

const DURATION_S: u32 = 2_000;
const STEADY_S: u32 = 1_000;

/// A case of one volume; `load`, `objective` and `origin` are the inner text of inline tables.
fn one(name: &str, origin: &str, load: &str, objective: &str) -> Case {
    several(name, origin, &[load], objective, 0.0)
}

/// A case of several volumes on one origin; each text is a list of loads.
fn several(name: &str, origin: &str, loads: &[&str], objective: &str, step_s: f64) -> Case {
    let volumes: String = loads
        .iter()
        .enumerate()
        .map(|(at, loads)| format!("[[volume]]\nname = \"v{at}\"\nsize = \"8GiB\"\nload = [{loads}]\n"))
        .collect();
    let text = format!(
        "name = \"{name}\"\nduration = \"{DURATION_S}s\"\nmeasure_from = \"{STEADY_S}s\"\n\
         cache = {{ memory = \"4GiB\" }}\norigin = [{{ name = \"o\", {origin} }}]\n{volumes}\
         [[objective]]\nvolume = \"v0\"\n{objective}\nconforming_share = 0.99\n"
    );
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    scenario.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    Case { name: name.to_owned(), scenario, traces: Traces::new(), step_s, restored_intervals: 2 }
}

fn poisson(rate: u32, theta: f64, set: &str, more: &str) -> String {
    format!("{{ arrivals = \"poisson\", rate = {rate}, theta = {theta:.2}, working_set = \"{set}\"{more} }}")
}

/// A folder with a trace, and how the trace is played.
struct Recording<'a> {
    name: &'a str,
    path: PathBuf,
    volume: Option<&'a str>,
    speed: f64,
    size: &'a str,
    origin: &'a str,
    objective: &'a str,
}

fn recorded(recording: &Recording<'_>) -> Option<Case> {
    if !recording.path.is_file() {
        eprintln!("skipped: case `{}` needs `{}`", recording.name, recording.path.display());
        return None;
    }
    let load = "{ arrivals = \"trace\", trace = \"recorded\", repeat = true }";
    let mut case = several(recording.name, recording.origin, &[load], recording.objective, 0.0);
    let volume = &mut case.scenario.volume[0];
    volume.size = recording.size.parse().expect("a size");
    let table: &mut LoadTable = &mut volume.load[0];
    table.speed = recording.speed;
    case.traces.insert((0, 0), read(&recording.path, recording.volume));
    case.scenario.check().unwrap_or_else(|error| panic!("{}: {error}", recording.name));
    Some(case)
}

fn read(path: &Path, volume: Option<&str>) -> Arc<[RecordedRequest]> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let source = Source::new(path.display().to_string(), file);
    let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).expect("a trace");
    let (mut batch, mut requests) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).expect("a good trace") > 0 {
        let wanted = volume.map(|name| {
            reader.volumes().iter().position(|known| known == name).map(|at| VolumeIndex(at as u32))
        });
        for request in &batch {
            let writes = match request.operation {
                Operation::Read => false,
                Operation::Write => true,
                _ => continue,
            };
            if request.length > 0 && wanted.is_none_or(|wanted| wanted == Some(request.volume)) {
                let length = request.length as u32;
                requests.push(RecordedRequest { at: request.time, offset: request.offset, length, writes });
            }
        }
    }
    requests.into()
}

/// All cases that can be run here.
pub(crate) fn all() -> Vec<Case> {
    let disks = "type = \"disks\", spindles = 2, disk = \"15000rpm\"";
    let many = "type = \"disks\", spindles = 3, disk = \"7200rpm\", disk_capacity = \"256GiB\"";
    let queues = "type = \"servers\", servers = 3, service = \"5ms\", distribution = \"exponential\"";
    let load = |rate, theta, set, more| poisson(rate, theta, set, more);
    let uniform = |rate: u32, set: &str| {
        format!(
            "{{ arrivals = \"poisson\", rate = {rate}, popularity = \"uniform\", working_set = \"{set}\" }}"
        )
    };
    let closed =
        |more: &str| format!("{{ arrivals = \"closed\", theta = 0.9, working_set = \"256MiB\", {more} }}");
    let reader = "{ arrivals = \"closed\", clients = 5, popularity = \"uniform\" }";
    let mean = |latency: &str| format!("latency = \"{latency}\"");
    let reads = |latency: &str| format!("latency = \"{latency}\"\noperations = \"reads\"");
    let mut cases = vec![
        one("zipf-0.6", disks, &load(1_000, 0.6, "256MiB", ""), &mean("7ms")),
        one("zipf-0.8", disks, &load(1_200, 0.8, "256MiB", ""), &mean("7ms")),
        one("zipf-0.9", disks, &load(1_300, 0.9, "512MiB", ""), &mean("6ms")),
        one("zipf-1.0", disks, &load(1_400, 1.0, "512MiB", ""), &mean("5ms")),
        one("zipf-1.1", disks, &load(1_700, 1.1, "512MiB", ""), &mean("4ms")),
        one("uniform", disks, &uniform(900, "64MiB"), &mean("6ms")),
        one("small-set", disks, &load(1_300, 0.9, "32MiB", ""), &mean("7ms")),
        one("tiny-set", disks, &load(1_300, 0.9, "8MiB", ""), &mean("7ms")),
        one("wide-set", disks, &load(1_200, 1.0, "4GiB", ""), &mean("8ms")),
        one("slow-disks", many, &load(750, 0.9, "256MiB", ""), &mean("14ms")),
        one("tight", many, &load(400, 0.9, "256MiB", ""), &mean("4ms")),
        one("writes-10", disks, &load(1_200, 0.9, "256MiB", ", read_share = 0.9"), &mean("7ms")),
        one("writes-30", disks, &load(850, 0.9, "256MiB", ", read_share = 0.7"), &mean("9ms")),
        one("reads-only", disks, &load(850, 0.9, "256MiB", ", read_share = 0.7"), &reads("7ms")),
        one("p95", disks, &load(1_200, 0.9, "256MiB", ""), "latency = \"25ms\"\nstatistic = \"p95\""),
        one("queues", queues, &load(900, 0.9, "256MiB", ""), &mean("6ms")),
        one("large-requests", disks, &load(800, 0.9, "512MiB", ", request_size = \"16KiB\""), &mean("7ms")),
        one("closed-floor", disks, &closed("clients = 8"), "iops = 1300"),
        one("closed-think", disks, &closed("clients = 12, think = \"10ms\""), &mean("5ms")),
        several(
            "neighbour-open",
            disks,
            &[&load(500, 0.9, "256MiB", ""), &uniform(400, "8GiB")],
            &mean("7ms"),
            0.0,
        ),
        several("neighbour-closed", disks, &[&load(500, 0.9, "256MiB", ""), reader], &mean("7ms"), 0.0),
        one("overloaded", many, &load(1_000, 1.1, "512MiB", ", read_share = 0.9"), &mean("12ms")),
    ];
    for (name, from, to) in [
        ("step-load", load(1_000, 0.9, "256MiB", ""), load(1_400, 0.9, "256MiB", "")),
        ("step-set", load(1_200, 0.9, "128MiB", ""), load(1_200, 0.9, "256MiB", "")),
    ] {
        let loads = format!("{from}, {}", to.replacen("{ ", "{ from = \"800s\", ", 1));
        cases.push(several(name, disks, &[&loads], &mean("7ms"), 800.0));
    }
    // What was needed before is not needed any more.
    for (name, from, to) in [
        ("step-load-down", load(1_400, 0.9, "256MiB", ""), load(1_100, 0.9, "256MiB", "")),
        ("step-set-down", load(1_200, 0.9, "256MiB", ""), load(1_200, 0.9, "128MiB", "")),
    ] {
        let loads = format!("{from}, {}", to.replacen("{ ", "{ from = \"500s\", ", 1));
        cases.push(several(name, disks, &[&loads], &mean("7ms"), 500.0));
    }
    // The third phase is like the first one, which was left for the second.
    let again = format!(
        "{}, {}, {}",
        load(1_400, 0.9, "256MiB", ""),
        load(1_050, 0.9, "256MiB", "").replacen("{ ", "{ from = \"500s\", ", 1),
        load(1_400, 0.9, "256MiB", "").replacen("{ ", "{ from = \"900s\", ", 1)
    );
    let remembered = several("step-remembered", disks, &[&again], &mean("7ms"), 900.0);
    cases.push(Case { restored_intervals: 1, ..remembered });

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared =
        std::env::var_os("FOREBAY_TRACES").map_or_else(|| root.join("../shared/traces"), PathBuf::from);
    let vast = "type = \"disks\", spindles = 3, disk = \"7200rpm\", disk_capacity = \"512GiB\"";
    let fast = "type = \"disks\", spindles = 2, disk = \"15000rpm\"";
    let recordings = [
        Recording {
            name: "trace-office",
            path: root.join("examples/office.fbt.zst"),
            volume: Some("mail_0"),
            speed: 2.0,
            size: "32GiB",
            origin: "type = \"disks\", spindles = 2",
            objective: "latency = \"12ms\"\noperations = \"reads\"",
        },
        Recording {
            name: "trace-pgbench",
            path: root.join("crates/cli/assets/pgbench.fbt.zst"),
            volume: None,
            speed: 1.0,
            size: "512MiB",
            origin: fast,
            objective: "latency = \"8ms\"\noperations = \"reads\"",
        },
        Recording {
            name: "trace-webserver",
            path: shared.join("blkreplay_linux-webserver-2.load.gz"),
            volume: None,
            speed: 6.0,
            size: "1TiB",
            origin: vast,
            objective: "latency = \"30ms\"\noperations = \"reads\"",
        },
        Recording {
            name: "trace-cloudphysics",
            path: shared.join("cloudphysics_sample.vscsi.zst"),
            volume: None,
            speed: 12.0,
            size: "64GiB",
            origin: many,
            objective: "latency = \"12ms\"\noperations = \"reads\"",
        },
        Recording {
            name: "trace-websearch",
            path: shared.join("websearch_small.disksim.trace"),
            volume: None,
            speed: 1.0,
            size: "64GiB",
            origin: many,
            objective: "latency = \"12ms\"",
        },
        Recording {
            name: "trace-financial",
            path: shared.join("Financial1-snippet.spc"),
            volume: None,
            speed: 6.0,
            size: "64GiB",
            origin: fast,
            objective: "latency = \"8ms\"\noperations = \"reads\"",
        },
    ];
    cases.extend(recordings.iter().filter_map(recorded));
    cases
}
