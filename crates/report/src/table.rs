//! A table that is printed in a terminal and in a report alike.

use forebay_units::printable;
use std::fmt;

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left: words.
    Left,
    /// At the right: numbers, so that their digits stand below each other.
    Right,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub heading: String,
    /// Where its cells stand.
    pub align: Align,
}

/// A table: columns and rows of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows; may be empty.
    pub caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A row does not fit its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// How many cells the row has.
    pub found: usize,
    /// How many columns the table has.
    pub expected: usize,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row of {} cells was added to a table of {} columns", self.found, self.expected)
    }
}

impl std::error::Error for TableError {}

impl Table {
    /// A table without rows. Headings that begin with `>` are those of right-aligned columns; the sign is not shown.
    pub fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Table {
        let column = |heading: &str| match heading.strip_prefix('>') {
            Some(heading) => Column { heading: heading.to_owned(), align: Align::Right },
            None => Column { heading: heading.to_owned(), align: Align::Left },
        };
        Table {
            caption: String::new(),
            columns: headings.into_iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// The same table under a caption.
    #[must_use]
    pub fn with_caption(mut self, caption: impl Into<String>) -> Table {
        self.caption = caption.into();
        self
    }

    /// Adds a row below the others.
    ///
    /// # Panics
    /// If it does not have one cell for each column: that is the caller's mistake, not the data's.
    pub fn push<C: Into<String>>(&mut self, row: impl IntoIterator<Item = C>) {
        if let Err(error) = self.try_push(row) {
            panic!("{error}");
        }
    }

    /// Adds a row below the others.
    ///
    /// # Errors
    /// [`TableError`] if it does not have one cell for each column.
    pub fn try_push<C: Into<String>>(&mut self, row: impl IntoIterator<Item = C>) -> Result<(), TableError> {
        let row: Vec<String> = row.into_iter().map(Into::into).collect();
        if row.len() != self.columns.len() {
            return Err(TableError { found: row.len(), expected: self.columns.len() });
        }
        self.rows.push(row);
        Ok(())
    }

    /// The columns, from the left.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows, from the top.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table for a terminal: headings, a rule, one line a row, two spaces between columns, no trailing spaces. Control
    /// characters, which could steer the terminal, are replaced.
    pub fn to_text(&self) -> String {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        let headings: Vec<String> = self.columns.iter().map(|column| printable(&column.heading)).collect();
        let widths: Vec<usize> = headings
            .iter()
            .enumerate()
            .map(|(at, heading)| {
                let cells = rows.iter().map(|row| row[at].chars().count());
                cells.max().unwrap_or(0).max(heading.chars().count())
            })
            .collect();
        let mut text = String::new();
        if !self.caption.is_empty() {
            text.push_str(&printable(&self.caption));
            text.push('\n');
        }
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        for row in [&headings, &rule].into_iter().chain(&rows) {
            let mut line = String::new();
            for ((cell, width), column) in row.iter().zip(&widths).zip(&self.columns) {
                match column.align {
                    Align::Left => line.push_str(&format!("{cell:<width$}  ")),
                    Align::Right => line.push_str(&format!("{cell:>width$}  ")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["volume", ">si\u{1b}e"]).with_caption("Volumes");
        table.push(["häst", "64MiB"]);
        table.push(["a-long-name", "1\u{1b}B"]);
        assert_eq!(
            table.to_text(),
            "Volumes\nvolume        si\u{fffd}e\n-----------  -----\nhäst         64MiB\na-long-name    1\u{fffd}B\n"
        );
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let mut table = Table::new(["a", "b"]);
        assert_eq!(table.try_push(["1"]), Err(TableError { found: 1, expected: 2 }));
        assert!(table.rows().is_empty());
    }
}
