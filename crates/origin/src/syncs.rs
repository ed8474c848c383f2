//! Syncs of one file: one at a time, each for all who asked before it began.
//!
//! Linux tells of pages that it could not write once for each open file. Of syncs that run side by side one is told, perhaps of what another had to make
//! safe, and the other ends well, perhaps first. With one at a time, whoever begins after one that failed knows of it (`FileImage::sync_is_decided`), and all
//! who shared it are told.

use crate::image::FileImage;
use crate::pending::EIO;
use crate::pool::locked;
use crate::request::OriginError;
use forebay_ring::{FileError, FileIo, Operation};
use std::io;
use std::sync::{Arc, Mutex};

/// Who is told how a sync ended.
type Told = Box<dyn FnOnce(Result<(), OriginError>) + Send>;

#[derive(Default)]
struct State {
    is_running: bool,
    /// For the next one. Bounded by the requests in flight.
    waiting: Vec<Told>,
}

/// The syncs of an open file.
pub(crate) struct Syncs {
    image: Arc<FileImage>,
    io: FileIo,
    state: Mutex<State>,
}

impl Syncs {
    pub(crate) fn new(image: Arc<FileImage>, io: FileIo) -> Arc<Syncs> {
        Arc::new(Syncs { image, io, state: Mutex::default() })
    }

    /// Has everything that was written until now on stable storage; `told` is told, perhaps before this returns.
    pub(crate) fn ask(self: &Arc<Syncs>, told: impl FnOnce(Result<(), OriginError>) + Send + 'static) {
        let mut state = locked(&self.state);
        state.waiting.push(Box::new(told));
        if !std::mem::replace(&mut state.is_running, true) {
            drop(state);
            self.go_on();
        }
    }

    /// None is running: begins one for all who wait, or tells them what is known without.
    fn go_on(self: &Arc<Syncs>) {
        loop {
            let mut state = locked(&self.state);
            let batch = std::mem::take(&mut state.waiting);
            state.is_running = !batch.is_empty();
            drop(state);
            if batch.is_empty() {
                return;
            }
            if let Some(result) = self.image.sync_is_decided() {
                tell(batch, &result);
                continue;
            }
            let syncs = Arc::clone(self);
            return self.io.submit(Operation::Sync, move |result| {
                let result = result.map(drop).map_err(|error| match error {
                    FileError::Failed(error) => error,
                    _ => io::Error::from_raw_os_error(EIO),
                });
                tell(batch, &syncs.image.synced(result));
                syncs.go_on();
            });
        }
    }
}

fn tell(batch: Vec<Told>, result: &Result<(), OriginError>) {
    batch.into_iter().for_each(|told| told(result.clone()));
}
