//! What a closed form says must come out of a scenario. A run is held against it, and tells how far off it was; nothing is refused for that.

use super::error::out_of_range;
use super::text::optional;
use super::{Scenario, ScenarioError};
use forebay_units::Nanos;
use serde::Deserialize;

/// A number that must come out for a volume, in its totals.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTable {
    /// The name of the volume.
    pub volume: String,
    /// Who says so, as in `M/M/1`.
    pub by: String,
    /// The mean latency of its requests.
    #[serde(default, deserialize_with = "optional")]
    pub mean_latency: Option<Nanos>,
    /// Completed requests per second.
    pub requests_per_second: Option<f64>,
    /// Hits among its reads.
    pub hit_ratio: Option<f64>,
}

impl ExpectedTable {
    /// The key of the one number that is set, and the number in the unit of the totals; `None` where none or several are.
    pub(crate) fn number(&self) -> Option<(&'static str, f64)> {
        match (self.mean_latency, self.requests_per_second, self.hit_ratio) {
            (Some(mean), None, None) => Some(("mean_ms", mean.as_millis_f64())),
            (None, Some(rate), None) => Some(("iops", rate)),
            (None, None, Some(ratio)) => Some(("hit_ratio", ratio)),
            _ => None,
        }
    }
}

impl Scenario {
    pub(super) fn check_expected(&self) -> Result<(), ScenarioError> {
        for (at, table) in self.expected.iter().enumerate() {
            if !self.volume.iter().any(|volume| volume.name == table.volume) {
                return Err(ScenarioError::Name {
                    key: format!("expected[{at}].volume"),
                    name: table.volume.clone(),
                    problem: "is no volume of this scenario",
                });
            }
            let key = format!("expected[{at}]");
            let Some((_, number)) = table.number() else {
                let expected = "exactly one of `mean_latency`, `requests_per_second` and `hit_ratio`";
                return out_of_range(key, "none or several", expected);
            };
            if !(number > 0.0 && number < f64::INFINITY) || table.hit_ratio.is_some_and(|ratio| ratio > 1.0) {
                return out_of_range(key, number, "a number above 0, of hits at most 1");
            }
        }
        Ok(())
    }
}
