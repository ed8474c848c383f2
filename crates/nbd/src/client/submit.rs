//! Requests of a client: checked against what the server offers before they are sent.

use super::{Outstanding, Session};
use crate::wire::{Command, CommandFlags, RequestHeader, TransmissionFlags};
use forebay_units::ByteRange;
use thiserror::Error;

/// What is asked of a server. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// At most one content chunk in the reply.
        dont_fragment: bool,
    },
    /// Only the header is encoded; exactly `length` bytes of data must follow it on the connection.
    Write {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// On stable storage before the reply.
        fua: bool,
    },
    /// Acknowledged writes to stable storage.
    Flush,
    /// Content is no longer needed.
    Trim {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// On stable storage before the reply.
        fua: bool,
    },
    /// Zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// On stable storage before the reply.
        fua: bool,
        /// No hole may be made.
        no_hole: bool,
        /// Fail rather than be slow.
        fast_zero: bool,
    },
    /// Content will be needed soon.
    Cache {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// State of extents.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// Only the first extent.
        one_extent: bool,
    },
}

/// Why a request was not encoded: the caller's mistake, or a limit. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The export is not open, or no longer.
    #[error("session does not take requests: the export is not open")]
    NotReady,
    /// The number of requests in flight is at its limit; try again after a completion.
    #[error("{max} requests are in flight, the most that is allowed")]
    Full {
        /// The limit.
        max: usize,
    },
    /// Two requests in flight with one cookie.
    #[error("cookie {cookie:#x} is already in flight")]
    CookieInUse {
        /// The cookie.
        cookie: u64,
    },
    /// The server did not offer it.
    #[error("server offers no {what} for this export")]
    NotOffered {
        /// What.
        what: &'static str,
    },
    /// The export is read-only.
    #[error("export is read-only")]
    ReadOnly,
    /// Empty, or behind the end.
    #[error("range {offset}+{length} is empty or ends behind the export's {size_bytes} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// The export's size.
        size_bytes: u64,
    },
    /// Not a multiple of the smallest block.
    #[error("range {offset}+{length} is not aligned to the export's smallest block, {block_size_min} bytes")]
    Unaligned {
        /// First byte.
        offset: u64,
        /// How many.
        length: u32,
        /// The smallest block.
        block_size_min: u32,
    },
    /// A payload above what server or client bear.
    #[error("payload of {length} bytes, at most {max} may be sent or asked for")]
    TooLong {
        /// How many.
        length: u32,
        /// The limit.
        max: u32,
    },
}

impl Session {
    /// Appends the request's header to `output` and remembers it until its [`super::Event::Done`].
    ///
    /// # Errors
    /// [`SubmitError`] if the server must not be asked this; nothing was appended.
    pub fn submit(
        &mut self,
        cookie: u64,
        operation: Operation,
        output: &mut Vec<u8>,
    ) -> Result<(), SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        if self.outstanding.len() >= self.config.requests_max {
            return Err(SubmitError::Full { max: self.config.requests_max });
        }
        if self.outstanding.contains_key(&cookie) {
            return Err(SubmitError::CookieInUse { cookie });
        }
        let (command, flags, offset, length) = parts(operation);
        self.check_offered(command, flags)?;
        if command != Command::Flush {
            self.check_range(command, offset, length)?;
        }
        output
            .extend_from_slice(&RequestHeader::new(command.number(), flags, cookie, offset, length).encode());
        let range = ByteRange::new(offset, u64::from(length));
        self.outstanding.insert(cookie, Outstanding::new(command, flags, range));
        Ok(())
    }

    /// Appends the farewell; nothing may be submitted behind it. The server still answers what is outstanding, then
    /// closes.
    pub fn disconnect(&mut self, output: &mut Vec<u8>) {
        if self.is_ready() {
            self.disconnecting = true;
            let header = RequestHeader::new(Command::Disconnect.number(), CommandFlags::NONE, 0, 0, 0);
            output.extend_from_slice(&header.encode());
        }
    }

    fn check_offered(&self, command: Command, flags: CommandFlags) -> Result<(), SubmitError> {
        use TransmissionFlags as Flags;
        let offered = self.export.flags;
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && offered.contains(Flags::READ_ONLY) {
            return Err(SubmitError::ReadOnly);
        }
        let needs = [
            (command == Command::Flush, Flags::SEND_FLUSH, "flush"),
            (command == Command::Trim, Flags::SEND_TRIM, "trim"),
            (command == Command::Cache, Flags::SEND_CACHE, "cache"),
            (command == Command::WriteZeroes, Flags::SEND_WRITE_ZEROES, "write zeroes"),
            (flags.contains(CommandFlags::FUA), Flags::SEND_FUA, "FUA"),
            (flags.contains(CommandFlags::DF), Flags::SEND_DF, "unfragmented reads"),
            (flags.contains(CommandFlags::FAST_ZERO), Flags::SEND_FAST_ZERO, "fast zeroes"),
        ];
        if let Some((_, _, what)) =
            needs.into_iter().find(|(used, flag, _)| *used && !offered.contains(*flag))
        {
            return Err(SubmitError::NotOffered { what });
        }
        if command == Command::BlockStatus && self.context_id.is_none() {
            return Err(SubmitError::NotOffered { what: "block status" });
        }
        Ok(())
    }

    fn check_range(&self, command: Command, offset: u64, length: u32) -> Result<(), SubmitError> {
        let size_bytes = self.export.size_bytes;
        let inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= size_bytes);
        if length == 0 || !inside {
            return Err(SubmitError::Range { offset, length, size_bytes });
        }
        let block_size_min = self.export.block_sizes.min;
        if (offset | u64::from(length)) & (u64::from(block_size_min) - 1) != 0 {
            return Err(SubmitError::Unaligned { offset, length, block_size_min });
        }
        let max = self.export.block_sizes.max.min(self.config.payload_bytes_max);
        if matches!(command, Command::Read | Command::Write) && length > max {
            return Err(SubmitError::TooLong { length, max });
        }
        Ok(())
    }
}

fn parts(operation: Operation) -> (Command, CommandFlags, u64, u32) {
    use CommandFlags as Flags;
    let none = Flags::NONE;
    match operation {
        Operation::Read { offset, length, dont_fragment } => {
            (Command::Read, none.with_if(dont_fragment, Flags::DF), offset, length)
        }
        Operation::Write { offset, length, fua } => {
            (Command::Write, none.with_if(fua, Flags::FUA), offset, length)
        }
        Operation::Flush => (Command::Flush, none, 0, 0),
        Operation::Trim { offset, length, fua } => {
            (Command::Trim, none.with_if(fua, Flags::FUA), offset, length)
        }
        Operation::WriteZeroes { offset, length, fua, no_hole, fast_zero } => {
            let flags = none
                .with_if(fua, Flags::FUA)
                .with_if(no_hole, Flags::NO_HOLE)
                .with_if(fast_zero, Flags::FAST_ZERO);
            (Command::WriteZeroes, flags, offset, length)
        }
        Operation::Cache { offset, length } => (Command::Cache, none, offset, length),
        Operation::BlockStatus { offset, length, one_extent } => {
            (Command::BlockStatus, none.with_if(one_extent, Flags::REQ_ONE), offset, length)
        }
    }
}
