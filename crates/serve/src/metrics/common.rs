//! Families that a daemon and a controller of a fleet both have: under one name, and one help, since they mean the same.

use super::text::Text;
use crate::history::{History, word};
use crate::status::{ControllerState, ControllerStatus};
use forebay_control::conformance::Verdict;
use std::sync::atomic::Ordering;

/// A gauge of volumes: its name and its help.
pub(crate) type Gauge = (&'static str, &'static str);

pub(crate) const WORKING_SET: Gauge = (
    "forebay_volume_working_set_bytes",
    "Different data that clients read in the last whole window of the working set.",
);
pub(crate) const CACHE_CAPACITY: Gauge = ("forebay_cache_capacity_bytes", "The quota.");
pub(crate) const CACHE_USED: Gauge = ("forebay_cache_used_bytes", "Data cached.");
pub(crate) const ORIGIN_UP: Gauge =
    ("forebay_origin_up", "1 if the origin answers as far as is known, 0 if it is down, failed or absent.");
pub(crate) const IN_DOUBT: Gauge = ("forebay_origin_in_doubt_bytes", "Bytes with writes of unknown outcome.");

/// The process itself.
pub(crate) fn process(text: &mut Text, started_unix_ms: i64, clock_steps: u64) {
    text.family("forebay_build_info", "gauge", "The version that runs, as a label.");
    text.sample("forebay_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let started = started_unix_ms as f64 / 1e3;
    text.single("forebay_start_time_seconds", "gauge", "When the process started, since 1970.", started);
    let help = "Times that the wall clock was seen to be set.";
    text.single("forebay_clock_steps_total", "counter", help, clock_steps as f64);
}

/// Whether decisions are made, and how many of each kind were.
pub(crate) fn controller<'a>(
    text: &mut Text,
    told: &ControllerStatus,
    decisions: impl IntoIterator<Item = (&'a str, u64)>,
) {
    let is_up = told.state == ControllerState::Running;
    let help = "1 if decisions are made, 0 if the controller is dead or paused.";
    text.single("forebay_controller_up", "gauge", help, f64::from(is_up));
    let is_on = told.state != ControllerState::Disabled;
    let help =
        "1 if the controller is to decide, 0 if it is paused or was never on: caches stay as they are then.";
    text.single("forebay_controller_enabled", "gauge", help, f64::from(is_on));
    let (steps, restarts) = (told.steps as f64, told.restarts as f64);
    text.single("forebay_controller_intervals_total", "counter", "Control intervals observed.", steps);
    text.single("forebay_controller_restarts_total", "counter", "Panics of the controller.", restarts);
    let help = "How long the last control interval took to observe and decide.";
    text.single("forebay_controller_step_seconds", "gauge", help, told.last_step_s);
    text.family("forebay_controller_decisions_total", "counter", "Decisions, by kind.");
    for (kind, count) in decisions {
        text.sample("forebay_controller_decisions_total", &[("kind", kind)], count as f64);
    }
}

/// What is kept.
pub(crate) fn history(text: &mut Text, history: Option<&History>) {
    let Some(history) = history else { return };
    let counters = history.counters();
    for (name, help, counter) in [
        ("forebay_history_rows_written_total", "Rows of the history written.", &counters.written),
        ("forebay_history_rows_lost_total", "Rows of the history lost.", &counters.lost),
        ("forebay_history_failures_total", "Failures of the history's database.", &counters.failures),
    ] {
        text.single(name, "counter", help, counter.load(Ordering::Relaxed) as f64);
    }
}

/// How an objective of a volume stands.
pub(crate) struct Promise<'a> {
    pub(crate) volume: &'a str,
    /// Its place makes two equal ones two series.
    pub(crate) at: usize,
    pub(crate) objective: String,
    /// Windows that conformed, that did not, and that asked for too little.
    pub(crate) windows: [u64; 3],
    /// Share of the last windows with enough load that conform; absent where there were none.
    pub(crate) conforming_share: Option<f64>,
    pub(crate) conforming_share_target: f64,
}

/// How all objectives stand.
pub(crate) fn objectives(text: &mut Text, promises: &[Promise<'_>]) {
    text.family("forebay_slo_windows_total", "counter", "Windows judged, by verdict.");
    for promise in promises {
        let at = promise.at.to_string();
        let verdicts = [Verdict::Conforming, Verdict::Nonconforming, Verdict::LowLoad];
        for (verdict, count) in verdicts.iter().zip(promise.windows) {
            let verdict = word(verdict);
            let labels = [
                ("volume", promise.volume),
                ("index", at.as_str()),
                ("objective", promise.objective.as_str()),
                ("verdict", verdict.as_str()),
            ];
            text.sample("forebay_slo_windows_total", &labels, count as f64);
        }
    }
    type Of = fn(f64, f64) -> f64;
    let families: [(&str, &str, Of); 3] = [
        (
            "forebay_slo_conforming_ratio",
            "Share of the last windows with enough load that conform.",
            |share, _| share,
        ),
        (
            "forebay_slo_error_budget_ratio",
            "What is left of the windows that may fail, over the last ones; below 0: overdrawn.",
            error_budget,
        ),
        ("forebay_slo_burn_rate", "Share of failing windows over the share that may fail.", burn_rate),
    ];
    for (name, help, of) in families {
        text.family(name, "gauge", help);
        for promise in promises {
            let Some(share) = promise.conforming_share else { continue };
            let at = promise.at.to_string();
            let labels =
                [("volume", promise.volume), ("index", at.as_str()), ("objective", &*promise.objective)];
            text.sample(name, &labels, of(share, promise.conforming_share_target).max(-1e6));
        }
    }
}

fn error_budget(share: f64, target: f64) -> f64 {
    if share >= target && target >= 1.0 { 0.0 } else { 1.0 - burn_rate(share, target) }
}

fn burn_rate(share: f64, target: f64) -> f64 {
    if share >= 1.0 { 0.0 } else { (1.0 - share) / (1.0 - target) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_what_is_left_of_the_windows_that_may_fail() {
        let told = |share, target| {
            let [budget, burns] = [error_budget(share, target), burn_rate(share, target)];
            [budget, burns].map(|number| (number * 1e6).round() / 1e6)
        };
        // Of a hundred windows five may fail: none do, one, ten.
        assert_eq!(
            [told(1.0, 0.95), told(0.99, 0.95), told(0.9, 0.95)],
            [[1.0, 0.0], [0.8, 0.2], [-1.0, 2.0]]
        );
        // Where none may fail there is nothing left, and soon less.
        assert_eq!(told(1.0, 1.0), [0.0, 0.0]);
        assert_eq!(told(0.99, 1.0), [f64::NEG_INFINITY, f64::INFINITY]);
    }
}
