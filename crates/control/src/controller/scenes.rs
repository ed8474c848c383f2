//! The scenes of a step: one per origin, built on first use, with the servers fitted at most once in a step.

use super::Controller;
use super::flooding::Queue;
use super::scene::{self, Scene};
use super::volume::Volume;
use crate::inventory::{OriginId, VolumeId};
use std::collections::BTreeMap;

/// Steps for which a fitted number of servers stands (ours).
const FIT_LASTS: u64 = 32;

/// The scenes of a step, by origin.
#[derive(Default)]
pub(super) struct Scenes {
    pub(super) list: Vec<Scene>,
    pub(super) by_origin: BTreeMap<OriginId, usize>,
    members: BTreeMap<OriginId, Vec<VolumeId>>,
    /// What waits before origins, of those that were asked for.
    pub(super) queues: BTreeMap<OriginId, Queue>,
    /// Whether a number of servers was fitted in this step.
    fitted: bool,
}

impl Controller {
    /// The scene of a volume's origin, built on first use in a step, and the volume's place in it.
    pub(super) fn scene_place(&mut self, scenes: &mut Scenes, id: VolumeId) -> (usize, usize) {
        let origin = self.volumes[&id].spec.origin;
        let index = self.scene_of(scenes, origin);
        let place = scenes.list[index]
            .place(id)
            .expect("a scene holds all volumes of its origin that have a history");
        (index, place)
    }

    pub(super) fn scene_of(&mut self, scenes: &mut Scenes, origin: OriginId) -> usize {
        if let Some(&index) = scenes.by_origin.get(&origin) {
            return index;
        }
        if scenes.members.is_empty() {
            for (id, volume) in &self.volumes {
                scenes.members.entry(volume.spec.origin).or_default().push(*id);
            }
        }
        let ids = scenes.members.get(&origin).cloned().unwrap_or_default();
        let spec = self.origins.get(&origin);
        let fitted = match (spec.and_then(|spec| spec.servers), self.fits.get(&origin)) {
            (Some(_), _) => None,
            (None, Some(&(at, fitted))) if self.step < at + FIT_LASTS || scenes.fitted => fitted,
            (None, known) => {
                // At most one fit in a step: it is the dearest thing that is done here.
                if scenes.fitted {
                    known.and_then(|known| known.1)
                } else {
                    scenes.fitted = true;
                    let volumes: Vec<&Volume> = ids.iter().map(|id| &self.volumes[id]).collect();
                    let fitted = scene::fit(spec, &volumes).or(known.and_then(|known| known.1));
                    // Nothing found yet: ask again soon.
                    let at =
                        if fitted.is_some() { self.step } else { (self.step + 8).saturating_sub(FIT_LASTS) };
                    self.fits.insert(origin, (at, fitted));
                    fitted
                }
            }
        };
        let said: Vec<f64> = self.busy.get(&origin).into_iter().flatten().copied().collect();
        let before = self.services.get(&origin).copied();
        let scene = Scene::build(&ids, &self.volumes, spec, fitted, &said, before, &self.config);
        if scene.service > 0.0 {
            self.services.insert(origin, scene.service);
        }
        for (id, service) in &scene.calm {
            if service.read > 0.0
                && let Some(volume) = self.volumes.get_mut(id)
            {
                volume.service = Some(*service);
            }
        }
        scenes.list.push(scene);
        scenes.by_origin.insert(origin, scenes.list.len() - 1);
        scenes.list.len() - 1
    }

    /// The most blocks that a cache of this volume may have: its own maximum and all the cache there is.
    pub(super) fn blocks_ceiling(&self, id: VolumeId) -> u64 {
        let volume = &self.volumes[&id];
        volume.spec.blocks_max().min(self.capacity.get() / volume.block_bytes())
    }
}
