//! Removing: whether a partition that was granted is still needed, asked of the model and of how it fares.

use super::party::Party;
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
        let (served, share) = self.needing(id)?;
        let is_unpromised = self.is_for_promises(id) && !self.is_promised(&served);
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
        let last = |id| self.volumes.get(id)?.history.back();
        let hangs = served.iter().filter_map(last).any(|last| last.hangs);
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
            hangs,
            is_unpromised,
        };
        let reason = grant.removal.observe(&input, &config.removal)?;
        if grant.blocks <= minimum {
            return None;
        }
        let sustained = match reason {
            RemovalReason::NotNeeded => grant.removal.sustained_unneeded(regrets, &config.removal),
            RemovalReason::LowLoad | RemovalReason::Ineffective | RemovalReason::NotPromised => {
                config.removal.sustained
            }
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

    /// Whether a partition is there for a promise alone: on hosts each is; who has memory of its own may have been given one by hand.
    fn is_for_promises(&self, id: VolumeId) -> bool {
        let is_own = || self.volumes.get(&id)?.grant.as_ref().map(|grant| grant.is_own);
        !self.hosts.is_empty() || is_own().unwrap_or(false)
    }

    /// Whom a partition serves, and the largest share of windows that any of them was promised. Where it is there for promises, those are, where none that is known was promised anything, all
    /// volumes at its origin that were: one that was taken over may be there for any of them, and one whose own promise has ended may relieve them.
    fn needing(&self, id: VolumeId) -> Option<(Vec<VolumeId>, f64)> {
        let (served, share) = self.beneficiaries(id)?;
        if !self.is_for_promises(id) || self.is_promised(&served) {
            return Some((served, share));
        }
        let origin = self.volumes.get(&id)?.spec.origin;
        let beside = self.volumes.iter().filter(|(_, volume)| volume.spec.origin == origin);
        let promised: Vec<VolumeId> =
            beside.filter(|(_, volume)| !volume.spec.objectives.is_empty()).map(|(id, _)| *id).collect();
        Some(match promised.is_empty() {
            true => (served, share),
            false => {
                let share = self.share_promised(&promised);
                (promised, share)
            }
        })
    }

    fn is_promised(&self, volumes: &[VolumeId]) -> bool {
        let known = volumes.iter().filter_map(|id| self.volumes.get(id));
        known.flat_map(|volume| &volume.spec.objectives).next().is_some()
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
    use super::super::unhelped::Uncached;
    use super::*;
    use crate::config::ControlConfig;
    use crate::decision::FactValue;
    use crate::inventory::{HostId, HostSpec, VolumeSpec};
    use crate::objective::{Objective, Operations};
    use crate::windows::Windows;
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use forebay_units::{Bytes, Nanos};
    use std::sync::Arc;

    const MINIMUM: u64 = 64;

    /// What becomes, in twenty steps, of a cache of `blocks`, of which `used` are filled and that answers a share `hits` of the reads. Reasons have to hold for five.
    fn taken_back(blocks: u64, used: u64, hits: f64, objectives: Vec<Objective>) -> Option<Change> {
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
        taken_back_of(sample, blocks, used, objectives)
    }

    /// The same where this is seen of its volume, which was asked for 100 a second when it was granted.
    fn taken_back_of(sample: Sample, blocks: u64, used: u64, objectives: Vec<Objective>) -> Option<Change> {
        let mut controller = holding(sample, blocks, used, objectives, Vec::new());
        asked(&mut controller)
    }

    fn asked(controller: &mut Controller) -> Option<Change> {
        (0..20).find_map(|step| {
            controller.step = step;
            controller.removal(VolumeId(1), &mut Scenes::default())
        })
    }

    /// A controller whose volume 1 has such a cache.
    fn holding(
        sample: Sample,
        blocks: u64,
        used: u64,
        objectives: Vec<Objective>,
        hosts: Vec<HostSpec>,
    ) -> Controller {
        let mut config = ControlConfig::default();
        config.removal.sustained = 5;
        let mut controller = Controller::new(config, Bytes::mib(64), hosts, Vec::new()).unwrap();
        let minimum = Bytes(MINIMUM * 4096);
        controller.register(VolumeSpec { minimum, objectives, ..VolumeSpec::any() }).unwrap();
        let id = VolumeId(1);
        let volume = controller.volumes.get_mut(&id).unwrap();
        volume.history.extend([sample; 3]);
        volume.used_blocks = used;
        // By its curve, half of the reads are answered by 1,000 blocks.
        let point = CurvePoint { size_blocks: 1_000, miss_ratio: 0.5 };
        volume.curve = Some(Arc::new(MissRatioCurve::new(vec![point])));
        volume.curve_accesses = 1_000_000;
        let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
        volume.grant = Some(Grant { blocks, serves: vec![id], ..grant });
        controller
    }

    /// A cache that answers half of what is read, whose volume's objective is gone. In the file of a controller of hosts that happens behind a restart: it is taken over.
    #[test]
    fn a_cache_that_is_there_for_a_promise_is_taken_back_once_nobody_is_promised_anything() {
        let busy = Sample {
            arrival_rate: 100.0,
            hit_rate: 50.0,
            miss_rate: 50.0,
            origin_read_rate: 50.0,
            hit_latency: 1e-4,
            miss_latency: 5e-3,
            outstanding: 0.5,
            ..Sample::default()
        };
        let host = || vec![HostSpec::new(HostId(0), "h", 0, Bytes::mib(64))];
        let mut alone = holding(busy, 1_000, 1_000, Vec::new(), host());
        let change = asked(&mut alone).expect("nobody needs it");
        assert!(change.summary.contains("nothing is promised any more"), "{}", change.summary);
        let kept = asked(&mut holding(busy, 1_000, 1_000, Vec::new(), Vec::new()));
        assert!(kept.is_none(), "a daemon's may have been ordered by hand");
        // A daemon's that its controller gave, as for a reservation that has ended.
        let mut own = holding(busy, 1_000, 1_000, Vec::new(), Vec::new());
        own.volumes.get_mut(&VolumeId(1)).unwrap().grant.as_mut().unwrap().is_own = true;
        let change = asked(&mut own).expect("nobody needs it");
        assert!(change.summary.contains("nothing is promised any more"), "{}", change.summary);
        own.take_over(VolumeId(1), HostId(0), 999);
        assert!(asked(&mut own).is_none(), "by hand again");
        // It may be what keeps the promise of a neighbour at its origin, which the model says: a bound that is kept by far without it, and one that is not.
        for (bound, is_kept) in [(Nanos::secs(1), false), (Nanos::micros(100), true)] {
            let mut beside = holding(busy, 1_000, 1_000, Vec::new(), host());
            let objectives = vec![Objective::mean_latency(bound, Operations::All)];
            beside.register(VolumeSpec { id: VolumeId(2), objectives, ..VolumeSpec::any() }).unwrap();
            let neighbour = Sample { hit_rate: 0.0, miss_rate: 100.0, origin_read_rate: 100.0, ..busy };
            beside.volumes.get_mut(&VolumeId(2)).unwrap().history.extend([neighbour; 3]);
            let change = asked(&mut beside).map(|change| change.summary);
            assert_eq!(change.is_none(), is_kept, "{bound}: {change:?}");
            assert!(change.is_none_or(|why| why.contains("would be kept without it")));
        }
    }

    #[test]
    fn what_answers_next_to_nothing_is_taken_back_once_four_fifths_of_it_are_filled() {
        let by_used =
            |used| taken_back(1_000, used, 0.02, Vec::new()).map(|change| (change.kind, change.blocks));
        assert_eq!([799, 800].map(by_used), [None, Some((DecisionKind::Removed, MINIMUM))]);
        assert!(taken_back(1_000, 1_000, 0.04, Vec::new()).is_none());
    }

    #[test]
    fn a_load_is_not_low_where_it_hangs_at_the_origin() {
        let [quiet, hung] = [false, true].map(|hangs| {
            taken_back_of(Sample { hangs, ..Sample::default() }, 1_000, 1_000, Vec::new())
                .map(|change| change.kind)
        });
        assert_eq!((quiet, hung), (Some(DecisionKind::Removed), None));
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

    /// A load of `rate` reads a second, each of which takes 5 ms at the origin, with a bound in milliseconds, and the share of them that its cache answers.
    type Load = (f64, u64, f64);

    /// Loads before one origin, the first with a cache of 1,000 blocks, 64 of them promised, that is for the `served`. By its curve 600 blocks answer as much.
    fn shared(loads: &[Load], served: &[u32], sustained: usize) -> Controller {
        let mut config = ControlConfig::default();
        config.removal.sustained = sustained;
        let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        for (id, &(rate, bound, hits)) in (1..).map(VolumeId).zip(loads) {
            let objectives = vec![Objective::mean_latency(Nanos::millis(bound), Operations::All)];
            let minimum = Bytes(if id == VolumeId(1) { MINIMUM * 4096 } else { 0 });
            controller.register(VolumeSpec { id, minimum, objectives, ..VolumeSpec::any() }).unwrap();
            let sample = Sample {
                arrival_rate: rate,
                hit_rate: rate * hits,
                miss_rate: rate * (1.0 - hits),
                origin_read_rate: rate * (1.0 - hits),
                hit_latency: 1e-4,
                miss_latency: 5e-3,
                outstanding: 0.5,
                ..Sample::default()
            };
            let volume = controller.volumes.get_mut(&id).unwrap();
            volume.history.extend([sample; 3]);
            volume.steady = 3;
            let point = |size_blocks, miss_ratio| CurvePoint { size_blocks, miss_ratio };
            let points = vec![point(0, 1.0), point(600, 1.0 - hits), point(1_000, 1.0 - hits)];
            volume.curve = Some(Arc::new(MissRatioCurve::new(points)));
            volume.curve_accesses = 1_000_000;
        }
        let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
        volume.used_blocks = 1_000;
        let serves = served.iter().copied().map(VolumeId).collect();
        let grant = Grant::new(HostId(0), 1.0, Windows::assumed(0.05), 0);
        volume.grant = Some(Grant { blocks: 1_000, serves, ..grant });
        controller
    }

    /// In which step, the first of which is 0, the cache of volume 1 is taken back, if in one of two hundred.
    fn step_of_removal(mut controller: Controller) -> Option<(u64, Change, Controller)> {
        (0..200).find_map(|step| {
            controller.step = step;
            let change = controller.removal(VolumeId(1), &mut Scenes::default())?;
            Some((step, change, controller.clone()))
        })
    }

    fn number(change: &Change, name: &str) -> Option<f64> {
        change.facts.iter().find(|fact| fact.name == name).map(|fact| match fact.value {
            FactValue::Number(value) => value,
            ref other => panic!("{name} is {other:?}"),
        })
    }

    #[test]
    fn a_quarter_of_the_caches_is_asked_in_each_step_whether_it_is_needed() {
        // Of volume 1, steps 3, 7, 11 and so on; needless for five intervals from step 3 on it is in step 7.
        let step = |id: u32| {
            let mut controller = shared(&[(100.0, 100, 0.5)], &[1], 5);
            let volume = controller.volumes.remove(&VolumeId(1)).unwrap();
            let mut renamed = volume.clone();
            renamed.spec.id = VolumeId(id);
            renamed.grant.as_mut().unwrap().serves = vec![VolumeId(id)];
            controller.volumes.insert(VolumeId(id), renamed);
            (0..200).find(|&step| {
                controller.step = step;
                controller.removal(VolumeId(id), &mut Scenes::default()).is_some()
            })
        };
        assert_eq!([1, 2, 3, 4].map(step), [Some(7), Some(6), Some(5), Some(4)]);
    }

    #[test]
    fn whoever_it_serves_has_to_do_without_it_and_nobody_else() {
        let taken = |bounds: [u64; 3], served: &[u32]| {
            let loads = [(100.0, bounds[0], 0.5), (20.0, bounds[1], 0.0), (20.0, bounds[2], 0.0)];
            step_of_removal(shared(&loads, served, 5)).is_some()
        };
        assert!(taken([100, 100, 100], &[1, 2]));
        // Reads of 5 ms have little to spare of 6, and none of 4.
        assert!(!taken([6, 100, 100], &[1, 2]));
        assert!(!taken([100, 6, 100], &[1, 2]));
        assert!(taken([100, 6, 100], &[1]));
        assert!(taken([100, 100, 4], &[1, 2]));
    }

    #[test]
    fn what_was_promised_stays_when_it_is_asked_whether_the_rest_is_needed() {
        // Of a bound of 6 ms reads take 5 without a cache, and 1 with the 600 blocks that are promised.
        let taken = |promised: u64| {
            let mut controller = shared(&[(100.0, 6, 0.8)], &[1], 5);
            controller.volumes.get_mut(&VolumeId(1)).unwrap().spec.minimum = Bytes(promised * 4096);
            step_of_removal(controller).map(|(_, change, _)| change.blocks)
        };
        assert_eq!([MINIMUM, 600].map(taken), [None, Some(600)]);
    }

    /// Two whom the cache serves, and one whom it does not; what was seen of each while there was none, and at the neighbours' of each `others` requests a second.
    fn seen_without(seen: [Option<f64>; 3], others: f64) -> Controller {
        let loads = [(100.0, 100, 0.5), (40.0, 100, 0.0), (60.0, 100, 0.0)];
        let mut controller = shared(&loads, &[1, 2], 5);
        for ((id, excess), (rate, ..)) in (1..).zip(seen).zip(loads) {
            let volume = controller.volumes.get_mut(&VolumeId(id)).unwrap();
            let uncached = excess.map(|excess| Uncached { excess, others });
            (0..3).for_each(|_| volume.unhelped.see(rate, 0.0, uncached));
        }
        controller
    }

    #[test]
    fn the_worst_that_those_it_serves_were_seen_to_miss_without_it_is_told_and_makes_it_wait_four_times_as_long()
     {
        let taken = |seen, others| {
            let (step, change, _) = step_of_removal(seen_without(seen, others)).expect("not needed");
            (step, number(&change, "observed_excess_without"), number(&change, "sustained"))
        };
        assert_eq!(taken([None; 3], 100.0), (7, None, Some(5.0)));
        // Asked first in step 3, and needless for twenty intervals in step 22; who had .3 to spare or more is believed at once.
        assert_eq!(taken([Some(-0.9), Some(-0.2), None], 100.0), (22, Some(-0.2), Some(20.0)));
        assert_eq!(taken([Some(0.4), Some(-0.2), None], 100.0), (22, Some(0.4), Some(20.0)));
        assert_eq!(taken([Some(-0.9), Some(-0.3), None], 100.0), (7, Some(-0.3), Some(5.0)));
        // A neighbour that it is not for has no say.
        assert_eq!(taken([Some(-0.9), Some(-0.4), Some(3.0)], 100.0), (7, Some(-0.4), Some(5.0)));
    }

    #[test]
    fn what_was_seen_while_neighbours_asked_for_more_may_be_gone() {
        // Neighbours of volume 1 ask for 100 requests a second, those of volume 2 for 160: it counts of what was seen beside up to half as much again.
        let told = |others| {
            let (_, change, _) =
                step_of_removal(seen_without([Some(0.4), Some(0.2), None], others)).expect("not needed");
            number(&change, "observed_excess_without")
        };
        assert_eq!(
            [100.0, 149.0, 151.0, 239.0, 241.0].map(told),
            [Some(0.4), Some(0.4), Some(0.2), Some(0.2), None]
        );
    }

    #[test]
    fn who_missed_it_most_often_says_how_long_it_must_be_needless() {
        let after = |missed: [u64; 2]| {
            let mut controller = shared(&[(100.0, 100, 0.5), (40.0, 100, 0.0)], &[1, 2], 5);
            let rules = controller.config.removal;
            for (id, times) in (1..).zip(missed) {
                let regrets = &mut controller.volumes.get_mut(&VolumeId(id)).unwrap().regrets;
                for step in 0..times {
                    regrets.removed(step, Removed { volume: VolumeId(1), blocks: 64 });
                    regrets.violated(step, &rules);
                }
            }
            step_of_removal(controller).map(|(step, ..)| step)
        };
        // Five intervals from step 3 on, ten, and twenty.
        assert_eq!([[0, 0], [1, 0], [0, 1], [1, 2], [2, 1]].map(after), [7, 12, 12, 22, 22].map(Some));
    }

    #[test]
    fn only_what_was_taken_back_as_not_needed_is_known_to_have_sufficed_and_for_all_whom_it_served() {
        let missed = |hits, bound| {
            let controller = shared(&[(100.0, bound, hits), (40.0, bound, 0.0)], &[1, 2], 5);
            let (step, _, mut controller) = step_of_removal(controller).expect("superfluous");
            let rules = controller.config.removal;
            [1, 2].map(|id| {
                let regrets = &mut controller.volumes.get_mut(&VolumeId(id)).unwrap().regrets;
                regrets.violated(step + 1, &rules);
                regrets.missed()
            })
        };
        let removed = Removed { volume: VolumeId(1), blocks: 1_000 };
        assert_eq!(missed(0.5, 100), [Some(removed); 2]);
        // It answers nothing, and reads take too long.
        assert_eq!(missed(0.01, 4), [None; 2]);
    }

    #[test]
    fn the_load_that_counts_is_that_of_all_whom_it_serves() {
        let taken = |rates: [f64; 2], served: &[u32]| {
            let mut controller = shared(&[(rates[0], 6, 0.5), (rates[1], 6, 0.0)], served, 5);
            controller.volumes.get_mut(&VolumeId(1)).unwrap().grant.as_mut().unwrap().rate_at_grant = 390.0;
            step_of_removal(controller).is_some()
        };
        // It was granted for 390 requests a second, of which 117 are three tenths: 120 are not low, and less of them are.
        assert!(!taken([100.0, 20.0], &[1, 2]));
        assert!(!taken([20.0, 100.0], &[1, 2]));
        assert!(taken([100.0, 20.0], &[1]));
        assert!(taken([90.0, 20.0], &[1, 2]));
    }

    #[test]
    fn a_mean_well_below_the_bound_is_not_enough_where_windows_deviate_from_it_by_far() {
        // Reads take 5 ms of 9 at the origin: .44 to spare. 19 of 20 windows have to conform, and lie some 1.6 deviations of `deviation` above their mean at most.
        let taken = |deviation: f64| {
            let mut controller = shared(&[(10.0, 9, 0.5)], &[1], 5);
            let grant = controller.volumes.get_mut(&VolumeId(1)).unwrap().grant.as_mut().unwrap();
            grant.windows = Windows::assumed(deviation);
            grant.windows.push(-0.5, true);
            step_of_removal(controller).is_some()
        };
        assert_eq!([0.05, 0.9].map(taken), [true, false]);
    }

    #[test]
    fn next_to_nothing_is_a_share_of_what_all_read_whom_it_serves() {
        // The other one reads a hundred times a second: three in a hundred of all reads are 3.09, and of the other's alone 3.
        let taken =
            |reads: f64| step_of_removal(shared(&[(reads, 6, 0.5), (100.0, 6, 0.0)], &[1, 2], 5)).is_some();
        assert_eq!([3.05, 3.15].map(taken), [true, false]);
    }
}
