//! What a law could reach that knows a load by all of its draws but the one that it is judged by.
//!
//! The optimum is the least size for one draw of a load, of whose windows one or two decide. Who holds the mean optimum of the other draws, or a little more
//! of it, knows more than any law can find out while it runs; what he falls short by is chance.

use crate::cases::Case;
use crate::judge::{Judged, Row, SIZE_MAX};
use std::collections::BTreeMap;

/// What is held of the mean optimum of the other draws.
const HELD: [f64; 4] = [1.0, 1.02, 1.04, 1.06];

/// Of each part of it: in how many runs it is at least the optimum, and how many of those within what is allowed of it.
pub(crate) fn print(cases: &[Case], results: &BTreeMap<(usize, u64), Vec<Judged>>) {
    let judged: Vec<Vec<f64>> = (0..cases.len())
        .map(|at| {
            results.iter().filter(|((case, _), _)| *case == at).map(|(_, all)| all[0]).collect::<Vec<_>>()
        })
        .enumerate()
        .filter(|(at, of_case)| of_case.len() > 1 && Row::of(&cases[*at], of_case).is_judged())
        .map(|(_, of_case)| {
            of_case.iter().map(|judged| judged.optimum().bytes()).filter(|&bytes| bytes > 0.0).collect()
        })
        .collect();
    let runs: usize = judged.iter().map(Vec::len).sum();
    if runs == 0 {
        return;
    }
    println!(
        "who holds so many times the mean optimum of the other seeds: in how many of {runs} runs that is as much as the optimum, and in how many of \
         them within {SIZE_MAX} of it"
    );
    for held in HELD {
        let ratios = judged.iter().flat_map(|optima| {
            let sum: f64 = optima.iter().sum();
            optima.iter().map(move |own| held * (sum - own) / (optima.len() - 1) as f64 / own)
        });
        let (enough, within) = ratios
            .filter(|ratio| *ratio >= 1.0)
            .fold((0, 0), |(enough, within), ratio| (enough + 1, within + usize::from(ratio <= SIZE_MAX)));
        println!("{held:.2}: {enough}, {within}");
    }
}
