//! Draws a chart: layout first, then one function for each thing that is seen.
//!
//! Colours stand as attributes for a light background, so that viewers without style sheets show them too; a style
//! sheet within overrides them where the reader prefers dark.

use crate::axis::{Axis, Layout};
use crate::chart::{Chart, Series, Shape};
use crate::text::{coordinate as c, escape, shorten, width};
use std::fmt::Write;

/// Colours (on light, on dark), dash pattern and mark of the series, in order; from the seventh on they repeat with
/// another dash pattern.
const STYLES: [(&str, &str, &str); 6] = [
    ("#0072b2", "#56b4e9", ""),
    ("#d55e00", "#ff9e5e", "8 4"),
    ("#00805d", "#2fd3a5", "2 3"),
    ("#a8467f", "#e59cc6", "10 3 2 3"),
    ("#8a6a00", "#f0c24b", "14 4"),
    ("#4d4d4d", "#c9d1d9", "5 2 1 2 1 2"),
];
const DASHES_LATER: [&str; 6] = ["4 2", "1 4", "12 2 4 2", "6 6", "3 1", "16 3 1 3"];

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 440.0;
const FONT: f64 = 13.0;
const FONT_SMALL: f64 = 12.0;
/// Labels beside the lines hold at most this many characters; the full name is in the line's tooltip.
const LABEL_CHARS: usize = 24;

/// Where everything stands, in pixels of the view box.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Layout,
    y: Layout,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.x.position(value)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + self.height - self.y.position(value)
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

pub(crate) fn draw(chart: &Chart, id: &str) -> String {
    let id: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let frame = lay_out(chart);
    let mut svg = String::new();
    head(&mut svg, chart, &id);
    bands(&mut svg, chart, &frame);
    grid(&mut svg, chart, &frame);
    let _ = writeln!(
        svg,
        "<clipPath id=\"{id}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
        c(frame.left - 1.0),
        c(frame.top - 4.0),
        c(frame.width + 6.0),
        c(frame.height + 5.0)
    );
    cells(&mut svg, chart, &frame);
    // What is written on lines stands above all of them.
    let mut above = String::new();
    levels(&mut svg, &mut above, chart, &frame);
    markers(&mut svg, &mut above, chart, &frame);
    for (index, series) in chart.series.iter().enumerate().rev() {
        line(&mut svg, series, series.look.unwrap_or(index), &id, &frame);
    }
    svg.push_str(&above);
    labels(&mut svg, chart, &frame);
    if chart.cells.is_none() && chart.series.iter().all(|series| series.points.is_empty()) {
        let (x, y) = (frame.left + frame.width / 2.0, frame.top + frame.height / 2.0);
        text(&mut svg, x, y, "middle", FONT, "fb-muted", "no data");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Each cell that counts something, as dark as the logarithm of its count.
fn cells(svg: &mut String, chart: &Chart, frame: &Frame) {
    let Some(cells) = &chart.cells else { return };
    let most = cells.rows.iter().flatten().max().map_or(0.0, |most| (*most as f64 + 1.0).ln());
    for (row, counts) in cells.rows.iter().enumerate() {
        let (top, bottom) = (frame.y((row + 1) as f64 * cells.height), frame.y(row as f64 * cells.height));
        for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (left, right) =
                (frame.x(column as f64 * cells.width), frame.x((column + 1) as f64 * cells.width));
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#d55e00\" fill-opacity=\"{:.2}\"/>",
                c(left),
                c(top),
                c(right - left),
                c(bottom - top),
                0.1 + 0.9 * (*count as f64 + 1.0).ln() / most
            );
        }
    }
}

fn lay_out(chart: &Chart) -> Frame {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x_values = points()
        .map(|point| point.0)
        .chain(chart.bands.iter().flat_map(|band| [band.from, band.to]))
        .chain(chart.markers.iter().map(|marker| marker.at));
    let y_values = points().map(|point| point.1).chain(chart.levels.iter().map(|level| level.at));
    let height_of_bands = if chart.bands.is_empty() { 0.0 } else { 20.0 };
    let top = 44.0 + height_of_bands;
    let height = HEIGHT - top - 56.0;
    let y = Layout::new(&chart.y, extent(y_values), height, true);
    let widest_tick =
        y.ticks(chart.y.quantity, 5).iter().map(|(_, text)| width(text, FONT_SMALL)).fold(0.0, f64::max);
    let left = 40.0 + widest_tick;
    let widest_label = if labelled(chart) {
        chart
            .series
            .iter()
            .map(|series| width(&shorten(&series.name, LABEL_CHARS), FONT_SMALL) + 50.0)
            .fold(0.0, f64::max)
    } else {
        0.0
    };
    let plot_width = WIDTH - left - widest_label.max(28.0);
    let x = Layout::new(&chart.x, extent(x_values), plot_width, false);
    Frame { left, top, width: plot_width, height, x, y }
}

/// A lone series needs no label beside it: the title says what it is.
fn labelled(chart: &Chart) -> bool {
    chart.series.len() > 1
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn head(svg: &mut String, chart: &Chart, id: &str) {
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-labelledby=\"{id}-title {id}-desc\" class=\"fb-chart\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
         <title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-desc\">{}</desc>\n<style>@media (prefers-color-scheme: dark) {{ \
         .fb-bg {{ fill: #14181f }} .fb-ink {{ fill: #e6e9ee }} .fb-muted {{ fill: #a3acb9 }} .fb-grid {{ stroke: #2b323d }} \
         .fb-axis {{ stroke: #6b7584 }} .fb-band {{ fill: #8fa3bf }} .fb-level {{ stroke: #ff8a80 }} .fb-level-text {{ fill: #ff8a80 }} \
         .fb-marker {{ stroke: #a3acb9 }} .fb-halo {{ stroke: #14181f }}",
        escape(&chart.title),
        escape(&described(chart))
    );
    for (index, (_, dark, _)) in STYLES.iter().enumerate() {
        let _ = write!(svg, " .fb-s{index} {{ stroke: {dark} }} .fb-f{index} {{ fill: {dark} }}");
    }
    let _ = write!(
        svg,
        " }} @media print {{ .fb-bg {{ fill: #ffffff }} }}</style>\n\
         <rect class=\"fb-bg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text class=\"fb-ink\" x=\"16\" y=\"27\" font-size=\"16\" font-weight=\"600\" fill=\"#1a1f27\">{}</text>\n",
        escape(&shorten(&chart.title, 86))
    );
}

fn described(chart: &Chart) -> String {
    if !chart.description.is_empty() {
        return chart.description.clone();
    }
    let mut names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
    if chart.cells.is_some() {
        names.push("a grid of counts");
    }
    format!(
        "{} over {}: {}",
        chart.y.label,
        chart.x.label,
        if names.is_empty() { "no data".to_owned() } else { names.join(", ") }
    )
}

fn bands(svg: &mut String, chart: &Chart, frame: &Frame) {
    for (index, band) in chart.bands.iter().enumerate() {
        let (from, to) = (frame.x(band.from.min(band.to)), frame.x(band.from.max(band.to)));
        let opacity = if index.is_multiple_of(2) { "0.10" } else { "0.20" };
        let _ = writeln!(
            svg,
            "<rect class=\"fb-band\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#5a7190\" fill-opacity=\"{opacity}\"/>",
            c(from),
            c(frame.top - 20.0),
            c(to - from),
            c(frame.height + 20.0)
        );
        // A label that does not fit its band is shortened to what does, down to nothing.
        let fits = ((to - from - 6.0) / (0.6 * FONT_SMALL)).max(0.0) as usize;
        if fits >= 2 {
            let label = shorten(&band.label, fits);
            text(svg, (from + to) / 2.0, frame.top - 6.0, "middle", FONT_SMALL, "fb-ink", &label);
        }
    }
}

fn grid(svg: &mut String, chart: &Chart, frame: &Frame) {
    for (value, label) in frame.y.ticks(chart.y.quantity, 5) {
        let y = frame.y(value);
        rule(svg, "fb-grid", "#e3e7ed", 1.0, "", (frame.left, y), (frame.right(), y));
        text(svg, frame.left - 8.0, y + 4.0, "end", FONT_SMALL, "fb-muted", &label);
    }
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in frame.x.ticks(chart.x.quantity, 7) {
        let x = frame.x(value);
        rule(svg, "fb-grid", "#e3e7ed", 1.0, "", (x, frame.top), (x, frame.bottom()));
        rule(svg, "fb-axis", "#8a94a3", 1.0, "", (x, frame.bottom()), (x, frame.bottom() + 5.0));
        let half = width(&label, FONT_SMALL) / 2.0;
        if x - half >= free_from {
            text(svg, x, frame.bottom() + 19.0, "middle", FONT_SMALL, "fb-muted", &label);
            free_from = x + half + 8.0;
        }
    }
    rule(svg, "fb-axis", "#8a94a3", 1.0, "", (frame.left, frame.bottom()), (frame.right(), frame.bottom()));
    axis_label(svg, &chart.x, frame.left + frame.width / 2.0, HEIGHT - 12.0, None);
    axis_label(svg, &chart.y, 18.0, frame.top + frame.height / 2.0, Some(-90));
}

fn axis_label(svg: &mut String, axis: &Axis, x: f64, y: f64, turn: Option<i32>) {
    let turn =
        turn.map_or(String::new(), |angle| format!(" transform=\"rotate({angle} {} {})\"", c(x), c(y)));
    let _ = writeln!(
        svg,
        "<text class=\"fb-ink\" x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{FONT}\" fill=\"#1a1f27\"{turn}>{}</text>",
        c(x),
        c(y),
        escape(&axis.label)
    );
}

fn levels(svg: &mut String, above: &mut String, chart: &Chart, frame: &Frame) {
    // Where a label ends, and at which height: one that would lie on it stands behind it.
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for level in chart.levels.iter().filter(|level| frame.y.holds(level.at)) {
        let y = frame.y(level.at);
        rule(svg, "fb-level", "#b3261e", 1.5, "6 3", (frame.left, y), (frame.right(), y));
        // At the left end above the line, or below it where the top is too near.
        let text_y = if y - frame.top > 18.0 { y - 5.0 } else { y + 15.0 };
        let label = shorten(&level.label, 60);
        let beside = taken.iter().filter(|(_, other)| (other - text_y).abs() < FONT_SMALL + 2.0);
        let text_x = beside.map(|(end, _)| end + 12.0).fold(frame.left + 6.0, f64::max);
        taken.push((text_x + width(&label, FONT_SMALL), text_y));
        halo_text(above, (text_x, text_y), "start", ("fb-level-text", "#b3261e"), &label);
    }
}

fn markers(svg: &mut String, above: &mut String, chart: &Chart, frame: &Frame) {
    let mut order: Vec<_> = chart.markers.iter().filter(|marker| frame.x.holds(marker.at)).collect();
    order.sort_by(|a, b| a.at.total_cmp(&b.at));
    // Rows of text from the top; each takes the first row that is free at its place.
    let mut rows: Vec<f64> = Vec::new();
    for (at, marker) in order.iter().enumerate() {
        let x = frame.x(marker.at);
        let label = shorten(&marker.label, 40);
        let wide = width(&label, FONT_SMALL) + 8.0;
        // To the left where there is no room to the right, be it that the plot ends or that another marker stands there.
        let ends = order.get(at + 1).map_or(frame.right(), |next| frame.x(next.at));
        let begins = at.checked_sub(1).map_or(frame.left, |last| frame.x(order[last].at));
        let flips =
            (x + wide > ends && x - wide > begins) || (x + wide > frame.right() && x - wide > frame.left);
        let (start, end) = if flips { (x - wide, x) } else { (x, x + wide) };
        let row = rows.iter().position(|free_from| *free_from <= start).unwrap_or_else(|| {
            rows.push(f64::NEG_INFINITY);
            rows.len() - 1
        });
        rows[row] = end;
        let y = frame.top + 14.0 + row as f64 * 16.0;
        rule(svg, "fb-marker", "#5b6573", 1.2, "3 3", (x, frame.top), (x, frame.bottom()));
        let (at, anchor) = if flips { (x - 5.0, "end") } else { (x + 5.0, "start") };
        halo_text(above, (at, y), anchor, ("fb-ink", "#1a1f27"), &label);
    }
}

fn line(svg: &mut String, series: &Series, index: usize, id: &str, frame: &Frame) {
    if series.points.is_empty() {
        return;
    }
    let pixels = thinned(series.points.iter().map(|(x, y)| (frame.x(*x), frame.y(*y))));
    let (class, color, dash) = style(index);
    let _ = write!(svg, "<g clip-path=\"url(#{id}-clip)\"><title>{}</title>", escape(&series.name));
    if series.shape != Shape::Points && pixels.len() > 1 {
        let mut path = String::new();
        let mut last = (String::new(), String::new());
        for (at, (x, y)) in pixels.iter().map(|(x, y)| (c(*x), c(*y))).enumerate() {
            if at == 0 {
                let _ = write!(path, "M{x} {y}");
            } else if series.shape == Shape::Step {
                if last.0 != x {
                    let _ = write!(path, "H{x}");
                }
                if last.1 != y {
                    let _ = write!(path, "V{y}");
                }
            } else {
                let _ = write!(path, "L{x} {y}");
            }
            last = (x, y);
        }
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let _ = write!(
            svg,
            "<path class=\"fb-s{class}\" d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.2\" \
             stroke-linejoin=\"round\"{dash}/>"
        );
    }
    // Few points are marked each, so that measurements can be told from the lines between them.
    if series.shape == Shape::Points || pixels.len() == 1 || pixels.len() <= 12 {
        for (x, y) in &pixels {
            mark(svg, *x, *y, index);
        }
    } else if let Some((x, y)) = pixels.last() {
        mark(svg, *x, *y, index);
    }
    svg.push_str("</g>\n");
}

/// At most four points of each half pixel of width are kept: the first, the lowest, the highest and the last, which
/// is all that can be seen of them.
fn thinned(pixels: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut column: Vec<(f64, f64)> = Vec::new();
    let flush = |column: &mut Vec<(f64, f64)>, kept: &mut Vec<(f64, f64)>| {
        if column.len() > 4 {
            let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
            let position = |point: Option<&(f64, f64)>| {
                column.iter().position(|other| Some(other) == point).unwrap_or(0)
            };
            let mut places = [
                0,
                position(column.iter().min_by(by_y)),
                position(column.iter().max_by(by_y)),
                column.len() - 1,
            ];
            places.sort_unstable();
            let mut last = None;
            for place in places {
                if last != Some(place) {
                    kept.push(column[place]);
                }
                last = Some(place);
            }
        } else {
            kept.append(column);
        }
        column.clear();
    };
    let column_of = |x: f64| (x * 2.0).floor();
    for point in pixels {
        if column.first().is_some_and(|first| column_of(first.0) != column_of(point.0)) {
            flush(&mut column, &mut kept);
        }
        column.push(point);
    }
    flush(&mut column, &mut kept);
    kept
}

fn style(index: usize) -> (usize, &'static str, &'static str) {
    let class = index % STYLES.len();
    let (light, _, dash) = STYLES[class];
    (class, light, if index < STYLES.len() { dash } else { DASHES_LATER[class] })
}

fn mark(svg: &mut String, x: f64, y: f64, index: usize) {
    let (class, color, _) = style(index);
    let shape = match index % 4 {
        0 => format!("<circle cx=\"{}\" cy=\"{}\" r=\"3.2\"", c(x), c(y)),
        1 => format!("<rect x=\"{}\" y=\"{}\" width=\"6\" height=\"6\"", c(x - 3.0), c(y - 3.0)),
        2 => format!("<path d=\"M{} {}l4 7h-8z\"", c(x), c(y - 4.2)),
        _ => format!("<path d=\"M{} {}l4 4l-4 4l-4 -4z\"", c(x), c(y - 4.0)),
    };
    let _ = write!(svg, "{shape} class=\"fb-f{class}\" fill=\"{color}\"/>");
}

/// The names at the right, each beside where its line ends, moved apart where they would overlap; a piece of the line
/// stands before each, so that it is found again where lines cross.
fn labels(svg: &mut String, chart: &Chart, frame: &Frame) {
    if !labelled(chart) {
        return;
    }
    let mut places: Vec<(f64, usize)> = chart
        .series
        .iter()
        .enumerate()
        .map(|(index, series)| (series.points.last().map_or(frame.bottom(), |point| frame.y(point.1)), index))
        .collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let gap = (frame.height / places.len() as f64).min(18.0);
    let mut free_from = frame.top + 4.0;
    for place in &mut places {
        place.0 = place.0.max(free_from);
        free_from = place.0 + gap;
    }
    let mut below = frame.bottom() + gap;
    for place in places.iter_mut().rev() {
        place.0 = place.0.min(below - gap);
        below = place.0;
    }
    for (y, index) in places {
        let series = &chart.series[index];
        let look = series.look.unwrap_or(index);
        let (class, color, dash) = style(look);
        let x = frame.right() + 12.0;
        rule(svg, &format!("fb-s{class}"), color, 2.2, dash, (x, y), (x + 22.0, y));
        mark(svg, x + 22.0, y, look);
        let name = shorten(&series.name, LABEL_CHARS);
        text(svg, x + 30.0, y + 4.0, "start", FONT_SMALL, "fb-ink", &name);
    }
}

fn rule(
    svg: &mut String,
    class: &str,
    color: &str,
    width: f64,
    dash: &str,
    from: (f64, f64),
    to: (f64, f64),
) {
    let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{color}\" stroke-width=\"{width}\"{dash}/>",
        c(from.0),
        c(from.1),
        c(to.0),
        c(to.1)
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: f64, class: &str, content: &str) {
    let color = if class == "fb-muted" { "#55606e" } else { "#1a1f27" };
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{color}\">{}</text>",
        c(x),
        c(y),
        escape(content)
    );
}

/// Text with a rim in the background's colour, so that it can be read across lines. The rim is a text of its own: not
/// every viewer knows `paint-order`.
fn halo_text(svg: &mut String, at: (f64, f64), anchor: &str, (class, color): (&str, &str), content: &str) {
    let (x, y, content) = (c(at.0), c(at.1), escape(content));
    let _ = writeln!(
        svg,
        "<g text-anchor=\"{anchor}\" font-size=\"{FONT_SMALL}\"><text aria-hidden=\"true\" class=\"fb-halo\" x=\"{x}\" y=\"{y}\" \
         fill=\"none\" stroke=\"#ffffff\" stroke-width=\"4\" stroke-linejoin=\"round\">{content}</text>\
         <text class=\"{class}\" x=\"{x}\" y=\"{y}\" fill=\"{color}\">{content}</text></g>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_extremes_of_every_column() {
        // 1,000 points in one half-pixel column: first (0.0), lowest (-7 at 500), highest (9 at 501), last.
        let mut points: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at) / 2_500.0, 0.0)).collect();
        points[500].1 = -7.0;
        points[501].1 = 9.0;
        let kept = thinned(points.iter().copied());
        assert_eq!(kept, [points[0], points[500], points[501], points[999]]);
        let few = [(0.0, 1.0), (0.1, 2.0), (5.0, 1.0)];
        assert_eq!(thinned(few.into_iter()), few);
    }
}
