//! An experiment: a load, a failure, and ways to prewarm the node that takes over.

use super::destination::{Loading, Run, serve as take_over};
use super::ideal::ideal;
use super::learnt::{Goal, Plan, Rehearsal, order};
use super::load::Load;
use super::objects::{HM1_BYTES, HM3_BYTES, Object};
use super::pools::{Entry, Pools};
use super::source::{Snapshot, Source, serve as serve_until_failure};
use forebay_control::prewarm::{Heuristic, LoadScore, ScoreTable, Takeover, TakeoverInput, decide_takeover};
use forebay_control::warmup::WarmupRules;
use forebay_units::Nanos;
use std::collections::BTreeMap;

/// Seconds after the failure that are run.
pub const SECONDS: u32 = 1_800;
/// Seconds over which prewarming is to be good, where the goal does not say otherwise.
pub const HORIZON: u32 = 300;
/// When the slides' node fails.
pub const FAILURE: Nanos = Nanos::secs(5_400);

/// Bytes of an object on average: there are as many of each kind.
const OBJECT_BYTES: u64 = (HM1_BYTES + HM3_BYTES) / 2;

/// How the node that takes over is prewarmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Not at all.
    Cold,
    /// It goes on with the cache of the node that failed, as if nothing had happened.
    Warm,
    /// As the daemon decides for itself, from snapshots taken every so many accesses ([`Failed::takeover`]).
    Decided(usize),
    /// From snapshots taken every so many accesses, in the order of a score.
    Scored(Heuristic, usize),
    /// By what was learnt, as rehearsed.
    Learnt(Goal),
    /// By what was learnt, but in a fixed order: nothing is followed.
    Fixed(Goal),
    /// Knowing the future.
    Ideal(Goal),
}

/// A load, and the node that fails.
pub struct Experiment {
    load: Load,
    failure: usize,
    capacity: u64,
}

/// An experiment whose node has failed.
pub struct Failed<'a> {
    of: &'a Experiment,
    rehearsal: Rehearsal<'a>,
    /// By accesses between snapshots.
    sources: BTreeMap<usize, Source>,
}

impl Experiment {
    /// Of `load` on nodes with caches of `capacity` bytes, the first of which fails at `failure`.
    pub fn new(load: Load, capacity: u64, failure: Nanos) -> Experiment {
        let failure = load.position(failure);
        Experiment { load, failure, capacity }
    }

    /// What is looked up.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Bytes of each node's cache.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Serves until the failure, with snapshots every so many accesses, for each of `every`.
    pub fn fail(&self, every: &[usize]) -> Failed<'_> {
        let sources = every
            .iter()
            .map(|&every| (every, serve_until_failure(&self.load, self.failure, self.capacity, every)))
            .collect();
        let rehearsal = Rehearsal::new(&self.load, self.failure, self.capacity, HORIZON);
        Failed { of: self, rehearsal, sources }
    }
}

impl Failed<'_> {
    /// What the node that failed left behind, with snapshots every so many accesses.
    ///
    /// # Panics
    /// If that was not among those given to [`Experiment::fail`].
    pub fn source(&self, every: usize) -> &Source {
        self.sources.get(&every).unwrap_or_else(|| panic!("no snapshots were taken every {every} accesses"))
    }

    /// The order of a score over all objects.
    pub fn order(&self, heuristic: Heuristic, every: usize) -> Vec<Object> {
        let objects = &self.of.load.objects;
        let mut table = ScoreTable::new(heuristic, objects.count());
        self.source(every).snapshots.iter().for_each(|snapshot| table.add_words(&snapshot.words));
        let number = |object| objects.published_number(Object(object));
        table
            .ranked_numbered(|object| objects.bytes(Object(object)), number)
            .into_iter()
            .map(Object)
            .collect()
    }

    /// The order in which the daemon would load all objects.
    fn takeover_order(&self, every: usize) -> Vec<Object> {
        let score = LoadScore::default();
        let mut table = ScoreTable::new(score.heuristic(), self.of.load.objects.count());
        for snapshot in &self.source(every).snapshots {
            table.add_words(&snapshot.words);
            if score.counts_used_again() {
                table.add_words(&snapshot.again);
            }
        }
        table.ranked(|_| 1).into_iter().map(Object).collect()
    }

    /// What the daemon would decide by itself, from the snapshots taken every so many accesses: a block is an object.
    pub fn takeover(&self, every: usize) -> Takeover {
        let source = self.source(every);
        let lately = source.lately;
        let input = TakeoverInput {
            blocks: source.snapshots.last().map_or(0, Snapshot::count),
            reused_blocks: source.snapshots.last().map_or(0, Snapshot::count_again),
            working_set_blocks: lately.objects,
            lookups_per_s: lately.lookups as f64 / f64::from(HORIZON),
            hit_ratio: (lately.lookups > 0).then(|| lately.hits as f64 / lately.lookups as f64),
            hit_ratio_before: None,
            quota_blocks: self.of.capacity / OBJECT_BYTES,
            resident_blocks: 0,
            block_bytes: OBJECT_BYTES,
        };
        decide_takeover(&input, &WarmupRules::default())
    }

    /// Runs the node that takes over, and says by which plan where there was one.
    pub fn run(&self, way: Way, how: Loading) -> (Option<Plan>, Run) {
        let Experiment { load, failure, capacity } = self.of;
        let cold = || Pools::new(load.objects.clone(), *capacity);
        let fixed = |order: &[Object]| (None, take_over(load, *failure, SECONDS, cold(), order, how, None));
        match way {
            Way::Cold => fixed(&[]),
            Way::Warm => {
                let warm = self.sources.values().next().map_or_else(cold, |source| source.warm.clone());
                let nothing = Loading { limit: 0, rate: None, entry: Entry::Head };
                (None, take_over(load, *failure, SECONDS, warm, &[], nothing, None))
            }
            Way::Decided(every) => match self.takeover(every) {
                Takeover::Skip(_) => fixed(&[]),
                Takeover::Load { blocks, bytes_per_second, .. } => {
                    let order = self.takeover_order(every);
                    let order = &order[..order.len().min(blocks as usize)];
                    let how = Loading { rate: Some(bytes_per_second), entry: Entry::Tail, ..how };
                    (None, take_over(load, *failure, SECONDS, cold(), order, how, None))
                }
            },
            Way::Scored(heuristic, every) => fixed(&self.order(heuristic, every)),
            Way::Fixed(goal) => {
                let learnt = self.rehearsal.learnt();
                fixed(&order(load, goal, &learnt.rates(load), &learnt.outlooks_alone(goal)))
            }
            Way::Ideal(goal) => fixed(&ideal(load, *failure, *capacity, how, goal)),
            Way::Learnt(goal) => {
                let (plan, run) = self.rehearsal.run(*failure, SECONDS, goal, how);
                (Some(plan), run)
            }
        }
    }
}
