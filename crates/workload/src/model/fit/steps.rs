//! How many steps a model holds: the fewest with which what it generates is like the original in every row of [`compare`](crate::compare).
//!
//! Numbers of steps, each twice the one before, are bisected, as more steps are seldom worse; then what is between the fewest that will do and the half of them, which will not. A trace of each is generated with two seeds, and set beside the original,
//! which is still known whole where the sample holds all of it; of a longer trace the largest sample stands in for it. Rows must keep a reserve of their bounds, as other seeds are to be within them too. What is
//! quickly told is looked at first, and the first row that is beyond ends a trial. (Ours.)
//!
//! Bounded: what is generated and compared is at most [`REQUESTS_MAX`] requests for each trial, whatever the length of the trace.

use super::super::{Deviation, GenerateOptions, Generator, Model, RESERVE, StepsTrial, Window};
use super::WINDOW;
use super::sample::Selection;
use crate::compare::{Device, DeviceLayout, LatencyTrial, Measured, compare_bounded};
use crate::study::{Cache, Rearrangement, Speedup, scaled_cache_blocks};
use forebay_locality::{CurveOptions, Method};
use forebay_trace::Request;
use forebay_units::{BlockSize, Nanos};

/// Seeds of the trials; nobody asks for these by chance.
const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
/// The fewest steps that are tried, and the least share of the requests that are compared.
const STEPS_LEAST: u64 = 1 << 12;
const SHARE_LEAST: u64 = 32;
/// Requests of a trial.
const REQUESTS_MAX: u64 = 1 << 19;
/// Blocks of which a curve is found exactly, where the original is known, and where a sample stands in for it; of more it is that of a sample.
const BLOCKS_MAX: [u64; 2] = [1 << 22, 1 << 19];
/// How many numbers of steps are tried between the doubled one that will do and the half of it.
const BETWEEN: usize = 2;
/// It is only tried where the original is known, which is short, or has so many requests that reading it takes much longer than to try.
const BETWEEN_REQUESTS: u64 = 16 * REQUESTS_MAX;
/// By how many points either study may be off.
const STUDIED_POINTS: f64 = 3.0;
/// How often waits are aimed at again, as what is generated waits otherwise than what is selected did: where the original is known, and where a sample stands in for it.
const AIMS: [usize; 2] = [3, 1];
/// What is off by more of its bound is not aimed at: no aim was seen to bring it within.
const AIMED: f64 = 1.5;
/// Placements that are looked at to tell whether any will do, which is so where the mean of their latencies is so many standard deviations within the bound; how
/// many are wanted else, and tried at most.
const PROBES: usize = 6;
const DEVIATIONS: f64 = 3.0;
const PLACEMENTS: usize = 8;
const PLACEMENTS_TRIED: u32 = 24;

/// A row that is simulated, and on what.
fn device_of(metric: &str) -> Option<Device> {
    match metric {
        "latency" => Some(Device::Disks),
        "latency-flash" => Some(Device::Flash),
        _ => None,
    }
}

/// What trials are compared with.
#[derive(Debug)]
struct Reference {
    requests: Vec<Request>,
    counted: Measured,
    /// Whether the curve was found, which is done when it is asked for.
    has_curve: bool,
    curve: CurveOptions,
    /// How often waits are aimed at.
    aims: usize,
    /// Those that were asked for, by device and how volumes lay.
    latencies: Vec<(Device, DeviceLayout, Option<Nanos>)>,
    /// What a cache saves of the mean latency, and rearranging, by how volumes lay.
    saved: Vec<(DeviceLayout, Option<[f64; 2]>)>,
}

impl Reference {
    fn new(requests: Vec<Request>, is_known: bool) -> Reference {
        let blocks: u64 =
            requests.iter().map(|request| request.length / BlockSize::DEFAULT.bytes() + 1).sum();
        let most = BLOCKS_MAX[usize::from(!is_known)];
        let method = match most as f64 / blocks as f64 {
            rate if rate < 1.0 => Method::ShardsRate(rate),
            _ => Method::Exact,
        };
        let curve = CurveOptions { method, ..CurveOptions::default() };
        let counted = counted(&requests);
        let aims = AIMS[usize::from(!is_known)];
        Reference {
            requests,
            counted,
            has_curve: false,
            curve,
            aims,
            latencies: Vec::new(),
            saved: Vec::new(),
        }
    }

    /// The latency on a device of what was asked for, and of others.
    fn latencies(&mut self, device: Device, requests: &[Request], of: &Measured) -> [Option<Nanos>; 2] {
        let layout = DeviceLayout::of(&[&self.counted, of]);
        let other = latency(device, &layout, requests, of);
        let known =
            self.latencies.iter().find(|known| known.0 == device && layout.is_alike_on(device, &known.1));
        if let Some(known) = known {
            return [known.2, other];
        }
        let own = latency(device, &layout, &self.requests, &self.counted);
        self.latencies.push((device, layout, own));
        [own, other]
    }

    /// The rows that have a bound, of what a model generates, up to the first that is beyond its reserve: quickly told ones first.
    fn rows(&mut self, model: &Model, options: &GenerateOptions) -> Vec<Deviation> {
        let requests = generated(model, options);
        let mut counted = counted(&requests);
        let mut latencies = [[None; 2]; 2];
        let mut rows = bounded(&self.counted, &counted, latencies);
        rows.retain(|row| row.metric != "hit-ratio-curve");
        if !rows.iter().all(Deviation::has_reserve) {
            return rows;
        }
        if !std::mem::replace(&mut self.has_curve, true) {
            self.counted.find_curve(self.curve, &self.requests);
        }
        counted.find_curve(self.curve, &requests);
        rows = bounded(&self.counted, &counted, latencies);
        // Flash is simulated faster than disks are.
        for device in [Device::Flash, Device::Disks] {
            if rows.iter().all(Deviation::has_reserve) {
                latencies[device as usize] = self.latencies(device, &requests, &counted);
                rows = bounded(&self.counted, &counted, latencies);
            }
        }
        rows
    }

    /// The worst of the rows with either seed; the second one is not tried where the first does not do.
    fn trial(&mut self, model: &Model, options: &[GenerateOptions]) -> StepsTrial {
        let mut worst: Vec<Deviation> = Vec::new();
        for options in options {
            for row in self.rows(model, options) {
                match worst.iter_mut().find(|known| known.metric == row.metric) {
                    Some(known) if known.deviation.abs() >= row.deviation.abs() => {}
                    Some(known) => *known = row,
                    None => worst.push(row),
                }
            }
            if !worst.iter().all(Deviation::has_reserve) {
                break;
            }
        }
        StepsTrial { steps: model.steps_held(), rows: worst }
    }

    /// The windows of a selection of `all`, with as much waiting as will do; `None` where they will not do. The model says what was tried.
    fn windows(
        &mut self,
        model: &mut Model,
        mut selection: Selection,
        all: &[Window],
        options: &[GenerateOptions],
        is_between: bool,
    ) -> Option<Vec<Window>> {
        for _ in 0..=self.aims {
            selection.refine();
            model.windows = selection.of(all);
            let mut trial = self.trial(model, options);
            if is_between && trial.is_taken() {
                trial.rows.extend(self.studies(model, &options[0]));
            }
            let is_taken = trial.is_taken();
            let beyond: Vec<Deviation> =
                trial.rows.iter().filter(|row| !row.has_reserve()).cloned().collect();
            model.steps.retain(|known| known.steps != trial.steps);
            model.steps.push(trial);
            if is_taken {
                return Some(std::mem::take(&mut model.windows));
            }
            // Too few waits where there is more in the trace: as much more is aimed at.
            for row in &beyond {
                if let Some(device) = device_of(&row.metric) {
                    selection.aim(device, -row.deviation / 100.0);
                }
            }
            let is_near = |row: &Deviation| {
                device_of(&row.metric).is_some() && row.deviation.abs() <= AIMED * row.bound
            };
            if !beyond.iter().all(is_near) {
                break;
            }
        }
        None
    }

    /// By how many points of the mean latency on disks what a cache saves, and rearranging, is off. Scans that were torn may be like the original in all other rows, and not in these: on
    /// IOzone, with 91 % of its requests, rearranging made latencies worse by 75 %, and by 36 % in the original.
    fn studies(&mut self, model: &Model, options: &GenerateOptions) -> Vec<Deviation> {
        let requests = generated(model, options);
        let counted = counted(&requests);
        let layout = DeviceLayout::of(&[&self.counted, &counted]);
        let blocks = scaled_cache_blocks(self.counted.footprint_blocks());
        let other = saved(&layout, blocks, &requests, &counted);
        let known = self.saved.iter().find(|known| layout.is_alike_on(Device::Disks, &known.0));
        let own = match known {
            Some(known) => known.1,
            None => {
                let own = saved(&layout, blocks, &self.requests, &self.counted);
                self.saved.push((layout, own));
                own
            }
        };
        let (Some(own), Some(other)) = (own, other) else { return Vec::new() };
        let row = |(metric, (own, other)): (&str, (f64, f64))| Deviation {
            metric: metric.to_owned(),
            deviation: (other - own) * 100.0,
            bound: STUDIED_POINTS,
        };
        ["cache", "rearranged"].into_iter().zip(own.into_iter().zip(other)).map(row).collect()
    }

    /// The latency on disks with a placement, in per cent of the reference's.
    fn disks(&mut self, model: &mut Model, placement: u32, options: &GenerateOptions) -> Option<f64> {
        model.placements = vec![placement];
        let requests = generated(model, options);
        let counted = counted(&requests);
        let mut latencies = [[None; 2]; 2];
        latencies[Device::Disks as usize] = self.latencies(Device::Disks, &requests, &counted);
        let rows = bounded(&self.counted, &counted, latencies);
        let row = rows.into_iter().find(|row| row.metric == "latency")?;
        Some(row.deviation / row.bound)
    }

    /// Tells a model among which placements to choose, if latency on disks depends on them.
    fn choose_placements(&mut self, model: &mut Model, options: &GenerateOptions) {
        let (mut used, mut good) = (Vec::new(), Vec::new());
        for placement in 0..PLACEMENTS_TRIED {
            let Some(share) = self.disks(model, placement, options) else { break };
            used.push(share);
            if share.abs() <= RESERVE {
                good.push(placement);
            }
            if used.len() == PROBES && is_quiet(&used) {
                good.clear();
                break;
            }
            if used.len() >= PROBES && good.len() >= PLACEMENTS {
                good.truncate(PLACEMENTS);
                break;
            }
        }
        model.placements = good;
    }
}

/// Whether deviations, as shares of their bound, are so much alike that others will be within it too.
fn is_quiet(used: &[f64]) -> bool {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let variance =
        used.iter().map(|used| (used - mean).powi(2)).sum::<f64>() / (used.len() as f64 - 1.0).max(1.0);
    mean.abs() + DEVIATIONS * variance.sqrt() <= 1.0
}

/// What is quickly told.
fn counted(requests: &[Request]) -> Measured {
    let mut measured = Measured::without_curve();
    measured.requests(requests);
    measured.finish();
    measured
}

/// The shares of the mean latency on disks that a cache of so many blocks saves, and rearranging.
fn saved(layout: &DeviceLayout, blocks: u64, requests: &[Request], of: &Measured) -> Option<[f64; 2]> {
    let before = latency(Device::Disks, layout, requests, of)?;
    let (mut cache, mut changed) = (Cache::new(blocks), Vec::new());
    cache.requests(requests, &mut changed);
    let cached = latency(Device::Disks, layout, &changed, of).unwrap_or(Nanos::ZERO);
    Rearrangement::new().requests(requests, &mut changed);
    let rearranged = latency(Device::Disks, layout, &changed, of)?;
    Some([cache.mean_latency(cached), rearranged].map(|after| Speedup::of(before, after).saved))
}

/// The mean latency; `None` where nothing reaches the device, or volumes are larger than any device.
fn latency(device: Device, layout: &DeviceLayout, requests: &[Request], of: &Measured) -> Option<Nanos> {
    let mut trial = LatencyTrial::new(device, layout, of).ok()?;
    trial.requests(requests);
    trial.finish()
}

fn bounded(original: &Measured, synthetic: &Measured, latencies: [[Option<Nanos>; 2]; 2]) -> Vec<Deviation> {
    let rows = compare_bounded(original, synthetic, latencies).rows.into_iter();
    let deviation = |row: crate::compare::Row| {
        Some(Deviation { metric: row.metric.to_owned(), deviation: row.deviation?, bound: row.bound? })
    };
    rows.filter_map(deviation).collect()
}

/// All that a sound model generates.
fn generated(model: &Model, options: &GenerateOptions) -> Vec<Request> {
    let mut generator = Generator::of_checked(model, options).expect("these options suit every model");
    let (mut all, mut batch) = (Vec::with_capacity(generator.remaining() as usize), Vec::new());
    while generator.next_batch(&mut batch) > 0 {
        all.extend_from_slice(&batch);
    }
    all
}

/// Leaves `model`, which has all windows of the sample, as few of them as will do, and says in it what was tried. `original` is the trace itself, where the sample holds
/// all of it.
pub(super) fn choose(model: &mut Model, mut selection: Selection, original: Option<Vec<Request>>) {
    let requests = model.about.requests.min(REQUESTS_MAX);
    // A part of a trace without times would be its beginning.
    if requests < model.about.requests && !model.about.timed {
        return;
    }
    let seeded = |seed| {
        let share = requests as f64 / model.about.requests as f64;
        let duration = Nanos::from_secs_f64(model.about.seconds * share);
        let duration = (requests < model.about.requests).then_some(duration);
        GenerateOptions { seed, duration, ..GenerateOptions::default() }
    };
    let options = SEEDS.map(seeded);
    let held = model.steps_held();
    let least = STEPS_LEAST.max(requests.next_power_of_two() / SHARE_LEAST);
    let tried: Vec<u64> = (0..64).map(|doubled| least << doubled).take_while(|&steps| steps < held).collect();
    if tried.is_empty() {
        return;
    }
    let mut selections = vec![selection.clone()];
    for &steps in tried.iter().rev() {
        selection.shrink(steps as usize / WINDOW);
        selections.push(selection.clone());
    }
    selections.reverse();
    let is_known = original.is_some();
    let mut reference = Reference::new(original.unwrap_or_else(|| generated(model, &options[0])), is_known);
    let all = std::mem::take(&mut model.windows);
    // The fewest that were found to do; all of them until there are any.
    let mut taken: Option<Vec<Window>> = None;
    let (mut least, mut most) = (0, tried.len());
    while least < most {
        let middle = (least + most) / 2;
        match reference.windows(model, selections[middle].clone(), &all, &options, false) {
            Some(windows) => (taken, most) = (Some(windows), middle),
            None => least = middle + 1,
        }
    }
    if most > 0 && (is_known || model.about.requests >= BETWEEN_REQUESTS) {
        let (mut few, mut enough) = (tried[most - 1], tried.get(most).copied().unwrap_or(held));
        let mut selection = selections.swap_remove(most);
        for _ in 0..BETWEEN {
            let between = few.midpoint(enough);
            let mut fewer = selection.clone();
            fewer.shrink(between as usize / WINDOW);
            match reference.windows(model, fewer.clone(), &all, &options, true) {
                Some(windows) => (taken, selection, enough) = (Some(windows), fewer, between),
                None => few = between,
            }
        }
    }
    let keeps_all = taken.is_none();
    model.windows = taken.unwrap_or(all);
    if is_known {
        reference.choose_placements(model, &options[0]);
    }
    if is_known && keeps_all {
        let trial = reference.trial(model, &options);
        model.steps.push(trial);
    }
    // What the model holds comes last.
    let held = model.steps_held();
    model.steps.sort_by_key(|trial| (trial.steps == held, trial.steps));
}

#[cfg(test)]
mod tests {
    use super::super::{FitOptions, ModelFitter, Whereabouts};
    use super::*;
    use forebay_trace::{Operation, ThreadNumber, VolumeIndex};

    /// Every seventh request has no bytes, every fifth goes on from the one before it, volume 1 never occurs.
    fn request(at: u64) -> Request {
        let place = forebay_units::mix64(at - u64::from(at % 5 == 1)) % 10_000 * 8_192;
        let flush = at.is_multiple_of(7);
        Request {
            time: Nanos(at * 1_230),
            offset: if flush { 0 } else { (5 << 40) + place + if at % 5 == 1 { 4_096 } else { 0 } },
            length: if flush { 0 } else { 4_096 },
            latency: Nanos::MAX,
            volume: VolumeIndex(if at % 10 < 5 { 0 } else { 2 }),
            thread: ThreadNumber((at % 3) as u16),
            operation: if flush { Operation::Flush } else { Operation::Write },
        }
    }

    #[test]
    fn what_is_held_whole_is_known_as_it_was() {
        let requests: Vec<Request> = (0..1_000).map(request).collect();
        let mut fitter = ModelFitter::new(FitOptions::default());
        fitter.requests(&requests).unwrap();
        fitter.end_stretch();
        fitter.end_window();
        let (windows, _) = fitter.sample.clone().finish();
        let mut wanted = requests;
        wanted.iter_mut().filter(|request| request.volume.0 == 2).for_each(|request| request.volume.0 = 1);
        assert_eq!(fitter.originals(&fitter.frame(), &windows), wanted);
    }

    /// A flush lies at byte 0: with a place of its own it would tell how far into an area that is, and so the others' addresses.
    #[test]
    fn what_has_no_bytes_is_where_the_last_request_was() {
        let requests: Vec<Request> = (0..200).map(request).collect();
        let mut fitter = ModelFitter::new(FitOptions::default());
        fitter.requests(&requests).unwrap();
        let (mut last, mut ends) = ([None; 3], [(0, 0); 3]);
        for (request, step) in requests.iter().zip(&fitter.steps) {
            let volume = request.volume.0 as usize;
            let place = match step.at {
                Whereabouts::At { area, sectors, .. } => (area, sectors),
                Whereabouts::On { .. } => ends[volume],
            };
            if request.length == 0 {
                assert_eq!(place, last[volume].unwrap_or((place.0, 0)));
            } else {
                (last[volume], ends[volume]) = (Some(place), (place.0, place.1 + 8));
            }
        }
        assert!(last[0].is_some() && last[2].is_some());
    }
}
