//! The Hybrid Store paper's controllers of a run: one for each volume with a latency objective, and a master that grants.
//!
//! The master grants what is asked for while it lasts; beyond, it cuts all requests by the same share (ours: the paper
//! does not say).

use crate::scenario::Scenario;
use crate::simulation::Client;
use crate::volume::{Volume, World};
use forebay_control::eafc::Eafc;
use forebay_control::{Observation, Operations, Target};
use forebay_units::Bytes;

/// See the module; empty where another law decides.
#[derive(Debug, Default)]
pub(crate) struct Papers {
    /// By place of the volume.
    laws: Vec<Option<Eafc>>,
    /// What is left for them, in bytes.
    memory: Bytes,
}

impl Papers {
    pub(crate) fn new(
        scenario: &Scenario,
        world: &mut World,
        volumes: &[Volume],
        clients: &mut [Client],
    ) -> Papers {
        let fixed: Bytes = scenario.volume.iter().filter_map(|volume| volume.cache).sum();
        let memory = scenario.cache.memory.saturating_sub(fixed);
        let takes = |at: usize| {
            let table = &scenario.volume[at];
            let latency = |client: &Client| {
                client.tracks.iter().any(|track| matches!(track.objective.target, Target::Latency { .. }))
            };
            table.cache.is_none() && table.may_cache && latency(&clients[at])
        };
        let takers: Vec<bool> = (0..volumes.len()).map(takes).collect();
        let count = takers.iter().filter(|takes| **takes).count().max(1) as u64;
        let mut laws = Vec::new();
        for (at, takes) in takers.into_iter().enumerate() {
            laws.push(takes.then(|| Eafc::new(scenario.eafc)));
            if takes {
                let table = &scenario.volume[at];
                let share = Bytes(memory.get() / count / 4).min(table.maximum.unwrap_or(table.size));
                let blocks = table.block_size().blocks_for(share);
                volumes[at].set_quota(world, blocks);
                clients[at].quota = blocks;
            }
        }
        Papers { laws, memory }
    }

    /// What each volume has from now on, where that changes: its place and its blocks.
    pub(crate) fn step(
        &mut self,
        scenario: &Scenario,
        observation: &Observation,
        clients: &mut [Client],
    ) -> Vec<(usize, u64)> {
        let began = observation.at.saturating_since(observation.interval);
        let mut wanted = Vec::new();
        for (at, law) in self.laws.iter_mut().enumerate() {
            let (table, client, observed) = (&scenario.volume[at], &clients[at], &observation.volumes[at]);
            let Some(law) = law else { continue };
            let block = table.block_size();
            let most = table.maximum.unwrap_or(table.size).min(self.memory);
            let active = client.tracks.iter().filter(|track| track.is_active(began));
            let bound = active.filter_map(|track| match track.objective.target {
                Target::Latency { at_most, operations, .. } => Some((at_most, operations)),
                _ => None,
            });
            let blocks = match bound.min_by_key(|(at_most, _)| *at_most) {
                Some((at_most, operations)) => {
                    let mut latencies = observed.hits.clone();
                    match operations {
                        Operations::Writes => latencies = observed.writes.clone(),
                        Operations::Reads => latencies.merge(&observed.misses),
                        Operations::All => {
                            latencies.merge(&observed.misses);
                            latencies.merge(&observed.writes);
                        }
                    }
                    let mean = latencies.mean().map(|mean| mean.as_secs_f64());
                    let chunk = (scenario.control.chunk_bytes >> block.shift()).max(1);
                    law.step(mean, at_most.as_secs_f64(), client.quota, chunk, block.blocks_for(most))
                }
                None => client.quota,
            };
            wanted.push((at, blocks, blocks << block.shift()));
        }
        let sum: u64 = wanted.iter().map(|(.., bytes)| bytes).sum();
        let cut = self.memory.as_f64() / (sum.max(1) as f64);
        wanted
            .into_iter()
            .map(|(at, blocks, _)| (at, if cut < 1.0 { (blocks as f64 * cut) as u64 } else { blocks }))
            .filter(|(at, blocks)| clients[*at].quota != *blocks)
            .collect()
    }
}
