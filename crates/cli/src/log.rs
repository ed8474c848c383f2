//! The log of commands that serve until they are ended, on standard error.
//!
//! Threads that clients wait for write it. So it waits for nobody for long, and what nobody takes, as a full disk, a pipe whose reader is gone or a terminal that was stopped does not, is left
//! out: the next line that is taken says how many were.

use crate::failure::{Context, Failure};
use forebay_units::printable_lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;

/// A pipe that takes anything takes as much at once (`PIPE_BUF` of Linux).
const TAKEN_BYTES: usize = 4096;
/// So long it is waited for who takes what is said (ours: a serial line takes a while for each), and not again before something was taken.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Logs from here on what `filter` lets through, as in `--log`.
pub(crate) fn begin(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).context(format_args!("`{filter}` is no filter for the log"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Mutex::new(Log::default()))
        .with_ansi(
            io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        )
        // It would be told on standard error, by a macro that panics where that fails.
        .log_internal_errors(false)
        .init();
    Ok(())
}

/// Says something of what serves to the person at the terminal, who may have stopped it: what it says keeps nobody from ending it.
pub(crate) fn say_soon(words: impl Display) {
    let words = printable_lines(&format!("{words}\n"));
    let _ = write(&mut io::stderr().lock(), words.as_bytes(), &PATIENCE);
}

/// What takes lines.
#[derive(Debug, Default)]
struct Log {
    /// Lines that nobody has taken since the last one that somebody has.
    left_out: u64,
}

impl Log {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        if self.left_out > 0 {
            let note = format!("{} lines of the log were left out: nobody took them\n", self.left_out);
            write(&mut stderr, note.as_bytes(), &NONE)?;
            self.left_out = 0;
        }
        write(&mut stderr, line, &PATIENCE)
    }
}

impl Write for Log {
    /// Takes a line, whatever becomes of it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.line(line).is_err() {
            self.left_out += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `bytes`, unless somebody who is to take them does not `within` this time.
fn write(stderr: &mut io::StderrLock<'_>, bytes: &[u8], within: &Timespec) -> io::Result<()> {
    for piece in bytes.chunks(TAKEN_BYTES) {
        // What cannot be asked is written to.
        if let Ok(0) | Err(Errno::INTR) = poll(&mut [PollFd::new(&*stderr, PollFlags::OUT)], Some(within)) {
            return Err(ErrorKind::WouldBlock.into());
        }
        stderr.write_all(piece)?;
    }
    Ok(())
}
