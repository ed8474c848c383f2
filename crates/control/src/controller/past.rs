//! What is kept of the past over restarts: of every volume what it remembers of its load, and of when it needed a cache.

use super::foreseeing::SEASONS_PER_STEP;
use super::{Controller, Volume};
use crate::foresight::{History, is_long};
use crate::inventory::VolumeId;
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a controller remembers of the times at which caches were needed, to be kept over restarts; volumes by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Past {
    schema: String,
    /// The length of its intervals.
    interval_s: f64,
    /// The length of a bucket; absent in what was kept before that was told.
    #[serde(default)]
    bucket_s: Option<f64>,
    volumes: Vec<(VolumeId, String, History)>,
}

/// Names the layout.
const PAST_SCHEMA: &str = "forebay.past/1";

/// Why nothing is recalled. What is remembered is as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecallError {
    /// It is of another layout.
    #[error("what was kept of the past has layout `{found}`, expected `{PAST_SCHEMA}`")]
    Schema {
        /// What was found.
        found: String,
    },
    /// It counts time in other steps: `control.interval` or `foresight.bucket_intervals` is another one now.
    #[error("what was kept of the past counts in buckets of {found_s} s, expected {expected_s} s")]
    Buckets {
        /// The length of its buckets, in seconds.
        found_s: f64,
        /// That of ours.
        expected_s: f64,
    },
}

/// What is remembered of a volume that is not registered now, and may be again.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub(super) name: String,
    pub(super) history: History,
    /// As of when; `None` before the first step.
    pub(super) since: Option<Nanos>,
}

/// How many intervals went by between `since` and `at`, one of which ends `every` so often.
pub(super) fn intervals_between(since: Option<Nanos>, at: Nanos, every: Nanos) -> u64 {
    let went = since.map_or(0, |since| at.saturating_since(since).0);
    // What is left of one is the next time's.
    went.saturating_add(every.0 / 2) / every.0
}

/// Buckets whose lengths differ by so much of them are of one length: seconds are kept as text.
const SAME_LENGTH: f64 = 1e-6;

/// Of what caches held in peaks, so many runs are kept for all volumes together (ours: a dozen megabytes, which are written once a bucket).
const KEPT_RUNS_MAX: usize = 1 << 21;

/// Leaves of what caches held as many runs as `runs_max`, of the newest peaks.
fn bound_listed(volumes: &mut [(VolumeId, String, History)], runs_max: usize) {
    let listed = |(at, (_, _, history)): (usize, &(VolumeId, String, History))| {
        let ago = history.now();
        history
            .listed()
            .map(move |(from, runs)| (ago.saturating_sub(from), at, from, runs))
            .collect::<Vec<_>>()
    };
    let mut peaks: Vec<_> = volumes.iter().enumerate().flat_map(listed).collect();
    peaks.sort_unstable();
    let mut kept = 0;
    for (_, at, from, runs) in peaks {
        kept += runs;
        if kept > runs_max {
            volumes[at].2.forget_listed(from);
        }
    }
}

impl Controller {
    /// What is remembered of the past of all volumes, as of the last step, who is told of one every `interval`; of what caches held as much as is of use for the newest peaks.
    pub fn past(&self, interval: Nanos) -> Past {
        let rules = self.config.foresight;
        let each = |(id, volume): (&VolumeId, &Volume)| {
            let mut history = volume.past.clone();
            // Of what was last heard a while ago less than a bucket is not counted yet.
            let uncounted = self.last.map_or(0, |(at, every)| volume.uncounted(at, every));
            history.pass_as_known(uncounted, &rules);
            (*id, volume.spec.name.clone(), history)
        };
        let unregistered = |(id, awaited): (&VolumeId, &Awaited)| {
            let mut history = awaited.history.clone();
            let went = self.last.map_or(0, |(at, every)| intervals_between(awaited.since, at, every));
            history.pass_as_known(went, &rules);
            (*id, awaited.name.clone(), history)
        };
        let registered = self.volumes.iter().map(each);
        let mut volumes: Vec<_> = registered.chain(self.awaited.iter().map(unregistered)).collect();
        bound_listed(&mut volumes, KEPT_RUNS_MAX);
        Past {
            schema: PAST_SCHEMA.to_owned(),
            interval_s: interval.as_secs_f64(),
            bucket_s: Some(self.bucket_s(interval)),
            volumes,
        }
    }

    /// A step is of the interval `every` that ends at `at`, for volumes that are not registered, too. Of one of which nothing has been heard for a bucket the season is looked for, by which
    /// it is told what it does meanwhile: of few at a time, since that takes a while.
    pub(super) fn await_others(&mut self, at: Nanos, every: Nanos) {
        let rules = self.config.foresight;
        let every = every.max(Nanos(1));
        let mut sought = 0;
        for awaited in self.awaited.values_mut() {
            let since = *awaited.since.get_or_insert(Nanos(at.0.saturating_sub(every.0)));
            let is_away = is_long(intervals_between(Some(since), at, every), &rules);
            if is_away && sought < SEASONS_PER_STEP && !awaited.history.has_sought_season() {
                awaited.history.find_season();
                sought += 1;
            }
        }
    }

    /// The length of a bucket of the history, in seconds.
    fn bucket_s(&self, interval: Nanos) -> f64 {
        interval.as_secs_f64() * self.config.foresight.bucket_intervals as f64
    }

    /// Recalls what another controller remembered of the volumes that are `known`, which have their names and may have other numbers; of those that are registered later it is kept
    /// for them. `away` is for how long nobody looked, and `interval` how often this one will be told. Returns how many volumes it is of: what was kept by other rules is left out.
    ///
    /// # Errors
    /// [`RecallError`].
    pub fn recall_past(
        &mut self,
        past: Past,
        known: &BTreeMap<String, VolumeId>,
        away: Nanos,
        interval: Nanos,
    ) -> Result<usize, RecallError> {
        if past.schema != PAST_SCHEMA {
            return Err(RecallError::Schema { found: past.schema });
        }
        let expected_s = self.bucket_s(interval);
        let differs = |found_s: &f64| (found_s / expected_s - 1.0).abs() > SAME_LENGTH;
        if let Some(found_s) = past.bucket_s.filter(differs) {
            return Err(RecallError::Buckets { found_s, expected_s });
        }
        let rules = self.config.foresight;
        let numbers: BTreeMap<VolumeId, VolumeId> =
            past.volumes.iter().filter_map(|(id, name, _)| Some((*id, *known.get(name)?))).collect();
        let intervals = (away.as_secs_f64() / interval.as_secs_f64().max(1e-3)).round() as u64;
        let mut recalled = 0;
        let since = self.last.map(|(at, _)| at);
        for (id, name, history) in past.volumes {
            let Some(now) = numbers.get(&id) else { continue };
            let Some(mut history) = history.recalled(&rules, |id| numbers.get(&id).copied()) else {
                continue;
            };
            history.pass(intervals, &rules);
            match self.volumes.get_mut(now) {
                Some(volume) => (volume.past, volume.counted) = (history, None),
                None => drop(self.awaited.insert(*now, Awaited { name, history, since })),
            }
            recalled += 1;
        }
        Ok(recalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ControlConfig;
    use crate::foresight::{ForesightRules, Peak};
    use crate::inventory::{HostId, OriginId, VolumeSpec};
    use crate::observation::{Observation, VolumeObservation};
    use forebay_units::{BlockRange, BlockSize, Bytes};

    #[test]
    fn of_what_caches_held_the_newest_peaks_are_kept() {
        let rules = ForesightRules { bucket_intervals: 1, ..ForesightRules::default() };
        let history = |froms: &[u64], runs: u64| {
            let mut history = History::default();
            for at in 0..20 {
                if froms.contains(&at) {
                    history.begin(Peak::new(at, 1, Vec::new()));
                    let held: Vec<_> =
                        (0..runs).map(|at| BlockRange { first: 2 * at, end: 2 * at + 1 }).collect();
                    history.open_peak().unwrap().resident = Some(held.into());
                }
                history.push(1.0, &rules);
            }
            history
        };
        let mut volumes = [
            (VolumeId(1), "a".to_owned(), history(&[5, 15], 10)),
            (VolumeId(2), "b".to_owned(), history(&[3, 12], 20)),
        ];
        // 10 runs of five buckets ago and 20 of eight; the next, 10 of fifteen, are too many.
        bound_listed(&mut volumes, 39);
        let listed = |at: usize| volumes[at].2.listed().collect::<Vec<_>>();
        assert_eq!((listed(0), listed(1)), (vec![(15, 10)], vec![(12, 20)]));
    }

    fn told(controller: &Controller) -> (u64, u64) {
        let past = serde_json::to_value(controller.past(Nanos::secs(1))).unwrap();
        let of = |key: &str| past["volumes"][0][2][key].as_u64().expect("a number");
        (of("now"), of("intervals"))
    }

    /// Buckets of four seconds: intervals that end late, that are told of later, or of which nothing is told count for as long as they took.
    #[test]
    fn buckets_are_counted_by_time() {
        let foresight = ForesightRules { bucket_intervals: 4, ..ForesightRules::default() };
        let config = ControlConfig { foresight, ..ControlConfig::default() };
        let mut controller = Controller::new(config, Bytes::mib(1), Vec::new(), Vec::new()).unwrap();
        let spec = VolumeSpec {
            id: VolumeId(3),
            name: "db".to_owned(),
            size: Bytes::mib(1),
            block_size: BlockSize::DEFAULT,
            origin: OriginId(0),
            host: HostId(0),
            objectives: Vec::new(),
            may_cache: true,
            minimum: Bytes::ZERO,
            maximum: None,
        };
        controller.register(spec).unwrap();
        let every = Nanos::secs(1);
        let mut step = |at_ms: u64, interval_ms: u64, heard: bool| {
            let interval = Nanos::millis(interval_ms);
            let volumes =
                if heard { vec![VolumeObservation::idle(VolumeId(3), interval)] } else { Vec::new() };
            let observation =
                Observation { at: Nanos::millis(at_ms), interval, every, volumes, ..Observation::default() };
            controller.step(&observation);
            told(&controller)
        };
        // Of whom nothing was ever heard nothing is counted.
        assert_eq!([step(1_000, 1_000, false), step(2_000, 1_000, true)], [(0, 0), (0, 1)]);
        // Two and a half late, and the next one short.
        assert_eq!([step(5_400, 3_400, true), step(6_000, 600, true)], [(1, 0), (1, 1)]);
        // What is kept meanwhile counts too, a bucket or less.
        let silent = [7, 8, 9, 10, 11].map(|at| step(at * 1_000, 1_000, false));
        assert_eq!(silent, [(1, 2), (1, 3), (2, 0), (2, 1), (2, 2)]);
        // Nobody asked for a hundred seconds; what is heard then is of two.
        assert_eq!(step(111_000, 2_000, true), (27, 2));
    }
}
