//! The simulator is validated, not assumed: closed forms with the error printed, conservation, determinism, the loop
//! with the controller, and scenarios that are refused.

mod closed_forms;
mod control_loop;
mod devices;
mod flags;
mod hybrid_store;
mod keys;
mod least_sizes;
mod promises;
mod refusals;
mod runs;
mod tier;

use forebay_sim::scenario::Scenario;
use forebay_sim::{Outcome, Simulation, Traces};

/// Reads a scenario.
fn scenario(text: &str) -> Scenario {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs it without traces.
fn run(scenario: &Scenario, seed: u64) -> Outcome {
    Simulation::new(scenario, &Traces::new(), Some(seed)).expect("a good scenario").run()
}

/// Prints what was found beside the closed form, and fails where they differ by more than `tolerance`.
fn compare(what: &str, found: f64, expected: f64, tolerance: f64) {
    let error = found / expected - 1.0;
    println!("{what}: simulated {found:.3}, closed form {expected:.3}, error {:+.2} %", error * 100.0);
    assert!(error.abs() < tolerance, "{what}: {found} against {expected}");
}
