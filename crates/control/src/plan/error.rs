//! What makes an input unfit to be planned.

use super::input::PlanInput;
use crate::objective::ObjectiveError;
use forebay_units::{BlockSize, Bytes};

/// Why no plan can be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two volumes or two origins have one name.
    #[error("the name `{name}` is used twice")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// A volume names an origin that is not there.
    #[error("volume `{volume}` lies on origin `{origin}`, which is not among the origins")]
    UnknownOrigin {
        /// The volume.
        volume: String,
        /// The name.
        origin: String,
    },
    /// Volumes of one origin have windows of different lengths.
    #[error(
        "volume `{volume}` has windows of {found_s} s, expected {expected_s} s as of the other volumes of its origin"
    )]
    WindowsDiffer {
        /// The volume.
        volume: String,
        /// Its windows.
        found_s: f64,
        /// Those of the others.
        expected_s: f64,
    },
    /// An objective cannot be judged.
    #[error("volume `{volume}` has an objective that cannot be judged")]
    Objective {
        /// The volume.
        volume: String,
        /// What is wrong with it.
        source: ObjectiveError,
    },
    /// A number is outside its range.
    #[error("`{field}` is {found}, expected {expected}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What it is.
        found: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// The guaranteed caches alone exceed the budget.
    #[error("the minimum caches add up to {minimums}, expected at most the budget of {budget}")]
    MinimumsExceedBudget {
        /// Their sum.
        minimums: Bytes,
        /// The budget.
        budget: Bytes,
    },
}

pub(super) fn check(input: &PlanInput) -> Result<(), PlanError> {
    let out_of_range = |field, found, expected| Err(PlanError::OutOfRange { field, found, expected });
    if !(0.0..1.0).contains(&input.margin) {
        return out_of_range("margin", input.margin, "a number from 0 to below 1");
    }
    // Block sizes are powers of two: a multiple of the largest is one of each.
    let largest = input.volumes.iter().map(|volume| volume.block_size.bytes()).max().unwrap_or(1);
    if input.chunk.get() == 0 || !input.chunk.get().is_multiple_of(largest) {
        return out_of_range("chunk", input.chunk.as_f64(), "a multiple of the largest block size");
    }
    for origin in &input.origins {
        let model = &origin.model;
        if !(model.servers >= 1.0 && model.servers.is_finite()) {
            return out_of_range("servers", model.servers, "a number of at least 1");
        }
        if !(model.transfer > 0.0 && model.transfer.is_finite()) {
            return out_of_range("transfer", model.transfer, "a number above 0");
        }
        if !(model.service_cv2 >= 0.0 && model.service_cv2.is_finite()) {
            return out_of_range("service_cv2", model.service_cv2, "a number of at least 0");
        }
        if !(model.write_cost > 0.0 && model.write_cost.is_finite()) {
            return out_of_range("write_cost", model.write_cost, "a number above 0");
        }
    }
    if let Some(flash) = input.cache.flash
        && !(0.0..=1.0).contains(&flash.memory_share)
    {
        return out_of_range("memory_share", flash.memory_share, "a number from 0 to 1");
    }
    let twice = |names: Vec<&str>| {
        let mut names = names;
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned())
    };
    let volumes = twice(input.volumes.iter().map(|volume| volume.name.as_str()).collect());
    let origins = twice(input.origins.iter().map(|origin| origin.name.as_str()).collect());
    if let Some(name) = volumes.or(origins) {
        return Err(PlanError::NameTwice { name });
    }
    for volume in &input.volumes {
        let name = || volume.name.clone();
        if !input.origins.iter().any(|origin| origin.name == volume.origin) {
            return Err(PlanError::UnknownOrigin { volume: name(), origin: volume.origin.clone() });
        }
        let first =
            input.volumes.iter().find(|other| other.origin == volume.origin).expect("itself at least");
        if volume.load.window != first.load.window {
            return Err(PlanError::WindowsDiffer {
                volume: name(),
                found_s: volume.load.window.as_secs_f64(),
                expected_s: first.load.window.as_secs_f64(),
            });
        }
        if volume.load.window.0 == 0 || volume.load.window_last.0 == 0 {
            return out_of_range("window", 0.0, "a span above 0");
        }
        for objective in &volume.objectives {
            objective.check().map_err(|source| PlanError::Objective { volume: name(), source })?;
        }
    }
    let minimums = whole_blocks(input.volumes.iter().map(|volume| (volume.minimum, volume.block_size)));
    match input.budget {
        Some(budget) if minimums > budget => Err(PlanError::MinimumsExceedBudget { minimums, budget }),
        _ => Ok(()),
    }
}

/// The sum of `sizes`, each rounded up to whole blocks, as a cache has no parts of them; [`u64::MAX`] bytes where it is more.
pub fn whole_blocks(sizes: impl Iterator<Item = (Bytes, BlockSize)>) -> Bytes {
    let whole = |(size, block): (Bytes, BlockSize)| block.blocks_for(size).saturating_mul(block.bytes());
    Bytes(sizes.map(whole).fold(0, u64::saturating_add))
}
