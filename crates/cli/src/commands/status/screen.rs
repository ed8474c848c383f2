//! The live screen: a table of volumes, a sparkline of the chosen one, and what a person should look after.

use super::{HEADINGS, drained, headline, rows, serves, troubles};
use crate::failure::{Context, Failure};
use forebay_serve::status::{Status, VolumeStatus};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};
use std::time::{Duration, Instant};

struct Screen {
    server: String,
    status: Status,
    /// What the last look failed with; what is shown is then of before.
    failure: Option<String>,
    /// Which volume is shown closer.
    chosen: usize,
}

/// Shows what `get` answers until `q`, Escape or Ctrl-C is pressed.
pub(super) fn show(
    server: &str,
    first: Status,
    get: impl Fn() -> Result<Status, Failure>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut screen = Screen { server: server.to_owned(), status: first, failure: None, chosen: 0 };
    let mut terminal = ratatui::try_init().context("cannot take the terminal")?;
    let result = watch(&mut screen, &mut terminal, get, interval);
    ratatui::restore();
    result
}

fn watch(
    screen: &mut Screen,
    terminal: &mut ratatui::DefaultTerminal,
    get: impl Fn() -> Result<Status, Failure>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut look_at = Instant::now() + interval;
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("cannot draw")?;
        if event::poll(look_at.saturating_duration_since(Instant::now())).context("cannot read keys")? {
            if let Event::Key(key) = event::read().context("cannot read keys")? {
                let is_ctrl_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                let last = screen.status.volumes.len().saturating_sub(1);
                match key.code {
                    _ if key.kind != KeyEventKind::Press => {}
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    _ if is_ctrl_c => return Ok(()),
                    KeyCode::Down | KeyCode::Char('j') => screen.chosen = (screen.chosen + 1).min(last),
                    KeyCode::Up | KeyCode::Char('k') => screen.chosen = screen.chosen.saturating_sub(1),
                    _ => {}
                }
            }
            continue;
        }
        look_at = Instant::now() + interval;
        match get() {
            Ok(status) => {
                screen.chosen = screen.chosen.min(status.volumes.len().saturating_sub(1));
                screen.status = status;
                screen.failure = None;
            }
            Err(failure) => screen.failure = Some(failure.message().to_owned()),
        }
    }
}

impl Screen {
    fn draw(&self, frame: &mut Frame<'_>) {
        let mut notes: Vec<String> =
            drained(&self.status).into_iter().chain(troubles(&self.status)).collect();
        if let Some(failure) = &self.failure {
            notes.insert(0, format!("! what is shown is of before: {failure}"));
        }
        let [top, notes_area, table, bottom, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(notes.len() as u16),
            Constraint::Min(3),
            Constraint::Length(8),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Line::from(headline(&self.status)).style(Modifier::BOLD), top);
        frame.render_widget(Paragraph::new(Text::from_iter(notes)), notes_area);
        self.draw_table(frame, table);
        if let Some(volume) = self.status.volumes.get(self.chosen) {
            draw_volume(frame, bottom, volume, serves(&self.status));
        }
        let words = format!("{} - up and down choose a volume, q quits", self.server);
        frame.render_widget(Line::from(words).style(Modifier::DIM), keys);
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut selected = 0;
        let mut lines = Vec::new();
        // As wide as what stands in them, so that what is cut is cut at the right.
        let mut widths = HEADINGS.map(str::len);
        for (at, volume) in self.status.volumes.iter().enumerate() {
            if at == self.chosen {
                selected = lines.len();
            }
            for row in rows(volume) {
                for (width, cell) in widths.iter_mut().zip(&row) {
                    *width = (*width).max(cell.chars().count());
                }
                lines.push(Row::new(row.map(Cell::from)));
            }
        }
        let widths = widths.map(|width| Constraint::Length(width as u16));
        let table = Table::new(lines, widths)
            .header(Row::new(HEADINGS).style(Modifier::BOLD))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
    }
}

fn draw_volume(frame: &mut Frame<'_>, area: Rect, volume: &VolumeStatus, is_served: bool) {
    let [words, sparkline] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(area);
    frame.render_widget(Paragraph::new(Text::from_iter(closer(volume, is_served))), words);
    // The newest at the right: what does not fit is cut at the left.
    let width = usize::from(sparkline.width.saturating_sub(2));
    let skip = volume.iops_series.len().saturating_sub(width);
    let series: Vec<u64> = volume.iops_series.iter().skip(skip).map(|iops| iops.round() as u64).collect();
    let most = series.iter().max().copied().unwrap_or(0);
    let title = format!(" requests/s of `{}`, up to {most} ", volume.name);
    frame.render_widget(Sparkline::default().data(series).block(Block::bordered().title(title)), sparkline);
}

/// What a line each tells of a volume; of one that others serve neither clients nor their errors are counted here.
fn closer(volume: &VolumeStatus, is_served: bool) -> Vec<String> {
    use crate::output::bytes;
    let size = |size: Option<u64>| size.map_or("-".to_owned(), bytes);
    let latency = |seconds: Option<f64>| seconds.map_or("-".to_owned(), super::span);
    let clients = match is_served {
        true => format!(", {} client(s), {} error(s)", volume.connections, volume.errors),
        false => String::new(),
    };
    let mut lines = vec![
        volume.uris.first().cloned().unwrap_or_default(),
        format!("origin: {} ({})", volume.origin.description, volume.origin.state),
        format!(
            "reads {}/s, mean {}, p99 {}",
            bytes(volume.read_bytes_per_s as u64),
            latency(volume.read_latency.mean_s),
            latency(volume.read_latency.p99_s)
        ),
        format!(
            "writes {}/s, mean {}, p99 {}",
            bytes(volume.write_bytes_per_s as u64),
            latency(volume.write_latency.mean_s),
            latency(volume.write_latency.p99_s)
        ),
        format!(
            "sizes p50, p95: reads {}, {}; writes {}, {}",
            size(volume.read_size.p50_bytes),
            size(volume.read_size.p95_bytes),
            size(volume.write_size.p50_bytes),
            size(volume.write_size.p95_bytes)
        ),
        format!("working set {}{clients}", bytes(volume.working_set_bytes)),
    ];
    if let Some(utilisation) = volume.origin.utilisation {
        lines.push(format!("disks {:.0}% busy", utilisation * 100.0));
    }
    if let Some(prewarm) = volume.prewarm.as_ref().filter(|prewarm| prewarm.running) {
        lines.push(super::warming(prewarm));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_screen_shows_volumes_and_troubles() {
        let json = include_str!("status-example.json");
        let status: Status = serde_json::from_str(json).expect("the example is a status");
        let screen =
            Screen { server: "127.0.0.1:9809".into(), status, failure: Some("gone".into()), chosen: 0 };
        let mut terminal = Terminal::new(TestBackend::new(130, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        for wanted in
            ["db", "violating", "mean latency of reads at most 5ms", "of before: gone", "q quits", "0.913"]
        {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
    }
}
