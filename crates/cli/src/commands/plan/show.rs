//! A plan for people, for programs, and as a page.

use super::simulate::{Kept, Simulated};
use crate::failure::Failure;
use crate::output::{Output, bytes};
use forebay_control::plan::{Allocation, ObjectivePlan, Plan, PlanInput, PlanVolume, VolumePlan};
use forebay_report::{Axis, Card, Chart, Quantity, Report, Series, Status, Table};
use forebay_units::Nanos;
use serde::Serialize;

/// What `--json` prints: the plan as `forebay-control` makes it.
#[derive(Debug, Serialize)]
pub(super) struct PlanJson<'a> {
    schema: &'static str,
    file: &'a str,
    #[serde(flatten)]
    plan: &'a Plan,
    /// Absent unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<&'a Simulated>,
}

/// Everything that is shown.
pub(super) struct Shown<'a> {
    pub(super) file: String,
    pub(super) input: &'a PlanInput,
    pub(super) plan: &'a Plan,
    pub(super) simulated: Option<&'a Simulated>,
}

/// A number in the unit of an objective.
fn value(number: Option<f64>, unit: &str) -> String {
    let Some(number) = number else { return "not asked for".to_owned() };
    match unit {
        _ if !number.is_finite() => "unbounded".to_owned(),
        "s" => latency(number),
        "bytes/s" => format!("{}/s", bytes(number as u64)),
        unit => format!("{number:.0} {unit}"),
    }
}

fn latency(seconds: f64) -> String {
    if seconds.is_finite() { Nanos::from_secs_f64(seconds).to_string() } else { "unbounded".to_owned() }
}

/// How far beyond its bound something is.
fn beyond(excess: f64) -> String {
    match excess {
        _ if !excess.is_finite() => "without bound".to_owned(),
        1.0.. => format!("{:.1} times the bound", 1.0 + excess),
        _ => format!("{:.1}% beyond", excess * 100.0),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// "yes" or by how much not.
fn met(objective: &ObjectivePlan, with: bool) -> String {
    let outcome = if with { objective.with } else { objective.without };
    match outcome.excess {
        Some(excess) if !outcome.met => format!("no, {}", beyond(excess)),
        _ => "yes".to_owned(),
    }
}

impl<'a> Shown<'a> {
    pub(super) fn json(&self) -> PlanJson<'_> {
        PlanJson { schema: "forebay.plan/1", file: &self.file, plan: self.plan, simulated: self.simulated }
    }

    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        for table in self.tables() {
            output.table(&table)?;
            output.line("")?;
        }
        for line in self.unmet() {
            output.line(format_args!("Cannot be met: {line}"))?;
        }
        for line in self.short_of_margin() {
            output.line(format_args!("Kept, but not with the margin: {line}"))?;
        }
        output.line(format_args!("Recommended: {}", allocation(&self.plan.recommendation)))?;
        if let (Some(within), Some(budget)) = (&self.plan.within_budget, self.input.budget) {
            output.line(format_args!("Within the budget of {}: {}", bytes(budget.0), allocation(within)))?;
        }
        if let Some(simulated) = self.simulated {
            output.line(format_args!("By simulation: {}", smallest(simulated, self.with_margin())))?;
        }
        output.line("")?;
        for line in self.basis() {
            output.line(format_args!("* {line}"))?;
        }
        Ok(())
    }

    /// What the simulator keeps besides the bounds, in words.
    fn with_margin(&self) -> &'static str {
        if self.input.margin > 0.0 { " with the margin" } else { "" }
    }

    /// What all that is shown rests on, in sentences.
    fn basis(&self) -> impl Iterator<Item = &String> {
        self.plan.basis.iter().chain(self.simulated.iter().flat_map(|simulated| &simulated.basis))
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.load_table(), self.cache_table(), self.origin_table()];
        tables.extend(self.simulated.map(|simulated| simulated_table(simulated, self.with_margin())));
        tables.extend(self.plan.remedies.iter().filter(|remedy| !remedy.solutions.is_empty()).map(
            |remedy| {
                let mut table = Table::new([">rank", "caches", ">cost", ">slack", "still violated", "why"])
                    .with_caption(format!("Ways to mend {}", remedy.volume));
                for (rank, solution) in remedy.solutions.iter().enumerate() {
                    let caches: Vec<String> = solution
                        .caches
                        .iter()
                        .map(|cache| format!("{} {}", cache.volume, bytes(cache.bytes)))
                        .collect();
                    let still = if solution.still_violated.is_empty() {
                        "-".to_owned()
                    } else {
                        solution.still_violated.join(", ")
                    };
                    table.push([
                        (rank + 1).to_string(),
                        caches.join(", "),
                        bytes(solution.cost_bytes),
                        percent(-solution.predicted_excess),
                        still,
                        solution.reason.clone(),
                    ]);
                }
                table
            },
        ));
        tables
    }

    fn load_table(&self) -> Table {
        let mut table = Table::new([
            "volume",
            "origin",
            ">requests/s",
            ">busiest",
            ">reads",
            ">footprint",
            ">working set",
            ">over",
        ])
        .with_caption("Load");
        for volume in &self.plan.volumes {
            table.push([
                volume.volume.clone(),
                volume.origin.clone(),
                format!("{:.1}", volume.requests_per_second),
                format!("{:.1}", volume.requests_per_second_peak),
                percent(volume.read_share),
                bytes(volume.footprint_bytes),
                bytes(volume.working_set_bytes),
                latency(volume.working_set_window_s),
            ]);
        }
        table
    }

    fn cache_table(&self) -> Table {
        let mut table = Table::new([
            "volume",
            "objective",
            ">without",
            "met",
            ">smallest cache",
            ">with",
            "met with it",
            ">saved against working set",
        ])
        .with_caption("The smallest cache in front of each volume alone that keeps its objectives");
        for volume in &self.plan.volumes {
            let saved = volume.saved_against_working_set.map_or("-".to_owned(), percent);
            for objective in &volume.objectives {
                table.push([
                    volume.volume.clone(),
                    objective.objective.clone(),
                    value(objective.without.value, objective.unit),
                    met(objective, false),
                    cache_of(volume),
                    value(objective.with.value, objective.unit),
                    met(objective, true),
                    saved.clone(),
                ]);
            }
            if volume.objectives.is_empty() {
                let mean = latency(volume.without.latency_s);
                table.push(
                    [&volume.volume, "none", &format!("{mean} mean"), "-", "-", "-", "-", "-"]
                        .map(str::to_owned),
                );
            }
        }
        table
    }

    fn origin_table(&self) -> Table {
        let mut table = Table::new(["origin", ">utilisation", ">busiest", ">with recommendation"])
            .with_caption("Origins");
        for origin in &self.plan.origins {
            table.push([
                origin.origin.clone(),
                percent(origin.utilisation),
                percent(origin.utilisation_peak),
                percent(origin.utilisation_with),
            ]);
        }
        table
    }

    /// What no cache keeps, in sentences.
    fn unmet(&self) -> Vec<String> {
        let unmet = |remedy: &forebay_control::plan::Remedy| {
            let unmet = remedy.unmet.as_ref()?;
            Some(format!("{} stays {}: {}", remedy.volume, beyond(unmet.excess), unmet.reason))
        };
        self.plan.remedies.iter().filter_map(unmet).collect()
    }

    /// Of what no cache keeps the margin, though the bound, in sentences.
    fn short_of_margin(&self) -> Vec<String> {
        let short = |remedy: &forebay_control::plan::Remedy| {
            let short = remedy.margin_unmet.as_ref()?;
            Some(format!("{}: {}", remedy.volume, short.reason))
        };
        self.plan.remedies.iter().filter_map(short).collect()
    }

    /// The allocation that counts: within the budget where there is one.
    fn chosen(&self) -> &'a Allocation {
        self.plan.within_budget.as_ref().unwrap_or(&self.plan.recommendation)
    }

    fn chosen_bytes(&self, volume: &str) -> u64 {
        self.chosen().caches.iter().find(|cache| cache.volume == volume).map_or(0, |cache| cache.bytes)
    }

    /// The curves of the volumes, the busiest eight, with the sizes chosen.
    pub(super) fn chart(&self) -> Chart {
        let mut chart = Chart::new(
            "Miss ratio of reads, and the caches chosen",
            Axis::log("cache size", Quantity::Bytes),
            Axis::linear("miss ratio", Quantity::Ratio),
        );
        let mut order: Vec<&PlanVolume> = self.input.volumes.iter().collect();
        let requests = |volume: &PlanVolume| -> u64 {
            volume.load.windows.iter().map(|window| window.reads + window.writes).sum()
        };
        order.sort_by_key(|volume| std::cmp::Reverse(requests(volume)));
        for volume in order.iter().take(8) {
            let block = volume.block_size.bytes() as f64;
            // From one block on: a logarithmic axis has no place for none.
            let mut points = vec![(block, volume.curve.miss_ratio_at(1))];
            let later = volume.curve.points().iter().filter(|point| point.size_blocks > 1);
            points.extend(later.map(|point| (point.size_blocks as f64 * block, point.miss_ratio)));
            if let Some((size, ratio)) = points.last().copied()
                && size < volume.footprint.as_f64()
            {
                points.push((volume.footprint.as_f64(), ratio));
            }
            chart = chart.with_series(Series::line(volume.name.clone(), points));
            let chosen = self.chosen_bytes(&volume.name);
            if chosen > 0 {
                chart = chart.with_marker(format!("{}: {}", volume.name, bytes(chosen)), chosen as f64);
            }
        }
        chart
    }

    pub(super) fn report(&self) -> Report {
        let objectives: usize = self.plan.volumes.iter().map(|volume| volume.objectives.len()).sum();
        let missed = self.chosen().missed.len();
        let status = if missed == 0 { Status::Good } else { Status::Bad };
        let working_sets: u64 = self.plan.volumes.iter().map(|volume| volume.working_set_bytes).sum();
        let mut cards = vec![
            Card::new(
                "objectives kept",
                format!("{} of {objectives}", objectives - missed),
                "predicted with the caches below",
            )
            .with_status(status),
            Card::new(
                "cache in sum",
                bytes(self.chosen().total_bytes),
                format!("all working sets together take {}", bytes(working_sets)),
            ),
        ];
        if let Some(budget) = self.input.budget {
            cards.push(Card::new(
                "budget",
                bytes(budget.0),
                format!("recommended without it: {}", bytes(self.plan.recommendation.total_bytes)),
            ));
        }
        let mut report = Report::new("Cache plan", self.file.clone()).cards(cards);
        for line in self.unmet() {
            report = report.note(Status::Bad, format!("Cannot be met: {line}"));
        }
        for line in self.short_of_margin() {
            report = report.note(Status::Attention, format!("Kept, but not with the margin: {line}"));
        }
        for missed in &self.chosen().missed {
            let text = format!("{}: {} is {}", missed.volume, missed.objective, beyond(missed.excess));
            report = report.note(Status::Attention, text);
        }
        let mut caches = Table::new(["volume", ">cache"]).with_caption("Caches chosen");
        for cache in &self.chosen().caches {
            let size = if cache.bytes == 0 { "none".to_owned() } else { bytes(cache.bytes) };
            caches.push([cache.volume.clone(), size]);
        }
        report = report.heading("Caches").table(caches).chart(self.chart()).heading("Volumes");
        for table in self.tables() {
            report = report.table(table);
        }
        report = report.heading("What this rests on");
        for line in self.basis() {
            report = report.paragraph(line.clone());
        }
        report
    }
}

/// What came of the planned and of the smallest caches in the simulator.
fn simulated_table(simulated: &Simulated, with_margin: &str) -> Table {
    let kept = |kept: Kept| match kept.conforming_share {
        None => "not asked for".to_owned(),
        Some(share) if kept.met => format!("yes, {}", percent(share)),
        Some(share) => format!("no, {}", percent(share)),
    };
    let mut table = Table::new([
        "volume",
        "objective",
        ">of windows",
        ">planned",
        "kept with it",
        ">smallest",
        "kept with it",
    ])
    .with_caption(format!(
        "By simulation, all caches together{with_margin} (seed {}, {} runs of {})",
        simulated.seed,
        simulated.runs,
        latency(simulated.seconds)
    ));
    for volume in &simulated.volumes {
        for objective in &volume.objectives {
            table.push([
                volume.volume.clone(),
                objective.objective.clone(),
                percent(objective.conforming_share_wanted),
                bytes(volume.planned_bytes),
                kept(objective.with_planned),
                bytes(volume.smallest_bytes),
                kept(objective.with_smallest),
            ]);
        }
    }
    table
}

/// The smallest caches by simulation, and what they miss.
fn smallest(simulated: &Simulated, with_margin: &str) -> String {
    let caches = simulated.volumes.iter().map(|volume| (&volume.volume, volume.smallest_bytes));
    let mut text = caches_in_words(caches, simulated.total_bytes);
    for volume in &simulated.volumes {
        for missed in volume.objectives.iter().filter(|objective| !objective.with_smallest.met) {
            let share = percent(missed.with_smallest.conforming_share.unwrap_or(0.0));
            text.push_str(&format!(
                "; no cache keeps \"{}\" of {}{with_margin} in {} of the windows: {share} conform",
                missed.objective,
                volume.volume,
                percent(missed.conforming_share_wanted)
            ));
        }
    }
    text
}

fn caches_in_words<'a>(caches: impl Iterator<Item = (&'a String, u64)>, total: u64) -> String {
    let caches: Vec<String> = caches
        .filter(|(_, size)| *size > 0)
        .map(|(volume, size)| format!("{volume} {}", bytes(size)))
        .collect();
    if caches.is_empty() {
        "no cache".to_owned()
    } else {
        format!("{} ({} in sum)", caches.join(", "), bytes(total))
    }
}

fn cache_of(volume: &VolumePlan) -> String {
    match volume.smallest_cache_bytes {
        Some(0) => "none needed".to_owned(),
        Some(size) => bytes(size),
        None if volume.objectives.iter().all(|objective| objective.with.met) => {
            "none with the margin".to_owned()
        }
        None => "no size suffices".to_owned(),
    }
}

fn allocation(allocation: &Allocation) -> String {
    let caches = allocation.caches.iter().map(|cache| (&cache.volume, cache.bytes));
    let mut text = caches_in_words(caches, allocation.total_bytes);
    for missed in &allocation.missed {
        text.push_str(&format!(
            "; {} misses \"{}\": {}",
            missed.volume,
            missed.objective,
            beyond(missed.excess)
        ));
    }
    text
}
