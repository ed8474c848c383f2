//! Parting: a cache in front of one volume that also serves a neighbour does less for it, or nothing, where the neighbour's own does that with less.
//!
//! A violation is answered with the caches that are there to be made at that time: a busy neighbour's, while the volume's own reads are hardly
//! known. Once it has a cache of its own both grow for the same objective, and by feedback alone they keep the sizes that they
//! happen to have. So the model is asked now and then how the two would divide the work with the least memory. The rules and numbers are ours.

use super::scene::Scene;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::Law;
use crate::inventory::VolumeId;
use crate::performance::OVERLOADED;
use crate::sizing::smallest;
use crate::windows::normal_quantile;
use forebay_units::Bytes;
use std::collections::BTreeMap;

/// Steps between two questions, and how many questions a step is about to have at most: each costs half a millisecond among a hundred volumes before one origin.
const PART_EVERY: u64 = 4;
const PARTS_PER_STEP: u64 = 64;
/// Intervals since the last change of either cache.
const SETTLED: usize = 4;
/// Intervals until a cache that serves the neighbour again after all may part from it again.
const PART_AGAIN: u64 = 120;
/// The part of what both take that must be left.
const PART_BELOW: f64 = 0.8;
/// They part where that takes no more than so many times the best division does.
const PART_UNLESS: f64 = 1.05;
/// The divisions of what a cache has beyond the needs of its own volume that are tried.
const DIVISIONS: u64 = 8;
/// A neighbour's own cache that lacks so small a part of what it would have in a division has it.
const HAS_ENOUGH: f64 = 0.05;
/// Steps for which a neighbour's own cache does not shrink, so that the other one does.
const HELD: u64 = 12;

/// A cache, the neighbour that it serves besides, and that one's own, as places of a scene.
struct Pair<'a> {
    scene: &'a Scene,
    /// What caches have, and how far everybody is beyond his bound with that.
    before: Vec<u64>,
    now: Vec<f64>,
    place: usize,
    own: usize,
    /// Bytes of a block of each, and the blocks by which they grow.
    block_bytes: [u64; 2],
    chunk_blocks: [u64; 2],
    /// The most that the neighbour's own may have.
    ceiling: u64,
}

impl Pair<'_> {
    /// Bytes of both.
    fn bytes(&self, blocks: &[u64]) -> u64 {
        blocks[self.place] * self.block_bytes[0] + blocks[self.own] * self.block_bytes[1]
    }

    /// The smallest size of the first for everybody else whom it serves, at most what it has: `others` and its own volume have to be `margin` below their bounds.
    fn needed(&self, others: &[VolumeId], margin: f64) -> Option<u64> {
        let mut served = self.scene.places(others);
        served.push(self.place);
        let mut trial = self.scene.trial(&self.before);
        let needed = smallest(self.before[self.place], self.chunk_blocks[0], -margin, |size| {
            trial.set(self.place, size);
            trial.worst(&served)
        });
        needed.reached.then_some(needed.blocks)
    }

    /// Both with `size` for the first, and for the neighbour's own the least with which it is `goal` beyond its bound at most; none where that cannot be had, or
    /// somebody would be worse off.
    fn divided(&self, size: u64, goal: f64) -> Option<Vec<u64>> {
        let mut blocks = self.before.clone();
        blocks[self.place] = size;
        let rest = smallest(self.ceiling, self.chunk_blocks[1], goal, |size| {
            blocks[self.own] = size;
            self.scene.excess(&blocks)[self.own]
        });
        blocks[self.own] = rest.blocks;
        let then = self.scene.excess(&blocks);
        let worse = self.now.iter().zip(&then).any(|(now, then)| *then > now.max(goal) + 1e-6);
        (rest.reached && !worse).then_some(blocks)
    }

    /// How far beyond its bound the neighbour may be: no further than it is.
    fn goal(&self) -> f64 {
        self.now[self.own].max(0.0)
    }

    /// Both as they are, but for what the neighbour's own could give up all the same.
    fn undivided(&self) -> Vec<u64> {
        let spared = self.divided(self.before[self.place], self.goal());
        spared
            .filter(|blocks| blocks[self.own] < self.before[self.own])
            .unwrap_or_else(|| self.before.clone())
    }

    /// The division that takes least in which the first still serves the neighbour, with more than `least`: none is worse off than it is.
    fn best(&self, least: u64) -> Option<Vec<u64>> {
        let (goal, beyond) = (self.goal(), self.before[self.place].saturating_sub(least));
        (1..DIVISIONS)
            .filter_map(|part| self.divided(least + beyond * part / DIVISIONS, goal))
            .min_by_key(|blocks| self.bytes(blocks))
    }
}

impl Controller {
    /// Steps between two questions about one cache, of those that are `granted`.
    pub(super) fn part_every(&self, granted: &[VolumeId]) -> u64 {
        let serves_more = |id: &&VolumeId| {
            self.volumes[id]
                .grant
                .as_ref()
                .is_some_and(|grant| grant.serves.iter().any(|served| served != *id))
        };
        let shared = granted.iter().filter(serves_more).count() as u64;
        steps_between(shared)
    }

    /// Lets the cache of `id` do less for a neighbour whose own can do more, or go back to what its own volume needs, where both are smaller together then: the
    /// change of one of them that begins it. It is asked `every` so many steps. `O(DIVISIONS log(blocks))` predictions of the origin.
    pub(super) fn part(
        &mut self,
        id: VolumeId,
        every: u64,
        scenes: &mut Scenes,
        changes: &BTreeMap<VolumeId, Change>,
    ) -> Option<(VolumeId, Change)> {
        let asks = (self.step + u64::from(id.0)).is_multiple_of(every);
        if !asks || self.config.feedback.law != Law::Model || self.volumes[&id].spec.objectives.is_empty() {
            return None;
        }
        let settled = |id: &VolumeId| {
            let volume = &self.volumes[id];
            !changes.contains_key(id)
                && volume.grant.as_ref().is_some_and(|grant| {
                    grant.age >= SETTLED && grant.flooded.is_none() && self.step >= grant.limited_until
                })
        };
        // One that only just fills what it was given for the neighbour's sake may be asked: by the time it is full that may be needless.
        let grant = self.volumes[&id].grant.as_ref().filter(|_| settled(&id))?;
        if self.step < grant.part_from {
            return None;
        }
        let has_own = |other: &VolumeId| {
            let own = self.volumes.get(other).and_then(|volume| volume.grant.as_ref());
            own.is_some_and(|own| {
                own.serves.contains(other) && own.blocks > 0 && !own.is_spare && own.learning == 0
            })
        };
        let neighbour =
            grant.serves.iter().copied().find(|other| *other != id && has_own(other) && settled(other))?;
        let others: Vec<VolumeId> =
            grant.serves.iter().copied().filter(|other| *other != neighbour).collect();
        let ceiling = self.blocks_ceiling(neighbour);
        // Of its own windows only the noise is known: that must have room. What was found to be needed still is.
        let share = self.beneficiaries(id)?.1;
        let margin = self.config.sizing_margin.max(room_for_noise(share, grant.windows.deviation()));
        let kept = grant.needs.kept(self.step).unwrap_or(0);
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        if scene.utilisation >= OVERLOADED {
            return None;
        }
        let both = [id, neighbour].map(|id| &self.volumes[&id]);
        let before = scene.blocks();
        let pair = Pair {
            scene,
            now: scene.excess(&before),
            before: before.clone(),
            place,
            own: scene.place(neighbour)?,
            block_bytes: both.map(|volume| volume.block_bytes()),
            chunk_blocks: both.map(|volume| volume.chunk_blocks(self.config.chunk_bytes)),
            ceiling,
        };
        let least = pair.needed(&others, margin)?.max(kept.min(before[place]));
        let apart = pair.divided(least, 0.0);
        let best = pair.best(least);
        let bytes_of =
            |blocks: &Option<Vec<u64>>| blocks.as_ref().map_or(f64::INFINITY, |b| pair.bytes(b) as f64);
        let parts = bytes_of(&apart) <= PART_UNLESS * bytes_of(&best);
        let blocks = if parts { apart? } else { best? };
        // What the neighbour's own has to spare as things are is its own to give back.
        let (now, then) = (pair.bytes(&pair.undivided()), pair.bytes(&blocks));
        if then as f64 >= PART_BELOW * now as f64 {
            return None;
        }
        let names = both.map(|volume| &volume.spec.name);
        let how = match parts {
            true => format!("serves {} no longer: its own can", names[1]),
            false => format!("does less for {}: its own can do more", names[1]),
        };
        let summary = format!(
            "the cache of {} {how}, and both together take {} instead of {} then",
            names[0],
            Bytes(then),
            Bytes(now)
        );
        let facts = |at: usize| {
            vec![
                Fact::number("size_before", before[at] as f64, "blocks"),
                Fact::number("size_after", blocks[at] as f64, "blocks"),
                Fact::number("both_before", now as f64, "bytes"),
                Fact::number("both_after", then as f64, "bytes"),
            ]
        };
        let own = pair.own;
        let rules = self.config.feedback;
        let (changed, change) = if blocks[own] as f64 > before[own] as f64 * (1.0 + HAS_ENOUGH) {
            let most = (before[own] as f64 * (1.0 + rules.model_growth_max)) as u64;
            (neighbour, Change::new(blocks[own].min(most), DecisionKind::Grown, summary, facts(own)))
        } else {
            let fewest = (before[place] as f64 * (1.0 - rules.model_shrink_max)) as u64;
            (id, Change::new(blocks[place].max(fewest), DecisionKind::Shrunk, summary, facts(place)))
        };
        let held_until = self.step + HELD;
        self.volumes.get_mut(&neighbour)?.grant.as_mut()?.held_until = held_until;
        if !parts {
            // The windows of both are still the neighbour's.
            let ratio = self.model_ratio(changed, change.blocks, scenes);
            return Some((changed, Change { ratio, ..change }));
        }
        let grant = self.volumes.get_mut(&id)?.grant.as_mut()?;
        grant.serves.retain(|served| *served != neighbour);
        grant.serve(&[id]);
        grant.parted.push(neighbour);
        grant.part_from = self.step + PART_AGAIN;
        // Its windows were the neighbour's.
        grant.load_changed(0);
        Some((changed, change))
    }
}

/// Steps between two questions about one cache where `shared` caches serve a neighbour.
fn steps_between(shared: u64) -> u64 {
    shared.div_ceil(PARTS_PER_STEP).max(PART_EVERY)
}

/// How far below the bound the mean of windows that deviate from it by `deviation`, relative to it, has to be for a `share` of them to conform, as a
/// share of the bound.
fn room_for_noise(share: f64, deviation: f64) -> f64 {
    1.0 - 1.0 / (1.0 + normal_quantile(share).max(0.0) * deviation)
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::super::volume::Volume;
    use super::*;
    use crate::config::ControlConfig;
    use crate::decision::FactValue;
    use crate::inventory::{HostId, OriginId, OriginSpec, VolumeSpec};
    use crate::needs::Seen;
    use crate::objective::{Objective, Operations};
    use crate::windows::Windows;
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use forebay_units::Nanos;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Reads a second, a bound in milliseconds and a curve.
    type Load<'a> = (f64, u64, &'a [(u64, f64)]);

    /// What three intervals showed of reads at `rate` a second, all of which missed, with this curve.
    fn observe(volume: &mut Volume, rate: f64, curve: &[(u64, f64)]) {
        let sample = Sample {
            arrival_rate: rate,
            miss_rate: rate,
            origin_read_rate: rate,
            miss_latency: 0.006,
            ..Sample::default()
        };
        volume.history.extend([sample; 3]);
        volume.steady = 3;
        let point = |&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
        volume.curve = Some(Arc::new(MissRatioCurve::new(curve.iter().map(point).collect())));
        volume.curve_accesses = 1_000_000;
    }

    /// Two volumes before one server; nothing is cached yet.
    fn scene(loads: [Load<'_>; 2]) -> Scene {
        let volumes = loads.iter().zip(1..).map(|((rate, bound, curve), id)| {
            let id = VolumeId(id);
            let objectives = vec![Objective::mean_latency(Nanos::millis(*bound), Operations::All)];
            let mut volume = Volume::new(VolumeSpec { id, objectives, ..VolumeSpec::any() });
            observe(&mut volume, *rate, curve);
            (id, volume)
        });
        let ids = [VolumeId(1), VolumeId(2)];
        let mut scene =
            Scene::build(&ids, &volumes.collect(), None, Some(1.0), &[], None, &ControlConfig::default());
        scene.utilisation = 0.5;
        scene
    }

    fn pair(scene: &Scene, ceiling: u64) -> Pair<'_> {
        let before = scene.blocks();
        let now = scene.excess(&before);
        Pair { scene, before, now, place: 0, own: 1, block_bytes: [4_096; 2], chunk_blocks: [1; 2], ceiling }
    }

    proptest! {
        /// Whatever is divided, nobody is worse off than now or than his bound asks for, and the neighbour has what it needs.
        #[test]
        fn a_division_makes_nobody_worse(
            before in [1u64..2_000, 1u64..2_000], rates in [1.0f64..60.0, 1.0f64..60.0], bounds in [1u64..12, 1u64..12],
            knees in [(1u64..1_000, 0.0f64..1.0), (1u64..1_000, 0.0f64..1.0)],
        ) {
            let curves = knees.map(|(size, miss)| [(0, 1.0), (size, miss), (2_000, 0.0)]);
            let mut scene = scene([(rates[0], bounds[0], &curves[0]), (rates[1], bounds[1], &curves[1])]);
            (scene.parties[0].blocks, scene.parties[1].blocks) = (before[0], before[1]);
            let now = scene.excess(&before);
            let pair = pair(&scene, 2_000);
            let Some(least) = pair.needed(&[], 0.1) else { return Ok(()) };
            prop_assert!(least <= before[0]);
            for (blocks, goal) in [(pair.divided(least, 0.0), 0.0), (pair.best(least), now[1].max(0.0))] {
                let Some(blocks) = blocks else { continue };
                let then = scene.excess(&blocks);
                prop_assert!(then[1] <= goal + 1e-6 && then[0] <= now[0].max(goal) + 1e-6, "{now:?} {then:?} {blocks:?}");
                prop_assert!(blocks[0] >= least && blocks[0] <= before[0] && blocks[1] <= 2_000);
            }
        }
    }

    #[test]
    fn what_a_few_blocks_in_front_of_a_neighbour_do_is_left_to_them() {
        // The first 200 blocks answer nine tenths of a busy neighbour's reads; the strict one's are asked for evenly.
        let steep = [(0, 1.0), (200, 0.1), (2_000, 0.0)];
        let even = [(0, 1.0), (2_000, 0.0)];
        let beside_even = |neighbour| {
            let mut scene = scene([neighbour, (20.0, 2, &even)]);
            (scene.parties[0].blocks, scene.parties[1].blocks) = (1_600, 1_400);
            scene
        };
        let divide = |scene: &Scene| {
            let pair = pair(scene, 2_000);
            let least = pair.needed(&[], 0.1).expect("it keeps its bound now");
            let bytes = |blocks: Option<Vec<u64>>| blocks.map(|blocks| (pair.bytes(&blocks) >> 12, blocks));
            (least, bytes(pair.divided(least, 0.0)), bytes(pair.best(least)))
        };
        let (least, apart, best) = divide(&beside_even((150.0, 60, &steep)));
        println!("{least} {apart:?} {best:?}");
        assert!(least < 100);
        let best = best.expect("a division");
        assert!((100..400).contains(&best.1[0]), "{best:?}");
        assert!(apart.is_none_or(|apart| apart.0 as f64 > 1.05 * best.0 as f64));
        // Where more blocks answer hardly more of its reads, what its own volume needs is enough.
        let (least, apart, best) = divide(&beside_even((45.0, 60, &[(0, 1.0), (2_000, 0.83)])));
        println!("{least} {apart:?} {best:?}");
        let (apart, best) = (apart.expect("apart"), best.expect("a division"));
        assert!(apart.0 as f64 <= 1.05 * best.0 as f64, "{apart:?} {best:?}");
    }

    #[test]
    fn however_many_caches_serve_neighbours_few_are_asked_in_a_step() {
        assert_eq!([0, 1, 256, 257, 6_400].map(steps_between), [4, 4, 4, 5, 100]);
    }

    #[test]
    fn noise_has_room_below_the_bound() {
        // 19 of 20 windows lie below 1.645 deviations: a mean of 1 / 1.23 of the bound where they deviate by .14.
        assert!((room_for_noise(0.95, 0.14) - 0.187).abs() < 1e-3);
        // 99 of 100: 2.326. Half of them lie below the mean itself, and without noise all do.
        assert!((room_for_noise(0.99, 0.14) - 0.2456).abs() < 1e-3);
        assert_eq!((room_for_noise(0.5, 0.14).abs() < 1e-9, room_for_noise(0.95, 0.0)), (true, 0.0));
        assert_eq!(room_for_noise(0.3, 0.14), 0.0);
    }

    /// Something that keeps caches together, in words and deeds.
    type Told<T> = (&'static str, fn(&mut T));

    const BUSY: VolumeId = VolumeId(1);
    const STRICT: VolumeId = VolumeId(2);

    /// A busy volume whose cache of 1,600 blocks answers hardly any of its reads and is for a strict neighbour, too, that has 1,400 of its own by now.
    fn shared() -> Controller {
        let origin = OriginSpec {
            id: OriginId(1),
            name: "group".to_owned(),
            servers: Some(1.0),
            service_cv2: None,
            service: None,
        };
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), vec![origin]).unwrap();
        let loads: [(VolumeId, Load<'_>, u64); 2] = [
            (BUSY, (45.0, 60, &[(0, 1.0), (2_000, 0.83)]), 1_600),
            (STRICT, (20.0, 2, &[(0, 1.0), (2_000, 0.0)]), 1_400),
        ];
        for (id, (rate, bound, curve), blocks) in loads {
            let objectives = vec![Objective::mean_latency(Nanos::millis(bound), Operations::All)];
            controller.register(VolumeSpec { id, objectives, ..VolumeSpec::any() }).unwrap();
            let volume = controller.volumes.get_mut(&id).unwrap();
            observe(volume, rate, curve);
            let grant = Grant::new(HostId(0), rate, Windows::assumed(0.05), 0);
            volume.grant = Some(Grant { blocks, age: SETTLED, serves: vec![id], ..grant });
        }
        controller.busy.insert(OriginId(1), [0.5].into());
        grant(&mut controller, BUSY).serves.push(STRICT);
        controller.step = 3;
        controller
    }

    fn grant(controller: &mut Controller, id: VolumeId) -> &mut Grant {
        controller.volumes.get_mut(&id).unwrap().grant.as_mut().unwrap()
    }

    fn asked(controller: &mut Controller, changes: &[VolumeId]) -> Option<(VolumeId, Change)> {
        let change = |&id| (id, Change::new(1, DecisionKind::Grown, String::new(), Vec::new()));
        let changes = changes.iter().map(change).collect();
        controller.part(BUSY, PART_EVERY, &mut Scenes::default(), &changes)
    }

    #[test]
    fn a_cache_that_parts_from_a_neighbour_is_its_own_volumes_alone_and_the_neighbours_own_is_held_meanwhile()
    {
        let mut controller = shared();
        grant(&mut controller, BUSY).insufficient = Some(1_500);
        let (changed, change) = asked(&mut controller, &[]).expect("it parts");
        let number = |name: &str| {
            let fact = change.facts.iter().find(|fact| fact.name == name).expect("told");
            match fact.value {
                FactValue::Number(value) => value,
                ref other => panic!("{name} is {other:?}"),
            }
        };
        println!("{changed:?} {} {} {:?}", change.blocks, change.summary, change.facts);
        // Four fifths of the memory at most, or it is not worth it.
        assert!(number("both_after") < PART_BELOW * number("both_before"));
        // As feedback would, each goes only a part of the way.
        let rules = controller.config.feedback;
        let (before, after) = (number("size_before"), number("size_after"));
        let expected = match changed {
            BUSY => after.max((before * (1.0 - rules.model_shrink_max)).floor()),
            _ => after.min((before * (1.0 + rules.model_growth_max)).floor()),
        };
        assert_eq!(change.blocks as f64, expected);
        assert_eq!(grant(&mut controller, STRICT).held_until, 3 + HELD);
        let busy = grant(&mut controller, BUSY);
        assert_eq!((&busy.serves[..], &busy.parted[..]), (&[BUSY][..], &[STRICT][..]));
        assert_eq!((busy.part_from, busy.insufficient), (3 + PART_AGAIN, None));
    }

    #[test]
    fn a_cache_that_was_for_a_neighbour_alone_is_for_its_own_volume_once_it_parts() {
        let mut controller = shared();
        grant(&mut controller, BUSY).serves = vec![STRICT];
        asked(&mut controller, &[]).expect("it parts");
        assert_eq!(grant(&mut controller, BUSY).serves, [BUSY]);
    }

    /// What is told of either while something else is going on there says nothing of how they would divide the work.
    #[test]
    fn caches_part_only_where_both_have_settled_and_the_neighbours_own_is_for_it() {
        let parts = |change: fn(&mut Controller), changes: &[VolumeId]| {
            let mut controller = shared();
            change(&mut controller);
            asked(&mut controller, changes).is_some()
        };
        assert!(parts(|_| (), &[]));
        assert!(!parts(|_| (), &[BUSY]) && !parts(|_| (), &[STRICT]));
        let unsettled: [Told<Grant>; 3] = [
            ("changed lately", |grant| grant.age = SETTLED - 1),
            ("flooded", |grant| grant.flooded = Some(0.0)),
            ("short of memory", |grant| grant.limited_until = 4),
        ];
        for (what, unsettle) in unsettled {
            for id in [BUSY, STRICT] {
                let mut controller = shared();
                unsettle(grant(&mut controller, id));
                assert!(asked(&mut controller, &[]).is_none(), "{what}: {id:?}");
            }
        }
        let refused: [Told<Controller>; 8] = [
            ("it parted lately", |controller| grant(controller, BUSY).part_from = 4),
            ("the neighbour's own is for somebody else", |controller| {
                grant(controller, STRICT).serves = vec![BUSY];
            }),
            ("the neighbour's own is of spare memory", |controller| {
                grant(controller, STRICT).is_spare = true;
            }),
            ("the neighbour's own still learns", |controller| grant(controller, STRICT).learning = 1),
            ("the origin is overloaded", |controller| {
                controller.busy.insert(OriginId(1), [1.0].into());
            }),
            ("another law", |controller| controller.config.feedback.law = Law::Plain),
            ("it has no objective of its own", |controller| {
                let volume = controller.volumes.get_mut(&BUSY).unwrap();
                (volume.spec.objectives, volume.tracks) = Default::default();
            }),
            ("it is not its turn", |controller| controller.step = 4),
        ];
        for (why, change) in refused {
            assert!(!parts(change, &[]), "{why}");
        }
        // At the step from which on it may, it does.
        assert!(parts(|controller| grant(controller, BUSY).part_from = 3, &[]));
        assert!(parts(|controller| grant(controller, STRICT).limited_until = 3, &[]));
    }

    #[test]
    fn what_was_found_to_be_needed_is_not_divided_away() {
        let after = |needed: Option<u64>| {
            let mut controller = shared();
            let seen = |blocks| Seen {
                at: 0,
                blocks,
                used: blocks,
                shrunk_from: None,
                rate: 45.0,
                windows: 1,
                fell: false,
            };
            for seen in needed.into_iter().map(seen) {
                let needs = &mut grant(&mut controller, BUSY).needs;
                needs.missed(&seen);
                needs.conformed(&seen);
            }
            asked(&mut controller, &[]).is_some()
        };
        // 1,500 of 1,600 blocks leave nothing that is worth it.
        assert_eq!([None, Some(1_500)].map(after), [true, false]);
    }

    #[test]
    fn a_neighbours_own_that_lacks_more_than_a_twentieth_grows_first_and_by_no_more_than_it_may() {
        // Alone it needs some 1,327 blocks.
        let first = |own: u64| {
            let mut controller = shared();
            controller.config.feedback.model_growth_max = 0.05;
            grant(&mut controller, STRICT).blocks = own;
            let (changed, change) = asked(&mut controller, &[]).expect("it parts");
            (changed, change.kind, (changed == STRICT).then_some(change.blocks))
        };
        assert_eq!(first(1_200), (STRICT, DecisionKind::Grown, Some(1_260)));
        assert_eq!(first(1_290), (BUSY, DecisionKind::Shrunk, None));
    }
}
