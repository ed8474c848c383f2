//! What is written, seen from outside: golden files of whole charts and a report, well-formedness, escaping, and
//! degenerate input.
//!
//! `FOREBAY_UPDATE_GOLDEN=1 cargo test -p forebay-report` writes the golden files anew; look at them before you commit.

use forebay_report::{Axis, Card, Cells, Chart, ChartError, Quantity, Report, Series, Shape, Status, Table};
use std::path::PathBuf;

/// Compares `found` with the golden file `name`, or writes that file where FOREBAY_UPDATE_GOLDEN is set.
fn check_golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("FOREBAY_UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        found == expected,
        "`{name}` differs from its golden file; if that is meant, run with FOREBAY_UPDATE_GOLDEN=1"
    );
}

/// A small check that every tag is closed in order, every attribute quoted, every `&` an entity: what an XML parser
/// demands first. Panics with the place where it fails.
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        for part in text.split('&').skip(1) {
            assert!(part.split_once(';').is_some_and(|(name, _)| name.len() <= 6), "bare ampersand: &{part}");
        }
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
            continue;
        }
        assert!(tag.matches('"').count().is_multiple_of(2), "unbalanced quotes: {tag}");
        let name = tag.split([' ', '/']).next().unwrap();
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

fn mrc_chart() -> Chart {
    let curve = |floor: f64, knee: f64| -> Vec<(f64, f64)> {
        (0..200)
            .map(|at| {
                let size = f64::from(at) * 16.0 * 1_048_576.0;
                (size, floor + (1.0 - floor) * (-size / (knee * 1_048_576.0)).exp())
            })
            .collect()
    };
    Chart::new(
        "Miss ratio against cache size",
        Axis::linear("cache size", Quantity::Bytes),
        Axis::linear("miss ratio", Quantity::Ratio),
    )
    .with_series(Series::line("mail", curve(0.08, 300.0)))
    .with_series(Series::line("database", curve(0.25, 900.0)))
    .with_series(Series::step("web (scans)", curve(0.7, 2000.0)))
    .with_series(Series::line("desktop images with a long name", curve(0.1, 4000.0)))
    .with_marker("working set (600 s): 1.20 GiB", 1.2 * 1_073_741_824.0)
    .with_marker("chosen: 768 MiB", 768.0 * 1_048_576.0)
    .with_description("Four miss ratio curves that fall with the cache size.")
}

fn latency_chart() -> Chart {
    let latency = |at: u32, level: f64| level * (1.0 + 0.25 * f64::from((at * 7_919) % 13) / 13.0);
    let db: Vec<(f64, f64)> = (0..90)
        .map(|at| {
            let level = match at {
                0..20 => 0.004,
                20..45 => 0.019,
                45..60 => 0.019 - 0.015 * f64::from(at - 45) / 15.0,
                _ => 0.0035,
            };
            (f64::from(at), latency(at, level))
        })
        .collect();
    let scan: Vec<(f64, f64)> = (20..90).map(|at| (f64::from(at), latency(at + 3, 0.012))).collect();
    Chart::new(
        "Latency of the workloads",
        Axis::linear("time", Quantity::Time),
        Axis::linear("mean latency", Quantity::Latency),
    )
    .with_series(Series::line("database", db))
    .with_series(Series::line("random reader", scan))
    .with_band("alone", 0.0, 20.0)
    .with_band("together, no cache", 20.0, 45.0)
    .with_band("together, with Forebay", 45.0, 90.0)
    .with_level("objective: 5 ms", 0.005)
    .with_marker("violation detected", 44.0)
    .with_marker("cache granted", 46.0)
}

fn log_chart() -> Chart {
    let curve = |shift: f64| -> Vec<(f64, f64)> {
        (0..40).map(|at| (4096.0 * 1.5f64.powi(at), 1.0 / (1.0 + (f64::from(at) / shift).powi(4)))).collect()
    };
    let mut chart = Chart::new(
        "Miss ratio, sizes on a logarithmic axis",
        Axis::log("cache size", Quantity::Bytes),
        Axis::linear("miss ratio", Quantity::Ratio),
    );
    for at in 0..8 {
        chart = chart.with_series(Series::line(format!("volume {at}"), curve(8.0 + 4.0 * f64::from(at))));
    }
    chart
}

fn report() -> Report {
    let mut table =
        Table::new(["volume", "objective", ">without", ">with", ">cache"]).with_caption("Per volume");
    table.push(["mail", "mean ≤ 5 ms", "19.2 ms", "3.6 ms", "768 MiB"]);
    table.push(["database", "p95 ≤ 12 ms", "10.1 ms", "10.1 ms", "0"]);
    Report::new("Cache plan", "two volumes, one budget")
        .cards(vec![
            Card::new("objectives met", "1 of 2", "with a budget of 1 GiB").with_status(Status::Attention),
            Card::new("cache given", "768 MiB", "the working set would take 1.2 GiB"),
            Card::new("mail", "3.6 ms", "objective 5 ms").with_status(Status::Good),
            Card::new("database", "12.4 ms", "objective 12 ms").with_status(Status::Bad),
        ])
        .heading("Curves")
        .chart(mrc_chart())
        .chart(latency_chart())
        .heading("Volumes")
        .table(table)
        .note(Status::Attention, "the budget leaves `database` 3% above its objective")
        .paragraph("Latencies are predicted from the storage model, not measured.")
}

#[test]
fn what_is_written_on_lines_stands_above_them() {
    let svg = latency_chart().to_svg("latency").unwrap();
    let last_line = svg.rfind("clip-path=").expect("lines");
    for label in ["objective: 5 ms", "violation detected", "cache granted"] {
        assert!(svg.find(&format!(">{label}<")).expect(label) > last_line, "{label}");
    }
}

#[test]
fn labels_of_levels_that_are_near_each_other_stand_side_by_side() {
    let axis = |label| Axis::linear(label, Quantity::Count);
    let chart =
        Chart::new("", axis("x"), axis("y")).with_series(Series::line("n", vec![(0.0, 0.0), (1.0, 100.0)]));
    let svg =
        chart.with_level("low", 50.0).with_level("near", 51.0).with_level("far", 80.0).to_svg("c").unwrap();
    let x = |label: &str| -> f64 {
        let text = svg.split("<text ").find(|text| text.contains(&format!(">{label}<"))).expect("a label");
        text.split("x=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().parse().unwrap()
    };
    assert!(x("far") == x("low") && x("near") > x("low") + 15.0, "{} {} {}", x("low"), x("near"), x("far"));
}

#[test]
fn a_series_looks_the_same_in_charts_where_others_are_left_out() {
    let chart = |of: &[usize]| {
        let axis = |label| Axis::linear(label, Quantity::Count);
        let series = |at: &usize| Series::line(format!("n{at}"), vec![(0.0, 1.0), (1.0, 2.0)]).with_look(*at);
        let chart = Chart { series: of.iter().map(series).collect(), ..Chart::new("", axis("x"), axis("y")) };
        chart.to_svg("c").unwrap()
    };
    let looks = |svg: &str, look: usize| svg.contains(&format!("<path class=\"fb-s{look}\""));
    let (all, few) = (chart(&[0, 1, 2]), chart(&[1, 2]));
    assert!((0..3).all(|look| looks(&all, look)) && !looks(&all, 3));
    assert!(!looks(&few, 0) && looks(&few, 1) && looks(&few, 2) && !few.contains("class=\"fb-f0\""));
}

#[test]
fn charts_and_report_match_their_golden_files() {
    for (name, chart) in
        [("mrc.svg", mrc_chart()), ("latency.svg", latency_chart()), ("log.svg", log_chart())]
    {
        let svg = chart.to_svg("chart").unwrap();
        assert_well_formed(&svg);
        check_golden(name, &svg);
    }
    check_golden("report.html", &report().to_html().unwrap());
}

#[test]
fn a_report_names_no_other_resource() {
    let page = report().to_html().unwrap();
    for sign in ["http://", "https://", "src=", "href=", "url(", "@import", "<script"] {
        let found: Vec<&str> =
            page.match_indices(sign).map(|(at, _)| &page[at..(at + 40).min(page.len())]).collect();
        let outside: Vec<_> = found
            .iter()
            .filter(|text| !text.starts_with("http://www.w3.org/2000/svg") && !text.starts_with("url(#"))
            .collect();
        assert!(outside.is_empty(), "{outside:?}");
    }
}

#[test]
fn ids_differ_between_the_charts_of_a_page() {
    let page = report().to_html().unwrap();
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(count >= 6);
}

#[test]
fn text_from_elsewhere_stays_text() {
    let nasty = "</title><script>alert('1')</script>&\"\u{0}\u{1b}";
    let axis = |label: &str| Axis::linear(label, Quantity::Count);
    let chart = Chart::new(nasty, axis(nasty), axis(nasty))
        .with_series(Series::line(nasty, vec![(0.0, 1.0), (1.0, 2.0)]))
        .with_series(Series::line(nasty, vec![(0.0, 1.0), (1.0, 3.0)]))
        .with_band(nasty, 0.0, 1.0)
        .with_marker(nasty, 0.5)
        .with_level(nasty, 1.5);
    let svg = chart.to_svg(nasty).unwrap();
    assert_well_formed(&svg);
    let mut table = Table::new([nasty]).with_caption(nasty);
    table.push([nasty]);
    let page = Report::new(nasty, nasty)
        .heading(nasty)
        .paragraph(nasty)
        .note(Status::Bad, nasty)
        .cards(vec![Card::new(nasty, nasty, nasty)])
        .table(table)
        .chart(chart)
        .to_html()
        .unwrap();
    for text in [&svg, &page] {
        assert!(!text.contains("<script") && !text.contains('\0') && !text.contains('\u{1b}'));
        assert!(text.contains("&lt;/title&gt;&lt;script&gt;"));
    }
}

#[test]
fn degenerate_series_are_drawn() {
    let draw = |points: Vec<(f64, f64)>| {
        let svg = Chart::new("t", Axis::linear("x", Quantity::Time), Axis::linear("y", Quantity::Latency))
            .with_series(Series::line("s", points))
            .to_svg("c")
            .unwrap();
        assert_well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        svg
    };
    assert!(draw(vec![]).contains(">no data<"));
    // One point is a mark, not a line.
    let one = draw(vec![(3.0, 0.5)]);
    assert!(one.contains("<circle") && !one.contains("<path class=\"fb-s0\""));
    assert!(draw(vec![(0.0, 7.0), (1.0, 7.0), (2.0, 7.0)]).contains("<path class=\"fb-s0\""));
    draw(vec![(0.0, 0.0), (0.0, 0.0)]);
    // Whatever 64 bits hold can be an address.
    draw(vec![(-2e19, -2e19), (0.0, u64::MAX as f64)]);
    draw(vec![(0.0, 1e-18), (1e-18, 2e-18)]);
    // A million points draw no more than what can be seen: below 4 points for each half pixel of 800.
    let million =
        draw((0..1_000_000).map(|at| (f64::from(at), f64::from((at % 1_000) * 7_919 % 1_000))).collect());
    assert!(million.len() < 120_000, "{}", million.len());
}

#[test]
fn what_cannot_stand_on_an_axis_is_refused() {
    let chart = |x: Axis, point| {
        let mut series = Series::line("s", vec![(1.0, 1.0), point]);
        series.shape = Shape::Points;
        Chart::new("t", x, Axis::linear("y", Quantity::Count)).with_series(series).to_svg("c")
    };
    let linear = || Axis::linear("x", Quantity::Count);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3e19] {
        for point in [(bad, 1.0), (1.0, bad)] {
            let Err(ChartError::NotDrawable { of, index, .. }) = chart(linear(), point) else {
                panic!("{point:?}")
            };
            assert_eq!((of.as_str(), index), ("s", 1));
        }
    }
    assert_eq!(
        chart(Axis::log("x", Quantity::Bytes), (0.0, 1.0)),
        Err(ChartError::NotPositive { of: "s".into(), index: 1, found: 0.0 })
    );
    assert_eq!(
        chart(linear().with_range(5.0, 5.0), (0.0, 1.0)),
        Err(ChartError::EmptyRange { of: "x".into() })
    );
    let empty = Chart::new("t", linear(), linear());
    assert!(empty.clone().with_marker("m", f64::NAN).to_svg("c").is_err());
    assert!(empty.clone().with_level("l", f64::INFINITY).to_svg("c").is_err());
    let page = Report::new("r", "").chart(empty.with_band("b", 0.0, f64::NAN)).to_html();
    assert!(page.unwrap_err().to_string().contains("`t`"));
}

#[test]
fn cells_are_as_dark_as_the_logarithm_of_their_counts() {
    let cells = Cells { width: 60.0, height: 1024.0, rows: vec![vec![0, 1, 0], vec![3, 0, 0]] };
    let chart =
        Chart::new("heat", Axis::linear("time", Quantity::Time), Axis::linear("address", Quantity::Bytes))
            .with_cells(cells);
    assert_eq!((chart.x.range, chart.y.range), (Some((0.0, 180.0)), Some((0.0, 2048.0))));
    let svg = chart.to_svg("heat").unwrap();
    assert_well_formed(&svg);
    // Empty cells are not drawn: ln 2 / ln 4 = 0.5 gives 0.1 + 0.45, and the largest count 1.
    let opacities: Vec<&str> = svg
        .lines()
        .filter(|line| line.contains("#d55e00"))
        .filter_map(|line| line.split("fill-opacity=").nth(1))
        .collect();
    assert_eq!(opacities, ["\"0.55\"/>", "\"1.00\"/>"]);
    assert!(!svg.contains("no data"));
    // The upper cell stands at the left, above the lower one in the middle.
    let place = |opacity: &str, name: &str| -> f64 {
        let line = svg.lines().find(|line| line.contains(opacity)).unwrap();
        line.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    assert!(place("1.00", "x") < place("0.55", "x") && place("1.00", "y") < place("0.55", "y"));
    let empty = Cells { width: 1.0, height: 1.0, rows: Vec::new() };
    let chart =
        Chart::new("", Axis::linear("", Quantity::Time), Axis::linear("", Quantity::Bytes)).with_cells(empty);
    assert_well_formed(&chart.to_svg("empty").unwrap());
}
