//! Tests only. `tests/simtest` runs the real data path on a simulated network, simulated origins and a virtual clock; [`fuzz`] holds
//! what the fuzzers run, so that the stable suite replays their corpus through the same code.
//!
//! Nothing ships from here. `sim` predicts, this room tests.

pub mod fuzz;
