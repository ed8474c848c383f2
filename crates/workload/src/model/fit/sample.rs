//! Which windows of a trace are kept, where not all are: so that what they stand for adds up to what the trace has.
//!
//! A window that is left out is stood for by a neighbour. Of all pairs of neighbours that may become one, and of the two ways to do so, that is
//! chosen after which sums over what is kept (reads, sizes, random requests, times of reuse, time, and how long requests would wait) are nearest to the
//! sums over all: errors of earlier choices are made good by later ones. Waits do not simply add up: a burst that is played twice waits for itself. So stretches in which much is waited
//! for are neither left out nor played more than once while there are others. (A discrepancy walk; the choice of sums and the greedy rule are ours.)

use super::super::windows::Window;
use crate::compare::Device;
use forebay_trace::{Operation, Request};

/// What is summed over a window.
pub(super) const SUMS: usize = WAITS + 2;
/// Reads and other requests by octaves of their size.
const SIZES: usize = 14;
const VOLUMES: usize = 2 * SIZES;
/// Once kinds are known: all reads; before it the commonest kinds, behind it other reads, and others.
const READS: usize = VOLUMES - 3;
const VOLUME_CELLS: usize = 8;
const THREADS: usize = VOLUMES + VOLUME_CELLS;
const THREAD_CELLS: usize = 8;
const RANDOM: usize = THREADS + THREAD_CELLS;
const BYTES: usize = RANDOM + 1;
const SPAN: usize = BYTES + 1;
/// Bytes that are new, then used again by octaves of how many requests ago.
const REUSES: usize = SPAN + 1;
const OCTAVES: usize = 22;
/// Latencies on disks, and on flash.
const WAITS: usize = REUSES + OCTAVES;

pub(super) type Sums = [f32; SUMS];

/// A window stands for at most so many times the requests that windows stand for in the mean (ours).
const STANDS_FOR_MAX: f64 = 8.0;
/// How much more an error counts that nothing makes good: of the waits that are left out and played again instead (ours).
const RISK: f32 = 10.0;

/// Pairs of neighbours that are looked at for a merge; of more, some in turn (ours).
const PAIRS_MAX: usize = 1 << 10;
/// Plays that are given from one window to another at most; the best of so many that give and get are taken; and by which share the error must become less (ours).
const REFINEMENTS_MAX: usize = 512;
const REFINED: usize = 24;
const REFINEMENT_LEAST: f32 = 1e-4;

/// By how much each sum may be off: so large a share of another one (ours, some of the bounds of `compare`).
fn tolerance(at: usize, totals: &[f64; SUMS]) -> f64 {
    let requests: f64 = totals[VOLUMES..THREADS].iter().sum();
    match at {
        0..VOLUMES => 0.001 * requests,
        VOLUMES..RANDOM => 0.000_2 * requests,
        RANDOM => 0.003 * requests,
        BYTES => 0.005 * totals[BYTES],
        SPAN => 0.005 * totals[SPAN],
        REUSES..WAITS => 0.002 * totals[REUSES..WAITS].iter().sum::<f64>(),
        _ => 0.01 * totals[at],
    }
}

/// Devices whose latencies are summed, by rough rules: what they do is to be right only as far as it differs between windows. Parts of a
/// request go to units in turn, by their addresses; each unit serves its parts one after the other.
#[derive(Clone, Debug)]
struct Units {
    free_at_ns: Vec<f64>,
    ends: Vec<u64>,
    part_bytes: u64,
}

impl Units {
    fn new(units: usize, part_bytes: u64) -> Units {
        Units { free_at_ns: vec![0.0; units], ends: vec![u64::MAX; units], part_bytes }
    }

    /// The latency of a request that comes at `now`, where `service_ns` says how long a unit needs for a number of bytes, and whether these go on from its last ones.
    fn latency_ns(
        &mut self,
        now: f64,
        start: u64,
        length: u64,
        service_ns: impl Fn(u64, bool) -> f64,
    ) -> f64 {
        let mut done = now;
        let mut at = start;
        while at < start + length {
            let until = (at / self.part_bytes + 1).saturating_mul(self.part_bytes).min(start + length);
            let unit = (at / self.part_bytes % self.free_at_ns.len() as u64) as usize;
            let free_at = &mut self.free_at_ns[unit];
            *free_at = free_at.max(now) + service_ns(until - at, self.ends[unit] == at);
            done = done.max(*free_at);
            // Where the unit's next part begins.
            self.ends[unit] = match until % self.part_bytes {
                0 => until.saturating_add(self.part_bytes * (self.free_at_ns.len() as u64 - 1)),
                _ => until,
            };
            at = until;
        }
        done - now
    }
}

/// Sums over the window that is not yet complete.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    sums: Sums,
    now_ns: f64,
    /// Ten disks, in stripes of 64 KiB.
    disks: Units,
    /// 32 dies, in pages of 16 KiB.
    dies: Units,
}

impl Tally {
    pub(super) fn new() -> Tally {
        let (disks, dies) = (Units::new(10, 64 << 10), Units::new(32, 16 << 10));
        Tally { sums: [0.0; SUMS], now_ns: 0.0, disks, dies }
    }

    /// The next request: its time since the one before, whether it goes on from the last one of its volume, and how many requests ago it was used,
    /// if it was.
    pub(super) fn add(&mut self, request: &Request, gap_ns: u64, goes_on: bool, ago: Option<u64>) {
        let reads = request.operation == Operation::Read;
        let octave = request.length.max(512).ilog2() as usize - 9;
        self.sums[octave.min(SIZES - 1) + if reads { 0 } else { SIZES }] += 1.0;
        self.sums[VOLUMES + request.volume.0 as usize % VOLUME_CELLS] += 1.0;
        self.sums[THREADS + usize::from(request.thread.0) % THREAD_CELLS] += 1.0;
        self.sums[RANDOM] += if goes_on { 0.0 } else { 1.0 };
        let kib = request.length as f64 / 1024.0;
        self.sums[BYTES] += kib as f32;
        self.sums[SPAN] += gap_ns as f32;
        let octave = ago.map_or(0, |ago| ago.max(1).ilog2() as usize + 1);
        self.sums[REUSES + octave.min(OCTAVES - 1)] += kib.min(1024.0) as f32;
        self.now_ns += gap_ns as f64;
        let length = request.length.min(LENGTH_MAX);
        let disk = |bytes: u64, goes_on: bool| bytes as f64 * 6.0 + if goes_on { 0.0 } else { 7e6 };
        let die = |_: u64, _: bool| if reads { 80e3 } else { 680e3 };
        let disk_ns = self.disks.latency_ns(self.now_ns, request.offset, length, disk);
        let flash_ns = self.dies.latency_ns(self.now_ns, request.offset, length, die);
        self.sums[WAITS] += disk_ns as f32;
        self.sums[WAITS + 1] += flash_ns as f32;
    }

    /// Ends the window.
    pub(super) fn take(&mut self) -> Sums {
        std::mem::replace(&mut self.sums, [0.0; SUMS])
    }
}

/// What is longer counts as so long, where it would take time to look at all of it.
const LENGTH_MAX: u64 = 4 << 20;

/// A window that is kept, without its steps.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its number among those that were kept while the trace was read.
    window: usize,
    steps: u64,
    stands_for: u64,
    sums: Sums,
}

impl Kept {
    /// How often it is to be played.
    fn plays(&self) -> f32 {
        self.stands_for as f32 / self.steps.max(1) as f32
    }
}

/// Which windows are kept of those seen so far, and how often each is to be played.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    kept: Vec<Kept>,
    /// Sums over all windows seen.
    totals: [f64; SUMS],
    /// Sums over all windows less those over what is kept, each as often as it is to be played.
    missing: [f64; SUMS],
    /// The first pair that is looked at next.
    turn: usize,
}

impl Selection {
    fn new() -> Selection {
        Selection { kept: Vec::new(), totals: [0.0; SUMS], missing: [0.0; SUMS], turn: 0 }
    }

    /// Wants more waits, or fewer: so large a share of what there is, on a device.
    pub(super) fn aim(&mut self, device: Device, share: f64) {
        let at = WAITS + device as usize;
        self.missing[at] += share * self.totals[at];
    }

    /// Those of the windows of the sample that are kept.
    pub(super) fn of(&self, windows: &[Window]) -> Vec<Window> {
        let window = |kept: &Kept| Window { stands_for: kept.stands_for, ..windows[kept.window].clone() };
        self.kept.iter().map(window).collect()
    }

    /// Counts requests by their types and sizes in place of octaves, now that it is known which these are. `windows` are those of the sample; of each
    /// kind is told how many requests there were, and whether they read.
    pub(super) fn count_kinds(&mut self, windows: &[Window], kinds: &[(u64, bool)]) {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        order.sort_by_key(|&kind| (std::cmp::Reverse(kinds[kind].0), kind));
        // The rare ones share a cell for each type.
        let mut cells: Vec<usize> =
            kinds.iter().map(|&(_, reads)| VOLUMES - 1 - usize::from(reads)).collect();
        (0..READS).zip(order).for_each(|(cell, kind)| cells[kind] = cell);
        self.totals[..VOLUMES].fill(0.0);
        for (&(requests, reads), &cell) in kinds.iter().zip(&cells) {
            self.totals[cell] += requests as f64;
            self.totals[READS] += if reads { requests as f64 } else { 0.0 };
        }
        self.missing[..VOLUMES].copy_from_slice(&self.totals[..VOLUMES]);
        for kept in &mut self.kept {
            kept.sums[..VOLUMES].fill(0.0);
            for step in &windows[kept.window].steps {
                let kind = step.kind as usize;
                kept.sums[cells[kind]] += 1.0;
                kept.sums[READS] += if kinds[kind].1 { 1.0 } else { 0.0 };
            }
            let plays = f64::from(kept.plays());
            (0..VOLUMES).for_each(|at| self.missing[at] -= plays * f64::from(kept.sums[at]));
        }
    }

    /// One over the square of the tolerance of each sum; 0 where there is nothing to sum.
    fn weights(&self) -> Sums {
        std::array::from_fn(|at| match tolerance(at, &self.totals) {
            0.0 => 0.0,
            tolerance => tolerance.powi(-2) as f32,
        })
    }

    /// Lets windows that are played more than once give plays to others, wherever these are, as long as sums get nearer to those over all.
    pub(super) fn refine(&mut self) {
        let weights = self.weights();
        let requests: u64 = self.kept.iter().map(|kept| kept.stands_for).sum();
        let steps = self.kept.iter().map(|kept| kept.steps).max().unwrap_or(0);
        let most = (requests as f64 / self.kept.len().max(1) as f64 * STANDS_FOR_MAX) as u64;
        let mut mean = [0.0; SUMS];
        for kept in &self.kept {
            (0..SUMS).for_each(|at| mean[at] += kept.sums[at] / self.kept.len() as f32);
        }
        for _ in 0..REFINEMENTS_MAX {
            let off: f32 = self
                .missing
                .iter()
                .zip(&weights)
                .map(|(&missing, weight)| (missing as f32).powi(2) * weight)
                .sum();
            let (change, from, to) = self.best_gift(&weights, &mean, steps, most);
            if -change <= off * REFINEMENT_LEAST {
                break;
            }
            self.kept[from].stands_for -= steps;
            self.kept[to].stands_for += steps;
            for at in 0..SUMS {
                self.missing[at] += f64::from(self.kept[from].sums[at] - self.kept[to].sums[at]);
            }
        }
    }

    /// Which window is to give a play of so many steps to which other one, and by how much the error changes; 0 where no gift makes it less. `mean` are the sums of
    /// the mean window, from which others differ by little, and `most` is what a window may stand for.
    fn best_gift(&self, weights: &Sums, mean: &Sums, steps: u64, most: u64) -> (f32, usize, usize) {
        let missing: Sums = std::array::from_fn(|at| self.missing[at] as f32);
        // What changes where a window gives a play, and where it gets one, but for the product of both.
        let mut give: Vec<(f32, usize)> = Vec::new();
        let mut get = give.clone();
        for (number, kept) in self.kept.iter().enumerate().filter(|(_, kept)| kept.steps == steps) {
            let (mut pull, mut square) = (0.0, 0.0);
            for at in 0..SUMS {
                let from_mean = kept.sums[at] - mean[at];
                pull += missing[at] * from_mean * weights[at];
                square += from_mean * from_mean * weights[at];
            }
            if kept.stands_for >= 2 * steps {
                give.push((2.0 * pull + square, number));
            }
            if kept.stands_for + steps <= most {
                let waits = kept.sums[WAITS..].iter().zip(&weights[WAITS..]);
                let risk: f32 = waits.map(|(wait, weight)| wait * wait * weight).sum();
                get.push((-2.0 * pull + square + RISK * risk, number));
            }
        }
        for list in [&mut give, &mut get] {
            list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            list.truncate(REFINED);
        }
        let mut best = (0.0, 0, 0);
        for &(given, from) in &give {
            for &(got, to) in get.iter().filter(|(_, to)| *to != from) {
                let [a, b] = [from, to].map(|number| &self.kept[number].sums);
                let product: f32 =
                    (0..SUMS).map(|at| (a[at] - mean[at]) * (b[at] - mean[at]) * weights[at]).sum();
                let change = given + got - 2.0 * product;
                if change < best.0 {
                    best = (change, from, to);
                }
            }
        }
        best
    }

    /// Keeps so many windows at most.
    pub(super) fn shrink(&mut self, windows_max: usize) {
        while self.kept.len() > windows_max.max(1) {
            self.merge(windows_max.max(1));
        }
    }

    /// Two neighbours become one; the index of the one that is left out.
    fn merge(&mut self, windows_max: usize) -> usize {
        let weights = self.weights();
        let missing: Sums = std::array::from_fn(|at| self.missing[at] as f32);
        let requests: u64 = self.kept.iter().map(|kept| kept.stands_for).sum();
        let most = (requests as f64 / windows_max as f64 * STANDS_FOR_MAX) as u64;
        let pairs = self.kept.len() - 1;
        let from = if self.turn + PAIRS_MAX <= pairs { self.turn } else { pairs.saturating_sub(PAIRS_MAX) };
        let to = pairs.min(from + PAIRS_MAX);
        self.turn = if to == pairs { 0 } else { to };
        let mut best = (f32::INFINITY, from, false);
        for at in from..to {
            let [one, other] = [&self.kept[at], &self.kept[at + 1]];
            if one.stands_for + other.stands_for > most.max(2 * one.steps) {
                continue;
            }
            // Keeping the first leaves out `other` as often as it was to be played.
            for (keeps_first, gone, kept) in [(true, other, one), (false, one, other)] {
                let plays = gone.plays();
                let more = gone.stands_for as f32 / kept.steps.max(1) as f32;
                let off = error_if_merged(&missing, &weights, (&gone.sums, plays), (&kept.sums, more));
                let risk: f32 = (WAITS..SUMS)
                    .map(|at| {
                        let changed = plays * gone.sums[at] + more * kept.sums[at];
                        changed * changed * weights[at]
                    })
                    .sum();
                let off = off + RISK * risk;
                if off < best.0 {
                    best = (off, at, keeps_first);
                }
            }
        }
        let (_, at, keeps_first) = best;
        let (gone, stays) = if keeps_first { (at + 1, at) } else { (at, at + 1) };
        let other = self.kept[gone];
        let kept = &mut self.kept[stays];
        let before = kept.plays();
        kept.stands_for += other.stands_for;
        let more = kept.plays() - before;
        for at in 0..SUMS {
            self.missing[at] += f64::from(other.plays() * other.sums[at] - more * kept.sums[at]);
        }
        self.kept.remove(gone);
        gone
    }
}

/// Sums that are added up side by side, as a processor does: a sum in order has to wait for each of its terms, and takes 2.4 times as long (110 ns for 71 of them, 45 so).
const LANES: usize = 8;

/// The error where a window is left out that was to be played so often, and another one is played so often more. This is where the time of a merge goes.
fn error_if_merged(missing: &Sums, weights: &Sums, gone: (&Sums, f32), kept: (&Sums, f32)) -> f32 {
    let square = |at: usize| {
        let missing = missing[at] + gone.1 * gone.0[at] - kept.1 * kept.0[at];
        missing * missing * weights[at]
    };
    let mut lanes = [0.0; LANES];
    for from in (0..SUMS / LANES * LANES).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += square(from + lane);
        }
    }
    lanes.iter().sum::<f32>() + (SUMS / LANES * LANES..SUMS).map(square).sum::<f32>()
}

/// The windows that are kept of those seen so far.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    selection: Selection,
    windows: Vec<Window>,
    windows_max: usize,
}

impl Sample {
    pub(super) fn new(windows_max: usize) -> Sample {
        Sample { selection: Selection::new(), windows: Vec::new(), windows_max: windows_max.max(1) }
    }

    /// The next window. Where there are too many, two neighbours become one.
    pub(super) fn add(&mut self, window: Window, sums: Sums) {
        let Selection { kept, totals, .. } = &mut self.selection;
        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += f64::from(sum));
        let (steps, stands_for) = (window.steps.len() as u64, window.stands_for);
        kept.push(Kept { window: 0, steps, stands_for, sums });
        self.windows.push(window);
        if self.windows.len() > self.windows_max {
            self.windows.remove(self.selection.merge(self.windows_max));
        }
    }

    /// The windows that are kept, and a selection of all of them.
    pub(super) fn finish(mut self) -> (Vec<Window>, Selection) {
        for (number, (kept, window)) in self.selection.kept.iter_mut().zip(&mut self.windows).enumerate() {
            kept.window = number;
            window.stands_for = kept.stands_for;
        }
        (self.windows, self.selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Step, Use, Whereabouts};
    use forebay_trace::{ThreadNumber, VolumeIndex};
    use forebay_units::Nanos;

    fn window(steps: usize) -> Window {
        let at = Whereabouts::At { area: 0, sectors: 0, used: Use::New };
        let threads = Vec::new();
        Window {
            stands_for: steps as u64,
            after: 0,
            steps: vec![Step { kind: 0, gap_ns: 0, at }; steps],
            threads,
        }
    }

    /// The sums of a window of 100 requests, of which some read, over so many nanoseconds.
    fn sums(reads: f32, span: f32) -> Sums {
        let mut sums = [0.0; SUMS];
        (sums[0], sums[SIZES], sums[VOLUMES], sums[SPAN]) = (reads, 100.0 - reads, 100.0, span);
        sums
    }

    /// Two of the sums are 1 off, the first and the last; a window leaves 2 of both out, and another one has 3 more of them, half as often.
    #[test]
    fn errors_of_merges_by_hand() {
        let (mut missing, mut weights, mut gone, mut kept) =
            ([0.0; SUMS], [0.0; SUMS], [0.0; SUMS], [0.0; SUMS]);
        for at in [0, SUMS - 1] {
            (missing[at], weights[at], gone[at], kept[at]) = (1.0, 10.0, 2.0, 3.0);
        }
        // 1 + 1 * 2 - 0.5 * 3 = 1.5, squared and ten times, twice.
        assert_eq!(error_if_merged(&missing, &weights, (&gone, 1.0), (&kept, 0.5)), 45.0);
        assert_eq!(
            error_if_merged(&missing, &[1.0; SUMS], (&[1.0; SUMS], 1.0), (&[0.0; SUMS], 0.5)),
            SUMS as f32 + 6.0
        );
    }

    #[test]
    fn what_is_kept_adds_up() {
        let mut sample = Sample::new(32);
        let (mut reads, mut spans) = (0.0, 0.0);
        for at in 0..1_000u64 {
            // Reads rise and fall, and one window in ten takes a hundred times as long.
            let read = (50.0 + 40.0 * (at as f32 / 30.0).sin()).round();
            let span = if forebay_units::mix64(at).is_multiple_of(10) { 1e9 } else { 1e7 };
            (reads, spans) = (reads + f64::from(read), spans + f64::from(span));
            sample.add(window(100), sums(read, span));
        }
        let kept = &sample.selection.kept;
        assert_eq!((kept.len(), sample.windows.len()), (32, 32));
        let of =
            |sum: usize| -> f64 { kept.iter().map(|kept| f64::from(kept.plays() * kept.sums[sum])).sum() };
        let stand_for: Vec<u64> = kept.iter().map(|kept| kept.stands_for).collect();
        assert_eq!(stand_for.iter().sum::<u64>(), 100_000);
        assert!(stand_for.iter().all(|&requests| requests <= 8 * 100_000 / 32), "{stand_for:?}");
        // Windows that are chosen evenly or by chance are off by some per cent of the reads, and by about 40 % of the span.
        assert!((of(0) / reads - 1.0).abs() < 0.01, "{} of {reads}", of(0));
        assert!((of(SPAN) / spans - 1.0).abs() < 0.02, "{} of {spans}", of(SPAN));
    }

    /// A third of the windows has one kind only, of which a neighbour cannot make good: what is given to windows far away can.
    #[test]
    fn plays_are_given_until_kinds_add_up() {
        let mut sample = Sample::new(100);
        let kind = |at: u64| u32::from(forebay_units::mix64(at).is_multiple_of(3));
        for at in 0..100 {
            let mut window = window(100);
            window.steps.iter_mut().for_each(|step| step.kind = kind(at));
            sample.add(window, sums(50.0, 1e7));
        }
        let others = (0..100).filter(|&at| kind(at) == 1).count() as u64 * 100;
        let (windows, mut selection) = sample.finish();
        selection.count_kinds(&windows, &[(10_000 - others, true), (others, false)]);
        selection.shrink(21);
        // All is played by windows of the first kind that can be.
        let is_other = |kept: &Kept| kind(kept.window as u64) == 1;
        let mut more = 0;
        for kept in selection.kept.iter_mut().filter(|kept| is_other(kept)) {
            more += kept.stands_for - 100;
            kept.stands_for = 100;
        }
        selection.kept.iter_mut().find(|kept| !is_other(kept)).unwrap().stands_for += more;
        let of = |selection: &Selection| -> u64 {
            selection.kept.iter().filter(|kept| is_other(kept)).map(|kept| kept.stands_for).sum()
        };
        assert!(of(&selection) + 1_000 < others, "{} of {others}", of(&selection));
        selection.count_kinds(&windows, &[(10_000 - others, true), (others, false)]);
        selection.refine();
        assert!(of(&selection).abs_diff(others) <= 100, "{} of {others}", of(&selection));
        assert!(selection.kept.iter().all(|kept| kept.stands_for >= 100));
    }

    /// Every tenth window waits a hundred times as long as the others do together: all of them are kept, and played once.
    #[test]
    fn bursts_are_kept_and_played_once() {
        let mut sample = Sample::new(70);
        for at in 0..200 {
            let mut sums = sums(50.0, 1e7);
            sums[WAITS] = if at % 10 == 5 { 1e9 } else { 5e4 };
            sample.add(window(100), sums);
        }
        let bursts: Vec<u64> = sample
            .selection
            .kept
            .iter()
            .filter(|kept| kept.sums[WAITS] > 1e8)
            .map(|kept| kept.stands_for)
            .collect();
        assert_eq!(bursts, [100; 20]);
    }

    #[test]
    fn latencies_by_hand() {
        let mut tally = Tally::new();
        let request = |offset, length, operation| Request {
            time: Nanos::ZERO,
            offset,
            length,
            latency: Nanos::MAX,
            thread: ThreadNumber::UNKNOWN,
            volume: VolumeIndex(0),
            operation,
        };
        // Two reads of the first stripe unit: the second waits for the first. 7 ms and 6 ns a byte each.
        tally.add(&request(0, 1_000, Operation::Read), 0, false, None);
        tally.add(&request(8_192, 1_000, Operation::Read), 1_000_000, false, None);
        let sums = tally.take();
        assert_eq!(sums[WAITS], 7.006e6 + (2.0 * 7.006e6 - 1e6));
        // One die: 80 us, and it was free again when the second came.
        assert_eq!(sums[WAITS + 1], 2.0 * 80e3);
        // A write over two disks that goes on where the first one ended: the later of 6 ns a byte after all before, and 7 ms more.
        tally.add(&request(9_192, (64 << 10) - 9_192 + 512, Operation::Write), 100_000_000, true, Some(2));
        let sums = tally.take();
        assert_eq!((sums[WAITS], sums[SIZES + 6], sums[RANDOM]), (7e6 + 512.0 * 6.0, 1.0, 0.0));
        assert_eq!(sums[REUSES + 2], (56_344.0 + 512.0) / 1024.0);
    }
}
