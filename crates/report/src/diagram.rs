//! State diagrams: states on a circle, transitions as arrows whose width is their weight.

use crate::text::{coordinate as c, escape, shorten};
use std::f64::consts::TAU;
use std::fmt::Write;

const SIZE: f64 = 760.0;
const RADIUS: f64 = 270.0;
/// Characters of a label beside a state.
const LABEL_CHARS: usize = 22;

/// A state.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What it is called.
    pub label: String,
    /// Its share of everything, 0 to 1: the area of its circle.
    pub share: f64,
}

/// An arrow between two states, or from a state to itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrow {
    /// Index of the state before.
    pub from: usize,
    /// Index of the state after.
    pub to: usize,
    /// Its share of everything, 0 to 1: the width of the line.
    pub share: f64,
    /// What a reader sees who points at it.
    pub detail: String,
}

/// A state diagram.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagram {
    /// Its title.
    pub title: String,
    /// The states, clockwise from the top.
    pub states: Vec<State>,
    /// The arrows; those that name states that are not there are left out.
    pub arrows: Vec<Arrow>,
}

impl Diagram {
    /// The picture. The same diagram gives the same bytes.
    pub fn to_svg(&self) -> String {
        let count = self.states.len().max(1) as f64;
        let place = |state: usize| {
            let angle = state as f64 / count * TAU;
            (SIZE / 2.0 + RADIUS * angle.sin(), SIZE / 2.0 - RADIUS * angle.cos(), angle)
        };
        let radius = |share: f64| 5.0 + 26.0 * share.clamp(0.0, 1.0).sqrt();
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{}</title>",
            escape(&self.title)
        );
        svg.push_str(
            "<style>.line{stroke:#0072b2;fill:none}.state{fill:#ffffff;stroke:#4d4d4d}.label{fill:#222222}\
             @media(prefers-color-scheme:dark){.line{stroke:#56b4e9}.state{fill:#161b22;stroke:#c9d1d9}.label{fill:#e6edf3}}\
             </style>\n<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" \
             fill=\"#0072b2\"/></marker></defs>\n",
        );
        let known = self.arrows.iter().filter(|arrow| arrow.from.max(arrow.to) < self.states.len());
        for arrow in known {
            let (width, faint) =
                (0.6 + 11.0 * arrow.share.clamp(0.0, 1.0), 0.35 + 0.6 * arrow.share.min(1.0));
            let (x, y, angle) = place(arrow.from);
            let path = if arrow.from == arrow.to {
                // A loop outside of the circle.
                let (out, side) = (radius(self.states[arrow.from].share) + 26.0, 16.0);
                let (dx, dy) = (angle.sin(), -angle.cos());
                let near = |sign: f64| (x + dx * out - sign * dy * side, y + dy * out + sign * dx * side);
                let ((x1, y1), (x2, y2)) = (near(1.0), near(-1.0));
                format!("M{} {}C{} {} {} {} {} {}", c(x), c(y), c(x1), c(y1), c(x2), c(y2), c(x), c(y))
            } else {
                let (to_x, to_y, _) = place(arrow.to);
                // Bent towards the middle, to one side, so that both directions are seen.
                let (bend_x, bend_y) =
                    ((x + to_x) / 2.0 - (to_y - y) * 0.12, (y + to_y) / 2.0 + (to_x - x) * 0.12);
                let (dx, dy) = (to_x - bend_x, to_y - bend_y);
                let cut = radius(self.states[arrow.to].share) / dx.hypot(dy).max(1.0);
                let (end_x, end_y) = (to_x - dx * cut, to_y - dy * cut);
                format!("M{} {}Q{} {} {} {}", c(x), c(y), c(bend_x), c(bend_y), c(end_x), c(end_y))
            };
            let _ = writeln!(
                svg,
                "<path class=\"line\" d=\"{path}\" stroke-width=\"{}\" stroke-opacity=\"{}\" \
                 marker-end=\"url(#head)\"><title>{}</title></path>",
                c(width),
                c(faint),
                escape(&arrow.detail)
            );
        }
        for (at, state) in self.states.iter().enumerate() {
            let (x, y, angle) = place(at);
            let out = radius(state.share) + 6.0;
            let (text_x, text_y) = (x + angle.sin() * out, y - angle.cos() * out + 4.0);
            let anchor = match angle.sin() {
                sine if sine > 0.2 => "start",
                sine if sine < -0.2 => "end",
                _ => "middle",
            };
            let label = format!("{} {:.1} %", state.label, state.share * 100.0);
            let _ = writeln!(
                svg,
                "<circle class=\"state\" cx=\"{}\" cy=\"{}\" r=\"{}\"><title>{}</title></circle>\n\
                 <text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                c(x),
                c(y),
                c(radius(state.share)),
                escape(&label),
                c(text_x),
                c(text_y),
                escape(&shorten(&label, LABEL_CHARS))
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_arrows_are_drawn_and_strangers_are_not() {
        let state = |label: &str, share| State { label: label.into(), share };
        let arrow = |from, to| Arrow { from, to, share: 0.5, detail: format!("{from} <to> {to}") };
        let diagram = Diagram {
            title: "a & b".into(),
            states: vec![state("a", 0.75), state("b", 0.25)],
            arrows: vec![arrow(0, 1), arrow(1, 1), arrow(0, 7)],
        };
        let svg = diagram.to_svg();
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"line\"").count()), (2, 2));
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("0 &lt;to&gt; 1"));
        assert!(svg.contains("a 75.0 %") && !svg.contains("NaN"));
        assert_eq!(svg, diagram.to_svg());
    }
}
