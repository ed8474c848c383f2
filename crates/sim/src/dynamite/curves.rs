//! Miss ratio curves of both workloads up to the beginning of the peak's answer: exact, and as the daemon estimates them (figure 7).

use super::{Course, PUBLISHED, Setup, WORKLOADS};
use crate::load::Load;
use forebay_locality::{ExactLru, LiveConfig, LiveObserver};
use forebay_units::{BlockSize, Nanos, mix64};
use forebay_workload::random;
use serde::Serialize;

/// A workload's curves at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurveRow {
    /// Bytes of cache.
    pub bytes: u64,
    /// By simulating every read.
    pub exact: f64,
    /// By the daemon's sample.
    pub estimated: f64,
}

/// Sizes that are asked for (ours).
const SIZES: u64 = 40;

/// The curves of the main workload and of the reader over the reads since the peak began until the paper's appliance was made, at sizes up to the memory there is.
pub fn curves(setup: &Setup) -> [Vec<CurveRow>; 2] {
    let scenario = setup.scenario(Course::CoLocated);
    let minute = setup.minute().as_secs_f64();
    let seconds = (PUBLISHED.reactive_min[0] - PUBLISHED.phases_min[1]) * minute;
    std::array::from_fn(|volume| {
        let place = &scenario.volume[volume];
        let from = Nanos::from_secs_f64(PUBLISHED.phases_min[1] * minute);
        let part = place.load.iter().rfind(|load| load.from <= from).expect("a load at every time");
        let random = random(mix64(setup.seed ^ volume as u64));
        let mut load = Load::new(part, place, None, mix64(setup.seed), random, None, from);
        let (mut exact, mut now) = (ExactLru::new(), Nanos::ZERO);
        let config = LiveConfig { block_size: BlockSize::DEFAULT, seed: setup.seed, ..LiveConfig::default() };
        let mut live = LiveObserver::new(config, now);
        debug_assert_eq!(place.name, WORKLOADS[volume]);
        while let Some(next) = load.next_arrival(now).filter(|next| next.as_secs_f64() < seconds) {
            now = next;
            let asked = load.next_request();
            if !asked.writes {
                (asked.first..asked.end).for_each(|block| {
                    exact.access(block, 1);
                });
                live.observe_read(asked.first, asked.end - asked.first, now);
            }
        }
        let estimate = live.snapshot(now).curve;
        let step = setup.memory().get() / SIZES / BlockSize::DEFAULT.bytes();
        let sizes: Vec<u64> = (0..=SIZES).map(|at| at * step).collect();
        let exact = exact.miss_ratios_at(&sizes);
        sizes
            .iter()
            .zip(exact)
            .map(|(&blocks, exact)| CurveRow {
                bytes: blocks * BlockSize::DEFAULT.bytes(),
                exact,
                estimated: estimate.miss_ratio_at(blocks),
            })
            .collect()
    })
}
