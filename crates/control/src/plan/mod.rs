//! Planning offline: from loads, curves and objectives to cache sizes.

mod input;
mod output;

pub use input::{
    CacheTiers, FlashTier, PlanInput, PlanLoad, PlanOrigin, PlanVolume, StorageModel, WindowLoad,
};
pub use output::{
    Allocation, MissedObjective, ObjectiveOutcome, ObjectivePlan, OriginPlan, Performance, Plan,
    PlannedCache, PlannedSolution, Remedy, Unmet, VolumePlan,
};
