//! The parametric generator: loads on volumes, said by a few parameters, merged by time into one stream of requests.
//!
//! A load is arrivals (how often), a range with a pattern (where), sizes and a share of reads (what), over a span of time (when).
//! Loads that begin and end make phases; a diurnal curve makes days. PRESTO's clusters in hotspots are `presto`'s, everything else
//! is drawn by `generator`'s pickers. It is *not* a model of a real volume: see `model` for that.

use crate::generator::{BlockPicker, Random, exponential, random, unit};
use crate::presto;
use forebay_trace::{Operation, Request, ThreadNumber, VolumeIndex};
use forebay_units::{Nanos, mix64};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::TAU;

/// Where a load's requests go.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Everywhere alike.
    Uniform,
    /// By Zipf's law with this exponent, the popular places scattered.
    Zipf(f64),
    /// One after the other, from the start again at the end: a scan, and a loop where it is longer than its range.
    Sequential,
    /// Like a scan, each so many bytes after the start of the one before.
    Stride(u64),
    /// By parts of the range: pairs of (weight, share of the range), one after the other from the start, uniform within each.
    Hotspots(Vec<(f64, f64)>),
}

/// How often requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rhythm {
    /// Exponential spans: a Poisson process.
    Poisson,
    /// Equal spans.
    Constant,
}

/// A daily curve: the rate is multiplied by `1 + amplitude cos(2 pi (t - peak) / period)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diurnal {
    /// From peak to peak; above 0.
    pub period: Nanos,
    /// 0 to 1.
    pub amplitude: f64,
    /// When the rate is highest, since the start.
    pub peak: Nanos,
}

/// A load on a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Which volume.
    pub volume: u32,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub bytes: u64,
    /// Requests per second, above 0.
    pub rate: f64,
    /// How they follow on each other.
    pub rhythm: Rhythm,
    /// How the rate goes up and down.
    pub diurnal: Option<Diurnal>,
    /// Where they go.
    pub pattern: Pattern,
    /// Pairs of (weight, bytes).
    pub sizes: Vec<(f64, u64)>,
    /// Bytes, above 0: uniform and popular places, and those in hotspots, are multiples of it from the first byte of the range.
    pub align: u64,
    /// The share that reads, 0 to 1.
    pub reads: f64,
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub until: Nanos,
}

/// A specification: what comes, for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// Names of the volumes.
    pub volumes: Vec<String>,
    /// The loads.
    pub loads: Vec<Load>,
    /// Volumes of PRESTO's generator, whole.
    pub presto: Vec<(u32, presto::VolumeSpec)>,
    /// How long.
    pub duration: Nanos,
}

#[derive(Debug)]
enum Stream {
    Load(Box<LoadStream>),
    Presto(u32, Box<presto::Requests>),
}

#[derive(Debug)]
struct LoadStream {
    load: Load,
    /// By Zipf's law, the places of all that the range has.
    popular: Option<BlockPicker>,
    /// Of a stride, the place after the last.
    next: u64,
    at: Nanos,
    /// The highest rate of the diurnal curve.
    rate_most: f64,
    random: Random,
}

impl LoadStream {
    fn new(load: Load, seed: u64) -> LoadStream {
        let places = (load.bytes / load.align).max(1);
        let popular = match load.pattern {
            Pattern::Zipf(theta) => Some(BlockPicker::zipf(places, theta, mix64(seed))),
            _ => None,
        };
        let rate_most = load.rate * (1.0 + load.diurnal.map_or(0.0, |diurnal| diurnal.amplitude));
        LoadStream { at: load.from, load, popular, next: 0, rate_most, random: random(seed) }
    }

    /// The time of the next request; `None` where it lies beyond the end.
    ///
    /// A diurnal load is drawn at its highest rate, and thinned (Lewis and Shedler, 1979); with equal spans, spans are stretched.
    fn next_time(&mut self) -> Option<Nanos> {
        loop {
            let factor = match self.load.diurnal {
                None => 1.0,
                Some(diurnal) => {
                    let since = self.at.0 as f64 - diurnal.peak.0 as f64;
                    1.0 + diurnal.amplitude * (TAU * since / diurnal.period.0 as f64).cos()
                }
            };
            let span = match self.load.rhythm {
                Rhythm::Poisson => exponential(1.0 / self.rate_most, &mut self.random),
                // Not forever where the curve touches 0.
                Rhythm::Constant => 1.0 / (self.load.rate * factor.max(0.001)),
            };
            self.at = self.at.saturating_add(Nanos::from_secs_f64(span));
            if self.at >= self.load.until {
                return None;
            }
            let accepted = self.load.rhythm == Rhythm::Constant
                || unit(&mut self.random) * self.rate_most < self.load.rate * factor;
            if accepted {
                return Some(self.at);
            }
        }
    }

    fn request(&mut self) -> Request {
        let length = weighted(&self.load.sizes, &mut self.random);
        let align = self.load.align;
        // The last place from which it ends within the range.
        let last = self.load.bytes.saturating_sub(length) / align;
        let within = match &self.load.pattern {
            Pattern::Uniform | Pattern::Zipf(_) => {
                let place = match &mut self.popular {
                    Some(popular) => popular.next(&mut self.random).0.min(last),
                    None => BlockPicker::uniform(last + 1).next(&mut self.random).0,
                };
                place * align
            }
            Pattern::Sequential => self.advance(length, length),
            Pattern::Stride(stride) => self.advance(*stride, length),
            Pattern::Hotspots(parts) => {
                let numbered: Vec<(f64, usize)> =
                    parts.iter().enumerate().map(|(at, part)| (part.0, at)).collect();
                let part = weighted(&numbered, &mut self.random);
                let before: f64 = parts[..part].iter().map(|part| part.1).sum();
                let place = before + unit(&mut self.random) * parts[part].1;
                ((place * self.load.bytes as f64) as u64 / align).min(last) * align
            }
        };
        let operation = match unit(&mut self.random) < self.load.reads {
            true => Operation::Read,
            false => Operation::Write,
        };
        Request {
            time: self.at,
            offset: self.load.offset + within,
            length,
            latency: Nanos::MAX,
            thread: ThreadNumber::UNKNOWN,
            volume: VolumeIndex(self.load.volume),
            operation,
        }
    }

    /// The next place of a scan, which goes on `by` bytes after it.
    fn advance(&mut self, by: u64, length: u64) -> u64 {
        if self.next.saturating_add(length) > self.load.bytes {
            self.next = 0;
        }
        let at = self.next;
        self.next = at.saturating_add(by);
        at
    }
}

/// One of several by weight.
fn weighted<T: Copy>(choices: &[(f64, T)], random: &mut Random) -> T {
    let total: f64 = choices.iter().map(|choice| choice.0).sum();
    let mut draw = unit(random) * total;
    let mut chosen = choices[0].1;
    for &(weight, choice) in choices {
        if weight > 0.0 {
            chosen = choice;
        }
        draw -= weight;
        if draw < 0.0 {
            break;
        }
    }
    chosen
}

/// Generates the requests of a specification.
#[derive(Debug)]
pub struct Requests {
    streams: Vec<Stream>,
    /// The next request of each stream: time, then the stream's number.
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// What PRESTO's streams come to next.
    ahead: Vec<Option<Request>>,
    duration: Nanos,
    volumes: Vec<String>,
}

impl Requests {
    /// The requests that `specification` and `seed` give.
    ///
    /// # Panics
    /// If a load has no size, an alignment of 0, a rate that is not above 0, or hotspots without weight; as [`presto::Requests::new`].
    pub fn new(specification: Specification, seed: u64) -> Requests {
        let mut requests = Requests {
            streams: Vec::new(),
            heads: BinaryHeap::new(),
            ahead: Vec::new(),
            duration: specification.duration,
            volumes: specification.volumes,
        };
        for (number, load) in (0u64..).zip(specification.loads) {
            assert!(!load.sizes.is_empty() && load.rate > 0.0, "a load needs a size and a rate");
            assert!(load.align > 0, "places are multiples of something");
            let load = Load { until: load.until.min(requests.duration), ..load };
            requests.streams.push(Stream::Load(Box::new(LoadStream::new(load, mix64(seed ^ mix64(number))))));
        }
        for (number, (volume, spec)) in (0u64..).zip(specification.presto) {
            let stream = presto::Requests::new(spec, mix64(seed ^ mix64(!number)));
            requests.streams.push(Stream::Presto(volume, Box::new(stream)));
        }
        requests.ahead = vec![None; requests.streams.len()];
        (0..requests.streams.len()).for_each(|stream| requests.look_ahead(stream));
        requests
    }

    fn look_ahead(&mut self, number: usize) {
        let time = match &mut self.streams[number] {
            Stream::Load(stream) => stream.next_time(),
            Stream::Presto(volume, stream) => {
                let request = stream.next().expect("its requests have no end");
                self.ahead[number] = Some(Request {
                    time: request.at,
                    offset: request.sector * presto::SECTOR_BYTES,
                    length: u64::from(request.bytes),
                    latency: Nanos::MAX,
                    thread: ThreadNumber::UNKNOWN,
                    volume: VolumeIndex(*volume),
                    operation: if request.read { Operation::Read } else { Operation::Write },
                });
                Some(request.at).filter(|at| *at < self.duration)
            }
        };
        if let Some(time) = time {
            self.heads.push(Reverse((time, number)));
        }
    }

    /// Names of the volumes.
    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let Reverse((_, number)) = self.heads.pop()?;
        let request = match &mut self.streams[number] {
            Stream::Load(stream) => stream.request(),
            Stream::Presto(..) => self.ahead[number].take()?,
        };
        self.look_ahead(number);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pattern: Pattern) -> Load {
        Load {
            volume: 0,
            offset: 1 << 20,
            bytes: 1 << 20,
            rate: 100.0,
            rhythm: Rhythm::Constant,
            diurnal: None,
            pattern,
            sizes: vec![(1.0, 65_536)],
            align: 65_536,
            reads: 0.5,
            from: Nanos::ZERO,
            until: Nanos::MAX,
        }
    }

    fn of(loads: Vec<Load>, seconds: u64) -> Vec<Request> {
        let volumes = vec!["a".to_owned()];
        let specification =
            Specification { volumes, loads, presto: Vec::new(), duration: Nanos::secs(seconds) };
        Requests::new(specification, 7).collect()
    }

    #[test]
    fn scans_and_strides_by_hand() {
        // 16 places of 64 KiB; the 17th is the first again. Spans of 10 ms: 99 requests before the end of a second.
        let scan = of(vec![load(Pattern::Sequential)], 1);
        assert_eq!(scan.len(), 99);
        assert_eq!((scan[0].offset, scan[15].offset, scan[16].offset), (1 << 20, 31 << 16, 1 << 20));
        // Every 192 KiB: 0, 3, 6, 9, 12, 15 of 16 places, then from the start.
        let strides = of(vec![load(Pattern::Stride(3 << 16))], 1);
        let places: Vec<u64> = strides[..7].iter().map(|r| (r.offset - (1 << 20)) >> 16).collect();
        assert_eq!(places, [0, 3, 6, 9, 12, 15, 0]);
        // One that leads out of any volume begins anew each time.
        let far = of(vec![load(Pattern::Stride(u64::MAX))], 1);
        assert!(far.iter().all(|request| request.offset == 1 << 20));
    }

    /// As fio places them: small requests reach every place, and large ones begin where small ones do.
    #[test]
    fn random_requests_are_multiples_of_the_alignment_whatever_their_size() {
        let sizes = vec![(1.0, 4_096), (1.0, 65_536)];
        let mixed = |pattern| Load { sizes: sizes.clone(), align: 4_096, ..load(pattern) };
        let hotspots = Pattern::Hotspots(vec![(1.0, 0.5), (1.0, 0.5)]);
        for pattern in [Pattern::Uniform, Pattern::Zipf(0.5), hotspots] {
            let requests = of(vec![mixed(pattern.clone())], 200);
            assert!(requests.iter().all(|r| r.offset % 4_096 == 0 && r.offset + r.length <= 2 << 20));
            for (_, length) in &sizes {
                let mut places: Vec<u64> =
                    requests.iter().filter(|r| r.length == *length).map(|r| r.offset).collect();
                places.sort_unstable();
                // The last places: 10,000 draws of 256 places leave none out.
                assert_eq!(places.last(), Some(&((2 << 20) - length)), "{pattern:?}");
                places.dedup();
                assert_eq!(places.len() as u64, ((1 << 20) - length) / 4_096 + 1, "{pattern:?}");
            }
        }
        // Of uniform places none is likelier: the last has 1/241 of 10,000 as all have, within five standard deviations of 6.4.
        let last = of(vec![mixed(Pattern::Uniform)], 200);
        let last = last.iter().filter(|r| r.offset == (2 << 20) - 65_536 && r.length == 65_536).count();
        assert!((10..75).contains(&last), "{last}");
    }

    #[test]
    fn hotspots_get_their_share_within_their_range() {
        let spots = of(vec![load(Pattern::Hotspots(vec![(9.0, 0.25), (1.0, 0.75)]))], 100);
        let hot = spots.iter().filter(|r| r.offset < (1 << 20) + (1 << 18)).count();
        let share = hot as f64 / spots.len() as f64;
        // Five standard deviations of 10,000 draws.
        assert!((share - 0.9).abs() < 0.015, "{share}");
        assert!(spots.iter().all(|r| r.offset >= 1 << 20 && r.offset + r.length <= 2 << 20));
    }

    #[test]
    fn loads_are_merged_in_order_of_time_and_keep_their_spans() {
        let late = Load {
            from: Nanos::secs(5),
            until: Nanos::secs(7),
            rhythm: Rhythm::Poisson,
            ..load(Pattern::Uniform)
        };
        let all = of(vec![load(Pattern::Zipf(0.9)), late], 10);
        assert!(all.is_sorted_by_key(|request| request.time));
        let within =
            |from, to| all.iter().filter(|r| (from..to).contains(&(r.time.0 / 1_000_000_000))).count();
        assert_eq!(within(0, 5), 499);
        assert!((300..500).contains(&within(5, 7)), "{}", within(5, 7));
        assert_eq!(of(vec![load(Pattern::Uniform)], 10), of(vec![load(Pattern::Uniform)], 10));
    }

    #[test]
    fn days_have_their_peaks() {
        let diurnal = Some(Diurnal { period: Nanos::secs(100), amplitude: 0.8, peak: Nanos::secs(25) });
        for rhythm in [Rhythm::Poisson, Rhythm::Constant] {
            let day = of(vec![Load { diurnal, rhythm, ..load(Pattern::Uniform) }], 1_000);
            let (mut high, mut low) = (0.0, 0.0);
            for request in &day {
                match request.time.0 / 1_000_000_000 % 100 {
                    20..30 => high += 1.0,
                    70..80 => low += 1.0,
                    _ => {}
                }
            }
            // 1.8 to 0.2, less within ten seconds around: (1 + .8 s) / (1 - .8 s) = 8.2 with s = sin(.1 pi) / (.1 pi) = .984.
            assert!((6.8..9.8).contains(&(high / low)), "{rhythm:?} {}", high / low);
        }
    }

    #[test]
    fn prestos_volumes_are_its_generators() {
        let spec = presto::SYN6GB[0].spec();
        let specification = Specification {
            volumes: vec!["520".to_owned()],
            loads: Vec::new(),
            presto: vec![(0, spec)],
            duration: Nanos::secs(60),
        };
        let all: Vec<Request> = Requests::new(specification, 1).collect();
        assert!((2_700..3_300).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted_by_key(|request| request.time));
    }
}
