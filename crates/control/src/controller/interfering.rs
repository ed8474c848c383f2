//! Who interferes with whom on an origin, whether anybody is violated or not: Dynamite's table (figure 6 a) of the newest intervals.
//!
//! The analysis of a violation asks the same of one victim (`analysing`) and goes on from there; the table decides nothing.

use super::Controller;
use super::sample::Sample;
use super::volume::Volume;
use crate::interference::{Interference, InterferenceTable, Neighbour, Victim, interference};
use crate::inventory::{OriginId, VolumeId};
use std::collections::BTreeMap;

/// Volumes in a table (ours): more are told by nobody at a glance, and cost their square.
const VOLUMES_MAX: usize = 32;
/// The part of a victim's intervals in which a neighbour was seen, too, that makes it one of those that are judged together (ours).
const SEEN_MIN: f64 = 0.9;

/// Who interferes with whom on an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginInterference {
    /// The origin.
    pub origin: OriginId,
    /// Its name, where it is known.
    pub name: Option<String>,
    /// Whom the table is of, in its order: the busiest there, at most 32.
    pub volumes: Vec<(VolumeId, String)>,
    /// The judgements, and the sets that follow.
    pub table: InterferenceTable,
}

impl Controller {
    /// The origins that two or more volumes load now, ascending. `O(volumes)`.
    pub fn shared_origins(&self) -> Vec<OriginId> {
        let mut loaded: BTreeMap<OriginId, usize> = BTreeMap::new();
        for volume in self.volumes.values().filter(|volume| self.origin_load(volume) > 0.0) {
            *loaded.entry(volume.spec.origin).or_default() += 1;
        }
        loaded.into_iter().filter(|(_, volumes)| *volumes > 1).map(|(origin, _)| origin).collect()
    }

    /// Who interferes with whom on `origin`, by the intervals that are kept of it; `None` unless two or more volumes load it now.
    ///
    /// `O(m^2 n log n)` for `m` volumes and `n` intervals.
    pub fn interference(&self, origin: OriginId) -> Option<OriginInterference> {
        let mut volumes: Vec<(VolumeId, f64)> = (self.volumes.iter())
            .filter(|(_, volume)| volume.spec.origin == origin)
            .map(|(id, volume)| (*id, self.origin_load(volume)))
            .filter(|(_, load)| *load > 0.0)
            .collect();
        if volumes.len() < 2 {
            return None;
        }
        volumes.sort_by(|(a, load_a), (b, load_b)| load_b.total_cmp(load_a).then(a.cmp(b)));
        volumes.truncate(VOLUMES_MAX);
        volumes.sort_by_key(|(id, _)| *id);
        let ids: Vec<VolumeId> = volumes.into_iter().map(|(id, _)| id).collect();
        let row = |victim: &VolumeId| {
            let others: Vec<VolumeId> = ids.iter().copied().filter(|id| id != victim).collect();
            let mut judged = self.judge_interference(*victim, &others).into_iter();
            ids.iter().map(|id| if id == victim { None } else { judged.next() }).collect()
        };
        Some(OriginInterference {
            origin,
            name: self.origins.get(&origin).map(|spec| spec.name.clone()),
            table: InterferenceTable::of(ids.iter().map(row).collect()),
            volumes: ids.iter().map(|id| (*id, self.volumes[id].spec.name.clone())).collect(),
        })
    }

    fn origin_load(&self, volume: &Volume) -> f64 {
        volume.recent(self.config.recent_intervals).origin_rate()
    }

    /// Whether each of `neighbours`, which are on the origin of `victim`, interferes with it.
    pub(super) fn judge_interference(&self, victim: VolumeId, neighbours: &[VolumeId]) -> Vec<Interference> {
        // Together, as far as all have been here as long as the victim; who came later, or was not seen for long, alone with it.
        let told = &self.volumes[&victim].history;
        let is_long = |id: &VolumeId| {
            let other = &self.volumes[id];
            let seen = told.iter().filter(|sample| other.seen_in(sample.step).is_some()).count();
            seen as f64 >= SEEN_MIN * told.len() as f64
        };
        let (long, short): (Vec<VolumeId>, Vec<VolumeId>) = neighbours.iter().copied().partition(is_long);
        let groups = std::iter::once(long).chain(short.into_iter().map(|id| vec![id]));
        let judged: BTreeMap<VolumeId, Interference> =
            groups.flat_map(|group| self.judge_together(victim, group)).collect();
        neighbours.iter().map(|id| judged[id]).collect()
    }

    fn judge_together(&self, victim: VolumeId, group: Vec<VolumeId>) -> Vec<(VolumeId, Interference)> {
        let (victim, others) = (&self.volumes[&victim], group.iter().map(|id| &self.volumes[id]));
        // Intervals in which nothing of the victim's ended say nothing, nor do those in which one of them was not seen.
        let is_told = |sample: &&Sample| {
            sample.origin_latency() > 0.0
                && others.clone().all(|volume| volume.seen_in(sample.step).is_some())
        };
        let told: Vec<&Sample> = victim.history.iter().filter(is_told).collect();
        let loads_of = |volume: &Volume| -> Vec<f64> {
            told.iter().filter_map(|told| volume.seen_in(told.step)).map(Sample::origin_rate).collect()
        };
        let latency: Vec<f64> = told.iter().map(|told| told.origin_latency()).collect();
        let loads: Vec<Vec<f64>> = others.clone().map(loads_of).collect();
        let neighbours: Vec<Neighbour<'_>> =
            loads.iter().map(|load| Neighbour { load, latency: None }).collect();
        let own = loads_of(victim);
        let victim = Victim { load: &own, latency: &latency };
        group.into_iter().zip(interference(&neighbours, victim, true, &self.config.interference)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{OriginSpec, VolumeSpec};
    use forebay_units::Bytes;

    /// Four volumes, the last one on an origin of its own, with so many intervals.
    fn controller(sample: impl Fn(u32, u32) -> Sample) -> Controller {
        let origin = |id, name: &str| OriginSpec {
            id: OriginId(id),
            name: name.to_owned(),
            servers: None,
            service_cv2: None,
            service: None,
        };
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), vec![origin(0, "array")])
                .unwrap();
        for id in 0..4 {
            let spec = VolumeSpec {
                id: VolumeId(id),
                name: format!("v{id}"),
                origin: OriginId(id / 3),
                ..VolumeSpec::any()
            };
            controller.register(spec).unwrap();
            let volume = controller.volumes.get_mut(&VolumeId(id)).unwrap();
            volume.history.extend((0..40).map(|at| Sample { step: u64::from(at), ..sample(id, at) }));
        }
        controller
    }

    #[test]
    fn a_table_tells_who_slows_whom_down_on_an_origin() {
        // The second one's load goes up and down, and the first one's latency with it; the third one's does as it likes.
        let controller = controller(|id, at| {
            let (aggressor, other) = (f64::from(at * 7 % 11), f64::from(at * 5 % 13));
            let (miss_rate, miss_latency) = match id {
                0 => (100.0, 0.001 + 0.001 * aggressor),
                1 => (100.0 + 50.0 * aggressor, 0.004),
                _ => (100.0 + 30.0 * other, 0.002),
            };
            Sample { arrival_rate: miss_rate, miss_rate, miss_latency, ..Sample::default() }
        });
        assert_eq!(controller.shared_origins(), [OriginId(0)]);
        assert_eq!(controller.interference(OriginId(1)), None);
        let found = controller.interference(OriginId(0)).unwrap();
        let names: Vec<&str> = found.volumes.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((found.name.as_deref(), names), (Some("array"), vec!["v0", "v1", "v2"]));
        assert!(found.table.score(1, 0) > 0.8, "{found:?}");
        // Nothing is seen of the third, in either direction.
        assert_eq!([(2, 0), (0, 2), (2, 1), (0, 1)].map(|(a, v)| found.table.score(a, v)), [0.0; 4]);
        // Whoever the analysis would ask about the first one hears the same.
        let judged = controller.judge_interference(VolumeId(0), &[VolumeId(2), VolumeId(1)]);
        assert_eq!(judged.iter().map(Interference::is_likely).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn who_was_not_seen_for_some_intervals_is_compared_with_those_in_which_it_was() {
        let aggressor = |at: u32| f64::from(at * 7 % 11);
        let mut controller = controller(|id, at| {
            let (miss_rate, miss_latency) = match id {
                0 => (100.0, 0.001 + 0.001 * aggressor(at)),
                1 => (100.0 + 50.0 * aggressor(at), 0.004),
                _ => (100.0, 0.002),
            };
            Sample { arrival_rate: miss_rate, miss_rate, miss_latency, ..Sample::default() }
        });
        // Nothing was heard of it in three intervals, so that it is judged with the others, and in ten, alone.
        for gap in [20..23, 20..30] {
            let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
            volume.history.retain(|sample| !gap.contains(&sample.step));
            let found = controller.interference(OriginId(0)).unwrap();
            assert!(found.table.score(1, 0) > 0.8, "{gap:?}: {found:?}");
        }
    }

    #[test]
    fn who_loads_nothing_is_in_no_table() {
        let controller = controller(|id, _| {
            let miss_rate = if id == 0 { 100.0 } else { 0.0 };
            Sample { arrival_rate: 100.0, miss_rate, miss_latency: 0.001, ..Sample::default() }
        });
        assert_eq!((controller.shared_origins(), controller.interference(OriginId(0))), (Vec::new(), None));
    }
}
