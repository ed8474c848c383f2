//! Floods: an origin that is asked for more than it can serve, what is granted against that, and what of it is given back.

use super::grant::Effort;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::Law;
use crate::inventory::{OriginId, VolumeId};
use crate::model_law::Flood;
use crate::performance::OVERLOADED;

/// What is off by less is judged by its latencies, however busy the origin is (ours).
const FLOODED_ERROR: f64 = 1.0;
/// The same for what looks like a closed loop: an open one whose client stops at a maximum of requests looks like that too.
const FLOODED_ERROR_CLOSED: f64 = 4.0;
/// Growth is in vain (ours) where so many times the cache, over more than so many intervals, left more than this part of
/// the error; the next attempt waits twice as long each time, so often.
const VAIN_GROWTH: u64 = 8;
pub(super) const VAIN_INTERVALS: usize = 30;
const VAIN_ERROR: f64 = 0.5;
/// What answers so much more of the requests is not in vain, however long it takes (ours).
const VAIN_HITS: f64 = 0.2;
const VAIN_SPAN: f64 = 4.0;
const VAIN_MAX: u32 = 5;
/// What is off by more waits for something, whatever the servers say: writes that overlap wait for one another.
const FAR_ERROR: f64 = 10.0;
/// Intervals over which it is seen whether a backlog falls, and the part of what arrives by which it falls at least (ours).
const DRAIN_SPAN: usize = 2;
const DRAINS_MIN: f64 = 0.002;
/// By this share of it what a load needs is exceeded while what waited at its origin is worked off and the cache finds its blocks
/// (ours): what is known to suffice, and what the model finds, which lies below what 99 in 100 windows need.
pub(super) const SURPLUS_KNOWN: f64 = 0.25;
pub(super) const SURPLUS_FOUND: f64 = 0.4;

impl Controller {
    /// Whether the origin is flooded where those that a partition serves are off by `error`: it is overloaded, and they are
    /// far beyond what they were promised. A closed loop never floods it: its latencies follow the size at once.
    pub(super) fn flood(
        &mut self,
        id: VolumeId,
        served: &[VolumeId],
        error: f64,
        scenes: &mut Scenes,
    ) -> Option<Flood> {
        if error <= FLOODED_ERROR {
            return None;
        }
        let said = self.busy.get(&self.volumes[&id].spec.origin).and_then(|said| said.back().copied());
        let busy = said.unwrap_or_else(|| {
            let (index, _) = self.scene_place(scenes, id);
            scenes.list[index].utilisation
        });
        if busy < OVERLOADED && error <= FAR_ERROR {
            return None;
        }
        let mut served = served.iter().filter_map(|served| self.volumes.get(served));
        let closed = served.all(|volume| volume.recent(self.config.recent_intervals).backlogged);
        if closed && error <= FLOODED_ERROR_CLOSED {
            return None;
        }
        let origin = self.volumes[&id].spec.origin;
        let Queue { waiting, waited, asked } =
            *scenes.queues.entry(origin).or_insert_with(|| self.queue_of(origin));
        let falling = (waited - waiting) / (DRAIN_SPAN as f64 * self.interval_s);
        let over_in = (falling > DRAINS_MIN * asked).then(|| waiting / falling / self.interval_s);
        let settled = self.volumes[&id].was_full();
        Some(Flood { over_in, settled, sudden: false })
    }

    /// All that use an origin wait in one queue. `O(volumes)`.
    fn queue_of(&self, origin: OriginId) -> Queue {
        let mut queue = Queue::default();
        for volume in self.volumes.values().filter(|volume| volume.spec.origin == origin) {
            let Some(last) = volume.history.back() else { continue };
            queue.waiting += last.waiting;
            let at = volume.history.len().saturating_sub(DRAIN_SPAN + 1);
            let before = volume.history.get(at).unwrap_or(last);
            queue.waited += before.waiting;
            queue.asked += last.arrival_rate;
        }
        queue
    }

    /// Gives back what growth was in vain: where several times the cache left a flood as bad as it was.
    pub(super) fn in_vain(
        &mut self,
        id: VolumeId,
        error: Option<f64>,
        flood: Option<Flood>,
    ) -> Option<Change> {
        let error = error?.min(1e6);
        let (step, retry) = (self.step, self.config.retry_after as u64);
        let volume = self.volumes.get_mut(&id)?;
        let name = volume.spec.name.clone();
        let (blocks_min, fills) = (volume.blocks_min(), volume.becomes_more());
        let last = volume.history.back()?;
        let hits = last.hit_rate / last.rate().max(1e-9);
        let grant = volume.grant.as_mut()?;
        if flood.is_none() || self.config.feedback.law == Law::Plain {
            (grant.effort, grant.vain) = (None, 0);
            return None;
        }
        let seen = Tried { blocks: grant.blocks, hits, error, fills };
        let effort = grant.effort.unwrap_or_else(|| Effort::begin(&seen));
        let (effort, is_vain) = effort.after(&seen);
        grant.effort = Some(effort);
        if !is_vain {
            return None;
        }
        let Effort { blocks, before, now, .. } = effort;
        let wait = retry << grant.vain.min(VAIN_MAX);
        grant.vain += 1;
        (grant.limited_until, grant.tried) = (step + wait, Some(grant.blocks));
        grant.effort = None;
        let facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("size_after", blocks as f64, "blocks"),
            Fact::number("error_before", before, ""),
            Fact::number("error", now, ""),
            Fact::number("tried_again_in", wait as f64, "intervals"),
        ];
        let summary = format!(
            "nothing helps {name}: its origin is asked for more than it can serve, and {} times the cache has not \
             changed that; it is given back",
            grant.blocks / blocks.max(1)
        );
        Some(Change::new(blocks.max(blocks_min), DecisionKind::NothingHelps, summary, facts))
    }

    /// Gives back what was granted beyond what the load needs, once what waited is worked off.
    pub(super) fn worked_off(&mut self, id: VolumeId, error: f64, scenes: &mut Scenes) -> Option<Change> {
        let grant = self.volumes[&id].grant.as_ref()?;
        // What it still misses while it finds its blocks it would miss with less, too.
        let kept_after = grant.kept_after.filter(|_| error <= 0.0 && grant.learning == 0)?;
        let ratio = self.model_ratio(id, kept_after, scenes);
        let volume = self.volumes.get_mut(&id)?;
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        grant.kept_after = None;
        let facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("size_after", kept_after as f64, "blocks"),
            Fact::number("error", error, ""),
        ];
        Some(Change {
            ratio,
            ..Change::new(
                kept_after,
                DecisionKind::Shrunk,
                format!("the cache of {name} shrinks: what waited at its origin is worked off"),
                facts,
            )
        })
    }
}

/// What waits before an origin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// Requests that wait now, and that waited some intervals ago.
    waiting: f64,
    waited: f64,
    /// Requests per second that arrive.
    asked: f64,
}

/// What an interval showed of growth against a flood.
struct Tried {
    /// The size in force.
    blocks: u64,
    /// The share of the requests that it answered.
    hits: f64,
    error: f64,
    /// It still fills.
    fills: bool,
}

impl Effort {
    fn begin(seen: &Tried) -> Effort {
        Effort { blocks: seen.blocks, hits: seen.hits, before: seen.error, now: seen.error, intervals: 0 }
    }

    /// The effort after another interval, and whether it was in vain.
    fn after(self, seen: &Tried) -> (Effort, bool) {
        let now = self.now + (seen.error - self.now) / VAIN_SPAN;
        // What made a difference is where the next attempt starts from.
        if now < VAIN_ERROR * self.before {
            return (Effort { before: now, now, ..Effort::begin(seen) }, false);
        }
        let is_tried =
            seen.blocks >= self.blocks.saturating_mul(VAIN_GROWTH) && self.intervals >= VAIN_INTERVALS;
        let helps = seen.hits - self.hits > VAIN_HITS;
        // What a size does is not seen before it is filled, however long that takes.
        let intervals = self.intervals + usize::from(!seen.fills);
        (Effort { before: self.before.max(now), now, intervals, ..self }, is_tried && !helps && !seen.fills)
    }
}

/// What is granted where a load needs `blocks` and more than it takes has to be served for a while.
pub(super) fn with_surplus(blocks: u64, share: f64) -> u64 {
    blocks + (blocks as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::windows::Windows;
    use forebay_units::Bytes;

    /// Whether an origin that says to be `busy` is flooded, where who is served is off by `error` and so much `waited` in the last intervals; when that will be over, if it falls.
    fn flooded(busy: f64, error: f64, is_closed: bool, waited: [f64; 3]) -> Option<Option<f64>> {
        let config = ControlConfig::default();
        let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        controller.register(VolumeSpec::any()).unwrap();
        let id = VolumeId(1);
        let volume = controller.volumes.get_mut(&id).unwrap();
        let sample = Sample {
            arrival_rate: 100.0,
            miss_rate: 100.0,
            outstanding: 64.0,
            backlogged: is_closed,
            ..Sample::default()
        };
        volume.history.extend(waited.map(|waiting| Sample { waiting, ..sample }));
        volume.grant = Some(Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0));
        let origin = volume.spec.origin;
        controller.busy.insert(origin, [busy].into());
        controller.flood(id, &[id], error, &mut Scenes::default()).map(|flood| flood.over_in)
    }

    #[test]
    fn a_flood_is_what_an_origin_that_is_busy_is_far_behind_with() {
        let stays = [50.0; 3];
        let by = |busy, error| flooded(busy, error, false, stays).is_some();
        assert_eq!([1.0, 1.01].map(|error| by(1.0, error)), [false, true]);
        assert_eq!([0.94, 0.95].map(|busy| by(busy, 5.0)), [false, true]);
        // What waits for so long waits for something, whatever the servers say.
        assert_eq!([10.0, 10.1].map(|error| by(0.1, error)), [false, true]);
    }

    #[test]
    fn latencies_of_a_closed_loop_follow_its_size_unless_they_are_very_far_off() {
        let by = |error| flooded(1.0, error, true, [50.0; 3]).is_some();
        assert_eq!([3.0, 4.0, 4.1].map(by), [false, false, true]);
        assert!(flooded(1.0, 3.0, false, [50.0; 3]).is_some());
    }

    #[test]
    fn how_long_a_flood_lasts_is_told_where_what_waits_falls() {
        // By 30 in each interval of a second, with 30 left.
        assert_eq!(flooded(1.0, 5.0, false, [90.0, 60.0, 30.0]), Some(Some(1.0)));
        // Of 100 that arrive .2 are noise.
        assert_eq!(flooded(1.0, 5.0, false, [30.3, 30.2, 30.0]), Some(None));
        assert_eq!(flooded(1.0, 5.0, false, [30.0, 30.0, 31.0]), Some(None));
    }

    /// The interval in which eight times the cache, with an error that stays as it is, is found to have been in vain.
    fn vain_after(hits: f64, fills: impl Fn(usize) -> bool) -> Option<usize> {
        let seen = |blocks, hits, fills| Tried { blocks, hits, error: 20.0, fills };
        let mut effort = Effort::begin(&seen(100, 0.0, false));
        (0..200).find(|&interval| {
            let (after, is_vain) = effort.after(&seen(800, hits, fills(interval)));
            effort = after;
            is_vain
        })
    }

    #[test]
    fn what_was_in_vain_is_given_back_and_tried_again_after_twice_as_long_each_time() {
        let config = ControlConfig::default();
        let retry = config.retry_after as u64;
        let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        controller.register(VolumeSpec::any()).unwrap();
        let id = VolumeId(1);
        let volume = controller.volumes.get_mut(&id).unwrap();
        volume.history.push_back(Sample { arrival_rate: 100.0, miss_rate: 100.0, ..Sample::default() });
        volume.grant = Some(Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0));
        let flood = Some(Flood { over_in: None, settled: true, sudden: false });
        controller.step = 1_000;
        let waited = [(); 8].map(|()| {
            // It goes from 100 to 800 blocks, and as much waits as before.
            let mut found = None;
            for blocks in [&[100][..], &[800; VAIN_INTERVALS]].concat() {
                assert!(found.is_none(), "it is known only at the end");
                controller.volumes.get_mut(&id).unwrap().grant.as_mut().unwrap().blocks = blocks;
                found = controller.in_vain(id, Some(20.0), flood);
            }
            let change = found.expect("in vain");
            assert_eq!((change.blocks, change.kind), (100, DecisionKind::NothingHelps));
            let grant = controller.volumes[&id].grant.as_ref().unwrap();
            assert_eq!(grant.tried, Some(800));
            grant.limited_until - 1_000
        });
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 32, 32].map(|times| times * retry));
        // A flood that is over has nothing to do with the next one.
        assert!(controller.in_vain(id, Some(20.0), None).is_none());
        let grant = controller.volumes[&id].grant.as_ref().unwrap();
        assert_eq!((grant.vain, grant.effort), (0, None));
    }

    #[test]
    fn a_cache_that_fills_is_not_judged() {
        // Thirty intervals are seen in intervals 0 to 29; of a cache that fills for a hundred first, in 100 to 129.
        assert_eq!(vain_after(0.1, |_| false), Some(VAIN_INTERVALS));
        assert_eq!(vain_after(0.1, |interval| interval < 100), Some(100 + VAIN_INTERVALS));
    }

    #[test]
    fn what_answers_more_of_the_requests_is_not_in_vain() {
        assert_eq!(vain_after(0.5, |_| false), None);
    }

    #[test]
    fn what_made_a_difference_is_where_the_next_attempt_starts_from() {
        let seen = |blocks, error| Tried { blocks, hits: 0.0, error, fills: false };
        let mut effort = Effort::begin(&seen(100, 20.0));
        // 20, 15, 11.25, 8.44: less than half.
        for blocks in [200, 400, 800] {
            effort = effort.after(&seen(blocks, 0.0)).0;
        }
        assert_eq!((effort.blocks, effort.intervals), (800, 0));
    }
}
