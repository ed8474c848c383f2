//! The YAML of PRESTO's slides: the part of the language that it uses, and no more.
//!
//! Maps by indentation, lists of `[a, b]` with a dash each, `#` comments. The slides print a hotspot as `[10%, 1%]` below "[% disk
//! space, % I/O]", but their numbers are the published generator's, which are the other way round: the first is the share of the
//! requests, the second that of the disk.

use super::specification::volume_spec;
use crate::document::Document;
use crate::failure::Failure;
use forebay_units::{Bytes, Nanos};
use forebay_workload::parametric::Specification;
use std::collections::BTreeMap;

/// A scalar or the entries of a list, by its path (`sector.cluster.size.max`), with its line.
type Entries = BTreeMap<String, (usize, Vec<String>)>;

/// The paths that the slides have.
const PATHS: [&str; 10] = [
    "iops.randvar",
    "iops.mean",
    "iops.stddev",
    "sector.size",
    "sector.cluster.size.min",
    "sector.cluster.size.max",
    "sector.cluster.stride.min",
    "sector.cluster.stride.max",
    "hotspots",
    "iosizes",
];

/// Reads the slides' YAML as one volume of `size`.
pub(super) fn parse(document: &Document, size: Bytes, duration: Nanos) -> Result<Specification, Failure> {
    let entries = entries(document)?;
    let line_of = |path: &str| entries.get(path).map_or(1, |(line, _)| *line);
    let fail = |path: &str, message: String| document.failure_in(line_of(path), path, message);
    let number = |path: &str, default: Option<f64>| -> Result<f64, Failure> {
        match (entries.get(path), default) {
            (Some((_, values)), _) => {
                values[0].parse().map_err(|_| fail(path, format!("`{}` is no number", values[0])))
            }
            (None, Some(default)) => Ok(default),
            (None, None) => Err(fail(path, "it is missing".into())),
        }
    };
    for (path, wanted) in [("iops.randvar", "normal"), ("sector.size", "512b")] {
        if let Some((_, values)) = entries.get(path)
            && !values[0].eq_ignore_ascii_case(wanted)
        {
            return Err(fail(path, format!("`{}`: expected `{wanted}`", values[0])));
        }
    }
    for path in ["sector.cluster.size.min", "sector.cluster.stride.min"] {
        if number(path, Some(1.0))? != 1.0 {
            return Err(fail(path, "expected 1, as in the published generator".into()));
        }
    }
    let pairs = |path: &'static str| -> Result<Vec<(f64, String)>, Failure> {
        let (_, values) = entries.get(path).ok_or_else(|| fail(path, "it is missing".into()))?;
        let pair = |text: &String| -> Option<(f64, String)> {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            let (first, second) = inner.split_once(',')?;
            let percent = first.trim().trim_end_matches('%').parse().ok()?;
            Some((percent, second.trim().to_owned()))
        };
        values
            .iter()
            .map(|text| pair(text).ok_or_else(|| fail(path, format!("`{text}`: expected `[NUMBER%, ...]`"))))
            .collect()
    };
    let mut hotspots = Vec::new();
    for (weight, share) in pairs("hotspots")? {
        let share: f64 = share
            .trim_end_matches('%')
            .parse()
            .map_err(|_| fail("hotspots", format!("`{share}` is no share")))?;
        if weight.is_nan() || weight < 0.0 || share.is_nan() || share <= 0.0 {
            return Err(fail("hotspots", "shares are above 0".into()));
        }
        hotspots.push((weight, share / 100.0));
    }
    if hotspots.iter().map(|spot| spot.1).sum::<f64>() > 1.000_001 {
        return Err(fail("hotspots", "they cover more than the disk".into()));
    }
    if hotspots.iter().map(|spot| spot.0).sum::<f64>() <= 0.0 {
        return Err(fail("hotspots", "none of them has requests".into()));
    }
    let mut sizes = Vec::new();
    for (weight, text) in pairs("iosizes")? {
        let digits = text.trim_end_matches(['b', 'B']);
        let bytes: u64 =
            digits.parse().map_err(|_| fail("iosizes", format!("`{text}` is no size in bytes")))?;
        if !(0.0..=1e9).contains(&weight) || bytes == 0 {
            return Err(fail(
                "iosizes",
                format!("`[{weight}%, {text}]`: expected a share from 0 and a size above 0"),
            ));
        }
        sizes.push((weight, bytes));
    }
    if sizes.iter().map(|size| size.0).sum::<f64>() <= 0.0 {
        return Err(fail("iosizes", "none of them has requests".into()));
    }
    let whole = |path: &'static str| -> Result<u32, Failure> {
        let value = number(path, None)?;
        if !(1.0..=1e9).contains(&value) {
            return Err(fail(path, format!("{value} is out of range, expected 1 to 1e9")));
        }
        Ok(value as u32)
    };
    let (cluster, stride) = (whole("sector.cluster.size.max")?, whole("sector.cluster.stride.max")?);
    let iops = (number("iops.mean", None)?, number("iops.stddev", Some(0.0))?);
    let spec = volume_spec(size.0, iops, (cluster, stride), &hotspots, &sizes, 0.5)
        .map_err(|message| fail("iops", message))?;
    Ok(Specification {
        volumes: vec!["volume-0".to_owned()],
        loads: Vec::new(),
        presto: vec![(0, spec)],
        duration,
    })
}

/// Everything that the file says.
fn entries(document: &Document) -> Result<Entries, Failure> {
    let mut found = Entries::new();
    // Keys that are open, with their indentation.
    let mut open: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(document.text().lines()) {
        let text = line.split('#').next().unwrap_or("").trim_end();
        let content = text.trim_start();
        if content.is_empty() || content == "---" {
            continue;
        }
        let indent = text.len() - content.len();
        let path = |open: &[(usize, String)]| {
            let path = open.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
            // One of the two slides that print it has the stride beside the cluster.
            match path.strip_prefix("sector.stride") {
                Some(rest) => format!("sector.cluster.stride{rest}"),
                None => path,
            }
        };
        if let Some(item) = content.strip_prefix("- ") {
            // A list may stand at the indentation of its key.
            while open.last().is_some_and(|(at, _)| *at > indent) {
                open.pop();
            }
            let path = path(&open);
            if !PATHS.contains(&path.as_str()) {
                return Err(document.failure_in(
                    number,
                    content,
                    "a list belongs to `hotspots` or `iosizes`",
                ));
            }
            found.entry(path).or_insert((number, Vec::new())).1.push(item.trim().to_owned());
            continue;
        }
        let Some((key, value)) = content.split_once(':') else {
            return Err(document.failure_in(number, content, "expected `key:` or `- [a, b]`"));
        };
        while open.last().is_some_and(|(at, _)| *at >= indent) {
            open.pop();
        }
        open.push((indent, key.trim().to_owned()));
        let path = path(&open);
        let known = PATHS.iter().any(|known| *known == path || known.starts_with(&format!("{path}.")));
        if !known {
            return Err(document.failure_in(number, &path, "unknown key"));
        }
        let value = value.trim();
        if !value.is_empty() && found.insert(path.clone(), (number, vec![value.to_owned()])).is_some() {
            return Err(document.failure_in(number, &path, "it stands twice"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLIDE: &str = "iops:\n  randvar: normal\n  mean: 100\n  stddev: 20\nsector:\n  size: 512b\n  cluster:\n    \
                         size:\n      min: 1\n      max: 10\n    stride:\n      min: 1\n      max: 1000\nhotspots:\n  \
                         - [10%, 1%]\n  - [30%, 10%]\niosizes:\n  - [80%, 4096b]\n  - [20%, 8192b]\n";

    fn parsed(text: &str) -> Result<Specification, Failure> {
        parse(&Document::of("slide.yaml", text), Bytes::gib(10), Nanos::secs(60))
    }

    #[test]
    fn the_slides_example_is_read() {
        let specification = parsed(SLIDE).unwrap();
        let (_, spec) = &specification.presto[0];
        assert_eq!((spec.iops_mean, spec.iops_deviation), (100.0, 20.0));
        assert_eq!((spec.cluster_max, spec.stride_max), (10, 1_000));
        assert_eq!(spec.hotspots[1], forebay_workload::presto::Hotspot { weight: 30.0, share: 0.1 });
        assert_eq!(spec.sizes, [(80.0, 4_096), (20.0, 8_192)]);
        let beside = SLIDE.replace(
            "    stride:\n      min: 1\n      max: 1000\n",
            "  stride:\n    min: 1\n    max: 1000\n",
        );
        assert_ne!(beside, SLIDE);
        assert_eq!(parsed(&beside).unwrap(), specification);
    }

    #[test]
    fn errors_name_line_and_key() {
        for (from, to, wanted) in [
            ("mean: 100", "mean: many", "line 3, `iops.mean`: `many` is no number"),
            ("mean: 100", "meen: 100", "line 3, `iops.meen`: unknown key"),
            ("normal", "uniform", "line 2, `iops.randvar`: `uniform`: expected `normal`"),
            ("[30%, 10%]", "[30%, 110%]", "`hotspots`: they cover more than the disk"),
            ("[80%, 4096b]", "80%", "`iosizes`: `80%`: expected `[NUMBER%, ...]`"),
            ("[80%, 4096b]", "[-80%, 4096b]", "expected a share from 0 and a size above 0"),
            (
                "  - [80%, 4096b]\n  - [20%, 8192b]",
                "  - [0%, 4096b]",
                "line 18, `iosizes`: none of them has requests",
            ),
            ("max: 10\n", "max: 0\n", "line 10, `sector.cluster.size.max`: 0 is out of range"),
            ("  - [10%", "?\n  - [10%", "expected `key:` or `- [a, b]`"),
        ] {
            assert!(SLIDE.contains(from));
            let message = parsed(&SLIDE.replace(from, to)).unwrap_err().message().to_owned();
            assert!(message.contains(wanted), "{message}");
        }
        assert!(parsed("").unwrap_err().message().contains("missing"));
    }
}
