//! Runs a case under a law and under static sizes, and compares.

use crate::cases::Case;
use forebay_control::conformance::Verdict;
use forebay_control::feedback::Law;
use forebay_sim::scenario::ScenarioError;
use forebay_sim::scenario::{Scenario, Sizing};
use forebay_sim::{Outcome, RunError, Simulation};
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

/// The share of windows that are to conform.
const SHARE: f64 = 0.99;
/// Of the optimum, relative: bisection ends here.
const RESOLUTION: f64 = 0.005;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Share of conforming windows in the steady part.
    share: f64,
    /// Mean bytes in the steady part, and the most at any time from the case's beginning on.
    mean: f64,
    most: f64,
    /// Bytes when the step came.
    before: f64,
    /// Seconds after the beginning from which on the share holds; infinite if never.
    settled_s: f64,
    /// Seconds after the beginning of the first [`RESTORED_WINDOWS`] windows in a row that conform; infinite if never.
    restored_s: f64,
    /// Bytes per second that came into the cache in the first intervals after the beginning in which it grew.
    fill_rate: f64,
}

/// So many windows in a row that conform are no chance: as many as make a violation where they miss.
const RESTORED_WINDOWS: usize = 5;
/// Intervals after a step in which it is seen how fast a cache fills.
const FILL_INTERVALS: usize = 4;

/// The optimum of a case and a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Optimum {
    /// The smallest static size.
    bytes: f64,
    /// The share that it is for: 0.99, or what all the memory reaches.
    share: f64,
    /// Seconds that it needs from cold.
    cold_s: f64,
}

impl Optimum {
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes
    }
}

/// Optima that were found.
#[derive(Debug, Default)]
pub(crate) struct Optima {
    found: BTreeMap<(String, u64), Optimum>,
    path: Option<String>,
}

impl Optima {
    /// From a file of lines `case seed bytes share seconds`; nothing where there is none.
    pub(crate) fn read(path: Option<&str>) -> Optima {
        let text = path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
            let [seed, bytes, share, cold_s] = numbers[..] else { return None };
            Some(((name, seed as u64), Optimum { bytes, share, cold_s }))
        };
        Optima { found: text.lines().filter_map(parse).collect(), path: path.map(str::to_owned) }
    }

    /// The median optimum of a case with other seeds.
    fn of_another_seed(&self, case: &str) -> Option<f64> {
        let mut known: Vec<f64> =
            self.found.iter().filter(|((name, _), _)| name == case).map(|(_, found)| found.bytes).collect();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied()
    }

    /// Writes them back, where a file was named.
    fn write(&self) {
        let Some(path) = &self.path else { return };
        let lines: Vec<String> = self
            .found
            .iter()
            .map(|((name, seed), o)| format!("{name} {seed} {} {} {}\n", o.bytes, o.share, o.cold_s))
            .collect();
        fs::write(path, lines.concat()).expect("the file of the optima can be written");
    }
}

/// A law against the optimum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    run: Run,
    optimum: Optimum,
    /// Seconds until conformance is restored after a step where somebody who knows the optimum orders it, or a surplus beside it, at the end of the
    /// first interval that shows the step; not a number without a step.
    oracle_s: [f64; 2],
}

/// The sizes that the oracle orders, over the optimum: itself, and as much as may be overshot.
const ORACLE: [f64; 2] = [1.0, OVERSHOOT_MAX];

impl Judged {
    pub(crate) fn optimum(&self) -> Optimum {
        self.optimum
    }

    fn ratio(&self) -> f64 {
        self.run.mean / self.optimum.bytes.max(1.0)
    }

    /// The largest size over the optimum. What was in force when a step came was for another load: only what goes beyond it
    /// counts then.
    fn overshoot(&self) -> f64 {
        self.run.most / self.optimum.bytes.max(self.run.before).max(1.0)
    }

    /// Seconds in which what the optimum has more than there was at the step can be filled.
    fn fill_s(&self) -> f64 {
        (self.optimum.bytes - self.run.before).max(0.0) / self.run.fill_rate.max(1.0)
    }

    /// Seconds in which conformance is to be restored after a step.
    fn restored_allowed_s(&self, case: &Case) -> f64 {
        self.fill_s() + f64::from(case.restored_intervals) * case.interval_s()
    }

    fn allowed_s(&self, case: &Case) -> f64 {
        match case.step_s {
            0.0 => 1.2 * self.optimum.cold_s + 12.0 * case.interval_s(),
            _ => self.optimum.cold_s + 2.0 * case.interval_s(),
        }
    }
}

/// Runs a case; `None` where the origin cannot ever serve what is left to it.
fn measure(case: &Case, scenario: &Scenario, seed: u64) -> Option<(Run, Outcome)> {
    let outcome = match Simulation::new(scenario, &case.traces, Some(seed)) {
        Ok(simulation) => simulation.run(),
        Err(RunError::Scenario(ScenarioError::Overload { .. })) => return None,
        Err(error) => panic!("{}: {error}", case.name),
    };
    let run = judge_run(case, &outcome);
    Some((run, outcome))
}

/// What an outcome of a case came to.
fn judge_run(case: &Case, outcome: &Outcome) -> Run {
    let volume = &outcome.volumes[0];
    let objective = &volume.objectives[0];
    let windows: Vec<(f64, bool)> = objective
        .windows
        .iter()
        .filter(|row| row.at_s > case.step_s && row.verdict != Verdict::LowLoad)
        .map(|row| (row.at_s, row.verdict == Verdict::Conforming))
        .collect();
    // From the end backwards: the earliest window from which on enough conform.
    let (mut good, mut settled_s) = (0.0, f64::INFINITY);
    for (count, (at_s, conforms)) in windows.iter().rev().enumerate() {
        good += f64::from(u8::from(*conforms));
        if *conforms && good >= SHARE * (count + 1) as f64 {
            settled_s = at_s - case.step_s - case.interval_s();
        }
    }
    let in_a_row = windows.windows(RESTORED_WINDOWS).find(|windows| windows.iter().all(|window| window.1));
    let restored_s = in_a_row.map_or(f64::INFINITY, |windows| windows[0].0 - case.step_s - case.interval_s());
    let block = volume.block_bytes as f64;
    let after = || volume.intervals.iter().filter(|row| row.at_s > case.step_s);
    let before = volume.intervals.iter().take_while(|row| row.at_s <= case.step_s).last();
    let filled: Vec<u64> = after().take(FILL_INTERVALS).map(|row| row.filled_blocks).collect();
    let most = after().map(|row| row.quota_blocks).max();
    Run {
        share: objective.conforming_share.unwrap_or(0.0),
        mean: volume.totals.quota_blocks_mean * block,
        most: most.unwrap_or(0) as f64 * block,
        before: before.map_or(0, |row| row.quota_blocks) as f64 * block,
        settled_s,
        restored_s,
        fill_rate: filled.iter().max().map_or(0.0, |&blocks| blocks as f64 * block / case.interval_s()),
    }
}

/// Seconds until conformance is restored after the step of a case, if the cache is of `before` bytes until the end of the first interval after it,
/// and of `bytes` then.
fn restored_by_oracle(case: &Case, seed: u64, before: f64, bytes: f64) -> f64 {
    let scenario = fixed(case, before);
    let at = Nanos::from_secs_f64(case.step_s + case.interval_s());
    let simulation = Simulation::new(&scenario, &case.traces, Some(seed));
    match simulation.map(|simulation| simulation.with_size(at, 0, Bytes(bytes as u64)).run()) {
        Ok(outcome) => judge_run(case, &outcome).restored_s,
        Err(error) => panic!("{}: {error}", case.name),
    }
}

fn fixed(case: &Case, bytes: f64) -> Scenario {
    let mut scenario = case.scenario.clone();
    scenario.cache.sizing = Sizing::Fixed;
    for (at, volume) in scenario.volume.iter_mut().enumerate() {
        (volume.minimum, volume.maximum) = (Bytes::ZERO, None);
        volume.cache = (at == 0).then_some(Bytes(bytes as u64));
    }
    scenario
}

/// The smallest static size by bisection; it begins at `guess`, and takes steps of `reach` until the optimum is between two.
fn optimum(case: &Case, seed: u64, guess: f64, reach: f64) -> Optimum {
    let run = |bytes: f64| measure(case, &fixed(case, bytes), seed).map(|(run, _)| run);
    let most = case.scenario.cache.memory.as_f64().min(case.scenario.volume[0].size.as_f64());
    let bisect = |share: f64| {
        let suffices = |bytes: f64| run(bytes).is_some_and(|run| run.share >= share - 1e-9);
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut probe = guess.clamp(65_536.0, most);
        let mut reach = reach;
        loop {
            if suffices(probe) {
                high = probe;
            } else {
                low = probe;
            }
            if low == most || (low > 0.0 && high.is_finite()) || high <= 4_096.0 {
                break;
            }
            probe = if high.is_finite() { probe / reach } else { (probe * reach).min(most) };
            reach *= reach;
        }
        while high.is_finite() && high - low > (high * RESOLUTION).max(4_096.0) {
            let middle = (low + high) / 2.0;
            if suffices(middle) { high = middle } else { low = middle }
        }
        high
    };
    let mut share = SHARE;
    let mut bytes = bisect(share);
    if !bytes.is_finite() {
        // Not even all the memory keeps the objective: then what it reaches is to be reached.
        share = run(most).map_or(0.0, |run| run.share);
        bytes = if share > 0.0 { bisect(share) } else { 0.0 };
    }
    Optimum { bytes, share, cold_s: run(bytes).map_or(f64::INFINITY, |run| run.settled_s) }
}

/// The optimum of a case and a seed: what was kept of it, else by bisection, which begins near what was found of another seed, or at `near`.
pub(crate) fn known_optimum(case: &Case, seed: u64, near: Option<f64>, optima: &Mutex<Optima>) -> Optimum {
    let key = (case.name.clone(), seed);
    let known = optima.lock().expect("no panic").found.get(&key).copied();
    known.unwrap_or_else(|| {
        let other = optima.lock().expect("no panic").of_another_seed(&case.name);
        let guess = other.or(near).filter(|&bytes| bytes > 0.0).unwrap_or(1e7);
        let found = optimum(case, seed, guess, if other.is_some() { 1.04 } else { 1.3 });
        let mut optima = optima.lock().expect("no panic");
        optima.found.insert(key, found);
        optima.write();
        found
    })
}

/// Judges every law in a case with a seed.
pub(crate) fn judge(
    case: &Case,
    seed: u64,
    laws: &[String],
    optima: &Mutex<Optima>,
    decisions: bool,
) -> Vec<Judged> {
    let runs: Vec<Run> = laws
        .iter()
        .map(|law| {
            let mut scenario = case.scenario.clone();
            scenario.control.feedback.law = match law.as_str() {
                "model" => Law::Model,
                "plain" => Law::Plain,
                other => panic!("law `{other}` is not known: expected `model` or `plain`"),
            };
            let (run, outcome) =
                measure(case, &scenario, seed).expect("no load is refused where a controller may cache");
            if decisions {
                tell(case, law, seed, &outcome);
            }
            run
        })
        .collect();
    let optimum = known_optimum(case, seed, runs.first().map(|run| run.mean), optima);
    let oracle = |run: &Run| match case.step_s {
        0.0 => [f64::NAN; 2],
        _ => ORACLE
            .map(|part| restored_by_oracle(case, seed, run.before, (part * optimum.bytes).max(run.before))),
    };
    runs.into_iter().map(|run| Judged { run, optimum, oracle_s: oracle(&run) }).collect()
}

fn tell(case: &Case, law: &str, seed: u64, outcome: &Outcome) {
    let mut lines = vec![format!("## {} {law} seed {seed}", case.name)];
    let volume = &outcome.volumes[0];
    let mut windows = volume.objectives[0].windows.iter().peekable();
    let mut decisions = outcome.decisions.iter().peekable();
    for row in &volume.intervals {
        let mut value = String::new();
        while let Some(window) = windows.next_if(|window| window.at_s <= row.at_s + 1e-9) {
            value = format!("{:.5} {:?}", window.value.unwrap_or(0.0), window.verdict);
        }
        lines.push(format!(
            "{:7.1} quota {:7} used {:7} hit {:.3} arrivals {:6.0} mean {:8.2} ms | {value}",
            row.at_s,
            row.quota_blocks,
            row.used_blocks,
            row.hit_ratio.unwrap_or(0.0),
            row.arrivals_per_second,
            row.latency.mean_ms.unwrap_or(0.0)
        ));
        while let Some(decision) = decisions.next_if(|decision| decision.at.as_secs_f64() <= row.at_s + 1e-9)
        {
            let facts: Vec<String> =
                decision.facts.iter().map(|fact| format!("{}={:?}", fact.name, fact.value)).collect();
            lines.push(format!("        {:?} {} | {}", decision.kind, decision.summary, facts.join(" ")));
        }
    }
    println!("{}", lines.join("\n"));
}

/// How a law does in a case over all seeds: each target is held if it is in the median, the share of windows if it is on average.
pub(crate) struct Row {
    ratio: (f64, f64),
    overshoot: (f64, f64),
    share: f64,
    share_optimum: f64,
    settled: (f64, f64),
    allowed: f64,
    /// Runs that hold: share, share and size, time, overshoot.
    runs: [usize; 4],
    seeds: usize,
}

impl Row {
    pub(crate) fn of(case: &Case, judged: &[Judged]) -> Row {
        let spread = |value: &dyn Fn(&Judged) -> f64| spread(judged, value);
        let mean =
            |value: &dyn Fn(&Judged) -> f64| judged.iter().map(value).sum::<f64>() / judged.len() as f64;
        let count = |holds: &dyn Fn(&Judged) -> bool| judged.iter().filter(|j| holds(j)).count();
        let conforms = |j: &Judged| j.run.share >= j.optimum.share - 1e-9;
        Row {
            ratio: spread(&Judged::ratio),
            overshoot: spread(&Judged::overshoot),
            share: mean(&|j| j.run.share),
            share_optimum: mean(&|j| j.optimum.share),
            settled: spread(&|j| j.run.settled_s),
            allowed: spread(&|j| j.allowed_s(case)).0,
            runs: [
                count(&conforms),
                count(&|j| conforms(j) && j.ratio() <= SIZE_MAX),
                count(&|j| j.run.settled_s <= j.allowed_s(case)),
                count(&|j| j.overshoot() <= OVERSHOOT_MAX),
            ],
            seeds: judged.len(),
        }
    }

    fn conforms(&self) -> bool {
        self.share >= self.share_optimum - 1e-9
    }

    fn in_time(&self) -> bool {
        2 * self.runs[2] > self.seeds
    }

    /// Whether there is a size to be found: a cache is needed, and one suffices.
    pub(crate) fn is_judged(&self) -> bool {
        self.ratio.0.is_finite() && self.ratio.0 > 0.0 && self.share_optimum > 0.5
    }
}

/// The table of steps: how soon conformance is restored, law by law.
pub(crate) fn print_steps(cases: &[Case], laws: &[String], results: &BTreeMap<(usize, u64), Vec<Judged>>) {
    if cases.iter().all(|case| case.step_s == 0.0) {
        return;
    }
    println!(
        "after a step: seconds until {RESTORED_WINDOWS} windows in a row conform, median and worst; what it takes to fill what the \
         optimum has more than there was; that and two intervals (one, where the phase was seen before); in how many seeds; median where \
         the optimum, and {} of it, is ordered at the end of the first interval after the step",
        ORACLE[1]
    );
    println!(
        "{:22} {:6} {:>13} {:>8} {:>8} {:>7} {:>7} {:>7}",
        "case", "law", "restored", "filling", "allowed", "in time", "oracle", "larger"
    );
    for (at, case) in cases.iter().enumerate().filter(|(_, case)| case.step_s > 0.0) {
        for (number, law) in laws.iter().enumerate() {
            let judged: Vec<Judged> =
                results.iter().filter(|((case, _), _)| *case == at).map(|(_, all)| all[number]).collect();
            let restored = spread(&judged, &|j| j.run.restored_s);
            let in_time = judged.iter().filter(|j| j.run.restored_s <= j.restored_allowed_s(case)).count();
            println!(
                "{:22} {:6} {:>6.0} {:>6.0} {:>8.1} {:>8.1} {:>4}/{} {:>8.0} {:>7.0}",
                case.name,
                law,
                restored.0,
                restored.1,
                spread(&judged, &Judged::fill_s).0,
                spread(&judged, &|j| j.restored_allowed_s(case)).0,
                in_time,
                judged.len(),
                spread(&judged, &|j| j.oracle_s[0]).0,
                spread(&judged, &|j| j.oracle_s[1]).0,
            );
        }
    }
}

/// Median and worst.
fn spread(judged: &[Judged], value: &dyn Fn(&Judged) -> f64) -> (f64, f64) {
    let mut values: Vec<f64> = judged.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

/// The targets: size over the optimum in steady state, and at any time.
pub(crate) const SIZE_MAX: f64 = 1.05;
const OVERSHOOT_MAX: f64 = 1.3;

/// One line per run.
pub(crate) fn print_runs(cases: &[Case], laws: &[String], results: &BTreeMap<(usize, u64), Vec<Judged>>) {
    for ((at, seed), all) in results {
        for (law, judged) in laws.iter().zip(all) {
            println!(
                "run {} {law} {seed}: {:.3} of {:.2} MiB, {:.4} of windows ({:.4}), overshoot {:.2}, settled {:.0} of {:.0} s",
                cases[*at].name,
                judged.ratio(),
                judged.optimum.bytes / 1_048_576.0,
                judged.run.share,
                judged.optimum.share,
                judged.overshoot(),
                judged.run.settled_s,
                judged.allowed_s(&cases[*at]),
            );
        }
    }
}

/// The table: one line per case and law, over all seeds.
pub(crate) fn print(cases: &[Case], laws: &[String], results: &BTreeMap<(usize, u64), Vec<Judged>>) {
    println!(
        "size/optimum and overshoot: median and worst; conforming: mean, and the optimum's; settled, after the step in cases \
         of one: median and worst, what is allowed, and in how many seeds it was kept"
    );
    println!(
        "{:22} {:6} {:>9} {:>13} {:>13} {:>13} {:>16} {:>7} {:>7}",
        "case", "law", "optimum", "size/optimum", "conforming", "overshoot", "settled", "allowed", "in time"
    );
    let mut kept: BTreeMap<&str, ([usize; 5], [usize; 5])> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        for (number, law) in laws.iter().enumerate() {
            let judged: Vec<Judged> =
                results.iter().filter(|((case, _), _)| *case == at).map(|(_, all)| all[number]).collect();
            let mut optima: Vec<f64> = judged.iter().map(|j| j.optimum.bytes).collect();
            optima.sort_by(f64::total_cmp);
            let row = Row::of(case, &judged);
            println!(
                "{:22} {:6} {:>6.1}MiB {:>6.3} {:>6.3} {:>6.4} {:>6.4} {:>6.2} {:>6.2} {:>8.0} {:>7.0} {:>7.0} {:>4}/{}{}",
                case.name,
                law,
                optima[optima.len() / 2] / 1_048_576.0,
                row.ratio.0,
                row.ratio.1,
                row.share,
                row.share_optimum,
                row.overshoot.0,
                row.overshoot.1,
                row.settled.0,
                row.settled.1,
                row.allowed,
                row.runs[2],
                row.seeds,
                if row.is_judged() { "" } else { "  (not judged: no cache is needed, or none suffices)" },
            );
            if row.is_judged() {
                let (cases, runs) = kept.entry(law.as_str()).or_default();
                let size = row.ratio.0 <= SIZE_MAX;
                let holds = [
                    row.conforms(),
                    row.conforms() && size,
                    row.in_time(),
                    row.overshoot.0 <= OVERSHOOT_MAX,
                    true,
                ];
                cases.iter_mut().zip(holds).for_each(|(sum, holds)| *sum += usize::from(holds));
                runs.iter_mut().zip(row.runs).for_each(|(sum, count)| *sum += count);
                runs[4] += row.seeds;
            }
        }
    }
    println!(
        "the targets, by cases (share of windows on average over the seeds, the rest in the median) and by single runs:"
    );
    for (law, ([share, size, time, overshoot, all], runs)) in &kept {
        println!(
            "{law}: of {all} cases {share} conform as often as the optimum, {size} of them with at most {SIZE_MAX} of its size; \
             {time} in the time allowed; {overshoot} overshoot by at most 30 %; of {} runs {}, {}, {} and {}",
            runs[4], runs[0], runs[1], runs[2], runs[3]
        );
    }
    println!(
        "each demand over all single runs of the cases that are judged: median / worst / how many within"
    );
    for (number, law) in laws.iter().enumerate() {
        let of_case = |at: usize| -> Vec<Judged> {
            results.iter().filter(|((case, _), _)| *case == at).map(|(_, all)| all[number]).collect()
        };
        let judged: Vec<(&Case, Judged)> = (0..cases.len())
            .map(|at| (&cases[at], of_case(at)))
            .filter(|(case, judged)| Row::of(case, judged).is_judged())
            .flat_map(|(case, judged)| judged.into_iter().map(move |judged| (case, judged)))
            .collect();
        let tell = |what: &str, value: &dyn Fn(&(&Case, Judged)) -> f64, most: f64| {
            let mut values: Vec<f64> = judged.iter().map(value).filter(|value| !value.is_nan()).collect();
            values.sort_by(f64::total_cmp);
            if let Some(worst) = values.last() {
                let within = values.iter().filter(|&&value| value <= most + 1e-9).count();
                let median = values[values.len() / 2];
                println!("{law}: {what}: {median:.3} / {worst:.3} / {within} of {}", values.len());
            }
        };
        tell("share of windows short of the optimum's", &|(_, j)| j.optimum.share - j.run.share, 0.0);
        tell("size over the optimum, at most 1.05", &|(_, j)| j.ratio(), SIZE_MAX);
        tell("largest size over the optimum, at most 1.3", &|(_, j)| j.overshoot(), OVERSHOOT_MAX);
        tell("time to settle over what is allowed", &|(case, j)| j.run.settled_s / j.allowed_s(case), 1.0);
        let after_a_step = |&(case, j): &(&Case, Judged)| match case.step_s {
            0.0 => f64::NAN,
            _ => j.run.restored_s / j.restored_allowed_s(case),
        };
        tell("time to restore after a step over what is allowed", &after_a_step, 1.0);
    }
}
