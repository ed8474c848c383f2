//! Orders of loading, from what a node that failed left.

use super::load::Looks;
use super::node::{Snapshot, Told};
use super::pace::pace_order;
use forebay_control::prewarm::{HORIZON_S, LoadScore, ScoreTable, VisitRules, Visits, load_order};
use forebay_units::mix64;

/// How the things that snapshots name are ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// By the daemon's own score: the smaller number first where it is equal.
    UsedAgain,
    /// The same, but equal ones by chance, 256 blocks staying together: how much hangs on that rule.
    ByChance,
    /// By rates of visits, or by something like them.
    Rated(Rates),
    /// By what such rates make worth while at the pace.
    Paced(Rates),
    /// Knowing which are asked for next.
    Next,
}

/// Where rates come from. Half lives are in snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rates {
    /// The daemon's score, but equal ones by visits since they were cached, on a scale of logarithms.
    Ties,
    /// Visits since they were cached, on a scale of logarithms.
    SinceCached,
    /// The daemon's score, and once more in snapshots since whose predecessor a thing was visited: one bit more.
    Bit,
    /// Visits since the snapshot before, each snapshot counting the same.
    Since,
    /// All visits of zones of so many blocks, whether they were cached or not, as `Visits` reckons rates.
    Zones(u64),
}

impl Order {
    /// What is compared, today's first.
    pub(crate) const ALL: [Order; 12] = [
        Order::UsedAgain,
        Order::ByChance,
        Order::Rated(Rates::Ties),
        Order::Rated(Rates::SinceCached),
        Order::Rated(Rates::Bit),
        Order::Rated(Rates::Since),
        Order::Rated(Rates::Zones(1)),
        Order::Rated(Rates::Zones(16)),
        Order::Rated(Rates::Zones(64)),
        Order::Rated(Rates::Zones(256)),
        Order::Paced(Rates::Zones(1)),
        Order::Next,
    ];

    pub(crate) fn name(self) -> String {
        let rates = |rates| match rates {
            Rates::Ties => "used-again, ties by visits since cached".to_owned(),
            Rates::SinceCached => "log of visits since cached".to_owned(),
            Rates::Bit => "used-again and visited since the last".to_owned(),
            Rates::Since => "visits since the last".to_owned(),
            Rates::Zones(blocks) => format!("all visits, zones of {blocks}"),
        };
        match self {
            Order::UsedAgain => "used-again".to_owned(),
            Order::ByChance => "used-again, ties by chance".to_owned(),
            Order::Rated(from) => rates(from),
            Order::Paced(from) => format!("{}, by pace", rates(from)),
            Order::Next => "knows what is next".to_owned(),
        }
    }
}

/// What is known at a failure.
pub(crate) struct Known<'a> {
    looks: &'a Looks,
    failure: usize,
    snapshots: &'a [Snapshot],
    /// What snapshots name, ascending.
    things: Vec<u32>,
    /// What each snapshot says of each of them.
    told: Vec<Vec<Option<Told>>>,
}

/// A score or a rate for each of what is known.
pub(crate) type Scored = Vec<(f64, u64)>;

impl<'a> Known<'a> {
    pub(crate) fn new(looks: &'a Looks, failure: usize, snapshots: &'a [Snapshot]) -> Known<'a> {
        let named = snapshots.iter().flat_map(|snapshot| snapshot.told.iter().map(|told| told.thing));
        let mut things: Vec<u32> = named.collect();
        things.sort_unstable();
        things.dedup();
        let dense = |snapshot: &Snapshot| {
            let mut dense = vec![None; things.len()];
            for told in &snapshot.told {
                dense[things.binary_search(&told.thing).expect("it is named")] = Some(*told);
            }
            dense
        };
        let told = snapshots.iter().map(dense).collect();
        Known { looks, failure, snapshots, things, told }
    }

    pub(crate) fn count(&self) -> usize {
        self.things.len()
    }

    /// What `order` says of each.
    pub(crate) fn scored(&self, order: Order) -> Scored {
        let scores: Vec<f64> = match order {
            Order::UsedAgain | Order::ByChance => self.used_again(),
            Order::Rated(rates) | Order::Paced(rates) => self.rates(rates),
            Order::Next => self.next(),
        };
        let mut scored: Scored =
            scores.into_iter().zip(self.things.iter().map(|thing| u64::from(*thing))).collect();
        if order == Order::ByChance {
            let zone = |thing: u64| mix64(self.looks.places[thing as usize] / 256);
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(zone(a.1).cmp(&zone(b.1))).then(a.1.cmp(&b.1)));
            by_place_in_order(&mut scored);
        }
        scored
    }

    /// The best `most` of `scored` by `order`, the best first, one every so many seconds: in the daemon's bands, or strictly; and how many reads that takes where
    /// neighbours are read together.
    pub(crate) fn order(
        &self,
        order: Order,
        scored: &Scored,
        most: usize,
        seconds_each: f64,
        strict: bool,
    ) -> (Vec<u32>, usize) {
        let mut scored = scored.clone();
        if matches!(order, Order::Paced(_)) {
            let paced = pace_order(scored, seconds_each, HORIZON_S);
            scored = paced.into_iter().map(|thing| (0.0, thing)).collect();
            by_place_in_order(&mut scored);
        }
        if strict {
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let things: Vec<u32> = scored.iter().take(most).map(|(_, thing)| *thing as u32).collect();
            let reads = things.len();
            return (things, reads);
        }
        let ranges =
            load_order(scored.into_iter().map(|(score, thing)| (score as f32, thing)).collect(), most as u64);
        let things: Vec<u32> = ranges.iter().flat_map(|range| range.first as u32..range.end as u32).collect();
        // Numbers that follow on one another need not lie together.
        let lies_behind = |pair: &&[u32]| {
            let [before, after] = [pair[0], pair[1]].map(|thing| self.looks.places[thing as usize]);
            before + 1 == after
        };
        let reads = things.len() - things.windows(2).filter(lies_behind).count();
        (things, reads)
    }

    /// The daemon's score.
    fn used_again(&self) -> Vec<f64> {
        let score = LoadScore::UsedAgain;
        let mut table = ScoreTable::new(score.heuristic(), self.things.len());
        for told in &self.told {
            let words = |has: &dyn Fn(&Told) -> bool| {
                let mut words = vec![0u64; told.len().div_ceil(64)];
                let with = told.iter().enumerate().filter(|(_, told)| told.as_ref().is_some_and(has));
                with.for_each(|(at, _)| words[at / 64] |= 1 << (at % 64));
                words
            };
            table.add_words(&words(&|_| true));
            table.add_words(&words(&|told| told.used_again));
        }
        (0..self.things.len()).map(|at| f64::from(table.score(at))).collect()
    }

    fn rates(&self, rates: Rates) -> Vec<f64> {
        let again = |told: &Told| 1.0 + f64::from(u8::from(told.used_again));
        let log = |told: &Told| (f64::from(told.visits_since_cached) + 1.0).log2();
        match rates {
            // Small enough to decide among equal ones, and among those that differ by the oldest snapshot at most.
            Rates::Ties => self.decayed(6.0, &|told| again(told) + 1e-3 * log(told)),
            Rates::SinceCached => self.decayed(6.0, &log),
            Rates::Bit => self.decayed(6.0, &|told| again(told) + f64::from(u8::from(told.visits_since > 0))),
            Rates::Since => {
                let counts = self.decayed(f64::INFINITY, &|told| f64::from(told.visits_since));
                let span: f64 = self.snapshots.iter().map(|snapshot| snapshot.span_s).sum();
                counts.into_iter().map(|count| count / span.max(1.0)).collect()
            }
            Rates::Zones(blocks) => self.zone_rates(blocks),
        }
    }

    /// The sum of what all snapshots say, each counting half as much as the one so many snapshots after it.
    fn decayed(&self, half_life: f64, of: &dyn Fn(&Told) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.things.len()];
        for (age, told) in self.told.iter().rev().enumerate() {
            let weight = (-(age as f64) / half_life).exp2();
            sums.iter_mut().zip(told).for_each(|(sum, told)| *sum += weight * told.as_ref().map_or(0.0, of));
        }
        sums
    }

    /// From all look-ups before the failure, whatever was cached.
    fn zone_rates(&self, blocks: u64) -> Vec<f64> {
        let before = &self.looks.looks[..self.failure];
        let number = |thing: u32| self.looks.places[thing as usize] / blocks;
        let mut zones: Vec<u64> = before.iter().map(|look| number(look.thing)).collect();
        zones.sort_unstable();
        zones.dedup();
        let zone = |thing: u32| zones.binary_search(&number(thing)).expect("it was looked up");
        let mut visits = Visits::new(zones.len(), VisitRules::default());
        for look in before {
            visits.access(zone(look.thing), look.at_millis);
        }
        let rates = visits.rates(0..zones.len(), before.last().map_or(0, |look| look.at_millis));
        self.things.iter().map(|thing| rates[zone(*thing)]).collect()
    }

    /// What comes sooner after the failure is better; what does not within the horizon is worth nothing.
    fn next(&self) -> Vec<f64> {
        let after = &self.looks.looks[self.failure..];
        let start = after.first().map_or(0, |look| look.at_millis);
        let mut scores = vec![0.0; self.looks.places.len()];
        let within = |look: &super::load::Look| f64::from(look.at_millis - start) < HORIZON_S * 1e3;
        for (place, look) in after.iter().enumerate().take_while(|(_, look)| within(look)) {
            let score = &mut scores[look.thing as usize];
            if *score == 0.0 {
                *score = 1.0 - place as f64 / after.len() as f64;
            }
        }
        self.things.iter().map(|thing| scores[*thing as usize]).collect()
    }
}

/// Scores that keep things in the order in which they stand.
fn by_place_in_order(scored: &mut Scored) {
    let last = scored.len() as f64;
    scored.iter_mut().enumerate().for_each(|(place, (score, _))| *score = last - place as f64);
}
