//! Removing: whether a partition that was granted is still needed, asked of the model and of how it fares.

use super::scene::Party;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::inventory::VolumeId;
use crate::removal::{RemovalInput, RemovalReason, Removed, Without};
use crate::windows::ExpectedWindow;

/// Steps between two questions whether a partition is still needed (ours).
const REMOVAL_EVERY: u64 = 4;

impl Controller {
    pub(super) fn removal(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let ask = (self.step + u64::from(id.0)).is_multiple_of(REMOVAL_EVERY);
        let (served, share) = self.beneficiaries(id)?;
        let without = ask.then(|| self.without(id, &served, scenes));
        // A beneficiary without load predicts nothing: only an answer with numbers counts.
        let without = without.filter(|without| without.predicted.is_finite());
        let config = &self.config;
        let loads = served
            .iter()
            .filter_map(|id| self.volumes.get(id))
            .map(|volume| volume.recent(config.recent_intervals));
        let (load, reads_served) =
            loads.fold((0.0, 0.0), |sum, load| (sum.0 + load.rate(), sum.1 + load.hit_rate + load.miss_rate));
        let regrets = served.iter().filter_map(|id| Some(self.volumes.get(id)?.regrets));
        let regrets = regrets.max_by_key(|regrets| regrets.sustained(&config.removal)).unwrap_or_default();
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(config.recent_intervals);
        let reads = recent.hit_rate + recent.miss_rate;
        let minimum = volume.blocks_min();
        let (used, name) = (volume.used_blocks, volume.spec.name.clone());
        let grant = volume.grant.as_mut()?;
        let input = RemovalInput {
            rate: load,
            rate_at_grant: grant.rate_at_grant,
            without,
            strict: grant.windows.expected(share).map_or(1.0, ExpectedWindow::strictness),
            reads,
            reads_served,
            hit_ratio: if reads > 0.0 { recent.hit_rate / reads } else { 0.0 },
            warm: used * 10 >= grant.blocks * 8,
            regrets,
        };
        let reason = grant.removal.observe(&input, &config.removal)?;
        if grant.blocks <= minimum {
            return None;
        }
        let sustained = match reason {
            RemovalReason::NotNeeded => grant.removal.sustained_unneeded(regrets, &config.removal),
            RemovalReason::LowLoad | RemovalReason::Ineffective => config.removal.sustained,
        };
        let mut facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("load", input.rate, "requests/s"),
            Fact::number("load_at_grant", input.rate_at_grant, "requests/s"),
            Fact::number("reads", input.reads, "reads/s"),
            Fact::number("hit_ratio", input.hit_ratio, ""),
            Fact::number("sustained", sustained as f64, "intervals"),
        ];
        if let Some(Without { predicted, seen }) = grant.removal.without() {
            facts.push(Fact::number("predicted_excess_without", predicted, ""));
            facts.extend(seen.map(|seen| Fact::number("observed_excess_without", seen, "")));
        }
        if reason == RemovalReason::NotNeeded {
            let removed = Removed { volume: id, blocks: grant.blocks };
            for id in served {
                self.volumes.entry(id).and_modify(|volume| volume.regrets.removed(self.step, removed));
            }
        }
        Some(Change::new(
            minimum,
            DecisionKind::Removed,
            format!("the cache of {name} is taken back: {reason}"),
            facts,
        ))
    }

    /// How those that a partition serves would fare without it.
    fn without(&mut self, id: VolumeId, served: &[VolumeId], scenes: &mut Scenes) -> Without {
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        let mut blocks = scene.blocks();
        blocks[place] = self.volumes[&id].blocks_min();
        let arrivals: f64 = scene.parties.iter().map(|party| party.recent.arrival_rate).sum();
        let seen = |party: &Party| {
            let rate = party.recent.arrival_rate;
            self.volumes[&party.id].unhelped.excess(rate, (arrivals - rate).max(0.0))
        };
        let beneficiaries = scene.parties.iter().filter(|party| served.contains(&party.id));
        Without {
            predicted: scene.trial(&blocks).worst(&scene.places(served)),
            seen: beneficiaries.filter_map(seen).max_by(f64::total_cmp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::*;
    use crate::config::ControlConfig;
    use crate::decision::FactValue;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::objective::{Objective, Operations};
    use crate::windows::Windows;
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use forebay_units::{Bytes, Nanos};
    use std::sync::Arc;

    const MINIMUM: u64 = 64;

    /// What becomes, in twenty steps, of a cache of `blocks`, of which `used` are filled and that answers a share `hits` of the reads. Reasons have to hold for five.
    fn taken_back(blocks: u64, used: u64, hits: f64, objectives: Vec<Objective>) -> Option<Change> {
        let mut config = ControlConfig::default();
        config.removal.sustained = 5;
        let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        let minimum = Bytes(MINIMUM * 4096);
        controller.register(VolumeSpec { minimum, objectives, ..VolumeSpec::any() }).unwrap();
        let id = VolumeId(1);
        let volume = controller.volumes.get_mut(&id).unwrap();
        let sample = Sample {
            arrival_rate: 100.0,
            hit_rate: 100.0 * hits,
            miss_rate: 100.0 * (1.0 - hits),
            origin_read_rate: 100.0 * (1.0 - hits),
            hit_latency: 1e-4,
            miss_latency: 5e-3,
            outstanding: 0.5,
            ..Sample::default()
        };
        volume.history.extend([sample; 3]);
        volume.used_blocks = used;
        // By its curve, half of the reads are answered by 1,000 blocks.
        let point = CurvePoint { size_blocks: 1_000, miss_ratio: 0.5 };
        volume.curve = Some(Arc::new(MissRatioCurve::new(vec![point])));
        volume.curve_accesses = 1_000_000;
        let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
        volume.grant = Some(Grant { blocks, serves: vec![id], ..grant });
        (0..20).find_map(|step| {
            controller.step = step;
            controller.removal(id, &mut Scenes::default())
        })
    }

    #[test]
    fn what_answers_next_to_nothing_is_taken_back_once_four_fifths_of_it_are_filled() {
        let by_used =
            |used| taken_back(1_000, used, 0.02, Vec::new()).map(|change| (change.kind, change.blocks));
        assert_eq!([799, 800].map(by_used), [None, Some((DecisionKind::Removed, MINIMUM))]);
        assert!(taken_back(1_000, 1_000, 0.04, Vec::new()).is_none());
    }

    #[test]
    fn nothing_is_taken_of_what_was_promised() {
        assert!(taken_back(MINIMUM, MINIMUM, 0.02, Vec::new()).is_none());
    }

    #[test]
    fn what_is_not_needed_is_told_with_what_is_predicted_without_it() {
        let within = |millis| {
            let objective = Objective::mean_latency(Nanos::millis(millis), Operations::All);
            taken_back(1_000, 1_000, 0.5, vec![objective])
        };
        // Reads take some 5 ms at the origin.
        let change = within(100).expect("it is not needed");
        let fact = |name: &str| change.facts.iter().find(|fact| fact.name == name);
        let predicted = fact("predicted_excess_without").expect("told").value.clone();
        assert!(
            matches!(predicted, FactValue::Number(excess) if (-1.0..-0.9).contains(&excess)),
            "{predicted:?}"
        );
        assert!(fact("observed_excess_without").is_none(), "it was never seen without");
        // With it they take half as long on average, which says nothing of what they take without.
        assert!(within(6).is_none());
    }
}
