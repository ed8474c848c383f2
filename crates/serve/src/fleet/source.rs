//! Where a controller of a fleet hears of a volume, and what to make of sources that stop, begin anew or tell what cannot be: nothing.

use crate::observed::{Intervals, SCHEMA, VolumeIntervals};
use forebay_control::response::ApplianceId;
use forebay_control::{VolumeId, VolumeObservation};
use forebay_units::Nanos;

/// So many of the controller's intervals, and a half, may wait; more has piled up (ours).
const PILED_UP: u64 = 2;

/// Follows what one daemon tells of one volume.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follower {
    /// The daemon's start and the number of the last interval taken in.
    last: Option<(i64, u64)>,
}

/// What is new of a volume.
pub(super) struct News {
    pub(super) seen: VolumeObservation,
    pub(super) span: Nanos,
    pub(super) size_bytes: u64,
    pub(super) utilisation: Option<f64>,
}

impl Follower {
    /// Whether nothing was heard so far.
    pub(super) fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Takes in what is new, as much as makes an interval of the controller's; `None` if nothing is. From a daemon that has not been heard of before nothing is taken in but where it is.
    ///
    /// # Errors
    /// Why it is not to be relied on this time.
    pub(super) fn take(
        &mut self,
        told: &Intervals,
        volume: &str,
        id: VolumeId,
        interval: Nanos,
    ) -> Result<Option<News>, String> {
        if told.schema != SCHEMA {
            return Err(format!("it tells layout `{}`, expected `{SCHEMA}`", told.schema));
        }
        let of = told.volumes.iter().find(|of| of.name == volume);
        let of = of.ok_or_else(|| format!("it tells of no interval of `{volume}`: none has ended since it began, or it does not serve it"))?;
        let newest = of.intervals.last().map_or(0, |interval| interval.number);
        let oldest = of.intervals.first().map_or(0, |interval| interval.number);
        let before = self.last.replace((told.started_unix_ms, newest));
        let Some((started, number)) = before else { return Ok(None) };
        if started != told.started_unix_ms || newest < number {
            return Err("it began anew".to_owned());
        }
        if oldest > number + 1 {
            return Err(format!("{} of its intervals were missed", oldest - number - 1));
        }
        let until = until(of, number, interval);
        self.last = Some((told.started_unix_ms, until));
        let new = of.between(number, until, id)?;
        Ok(new.map(|(seen, _, span)| News {
            seen,
            span,
            size_bytes: of.size_bytes,
            utilisation: of.utilisation,
        }))
    }
}

/// The last of the intervals behind number `after` to be taken in now. Whoever looks as often as the controller decides, and at about the same moment, has none to tell in one turn and two
/// in the next: the second waits for the turn after. No more than an interval of the controller's waits, and where more has piled up nothing does.
fn until(of: &VolumeIntervals, after: u64, interval: Nanos) -> u64 {
    let new = || of.intervals.iter().filter(|one| one.number > after);
    let newest = new().next_back().map_or(after, |one| one.number);
    let all = new().fold(0u64, |sum, one| sum.saturating_add(one.span_ns));
    if all > interval.0.saturating_mul(PILED_UP).saturating_add(interval.0 / 2) {
        return newest;
    }
    let (mut until, mut span) = (after, 0u64);
    for one in new() {
        let is_enough = span.saturating_add(one.span_ns / 2) > interval.0;
        if span > 0 && is_enough && all - span <= interval.0 {
            break;
        }
        (until, span) = (one.number, span.saturating_add(one.span_ns));
    }
    until
}

/// Trouble that comes again within so many times the patience has not been over (ours).
const RELAPSE_PATIENCES: u64 = 10;
/// Intervals that have to be good before a source with relapses is relied on again, at most (ours).
const PROOF_MAX: u32 = 16;

/// What is wrong with what is heard of a volume, told when it begins and when it is over.
///
/// A source whose trouble comes again and again, as that of two servers which answer in turns, is good for an interval or two each time, and what it tells in them is as wrong: with each relapse
/// it has to be good for twice as long before it is relied on.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    /// When there was last something good.
    heard: Nanos,
    told: Option<String>,
    /// Who was asked last: an appliance, or the storage side.
    asked: Option<ApplianceId>,
    /// When there was last something wrong with what it tells.
    wrong: Option<Nanos>,
    is_wrong: bool,
    /// Good intervals that it has to show behind the next trouble, and yet.
    proof: u32,
    unproven: u32,
}

impl Doubt {
    /// Takes in whether something was heard, or why it is not to be relied on; what is to be told.
    pub(super) fn judge(
        &mut self,
        now: Nanos,
        patience: Nanos,
        heard: Result<bool, String>,
    ) -> Option<String> {
        match heard {
            Ok(true) if self.unproven > 0 => {
                self.heard = now;
                self.unproven -= 1;
                None
            }
            Ok(true) => {
                (self.heard, self.is_wrong) = (now, false);
                self.told.take().map(|_| "what is heard of it is good again".to_owned())
            }
            Ok(false) if now.saturating_since(self.heard) < patience => None,
            Ok(false) => self.say("nothing new is heard of it".to_owned()),
            Err(reason) => {
                if !std::mem::replace(&mut self.is_wrong, true) {
                    let soon = Nanos(patience.0.saturating_mul(RELAPSE_PATIENCES));
                    let is_relapse = self.wrong.is_some_and(|wrong| now.saturating_since(wrong) < soon);
                    self.proof = if is_relapse { (2 * self.proof).clamp(1, PROOF_MAX) } else { 0 };
                }
                (self.wrong, self.unproven) = (Some(now), self.proof);
                self.say(reason)
            }
        }
    }

    /// Whom it is asked of now. What is wrong with somebody else is not what is wrong with it.
    pub(super) fn asks(&mut self, whom: Option<ApplianceId>) {
        let is_another = std::mem::replace(&mut self.asked, whom) != whom;
        if let Some(told) = self.told.as_mut().filter(|_| is_another) {
            *told = "nothing new is heard of it since its clients were moved".to_owned();
        }
    }

    /// Whether what is good now is to be relied on.
    pub(super) fn relies(&self) -> bool {
        self.unproven == 0
    }

    /// When there was last something good.
    pub(super) fn heard(&self) -> Nanos {
        self.heard
    }

    /// What is wrong now.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.told.as_deref()
    }

    fn say(&mut self, reason: String) -> Option<String> {
        // The same trouble is told once, although places and counts in its words differ from time to time.
        let alike = |told: &String| {
            let words = |text: &str| text.replace(|at: char| at.is_ascii_digit(), "");
            words(told) == words(&reason)
        };
        if self.told.as_ref().is_some_and(alike) {
            return None;
        }
        self.told = Some(reason.clone());
        Some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::ObservedInterval;
    use std::collections::BTreeMap;

    fn told(started_unix_ms: i64, numbers: std::ops::RangeInclusive<u64>) -> Intervals {
        let interval = |number| ObservedInterval {
            number,
            span_ns: 1_000_000_000,
            arrivals: 9,
            ..ObservedInterval::default()
        };
        Intervals {
            schema: SCHEMA.to_owned(),
            started_unix_ms,
            leases: BTreeMap::new(),
            volumes: vec![VolumeIntervals {
                name: "db".to_owned(),
                size_bytes: 1 << 30,
                block_bytes: 4_096,
                utilisation: Some(0.5),
                in_doubt_bytes: 0,
                refused_bytes: 0,
                origin: None,
                intervals: numbers.map(interval).collect(),
                locality: None,
            }],
        }
    }

    #[test]
    fn gaps_and_new_beginnings_are_told_and_nothing_is_made_of_them() {
        let mut follower = Follower::default();
        let mut take = |told: Intervals| {
            follower
                .take(&told, "db", VolumeId(0), Nanos::secs(2))
                .map(|news| news.map(|news| (news.seen.arrivals, news.span)))
        };
        assert_eq!(take(told(7, 1..=20)), Ok(None));
        assert_eq!(take(told(7, 1..=22)), Ok(Some((18, Nanos::secs(2)))));
        assert_eq!(take(told(7, 1..=22)), Ok(None));
        assert_eq!(take(told(8, 1..=3)), Err("it began anew".to_owned()));
        assert_eq!(take(told(8, 1..=4)), Ok(Some((9, Nanos::secs(1)))));
        assert_eq!(take(told(8, 7..=9)), Err("2 of its intervals were missed".to_owned()));
        assert_eq!(take(told(8, 7..=10)), Ok(Some((9, Nanos::secs(1)))));
        assert_eq!(take(told(8, 1..=2)), Err("it began anew".to_owned()));
        let mut foreign = told(8, 1..=2);
        foreign.schema = "forebay.intervals/9".to_owned();
        assert!(take(foreign).unwrap_err().contains("expected `forebay.intervals/1`"));
        let error = Follower::default().take(&told(8, 1..=2), "web", VolumeId(0), Nanos::secs(2)).err();
        assert_eq!(
            error.as_deref(),
            Some("it tells of no interval of `web`: none has ended since it began, or it does not serve it")
        );
    }

    #[test]
    fn a_start_anew_is_one_however_much_was_seen_since_and_one_interval_is_a_gap() {
        let mut follower = Follower::default();
        let mut take = |told: Intervals| {
            follower
                .take(&told, "db", VolumeId(0), Nanos::secs(2))
                .map(|news| news.map(|news| news.seen.arrivals))
        };
        assert_eq!(take(told(7, 1..=2)), Ok(None));
        assert_eq!(take(told(8, 1..=5)), Err("it began anew".to_owned()));
        assert_eq!(take(told(8, 7..=8)), Err("1 of its intervals were missed".to_owned()));
        assert_eq!(take(told(8, 9..=9)), Ok(Some(9)));
    }

    /// Intervals of a second, by a clock that is now a little behind that of the turns, now a little before.
    #[test]
    fn what_comes_a_little_early_waits_for_the_turn_in_which_there_is_nothing() {
        let seen = |every: u64, newest: &[u64]| -> Vec<u64> {
            let mut follower = Follower::default();
            let mut take = |newest| {
                let news = follower.take(&told(7, 1..=newest), "db", VolumeId(0), Nanos::secs(every));
                news.unwrap().map_or(0, |news| news.seen.arrivals / 9)
            };
            assert_eq!(take(1), 0);
            newest.iter().map(|newest| take(*newest)).collect()
        };
        assert_eq!(seen(1, &[2, 2, 4, 4, 6, 6, 8, 8]), [1, 0, 1, 1, 1, 1, 1, 1]);
        assert_eq!(seen(10, &[10, 21, 31, 40]), [9, 10, 10, 10]);
        // Who stood still is told all of it at once.
        assert_eq!(seen(1, &[2, 2, 2, 2, 6, 7]), [1, 0, 0, 0, 4, 1]);
        // Three of 0.7 s each are two turns' news of a second, and nothing piles up.
        let mut follower = Follower::default();
        let mut take = |newest: u64| {
            let mut told = told(7, 1..=newest);
            told.volumes[0].intervals.iter_mut().for_each(|one| one.span_ns = 700_000_000);
            let news = follower.take(&told, "db", VolumeId(0), Nanos::secs(1)).unwrap();
            news.map_or(0, |news| {
                assert_eq!(news.seen.span, news.span);
                assert_eq!(news.seen.arrivals, 9 * news.span.0 / 700_000_000);
                news.span.0 / 1_000_000
            })
        };
        assert_eq!(take(1), 0);
        let taken: Vec<u64> = (1..=14).map(|turn| take(1 + turn * 10 / 7)).collect();
        assert!(taken.iter().all(|span| (700..=1_400).contains(span)), "{taken:?}");
        assert!((13_000..=14_000).contains(&taken.iter().sum::<u64>()), "{taken:?}");
        // What is longer than an interval of the controller's cannot be taken apart.
        let mut follower = Follower::default();
        let mut take = |newest| {
            let news = follower.take(&told(7, 1..=newest), "db", VolumeId(0), Nanos::millis(200));
            news.unwrap().map(|news| news.seen.arrivals)
        };
        assert_eq!((take(1), take(2), take(2)), (None, Some(9), None));
    }

    #[test]
    fn a_doubt_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let mut doubt = Doubt::default();
        let mut at = |second, heard| doubt.judge(Nanos::secs(second), Nanos::secs(3), heard);
        assert_eq!(at(1, Ok(true)), None);
        assert_eq!(at(3, Ok(false)), None);
        assert_eq!(at(4, Ok(false)).as_deref(), Some("nothing new is heard of it"));
        assert_eq!(at(5, Ok(false)), None);
        assert_eq!(at(6, Err("it began anew".to_owned())).as_deref(), Some("it began anew"));
        let garbage =
            |column| Err(format!("its answer is not understood: expected value at column {column}"));
        assert!(at(6, garbage(118)).is_some() && at(6, garbage(9)).is_none());
        assert_eq!(at(7, Ok(true)).as_deref(), Some("what is heard of it is good again"));
        assert_eq!(at(8, Ok(true)), None);
    }

    /// An appliance that died is not told of once another one is in its place.
    #[test]
    fn what_is_wrong_is_told_of_whom_it_is_asked_of_now() {
        let mut doubt = Doubt::default();
        let at = |doubt: &mut Doubt, whom: Option<u64>, heard| {
            doubt.asks(whom.map(ApplianceId));
            let told = doubt.judge(Nanos::secs(1), Nanos::secs(3), heard);
            (told, doubt.trouble().map(str::to_owned))
        };
        let dead = |which| Err(format!("appliance {which} on h{which}: no daemon answers"));
        assert_eq!(at(&mut doubt, Some(1), Ok(true)), (None, None));
        let (said, _) = at(&mut doubt, Some(1), dead(1));
        assert_eq!(said.as_deref(), Some("appliance 1 on h1: no daemon answers"));
        let moved = Some("nothing new is heard of it since its clients were moved".to_owned());
        for whom in [None, None, Some(2)] {
            assert_eq!(at(&mut doubt, whom, Ok(false)), (None, moved.clone()));
        }
        assert!(at(&mut doubt, Some(2), dead(2)).1.is_some_and(|told| told.starts_with("appliance 2 on h2")));
        assert_eq!(at(&mut doubt, Some(2), Ok(true)).1, None);
    }

    #[test]
    fn who_is_wrong_again_and_again_is_relied_on_ever_later() {
        let mut doubt = Doubt::default();
        let mut second = 0;
        let mut hear = |doubt: &mut Doubt, heard: Result<bool, &str>| {
            second += 1;
            let relies = heard == Ok(true) && doubt.relies();
            (relies, doubt.judge(Nanos::secs(second), Nanos::secs(3), heard.map_err(str::to_owned)))
        };
        // Two servers take turns: after each step back there are two good intervals.
        let mut relied_on = Vec::new();
        for _ in 0..20 {
            let (_, said) = hear(&mut doubt, Err("its counters began anew"));
            let good = (0..2).filter(|_| hear(&mut doubt, Ok(true)).0).count();
            relied_on.push((said.is_some(), good));
        }
        let never = std::iter::repeat_n((false, 0), 17);
        assert!(relied_on.into_iter().eq([(true, 2), (true, 1), (true, 0)].into_iter().chain(never)));
        // It has shown that it is over, and is as good as any when that is long ago.
        (0..60).for_each(|_| assert!(hear(&mut doubt, Ok(true)).0));
        hear(&mut doubt, Err("its counters began anew"));
        assert!(hear(&mut doubt, Ok(true)).0);
    }
}
