//! The TOML specification.

use super::DURATION;
use crate::document::{Document, Text};
use crate::failure::Failure;
use forebay_units::{Bytes, Nanos};
use forebay_workload::parametric::{Diurnal, Load, Pattern, Rhythm, Specification};
use forebay_workload::presto;
use serde::Deserialize;
use serde_spanned::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    #[serde(default)]
    duration: Option<Text<Nanos>>,
    volume: Vec<Spanned<VolumeTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeTable {
    name: String,
    size: Spanned<Text<Bytes>>,
    #[serde(default)]
    load: Vec<Spanned<LoadTable>>,
    #[serde(default)]
    clusters: Vec<Spanned<ClustersTable>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ArrivalsName {
    #[default]
    Poisson,
    Constant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PatternName {
    #[default]
    Uniform,
    Zipf,
    Sequential,
    Stride,
    Hotspots,
}

/// Shares of requests, and their sizes.
type SizeShares = Vec<(f64, Text<Bytes>)>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadTable {
    rate: Spanned<f64>,
    #[serde(default)]
    arrivals: ArrivalsName,
    #[serde(default)]
    pattern: PatternName,
    theta: Option<Spanned<f64>>,
    stride: Option<Spanned<Text<Bytes>>>,
    hotspots: Option<Spanned<Vec<(f64, f64)>>>,
    #[serde(default)]
    offset: Option<Text<Bytes>>,
    range: Option<Spanned<Text<Bytes>>>,
    sizes: Option<Spanned<SizeShares>>,
    align: Option<Spanned<Text<Bytes>>>,
    reads: Option<Spanned<f64>>,
    from: Option<Text<Nanos>>,
    until: Option<Spanned<Text<Nanos>>>,
    diurnal: Option<Spanned<DiurnalTable>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiurnalTable {
    period: Option<Text<Nanos>>,
    amplitude: f64,
    peak: Option<Text<Nanos>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClustersTable {
    iops_mean: f64,
    #[serde(default)]
    iops_deviation: f64,
    cluster_max: u32,
    stride_max: u32,
    hotspots: Vec<(f64, f64)>,
    sizes: SizeShares,
    reads: Option<f64>,
}

/// Volumes of a specification at most.
const VOLUMES_MAX: usize = 4_096;

/// Reads a specification; `duration` goes before its own.
pub(super) fn parse(document: &Document, duration: Option<Nanos>) -> Result<Specification, Failure> {
    let root: Root = document.parse()?;
    let duration = duration.or(root.duration.map(|text| text.0)).unwrap_or(DURATION);
    let mut specification =
        Specification { volumes: Vec::new(), loads: Vec::new(), presto: Vec::new(), duration };
    for (number, volume) in (0u32..).zip(&root.volume) {
        let fail = |message: &str| Err(document.failure(&volume.span(), message));
        let table = volume.get_ref();
        if number as usize >= VOLUMES_MAX {
            return fail("more than 4096 volumes");
        }
        if specification.volumes.contains(&table.name) {
            return fail("two volumes have this name");
        }
        if table.load.is_empty() && table.clusters.is_empty() {
            return fail("a volume needs at least one `load` or `clusters`");
        }
        specification.volumes.push(table.name.clone());
        let size = table.size.get_ref().0.0;
        if !(512..=1 << 60).contains(&size) {
            return Err(document.failure(&table.size.span(), "a volume has 512 B to 1 EiB"));
        }
        for load in &table.load {
            specification.loads.push(load_of(document, number, size, load)?);
        }
        for clusters in &table.clusters {
            specification.presto.push((number, clusters_of(document, size, clusters)?));
        }
    }
    if specification.volumes.is_empty() {
        return Err(document.failure(&(0..0), "a specification needs at least one `[[volume]]`"));
    }
    let first = specification.loads.iter().map(|load| load.from).min();
    if let Some(first) =
        first.filter(|first| *first >= duration && specification.presto.is_empty() && duration > Nanos::ZERO)
    {
        let message = format!(
            "the trace ends at {duration}, and its first load begins at {first}: there is nothing to write"
        );
        return Err(Failure::new(message).with_hint("set `duration` in the specification, or `--duration`"));
    }
    Ok(specification)
}

fn load_of(document: &Document, volume: u32, size: u64, load: &Spanned<LoadTable>) -> Result<Load, Failure> {
    let table = load.get_ref();
    let rate = *table.rate.get_ref();
    if !(1e-6..=1e9).contains(&rate) {
        return Err(document.failure(
            &table.rate.span(),
            format_args!("{rate} is out of range, expected 0.000001 to 1e9 requests per second"),
        ));
    }
    let missing = |key: &str, name: &str| {
        document.failure(&load.span(), format_args!("the pattern `{name}` needs `{key}`"))
    };
    // A key that its pattern does not use would be without effect.
    let places = [PatternName::Uniform, PatternName::Zipf, PatternName::Hotspots];
    for (key, found, meant, patterns) in [
        ("theta", table.theta.as_ref().map(Spanned::span), &[PatternName::Zipf][..], "`zipf`"),
        ("stride", table.stride.as_ref().map(Spanned::span), &[PatternName::Stride][..], "`stride`"),
        ("hotspots", table.hotspots.as_ref().map(Spanned::span), &[PatternName::Hotspots][..], "`hotspots`"),
        ("align", table.align.as_ref().map(Spanned::span), &places[..], "`uniform`, `zipf` or `hotspots`"),
    ] {
        if let Some(span) = found.filter(|_| !meant.contains(&table.pattern)) {
            let message = format!("`{key}` has no effect here, expected only with the pattern {patterns}");
            return Err(document.failure(&span, message));
        }
    }
    let pattern = match table.pattern {
        PatternName::Uniform => Pattern::Uniform,
        PatternName::Sequential => Pattern::Sequential,
        PatternName::Zipf => {
            let theta = table.theta.as_ref().ok_or_else(|| missing("theta", "zipf"))?;
            if !(0.0..=10.0).contains(theta.get_ref()) {
                return Err(document.failure(&theta.span(), "theta is from 0 to 10"));
            }
            Pattern::Zipf(*theta.get_ref())
        }
        PatternName::Stride => {
            let stride = table.stride.as_ref().ok_or_else(|| missing("stride", "stride"))?;
            if stride.get_ref().0.0 == 0 {
                return Err(document.failure(&stride.span(), "a stride is above 0"));
            }
            Pattern::Stride(stride.get_ref().0.0)
        }
        PatternName::Hotspots => {
            let hotspots = table.hotspots.as_ref().ok_or_else(|| missing("hotspots", "hotspots"))?;
            check_hotspots(document, hotspots.get_ref(), &hotspots.span())?;
            Pattern::Hotspots(hotspots.get_ref().clone())
        }
    };
    let offset = table.offset.map_or(0, |text| text.0.0);
    let bytes = table.range.as_ref().map_or(size.saturating_sub(offset), |text| text.get_ref().0.0);
    let sizes = match &table.sizes {
        None => vec![(1.0, 4_096)],
        Some(sizes) => sizes_of(document, sizes.get_ref(), &sizes.span())?,
    };
    let largest = sizes.iter().map(|size| size.1).max().unwrap_or(0);
    if offset.checked_add(bytes).is_none_or(|end| end > size) || bytes < largest {
        let span = table.range.as_ref().map_or(load.span(), Spanned::span);
        let found = format!(
            "the range of {} from {} must lie within the volume of {} and hold a request of {}",
            Bytes(bytes),
            Bytes(offset),
            Bytes(size),
            Bytes(largest)
        );
        return Err(document.failure(&span, found));
    }
    let least = sizes.iter().filter(|size| size.0 > 0.0).map(|size| size.1).min().unwrap_or(largest);
    let align = table.align.as_ref().map_or(least, |align| align.get_ref().0.0);
    if !(1..=bytes).contains(&align) {
        let span = table.align.as_ref().map_or(load.span(), Spanned::span);
        return Err(document.failure(&span, "an alignment is 1 B to the range"));
    }
    let reads = table.reads.as_ref().map_or(1.0, |reads| *reads.get_ref());
    if !(0.0..=1.0).contains(&reads) {
        let span = table.reads.as_ref().map_or(load.span(), Spanned::span);
        return Err(document.failure(&span, "the share of reads is from 0 to 1"));
    }
    let from = table.from.map_or(Nanos::ZERO, |text| text.0);
    let until = table.until.as_ref().map_or(Nanos::MAX, |text| text.get_ref().0);
    if until <= from {
        let span = table.until.as_ref().map_or(load.span(), Spanned::span);
        return Err(document.failure(&span, "a load ends after it begins"));
    }
    let diurnal = match &table.diurnal {
        None => None,
        Some(table) => {
            let curve = *table.get_ref();
            let period = curve.period.map_or(Nanos::secs(86_400), |text| text.0);
            if !(0.0..=1.0).contains(&curve.amplitude) || period == Nanos::ZERO {
                return Err(document
                    .failure(&table.span(), "a period above 0 and an amplitude from 0 to 1 are expected"));
            }
            let peak = curve.peak.map_or(Nanos::ZERO, |text| text.0);
            Some(Diurnal { period, amplitude: curve.amplitude, peak })
        }
    };
    let rhythm = match table.arrivals {
        ArrivalsName::Poisson => Rhythm::Poisson,
        ArrivalsName::Constant => Rhythm::Constant,
    };
    Ok(Load { volume, offset, bytes, rate, rhythm, diurnal, pattern, sizes, align, reads, from, until })
}

fn clusters_of(
    document: &Document,
    size: u64,
    clusters: &Spanned<ClustersTable>,
) -> Result<presto::VolumeSpec, Failure> {
    let (table, span) = (clusters.get_ref(), clusters.span());
    check_hotspots(document, &table.hotspots, &span)?;
    let sizes = sizes_of(document, &table.sizes, &span)?;
    let spec = volume_spec(
        size,
        (table.iops_mean, table.iops_deviation),
        (table.cluster_max, table.stride_max),
        &table.hotspots,
        &sizes,
        table.reads.unwrap_or(0.5),
    );
    spec.map(|spec| presto::VolumeSpec { counts: presto::Counts::Carried, ..spec })
        .map_err(|message| document.failure(&span, message))
}

/// PRESTO's specification of a volume, with counts as its generator has them, or why there is none.
pub(super) fn volume_spec(
    bytes: u64,
    (iops_mean, iops_deviation): (f64, f64),
    (cluster_max, stride_max): (u32, u32),
    hotspots: &[(f64, f64)],
    sizes: &[(f64, u64)],
    read_share: f64,
) -> Result<presto::VolumeSpec, String> {
    if !(1.0..=1e6).contains(&iops_mean) || !(0.0..=1e6).contains(&iops_deviation) {
        return Err("a mean of 1 to 1e6 requests per second and a deviation of 0 to 1e6 are expected".into());
    }
    if cluster_max == 0 || stride_max == 0 {
        return Err("clusters and strides are at least 1 long".into());
    }
    if !(0.0..=1.0).contains(&read_share) {
        return Err("the share of reads is from 0 to 1".into());
    }
    if hotspots.iter().any(|spot| spot.1 * (bytes as f64) < 1_048_576.0) {
        return Err("a hotspot has at least 1 MiB".into());
    }
    if let Some(size) = sizes.iter().find(|size| size.1 > bytes || size.1 > 1 << 30 || size.1 % 512 != 0) {
        return Err(format!(
            "requests of {} do not fit: whole sectors up to 1 GiB, and to the volume",
            Bytes(size.1)
        ));
    }
    let spec = presto::VolumeSpec {
        bytes,
        iops_mean,
        iops_deviation,
        counts: presto::Counts::Cut,
        cluster_max,
        stride_max,
        hotspots: hotspots.iter().map(|&(weight, share)| presto::Hotspot { weight, share }).collect(),
        sizes: sizes.iter().map(|&(weight, bytes)| (weight, bytes as u32)).collect(),
        read_share,
    };
    match spec.has_room() {
        true => Ok(spec),
        false => Err("no request fits between where a hotspot begins and the end of the volume".into()),
    }
}

/// Hotspots are pairs of (weight, share), with some weight, and shares of at most 1 in all.
fn check_hotspots(
    document: &Document,
    parts: &[(f64, f64)],
    span: &std::ops::Range<usize>,
) -> Result<(), Failure> {
    let weights: f64 = parts.iter().map(|part| part.0).sum();
    let shares: f64 = parts.iter().map(|part| part.1).sum();
    let sound = parts.iter().all(|part| part.0 >= 0.0 && part.1 > 0.0);
    if sound && weights > 0.0 && weights.is_finite() && shares <= 1.000_001 {
        return Ok(());
    }
    Err(document.failure(
        span,
        "hotspots are pairs of a weight and a share of the range, shares above 0 and at most 1 in all",
    ))
}

fn sizes_of(
    document: &Document,
    sizes: &[(f64, Text<Bytes>)],
    span: &std::ops::Range<usize>,
) -> Result<Vec<(f64, u64)>, Failure> {
    let found: Vec<(f64, u64)> = sizes.iter().map(|(weight, text)| (*weight, text.0.0)).collect();
    let sound = found
        .iter()
        .all(|(weight, bytes)| *weight >= 0.0 && weight.is_finite() && (1..=64 << 30).contains(bytes));
    if sound && found.iter().any(|size| size.0 > 0.0) {
        return Ok(found);
    }
    Err(document.failure(span, "sizes are pairs of a weight, one of them above 0, and 1 B to 64 GiB"))
}
