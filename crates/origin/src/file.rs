//! A file or block device as an origin.

use crate::image::{FileImage, Image, check};
use crate::open_error::OpenError;
use crate::pending::Counters;
use crate::pool::WorkerPool;
use crate::request::{CompletionSink, Origin, OriginRequest, OriginTraits};
use crate::statistics::OriginStatistics;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOriginOptions {
    /// Refuse every change and share the lock with other readers; false by default.
    pub read_only: bool,
    /// Threads that make the blocking calls, 1 to 256; 8 by default (ours).
    pub workers: usize,
    /// Requests in flight, waiting ones included, at least 1; 1,024 by default (ours). Above it, `EBUSY`.
    pub in_flight_max: usize,
}

impl Default for FileOriginOptions {
    fn default() -> FileOriginOptions {
        FileOriginOptions { read_only: false, workers: 8, in_flight_max: 1024 }
    }
}

/// A regular file or a block device, read and written by a pool of threads.
///
/// It is locked (`flock`, advisory) while open: exclusively, or shared where read-only; a block device that is mounted
/// is not opened for writing. Its size is that at opening. A
/// file that got shorter since answers reads beyond its end with `EIO`. After a failed `fdatasync` every later flush
/// and FUA write fails too, since Linux may have dropped the pages that it could not write. Trims punch holes and
/// zeroes are made by the file system where it can; else trims do nothing and zeroes are written. Zeroes that must be fast are made by the
/// file system, or by the device itself, or refused.
///
/// Dropping it carries out what is queued, completes it, and waits for that.
pub struct FileOrigin {
    image: Arc<FileImage>,
    traits: OriginTraits,
    counters: Arc<Counters>,
    pool: WorkerPool,
}

impl FileOrigin {
    /// Opens and locks the file at `path`, and starts the workers.
    ///
    /// # Errors
    /// [`OpenError`] names the path and what is wrong with it.
    pub fn open(path: &Path, options: FileOriginOptions) -> Result<FileOrigin, OpenError> {
        let image = Arc::new(FileImage::open(path, options.read_only)?);
        let pool = WorkerPool::start("origin-file", options.workers.clamp(1, 256))
            .map_err(|source| OpenError::Thread { source })?;
        let traits = image.traits();
        Ok(FileOrigin { image, traits, counters: Counters::new(options.in_flight_max.max(1)), pool })
    }
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
        self.pool.submit(Box::new(move || {
            pending.begin();
            let result = image.execute(&request.operation);
            pending.complete(result);
        }));
    }

    fn describe(&self) -> String {
        self.image.describe()
    }

    fn statistics(&self) -> OriginStatistics {
        let mut statistics = OriginStatistics::default();
        self.counters.add_to(&mut statistics);
        statistics
    }
}
