//! The parametric generator of PRESTO's volumes: clusters of strided requests that start in hotspots.
//!
//! It is not a model of a real volume: nothing in it is periodic, and its only temporal locality is that of a cluster and of the
//! hotspots' rates. The same specification and seed give the same requests on every machine.
//!
//! Source: PRESTO (slides, "Workload: synthetic") and its published generator (github.com/skrtbhtngr/presto, Apache-2.0), whose
//! rules are re-implemented here:
//!
//! * Each second has int(Normal(mean, deviation)) requests, evenly spaced from the second's start on; a negative count is drawn again.
//! * A cluster starts at a uniform sector of a hotspot chosen by its share of the requests, and has U(1, max) requests of one kind (read
//!   or write). Hotspots lie in the given order with equal gaps between them and at both ends.
//! * A request's size is drawn by weight. The next one starts an odd U(1, max) number of sectors away: four fifths forward from
//!   its end, one fifth backward from its start. So a cluster may leave its hotspot. At the volume's borders it ends.
//!
//! Ours: counts whose parts go to the next second, where asked for ([`Counts::Carried`]); integer sectors where the original draws fractions, and one count drawn again where the original draws the whole series
//! again (with its parameters neither happens once in a million seconds).

use crate::generator::{Random, random, unit};
use forebay_units::Nanos;
use rand::Rng;

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// A part of the volume that gets a part of its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hotspot {
    /// Its weight among the clusters: its share of them is this over the sum of all.
    pub weight: f64,
    /// Its share of the volume, 0 to 1; the shares' sum is at most 1.
    pub share: f64,
}

/// How the number of a second's requests becomes a whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// What is beyond a whole number is dropped, as the published generator does: half a request a second is missing on average.
    #[default]
    Cut,
    /// It goes to the next second, so that the mean is met.
    Carried,
}

/// What a volume's requests are like.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// The size of the volume in bytes.
    pub bytes: u64,
    /// Mean of the requests of a second.
    pub iops_mean: f64,
    /// Their standard deviation.
    pub iops_deviation: f64,
    /// What becomes of parts of requests.
    pub counts: Counts,
    /// The longest cluster, in requests; at least 1.
    pub cluster_max: u32,
    /// The longest stride within a cluster, in sectors; at least 1.
    pub stride_max: u32,
    /// The hotspots, from the volume's start to its end.
    pub hotspots: Vec<Hotspot>,
    /// Weights and sizes in bytes of the requests; sizes are whole sectors.
    pub sizes: Vec<(f64, u32)>,
    /// The share of clusters that read, 0 to 1.
    pub read_share: f64,
}

impl VolumeSpec {
    /// First and end sector of each hotspot; those that cover a little more than all, as thirds that were rounded up, are a little smaller.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let sectors = (self.bytes / SECTOR_BYTES) as f64;
        let shares: f64 = self.hotspots.iter().map(|hotspot| hotspot.share).sum();
        let gap = (1.0 - shares).max(0.0) / (self.hotspots.len() + 1) as f64;
        let mut at = gap;
        let range = |hotspot: &Hotspot| {
            let end = (at + hotspot.share / shares.max(1.0)).min(1.0);
            let range = ((at * sectors) as u64, (end * sectors) as u64);
            at = end + gap;
            range
        };
        self.hotspots.iter().map(range).collect()
    }

    /// Whether a request of some size fits wherever a hotspot begins: from one where none does, none would ever come.
    pub fn has_room(&self) -> bool {
        let least = self.sizes.iter().filter(|size| size.0 > 0.0).map(|size| u64::from(size.1)).min();
        let room = |range: (u64, u64)| (self.bytes / SECTOR_BYTES).saturating_sub(range.0) * SECTOR_BYTES;
        let mut used =
            self.ranges().into_iter().zip(&self.hotspots).filter(|(_, hotspot)| hotspot.weight > 0.0);
        used.all(|(range, _)| least.is_some_and(|least| least <= room(range)))
    }
}

/// The sizes of all of PRESTO's synthetic requests: 80 % of 4 KiB, 10 % of 8 KiB, 5 % of 16 KiB, 5 % of 128 KiB.
pub const SIZES: [(f64, u32); 4] = [(80.0, 4_096), (10.0, 8_192), (5.0, 16_384), (5.0, 131_072)];

/// The hotspot sets of the published generator: pairs of (per cent of the requests, per cent of the volume). (The slides show the two
/// columns the other way round.)
const HOTSPOTS: [&[(u8, u8)]; 10] = [
    &[(10, 1), (10, 1), (30, 10), (40, 20), (10, 1)],
    &[(90, 80), (5, 1), (5, 1)],
    &[(25, 10), (25, 10), (25, 10), (25, 10)],
    &[(20, 5), (20, 5), (20, 5), (20, 5), (20, 5)],
    &[(20, 80), (80, 20)],
    &[(10, 1), (10, 1), (10, 1), (10, 2), (10, 2), (10, 2), (10, 3), (10, 3), (10, 3), (10, 3)],
    &[(5, 1), (90, 50), (5, 1)],
    &[(20, 1), (20, 2), (20, 3), (20, 4), (20, 5)],
    &[(50, 5), (50, 5)],
    &[(10, 25), (20, 25), (30, 25), (40, 25)],
];

/// A volume of the published generator's list: which one, and how many requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SynVolume {
    /// Its number in the list: 501 to 590. It has 100 GiB; the longest cluster (10, 20, 30), the longest stride (10,000, 2,000,
    /// 1,000) and the hotspot set follow from it, in this order of significance.
    pub id: u16,
    /// Mean requests per second; their standard deviation is a fifth of it.
    pub iops: u16,
}

/// The volumes of Syn6GB. Their rates are the slides'; which volume of the list each is follows from its name (rates agree within 0.5 %).
pub const SYN6GB: [SynVolume; 6] = [
    SynVolume { id: 520, iops: 50 },
    SynVolume { id: 521, iops: 25 },
    SynVolume { id: 539, iops: 100 },
    SynVolume { id: 540, iops: 150 },
    SynVolume { id: 554, iops: 200 },
    SynVolume { id: 570, iops: 150 },
];

/// The volumes of Syn4GB: ours, from the same list, since the slides say only that they need less cache than Syn6GB's.
pub const SYN4GB: [SynVolume; 6] = [
    SynVolume { id: 512, iops: 50 },
    SynVolume { id: 523, iops: 100 },
    SynVolume { id: 537, iops: 100 },
    SynVolume { id: 548, iops: 150 },
    SynVolume { id: 561, iops: 150 },
    SynVolume { id: 590, iops: 25 },
];

impl SynVolume {
    /// Its specification.
    ///
    /// # Panics
    /// If the number is not of the list.
    pub fn spec(&self) -> VolumeSpec {
        assert!((501..=590).contains(&self.id), "the list has the volumes 501 to 590, found {}", self.id);
        let place = usize::from(self.id - 501);
        VolumeSpec {
            bytes: 100 << 30,
            iops_mean: f64::from(self.iops),
            iops_deviation: f64::from(self.iops) / 5.0,
            counts: Counts::Cut,
            cluster_max: [10, 20, 30][place / 30],
            stride_max: [10_000, 2_000, 1_000][place / 10 % 3],
            hotspots: HOTSPOTS[place % 10]
                .iter()
                .map(|&(weight, share)| Hotspot {
                    weight: f64::from(weight),
                    share: f64::from(share) / 100.0,
                })
                .collect(),
            sizes: SIZES.to_vec(),
            read_share: 0.5,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, since the start.
    pub at: Nanos,
    /// Its first sector.
    pub sector: u64,
    /// Its length; it ends within the volume.
    pub bytes: u32,
    /// Whether it reads.
    pub read: bool,
}

/// The requests of a volume, without end.
#[derive(Clone, Debug)]
pub struct Requests {
    spec: VolumeSpec,
    /// First and end sector of each hotspot.
    ranges: Vec<(u64, u64)>,
    hotspot_weights: f64,
    size_weights: f64,
    sectors: u64,
    random: Random,
    second: u64,
    in_second: u32,
    of_second: u32,
    /// The part of a request that the next second begins with.
    carried: f64,
    cluster_left: u32,
    sector: u64,
    read: bool,
    spare_normal: Option<f64>,
}

impl Requests {
    /// The requests that `spec` and `seed` give.
    ///
    /// # Panics
    /// If the specification has no hotspot or size, a weight or share below 0, shares above 1 in sum (but for two millionths), a hotspot below a sector, a
    /// size that is larger than the volume, a maximum of 0, a mean that is not above 0, or [no room](VolumeSpec::has_room).
    pub fn new(spec: VolumeSpec, seed: u64) -> Requests {
        let sectors = spec.bytes / SECTOR_BYTES;
        let shares: f64 = spec.hotspots.iter().map(|hotspot| hotspot.share).sum();
        assert!(spec.hotspots.iter().all(|hotspot| hotspot.share >= 0.0 && hotspot.weight >= 0.0));
        assert!(shares <= 1.0 + 2e-6, "hotspots cover {shares} of the volume, at most all of it can be");
        assert!(spec.cluster_max >= 1 && spec.stride_max >= 1 && spec.iops_mean > 0.0);
        let largest =
            spec.sizes.iter().map(|size| u64::from(size.1)).max().expect("a volume needs a size of requests");
        assert!(largest <= spec.bytes && spec.sizes.iter().all(|size| size.0 >= 0.0 && size.1 > 0));
        let ranges = spec.ranges();
        assert!(ranges.iter().all(|range| range.1 > range.0), "a hotspot has no sector: {ranges:?}");
        assert!(spec.has_room(), "no request fits where a hotspot begins");
        let hotspot_weights = spec.hotspots.iter().map(|hotspot| hotspot.weight).sum();
        let size_weights = spec.sizes.iter().map(|size| size.0).sum();
        assert!(hotspot_weights > 0.0 && size_weights > 0.0, "some weight must be above 0");
        let mut requests = Requests {
            spec,
            ranges,
            hotspot_weights,
            size_weights,
            sectors,
            random: random(seed),
            second: 0,
            in_second: 0,
            of_second: 0,
            carried: 0.0,
            cluster_left: 0,
            sector: 0,
            read: true,
            spare_normal: None,
        };
        requests.of_second = requests.next_count();
        requests
    }

    /// Places of the hotspots: first and end sector, in their order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// How many requests a second has.
    fn next_count(&mut self) -> u32 {
        loop {
            let count = self.spec.iops_mean + self.spec.iops_deviation * self.normal();
            match self.spec.counts {
                Counts::Cut if count > -1.0 => return count as u32,
                Counts::Carried if count >= 0.0 => {
                    let all = self.carried + count;
                    self.carried = all.fract();
                    return all as u32;
                }
                _ => {}
            }
        }
    }

    /// A normal variate, by the polar method (Marsaglia and Bray, SIAM Review 6(3), 1964).
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * unit(&mut self.random) - 1.0, 2.0 * unit(&mut self.random) - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare_normal = Some(y * factor);
                return x * factor;
            }
        }
    }

    fn start_cluster(&mut self) {
        let mut draw = unit(&mut self.random) * self.hotspot_weights;
        let mut chosen = 0;
        for (place, hotspot) in self.spec.hotspots.iter().enumerate() {
            chosen = place;
            draw -= hotspot.weight;
            if draw < 0.0 {
                break;
            }
        }
        let (first, end) = self.ranges[chosen];
        self.sector = self.random.random_range(first..end);
        self.cluster_left = self.random.random_range(1..=self.spec.cluster_max);
        self.read = unit(&mut self.random) < self.spec.read_share;
    }

    fn size(&mut self) -> u32 {
        let mut draw = unit(&mut self.random) * self.size_weights;
        let mut chosen = 0;
        for &(weight, bytes) in &self.spec.sizes {
            chosen = bytes;
            draw -= weight;
            if draw < 0.0 {
                break;
            }
        }
        chosen
    }

    /// Goes on within the cluster from a request of `bytes`.
    fn stride(&mut self, bytes: u32) {
        let odd_strides = self.spec.stride_max.div_ceil(2);
        let stride = 2 * u64::from(self.random.random_range(0..odd_strides)) + 1;
        let forward = unit(&mut self.random) < 0.8;
        let next = if forward {
            Some(self.sector + stride + u64::from(bytes) / SECTOR_BYTES)
        } else {
            self.sector.checked_sub(stride)
        };
        match next {
            Some(sector) if sector >= 1 && sector < self.sectors => {
                self.sector = sector;
                self.cluster_left -= 1;
            }
            _ => self.cluster_left = 0,
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.in_second == self.of_second {
            self.second += 1;
            self.in_second = 0;
            self.of_second = self.next_count();
        }
        let (sector, bytes) = loop {
            if self.cluster_left == 0 {
                self.start_cluster();
            }
            let bytes = self.size();
            if self.sector * SECTOR_BYTES + u64::from(bytes) <= self.sectors * SECTOR_BYTES {
                break (self.sector, bytes);
            }
            self.cluster_left = 0;
        };
        let within = u64::from(self.in_second) * 1_000_000_000 / u64::from(self.of_second);
        let request =
            Request { at: Nanos(self.second * 1_000_000_000 + within), sector, bytes, read: self.read };
        self.in_second += 1;
        self.stride(bytes);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_hour(volume: SynVolume, seed: u64) -> Vec<Request> {
        Requests::new(volume.spec(), seed).take_while(|request| request.at < Nanos::secs(3_600)).collect()
    }

    #[test]
    fn the_lists_volumes_have_their_parameters() {
        let of = |id| SynVolume { id, iops: 50 }.spec();
        // 520 is the 20th: clusters of 10, the second stride, the tenth set. 570 is the 70th: 60..89 has clusters of 30.
        for (id, cluster, stride, hotspots, share) in [
            (520, 10, 2_000, 4, 1.0),
            (521, 10, 1_000, 5, 0.33),
            (539, 20, 10_000, 2, 0.1),
            (570, 30, 10_000, 4, 1.0),
        ] {
            let spec = of(id);
            assert_eq!(
                (spec.cluster_max, spec.stride_max, spec.hotspots.len()),
                (cluster, stride, hotspots),
                "{id}"
            );
            let covered: f64 = spec.hotspots.iter().map(|hotspot| hotspot.share).sum();
            assert!((covered - share).abs() < 1e-9, "{id}: {covered}");
        }
        for set in HOTSPOTS {
            assert_eq!(set.iter().map(|hotspot| u32::from(hotspot.0)).sum::<u32>(), 100);
        }
        // Two spots of 5 % in gaps of 30 %: 30 to 35 % and 65 to 70 %.
        let sectors = (100u64 << 30) / SECTOR_BYTES;
        let near = |found: u64, share: f64| (found as f64 / sectors as f64 - share).abs() < 1e-6;
        let requests = Requests::new(of(539), 1);
        let [first, second] = requests.ranges() else { panic!("expected two") };
        assert!(near(first.0, 0.3) && near(first.1, 0.35) && near(second.0, 0.65) && near(second.1, 0.7));
    }

    #[test]
    fn rates_sizes_kinds_and_places_are_as_specified() {
        let requests = of_hour(SynVolume { id: 539, iops: 100 }, 3);
        let count = requests.len() as f64;
        // 3,600 seconds of 100 +- 20, cut to whole numbers: 99.5 on average, standard error 0.33.
        assert!((count / 3_600.0 - 99.5).abs() < 1.5, "{count}");
        assert!(requests.is_sorted_by_key(|request| request.at));
        let share =
            |test: &dyn Fn(&Request) -> bool| requests.iter().filter(|&r| test(r)).count() as f64 / count;
        for (weight, bytes) in SIZES {
            assert!((share(&|request| request.bytes == bytes) - weight / 100.0).abs() < 0.005, "{bytes}");
        }
        assert!((share(&|request| request.read) - 0.5).abs() < 0.02);
        let sectors = ((100u64 << 30) / SECTOR_BYTES) as f64;
        let inside =
            |request: &Request, from: f64, to: f64| (from..to).contains(&(request.sector as f64 / sectors));
        // Clusters leave their spots by some MiB of 5 GiB only.
        let spots =
            share(&|request| inside(request, 0.3, 0.35)) + share(&|request| inside(request, 0.65, 0.7));
        assert!(spots > 0.99, "{spots}");
    }

    #[test]
    fn rates_that_are_no_whole_numbers_are_met_where_parts_are_carried() {
        let rate = |counts, iops_mean, iops_deviation| {
            let spec = VolumeSpec { counts, iops_mean, iops_deviation, ..SYN6GB[1].spec() };
            let hour = Requests::new(spec, 3).take_while(|request| request.at < Nanos::secs(3_600));
            hour.count() as f64 / 3_600.0
        };
        assert_eq!((rate(Counts::Cut, 1.5, 0.0), rate(Counts::Carried, 1.5, 0.0)), (1.0, 1.5));
        // 3,600 draws with a deviation of 4: a standard error of .07.
        let (cut, carried) = (rate(Counts::Cut, 99.5, 4.0), rate(Counts::Carried, 99.5, 4.0));
        assert!((cut - 99.0).abs() < 0.2 && (carried - 99.5).abs() < 0.2, "{cut} {carried}");
    }

    #[test]
    fn strides_are_odd_and_forward_in_four_of_five() {
        // Clusters of at most 20 on 10 GiB of hotspots: two clusters hardly ever begin within 10,000 sectors of each other's ends.
        let requests = of_hour(SynVolume { id: 539, iops: 100 }, 5);
        let (mut forward, mut backward) = (0u32, 0u32);
        for pair in requests.windows(2) {
            let end = pair[0].sector + u64::from(pair[0].bytes) / SECTOR_BYTES;
            if let Some(stride) = pair[1].sector.checked_sub(end).filter(|stride| *stride <= 10_000) {
                forward += stride as u32 % 2;
            } else if pair[0].sector.checked_sub(pair[1].sector).is_some_and(|stride| stride <= 10_000) {
                backward += 1;
            }
        }
        let share = f64::from(forward) / f64::from(forward + backward);
        assert!((share - 0.8).abs() < 0.01, "{share}");
        // Of 20 lengths from 1 to 20, 19 of 10.5 requests on average follow another of their cluster.
        let following = f64::from(forward + backward) / requests.len() as f64;
        assert!((following - 9.5 / 10.5).abs() < 0.01, "{following}");
    }

    #[test]
    fn a_seed_repeats_and_another_does_not() {
        let take = |seed| Requests::new(SYN6GB[0].spec(), seed).take(500).collect::<Vec<_>>();
        assert_eq!(take(4), take(4));
        assert_ne!(take(4), take(5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_request_lies_within_the_volume(
            megabytes in 1u64..64, cluster_max in 1u32..40, stride_max in 1u32..20_000, iops in 1.0f64..300.0, seed: u64,
        ) {
            let spec = VolumeSpec {
                bytes: megabytes << 20,
                iops_mean: iops,
                iops_deviation: iops,
                cluster_max,
                stride_max,
                ..SYN6GB[1].spec()
            };
            let mut before = Nanos::ZERO;
            for request in Requests::new(spec, seed).take(300) {
                prop_assert!(request.sector * SECTOR_BYTES + u64::from(request.bytes) <= megabytes << 20);
                prop_assert!(request.at >= before);
                before = request.at;
            }
        }
    }
}
