//! Prewarming: what is worth loading before it is asked for, and in which order.
//!
//! All of it is pure arithmetic on what a cache remembers of its workloads: snapshots of what was cached ([`ScoreTable`]), visits of
//! zones ([`Visits`]), where a workload goes on from where it is ([`Neighbours`]), how much of it that foretells ([`Foretold`]), and what loading is worth then
//! ([`Outlook`]). It loads nothing, and does not know what a
//! snapshot looks like on disk. The daemon and the simulator use the same code.
//!
//! For the daemon: whether a cache that begins is loaded ([`decide_takeover`]), and looked at again once it is used ([`SecondLook`]), in which order ([`load_order`], [`resident_ranges`]) and how fast ([`Pace`]).
//!
//! Not to be mixed up with [`crate::warmup`], which decides whether hot zones are loaded into a cache that was just granted.

mod choice;
mod foretold;
mod neighbours;
mod order;
mod outlook;
mod pace;
mod scores;
mod second_look;
mod takeover;
mod visits;

pub use choice::{Entry, LoadScore};
pub use foretold::Foretold;
pub use neighbours::{Chance, Neighbours, Place};
pub use order::{keep_best, load_order, resident_ranges};
pub use outlook::{Outlook, RateClass, Sight};
pub use pace::{CYCLE, Pace, RATE_MIN, RESTS, TICK_MS};
pub use scores::{Heuristic, ScoreTable};
pub use second_look::{Look, SecondLook};
pub use takeover::{HORIZON_S, Takeover, TakeoverInput, TakeoverSkip, decide_takeover};
pub use visits::{VisitRules, Visits};
