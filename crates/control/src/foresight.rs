//! Foresight: when a workload will need a cache again, from the times at which it did (Dynamite's proactive deployment, §5.2).
//!
//! The paper takes predictions of peaks for given. Here a season is found in the history of the load by its autocorrelation, and what it is worth is measured by
//! predicting each part of the history from the others. A peak is foreseen where, a whole number of seasons ago, caches were needed, most
//! of the times. It is *not* a forecast of loads in numbers: what is remembered is the size that sufficed, and which zones were hot then. All
//! of it is ours.

mod runs;

use crate::inventory::VolumeId;
use crate::observation::ZoneHeat;
use forebay_units::BlockRange;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// How far ahead to look, and when to believe it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForesightRules {
    /// Whether caches are granted before a peak at all. Default true.
    pub enabled: bool,
    /// Intervals of a bucket, the unit of the history. Default 60: ten minutes where an interval is 10 s; 1 to 100,000.
    pub bucket_intervals: usize,
    /// Buckets that are remembered, 4 bytes each for every volume. Default 3,024: three weeks of ten minutes, so that a week is a season once two of them have been seen; 16 to 65,536.
    pub buckets_max: usize,
    /// Buckets before a peak at which its cache is granted. Default 2; 1 to 64.
    pub lead_buckets: usize,
    /// The least confidence to act on. Default 0.5; 0 to 1.
    pub confidence_min: f64,
}

impl Default for ForesightRules {
    fn default() -> ForesightRules {
        ForesightRules {
            enabled: true,
            bucket_intervals: 60,
            buckets_max: 3_024,
            lead_buckets: 2,
            confidence_min: 0.5,
        }
    }
}

/// The shortest season, in buckets (ours): what is shorter is answered by keeping the cache.
const PERIOD_MIN: usize = 6;
/// Peaks remembered of a workload (ours: ten a week, for as long as loads are by default).
const PEAKS_MAX: usize = 32;
/// Of what caches held in peaks, so many runs of blocks are remembered of a workload, 16 bytes for each, besides those of the peak that lasts (ours).
const LISTED_RUNS_MAX: usize = 4 * runs::RUNS_MAX;
/// Of periods that predict a load nearly as well as the best, the shortest is taken: it has been seen most often (ours).
const NEARLY: f64 = 0.02;
/// The part of the highest autocorrelation from which on a period is looked at (ours).
const HIGH_SHARE: f64 = 0.6;
/// Seasons looked back for what was needed (ours).
const SEASONS_MAX: u64 = 4;
/// The part of what it was in seasons before that a load must reach for its peak to have come (ours).
const COME_SHARE: f64 = 0.5;

/// A peak may come so many buckets before its time (ours).
const EARLY: u64 = 2;

/// A load that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Season {
    /// In buckets.
    pub period: usize,
    /// The share of the variance of the load's logarithm that the other seasons predict, each part from the rest; 0 to 1.
    pub confidence: f64,
}

/// Finds the season of a load, given by bucket and oldest first: of the periods whose autocorrelation is high, the shortest that predicts the load nearly as well as any, if at least two of
/// them have been seen. (A load that comes on weekdays is like itself after a day, and more so after a week.)
/// `None` if the load is constant or nothing repeats. Cost is `O(n^2)`.
pub fn season(loads: impl Iterator<Item = f32>) -> Option<Season> {
    let logs: Vec<f64> = loads.map(|load| f64::from(load.max(0.0)).ln_1p()).collect();
    let count = logs.len();
    let mean = logs.iter().sum::<f64>() / count.max(1) as f64;
    let centred: Vec<f64> = logs.iter().map(|log| log - mean).collect();
    // Of the first so many buckets.
    let squares: Vec<f64> = std::iter::once(0.0)
        .chain(centred.iter().scan(0.0, |sum, value| {
            *sum += value * value;
            Some(*sum)
        }))
        .collect();
    let square = squares[count];
    if square <= 1e-9 * count as f64 {
        return None;
    }
    let correlation = |lag: usize| -> f64 {
        let (early, late) = (squares[count - lag], square - squares[lag]);
        let product: f64 = centred.iter().zip(&centred[lag..]).map(|(a, b)| a * b).sum();
        product / (early * late).sqrt().max(1e-12)
    };
    let correlations: Vec<(usize, f64)> =
        (PERIOD_MIN..=count / 2).map(|lag| (lag, correlation(lag))).collect();
    // What is high only because neighbours are alike is no season: it must be higher than what lies on either side of it.
    let tops = correlations.windows(3).filter(|three| three[1].1 >= three[0].1 && three[1].1 >= three[2].1);
    let tops: Vec<(usize, f64)> = tops.map(|three| three[1]).filter(|(_, height)| *height > 0.0).collect();
    let highest = tops.iter().map(|(_, height)| *height).fold(0.0, f64::max);
    let high = tops.iter().filter(|(_, height)| *height >= HIGH_SHARE * highest);
    let seasons: Vec<Season> =
        high.map(|&(period, _)| Season { period, confidence: predicted(&centred, square, period) }).collect();
    let best = seasons.iter().map(|season| season.confidence).fold(0.0, f64::max);
    seasons.into_iter().find(|season| season.confidence >= best - NEARLY)
}

/// The share of the variance of a load, whose deviations from its mean are `centred` and have the squares `square` together, that is predicted by taking each for the mean of what is a whole number
/// of periods away. `O(n)`.
fn predicted(centred: &[f64], square: f64, period: usize) -> f64 {
    let of_phase = |phase: usize| centred[phase..].iter().step_by(period);
    let missed = |phase: usize| -> f64 {
        let (sum, number) =
            of_phase(phase).fold((0.0, 0.0), |(sum, number), value| (sum + value, number + 1.0));
        of_phase(phase).map(|value| (value - (sum - value) / f64::max(number - 1.0, 1.0)).powi(2)).sum()
    };
    (1.0 - (0..period).map(missed).sum::<f64>() / square).max(0.0)
}

/// A time in which a volume had a cache because somebody needed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The bucket in which it was first needed, and the one after the last; open as long as it lasts.
    pub from: u64,
    /// See `from`.
    pub until: Option<u64>,
    /// The size that it had last while the load was there.
    pub blocks: u64,
    /// The highest load of the volume meanwhile, in requests per second.
    pub load: f64,
    /// Whose objectives it served.
    pub serves: Vec<VolumeId>,
    /// Which zones were hot, and of how many accesses.
    pub zones: Vec<ZoneHeat>,
    /// See `zones`.
    pub zone_accesses: u64,
    /// What the cache held when it was last listed meanwhile, what is most worth being loaded first.
    #[serde(default, with = "runs", skip_serializing_if = "Option::is_none")]
    pub resident: Option<Arc<[BlockRange]>>,
}

impl Peak {
    /// What the cache held, if it was listed when that was at least half of what was needed. `O(ranges)`.
    pub fn was_resident(&self) -> Option<&[BlockRange]> {
        self.was_resident_of(self.blocks)
    }

    /// What the cache held, if it was listed when that was at least half of so many blocks. `O(ranges)`.
    pub(crate) fn was_resident_of(&self, blocks: u64) -> Option<&[BlockRange]> {
        let listed = |ranges: &[BlockRange]| ranges.iter().map(|range| range.count()).sum::<u64>();
        self.resident.as_deref().filter(|ranges| 2 * listed(ranges) >= blocks)
    }

    /// One that begins in bucket `from`, with nothing seen of it yet.
    pub fn new(from: u64, blocks: u64, serves: Vec<VolumeId>) -> Peak {
        Peak {
            from,
            until: None,
            blocks,
            load: 0.0,
            serves,
            zones: Vec::new(),
            zone_accesses: 0,
            resident: None,
        }
    }
}

/// A cache that will be needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreseen {
    /// The bucket in which it was foreseen.
    pub at: u64,
    /// The bucket in which it is expected to be needed, and the one after.
    pub from: u64,
    /// See `from`.
    pub until: u64,
    /// The load to expect at its beginning, in requests per second.
    pub load: f64,
    /// What was needed in earlier seasons, the newest of those times.
    pub peak: Peak,
    /// Zones that were hot in the time before that; empty where there was none.
    pub earlier_zones: Vec<u64>,
    /// Buckets from one to the next.
    pub period: usize,
    /// Of the season, times the share of earlier seasons in which a cache was needed at this time.
    pub confidence: f64,
}

/// Whether so many intervals are a bucket at least.
pub(crate) fn is_long(intervals: u64, rules: &ForesightRules) -> bool {
    intervals >= rules.bucket_intervals.max(1) as u64
}

/// What is remembered of one volume. Plain data, to be kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    loads: VecDeque<f32>,
    /// Buckets closed so far: the number of the bucket that is open.
    now: u64,
    sum: f64,
    intervals: usize,
    peaks: VecDeque<Peak>,
    /// As of which bucket.
    #[serde(skip)]
    season: Option<(u64, Option<Season>)>,
    /// Nothing is foreseen before this bucket: what was foreseen last did not come.
    wary_until: u64,
}

impl History {
    /// Takes the load of an interval in, in requests per second; says whether it closed a bucket.
    pub fn push(&mut self, load: f64, rules: &ForesightRules) -> bool {
        self.sum += load;
        self.intervals += 1;
        if self.intervals < rules.bucket_intervals {
            return false;
        }
        self.close(rules);
        true
    }

    /// Closes the bucket that is open.
    fn close(&mut self, rules: &ForesightRules) {
        if self.loads.len() >= rules.buckets_max {
            self.loads.pop_front();
        }
        self.loads.push_back((self.sum / self.intervals as f64) as f32);
        (self.sum, self.intervals) = (0.0, 0);
        self.now += 1;
    }

    /// Takes in that it was `load` for so many intervals.
    pub fn push_for(&mut self, intervals: u64, load: f64, rules: &ForesightRules) {
        self.take(intervals, rules, |_| load);
    }

    /// Takes in that nobody looked for `intervals` intervals: they are taken to have been as those a season before, or, where there is no season, as on
    /// average; as those before them if they are less than a bucket. The bucket that was open goes on, so that times of the season stay where they were. A
    /// need that was there is over if a bucket has passed. `O(n^2)` in the buckets remembered where the season was not looked for yet, else `O(n)` at most;
    /// `O(1)` for less than a bucket.
    pub fn pass(&mut self, intervals: u64, rules: &ForesightRules) {
        if is_long(intervals, rules) && !self.has_sought_season() {
            self.find_season();
        }
        self.pass_as_known(intervals, rules);
    }

    /// The same by what is known: where the season was not looked for, there is none. `O(n)` at most.
    pub(crate) fn pass_as_known(&mut self, intervals: u64, rules: &ForesightRules) {
        let is_long = is_long(intervals, rules);
        if is_long {
            self.end();
        }
        let season = self.season.and_then(|(_, season)| season).filter(|_| is_long);
        let open = (self.intervals > 0).then(|| self.sum / self.intervals as f64);
        let mean = match self.loads.len() {
            0 => open.unwrap_or(0.0),
            count if is_long => self.loads.iter().map(|load| f64::from(*load)).sum::<f64>() / count as f64,
            count => open.unwrap_or(f64::from(self.loads[count - 1])),
        };
        self.take(intervals, rules, |loads| {
            let before = season.and_then(|season| loads.len().checked_sub(season.period));
            before.map_or(mean, |at| f64::from(loads[at]))
        });
    }

    /// Takes so many intervals in, of a load by the buckets that were closed before.
    fn take(&mut self, intervals: u64, rules: &ForesightRules, load: impl Fn(&VecDeque<f32>) -> f64) {
        let bucket = rules.bucket_intervals.max(1) as u64;
        // What is older than all that is remembered leaves nothing but its place in a bucket.
        let remembered = bucket * rules.buckets_max as u64;
        let mut left = if intervals > remembered { remembered + intervals % bucket } else { intervals };
        while left > 0 {
            let part = left.min(bucket - (self.intervals as u64).min(bucket - 1));
            self.sum += load(&self.loads) * part as f64;
            self.intervals += part as usize;
            left -= part;
            if self.intervals as u64 >= bucket {
                self.close(rules);
            }
        }
    }

    /// Nothing was ever taken in.
    pub(crate) fn is_empty(&self) -> bool {
        self.now == 0 && self.intervals == 0
    }

    /// Whether the season was looked for in any bucket, since this was recalled.
    pub(crate) fn has_sought_season(&self) -> bool {
        self.season.is_some()
    }

    /// What was kept is of these rules, and what it says of itself is so.
    fn is_sound(&self, rules: &ForesightRules) -> bool {
        self.loads.len() <= rules.buckets_max
            && self.loads.len() as u64 <= self.now
            && self.intervals < rules.bucket_intervals
            && self.peaks.len() <= PEAKS_MAX
            && self.loads.iter().all(|load| load.is_finite())
    }

    /// The same, with volumes that have other numbers now: who is not there any more is served by nobody. `None` if it is not of these rules.
    pub fn recalled(
        mut self,
        rules: &ForesightRules,
        volume_now: impl Fn(VolumeId) -> Option<VolumeId>,
    ) -> Option<History> {
        for peak in &mut self.peaks {
            peak.serves = peak.serves.iter().filter_map(|id| volume_now(*id)).collect();
        }
        self.is_sound(rules).then_some(self)
    }

    /// The bucket that is open.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The bucket in which something began that many intervals ago.
    pub fn bucket_of(&self, intervals_ago: usize, rules: &ForesightRules) -> u64 {
        let before = intervals_ago.saturating_sub(self.intervals).div_ceil(rules.bucket_intervals.max(1));
        self.now.saturating_sub(before as u64)
    }

    /// The time of need that is not over.
    pub fn open_peak(&mut self) -> Option<&mut Peak> {
        self.peaks.back_mut().filter(|peak| peak.until.is_none())
    }

    /// The last time of need, over or not.
    pub fn newest_peak(&self) -> Option<&Peak> {
        self.peaks.back()
    }

    /// A cache is needed from now on; `from` says since when it has been.
    pub fn begin(&mut self, peak: Peak) {
        self.end();
        if self.peaks.len() == PEAKS_MAX {
            self.peaks.pop_front();
        }
        self.peaks.push_back(peak);
        let mut listed = 0;
        for peak in self.peaks.iter_mut().rev() {
            listed += peak.resident.as_ref().map_or(0, |runs| runs.len());
            peak.resident.take_if(|_| listed > LISTED_RUNS_MAX);
        }
    }

    /// Where peaks are of which it is known what their caches held: their first bucket, and how many runs of that are kept.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (u64, usize)> {
        let kept = |peak: &Peak| Some(peak.resident.as_ref()?.len().min(runs::RUNS_MAX));
        self.peaks.iter().filter_map(move |peak| Some((peak.from, kept(peak)?)))
    }

    /// Forgets what the cache held in the peak that began in bucket `from`.
    pub(crate) fn forget_listed(&mut self, from: u64) {
        self.peaks.iter_mut().filter(|peak| peak.from == from).for_each(|peak| peak.resident = None);
    }

    /// It is not needed any more.
    pub fn end(&mut self) {
        let now = self.now;
        if let Some(peak) = self.open_peak() {
            peak.until = Some((now + 1).max(peak.from + 1));
        }
    }

    /// What was foreseen did not come; until then nothing is foreseen.
    pub fn was_wrong(&mut self, until: u64) {
        self.wary_until = until;
    }

    /// Whether the season ought to be looked for: there is a chance that it matters, and it was not looked for in this bucket.
    pub fn wants_season(&self) -> bool {
        self.peaks.len() >= 2 && self.season.is_none_or(|(asked, _)| asked != self.now)
    }

    /// Looks for the season. Cost is `O(n^2)` in the buckets remembered: some three milliseconds for the default.
    pub fn find_season(&mut self) {
        self.season = Some((self.now, season(self.loads.iter().copied())));
    }

    /// The load of a bucket, if it is remembered.
    fn load(&self, bucket: u64) -> Option<f64> {
        let oldest = self.now - self.loads.len() as u64;
        let at = usize::try_from(bucket.checked_sub(oldest)?).ok()?;
        self.loads.get(at).map(|load| f64::from(*load))
    }

    /// The next cache that will be needed, if that is so within the lead, or is so now.
    pub fn foresee(&self, rules: &ForesightRules) -> Option<Foreseen> {
        let (_, season) = self.season?;
        let season = season?;
        // Whether one was needed before the first that is remembered is not known, if others were forgotten.
        let forgotten =
            self.peaks.front().filter(|_| self.peaks.len() == PEAKS_MAX).map_or(0, |peak| peak.from);
        let oldest = forgotten.max(self.now - self.loads.len() as u64);
        let period = season.period as u64;
        // How often it was needed at this time of the season, and in which peaks, the last one first.
        let needed = |bucket: u64| -> Option<(f64, Vec<usize>)> {
            let sources = (1..=SEASONS_MAX).map_while(|seasons| bucket.checked_sub(seasons * period));
            let sources: Vec<u64> = sources.filter(|source| (oldest..self.now).contains(source)).collect();
            if sources.len() < 2 {
                return None;
            }
            let covers = |peak: &Peak, source: u64| {
                peak.from <= source && peak.until.is_none_or(|until| source < until)
            };
            let found: Vec<usize> = sources
                .iter()
                .filter_map(|&source| self.peaks.iter().rposition(|peak| covers(peak, source)))
                .collect();
            Some((found.len() as f64 / sources.len() as f64, found))
        };
        let confidence = |bucket: u64| needed(bucket).map_or(0.0, |(share, _)| share * season.confidence);
        let horizon = self.now + rules.lead_buckets as u64;
        let from = (self.now.max(self.wary_until)..=horizon)
            .find(|&bucket| confidence(bucket) >= rules.confidence_min)?;
        let until = (from..from + period)
            .find(|&bucket| confidence(bucket) < rules.confidence_min)
            .unwrap_or(from + period);
        let (_, peaks) = needed(from)?;
        let last = *peaks.first()?;
        let earlier = peaks.get(1).map(|&before| &self.peaks[before].zones);
        let load =
            self.load(from - period).or_else(|| self.load(from.checked_sub(2 * period)?)).unwrap_or(0.0);
        Some(Foreseen {
            at: self.now,
            from,
            until,
            load,
            peak: self.peaks[last].clone(),
            earlier_zones: earlier.into_iter().flatten().map(|zone| zone.zone).collect(),
            period: season.period,
            confidence: confidence(from),
        })
    }

    /// The highest load in a bucket since the peak was foreseen, or since it would have been early, in requests per second: also of one that came before its
    /// time, or is over.
    pub fn highest_for(&self, foreseen: &Foreseen) -> f64 {
        let since = foreseen.at.saturating_sub(1).min(foreseen.from.saturating_sub(EARLY));
        (since..self.now).filter_map(|bucket| self.load(bucket)).fold(0.0, f64::max)
    }

    /// Whether the load that was foreseen has been there, by the buckets that closed.
    pub fn has_come(&self, foreseen: &Foreseen) -> bool {
        self.highest_for(foreseen) >= COME_SHARE * foreseen.load
    }

    /// Whether the load that was foreseen is there, by the last bucket that closed.
    pub fn is_there(&self, foreseen: &Foreseen) -> bool {
        self.loads.back().is_some_and(|load| f64::from(*load) >= COME_SHARE * foreseen.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::generator::unit;
    use forebay_workload::random;

    /// 10 requests/s, and 100 for four buckets of every `period`, with noise.
    fn load(at: usize, period: usize, noise: f64) -> f32 {
        let level = if at % period >= period - 4 { 100.0 } else { 10.0 };
        (level * (1.0 + noise)) as f32
    }

    #[test]
    fn a_season_is_found_and_noise_has_none() {
        for seed in 0..20 {
            let mut random = random(seed);
            let mut noise = || unit(&mut random) - 0.5;
            let loads: Vec<f32> = (0..100).map(|at| load(at, 24, noise())).collect();
            let found = season(loads.iter().copied()).expect("a season");
            assert_eq!(found.period, 24, "seed {seed}");
            assert!(found.confidence > 0.7, "seed {seed}: {found:?}");
            let chance = season((0..100).map(|_| (50.0 + 50.0 * noise()) as f32));
            assert!(chance.is_none_or(|season| season.confidence < 0.3), "seed {seed}: {chance:?}");
            // One season and a half is none.
            let short = season(loads[..36].iter().copied());
            assert!(short.is_none_or(|season| season.period != 24), "seed {seed}: {short:?}");
        }
        assert_eq!(season([5.0; 200].into_iter()), None);
        assert_eq!(season(std::iter::empty()), None);
    }

    fn peak(from: u64, blocks: u64) -> Peak {
        Peak::new(from, blocks, vec![VolumeId(3)])
    }

    #[test]
    fn of_the_last_few_peaks_it_is_remembered_what_their_caches_held() {
        let mut history = History::default();
        for at in 0..6 {
            history.begin(peak(10 * at, 100));
            let mut held = vec![BlockRange { first: at, end: at + 1 }];
            held.resize(if at == 3 { LISTED_RUNS_MAX - 2 } else { 1 }, BlockRange { first: 9, end: 10 });
            history.open_peak().unwrap().resident = Some(held.into());
        }
        history.begin(peak(60, 100));
        let known: Vec<u64> =
            history.peaks.iter().filter_map(|peak| Some(peak.resident.as_ref()?[0].first)).collect();
        assert_eq!(known, [3, 4, 5]);
        // One block is less than half of 100, and not less than half of 2.
        let mut peak = history.peaks[5].clone();
        assert_eq!(peak.was_resident(), None);
        peak.blocks = 2;
        assert_eq!(peak.was_resident(), Some([BlockRange { first: 5, end: 6 }].as_slice()));
    }

    /// Two hours from nine o'clock on of every day but the last two of each week, by buckets of ten minutes, over a load that follows the day and one that does not.
    #[test]
    fn a_load_of_weekdays_is_foreseen_on_each_of_them_and_on_no_other_day_once_two_weeks_have_been_seen() {
        let rules = ForesightRules { bucket_intervals: 1, ..ForesightRules::default() };
        let (day_buckets, peak_from, peak_until) = (144, 54, 66);
        for (seed, has_days) in [(1, true), (2, false)] {
            let mut random = random(seed);
            let mut history = History::default();
            let mut foreseen_by_day = vec![Vec::new(); 35];
            for at in 0..35 * day_buckets {
                let (of_day, day) = (at % day_buckets, at / day_buckets);
                let is_peak = day % 7 < 5 && (peak_from..peak_until).contains(&of_day);
                if is_peak && of_day == peak_from + 1 {
                    history.begin(peak(at as u64 - 1, 1_000));
                }
                if !is_peak && of_day == peak_until {
                    history.end();
                }
                let turn = (of_day as f64 / day_buckets as f64 - 0.25) * std::f64::consts::TAU;
                let base = if has_days { 60.0 + 50.0 * turn.sin().max(0.0) } else { 100.0 };
                let load = base + if is_peak { 600.0 } else { 0.0 };
                history.push(load * (0.8 + 0.4 * unit(&mut random)), &rules);
                // Not in each bucket, which takes long.
                if at >= 14 * day_buckets && at % 24 == 0 && history.wants_season() {
                    history.find_season();
                }
                if let Some(foreseen) = history.foresee(&rules).filter(|foreseen| foreseen.at < foreseen.from)
                {
                    foreseen_by_day[day].push(foreseen.from as usize % day_buckets);
                }
            }
            for (day, foreseen) in foreseen_by_day.iter().enumerate().skip(14) {
                let expected: &[usize] = if day % 7 < 5 { &[peak_from; 2] } else { &[] };
                assert_eq!(foreseen, expected, "day {day}, {has_days}, {:?}", history.season);
            }
        }
    }

    /// Of more peaks than are remembered those of two weeks ago are the last, say.
    #[test]
    fn of_what_was_forgotten_of_peaks_it_is_not_said_that_none_was_there() {
        let rules = ForesightRules { bucket_intervals: 1, ..ForesightRules::default() };
        let foreseen = |others: u64| {
            let mut history = History::default();
            (0..401).for_each(|_| _ = history.push(10.0, &rules));
            history.season = Some((400, Some(Season { period: 100, confidence: 0.8 })));
            // Now is 401, and it is needed at 402: as at 202 and 302, and as nothing says at 2 and 102.
            let needed = |from: u64| Peak { until: Some(from + 1), ..peak(from, 1) };
            history.peaks.extend([202, 302].map(needed));
            history.peaks.extend((0..others).map(|at| needed(310 + at)));
            history.foresee(&rules).map(|foreseen| (foreseen.from, foreseen.confidence))
        };
        assert_eq!(foreseen(0), None, "needed in two of four seasons, which is half of .8");
        assert_eq!(foreseen(PEAKS_MAX as u64 - 2), Some((402, 0.8)));
    }

    /// A controller that is started anew in every bucket, and is away for less than one each time, sees the season where it is.
    #[test]
    fn buckets_stay_where_they_are_over_times_in_which_nobody_looks() {
        let rules = ForesightRules { bucket_intervals: 10, ..ForesightRules::default() };
        let (mut seen, mut restarted) = (History::default(), History::default());
        for bucket in 0..100u64 {
            let at_load = f64::from(load(bucket as usize, 24, 0.0));
            (0..10).for_each(|_| assert!(seen.push(at_load, &rules) == (seen.intervals == 0)));
            (0..7).for_each(|_| assert!(!restarted.push(at_load, &rules)));
            restarted.pass(3, &rules);
            assert_eq!((restarted.now(), restarted.intervals), (bucket + 1, 0));
        }
        seen.find_season();
        restarted.find_season();
        assert_eq!(restarted.season.unwrap().1.unwrap().period, seen.season.unwrap().1.unwrap().period);
        // 4 intervals of an open bucket, 13 in which nobody looked: 7 are left over.
        (0..4).for_each(|_| assert!(!seen.push(10.0, &rules)));
        seen.pass(13, &rules);
        assert_eq!((seen.now(), seen.intervals), (101, 7));
        // So long that all there was is forgotten; what is left over is still known.
        seen.pass(1_000_006, &rules);
        assert_eq!((seen.loads.len(), seen.intervals), (rules.buckets_max, 3));
        assert!(seen.is_sound(&rules));
    }

    #[test]
    fn what_was_needed_twice_is_foreseen_a_third_time_and_no_sooner() {
        let rules = ForesightRules { bucket_intervals: 2, buckets_max: 200, ..ForesightRules::default() };
        let held =
            |season: usize| vec![BlockRange { first: 7 * season as u64, end: 7 * season as u64 + 1_000 }];
        let mut history = History::default();
        let mut foreseen_at = Vec::new();
        for at in 0..24 * 4 {
            let bucket = at as u64;
            // Needed in buckets 20 to 23 of each 24; noticed a bucket late.
            if at % 24 == 21 {
                history.begin(peak(bucket - 1, 1_000 + bucket));
                history.open_peak().unwrap().resident = Some(held(at / 24).into());
            }
            if at % 24 == 23 {
                history.end();
            }
            for _ in 0..2 {
                history.push(f64::from(load(at, 24, 0.0)), &rules);
            }
            if history.wants_season() {
                history.find_season();
            }
            if let Some(foreseen) = history.foresee(&rules) {
                foreseen_at.push((
                    at % 24,
                    at / 24,
                    foreseen.from % 24,
                    foreseen.until % 24,
                    foreseen.peak.blocks,
                ));
            }
        }
        // After bucket 17 of the third season (the open bucket is 18 then), two buckets ahead of 20; the size is that of the second peak, 1,000 + 45.
        assert_eq!(foreseen_at.first(), Some(&(17, 2, 20, 0, 1_045)));
        assert!(
            foreseen_at.iter().all(|(at, season, ..)| *season >= 2 && (17..=23).contains(at)),
            "{foreseen_at:?}"
        );
        // Another controller that is told of it foresees the same, also where nobody looked for half of the fourth season.
        let text = serde_json::to_string(&history).unwrap();
        let kept: History = serde_json::from_str(&text).unwrap();
        let mut recalled = kept.clone().recalled(&rules, Some).expect("it is sound");
        assert!(kept.recalled(&ForesightRules { buckets_max: 20, ..rules }, Some).is_none());
        recalled.find_season();
        assert_eq!(recalled.foresee(&rules), history.foresee(&rules));
        recalled.pass(2 * 18, &rules);
        recalled.find_season();
        let foreseen = recalled.foresee(&rules).expect("it is the time before a peak");
        assert_eq!((foreseen.from % 24, foreseen.period), (20, 24));
        assert_eq!(foreseen.peak.was_resident(), Some(held(3).as_slice()));
        // What did not come is not foreseen again before its time is over.
        let mut wrong = history.clone();
        wrong.was_wrong(u64::MAX);
        assert_eq!(wrong.foresee(&rules), None);
    }
}
