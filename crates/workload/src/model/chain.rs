//! The paper's chain: which state, kind and link follow on a state.

use super::strata::Table;
use super::{ANY, Link, StateModel, Transition};
use crate::generator::Random;

/// A transition, resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) to: u32,
    pub(super) kind: u32,
    pub(super) link: Link,
    pub(super) gap_us: f64,
}

/// Rows that follow on something, and the table over them; its last entry stands for the rows of the next coarser step.
#[derive(Clone, Debug)]
struct Step {
    first: u32,
    count: u32,
    table: Table,
}

/// A chain.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    rows: Vec<Row>,
    /// By state.
    from_state: Vec<Option<Step>>,
    /// Rows that may follow on anything.
    from_any: Option<Step>,
    /// Over all rows, for what this chain does not know.
    all: Table,
}

impl Chain {
    /// The chain of `transitions`; `None` without any.
    pub(super) fn new(transitions: &[Transition], states: &[StateModel]) -> Option<Chain> {
        let mut sorted: Vec<&Transition> = transitions.iter().filter(|row| row.requests > 0).collect();
        // What left by coarser rows comes last of its step.
        sorted.sort_by_key(|row| (row.from, row.to == ANY));
        let mut rows = Vec::new();
        let mut from_state = vec![None; states.len()];
        let mut from_any = None;
        let mut weights = Vec::new();
        for group in sorted.chunk_by(|a, b| a.from == b.from) {
            let first = rows.len() as u32;
            for row in group.iter().filter(|row| row.to != ANY) {
                rows.push(Row { to: row.to, kind: row.kind, link: row.link, gap_us: row.gap_us });
                weights.push(row.requests as f64);
            }
            let count = rows.len() as u32 - first;
            let Some(table) = Table::new(group.iter().map(|row| row.requests as f64)) else { continue };
            let step = Step { first, count, table };
            match group[0].from {
                ANY => from_any = Some(step),
                state => from_state[state as usize] = Some(step),
            }
        }
        let all = Table::new(weights.into_iter())?;
        Some(Chain { rows, from_state, from_any, all })
    }

    /// A row that may follow on a state.
    #[inline]
    pub(super) fn draw(&mut self, state: u32, random: &mut Random) -> Row {
        let steps = [self.from_state[state as usize].as_mut(), self.from_any.as_mut()];
        for step in steps.into_iter().flatten() {
            let drawn = step.table.draw(random) as u32;
            if drawn < step.count {
                return self.rows[(step.first + drawn) as usize];
            }
        }
        self.rows[self.all.draw(random)]
    }
}
