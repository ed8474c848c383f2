//! SANCache's evaluation, run again: thresholds that adapt against every one that does not, growing tiers, changing phases, and a write flood from which a tier isolates.
//!
//! The slides (MSST 2006) name the arrays (MSA, XP1024), the loads (SPC-1, TPC-C), 32 GB of array cache and 4 GB of SANCache, and show figures whose numbers are lost. Everything else here
//! is ours, and everything is smaller. It is *not* a model of those arrays. Pure: whoever wants several runs at once runs them on threads of their own.

mod isolation;
mod loads;
mod runs;

pub use isolation::{Isolation, IsolationSetup, VictimRow};
pub use loads::{LoadKind, requests};
pub use runs::{Bench, RunRow, SeriesRow};

/// What the slides say of their results, in words; all numbers of their figures are lost.
pub const PUBLISHED: [&str; 5] = [
    "There is no magic static threshold: storage configurations and loads differ.",
    "The adaptive threshold tries to match the best static one of the moment, and performs better than any static one when things change a lot.",
    "Cooling selects chunks that are hot now, and moves fewer of them.",
    "SPC-1 on an MSA and TPC-C on an XP1024: better response times and more requests per second; the numbers are lost.",
    "A write flood on another LUN fills the XP1024's 32 GB of shared cache; boosting SPC-1's LUN1 with 4 GB of SANCache restores an acceptable response time.",
];
