//! A step: the one change of a history, at the same time in a neighbour's load and in a victim's latency.
//!
//! Correlation by rank is there so that one pair of outliers proves nothing; so it says nothing either of a peak that began once, while what came after it is noise, or the
//! competition of both for an origin that is full. A step is believed in its place where it is beyond mistaking: much larger than all other changes of *both* series, at
//! once, and lasting. It is *not* a change point detector: a series with two steps has none. All of it is ours.

use super::Victim;
use forebay_workload::statistics::{differences, mean};

/// Intervals on each side by which levels are told, beside the one next to the change. Behind it fewer will do, down to one: a violation is found
/// three intervals after what caused it, and is to be answered then.
const SIDE: usize = 3;
/// By how much the step of a neighbour's load and of a victim's latency is larger than every other change of the same series.
const DOMINANT: f64 = 2.0;
/// The same of what only has to go along.
const LARGEST: f64 = 1.0;
/// The least change of load and latency, as a share of what was before: where all else is constant the least change would be the one change.
const CHANGE_MIN: f64 = 0.1;
/// The share of a step that comes from one interval to the next.
const AT_ONCE: f64 = 0.5;

/// What a step is told by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Intervals since then, in the neighbour's load.
    pub ago: usize,
    /// Intervals by which the victim's latency followed.
    pub lag: usize,
    /// The neighbour's mean load before it, in the unit of its load; 0 if it was idle.
    pub load_before: f64,
    /// The same since; 0 if it is idle.
    pub load_after: f64,
    /// The victim's latency after it over that before: above 1 where the load rose, below where it fell.
    pub latency_ratio: f64,
    /// The share of all changes of the victim's latency that it is, squared, in `0.0..=1.0`.
    pub score: f64,
}

/// A lasting change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    /// The first interval behind it.
    at: usize,
    by: f64,
    /// Its share of all changes, squared.
    share: f64,
}

/// The lasting change of a series that is `dominant` times as large as every other change, if it has one. `O(n)`.
fn one_change(series: &[f64], dominant: f64) -> Option<Change> {
    let changes = differences(series);
    let (before, largest) =
        changes.iter().enumerate().max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))?;
    let at = before + 1;
    // What happens within an interval shows in two changes: the intervals next to it tell no level.
    let low = series.get(at.checked_sub(1 + SIDE)?..at - 1)?;
    let high = series.get(at + 1..series.len().min(at + 1 + SIDE)).filter(|high| !high.is_empty())?;
    let by = mean(high)? - mean(low)?;
    let others = changes.iter().enumerate().filter(|(place, _)| place.abs_diff(before) > 1);
    let rest = others.map(|(_, change)| change.abs()).fold(0.0, f64::max);
    let whole: f64 = changes.iter().map(|change| change * change).sum();
    let at_once = largest.signum() == by.signum() && largest.abs() >= AT_ONCE * by.abs();
    (by != 0.0 && by.abs() >= dominant * rest && at_once).then(|| Change {
        at,
        by,
        share: largest * largest / whole,
    })
}

/// The step that `load`'s and the victim's latency have in common, at most `lag_max` intervals apart; none where the victim's own load took the same one, which is then the cause. Where it is not
/// known that both share an origin, `latency` is the neighbour's, which has to take it as well. `O(n)`.
pub(super) fn step(
    load: &[f64],
    latency: Option<&[f64]>,
    victim: Victim<'_>,
    lag_max: usize,
) -> Option<Step> {
    let logarithms =
        |latency: &[f64]| -> Vec<f64> { latency.iter().map(|latency| latency.max(1e-9).ln()).collect() };
    let cause = one_change(load, DOMINANT)?;
    let effect = one_change(&logarithms(victim.latency), DOMINANT)?;
    let follows = |change: Change| {
        let is_in_time = (cause.at..=cause.at + lag_max).contains(&change.at);
        is_in_time && change.by.signum() == cause.by.signum()
    };
    let goes_along = |series: &[f64]| one_change(series, LARGEST).is_some_and(follows);
    let of_itself = goes_along(victim.load);
    let together = latency.is_none_or(|latency| goes_along(&logarithms(latency)));
    let (load_before, load_after) = (mean(&load[..cause.at])?, mean(&load[cause.at..])?);
    let latency_ratio = effect.by.exp();
    let is_large = (load_after - load_before).abs() >= CHANGE_MIN * load_before
        && (latency_ratio - 1.0).abs() >= CHANGE_MIN;
    (follows(effect) && together && !of_itself && is_large).then(|| Step {
        ago: load.len() - cause.at,
        lag: effect.at - cause.at,
        load_before,
        load_after,
        latency_ratio,
        score: effect.share,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `before` for ten intervals and `after` for ten, both swaying by a hundredth.
    fn stepped(before: f64, after: f64) -> Vec<f64> {
        (0..20).map(|at| (if at < 10 { before } else { after }) * (1.0 + 0.01 * f64::from(at % 2))).collect()
    }

    #[test]
    fn one_step_of_both_at_once_is_believed() {
        let (load, latency, own) = (stepped(100.0, 900.0), stepped(0.010, 0.015), stepped(500.0, 400.0));
        let victim = Victim { load: &own, latency: &latency };
        let found = step(&load, None, victim, 1).expect("a step");
        assert_eq!((found.ago, found.lag), (10, 0));
        // Means of 100, 101, ... and of 900, 909, ...; ln 1.5 from the means of .0101, .01, .0101 and .01515, .015, .01515.
        assert!((found.load_before - 100.5).abs() < 1e-9 && (found.load_after - 904.5).abs() < 1e-9);
        assert!((found.latency_ratio - 1.5).abs() < 0.01, "{found:?}");
        // One change of ln(.015 / .0101) = .395 among 18 of .00995: .1563 / (.1563 + 18 x .000099) = .989.
        assert!((found.score - 0.989).abs() < 0.001, "{found:?}");
        // Down as well as up; not in opposite ways; an interval later, but not two.
        let [up, down] = [stepped(0.010, 0.015), stepped(0.015, 0.010)];
        let falls = stepped(900.0, 100.0);
        assert!(step(&falls, None, Victim { load: &[500.0; 20], latency: &down }, 1).is_some());
        assert!(step(&falls, None, Victim { load: &[500.0; 20], latency: &up }, 1).is_none());
        for (late, is_found) in [(1, true), (2, false)] {
            let mut latency = latency.clone();
            latency[10..10 + late].fill(0.010);
            let found = step(&load, None, Victim { load: &own, latency: &latency }, 1);
            assert_eq!(found.map(|found| found.lag), is_found.then_some(late), "{late}");
        }
    }

    #[test]
    fn who_was_idle_before_or_is_since_is_found_three_intervals_later() {
        let latency = |before: f64, after: f64| stepped(before, after)[..13].to_vec();
        let begins = stepped(0.0, 300.0)[..13].to_vec();
        let found =
            |load: &[f64], latency: &[f64]| step(load, None, Victim { load: &[500.0; 13], latency }, 1);
        let step = found(&begins, &latency(0.010, 0.015)).expect("a step");
        assert_eq!((step.ago, step.load_before), (3, 0.0));
        assert!((step.load_after - 301.0).abs() < 1e-9, "{step:?}"); // of 300, 303, 300
        let ends = stepped(300.0, 0.0)[..13].to_vec();
        assert_eq!(found(&ends, &latency(0.015, 0.010)).expect("a step").load_after, 0.0);
        assert!(found(&ends, &latency(0.010, 0.015)).is_none());
        assert!(found(&[0.0; 13], &latency(0.010, 0.015)).is_none());
    }

    #[test]
    fn what_could_be_chance_or_its_own_doing_is_not() {
        let (load, latency) = (stepped(100.0, 900.0), stepped(0.010, 0.015));
        let of = |own: &[f64], latency: &[f64]| step(&load, None, Victim { load: own, latency }, 1);
        assert!(of(&[500.0; 20], &latency).is_some());
        // Its own load took the same step.
        assert!(of(&stepped(100.0, 300.0), &latency).is_none());
        // Another change more than half as large (ln .0128 / .0101 = .237 of .398); a change that does not last; one of the last interval.
        let mut twice = latency.clone();
        twice[3] = 0.0128;
        assert!(of(&[500.0; 20], &twice).is_none());
        let mut gone = stepped(0.010, 0.010);
        gone[10] = 0.015;
        assert!(of(&[500.0; 20], &gone).is_none());
        let until = |end: usize| {
            step(&load[..end], None, Victim { load: &[500.0; 20][..end], latency: &latency[..end] }, 1)
        };
        assert!(until(11).is_none() && until(12).is_some() && until(13).is_some());
        // The one change of what is constant otherwise may be next to nothing.
        let little: Vec<f64> = (0..20).map(|at| if at < 10 { 0.010 } else { 0.0105 }).collect();
        assert!(of(&[500.0; 20], &little).is_none());
        // A slope is no step.
        let slope: Vec<f64> = (0..20).map(|at| 0.010 * (0.02 * f64::from(at)).exp()).collect();
        assert!(of(&[500.0; 20], &slope).is_none());
        // Where nothing is known to be shared, the neighbour has to wait with it.
        let victim = Victim { load: &[500.0; 20], latency: &latency };
        assert!(step(&load, Some(&latency), victim, 1).is_some());
        assert!(step(&load, Some(&[0.010; 20]), victim, 1).is_none());
    }
}
