//! The tables of PRESTO's slides: what was varied, and the hit ratios that were measured.

use super::experiment::Way;
use forebay_control::prewarm::Heuristic;

/// What a table varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// How much of the cache may be prewarmed.
    SizeLimit,
    /// How fast.
    Rate,
    /// How often a snapshot is taken.
    SnapshotRate,
    /// By which score, under a small limit.
    ScoreSmall,
    /// By which score, under a large limit.
    ScoreLarge,
}

impl Part {
    /// All tables, in the slides' order.
    pub const ALL: [Part; 5] =
        [Part::SizeLimit, Part::Rate, Part::SnapshotRate, Part::ScoreSmall, Part::ScoreLarge];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Part::SizeLimit => "Size limit",
            Part::Rate => "Rate",
            Part::SnapshotRate => "Snapshot rate",
            Part::ScoreSmall => "Score, small limit",
            Part::ScoreLarge => "Score, large limit",
        }
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRow {
    /// Of which table.
    pub part: Part,
    /// Accesses between snapshots.
    pub snapshot_every: usize,
    /// Per cent of the cache that may be prewarmed.
    pub limit_percent: u32,
    /// MiB per second; `None`: all at once.
    pub rate: Option<u32>,
    /// By which score.
    pub heuristic: Heuristic,
    /// Hit ratio within the first second, and means over 5, 15 and 30 minutes.
    pub columns: [f64; 4],
}

impl PublishedRow {
    /// How the row's node is prewarmed.
    pub fn way(&self) -> Way {
        Way::Scored(self.heuristic, self.snapshot_every)
    }
}

const fn row(
    part: Part,
    snapshot_every: usize,
    limit_percent: u32,
    rate: Option<u32>,
    heuristic: Heuristic,
    columns: [f64; 4],
) -> PublishedRow {
    PublishedRow { part, snapshot_every, limit_percent, rate, heuristic, columns }
}

const FRESH: Heuristic = Heuristic::Recent;
const OFTEN: Heuristic = Heuristic::Frequent;
const LINEAR: Heuristic = Heuristic::FrerecentLinear;
const QUADRATIC: Heuristic = Heuristic::FrerecentQuadratic;

/// "Experiment: Workload - Syn6GB".
pub const SYN6GB_ROWS: [PublishedRow; 21] = [
    row(Part::SizeLimit, 100_000, 5, Some(100), FRESH, [0.41, 0.64, 0.69, 0.74]),
    row(Part::SizeLimit, 100_000, 10, Some(100), FRESH, [0.41, 0.65, 0.70, 0.75]),
    row(Part::SizeLimit, 100_000, 25, Some(100), FRESH, [0.41, 0.68, 0.73, 0.77]),
    row(Part::SizeLimit, 100_000, 50, Some(100), FRESH, [0.41, 0.72, 0.77, 0.80]),
    row(Part::SizeLimit, 100_000, 75, Some(100), FRESH, [0.41, 0.74, 0.75, 0.77]),
    row(Part::SizeLimit, 100_000, 100, Some(100), FRESH, [0.41, 0.72, 0.73, 0.76]),
    row(Part::Rate, 100_000, 50, Some(50), FRESH, [0.38, 0.70, 0.76, 0.79]),
    row(Part::Rate, 100_000, 50, Some(100), FRESH, [0.41, 0.72, 0.77, 0.80]),
    row(Part::Rate, 100_000, 50, Some(500), FRESH, [0.61, 0.74, 0.78, 0.80]),
    row(Part::Rate, 100_000, 50, None, FRESH, [0.73, 0.75, 0.78, 0.80]),
    row(Part::SnapshotRate, 10_000, 75, Some(100), OFTEN, [0.38, 0.72, 0.78, 0.80]),
    row(Part::SnapshotRate, 50_000, 75, Some(100), OFTEN, [0.38, 0.73, 0.78, 0.80]),
    row(Part::SnapshotRate, 100_000, 75, Some(100), OFTEN, [0.39, 0.73, 0.78, 0.80]),
    row(Part::ScoreSmall, 100_000, 10, Some(50), FRESH, [0.38, 0.64, 0.70, 0.75]),
    row(Part::ScoreSmall, 100_000, 10, Some(50), OFTEN, [0.38, 0.51, 0.59, 0.65]),
    row(Part::ScoreSmall, 100_000, 10, Some(50), LINEAR, [0.38, 0.51, 0.58, 0.65]),
    row(Part::ScoreSmall, 100_000, 10, Some(50), QUADRATIC, [0.38, 0.51, 0.58, 0.65]),
    row(Part::ScoreLarge, 100_000, 75, Some(50), FRESH, [0.38, 0.70, 0.73, 0.75]),
    row(Part::ScoreLarge, 100_000, 75, Some(50), OFTEN, [0.38, 0.67, 0.75, 0.78]),
    row(Part::ScoreLarge, 100_000, 75, Some(50), LINEAR, [0.38, 0.67, 0.75, 0.78]),
    row(Part::ScoreLarge, 100_000, 75, Some(50), QUADRATIC, [0.38, 0.66, 0.75, 0.78]),
];

/// "Experiment: Workload - RealCSE", whose traces were not published. (Its tables speak of a cache of 6 GB, too.)
pub const REAL_CSE_ROWS: [PublishedRow; 10] = [
    row(Part::SizeLimit, 100_000, 5, Some(50), FRESH, [0.50, 0.92, 0.93, 0.94]),
    row(Part::SizeLimit, 100_000, 10, Some(50), FRESH, [0.67, 0.93, 0.94, 0.94]),
    row(Part::SizeLimit, 100_000, 25, Some(50), FRESH, [0.83, 0.94, 0.95, 0.95]),
    row(Part::SizeLimit, 100_000, 50, Some(50), FRESH, [1.00, 0.95, 0.95, 0.95]),
    row(Part::SizeLimit, 100_000, 75, Some(50), FRESH, [1.00, 0.95, 0.95, 0.95]),
    row(Part::SizeLimit, 100_000, 100, Some(50), FRESH, [1.00, 0.95, 0.94, 0.95]),
    row(Part::Rate, 100_000, 25, Some(50), FRESH, [0.83, 0.94, 0.95, 0.95]),
    row(Part::Rate, 100_000, 25, Some(100), FRESH, [0.83, 0.94, 0.95, 0.95]),
    row(Part::Rate, 100_000, 25, Some(500), FRESH, [0.83, 0.94, 0.95, 0.95]),
    row(Part::Rate, 100_000, 25, None, FRESH, [0.83, 0.94, 0.95, 0.95]),
];

/// A volume of Syn6GB in the slides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedVolume {
    /// Its number in the generator's list.
    pub id: u16,
    /// Mean IOPS until the failure.
    pub iops: f64,
    /// MiB of cache with which its hit ratio over four hours is 0.8.
    pub wss80: u32,
    /// MiB of the working set while it ran.
    pub runtime_wss: f64,
}

const fn volume(id: u16, iops: f64, wss80: u32, runtime_wss: f64) -> PublishedVolume {
    PublishedVolume { id, iops, wss80, runtime_wss }
}

/// The slides' table of Syn6GB's volumes.
pub const SYN6GB_VOLUMES: [PublishedVolume; 6] = [
    volume(520, 49.46, 2_000, 684.53),
    volume(521, 24.61, 425, 123.03),
    volume(539, 100.03, 250, 257.94),
    volume(540, 149.27, 2_200, 1_612.74),
    volume(554, 199.4, 175, 317.93),
    volume(570, 149.92, 2_300, 1_318.43),
];
