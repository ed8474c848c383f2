//! Charts as SVG, tables, and self-contained HTML reports.
//!
//! It turns plain numbers into text and nothing else: it opens no file, reads no clock, knows nothing of caches, and
//! what it writes refers to no other resource. The same input gives the same bytes, so that golden files can tell
//! what changed. Meaning never hangs on colour alone: every series has its own dash pattern, mark and label, every
//! status its own word. The palette is that of Okabe and Ito ("Color Universal Design", 2008) without its yellow,
//! which does not carry on white, and with lightness adapted to dark backgrounds.

mod axis;
mod chart;
mod diagram;
mod html;
mod svg;
mod table;
mod text;

pub use axis::{Axis, Quantity, Scale};
pub use chart::{Band, Cells, Chart, ChartError, Level, Marker, Series, Shape};
pub use diagram::{Arrow, Diagram, State};
pub use html::{Card, Report, ReportError, Status};
pub use table::{Align, Column, Table, TableError};
