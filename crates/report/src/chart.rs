//! What a chart shows; how it is drawn is in `svg`.

use crate::axis::{Axis, Scale};

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// By straight lines.
    Line,
    /// The value holds until the next point.
    Step,
    /// Not at all; each point is a mark.
    Points,
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is, as the label beside the line says.
    pub name: String,
    /// (x, y), ascending in x; drawn in this order.
    pub points: Vec<(f64, f64)>,
    /// How the points are joined.
    pub shape: Shape,
    /// Which of the dashes, marks and colours it has; by its place in the chart where it is not said.
    pub look: Option<usize>,
}

impl Series {
    /// A series whose points are joined by straight lines.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, shape: Shape::Line, look: None }
    }

    /// A series whose value holds until the next point.
    pub fn step(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, shape: Shape::Step, look: None }
    }

    /// The same with the dashes, mark and colour that the series at this place of a chart has, so that it looks the same in every
    /// chart of a report.
    #[must_use]
    pub fn with_look(self, place: usize) -> Series {
        Series { look: Some(place), ..self }
    }
}

/// A stretch of the x axis with a name, as a phase of a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// What the stretch is.
    pub label: String,
    /// Where it begins on the x axis.
    pub from: f64,
    /// Where it ends on the x axis.
    pub to: f64,
}

/// A vertical line: something that happened, or a size that matters, at one x.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// What stands beside the line.
    pub label: String,
    /// Where, on the x axis.
    pub at: f64,
}

/// A horizontal line: an objective or a bound at one y.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What stands on the line.
    pub label: String,
    /// Where, on the y axis.
    pub at: f64,
}

/// A grid of counts over the plane of a chart, the darker the more: equal steps of darkness are equal factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    /// How long a cell is on the x axis; the first begins at 0.
    pub width: f64,
    /// How high a cell is on the y axis; the first begins at 0.
    pub height: f64,
    /// Rows from the bottom, each from the left.
    pub rows: Vec<Vec<u64>>,
}

/// A chart of one or more series over common axes.
///
/// ```
/// use forebay_report::{Axis, Chart, Quantity, Series};
/// let chart = Chart::new("Miss ratio", Axis::linear("cache size", Quantity::Bytes), Axis::linear("miss ratio", Quantity::Ratio))
///     .with_series(Series::line("exact", vec![(0.0, 1.0), (4096.0, 0.5)]));
/// assert!(chart.to_svg("mrc").unwrap().starts_with("<svg "));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The heading, also the accessible name.
    pub title: String,
    /// One sentence that says what is seen, for those who cannot see it; built from the data where empty.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Counts below everything else; the axes must be linear.
    pub cells: Option<Box<Cells>>,
    /// The lines, the first one drawn last (on top).
    pub series: Vec<Series>,
    /// Named stretches of the x axis.
    pub bands: Vec<Band>,
    /// Vertical lines.
    pub markers: Vec<Marker>,
    /// Horizontal lines.
    pub levels: Vec<Level>,
}

/// Why a chart cannot be drawn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChartError {
    /// A value is no number, infinite, or beyond ±2e19 (ours: above any size, address or time of 64 bits).
    NotDrawable {
        /// The series, band, marker, level or axis.
        of: String,
        /// Which of its points, from 0.
        index: usize,
        /// What was found.
        found: f64,
    },
    /// A value at or below 0 stands on a logarithmic axis.
    NotPositive {
        /// The series, band, marker, level or axis.
        of: String,
        /// Which of its points, from 0.
        index: usize,
        /// What was found.
        found: f64,
    },
    /// An axis was told to show a range whose end is not above its start.
    EmptyRange {
        /// The axis's label.
        of: String,
    },
}

impl std::fmt::Display for ChartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChartError::NotDrawable { of, index, found } => {
                write!(f, "`{of}` holds `{found}` at point {index}: expected a number within ±2e19")
            }
            ChartError::NotPositive { of, index, found } => {
                write!(
                    f,
                    "`{of}` holds `{found}` at point {index}: a logarithmic axis expects numbers above 0"
                )
            }
            ChartError::EmptyRange { of } => {
                write!(f, "the axis `{of}` has a range that is empty or reversed")
            }
        }
    }
}

impl std::error::Error for ChartError {}

/// The largest magnitude that is drawn.
const DRAWABLE_MAX: f64 = 2e19;

impl Chart {
    /// A chart without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.into(),
            description: String::new(),
            x,
            y,
            cells: None,
            series: Vec::new(),
            bands: Vec::new(),
            markers: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// The same chart with a grid of counts, over which its axes reach.
    #[must_use]
    pub fn with_cells(mut self, cells: Cells) -> Chart {
        let columns = cells.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        self.x = self.x.with_range(0.0, cells.width * columns as f64);
        self.y = self.y.with_range(0.0, cells.height * cells.rows.len().max(1) as f64);
        self.cells = Some(Box::new(cells));
        self
    }

    /// The same chart with one more series.
    #[must_use]
    pub fn with_series(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// The same chart with one more named stretch of the x axis.
    #[must_use]
    pub fn with_band(mut self, label: impl Into<String>, from: f64, to: f64) -> Chart {
        self.bands.push(Band { label: label.into(), from, to });
        self
    }

    /// The same chart with one more vertical line.
    #[must_use]
    pub fn with_marker(mut self, label: impl Into<String>, at: f64) -> Chart {
        self.markers.push(Marker { label: label.into(), at });
        self
    }

    /// The same chart with one more horizontal line.
    #[must_use]
    pub fn with_level(mut self, label: impl Into<String>, at: f64) -> Chart {
        self.levels.push(Level { label: label.into(), at });
        self
    }

    /// The same chart with a sentence for those who cannot see it.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Chart {
        self.description = description.into();
        self
    }

    /// Draws the chart as an SVG element that can stand alone in a file or within an HTML page. `id` begins every id
    /// within, so it must differ between the charts of one page; characters other than letters, digits and `-` are replaced.
    /// Without a point it says that there are no data. `O(points)`; lines are thinned to what can be seen.
    ///
    /// # Errors
    /// [`ChartError`] where a value cannot stand on its axis.
    pub fn to_svg(&self, id: &str) -> Result<String, ChartError> {
        self.check()?;
        Ok(crate::svg::draw(self, id))
    }

    fn check(&self) -> Result<(), ChartError> {
        for axis in [&self.x, &self.y] {
            if let Some((low, high)) = axis.range {
                check_value(low, axis.scale, &axis.label, 0)?;
                check_value(high, axis.scale, &axis.label, 1)?;
                if high <= low {
                    return Err(ChartError::EmptyRange { of: axis.label.clone() });
                }
            }
        }
        for series in &self.series {
            for (index, (x, y)) in series.points.iter().enumerate() {
                check_value(*x, self.x.scale, &series.name, index)?;
                check_value(*y, self.y.scale, &series.name, index)?;
            }
        }
        for band in &self.bands {
            check_value(band.from, self.x.scale, &band.label, 0)?;
            check_value(band.to, self.x.scale, &band.label, 1)?;
        }
        for marker in &self.markers {
            check_value(marker.at, self.x.scale, &marker.label, 0)?;
        }
        for level in &self.levels {
            check_value(level.at, self.y.scale, &level.label, 0)?;
        }
        Ok(())
    }
}

fn check_value(found: f64, scale: Scale, of: &str, index: usize) -> Result<(), ChartError> {
    if found.is_nan() || found.abs() > DRAWABLE_MAX {
        return Err(ChartError::NotDrawable { of: of.to_owned(), index, found });
    }
    if scale == Scale::Log && found <= 0.0 {
        return Err(ChartError::NotPositive { of: of.to_owned(), index, found });
    }
    Ok(())
}
