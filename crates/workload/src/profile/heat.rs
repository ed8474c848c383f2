//! Where on a volume requests go, over time: a grid whose cells double in time and address whenever it is outgrown.

use forebay_units::Nanos;
use serde::Serialize;

/// Volumes that get a grid (ours).
pub const VOLUMES_MAX: usize = 8;

/// Cells of a grid: by time, and by address (ours).
const COLUMNS: usize = 128;
const ROWS: usize = 64;

/// The smallest cell: a second and a mebibyte (ours).
const COLUMN_MIN: u64 = 1_000_000_000;
const ROW_MIN: u64 = 1 << 20;

/// Requests of a volume, by time and address.
#[derive(Clone, Debug, Serialize)]
pub struct HeatMap {
    /// Which volume, in order of first appearance.
    pub volume: usize,
    /// Length of a column, in seconds.
    pub column_s: f64,
    /// Height of a row, in bytes.
    pub row_bytes: u64,
    /// Requests (reads and writes), row by row from the lowest address, columns in order of time; all rows have the same length.
    pub cells: Vec<Vec<u64>>,
}

/// Counts a [`HeatMap`].
pub(super) struct HeatCounter {
    column: u64,
    row: u64,
    cells: Vec<[u64; ROWS]>,
}

impl HeatCounter {
    pub(super) fn new() -> HeatCounter {
        HeatCounter { column: COLUMN_MIN, row: ROW_MIN, cells: Vec::new() }
    }

    pub(super) fn add(&mut self, since_start: Nanos, offset: u64) {
        while since_start.0 / self.column >= COLUMNS as u64 {
            self.column *= 2;
            let sum =
                |pair: &[[u64; ROWS]]| std::array::from_fn(|row| pair.iter().map(|cells| cells[row]).sum());
            self.cells = self.cells.chunks(2).map(sum).collect();
        }
        while offset / self.row >= ROWS as u64 {
            self.row *= 2;
            for cells in &mut self.cells {
                *cells =
                    std::array::from_fn(
                        |row| if 2 * row < ROWS { cells[2 * row] + cells[2 * row + 1] } else { 0 },
                    );
            }
        }
        let at = (since_start.0 / self.column) as usize;
        if at >= self.cells.len() {
            self.cells.resize(at + 1, [0; ROWS]);
        }
        self.cells[at][(offset / self.row) as usize] += 1;
    }

    /// The grid without the empty rows at its end; `None` if nothing was counted.
    pub(super) fn finish(self, volume: usize) -> Option<HeatMap> {
        let rows =
            1 + self.cells.iter().filter_map(|cells| cells.iter().rposition(|cell| *cell > 0)).max()?;
        let row = |row: usize| self.cells.iter().map(|cells| cells[row]).collect();
        Some(HeatMap {
            volume,
            column_s: self.column as f64 / 1e9,
            row_bytes: self.row,
            cells: (0..rows).map(row).collect(),
        })
    }
}
