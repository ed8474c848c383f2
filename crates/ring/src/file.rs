//! An open file, asked to read, write and sync; who carries it out is decided per operation.

use crate::buffer::{Buffer, Buffers};
use crate::ring;
use crate::threads::{Threads, ThreadsHandle};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use thiserror::Error;

/// Longest read or write that goes into a ring (ours): what the kernel can carry out at once, it carries out within the call that submits, so that a
/// long one would hold up everything else that the thread does. It is a copy of some 30 us.
pub const RING_BYTES_MAX: usize = 256 << 10;

/// What is asked of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `length` bytes from `offset` on; fewer are an error.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        length: usize,
    },
    /// All of `data` from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The content of every write that ended before this was asked to stable storage (`fdatasync`).
    Sync,
}

/// Why an operation was not carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system says so. What a failed write left behind is not known, but it is over.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// The ring was given up while the kernel had the operation: it may be carried out yet. Never said of a read.
    #[error("the ring broke down, and the outcome is not known")]
    OutcomeUnknown,
}

/// What is told at the end of an operation: the bytes of a read, nothing of anything else.
pub(crate) type Outcome = Result<Vec<u8>, FileError>;

pub(crate) type Done = Box<dyn FnOnce(Outcome) + Send>;

/// An open file. Clones are the same file.
#[derive(Clone)]
pub struct FileIo {
    file: Arc<File>,
    alignment: usize,
    threads: ThreadsHandle,
}

impl FileIo {
    /// A file whose reads and writes need memory that is aligned to `alignment` bytes, a power of two (1: none), as those past the page cache do. What no ring
    /// takes is done by `threads`.
    pub fn new(file: Arc<File>, alignment: usize, threads: &Threads) -> FileIo {
        FileIo { file, alignment: alignment.max(1), threads: threads.handle() }
    }

    /// The file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Starts `operation` and returns; `done` is told its end, once, from the thread that drives the ring or from one of the threads. Where the
    /// calling thread drives a ring, the kernel is told at [`crate::ThreadRing::proceed`].
    pub fn submit(
        &self,
        operation: Operation,
        done: impl FnOnce(Result<Vec<u8>, FileError>) + Send + 'static,
    ) {
        let done = Box::new(done);
        match self.is_for_a_ring(&operation) {
            true => ring::push(Flight { io: self.clone(), operation, done }),
            false => self.submit_to_thread(operation, done),
        }
    }

    /// Short enough, and without a copy that a thread could make in our place.
    fn is_for_a_ring(&self, operation: &Operation) -> bool {
        // To a ring, an offset of all ones means the position of the file.
        let is_possible = |offset: u64, length: usize| {
            i64::try_from(offset).is_ok() && (1..=RING_BYTES_MAX).contains(&length)
        };
        match operation {
            Operation::Read { offset, length } => is_possible(*offset, *length),
            Operation::Write { offset, data } => self.alignment == 1 && is_possible(*offset, data.len()),
            Operation::Sync => true,
        }
    }

    fn submit_to_thread(&self, operation: Operation, done: Done) {
        let io = self.clone();
        let job = Box::new(move || done(io.carry_out(&operation).map_err(FileError::Failed)));
        // Where the threads have ended, nobody is left but us.
        if let Err(job) = self.threads.submit(job) {
            job();
        }
    }

    /// Carries `operation` out on the calling thread, which it blocks.
    ///
    /// # Errors
    /// As the system says; `UnexpectedEof` where the file ends before a read does.
    pub fn carry_out(&self, operation: &Operation) -> io::Result<Vec<u8>> {
        carry_out(&self.file, self.alignment, operation)
    }
}

/// An operation and all that belongs to it.
pub(crate) struct Flight {
    pub(crate) io: FileIo,
    pub(crate) operation: Operation,
    pub(crate) done: Done,
}

impl Flight {
    /// Lets a thread do it.
    pub(crate) fn give_to_thread(self) {
        self.io.submit_to_thread(self.operation, self.done);
    }

    /// What the kernel is to read from or write to. The content of a write moves into it.
    pub(crate) fn take_buffer(&mut self, buffers: &mut Buffers) -> Buffer {
        match &mut self.operation {
            Operation::Read { length, .. } => buffers.take(*length, self.io.alignment),
            Operation::Write { data, .. } => Buffer::unaligned(std::mem::take(data)),
            Operation::Sync => Buffer::unaligned(Vec::new()),
        }
    }

    /// The content of a write is its own again, for whoever does it anew.
    pub(crate) fn put_back(&mut self, buffer: Buffer, buffers: &mut Buffers) {
        match &mut self.operation {
            Operation::Write { data, .. } => *data = buffers.finish(buffer),
            Operation::Read { .. } | Operation::Sync => buffers.give_back(buffer),
        }
    }
}

thread_local! {
    /// Aligned memory of a thread that carries out what no ring took.
    static ALIGNED: RefCell<Buffers> = RefCell::default();
}

/// Carries `operation` out on the calling thread, which it blocks, with memory that is aligned to `alignment` bytes (1: not).
///
/// # Errors
/// As the system says; `UnexpectedEof` where the file ends before a read does.
pub fn carry_out(file: &File, alignment: usize, operation: &Operation) -> io::Result<Vec<u8>> {
    let take = |length| ALIGNED.with_borrow_mut(|buffers| buffers.take(length, alignment));
    let give_back = |buffer| ALIGNED.with_borrow_mut(|buffers| buffers.give_back(buffer));
    match operation {
        Operation::Read { offset, length } => {
            let mut buffer = take(*length);
            match file.read_exact_at(buffer.bytes_mut(), *offset) {
                Ok(()) => Ok(ALIGNED.with_borrow_mut(|buffers| buffers.finish(buffer))),
                Err(error) => {
                    give_back(buffer);
                    Err(error)
                }
            }
        }
        Operation::Write { offset, data } if alignment <= 1 => {
            file.write_all_at(data, *offset).map(|()| Vec::new())
        }
        Operation::Write { offset, data } => {
            let mut buffer = take(data.len());
            buffer.bytes_mut().copy_from_slice(data);
            let result = file.write_all_at(buffer.bytes(), *offset);
            give_back(buffer);
            result.map(|()| Vec::new())
        }
        Operation::Sync => file.sync_data().map(|()| Vec::new()),
    }
}
