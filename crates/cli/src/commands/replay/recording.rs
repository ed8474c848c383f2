//! A trace that is read more than once: to survey it, and for every lap.

use crate::failure::{Context, Failure};
use crate::input::{self, InputArgs};
use forebay_trace::{ReadOptions, Source, TraceError, TraceReader};
use forebay_units::BlockSize;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// A trace that can be opened again. Standard input is kept in a file without a name.
pub(super) struct Recording {
    input: InputArgs,
    options: ReadOptions,
    spooled: Option<File>,
}

impl Recording {
    pub(super) fn new(input: &InputArgs) -> Result<Recording, Failure> {
        let is_standard_input = matches!(&input.paths[..], [path] if path.as_os_str() == "-");
        let spooled = if is_standard_input {
            let mut file = tempfile::tempfile().context("cannot make a file to keep standard input in")?;
            io::copy(&mut io::stdin().lock(), &mut file).context("cannot keep standard input")?;
            Some(file)
        } else {
            None
        };
        let options = input.reading.options(BlockSize::DEFAULT);
        Ok(Recording { input: input.clone(), options, spooled })
    }

    /// Opens it from its start.
    pub(super) fn open(&mut self) -> Result<TraceReader, Failure> {
        TraceReader::open(self.sources()?, &self.options).map_err(input::trace_failure)
    }

    fn sources(&mut self) -> Result<Vec<Source>, Failure> {
        let Some(file) = &mut self.spooled else { return input::open(&self.input.paths) };
        file.seek(SeekFrom::Start(0)).context("cannot read standard input again")?;
        let file = file.try_clone().context("cannot read standard input again")?;
        Ok(vec![Source::new("standard input", file)])
    }

    /// Opens it once more, where a failure is one of the trace.
    pub(super) fn reopen(&mut self) -> Result<TraceReader, TraceError> {
        let sources = self.sources().map_err(|failure| TraceError::Read {
            file: self.input.paths[0].display().to_string(),
            offset: 0,
            error: io::Error::other(failure.message().to_owned()),
        })?;
        TraceReader::open(sources, &self.options)
    }
}
