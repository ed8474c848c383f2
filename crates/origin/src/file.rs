//! A file or block device as an origin.

use crate::image::{FileImage, Image, check, wants_sync};
use crate::open_error::OpenError;
use crate::pending::Counters;
use crate::request::{CompletionSink, Origin, OriginError, OriginOperation, OriginRequest, OriginTraits};
use crate::statistics::{OriginState, OriginStatistics};
use crate::syncs::Syncs;
use forebay_nbd::StorageId;
use forebay_ring::{FileError, FileIo, Operation, Threads};
use forebay_units::ByteRange;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOriginOptions {
    /// Refuse every change and share the lock with other readers; false by default.
    pub read_only: bool,
    /// Threads that make the blocking calls which no ring makes, 1 to 256 at most; 8 by default (ours).
    pub workers: usize,
    /// Requests in flight, waiting ones included, at least 1; 1,024 by default (ours). Above it, `EBUSY`.
    pub in_flight_max: usize,
}

impl Default for FileOriginOptions {
    fn default() -> FileOriginOptions {
        FileOriginOptions { read_only: false, workers: 8, in_flight_max: 1024 }
    }
}

/// A regular file or a block device, read and written by threads, or in the io_uring of the thread that submits, if it drives one.
///
/// It is locked (`flock`, advisory) while open: exclusively, or shared where read-only; a block device that is mounted
/// is not opened for writing. Its size is that at opening. A
/// file that got shorter since answers reads beyond its end with `EIO`, and is [`OriginState::Down`] from the first of them until it has its size again. After a failed `fdatasync` every later flush
/// and FUA write fails too, since Linux may have dropped the pages that it could not write, and [`OriginStatistics::danger`] says so; one runs at a time, for all who asked before it began. A file that was removed, or replaced by another one of its name, goes on
/// to be written, as one that was moved does; from the first sync on that finds it so it is said there what comes of that. Trims punch holes and
/// zeroes are made by the file system where it can; else trims do nothing and zeroes are written. Zeroes that must be fast are made by the
/// file system, or by the device itself, or refused.
///
/// Dropping it carries out what its threads have, completes it, and waits for that; what is in a ring completes there.
pub struct FileOrigin {
    image: Arc<FileImage>,
    io: FileIo,
    syncs: Arc<Syncs>,
    traits: OriginTraits,
    counters: Arc<Counters>,
    threads: Threads,
}

impl FileOrigin {
    /// Opens and locks the file at `path`, and starts the workers.
    ///
    /// # Errors
    /// [`OpenError`] names the path and what is wrong with it.
    pub fn open(path: &Path, options: FileOriginOptions) -> Result<FileOrigin, OpenError> {
        let image = Arc::new(FileImage::open(path, options.read_only)?);
        let threads = Threads::start("origin-file", options.workers.clamp(1, 256))
            .map_err(|source| OpenError::Thread { source })?;
        let (io, traits) = (FileIo::new(Arc::clone(image.file()), 1, &threads), image.traits());
        let syncs = Syncs::new(Arc::clone(&image), io.clone());
        let counters = Counters::new(options.in_flight_max.max(1));
        Ok(FileOrigin { image, io, syncs, traits, counters, threads })
    }
}

/// What the end of a read or write comes to.
fn ended(
    image: &FileImage,
    what: &str,
    range: ByteRange,
    result: Result<Vec<u8>, FileError>,
) -> Result<Vec<u8>, OriginError> {
    result.map_err(|error| match error {
        FileError::Failed(error) => image.failed(what, range, &error),
        error => {
            OriginError::OutcomeUnknown { context: format!("{}: {error}", image.describe()), asked: None }
        }
    })
}

impl Origin for FileOrigin {
    fn traits(&self) -> OriginTraits {
        self.traits
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(mut pending) = self.counters.admit(request.id, sink) else {
            return;
        };
        if let Err(error) = check(&request.operation, &self.traits) {
            return pending.complete(Err(error));
        }
        let image = Arc::clone(&self.image);
        let range = request.operation.range();
        pending.begin();
        match request.operation {
            OriginOperation::Read { .. } => {
                let read = Operation::Read { offset: range.offset, length: range.length as usize };
                self.io.submit(read, move |result| pending.complete(ended(&image, "read of", range, result)));
            }
            OriginOperation::Write { offset, data, fua: false } => {
                let write = Operation::Write { offset, data };
                self.io
                    .submit(write, move |result| pending.complete(ended(&image, "write of", range, result)));
            }
            OriginOperation::Flush => {
                self.syncs.ask(move |result| pending.complete(result.map(|()| Vec::new())));
            }
            operation => {
                let syncs = Arc::clone(&self.syncs);
                self.threads.submit(Box::new(move || match image.apply(&operation) {
                    Ok(_) if wants_sync(&operation) => {
                        syncs.ask(move |result| pending.complete(result.map(|()| Vec::new())));
                    }
                    result => pending.complete(result),
                }));
            }
        }
    }

    fn describe(&self) -> String {
        self.image.describe()
    }

    fn storage(&self) -> Option<StorageId> {
        self.image.storage()
    }

    fn metadata(&self) -> Option<Metadata> {
        self.image.metadata()
    }

    fn statistics(&self) -> OriginStatistics {
        let state = self.image.shrunk().map_or(OriginState::Up, |reason| OriginState::Down { reason });
        let danger = self.image.danger();
        let mut statistics = OriginStatistics { state, danger, ..OriginStatistics::default() };
        self.counters.add_to(&mut statistics);
        statistics
    }
}
