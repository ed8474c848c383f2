//! Self-contained HTML reports: cards, tables, charts and notes on one page without any other resource.

use crate::chart::{Chart, ChartError};
use crate::diagram::Diagram;
use crate::table::{Align, Table};
use crate::text::escape;
use std::fmt::{self, Write};

/// How something stands; shown by a word and a colour, never by the colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Neither good nor bad.
    Plain,
    /// As it should be; shown as `ok`.
    Good,
    /// To be looked at; shown as `attention`.
    Attention,
    /// Not as it should be; shown as `missed`.
    Bad,
}

impl Status {
    fn class(self) -> &'static str {
        match self {
            Status::Plain => "plain",
            Status::Good => "good",
            Status::Attention => "attention",
            Status::Bad => "bad",
        }
    }

    fn word(self) -> Option<&'static str> {
        match self {
            Status::Plain => None,
            Status::Good => Some("✓ ok"),
            Status::Attention => Some("! attention"),
            Status::Bad => Some("✗ missed"),
        }
    }
}

/// One figure that a reader should take away.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// What the figure is.
    pub label: String,
    /// The figure with its unit.
    pub value: String,
    /// What it should be compared with; may be empty.
    pub detail: String,
    /// How it stands.
    pub status: Status,
}

impl Card {
    /// A card that judges nothing.
    pub fn new(label: impl Into<String>, value: impl Into<String>, detail: impl Into<String>) -> Card {
        Card { label: label.into(), value: value.into(), detail: detail.into(), status: Status::Plain }
    }

    /// The same card with a judgement.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Card {
        self.status = status;
        self
    }
}

/// A report, written from top to bottom.
///
/// ```
/// use forebay_report::{Card, Report};
/// let page = Report::new("Cache plan", "two volumes")
///     .heading("Result")
///     .cards(vec![Card::new("cache needed", "64 MiB", "of 1 GiB footprint")])
///     .to_html()
///     .unwrap();
/// assert!(page.contains("64 MiB"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    title: String,
    subtitle: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Heading(String),
    Paragraph(String),
    Note(Status, String),
    Cards(Vec<Card>),
    Table(Table),
    Chart(Chart),
    Diagram(Diagram),
}

/// Why a report cannot be written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReportError {
    /// One of its charts cannot be drawn.
    Chart {
        /// The chart's title.
        title: String,
        /// Why not.
        source: ChartError,
    },
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReportError::Chart { title, .. } = self;
        write!(f, "the chart `{title}` cannot be drawn")
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let ReportError::Chart { source, .. } = self;
        Some(source)
    }
}

impl Report {
    /// A report that has only its title and a line below it.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Report {
        Report { title: title.into(), subtitle: subtitle.into(), parts: Vec::new() }
    }

    /// Adds a heading.
    #[must_use]
    pub fn heading(mut self, text: impl Into<String>) -> Report {
        self.parts.push(Part::Heading(text.into()));
        self
    }

    /// Adds a paragraph of plain text.
    #[must_use]
    pub fn paragraph(mut self, text: impl Into<String>) -> Report {
        self.parts.push(Part::Paragraph(text.into()));
        self
    }

    /// Adds a note that stands out.
    #[must_use]
    pub fn note(mut self, status: Status, text: impl Into<String>) -> Report {
        self.parts.push(Part::Note(status, text.into()));
        self
    }

    /// Adds a row of cards.
    #[must_use]
    pub fn cards(mut self, cards: Vec<Card>) -> Report {
        self.parts.push(Part::Cards(cards));
        self
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Report {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds a chart.
    #[must_use]
    pub fn chart(mut self, chart: Chart) -> Report {
        self.parts.push(Part::Chart(chart));
        self
    }

    /// Adds a state diagram.
    #[must_use]
    pub fn diagram(mut self, diagram: Diagram) -> Report {
        self.parts.push(Part::Diagram(diagram));
        self
    }

    /// The page.
    ///
    /// # Errors
    /// [`ReportError`] if one of the charts cannot be drawn.
    pub fn to_html(&self) -> Result<String, ReportError> {
        let title = escape(&self.title);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<header>\n<h1>{title}</h1>\n"
        );
        if !self.subtitle.is_empty() {
            let _ = writeln!(page, "<p class=\"subtitle\">{}</p>", escape(&self.subtitle));
        }
        page.push_str("</header>\n");
        for (index, part) in self.parts.iter().enumerate() {
            write_part(&mut page, part, index)?;
        }
        page.push_str("</main>\n</body>\n</html>\n");
        Ok(page)
    }
}

fn write_part(page: &mut String, part: &Part, index: usize) -> Result<(), ReportError> {
    match part {
        Part::Heading(text) => {
            let _ = writeln!(page, "<h2>{}</h2>", escape(text));
        }
        Part::Paragraph(text) => {
            let _ = writeln!(page, "<p>{}</p>", escape(text));
        }
        Part::Note(status, text) => {
            let word = status.word().map_or(String::new(), |word| format!("<strong>{word}</strong> "));
            let _ = writeln!(
                page,
                "<p class=\"note {}\" role=\"note\">{word}{}</p>",
                status.class(),
                escape(text)
            );
        }
        Part::Cards(cards) => write_cards(page, cards),
        Part::Table(table) => write_table(page, table),
        Part::Chart(chart) => {
            let svg = chart
                .to_svg(&format!("chart-{index}"))
                .map_err(|source| ReportError::Chart { title: chart.title.clone(), source })?;
            let _ = writeln!(page, "<figure>\n{svg}</figure>");
        }
        Part::Diagram(diagram) => {
            let _ = writeln!(page, "<figure>\n{}</figure>", diagram.to_svg());
        }
    }
    Ok(())
}

fn write_cards(page: &mut String, cards: &[Card]) {
    page.push_str("<dl class=\"cards\">\n");
    for card in cards {
        let _ = write!(
            page,
            "<div class=\"card {}\"><dt>{}</dt><dd class=\"value\">{}</dd>",
            card.status.class(),
            escape(&card.label),
            escape(&card.value)
        );
        if let Some(word) = card.status.word() {
            let _ = write!(page, "<dd class=\"status\">{word}</dd>");
        }
        if !card.detail.is_empty() {
            let _ = write!(page, "<dd class=\"detail\">{}</dd>", escape(&card.detail));
        }
        page.push_str("</div>\n");
    }
    page.push_str("</dl>\n");
}

fn write_table(page: &mut String, table: &Table) {
    // The wrapper scrolls sideways on a narrow screen; it can be reached by keyboard for that.
    page.push_str("<div class=\"scroll\" tabindex=\"0\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(page, "<caption>{}</caption>", escape(&table.caption));
    }
    let class = |align: Align| if align == Align::Right { " class=\"number\"" } else { "" };
    page.push_str("<thead><tr>");
    for column in table.columns() {
        let _ = write!(page, "<th scope=\"col\"{}>{}</th>", class(column.align), escape(&column.heading));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows() {
        page.push_str("<tr>");
        for (cell, column) in row.iter().zip(table.columns()) {
            let _ = write!(page, "<td{}>{}</td>", class(column.align), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

const STYLE: &str = "\
:root { --bg: #f6f7f9; --panel: #ffffff; --ink: #1a1f27; --muted: #55606e; --line: #dde2e9; --good: #00694b; --bad: #b3261e; --attention: #7a5200 }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1016; --panel: #14181f; --ink: #e6e9ee; --muted: #a3acb9; --line: #2b323d; --good: #5fd6ae; --bad: #ff8a80; --attention: #f0c24b } }
* { box-sizing: border-box }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif }
main { max-width: 56rem; margin: 0 auto; padding: 1.5rem 1rem 4rem }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.2 }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.2rem }
.subtitle { margin: .3rem 0 0; color: var(--muted) }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; margin: 1rem 0 }
.card { background: var(--panel); border: 1px solid var(--line); border-left: 4px solid var(--line); border-radius: 8px; padding: .7rem .9rem }
.card.good { border-left-color: var(--good) } .card.bad { border-left-color: var(--bad) } .card.attention { border-left-color: var(--attention) }
.card dt { color: var(--muted); font-size: .85rem }
.card dd { margin: 0 } .card .value { font-size: 1.5rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums }
.card .detail { color: var(--muted); font-size: .85rem } .card .status { font-weight: 600; font-size: .85rem }
.good .status, .note.good strong { color: var(--good) } .bad .status, .note.bad strong { color: var(--bad) } .attention .status, .note.attention strong { color: var(--attention) }
.note { background: var(--panel); border: 1px solid var(--line); border-left: 4px solid var(--line); border-radius: 8px; padding: .7rem .9rem }
.note.good { border-left-color: var(--good) } .note.bad { border-left-color: var(--bad) } .note.attention { border-left-color: var(--attention) }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; width: fit-content; min-width: 100%; max-width: calc(100vw - 2rem); position: relative; left: 50%; transform: translateX(-50%) }
table { border-collapse: collapse; width: 100%; min-width: 20rem; font-size: .92rem }
caption { text-align: left; padding: .6rem .8rem 0; color: var(--muted) }
th, td { text-align: left; padding: .45rem .8rem; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600 } tr:last-child td { border-bottom: 0 }
th { vertical-align: bottom }
td.number { white-space: nowrap }
.number { text-align: right; font-variant-numeric: tabular-nums }
figure { margin: 1rem 0; overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--panel) }
figure svg { display: block; width: 100%; height: auto; min-width: 34rem }
@media print { body { background: none; font-size: 11pt } main { max-width: none; padding: 0 } .scroll { max-width: 100% } table { min-width: 0 } figure, .card, .note, tr { break-inside: avoid } figure svg { min-width: 0 } }
";
