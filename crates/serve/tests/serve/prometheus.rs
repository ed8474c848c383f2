//! A strict reader of Prometheus text: what `promtool check metrics` would object to, and what a counter must keep.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a text that keeps every rule, by series.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let mut samples = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
            if help.trim().is_empty() || !helped.insert(name.to_owned()) {
                return Err(format!("help twice or empty: {line}"));
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| format!("no type: {line}"))?;
            if !helped.contains(name) {
                return Err(format!("no help before: {line}"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                return Err(format!("counters, and only they, end in _total: {line}"));
            }
            if !["counter", "gauge", "histogram"].contains(&kind) || !name.starts_with("forebay_") {
                return Err(format!("unknown: {line}"));
            }
            family = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        let (series, value) = line.rsplit_once(' ').ok_or_else(|| format!("no value: {line}"))?;
        let name = series.split('{').next().unwrap_or(series);
        let (of, kind) = family.as_ref().ok_or_else(|| format!("no family: {line}"))?;
        let belongs = match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].iter().any(|suffix| name == format!("{of}{suffix}")),
            _ => name == of,
        };
        if !belongs {
            return Err(format!("{line} stands among {of}"));
        }
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let inner = labels.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
            inner.filter(|inner| inner.ends_with('"')).ok_or_else(|| format!("labels: {line}"))?;
        }
        let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
        if kind == "counter" && !(value >= 0.0 && value.is_finite()) {
            return Err(format!("no counter: {line}"));
        }
        if samples.insert(series.to_owned(), value).is_some() {
            return Err(format!("twice: {series}"));
        }
    }
    buckets(&samples, text)?;
    Ok(samples)
}

/// Buckets rise, edges rise, and the last is the count.
fn buckets(samples: &BTreeMap<String, f64>, text: &str) -> Result<(), String> {
    let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("_bucket{")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (head, edge) = series.split_once("le=\"").ok_or("a bucket without an edge")?;
        let edge: f64 =
            edge.trim_end_matches("\"}").replace("+Inf", "inf").parse().map_err(|_| line.to_owned())?;
        let value: f64 = value.parse().unwrap();
        let (edge_before, before) = last.insert(head.to_owned(), (edge, value)).unwrap_or((-1.0, 0.0));
        if edge <= edge_before || value < before {
            return Err(format!("not cumulative: {line}"));
        }
    }
    for (head, (edge, value)) in last {
        let count = format!("{}}}", head.replace("_bucket{", "_count{").trim_end_matches(','));
        if edge != f64::INFINITY || samples.get(&count) != Some(&value) {
            return Err(format!("+Inf is not the count: {head}"));
        }
    }
    Ok(())
}

#[test]
fn the_reader_objects() {
    let head = "# HELP forebay_x_total x\n# TYPE forebay_x_total counter\n";
    assert!(parse(&format!("{head}forebay_x_total{{a=\"b\"}} 1\n")).is_ok());
    for bad in [
        "forebay_x_total 1\n".to_owned(),
        format!("{head}forebay_x_total 1\nforebay_x_total 2\n"),
        format!("{head}forebay_y 1\n"),
        "# HELP forebay_x x\n# TYPE forebay_x counter\nforebay_x 1\n".to_owned(),
        "# HELP forebay_h h\n# TYPE forebay_h histogram\nforebay_h_bucket{le=\"1\"} 3\nforebay_h_bucket{le=\"+Inf\"} 2\n".to_owned(),
    ] {
        assert!(parse(&bad).is_err(), "{bad}");
    }
}
