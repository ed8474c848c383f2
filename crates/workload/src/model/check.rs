//! What a model must be for anything to be generated from it: every index is that of something, every number is in its range.
//!
//! The first thing that is wrong is told by the path of its field. Nothing is mended.

use super::{ANY, MODEL_SCHEMA, MODEL_SCHEMAS_READ, Model, Whereabouts, Window, placement};
use std::fmt::Display;
use thiserror::Error;

/// A model that nothing can be generated from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("model field `{field}` is {found}: expected {expected}")]
pub struct ModelError {
    /// Which field, as a path.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would do.
    pub expected: String,
}

fn wrong(field: String, found: &dyn Display, expected: String) -> Result<(), ModelError> {
    Err(ModelError { field, found: found.to_string(), expected })
}

fn below(field: String, index: u32, length: usize) -> Result<(), ModelError> {
    match (index as usize) < length {
        true => Ok(()),
        false => wrong(field, &index, format!("an index below {length}")),
    }
}

fn finite(field: String, value: f64) -> Result<(), ModelError> {
    match value.is_finite() && (0.0..=1e18).contains(&value) {
        true => Ok(()),
        false => wrong(field, &value, "a number from 0 to 1e18".into()),
    }
}

impl Model {
    /// Whether something can be generated from it.
    ///
    /// # Errors
    /// The first field that is out of range, or that refers to what is not there.
    pub fn check(&self) -> Result<(), ModelError> {
        self.check_lists()?;
        self.check_states()?;
        self.check_transitions()?;
        for (at, phase) in self.phases.iter().enumerate() {
            phase.gaps.check(&format!("phases[{at}].gaps"))?;
        }
        self.check_areas()?;
        for (at, window) in self.windows.iter().enumerate() {
            self.check_window(at, window)?;
        }
        Ok(())
    }

    /// What it says of itself, how long its lists are, and the threads.
    fn check_lists(&self) -> Result<(), ModelError> {
        if !MODEL_SCHEMAS_READ.contains(&self.schema.as_str()) {
            return wrong("schema".into(), &format_args!("`{}`", self.schema), format!("`{MODEL_SCHEMA}`"));
        }
        if !self.block_bytes.is_power_of_two() || !(512..=1 << 24).contains(&self.block_bytes) {
            return wrong(
                "block_bytes".into(),
                &self.block_bytes,
                "a power of two from 512 to 16777216".into(),
            );
        }
        for (name, length) in [
            ("volumes", self.volumes.len()),
            ("kinds", self.kinds.len()),
            ("states", self.states.len()),
            ("phases", self.phases.len()),
            ("windows", self.windows.len()),
        ] {
            if length == 0 || length > 1 << 20 {
                return wrong(
                    name.into(),
                    &format_args!("a list of {length}"),
                    "1 to 1048576 entries".into(),
                );
            }
        }
        finite("about.seconds".into(), self.about.seconds)?;
        if self.thread_weights.len() > usize::from(u16::MAX) {
            let found = format_args!("a list of {}", self.thread_weights.len());
            return wrong("thread_weights".into(), &found, "at most 65535 entries".into());
        }
        for (at, &weight) in self.thread_weights.iter().enumerate() {
            if !(0.0..=1.0).contains(&weight) {
                return wrong(format!("thread_weights[{at}]"), &weight, "a share from 0 to 1".into());
            }
        }
        Ok(())
    }

    /// Kinds of requests, and states.
    fn check_states(&self) -> Result<(), ModelError> {
        for (at, kind) in self.kinds.iter().enumerate() {
            if kind.bytes > forebay_trace::REQUEST_BYTES_MAX {
                let expected = format!("at most {}", forebay_trace::REQUEST_BYTES_MAX);
                return wrong(format!("kinds[{at}].bytes"), &kind.bytes, expected);
            }
            if let Some((sector, _)) = kind.sectors.iter().find(|(sector, _)| *sector > 7) {
                return wrong(format!("kinds[{at}].sectors"), sector, "sectors from 0 to 7".into());
            }
        }
        for (at, state) in self.states.iter().enumerate() {
            below(format!("states[{at}].volume"), state.volume, self.volumes.len())?;
            if state.bytes == 0 || state.first_byte.checked_add(state.bytes).is_none() {
                let field = format!("states[{at}].bytes");
                return wrong(field, &state.bytes, "a range of at least a byte that ends below 2^64".into());
            }
        }
        Ok(())
    }

    /// There are some, between states and of kinds that are there.
    fn check_transitions(&self) -> Result<(), ModelError> {
        if self.transitions.iter().all(|row| row.requests == 0 || row.to == ANY) {
            return wrong("transitions".into(), &"without requests", "at least one".into());
        }
        for (at, row) in self.transitions.iter().enumerate() {
            let field = || format!("transitions[{at}]");
            for index in [row.from, row.to] {
                if index != ANY {
                    below(field(), index, self.states.len())?;
                }
            }
            below(field(), row.kind, self.kinds.len())?;
            finite(field(), row.gap_us)?;
            if row.requests > 1 << 60 {
                return wrong(field(), &row.requests, "at most 2^60 requests".into());
            }
        }
        Ok(())
    }

    /// Areas lie in states, and have a size.
    fn check_areas(&self) -> Result<(), ModelError> {
        for (at, area) in self.areas.iter().enumerate() {
            below(format!("areas[{at}]"), area.state, self.states.len())?;
            if u64::from(area.lane) >= placement::LANES {
                return wrong(
                    format!("areas[{at}]"),
                    &area.lane,
                    format!("a lane below {}", placement::LANES),
                );
            }
        }
        if !self.area_bytes.is_power_of_two() || !(1 << 20..=1 << 40).contains(&self.area_bytes) {
            let expected = "a power of two from 1048576 to 1099511627776".into();
            return wrong("area_bytes".into(), &self.area_bytes, expected);
        }
        Ok(())
    }

    /// A window has steps, each of a kind and in an area, and the threads are those of all of them.
    fn check_window(&self, at: usize, window: &Window) -> Result<(), ModelError> {
        let field = |step: usize| format!("windows[{at}].steps[{step}]");
        if window.steps.is_empty() || window.steps.len() > 1 << 16 {
            let found = format_args!("a list of {}", window.steps.len());
            return wrong(format!("windows[{at}].steps"), &found, "1 to 65536 entries".into());
        }
        if window.stands_for == 0 || window.stands_for > 1 << 60 {
            let field = format!("windows[{at}].stands_for");
            return wrong(field, &window.stands_for, "1 to 2^60 requests".into());
        }
        for (run_at, &(thread, _)) in window.threads.iter().enumerate() {
            below(format!("windows[{at}].threads[{run_at}]"), thread.into(), self.thread_weights.len() + 1)?;
        }
        let told: u64 = window.threads.iter().map(|&(_, steps)| u64::from(steps)).sum();
        if !window.threads.is_empty() && told != window.steps.len() as u64 {
            let expected = format!("{}, one for each step", window.steps.len());
            return wrong(format!("windows[{at}].threads"), &format_args!("of {told} steps"), expected);
        }
        for (step_at, step) in window.steps.iter().enumerate() {
            below(field(step_at), step.kind, self.kinds.len())?;
            match step.at {
                Whereabouts::At { area, sectors, .. } => {
                    below(field(step_at), area, self.areas.len())?;
                    if u64::from(sectors) >= self.area_bytes / 512 {
                        return wrong(field(step_at), &sectors, "a sector of the area".into());
                    }
                }
                Whereabouts::On { .. } if step_at == 0 => {
                    return wrong(field(0), &"without a place", "a step with an area".into());
                }
                Whereabouts::On { .. } => {}
            }
        }
        Ok(())
    }
}
