//! Where a controller of a fleet hears of a volume, and what to make of sources that stop, begin anew or tell what cannot be: nothing.

use crate::observed::{Intervals, SCHEMA};
use forebay_control::{VolumeId, VolumeObservation};
use forebay_units::Nanos;

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
    pub(super) in_doubt_bytes: u64,
}

impl Follower {
    /// Whether nothing was heard so far.
    pub(super) fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Takes in what is new; `None` if nothing is. From a daemon that has not been heard of before nothing is taken in but where it is.
    ///
    /// # Errors
    /// Why it is not to be relied on this time.
    pub(super) fn take(
        &mut self,
        told: &Intervals,
        volume: &str,
        id: VolumeId,
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
        let new = of.since(number, id)?;
        Ok(new.map(|(seen, _, span)| News {
            seen,
            span,
            size_bytes: of.size_bytes,
            utilisation: of.utilisation,
            in_doubt_bytes: of.in_doubt_bytes,
        }))
    }
}

/// What is wrong with what is heard of a volume, told when it begins and when it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    /// When there was last something good.
    heard: Nanos,
    told: Option<String>,
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
            Ok(true) => {
                self.heard = now;
                self.told.take().map(|_| "what is heard of it is good again".to_owned())
            }
            Ok(false) if now.saturating_since(self.heard) < patience => None,
            Ok(false) => self.say("nothing new is heard of it".to_owned()),
            Err(reason) => self.say(reason),
        }
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
    use crate::observed::{ObservedInterval, VolumeIntervals};

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
            volumes: vec![VolumeIntervals {
                name: "db".to_owned(),
                size_bytes: 1 << 30,
                block_bytes: 4_096,
                utilisation: Some(0.5),
                in_doubt_bytes: 0,
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
                .take(&told, "db", VolumeId(0))
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
        let error = Follower::default().take(&told(8, 1..=2), "web", VolumeId(0)).err();
        assert_eq!(
            error.as_deref(),
            Some("it tells of no interval of `web`: none has ended since it began, or it does not serve it")
        );
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
}
