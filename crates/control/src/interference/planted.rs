//! Workloads with planted interference, to score a judge of it: what it finds is compared with what was planted.
//!
//! Not a model of devices: loads that wander, and latencies that rise with the load of the whole set by the formula of a queue. All of it is ours.

use super::{InterferenceRules, Victim, table};
use crate::windows::normal_quantile;
use forebay_workload::generator::unit;
use forebay_workload::statistics::{mean, variance};
use forebay_workload::{Random, exponential, random};

/// How loads go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Levels that last for some 4 to 16 intervals.
    Levels,
    /// A load, and next to nothing, for 20 intervals each on average.
    OnAndOff,
    /// Up and down as a sine, once in 12 to 72 intervals.
    Swing,
    /// From level to level along lines of 6 to 30 intervals.
    Slopes,
    /// One level until some time, a twentieth of it or twenty times as much since then.
    Once,
}

impl Course {
    /// All of them.
    pub const ALL: [Course; 5] =
        [Course::Levels, Course::OnAndOff, Course::Swing, Course::Slopes, Course::Once];

    /// For people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Course::Levels => "levels",
            Course::OnAndOff => "on and off",
            Course::Swing => "swing",
            Course::Slopes => "slopes",
            Course::Once => "one step",
        }
    }
}

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlantedSpec {
    /// At least 2.
    pub workloads: usize,
    /// Per workload; at least 4.
    pub intervals: usize,
    /// How all loads go on.
    pub course: Course,
    /// Standard deviation of the logarithm of latency about what the load explains.
    pub noise: f64,
    /// Part by which all loads rise and fall together over the whole time, as with the hour of the day.
    pub tide: f64,
    /// Whether a workload's requests wait for answers: it then asks for less where its latency is above its usual one.
    pub closed: bool,
}

/// Workloads in sets of 2 to 5.
#[derive(Clone, Debug)]
pub struct Planted {
    /// The set of each workload.
    pub set: Vec<usize>,
    /// Requests per second, by workload and interval.
    pub loads: Vec<Vec<f64>>,
    /// Seconds, by workload and interval.
    pub latencies: Vec<Vec<f64>>,
    /// `[victim][aggressor]`: the standard deviation of the logarithm of the victim's latency that the aggressor's changes of load make up.
    pub slowdown: Vec<Vec<f64>>,
}

impl Planted {
    /// Draws one; the same seed draws the same.
    pub fn new(spec: &PlantedSpec, seed: u64) -> Planted {
        let mut random = random(seed);
        let mut set = Vec::with_capacity(spec.workloads);
        for number in 0.. {
            let left = spec.workloads - set.len();
            let size = (2 + (unit(&mut random) * 4.0) as usize).min(left);
            // No workload is left alone at the end.
            let size = if left - size == 1 { if size > 2 { size - 1 } else { size + 1 } } else { size };
            set.extend(std::iter::repeat_n(number, size));
            if set.len() >= spec.workloads {
                break;
            }
        }
        let mut loads: Vec<Vec<f64>> = set.iter().map(|_| load(spec, &mut random)).collect();
        let mut latencies = vec![Vec::new(); set.len()];
        let mut slowdown = vec![vec![0.0; set.len()]; set.len()];
        for number in 0..=set.last().copied().unwrap_or(0) {
            let members: Vec<usize> = (0..set.len()).filter(|&member| set[member] == number).collect();
            let busy = 0.5 + 0.25 * unit(&mut random);
            let average: f64 = members.iter().filter_map(|&member| mean(&loads[member])).sum();
            let capacity = average / busy;
            let stretch = |sum: f64| -(1.0 - (sum / capacity).min(0.95)).ln();
            if spec.closed {
                let usual = stretch(average);
                let slow: Vec<f64> = (0..spec.intervals)
                    .map(|at| members.iter().map(|&member| loads[member][at]).sum())
                    .map(|sum| (stretch(sum) - usual).exp().max(1.0).sqrt())
                    .collect();
                for &member in &members {
                    loads[member].iter_mut().zip(&slow).for_each(|(load, slow)| *load /= slow);
                }
            }
            let sums: Vec<f64> =
                (0..spec.intervals).map(|at| members.iter().map(|&member| loads[member][at]).sum()).collect();
            for &aggressor in &members {
                // As if it were steady but for the tide, which is everybody's.
                let usual = mean(&loads[aggressor]).unwrap_or(0.0);
                let effect: Vec<f64> = (0..spec.intervals)
                    .map(|at| {
                        let steady = sums[at] - loads[aggressor][at] + usual * tide(spec, at);
                        stretch(sums[at]) - stretch(steady)
                    })
                    .collect();
                let deviation = variance(&effect).unwrap_or(0.0).sqrt();
                members
                    .iter()
                    .filter(|&&member| member != aggressor)
                    .for_each(|&victim| slowdown[victim][aggressor] = deviation);
            }
            for &member in &members {
                let base = 0.002 + 0.004 * unit(&mut random);
                latencies[member] = (sums.iter())
                    .map(|sum| base * (stretch(*sum) + spec.noise * normal(&mut random)).exp())
                    .collect();
            }
        }
        Planted { set, loads, latencies, slowdown }
    }

    /// Judges all pairs, and counts.
    pub fn score(&self, spec: &PlantedSpec, rules: &InterferenceRules) -> Score {
        let workloads: Vec<Victim<'_>> = (self.loads.iter().zip(&self.latencies))
            .map(|(load, latency)| Victim { load, latency })
            .collect();
        let table = table(&workloads, |_, _| false, rules);
        let mut score = Score::default();
        for victim in 0..self.set.len() {
            for aggressor in (0..self.set.len()).filter(|&aggressor| aggressor != victim) {
                let found = table.score(aggressor, victim) > 0.0;
                let planted = self.set[victim] == self.set[aggressor];
                let strong = planted && self.slowdown[victim][aggressor] >= 2.0 * spec.noise;
                score.found_true += u32::from(found && planted);
                score.found_false += u32::from(found && !planted);
                score.strong += u32::from(strong);
                score.strong_found += u32::from(strong && found);
            }
        }
        score
    }
}

/// How a judge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Pairs that were found and planted, however weak.
    pub found_true: u32,
    /// Pairs that were found and not planted.
    pub found_false: u32,
    /// Pairs whose planted slowdown is at least twice the noise.
    pub strong: u32,
    /// Those of them that were found.
    pub strong_found: u32,
}

impl Score {
    /// Part of what was found that was planted; `None` where nothing was found.
    pub fn precision(&self) -> Option<f64> {
        share(self.found_true, self.found_true + self.found_false)
    }

    /// Part of the strong pairs that was found; `None` where there are none.
    pub fn recall(&self) -> Option<f64> {
        share(self.strong_found, self.strong)
    }

    /// Both together.
    pub fn plus(&self, other: &Score) -> Score {
        Score {
            found_true: self.found_true + other.found_true,
            found_false: self.found_false + other.found_false,
            strong: self.strong + other.strong,
            strong_found: self.strong_found + other.strong_found,
        }
    }
}

fn share(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| f64::from(part) / f64::from(whole))
}

fn normal(random: &mut Random) -> f64 {
    normal_quantile(unit(random))
}

/// What a load is at an interval, but for its noise; asked of one interval after the other.
type Level = Box<dyn FnMut(usize, &mut Random) -> f64>;

/// A load of its course, with noise of its own, and the tide.
fn load(spec: &PlantedSpec, random: &mut Random) -> Vec<f64> {
    let scale = 100.0 + exponential(300.0, random);
    let lasts = 4.0 + 12.0 * unit(random);
    let any_level = move |random: &mut Random| scale * (0.5 * normal(random)).exp();
    let mut course: Level = match spec.course {
        Course::Levels => {
            let mut level = any_level(random);
            Box::new(move |_, random| {
                if unit(random) < 1.0 / lasts {
                    level = any_level(random);
                }
                level
            })
        }
        Course::OnAndOff => {
            let mut is_on = unit(random) < 0.5;
            Box::new(move |_, random| {
                is_on ^= unit(random) < 1.0 / 20.0;
                scale * if is_on { 2.0 } else { 0.02 }
            })
        }
        Course::Swing => {
            let period = 12.0 + 60.0 * unit(random);
            let phase = unit(random);
            let swing = move |at: usize| (std::f64::consts::TAU * (at as f64 / period + phase)).sin();
            Box::new(move |at, _| scale * (1.0 + 0.7 * swing(at)))
        }
        Course::Slopes => {
            let (mut from, mut to, mut began, mut until) = (0.0, any_level(random), 0, 0);
            Box::new(move |at, random| {
                if at >= until {
                    (from, to) = (to, any_level(random));
                    (began, until) = (at, at + 6 + (unit(random) * 25.0) as usize);
                }
                from + (to - from) * (at - began) as f64 / (until - began) as f64
            })
        }
        Course::Once => {
            let when = spec.intervals as f64 * (0.1 + 0.8 * unit(random));
            let (before, since) = if unit(random) < 0.5 { (0.1, 2.0) } else { (2.0, 0.1) };
            Box::new(move |at, _| scale * if (at as f64) < when { before } else { since })
        }
    };
    (0..spec.intervals)
        .map(|at| course(at, random) * (0.07 * normal(random)).exp() * tide(spec, at))
        .collect()
}

fn tide(spec: &PlantedSpec, at: usize) -> f64 {
    1.0 + spec.tide * (std::f64::consts::TAU * at as f64 / spec.intervals as f64).sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_neighbours_are_found() {
        let rules = InterferenceRules::default();
        for (course, noise, tide, closed) in [
            (Course::Levels, 0.02, 0.0, false),
            (Course::Levels, 0.05, 0.2, false),
            (Course::Levels, 0.05, 0.2, true),
            (Course::Levels, 0.1, 0.2, false),
            (Course::Levels, 0.2, 0.2, false),
            (Course::Levels, 0.2, 0.2, true),
            (Course::OnAndOff, 0.05, 0.0, false),
            (Course::OnAndOff, 0.2, 0.0, true),
            (Course::Swing, 0.1, 0.0, false),
            (Course::Slopes, 0.1, 0.0, false),
        ] {
            let spec = PlantedSpec { workloads: 50, intervals: 180, course, noise, tide, closed };
            let mut score = Score::default();
            for seed in 101..104 {
                score = score.plus(&Planted::new(&spec, seed).score(&spec, &rules));
            }
            println!(
                "{course:?}, noise {noise}, tide {tide}, closed {closed}: precision {:?}, recall {:?} of {} strong pairs",
                score.precision(),
                score.recall(),
                score.strong
            );
            // Where clients wait and latencies are that noisy nobody is slowed down by twice the noise.
            let good = |share: Option<f64>| share.is_none_or(|share| share >= 0.95);
            assert!(score.precision().is_some(), "{course:?}, noise {noise}: {score:?}");
            assert!(good(score.precision()) && good(score.recall()), "{course:?}, noise {noise}: {score:?}");
        }
    }

    #[test]
    fn where_there_is_nothing_to_find_nothing_is_scored() {
        let spec = PlantedSpec {
            workloads: 50,
            intervals: 180,
            course: Course::Levels,
            noise: 2.0,
            tide: 0.0,
            closed: false,
        };
        let score = Planted::new(&spec, 1).score(&spec, &InterferenceRules::default());
        assert_eq!(score.strong, 0);
        assert_eq!(score.recall(), None);
        assert_eq!(Score::default().precision(), None);
    }

    #[test]
    fn sets_have_two_to_five_members_and_a_seed_repeats() {
        for seed in 1..40 {
            let course = Course::ALL[seed as usize % Course::ALL.len()];
            let spec =
                PlantedSpec { workloads: 50, intervals: 40, course, noise: 0.1, tide: 0.1, closed: true };
            let planted = Planted::new(&spec, seed);
            assert_eq!(planted.set.len(), 50);
            for number in 0..=planted.set[49] {
                let members = planted.set.iter().filter(|&&set| set == number).count();
                assert!((2..=5).contains(&members), "seed {seed}: {members} in set {number}");
            }
            assert_eq!(planted.latencies, Planted::new(&spec, seed).latencies);
        }
    }
}
