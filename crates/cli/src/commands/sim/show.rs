//! How a run is shown: a table for people, JSON for programs, a report with charts.

use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_report::{Axis, Card, Chart, Quantity, Report, Series, Status, Table};
use forebay_sim::scenario::Scenario;
use forebay_sim::{LatencySummary, ObjectiveOutcome, Outcome, VolumeSeries};
use serde::Serialize;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.sim/1";

/// Decisions that a table shows at most.
const DECISIONS_SHOWN: usize = 40;

/// Objectives that a report draws at most, the first ones; its table has all.
const OBJECTIVES_DRAWN: usize = 16;

/// A run and what it was asked for.
pub(super) struct Shown<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) outcome: &'a Outcome,
}

#[derive(Serialize)]
pub(super) struct Json<'a> {
    schema: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    about: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// A percentile: one of 100 s or more is not told apart from others.
fn percentile(latency: &LatencySummary, value: Option<f64>) -> String {
    if value.is_none() && latency.count > 0 { ">100 s".to_owned() } else { ms(value) }
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1} %", value * 100.0))
}

fn verdict(objective: &ObjectiveOutcome) -> (&'static str, Status) {
    match objective.met {
        Some(true) => ("kept", Status::Good),
        Some(false) => ("not kept", Status::Bad),
        None => ("never judged", Status::Plain),
    }
}

impl Shown<'_> {
    pub(super) fn json(&self) -> Json<'_> {
        Json {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            commit: crate::COMMIT,
            about: &self.scenario.about,
            outcome: self.outcome,
        }
    }

    fn volumes(&self) -> Table {
        let mut table = Table::new([
            "volume",
            ">requests/s",
            ">mean ms",
            ">p95 ms",
            ">p99 ms",
            ">hit ratio",
            ">quota mean",
            ">quota max",
            ">shed",
        ]);
        for volume in &self.outcome.volumes {
            let totals = &volume.totals;
            table.push([
                volume.volume.clone(),
                format!("{:.0}", totals.iops),
                ms(totals.latency.mean_ms),
                percentile(&totals.latency, totals.latency.p95_ms),
                percentile(&totals.latency, totals.latency.p99_ms),
                share(totals.hit_ratio),
                bytes((totals.quota_blocks_mean * volume.block_bytes as f64) as u64),
                bytes(totals.quota_blocks_max * volume.block_bytes),
                count(totals.shed),
            ]);
        }
        table
    }

    fn objectives(&self) -> Table {
        let mut table =
            Table::new(["volume", "objective", ">windows kept", ">wanted", ">last missed", "verdict"]);
        for volume in &self.outcome.volumes {
            for objective in &volume.objectives {
                table.push([
                    volume.volume.clone(),
                    objective.objective.clone(),
                    share(objective.conforming_share),
                    share(Some(objective.conforming_share_wanted)),
                    match objective.last_violation_s {
                        None => "never".to_owned(),
                        Some(at) if at <= self.outcome.measure_from_s => format!("{at:.0} s, before"),
                        Some(at) => format!("{at:.0} s"),
                    },
                    verdict(objective).0.to_owned(),
                ]);
            }
        }
        table
    }

    fn reservations(&self) -> Option<Table> {
        let mut table = Table::new([
            "reservation",
            ">from",
            ">to",
            ">requests/s together",
            ">completed together",
            ">reached",
        ]);
        for reservation in &self.outcome.reservations {
            let at = |seconds: f64| format!("{seconds:.0} s");
            table.push([
                reservation.volumes.join(", "),
                at(reservation.from_s),
                at(reservation.until_s),
                reservation.iops.map_or_else(|| "-".to_owned(), |iops| format!("{iops:.0}")),
                reservation.iops_mean.map_or_else(|| "-".to_owned(), |iops| format!("{iops:.0}")),
                share(reservation.reached_share),
            ]);
        }
        (!self.outcome.reservations.is_empty()).then_some(table)
    }

    /// What closed forms say, beside what came out.
    fn expected(&self) -> Option<Table> {
        let mut table = Table::new(["closed form", "volume", "what", ">it says", ">simulated", ">error"]);
        for expected in &self.outcome.expected {
            let number = |value: f64| match expected.number {
                "mean_ms" => format!("{value:.3} ms"),
                "iops" => format!("{value:.1} /s"),
                _ => format!("{:.2} %", value * 100.0),
            };
            table.push([
                expected.by.clone(),
                expected.volume.clone(),
                match expected.number {
                    "mean_ms" => "mean latency",
                    "iops" => "requests per second",
                    _ => "hit ratio",
                }
                .to_owned(),
                number(expected.expected),
                expected.found.map_or_else(|| "-".to_owned(), number),
                expected.error.map_or_else(|| "-".to_owned(), |error| format!("{:+.2} %", error * 100.0)),
            ]);
        }
        (!self.outcome.expected.is_empty()).then_some(table)
    }

    /// The policies that adaptive caches came to.
    fn policies(&self) -> Option<Table> {
        let mut table = Table::new(["volume", "policy at the end", ">changes"]);
        let mut any = false;
        for volume in &self.outcome.volumes {
            if let Some(adaptive) = &volume.adaptive {
                any = true;
                table.push([volume.volume.clone(), adaptive.policy.to_owned(), count(adaptive.changes)]);
            }
        }
        any.then_some(table)
    }

    fn tier(&self) -> Option<Table> {
        let tier = self.outcome.tier.as_ref()?;
        let totals = &tier.totals;
        let mut table = Table::new([
            "tier",
            ">size",
            ">read hits",
            ">write hits",
            ">brought in",
            ">written back",
            ">written to",
        ]);
        let of = |part: u64, whole: u64| share((whole > 0).then(|| part as f64 / whole as f64));
        table.push([
            tier.admission.clone(),
            bytes(u64::from(tier.capacity_chunks) * tier.chunk_bytes),
            of(totals.read_hits, totals.reads),
            of(totals.write_hits, totals.writes),
            bytes(totals.promoted_bytes),
            bytes(totals.demoted_bytes),
            bytes(totals.written_bytes),
        ]);
        Some(table)
    }

    fn decisions(&self, most: usize) -> Table {
        let mut table = Table::new([">at", "what"]);
        for decision in self.outcome.decisions.iter().take(most) {
            table.push([format!("{:.0} s", decision.at.as_secs_f64()), decision.summary.clone()]);
        }
        table
    }

    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let outcome = self.outcome;
        output.line(format_args!(
            "{}: {:.0} s of virtual time, seed {}, {} requests, {} events, hash {}",
            outcome.scenario,
            outcome.seconds,
            outcome.seed,
            count(outcome.requests),
            count(outcome.events),
            outcome.hash,
        ))?;
        output.line(format_args!("sums from {:.0} s on\n", outcome.measure_from_s))?;
        output.table(&self.volumes())?;
        if let Some(tier) = self.tier() {
            output.line("")?;
            output.table(&tier)?;
        }
        if outcome.volumes.iter().any(|volume| !volume.objectives.is_empty()) {
            output.line("")?;
            output.table(&self.objectives())?;
        }
        for table in [self.expected(), self.reservations(), self.policies()].into_iter().flatten() {
            output.line("")?;
            output.table(&table)?;
        }
        if !outcome.decisions.is_empty() {
            output.line("")?;
            output.table(&self.decisions(DECISIONS_SHOWN))?;
            let more = outcome.decisions.len().saturating_sub(DECISIONS_SHOWN);
            if more > 0 {
                output.line(format_args!("and {more} more decisions; --json has them all"))?;
            }
        }
        Ok(())
    }

    pub(super) fn report(&self) -> Report {
        let outcome = self.outcome;
        let subtitle = format!(
            "{:.0} s of virtual time, seed {}, {} requests, event hash {}, forebay {}",
            outcome.seconds,
            outcome.seed,
            count(outcome.requests),
            outcome.hash,
            crate::VERSION
        );
        let mut report = Report::new(format!("Simulation: {}", outcome.scenario), subtitle);
        if !self.scenario.about.is_empty() {
            report = report.paragraph(self.scenario.about.clone());
        }
        report = report.note(
            Status::Plain,
            "Simulated: devices are models, no byte was moved. The controller, the caches' bookkeeping and what is observed \
             are those of the daemon.",
        );
        for flag in &outcome.flags {
            report = report.note(Status::Attention, format!("{}: {}", flag.key, flag.message));
        }
        let cards: Vec<Card> = outcome
            .volumes
            .iter()
            .flat_map(|volume| volume.objectives.iter().map(move |objective| (volume, objective)))
            .map(|(volume, objective)| {
                let detail = format!("of the windows kept {}", objective.objective);
                Card::new(volume.volume.clone(), share(objective.conforming_share), detail)
                    .with_status(verdict(objective).1)
            })
            .collect();
        if !cards.is_empty() {
            report = report.cards(cards);
        }
        report = report.heading("Volumes").table(self.volumes());
        if let Some(tier) = self.tier() {
            report = report.table(tier);
        }
        if outcome.volumes.iter().any(|volume| !volume.objectives.is_empty()) {
            report = report.table(self.objectives());
        }
        for table in [self.expected(), self.reservations(), self.policies()].into_iter().flatten() {
            report = report.table(table);
        }
        report = report.heading("Over time").chart(self.chart(
            "Mean latency",
            "latency",
            Quantity::Latency,
            |row| row.latency.mean_ms.map(|ms| ms / 1_000.0),
        ));
        report = report.chart(self.chart(
            "Completed requests per second",
            "requests/s",
            Quantity::Count,
            |row| Some(row.iops),
        ));
        for chart in self.promised() {
            report = report.chart(chart);
        }
        report =
            report.chart(self.chart("Quota", "quota", Quantity::Bytes, |row| Some(row.quota_blocks as f64)));
        report = report.chart(self.chart("Hit ratio", "hit ratio", Quantity::Ratio, |row| row.hit_ratio));
        let mut busy = Chart::new(
            "Share of time that origins were busy",
            Axis::linear("time", Quantity::Time),
            Axis::linear("busy", Quantity::Ratio),
        );
        for origin in &outcome.origins {
            let points = origin.intervals.iter().map(|row| (row.at_s, row.utilisation)).collect();
            busy = busy.with_series(Series::line(origin.origin.clone(), points));
        }
        report = report.chart(busy);
        if !outcome.decisions.is_empty() {
            report = report.heading("What was decided").table(self.decisions(usize::MAX));
        }
        report
    }

    /// A chart of each objective, what it is about by window: a mean is not held against what a percentile or some of the requests were promised.
    fn promised(&self) -> Vec<Chart> {
        let all = self.outcome.volumes.iter().enumerate().flat_map(|(place, volume)| {
            volume.objectives.iter().map(move |objective| (place, volume, objective))
        });
        let told =
            all.filter(|(.., objective)| objective.windows.iter().any(|window| window.value.is_some()));
        let charts = told.take(OBJECTIVES_DRAWN).map(|(place, volume, objective)| {
            let (label, quantity) = match objective.unit {
                "s" => ("latency", Quantity::Latency),
                "bytes/s" => ("bytes/s", Quantity::Bytes),
                unit => (unit, Quantity::Count),
            };
            let points = objective.windows.iter().filter_map(|window| Some((window.at_s, window.value?)));
            Chart::new(
                format!("{}: {}", volume.volume, objective.objective),
                Axis::linear("time", Quantity::Time),
                Axis::linear(label, quantity),
            )
            .with_series(Series::step("by window", points.collect()).with_look(place))
            .with_level("promised", objective.bound)
        });
        charts.collect()
    }

    fn chart(
        &self,
        title: &str,
        label: &str,
        quantity: Quantity,
        of: impl Fn(&forebay_sim::IntervalRow) -> Option<f64>,
    ) -> Chart {
        let mut chart =
            Chart::new(title, Axis::linear("time", Quantity::Time), Axis::linear(label, quantity));
        let scale = |volume: &VolumeSeries| match quantity {
            Quantity::Bytes => volume.block_bytes as f64,
            _ => 1.0,
        };
        for (place, volume) in self.outcome.volumes.iter().enumerate() {
            let points: Vec<(f64, f64)> = volume
                .intervals
                .iter()
                .filter_map(|row| of(row).map(|value| (row.at_s, value * scale(volume))))
                .collect();
            if !points.is_empty() {
                chart = chart.with_series(Series::step(volume.volume.clone(), points).with_look(place));
            }
        }
        chart
    }
}
