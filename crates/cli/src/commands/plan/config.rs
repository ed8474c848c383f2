//! The plan file: its keys, their defaults and ranges, and the checks that need no trace.
//!
//! docs/reference/plan.md describes every key; a test compares the two.

use crate::document::{Document, Text};
use crate::failure::Failure;
use forebay_control::plan::{CacheTiers, FlashTier, PlanOrigin, StorageModel, whole_blocks};
use forebay_control::{Objective, Operations, StatedError, StatedObjective};
use forebay_trace::{BlockEvent, Format, Ids, ReadAhead, TimeUnit};
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::Deserialize;
use serde_spanned::Spanned;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A checked plan file.
#[derive(Debug)]
pub(crate) struct PlanConfig {
    pub(crate) budget: Option<Bytes>,
    pub(crate) block_size: BlockSize,
    pub(crate) chunk: Bytes,
    pub(crate) window: Nanos,
    pub(crate) working_set_window: Nanos,
    /// Windows before this one are not judged.
    pub(crate) first_window: u64,
    /// Where in the plan file that is said, for messages after the traces were read.
    pub(crate) measure_from_span: Range<usize>,
    pub(crate) margin: f64,
    pub(crate) estimator: Estimator,
    pub(crate) cache: CacheTiers,
    pub(crate) origins: Vec<OriginConfig>,
    pub(crate) volumes: Vec<VolumeConfig>,
}

/// An origin as the plan file describes it.
#[derive(Debug)]
pub(crate) struct OriginConfig {
    pub(crate) origin: PlanOrigin,
    /// The preset, where nothing that it says of positioning and its variation was set besides.
    pub(crate) preset: Option<String>,
    /// Where in the plan file it stands, for messages of whoever simulates it.
    pub(crate) span: Range<usize>,
}

/// How miss ratio curves are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Estimator {
    /// Every reference counts.
    Exact,
    /// A sample of the blocks at a fixed rate.
    Shards {
        /// Above 0, at most 1.
        rate: f64,
        /// Which blocks are sampled.
        seed: u64,
    },
}

/// A volume as the plan file describes it.
#[derive(Debug)]
pub(crate) struct VolumeConfig {
    pub(crate) name: String,
    pub(crate) origin: String,
    pub(crate) trace: TraceConfig,
    /// Which volume of the trace; all of them together where `None`.
    pub(crate) trace_volume: Option<String>,
    /// Where in the plan file `trace_volume` stands, for messages after the trace was read.
    pub(crate) trace_volume_span: Range<usize>,
    pub(crate) closed_loop: Option<u32>,
    /// Where in the plan file the volume stands, for messages of whoever simulates it.
    pub(crate) span: Range<usize>,
    pub(crate) may_cache: bool,
    pub(crate) minimum: Bytes,
    pub(crate) objectives: Vec<Objective>,
}

/// Which trace, read how; volumes with equal ones share one reading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TraceConfig {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) format: Option<Format>,
    pub(crate) skip_malformed: u64,
    pub(crate) ids: Ids,
    pub(crate) event: BlockEvent,
    pub(crate) read_ahead: Option<ReadAhead>,
    pub(crate) time_unit: Option<TimeUnit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    budget: Option<Spanned<Text<Bytes>>>,
    block_size: Option<Spanned<Text<Bytes>>>,
    chunk: Option<Spanned<Text<Bytes>>>,
    window: Option<Spanned<Text<Nanos>>>,
    working_set_window: Option<Spanned<Text<Nanos>>>,
    measure_from: Option<Spanned<Text<Nanos>>>,
    margin: Option<Spanned<f64>>,
    method: Option<Spanned<String>>,
    rate: Option<Spanned<f64>>,
    seed: Option<Spanned<u64>>,
    #[serde(default)]
    cache: CacheTable,
    #[serde(default)]
    origin: Vec<Spanned<OriginTable>>,
    #[serde(default)]
    volume: Vec<Spanned<VolumeTable>>,
    #[serde(default)]
    objective: Vec<Spanned<ObjectiveTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheTable {
    memory_latency: Option<Spanned<Text<Nanos>>>,
    flash_latency: Option<Spanned<Text<Nanos>>>,
    memory_share: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginTable {
    name: Spanned<String>,
    preset: Option<Spanned<String>>,
    servers: Option<Spanned<f64>>,
    positioning: Option<Spanned<Text<Nanos>>>,
    transfer_per_second: Option<Spanned<Text<Bytes>>>,
    write_cost: Option<Spanned<f64>>,
    service_cv2: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeTable {
    name: Spanned<String>,
    origin: Option<Spanned<String>>,
    trace: Spanned<Paths>,
    trace_volume: Option<Spanned<String>>,
    format: Option<Text<Format>>,
    skip_malformed: Option<u64>,
    ids: Option<Text<Ids>>,
    event: Option<Text<BlockEvent>>,
    read_ahead: Option<Text<ReadAhead>>,
    time_unit: Option<Text<TimeUnit>>,
    closed_loop: Option<Spanned<u32>>,
    may_cache: Option<Spanned<bool>>,
    minimum: Option<Spanned<Text<Bytes>>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a path or an array of paths")]
enum Paths {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectiveTable {
    volume: Spanned<String>,
    latency: Option<Spanned<Text<Nanos>>>,
    statistic: Option<Spanned<String>>,
    iops: Option<Spanned<f64>>,
    bandwidth_per_second: Option<Spanned<Text<Bytes>>>,
    operations: Option<Operations>,
    conforming_share: Option<Spanned<f64>>,
    weight: Option<Spanned<f64>>,
    priority: Option<u8>,
}

/// Defaults of the keys that have one; docs/reference/plan.md repeats them.
mod default {
    use super::{Bytes, Nanos};

    pub(super) const CHUNK: Bytes = Bytes::mib(1);
    /// The sizes of as many caches as there may be are added up.
    pub(super) const CHUNK_MAX: Bytes = Bytes::gib(1024);
    pub(super) const WINDOW: Nanos = Nanos::secs(10);
    pub(super) const WORKING_SET_WINDOW: Nanos = Nanos::secs(600);
    pub(super) const MEMORY_LATENCY: Nanos = Nanos::micros(100);
    pub(super) const RATE: f64 = 0.1;
}

/// The most windows of load that are kept per volume: ten years of 10 s (ours).
const WINDOW_MIN: Nanos = Nanos::millis(100);
const WINDOW_MAX: Nanos = Nanos::secs(86_400);
/// Ten years.
const MEASURE_FROM_MAX: Nanos = Nanos::secs(3_650 * 86_400);

impl PlanConfig {
    /// Reads and checks the plan file at `path`; paths in it are relative to its folder.
    pub(crate) fn read(path: &Path) -> Result<(Document, PlanConfig), Failure> {
        let document = Document::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = Checker { document: &document, folder }.check(document.parse()?);
        config.map(|config| (document, config))
    }
}

/// Turns what is written into what is meant, or says where it cannot.
struct Checker<'a> {
    document: &'a Document,
    folder: &'a Path,
}

impl Checker<'_> {
    fn check(&self, file: FileTable) -> Result<PlanConfig, Failure> {
        let block_size = match &file.block_size {
            None => BlockSize::DEFAULT,
            Some(size) => BlockSize::new(size.get_ref().0).map_err(|error| self.at(size, error))?,
        };
        let chunk = file.chunk.as_ref().map_or(default::CHUNK, |chunk| chunk.get_ref().0);
        if chunk.0 == 0 || !chunk.0.is_multiple_of(block_size.bytes()) {
            // As a number, since what is off by some bytes may be written as if it were not.
            let message = format!("{} bytes are no multiple of a block of {block_size}", chunk.0);
            return Err(match &file.chunk {
                Some(chunk) => self.at(chunk, message),
                None => self.at(
                    file.block_size.as_ref().expect("only a large block size exceeds the chunk"),
                    message,
                ),
            });
        }
        if let Some(found) = file.chunk.as_ref().filter(|_| chunk > default::CHUNK_MAX) {
            let most = default::CHUNK_MAX;
            return Err(self.at(found, format!("{chunk} is out of range, expected at most {most}")));
        }
        let window = self.span_between(file.window.as_ref(), default::WINDOW, WINDOW_MIN, WINDOW_MAX)?;
        let working_set_window = self.span_between(
            file.working_set_window.as_ref(),
            default::WORKING_SET_WINDOW,
            Nanos::secs(1),
            Nanos::secs(31 * 86_400),
        )?;
        let measure_from =
            self.span_between(file.measure_from.as_ref(), Nanos::ZERO, Nanos::ZERO, MEASURE_FROM_MAX)?;
        let margin =
            self.number(file.margin.as_ref(), 0.0, "0 to below 1", |margin| (0.0..1.0).contains(&margin))?;
        let estimator = self.estimator(&file)?;
        let cache = self.cache(&file.cache)?;
        let origins = self.origins(&file.origin)?;
        let mut volumes = self.volumes(file.volume, &origins)?;
        for objective in &file.objective {
            let table = objective.get_ref();
            let Some(volume) = volumes.iter_mut().find(|volume| volume.name == *table.volume.get_ref())
            else {
                let names: Vec<String> = volumes.iter().map(|volume| format!("`{}`", volume.name)).collect();
                return Err(self
                    .at(&table.volume, format!("there is no volume `{}`", table.volume.get_ref()))
                    .with_hint(format!("the plan's volumes are {}", names.join(", "))));
            };
            volume.objectives.push(self.objective(objective, window)?);
        }
        let minimums = whole_blocks(volumes.iter().map(|volume| (volume.minimum, block_size)));
        if let Some(budget) = &file.budget
            && minimums > budget.get_ref().0
        {
            let budget_bytes = budget.get_ref().0;
            return Err(
                self.at(budget, format!("{budget_bytes} is less than the volumes' minimums of {minimums}"))
            );
        }
        Ok(PlanConfig {
            budget: file.budget.map(|budget| budget.into_inner().0),
            block_size,
            chunk,
            window,
            working_set_window,
            first_window: measure_from.0.div_ceil(window.0),
            measure_from_span: file.measure_from.as_ref().map_or(0..0, Spanned::span),
            margin,
            estimator,
            cache,
            origins,
            volumes,
        })
    }

    fn estimator(&self, file: &FileTable) -> Result<Estimator, Failure> {
        let method = file.method.as_ref().map_or("exact", |method| method.get_ref().as_str());
        let unused = |key: Option<Range<usize>>, name: &str| match key {
            Some(span) => Err(self
                .document
                .failure(&span, format!("`{name}` is for the method `shards`, not `{method}`"))),
            None => Ok(()),
        };
        match method {
            "exact" => {
                unused(file.rate.as_ref().map(Spanned::span), "rate")?;
                unused(file.seed.as_ref().map(Spanned::span), "seed")?;
                Ok(Estimator::Exact)
            }
            "shards" => {
                let rate = self.number(file.rate.as_ref(), default::RATE, "0.0001 to 1", |rate| {
                    (0.0001..=1.0).contains(&rate)
                })?;
                Ok(Estimator::Shards { rate, seed: file.seed.as_ref().map_or(0, |seed| *seed.get_ref()) })
            }
            other => {
                let span = file.method.as_ref().map_or(0..0, Spanned::span);
                Err(self
                    .document
                    .failure(&span, format!("`{other}` is not a method: expected `exact` or `shards`")))
            }
        }
    }

    fn cache(&self, table: &CacheTable) -> Result<CacheTiers, Failure> {
        let latency = |key: &Option<Spanned<Text<Nanos>>>, default| {
            self.span_between(key.as_ref(), default, Nanos(1), Nanos::secs(10))
        };
        let memory_latency = latency(&table.memory_latency, default::MEMORY_LATENCY)?;
        let flash = match (&table.flash_latency, &table.memory_share) {
            (None, None) => None,
            (None, Some(share)) => {
                return Err(self.at(share, "`memory_share` has a meaning only where `flash_latency` is set"));
            }
            (Some(_), share) => Some(FlashTier {
                latency: latency(&table.flash_latency, Nanos::ZERO)?,
                memory_share: self
                    .number(share.as_ref(), 0.1, "0 to 1", |share| (0.0..=1.0).contains(&share))?,
            }),
        };
        Ok(CacheTiers { memory_latency, flash })
    }

    fn origins(&self, tables: &[Spanned<OriginTable>]) -> Result<Vec<OriginConfig>, Failure> {
        let mut origins: Vec<OriginConfig> = Vec::new();
        for spanned in tables {
            let table = spanned.get_ref();
            let taken = origins.iter().map(|origin| origin.origin.name.as_str());
            let name = self.name(&table.name, taken, "origin")?;
            let mut model = match &table.preset {
                Some(preset) => StorageModel::preset(preset.get_ref()).ok_or_else(|| {
                    let presets = StorageModel::PRESETS.map(|preset| format!("`{preset}`")).join(", ");
                    self.at(
                        preset,
                        format!("`{}` is not a preset: expected one of {presets}", preset.get_ref()),
                    )
                })?,
                None => {
                    let missing = |key| {
                        self.document.failure(
                            &spanned.span(),
                            format!("missing key `{key}`, and no `preset` that sets it"),
                        )
                    };
                    StorageModel {
                        servers: 1.0,
                        positioning: table
                            .positioning
                            .as_ref()
                            .ok_or_else(|| missing("positioning"))?
                            .get_ref()
                            .0,
                        transfer: table
                            .transfer_per_second
                            .as_ref()
                            .ok_or_else(|| missing("transfer_per_second"))?
                            .get_ref()
                            .0
                            .as_f64(),
                        write_cost: 1.0,
                        service_cv2: 0.3,
                    }
                }
            };
            let servers = table.servers.as_ref();
            model.servers =
                self.number(servers, model.servers, "1 to 100000", |count| (1.0..=1e5).contains(&count))?;
            let positioning = table.positioning.as_ref();
            model.positioning =
                self.span_between(positioning, model.positioning, Nanos::ZERO, Nanos::secs(10))?;
            if let Some(transfer) = &table.transfer_per_second {
                let bytes = transfer.get_ref().0;
                if bytes < Bytes::kib(1) {
                    return Err(self.at(
                        transfer,
                        format!("{bytes} per second is out of range: expected at least 1KiB"),
                    ));
                }
                model.transfer = bytes.as_f64();
            }
            let cost = table.write_cost.as_ref();
            model.write_cost = self
                .number(cost, model.write_cost, "above 0, at most 100", |cost| cost > 0.0 && cost <= 100.0)?;
            let cv2 = table.service_cv2.as_ref();
            model.service_cv2 =
                self.number(cv2, model.service_cv2, "0 to 100", |cv2| (0.0..=100.0).contains(&cv2))?;
            let preset = table.preset.as_ref().map(|preset| preset.get_ref().clone());
            origins.push(OriginConfig {
                origin: PlanOrigin { name, model },
                preset: preset.filter(|_| positioning.is_none() && cv2.is_none()),
                span: spanned.span(),
            });
        }
        if origins.is_empty() {
            return Err(self.document.failure(&(0..0), "the plan has no `[[origin]]`"));
        }
        Ok(origins)
    }

    fn volumes(
        &self,
        tables: Vec<Spanned<VolumeTable>>,
        origins: &[OriginConfig],
    ) -> Result<Vec<VolumeConfig>, Failure> {
        let mut volumes: Vec<VolumeConfig> = Vec::new();
        for spanned in tables {
            let span = spanned.span();
            let table = spanned.into_inner();
            let name = self.name(&table.name, volumes.iter().map(|volume| volume.name.as_str()), "volume")?;
            let names = || {
                origins.iter().map(|known| format!("`{}`", known.origin.name)).collect::<Vec<_>>().join(", ")
            };
            let origin = match (&table.origin, origins) {
                (Some(origin), _) if origins.iter().any(|known| known.origin.name == *origin.get_ref()) => {
                    origin.get_ref().clone()
                }
                (Some(origin), _) => {
                    return Err(self
                        .at(origin, format!("there is no origin `{}`", origin.get_ref()))
                        .with_hint(format!("the plan's origins are {}", names())));
                }
                (None, [only]) => only.origin.name.clone(),
                (None, _) => {
                    return Err(self
                        .document
                        .failure(&span, "missing key `origin`, which is needed where there are several")
                        .with_hint(format!("the plan's origins are {}", names())));
                }
            };
            let paths = match table.trace.get_ref() {
                Paths::One(path) => vec![self.folder.join(path)],
                Paths::Several(paths) => paths.iter().map(|path| self.folder.join(path)).collect(),
            };
            if paths.is_empty() {
                return Err(self.at(&table.trace, "an empty array: expected at least one path"));
            }
            // Absence is told before hours are spent on the other traces.
            for path in &paths {
                if let Err(error) = std::fs::metadata(path) {
                    let path = path.display();
                    return Err(self
                        .at(&table.trace, format!("cannot open `{path}`: {error}"))
                        .with_hint("paths are relative to the folder of the plan file"));
                }
            }
            if let Some(requests) = &table.closed_loop
                && *requests.get_ref() == 0
            {
                return Err(self.at(requests, "0 is out of range: expected at least 1 request outstanding"));
            }
            let minimum = table.minimum.map_or(Bytes::ZERO, |minimum| minimum.into_inner().0);
            if let Some(may_cache) = &table.may_cache
                && !may_cache.get_ref()
                && minimum > Bytes::ZERO
            {
                let message =
                    format!("false, beside a `minimum` of {minimum}, which is a cache that it must have");
                return Err(self.at(may_cache, message).with_hint("remove one of the two keys"));
            }
            volumes.push(VolumeConfig {
                name,
                origin,
                trace: TraceConfig {
                    paths,
                    format: table.format.map(|format| format.0),
                    skip_malformed: table.skip_malformed.unwrap_or(0),
                    ids: table.ids.map_or(Ids::default(), |ids| ids.0),
                    event: table.event.map_or(BlockEvent::default(), |event| event.0),
                    read_ahead: table.read_ahead.map(|read_ahead| read_ahead.0),
                    time_unit: table.time_unit.map(|unit| unit.0),
                },
                trace_volume_span: table.trace_volume.as_ref().map_or(span.clone(), Spanned::span),
                span,
                trace_volume: table.trace_volume.map(Spanned::into_inner),
                closed_loop: table.closed_loop.map(Spanned::into_inner),
                may_cache: table.may_cache.is_none_or(Spanned::into_inner),
                minimum,
                objectives: Vec::new(),
            });
        }
        if volumes.is_empty() {
            return Err(self.document.failure(&(0..0), "the plan has no `[[volume]]`"));
        }
        Ok(volumes)
    }

    fn objective(&self, spanned: &Spanned<ObjectiveTable>, window: Nanos) -> Result<Objective, Failure> {
        let table = spanned.get_ref();
        let stated = StatedObjective {
            latency: table.latency.as_ref().map(|key| key.get_ref().0),
            statistic: table.statistic.as_ref().map(|key| key.get_ref().as_str()),
            iops: table.iops.as_ref().map(|key| *key.get_ref()),
            bandwidth_per_second: table.bandwidth_per_second.as_ref().map(|key| key.get_ref().0),
            operations: table.operations,
            window: None,
            conforming_share: table.conforming_share.as_ref().map(|key| *key.get_ref()),
            weight: table.weight.as_ref().map(|key| *key.get_ref()),
            priority: table.priority,
        };
        stated.objective(window).map_err(|error| match error {
            StatedError::Targets { .. } => self.document.failure(&spanned.span(), error),
            StatedError::Key { key, found, expected } => {
                let place = match key {
                    "latency" => table.latency.as_ref().map(Spanned::span),
                    "statistic" => table.statistic.as_ref().map(Spanned::span),
                    "iops" => table.iops.as_ref().map(Spanned::span),
                    "bandwidth_per_second" => table.bandwidth_per_second.as_ref().map(Spanned::span),
                    "conforming_share" => table.conforming_share.as_ref().map(Spanned::span),
                    _ => table.weight.as_ref().map(Spanned::span),
                };
                let message = format!("{found}, expected {expected}");
                self.document.failure(&place.unwrap_or_else(|| spanned.span()), message)
            }
        })
    }

    /// A name that is not empty and not taken.
    fn name<'n>(
        &self,
        name: &Spanned<String>,
        mut taken: impl Iterator<Item = &'n str>,
        what: &str,
    ) -> Result<String, Failure> {
        let text = name.get_ref();
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(
                self.at(name, format!("the name of a {what} must not be empty or hold control characters"))
            );
        }
        if taken.any(|other| other == text) {
            return Err(self.at(name, format!("there are two {what}s `{text}`")));
        }
        Ok(text.clone())
    }

    fn number(
        &self,
        key: Option<&Spanned<f64>>,
        default: f64,
        range: &str,
        in_range: impl Fn(f64) -> bool,
    ) -> Result<f64, Failure> {
        let Some(key) = key else { return Ok(default) };
        let value = *key.get_ref();
        if in_range(value) {
            Ok(value)
        } else {
            Err(self.at(key, format!("{value} is out of range: expected {range}")))
        }
    }

    fn span_between(
        &self,
        key: Option<&Spanned<Text<Nanos>>>,
        default: Nanos,
        low: Nanos,
        high: Nanos,
    ) -> Result<Nanos, Failure> {
        let Some(key) = key else { return Ok(default) };
        let value = key.get_ref().0;
        if (low..=high).contains(&value) {
            Ok(value)
        } else {
            Err(self.at(key, format!("{value} is out of range: expected {low} to {high}")))
        }
    }

    fn at<T>(&self, key: &Spanned<T>, message: impl Display) -> Failure {
        self.document.failure(&key.span(), message)
    }
}
