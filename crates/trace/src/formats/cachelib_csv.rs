//! CacheLib cachebench's block replay CSV: a header line that names the columns, then rows.
//!
//! | column | meaning |
//! | --- | --- |
//! | op_time | seconds since 1970 |
//! | block_id | the chunk of Meta's storage, any text |
//! | io_offset, io_size | bytes inside the chunk |
//! | op_name | starts with `get` (read), `put` (write) or `delete` (discard); other names are other |
//!
//! Other columns are not looked at; a row is one request whatever its `op_count`. Chunks are no places on a disk: each
//! gets 4 GiB of the address space of one volume (named after the source) in order of first appearance (ours).
//! Source: CacheLib, `cachebench/workload/BlockChunkReplayGenerator.h`.

use crate::error::Bad;
use crate::formats::{LineParser, SECOND};
use crate::state::{State, request, scaled};
use crate::text::{Fields, missing, whole};
use crate::{Operation, Request};
use std::collections::HashMap;

/// The address space of a chunk is this power of two of bytes.
const CHUNK_SHIFT: u32 = 32;
/// More chunks would pass 2^63 bytes.
const CHUNKS_MAX: u64 = 1 << 31;
/// The columns that are needed.
const COLUMNS: [&str; 5] = ["op_time", "block_id", "io_offset", "io_size", "op_name"];

pub(crate) struct CachelibCsv {
    stem: String,
    /// For each column of the file, which of [`COLUMNS`] it is; empty before the header.
    columns: Vec<Option<usize>>,
    chunks: HashMap<Vec<u8>, u64>,
}

impl CachelibCsv {
    pub(crate) fn new(stem: String) -> CachelibCsv {
        CachelibCsv { stem, columns: Vec::new(), chunks: HashMap::new() }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Bad> {
        let names = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        self.columns =
            names.map(|name| COLUMNS.iter().position(|column| column.as_bytes() == name)).collect();
        match (0..COLUMNS.len()).find(|column| !self.columns.contains(&Some(*column))) {
            Some(column) => Err(Bad::fatal(
                format!("the header {} without `{}`", crate::error::excerpt(line), COLUMNS[column]),
                "the columns op_time, block_id, io_offset, io_size and op_name",
            )),
            None => Ok(()),
        }
    }
}

impl LineParser for CachelibCsv {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        if self.columns.is_empty() {
            self.header(line)?;
            return Ok(None);
        }
        let mut values = [None; COLUMNS.len()];
        let mut fields = Fields::new(line);
        for column in &self.columns {
            let field =
                fields.next(b',').ok_or_else(|| missing(column.map_or("column", |at| COLUMNS[at])))?;
            if let Some(at) = column {
                values[*at] = Some(field.trim_ascii());
            }
        }
        // The header holds every column, and every column was filled.
        let [time, chunk, offset, size, name] = values.map(Option::unwrap_or_default);
        let time = scaled(whole(time, "op_time")?, SECOND, "op_time")?;
        let offset = whole(offset, "io_offset")?;
        let size = whole(size, "io_size")?;
        if offset.checked_add(size).is_none_or(|end| end > 1 << CHUNK_SHIFT) {
            return Err(Bad::new(
                format!("{size} bytes from byte {offset} of a chunk"),
                "a range inside 4 GiB",
            ));
        }
        if chunk.is_empty() {
            return Err(Bad::field("block_id", chunk, "a chunk's id"));
        }
        let operation = match name {
            _ if name.starts_with(b"get") => Operation::Read,
            _ if name.starts_with(b"put") => Operation::Write,
            _ if name.starts_with(b"delete") => Operation::Discard,
            _ => Operation::Other,
        };
        let number = match self.chunks.get(chunk) {
            Some(number) => *number,
            None => {
                let number = self.chunks.len() as u64;
                if number >= CHUNKS_MAX {
                    return Err(Bad::fatal(
                        format!("more than {CHUNKS_MAX} chunks"),
                        "chunks that fit into 2^63 bytes",
                    ));
                }
                self.chunks.insert(chunk.to_vec(), number);
                number
            }
        };
        let volume = state.volumes.index_of(&self.stem)?;
        request(state.since_start(time), volume, operation, (number << CHUNK_SHIFT) + offset, size).map(Some)
    }
}
