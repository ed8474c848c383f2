//! Prometheus text, version 0.0.4, written by hand: our histograms are cumulative already, and their edges differ per volume.

use super::common::Gauge;
use crate::monitor::LatencyTotals;
use forebay_units::Nanos;
use forebay_workload::SizeHistogram;
use std::fmt::Write;

/// Families in the making.
#[derive(Default)]
pub(crate) struct Text {
    text: String,
}

impl Text {
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A gauge with a sample for each volume of `values`.
    pub(crate) fn of_volumes<'a>(
        &mut self,
        (name, help): Gauge,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        self.family(name, "gauge", help);
        for (volume, value) in values {
            self.sample(name, &[("volume", volume)], value);
        }
    }

    /// A family of one sample without labels.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<f64>) {
        self.text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escape(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let value = value.into();
        let _ = match value {
            _ if value == f64::INFINITY => writeln!(self.text, " +Inf"),
            _ => writeln!(self.text, " {value}"),
        };
    }

    /// All of it.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// `at_most` are the edges and how many are at most as much; all are at most infinitely much.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        at_most: impl Iterator<Item = (String, u64)>,
        sum: f64,
        count: u64,
    ) {
        let bucket = format!("{name}_bucket");
        for (edge, count) in at_most.chain([("+Inf".to_owned(), count)]) {
            self.sample(&bucket, &[labels, &[("le", &edge)]].concat(), count as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    pub(crate) fn latencies(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        edges: &[Nanos],
        totals: &LatencyTotals,
    ) {
        let edges = edges.iter().map(|edge| edge.as_secs_f64().to_string());
        let at_most = edges.zip(totals.at_most.iter().copied());
        self.histogram(name, labels, at_most, totals.sum_ns as f64 / 1e9, totals.count);
    }

    pub(crate) fn sizes(&mut self, name: &str, labels: &[(&str, &str)], sizes: &SizeHistogram, bytes: u64) {
        // What is longer than the last edge counts as it.
        let at_most = sizes.cumulative().filter(|(edge, _)| *edge != SizeHistogram::HIGHEST);
        let at_most = at_most.map(|(edge, count)| (edge.to_string(), count));
        self.histogram(name, labels, at_most, bytes as f64, sizes.count());
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
