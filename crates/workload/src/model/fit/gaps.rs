//! Times between requests, as few different ones as have a letter each.

use super::super::windows::{Window, rounded, time_cell};

/// Different times of a model that stay as they are.
const TIMES_KEPT: usize = 80;

/// Gives steps the mean time of those that are about as long, where there are many different ones: sums stay what they are, to three digits.
pub(super) fn tell_few(windows: &mut [Window]) {
    let mut steps: Vec<&mut u64> =
        windows.iter_mut().flat_map(|window| &mut window.steps).map(|step| &mut step.gap_ns).collect();
    let mut times: Vec<u64> = steps.iter().map(|gap| **gap).collect();
    times.sort_unstable();
    times.dedup();
    if times.len() <= TIMES_KEPT {
        return;
    }
    let mut cells: Vec<(u64, f64)> = vec![(0, 0.0); time_cell(u64::MAX as f64) + 1];
    for gap in &steps {
        let cell = &mut cells[time_cell(**gap as f64)];
        *cell = (cell.0 + 1, cell.1 + **gap as f64);
    }
    for gap in &mut steps {
        let (count, sum) = cells[time_cell(**gap as f64)];
        **gap = rounded((sum / count as f64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::windows::{Step, Use, Whereabouts};
    use super::*;

    fn told(gaps: &[u64]) -> Vec<u64> {
        let at = Whereabouts::At { area: 0, sectors: 0, used: Use::New };
        let steps = gaps.iter().map(|&gap_ns| Step { kind: 0, gap_ns, at }).collect();
        let mut windows = [Window { stands_for: 1, after: 0, steps, threads: Vec::new() }];
        tell_few(&mut windows);
        windows[0].steps.iter().map(|step| step.gap_ns).collect()
    }

    #[test]
    fn few_times_stay_and_of_many_sums_do() {
        let few: Vec<u64> = (0..80).collect();
        assert_eq!(told(&few), few);
        let many: Vec<u64> = (0..100_000).map(|at| forebay_units::mix64(at) % 1_000_000 * (at % 7)).collect();
        let found = told(&many);
        let sum = |gaps: &[u64]| gaps.iter().sum::<u64>() as f64;
        assert!((sum(&found) / sum(&many) - 1.0).abs() < 0.001);
        for (before, after) in many.iter().zip(&found) {
            let share = *after as f64 / (*before).max(1) as f64;
            assert!(
                (*before == 0) == (*after == 0) && (*before == 0 || (0.88..1.13).contains(&share)),
                "{before}, {after}"
            );
        }
        let mut different = found;
        different.sort_unstable();
        different.dedup();
        assert!(different.len() < 6 * 23, "six to each octave up to 2^23, not {}", different.len());
    }
}
