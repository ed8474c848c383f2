//! The paper's model alone: its transitions, and the simulated device by which its level is chosen.

use super::{ANY, About, Fidelity, GenerateOptions, Generator, Link, Model, Transition};
use forebay_devmodel::{
    DiskGroup, DiskGroupParameters, DiskParameters, DiskRequest, DiskRequestId, DiskRequestKind,
};
use forebay_trace::Operation;
use forebay_units::{ByteRange, Nanos};
use std::collections::BTreeMap;

/// A transition between two ranges as the paper has it: every feature over all its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainTransition {
    /// The state before.
    pub from: u32,
    /// The state that the request is in.
    pub to: u32,
    /// Its share of all requests, 0 to 1.
    pub probability: f64,
    /// The share that reads.
    pub reads: f64,
    /// The share that is random.
    pub random: f64,
    /// The commonest size in bytes, and its share.
    pub size: (u64, f64),
    /// Mean inter-arrival time in microseconds.
    pub gap_us: f64,
}

/// The paper's state diagram: a transition for each pair of states, without the rare ones that the model does not keep apart.
/// The likeliest first.
pub fn plain_transitions(model: &Model) -> Vec<PlainTransition> {
    let total: u64 = model.phases.iter().map(|phase| phase.requests).sum();
    let mut pairs: BTreeMap<(u32, u32), Vec<&Transition>> = BTreeMap::new();
    for row in &model.transitions {
        if row.from != ANY && row.to != ANY && row.requests > 0 {
            pairs.entry((row.from, row.to)).or_default().push(row);
        }
    }
    let mut found: Vec<PlainTransition> = pairs
        .into_iter()
        .map(|((from, to), rows)| {
            let count: u64 = rows.iter().map(|row| row.requests).sum();
            let share = |of: &dyn Fn(&Transition) -> bool| {
                rows.iter().filter(|row| of(row)).map(|row| row.requests).sum::<u64>() as f64 / count as f64
            };
            let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
            for row in &rows {
                *sizes.entry(model.kinds[row.kind as usize].bytes).or_default() += row.requests;
            }
            let (bytes, most) = sizes.into_iter().max_by_key(|(_, count)| *count).expect("there is a row");
            PlainTransition {
                from,
                to,
                probability: count as f64 / total as f64,
                reads: share(&|row| model.kinds[row.kind as usize].operation == Operation::Read),
                random: share(&|row| !matches!(row.link, Link::Follow | Link::Along)),
                size: (bytes, most as f64 / count as f64),
                gap_us: rows.iter().map(|row| row.gap_us * row.requests as f64).sum::<f64>() / count as f64,
            }
        })
        .collect();
    found.sort_by(|a, b| b.probability.total_cmp(&a.probability).then((a.from, a.to).cmp(&(b.from, b.to))));
    found
}

/// Requests that a level is judged by.
const TRIAL_REQUESTS: u64 = 20_000;
/// Requests that are outstanding on the device at all times.
const OUTSTANDING: usize = 8;

/// Requests per second that a disk of 7,200 rpm completes of the plain model's requests, eight always outstanding. Volumes lie one
/// behind the other on it.
pub(super) fn device_iops(model: &Model) -> f64 {
    let options = GenerateOptions {
        seed: 1,
        requests: Some(TRIAL_REQUESTS),
        fidelity: Fidelity::Plain,
        ..GenerateOptions::default()
    };
    // The device sets the pace, so that the model's own times do not matter; its windows are not there yet.
    let about = About { seconds: 0.0, ..model.about.clone() };
    let model = Model { about, ..model.clone() };
    let mut generator = Generator::of_checked(&model, &options).expect("these options suit every model");
    let mut starts = vec![0u64];
    for &bytes in generator.volume_bytes() {
        starts.push(starts[starts.len() - 1].saturating_add(bytes));
    }
    // Whole stripes, as the device has no others.
    let capacity = starts[starts.len() - 1].clamp(1, 1 << 62).next_multiple_of(1 << 20);
    let disk = DiskGroupParameters::striped(1, DiskParameters::rpm_7200(capacity));
    let mut device = DiskGroup::new(disk).expect("the preset is sound");
    let (mut batch, mut completions, mut now, mut sent) = (Vec::new(), Vec::new(), Nanos::ZERO, 0u64);
    while generator.next_batch(&mut batch) > 0 {
        for request in &batch {
            while device.outstanding() >= OUTSTANDING {
                now = device.next_event().expect("requests are outstanding").max(now);
                device.advance(now, &mut completions);
                completions.clear();
            }
            let kind = match request.operation {
                Operation::Write => DiskRequestKind::Write,
                _ => DiskRequestKind::Read,
            };
            let offset = starts[request.volume.0 as usize].saturating_add(request.offset).min(capacity - 1);
            let length = request.length.min(capacity - offset).min(16 << 20);
            if length > 0 {
                let request =
                    DiskRequest { id: DiskRequestId(sent), kind, range: ByteRange::new(offset, length) };
                device.submit(now, request).expect("few are outstanding, and the range was cut to fit");
                sent += 1;
            }
        }
    }
    if now == Nanos::ZERO { 0.0 } else { sent as f64 / now.as_secs_f64() }
}
