//! The default text of `blkparse`.
//!
//! `maj,min cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`
//!
//! The request is the action that [`crate::BlockEvent`] names, `Q` unless set. Other actions, messages, the summary
//! at the end, and the names of files behind it are ignored. The volume is the device, named `<major>,<minor>`; a sector is 512 bytes. `rwbs` holds `R`,
//! `W` or `D` (discard), with flags: `A` (read-ahead, see [`crate::ReadOptions::read_ahead`]), `F` (flush before it,
//! or force unit access behind it), `S`, `M`, `B`. A record without sectors is a flush if it has an `F`; `N` is neither
//! read nor write. The thread is the process id. Source: blkparse(1), "OUTPUT DESCRIPTION AND FORMATTING"; `blkparse_fmt.c`.

use crate::error::Bad;
use crate::formats::{LineParser, SECOND, SECTOR};
use crate::state::{NumberedVolumes, State, request, scaled};
use crate::text::{Fields, decimal_nanos, missing, whole};
use crate::{BlockEvent, Operation, ReadAhead, ReadOptions, Request};
use forebay_units::Nanos;

pub(crate) struct Blkparse {
    action: &'static [u8],
    read_ahead: ReadAhead,
    in_summary: bool,
    volumes: NumberedVolumes,
}

impl Blkparse {
    pub(crate) fn new(options: &ReadOptions) -> Blkparse {
        let action: &[u8] = match options.event {
            BlockEvent::Queue => b"Q",
            BlockEvent::Issue => b"D",
        };
        let read_ahead = options.read_ahead.unwrap_or(ReadAhead::Read);
        Blkparse { action, read_ahead, in_summary: false, volumes: NumberedVolumes::new() }
    }
}

/// Whether what blkparse prints behind the records begins with this line: the summary, which with `-s` begins by process, and the names of the files that
/// were read, which `-q` does not take away.
pub(crate) fn starts_summary(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let starts = [&b"CPU"[..], b"Total (", b"Events (", b"Throughput (", b"Skips:", b"Input file "];
    starts.iter().any(|start| line.starts_with(start)) || is_process(line)
}

/// `comm (pid)`, or `comm (pid, ...)` of several processes of one name, which may begin with a digit. No record ends so but for messages, and all begin with a device.
fn is_process(line: &[u8]) -> bool {
    let inner = line.strip_suffix(b")").and_then(|line| line.rsplit(|byte| *byte == b'(').next());
    let pid = inner.map(|inner| inner.strip_suffix(b", ...").unwrap_or(inner));
    let name = line.trim_ascii_start();
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_record = digits > 0 && name.get(digits) == Some(&b',');
    !is_record && pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}

impl LineParser for Blkparse {
    fn parse(&mut self, line: &[u8], state: &mut State) -> Result<Option<Request>, Bad> {
        let starts_with_digit = line.trim_ascii_start().first().is_some_and(u8::is_ascii_digit);
        let is_record = starts_with_digit && !is_process(line.trim_ascii());
        self.in_summary = !is_record && (self.in_summary || starts_summary(line));
        if self.in_summary {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let device = fields.next_word().ok_or_else(|| missing("device"))?;
        let (major, minor) = device_number(device)?;
        fields.number_word("cpu")?;
        fields.number_word("sequence")?;
        let time = decimal_nanos(fields.next_word().ok_or_else(|| missing("time"))?, SECOND, "time")?;
        let process = fields.number_word("process id")?;
        let action = fields.next_word().ok_or_else(|| missing("action"))?;
        if action.len() > 2 || !action.iter().all(u8::is_ascii_alphabetic) {
            return Err(Bad::field("action", action, "one or two letters"));
        }
        if action != self.action {
            return Ok(None);
        }
        let rwbs = fields.next_word().ok_or_else(|| missing("RWBS"))?;
        let has = |letter| rwbs.contains(&letter);
        let mut operation = if has(b'D') {
            Operation::Discard
        } else if has(b'W') {
            Operation::Write
        } else if has(b'R') {
            Operation::Read
        } else if has(b'F') {
            Operation::Flush
        } else {
            Operation::Other
        };
        // Without sectors, the process follows at once; a command that is no block I/O shows its own bytes instead.
        let (mut offset, mut length) = (0, 0);
        if operation != Operation::Other {
            match fields.next_word() {
                None => {}
                Some(word) if word.starts_with(b"[") => {}
                Some(word) => {
                    offset = scaled(whole(word, "sector")?, SECTOR, "sector")?;
                    match fields.next_word() {
                        Some(b"+") => length = scaled(fields.number_word("sectors")?, SECTOR, "sectors")?,
                        found => {
                            return Err(Bad::field(
                                "separator",
                                found.unwrap_or_default(),
                                "`+` and the sectors",
                            ));
                        }
                    }
                }
            }
        }
        if length == 0 && has(b'F') {
            (operation, offset) = (Operation::Flush, 0);
        }
        if operation == Operation::Read && has(b'A') {
            match self.read_ahead {
                ReadAhead::Read => {}
                ReadAhead::Other => operation = Operation::Other,
                ReadAhead::Exclude => return Ok(None),
            }
        }
        let device = u64::from(major) << 32 | u64::from(minor);
        let volume = self.volumes.index_of(device, &mut state.volumes, |_| format!("{major},{minor}"))?;
        let request = request(Nanos(time), volume, operation, offset, length)?;
        Ok(Some(Request { thread: state.threads.number_of(process), ..request }))
    }
}

/// `major,minor`
fn device_number(text: &[u8]) -> Result<(u32, u32), Bad> {
    let bad = || Bad::field("device", text, "`major,minor`");
    let mut fields = Fields::new(text);
    let mut part = || {
        let number = whole(fields.next(b',').ok_or_else(bad)?, "device").map_err(|_| bad())?;
        u32::try_from(number).map_err(|_| bad())
    };
    let device = (part()?, part()?);
    fields.next(b',').is_none().then_some(device).ok_or_else(bad)
}
