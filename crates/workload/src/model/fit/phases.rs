//! Kinds of time: stretches whose requests are alike share a phase, and have inter-arrival times of their own.

use super::super::Phase;
use super::super::arrivals::GapCounter;

/// Distance of two mixtures of requests (0: alike, 2: nothing in common) above which they are different phases.
const PHASE_DISTANCE: f64 = 0.7;
/// Cells of a mixture.
const MIXTURE: usize = 64;

/// The cell of a mixture that requests of a class are counted in.
pub(super) fn mixture_cell(class: u64) -> u8 {
    (forebay_units::mix64(class) % MIXTURE as u64) as u8
}

/// A request, as phases see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) before_ns: u64,
    pub(super) gap_ns: u64,
    pub(super) cell: u8,
}

/// The mean mixture of a phase, of how many stretches, and its inter-arrival times.
#[derive(Clone, Debug)]
struct Known {
    centre: [f64; MIXTURE],
    stretches: u64,
    requests: u64,
    gaps: GapCounter,
}

/// The phases seen so far.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    known: Vec<Known>,
    phases_max: usize,
    /// The octave from which inter-arrival times are long, as the first stretch has it.
    long_from: Option<usize>,
}

impl Phases {
    pub(super) fn new(phases_max: usize) -> Phases {
        Phases { known: Vec::new(), phases_max, long_from: None }
    }

    /// The phase of the next stretch: the nearest one, or a new one (one pass of leader clustering).
    pub(super) fn add(&mut self, stretch: &[Arrival]) {
        self.long_from.get_or_insert_with(|| {
            let mut counter = GapCounter::new();
            stretch.iter().for_each(|arrival| counter.add(arrival.before_ns, arrival.gap_ns));
            counter.border()
        });
        let mut mixture = [0.0; MIXTURE];
        stretch.iter().for_each(|arrival| mixture[arrival.cell as usize] += 1.0);
        mixture.iter_mut().for_each(|share| *share /= stretch.len() as f64);
        let distance =
            |known: &Known| -> f64 { mixture.iter().zip(&known.centre).map(|(a, b)| (a - b).abs()).sum() };
        let nearest = self.known.iter().map(distance).enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let phase = match nearest {
            Some((phase, far)) if far <= PHASE_DISTANCE || self.known.len() == self.phases_max => phase,
            _ => {
                self.known.push(Known {
                    centre: [0.0; MIXTURE],
                    stretches: 0,
                    requests: 0,
                    gaps: GapCounter::new(),
                });
                self.known.len() - 1
            }
        };
        let known = &mut self.known[phase];
        known.stretches += 1;
        known.requests += stretch.len() as u64;
        for (centre, share) in known.centre.iter_mut().zip(mixture) {
            *centre += (share - *centre) / known.stretches as f64;
        }
        stretch.iter().for_each(|arrival| known.gaps.add(arrival.before_ns, arrival.gap_ns));
    }

    /// What a model tells of them.
    pub(super) fn models(&self) -> Vec<Phase> {
        let long_from = self.long_from.unwrap_or(0);
        let model = |known: &Known| Phase { requests: known.requests, gaps: known.gaps.finish(long_from) };
        self.known.iter().map(model).collect()
    }
}
