//! Where every volume stands, for people, and the states that a step leaves.

use super::Controller;
use super::track::Track;
use super::volume::VolumeState;
use crate::conformance::Verdict;
use crate::inventory::VolumeId;
use crate::objective::Objective;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a volume stands, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeStatus {
    /// Which volume.
    pub volume: VolumeId,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: VolumeState,
    /// Its objectives, in their order.
    pub objectives: Vec<ObjectiveStatus>,
    /// The quota that was ordered.
    pub quota_blocks: u64,
    /// The volumes whose objectives its cache serves.
    pub serves: Vec<VolumeId>,
}

/// Where an objective stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectiveStatus {
    /// In words.
    pub objective: String,
    /// The number of the last window, in the unit of `bound`; absent where nothing completed.
    pub value: Option<f64>,
    /// The promised number.
    pub bound: f64,
    /// `s`, `requests/s` or `bytes/s`.
    pub unit: &'static str,
    /// What was said of the last window; absent before the first.
    pub verdict: Option<Verdict>,
    /// Share of the last windows with enough load that conform; absent where there were none.
    pub conforming_share: Option<f64>,
    /// What that share was promised to be.
    pub conforming_share_target: f64,
    /// Windows so far that conformed, that did not, and that asked for too little.
    pub windows: [u64; 3],
}

impl Controller {
    /// Where a volume stands; `None` for an unknown one.
    pub fn status(&self, id: VolumeId) -> Option<VolumeStatus> {
        let volume = self.volumes.get(&id)?;
        let objective = |(objective, track): (&Objective, &Track)| ObjectiveStatus {
            objective: objective.to_string(),
            value: track.last.and_then(|judgement| judgement.value),
            bound: objective.bound(),
            unit: objective.unit(),
            verdict: track.last.map(|judgement| judgement.verdict),
            conforming_share: track.conforming_share(),
            conforming_share_target: objective.conforming_share,
            windows: track.windows,
        };
        Some(VolumeStatus {
            volume: id,
            name: volume.spec.name.clone(),
            state: volume.state,
            objectives: volume.spec.objectives.iter().zip(&volume.tracks).map(objective).collect(),
            quota_blocks: volume.blocks(),
            serves: volume.grant.as_ref().map_or_else(Vec::new, |grant| grant.serves.clone()),
        })
    }

    pub(super) fn settle_states(&mut self) {
        let mut stages: BTreeMap<VolumeId, VolumeState> = BTreeMap::new();
        for volume in self.volumes.values() {
            let Some(grant) = &volume.grant else { continue };
            let stage = volume.cache_stage(grant, &self.config.feedback);
            for served in &grant.serves {
                // Of several at different stages there is more to come.
                let all = stages.entry(*served).or_insert(stage);
                *all = if *all == stage { stage } else { VolumeState::Acting };
            }
        }
        for (id, volume) in &mut self.volumes {
            if volume.violated_since.is_some() {
                volume.state = stages.get(id).copied().unwrap_or(VolumeState::Violating);
            }
        }
    }
}
