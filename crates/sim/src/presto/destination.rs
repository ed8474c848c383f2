//! The node that takes over: cold, prewarmed while it serves, and measured.

use super::load::{Access, Load};
use super::objects::{HM1_BYTES, HM3_BYTES, Object};
use super::pools::{Entry, Place, Pools};
use forebay_control::prewarm::{self as neighbours, Chance, Neighbours, Outlook, RateClass};
use forebay_units::mix64;
use std::collections::VecDeque;
use std::sync::Arc;

/// How to prewarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loading {
    /// Bytes that may be loaded at all.
    pub limit: u64,
    /// Bytes per second; the first second's are loaded at the failure itself. `None`: all at once.
    pub rate: Option<u64>,
    /// Where objects enter.
    pub entry: Entry,
}

/// What the node saw in each second after the failure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Accesses: each looks up two objects.
    pub accesses: u32,
    /// HM1 objects found.
    pub hm1: u32,
    /// HM3 objects found.
    pub hm3: u32,
    /// Accesses both objects of which were found.
    pub both: u32,
}

/// A run of the node.
#[derive(Clone, Debug)]
pub struct Run {
    /// Each second after the failure.
    pub seconds: Vec<Second>,
    /// Bytes loaded by prewarming.
    pub prewarmed_bytes: u64,
    /// Objects loaded by prewarming.
    pub prewarmed: u32,
    /// Bytes fetched because of misses.
    pub missed_bytes: u64,
    /// Seconds after the failure in which the last object was loaded; 0 is the failure itself.
    pub prewarm_seconds: u32,
}

/// How to load what follows on the accesses that clients make while the node warms.
#[derive(Clone, Debug)]
pub struct Following {
    /// What each volume's accesses taught.
    pub neighbours: Vec<Neighbours>,
    /// Bytes of the limit that are for the order alone, before accesses were followed.
    pub order_bytes: u64,
    /// Of each volume's HM1 and HM3 objects, the chance from which on they are loaded; a third of the extents each.
    pub outlooks: [Vec<[Outlook; 2]>; 3],
    /// How often each extent is visited.
    pub rates: Arc<[RateClass]>,
}

/// Milliseconds from an access to the moment when what follows on it is loaded: two fetches, one after the other (ours).
const FOLLOW_MILLIS: u32 = 2;
/// Chances below this are noise (ours).
pub(super) const CHANCE_MIN: f32 = 0.02;
/// The share of the rate that is kept for following while the order is being loaded (ours).
const FOLLOW_RATE_SHARE: f64 = 0.15;

/// A node that serves, is prewarmed, and is measured.
struct Node<'a> {
    load: &'a Load,
    pools: Pools,
    how: Loading,
    run: Run,
    /// What is left of this second's rate.
    budget: u64,
    /// What was asked for and is not there yet.
    on_the_way: VecDeque<(u32, Object)>,
    asked: Vec<bool>,
}

impl Node<'_> {
    /// Whether limit and rate allow to ask for `bytes`, `kept` bytes of the second's rate aside; counts them if so.
    fn pays(&mut self, bytes: u64, kept: u64) -> bool {
        let pays = self.run.prewarmed_bytes + bytes <= self.how.limit && bytes + kept <= self.budget;
        if pays {
            self.budget -= bytes;
            self.run.prewarmed_bytes += bytes;
        }
        pays
    }

    fn arrive(&mut self, object: Object, second: u32) -> bool {
        let fits = self.pools.prewarm(object, self.how.entry);
        if fits {
            self.run.prewarmed += 1;
            self.run.prewarm_seconds = second;
        }
        fits
    }

    /// Lets in what has arrived by now.
    fn arrivals(&mut self, at_millis: u32, second: u32) {
        while let Some((ready, object)) = self.on_the_way.front().copied()
            && ready <= at_millis
        {
            self.on_the_way.pop_front();
            self.asked[object.index()] = false;
            if self.pools.place(object) == Place::Out {
                self.arrive(object, second);
            }
        }
    }

    fn follow(&mut self, access: &Access, second: u32, following: &mut Following, chances: &mut Vec<Chance>) {
        let place = neighbours::Place { zone: u64::from(access.extent), part: access.part };
        let volume = usize::from(access.volume);
        following.neighbours[volume].follow(place, access.at_millis, CHANCE_MIN, chances);
        let extents = self.load.objects.volume(volume);
        for chance in chances.iter() {
            let Some(extent) = u32::try_from(chance.zone).ok().filter(|extent| extents.contains(extent))
            else {
                continue;
            };
            let rate = following.rates[extent as usize];
            let shade = (mix64(extent.into()) % 3) as usize;
            let pair = [self.load.objects.hm1(extent), self.load.objects.hm3(extent)];
            for (object, outlook) in pair.into_iter().zip(&following.outlooks[shade][volume]) {
                if chance.chance >= outlook.bar(second as usize, rate)
                    && self.pools.place(object) == Place::Out
                    && !self.asked[object.index()]
                    && self.pays(self.load.objects.bytes(object), 0)
                {
                    self.asked[object.index()] = true;
                    self.on_the_way.push_back((access.at_millis + FOLLOW_MILLIS, object));
                }
            }
        }
    }

    fn look_up(&mut self, access: &Access, second: u32) {
        let hm1 = self.pools.look_up(self.load.objects.hm1(access.extent));
        let hm3 = self.pools.look_up(self.load.objects.hm3(access.extent));
        let row = &mut self.run.seconds[second as usize];
        row.accesses += 1;
        row.hm1 += u32::from(hm1);
        row.hm3 += u32::from(hm3);
        row.both += u32::from(hm1 && hm3);
        self.run.missed_bytes += u64::from(!hm1) * HM1_BYTES + u64::from(!hm3) * HM3_BYTES;
    }
}

/// Serves the accesses from `failure` on, for `seconds`, with a cache that starts as `pools`, and prewarms from `order`, the most
/// important first, and if told so by following clients.
///
/// Objects that are cached already are skipped, and cost nothing. A second's rate that an object does not fit into is lost, as in the
/// original. Loading from the order ends when the order, its part of the limit or the room does.
pub fn serve(
    load: &Load,
    failure: usize,
    seconds: u32,
    pools: Pools,
    order: &[Object],
    how: Loading,
    mut following: Option<Following>,
) -> Run {
    let start = load.accesses.get(failure).map_or(0, |access| access.at_millis / 1_000);
    let run = Run {
        seconds: vec![Second::default(); seconds as usize],
        prewarmed_bytes: 0,
        prewarmed: 0,
        missed_bytes: 0,
        prewarm_seconds: 0,
    };
    let asked = vec![false; if following.is_some() { load.objects.count() } else { 0 }];
    let mut node = Node { load, pools, how, run, budget: 0, on_the_way: VecDeque::new(), asked };
    if how.entry == Entry::OwnPartition {
        node.pools.open_own_partition(how.limit);
    }
    let rate = how.rate.unwrap_or(u64::MAX);
    let kept =
        if following.is_some() && how.rate.is_some() { (rate as f64 * FOLLOW_RATE_SHARE) as u64 } else { 0 };
    let mut order_left =
        following.as_ref().map_or(how.limit, |following| following.order_bytes.min(how.limit));
    let mut waiting = order.iter().copied();
    let mut next = waiting.next();
    let mut loaded_until = 0;
    let mut chances = Vec::new();
    for access in &load.accesses[failure..] {
        let second = access.at_millis / 1_000 - start;
        if second >= seconds {
            break;
        }
        while loaded_until <= second {
            node.budget = rate;
            while let Some(object) = next {
                if node.pools.place(object) == Place::Out {
                    let bytes = load.objects.bytes(object);
                    if bytes > order_left || node.run.prewarmed_bytes + bytes > how.limit {
                        next = None;
                        break;
                    }
                    if !node.pays(bytes, kept) {
                        break;
                    }
                    order_left -= bytes;
                    if !node.arrive(object, loaded_until) {
                        node.run.prewarmed_bytes -= bytes;
                        next = None;
                        break;
                    }
                }
                next = waiting.next();
            }
            loaded_until += 1;
        }
        if next.is_none() && following.is_none() {
            node.pools.close_own_partition();
        }
        node.arrivals(access.at_millis, second);
        node.look_up(access, second);
        if let Some(following) = &mut following {
            node.follow(access, second, following, &mut chances);
        }
    }
    node.run
}

/// What an access counts by its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanWeights {
    /// As in the mean over seconds of the ratio since the failure: what comes early is in more of the averaged ratios.
    Cumulative,
    /// As in the ratio of the whole span: all accesses count the same.
    Window,
}

impl SpanWeights {
    /// For each of the first `seconds`, with accesses spread evenly; 1 on average.
    ///
    /// Cumulative: an access of second s is in the ratios of seconds s to T-1, and one of n x (k + 1) accesses in that of second k: the
    /// sum of 1 / (k + 1) over k from s to T-1.
    pub fn of_seconds(self, seconds: u32) -> Vec<f64> {
        let mut weights = vec![1.0; seconds as usize];
        if self == SpanWeights::Cumulative {
            let mut sum = 0.0;
            for second in (0..seconds as usize).rev() {
                sum += 1.0 / (second + 1) as f64;
                weights[second] = sum;
            }
        }
        weights
    }
}
