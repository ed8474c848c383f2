//! Where a workload goes on from where it is: the chance that a zone is visited soon, because one beside it was just accessed.
//!
//! Clusters of accesses (sequential, strided, or a scan through a file) are over within a second, so nothing that was cached before a
//! failure tells where they go on. Their *habits* last: for each distance, how often a visit so far away followed an access within two
//! seconds, by how long the cluster already was and by where in its zone the access lay. What a volume's accesses taught before a failure
//! says after it what to load next to each access. Ours.

use std::collections::VecDeque;

/// Zones to each side that are learnt.
const REACH: i64 = 48;
const DISTANCES: usize = 2 * REACH as usize + 1;
/// Parts of a zone that are told apart.
const PARTS: usize = 16;
/// Lengths of a cluster that are told apart: the first of each class.
const AGES: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26];
/// Accesses that are remembered.
const RECENT_MAX: usize = 40;
/// Milliseconds within which a visit follows an access.
const SOON_MILLIS: u32 = 2_000;
/// Zones within which an access continues the cluster of one of the last four.
const SAME_CLUSTER: u64 = 6;
/// Accesses of a class below which the volume's average is believed instead.
const ACCESSES_MIN: u32 = 200;

/// A place in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which zone.
    pub zone: u64,
    /// Which 256th of the zone.
    pub part: u8,
}

/// A zone, and the chance that it is visited within two seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// Which zone.
    pub zone: u64,
    /// 0 to 1.
    pub chance: f32,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    zone: u64,
    at_millis: u32,
    age: u32,
    class: u16,
}

/// What follows on an access with at least some chance.
#[derive(Clone, Debug)]
struct Told {
    least: f32,
    /// By class, distances and their chances.
    followers: Vec<Vec<(i8, f32)>>,
}

/// What one volume's accesses taught. 100 KiB.
#[derive(Clone, Debug)]
pub struct Neighbours {
    recent: VecDeque<Recent>,
    /// By class and distance.
    followed: Vec<u32>,
    /// By class.
    accesses: Vec<u32>,
    /// What was made of that for [`Neighbours::follow`]; nothing after learning.
    told: Option<Told>,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours::new()
    }
}

impl Neighbours {
    /// Nothing learnt.
    pub fn new() -> Neighbours {
        Neighbours {
            recent: VecDeque::with_capacity(RECENT_MAX),
            followed: vec![0; AGES.len() * PARTS * DISTANCES],
            accesses: vec![0; AGES.len() * PARTS],
            told: None,
        }
    }

    /// Notes where an access is, and returns its class. `O(1)`.
    fn step(&mut self, place: Place, at_millis: u32) -> u16 {
        let age = self
            .recent
            .iter()
            .rev()
            .take(4)
            .find(|before| {
                at_millis.saturating_sub(before.at_millis) < 1_000
                    && before.zone.abs_diff(place.zone) <= SAME_CLUSTER
            })
            .map_or(0, |before| before.age + 1);
        let class = AGES.partition_point(|first| *first <= age) - 1;
        let class = (class * PARTS + usize::from(place.part) * PARTS / 256) as u16;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent { zone: place.zone, at_millis, age, class });
        class
    }

    /// Learns from an access. `visit` says whether its zone was not accessed for a while.
    pub fn learn(&mut self, place: Place, at_millis: u32, visit: bool) {
        self.told = None;
        if visit {
            for before in &self.recent {
                let distance = place.zone.wrapping_sub(before.zone) as i64;
                if at_millis.saturating_sub(before.at_millis) < SOON_MILLIS && distance.abs() <= REACH {
                    self.followed[usize::from(before.class) * DISTANCES + (distance + REACH) as usize] += 1;
                }
            }
        }
        let class = self.step(place, at_millis);
        self.accesses[usize::from(class)] += 1;
    }

    /// Forgets where the workload was, but not its habits.
    pub fn forget_place(&mut self) {
        self.recent.clear();
    }

    /// Follows an access, without learning, and gives the zones whose chance is at least `least`, in order of their distance from the
    /// volume's start. Zones may lie beyond the volume's end.
    pub fn follow(&mut self, place: Place, at_millis: u32, least: f32, chances: &mut Vec<Chance>) {
        let class = usize::from(self.step(place, at_millis));
        if self.told.as_ref().is_none_or(|told| told.least != least) {
            self.told = Some(self.tell(least));
        }
        chances.clear();
        if let Some(told) = &self.told {
            chances.extend(told.followers[class].iter().filter_map(|(distance, chance)| {
                let zone = place.zone.checked_add_signed(i64::from(*distance))?;
                Some(Chance { zone, chance: *chance })
            }));
        }
    }

    /// What follows on an access of each class, or on any where the class is not known well. `O(classes x distances)`.
    fn tell(&self, least: f32) -> Told {
        let accesses = self.accesses.iter().sum::<u32>().max(ACCESSES_MIN) as f32;
        let average = |distance: usize| {
            self.followed.iter().skip(distance).step_by(DISTANCES).sum::<u32>() as f32 / accesses
        };
        let averages: Vec<f32> = (0..DISTANCES).map(average).collect();
        let of_class = |class: usize| {
            let chance = |distance: usize| match self.accesses[class] >= ACCESSES_MIN {
                true => self.of_known(class, distance),
                false => averages[distance],
            };
            let told = (0..DISTANCES).map(|distance| ((distance as i64 - REACH) as i8, chance(distance)));
            told.filter(|(_, chance)| *chance >= least).collect()
        };
        Told { least, followers: (0..self.accesses.len()).map(of_class).collect() }
    }

    fn of_known(&self, class: usize, distance: usize) -> f32 {
        self.followed[class * DISTANCES + distance] as f32 / self.accesses[class] as f32
    }

    /// What was learnt so far says which zones follow on the last access that was learnt, or nothing where its class is not known well. As [`Neighbours::follow`].
    pub fn foretell(&self, least: f32, chances: &mut Vec<Chance>) {
        chances.clear();
        let known = |last: &&Recent| self.accesses[usize::from(last.class)] >= ACCESSES_MIN;
        let Some(last) = self.recent.back().filter(known) else { return };
        for distance in 0..DISTANCES {
            let chance = self.of_known(usize::from(last.class), distance);
            if chance >= least
                && let Some(zone) = last.zone.checked_add_signed(distance as i64 - REACH)
            {
                chances.push(Chance { zone, chance });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_walks_forward_is_followed_forward_and_no_longer_than_it_lasts() {
        let mut neighbours = Neighbours::new();
        let mut at = 0;
        // Clusters of four accesses, each two zones behind the one before, then elsewhere.
        for cluster in 0..1_000u64 {
            for step in 0..4 {
                neighbours.learn(Place { zone: cluster * 1_000 + 2 * step, part: 128 }, at, true);
                at += 100;
            }
            at += 5_000;
        }
        let mut chances = Vec::new();
        let zones = |chances: &[Chance]| chances.iter().map(|chance| chance.zone).collect::<Vec<_>>();
        neighbours.follow(Place { zone: 77, part: 128 }, at, 0.5, &mut chances);
        assert_eq!(zones(&chances), [79, 81, 83]);
        assert!(chances.iter().all(|chance| chance.chance > 0.99));
        neighbours.follow(Place { zone: 79, part: 128 }, at + 100, 0.5, &mut chances);
        assert_eq!(zones(&chances), [81, 83], "the cluster is two long");
        // Elsewhere, at the volume's start: nothing lies before it.
        neighbours.follow(Place { zone: 0, part: 128 }, at + 5_000, 0.0, &mut chances);
        assert_eq!(chances.first().map(|chance| chance.zone), Some(0));
    }

    #[test]
    fn single_accesses_have_no_neighbours() {
        let mut neighbours = Neighbours::new();
        for access in 0..2_000u32 {
            neighbours.learn(Place { zone: u64::from(access) * 7_919 % 100_003, part: 0 }, access * 50, true);
        }
        let mut chances = Vec::new();
        neighbours.follow(Place { zone: 5, part: 0 }, 200_000, 0.05, &mut chances);
        assert!(chances.is_empty(), "{chances:?}");
        // Nothing learnt, nothing said.
        Neighbours::new().follow(Place { zone: 5, part: 0 }, 0, 0.001, &mut chances);
        assert!(chances.is_empty());
    }
}
