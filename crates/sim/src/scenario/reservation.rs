//! Reservations of a scenario: what `forebay reserve` promises to volumes of a running daemon, planned beforehand.
//!
//! They become objectives of their volumes by the daemon's own rule ([`Reserved::objectives`]), for as long as they stand. Not here: how a run is
//! judged by them, which is as by any objective.

use super::error::{missing, out_of_range};
use super::text::{optional, text};
use super::{ObjectiveTable, Scenario, ScenarioError, default};
use forebay_control::{Objective, Reserved};
use forebay_units::Nanos;
use serde::Deserialize;

/// Reservations of a scenario at most, as in the daemon.
const RESERVATIONS_MAX: usize = 64;

/// The shortest reservation.
pub(super) const RESERVATION_MIN: Nanos = Nanos::secs(1);

/// A promise to several volumes for a while.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationTable {
    /// The names of the volumes.
    pub volumes: Vec<String>,
    /// Requests per second of all of them together; each is promised an equal part.
    pub iops: Option<f64>,
    /// Mean latency of the requests of each.
    #[serde(default, deserialize_with = "optional")]
    pub latency: Option<Nanos>,
    /// When it begins; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub from: Nanos,
    /// How long it stands.
    #[serde(rename = "for", deserialize_with = "text")]
    pub span: Nanos,
    /// How much a violation weighs against that of other objectives of its priority; 1 unless set.
    #[serde(default = "default::reserved_weight")]
    pub weight: f64,
    /// Higher ones are served first; 1 unless set, above objectives without one.
    #[serde(default = "default::reserved_priority")]
    pub priority: u8,
}

impl ReservationTable {
    /// When it ends.
    pub fn until(&self) -> Nanos {
        self.from.saturating_add(self.span)
    }
}

/// An objective of a volume, with the table that promises it.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// `objective[3]` or `reservation[0]`.
    pub(crate) key: String,
    /// Of which reservation it is.
    pub(crate) reservation: Option<usize>,
    pub(crate) table: ObjectiveTable,
}

impl Scenario {
    /// All that is promised to volumes: the objectives, and then what each reservation promises each of its volumes, judged over a control
    /// interval, as in the daemon.
    pub(crate) fn promises(&self) -> Vec<Promise> {
        let stated = self.objective.iter().enumerate().map(|(at, table)| Promise {
            key: format!("objective[{at}]"),
            reservation: None,
            table: table.clone(),
        });
        stated
            .chain(self.reservation.iter().enumerate().flat_map(|(at, table)| self.reserved(at, table)))
            .collect()
    }

    fn reserved(&self, at: usize, table: &ReservationTable) -> Vec<Promise> {
        let ReservationTable { iops, latency, weight, priority, .. } = *table;
        let reserved = Reserved { iops, latency, weight, priority };
        let promise = |volume: &String, objective: Objective| {
            let table = ObjectiveTable {
                from: table.from,
                until: Some(table.until()),
                ..ObjectiveTable::of(volume, &objective)
            };
            Promise { key: format!("reservation[{at}]"), reservation: Some(at), table }
        };
        let each = table.volumes.iter().flat_map(|volume| {
            reserved
                .objectives(table.volumes.len(), self.cache.interval)
                .map(move |objective| promise(volume, objective))
        });
        each.collect()
    }

    pub(super) fn check_reservations(&self) -> Result<(), ScenarioError> {
        if self.reservation.len() > RESERVATIONS_MAX {
            out_of_range("reservation", format!("{} reservations", self.reservation.len()), "at most 64")?;
        }
        for (at, table) in self.reservation.iter().enumerate() {
            let key = |key: &str| format!("reservation[{at}].{key}");
            if table.volumes.is_empty() {
                out_of_range(key("volumes"), "none", "at least one volume")?;
            }
            for (place, name) in table.volumes.iter().enumerate() {
                let problem = if !self.volume.iter().any(|volume| volume.name == *name) {
                    "is no volume of this scenario"
                } else if table.volumes[..place].contains(name) {
                    "is named twice"
                } else {
                    continue;
                };
                let key = key(&format!("volumes[{place}]"));
                return Err(ScenarioError::Name { key, name: name.clone(), problem });
            }
            if table.iops.is_none() && table.latency.is_none() {
                missing(format!("reservation[{at}]"), "iops", "a reservation (or `latency`, or both)")?;
            }
            // NaN is refused with the rest.
            if let Some(iops) = table.iops.filter(|iops| !(0.001..=1e9).contains(iops)) {
                out_of_range(key("iops"), iops, "from 0.001 to 1e9")?;
            }
            let within = Nanos::micros(1)..=Nanos::secs(3_600);
            if let Some(latency) = table.latency.filter(|latency| !within.contains(latency)) {
                out_of_range(key("latency"), latency, "from 1 us to 1 h")?;
            }
            if !(1e-6..=1e6).contains(&table.weight) {
                out_of_range(key("weight"), table.weight, "from 1e-6 to 1e6")?;
            }
            if table.span < RESERVATION_MIN || table.span > Nanos::secs(366 * 86_400) {
                out_of_range(key("for"), table.span, "from 1 s to a year")?;
            }
        }
        Ok(())
    }
}
