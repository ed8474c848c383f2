//! The request record, one reader per trace format, detection by content, and writers.
//!
//! It opens no files: readers take `impl Read`, and the edge (the command line, the bindings) opens what they read.
//! A trace is one or several [`Source`]s; [`TraceReader::open`] takes compression off, tells the format, and yields
//! batches of [`Request`]s, which are byte ranges of volumes; [`split_into_blocks`] makes blocks of them.

mod detect;
mod error;
mod format;
mod formats;
mod info;
mod input;
mod key;
mod options;
mod reader;
mod record;
mod source;
mod state;
mod text;
mod write;

pub use detect::{DetectError, HEAD_BYTES, detect};
pub use error::{Position, TraceError};
pub use format::{FORMATS, Format, FormatDescription, ParseFormatError};
pub use info::{TRACE_INFO_SCHEMA, TimeSpan, TraceInfo, TraceInfoCollector};
pub use key::{block_key, split_into_blocks};
pub use options::{BlockEvent, Ids, ParseOptionError, ReadAhead, ReadOptions, TimeUnit};
pub use reader::{BATCH_REQUESTS, TraceReader};
pub use record::{Operation, Request, ThreadNumber, VolumeIndex};
pub use source::Source;
pub use state::REQUEST_BYTES_MAX;
pub use write::{ForebayWriter, ParseWriteFormatError, TraceWriter, WRITE_FORMATS, WriteFormat, Written};
