//! What the decoders of one trace share: volume names, the time that is zero, and the counters.

use crate::error::{Bad, Position, TraceError};
use crate::{Operation, Request, ThreadNumber, VolumeIndex};
use forebay_units::Nanos;
use std::collections::HashMap;

/// More volumes than this in one trace are taken for a wrong format rather than held in memory (ours).
pub(crate) const VOLUMES_MAX: usize = 1 << 20;

/// Volume names by index, and indices by name.
#[derive(Default)]
pub(crate) struct VolumeTable {
    names: Vec<String>,
    by_name: HashMap<String, VolumeIndex>,
}

impl VolumeTable {
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of the volume `name`, which is new if it was not seen before.
    pub(crate) fn index_of(&mut self, name: &str) -> Result<VolumeIndex, Bad> {
        if let Some(volume) = self.by_name.get(name) {
            return Ok(*volume);
        }
        if self.names.len() >= VOLUMES_MAX {
            return Err(Bad::too_many_volumes());
        }
        let volume = VolumeIndex(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), volume);
        Ok(volume)
    }
}

/// Volumes by the number that a format gives them; remembers the last one, because requests come in runs.
pub(crate) struct NumberedVolumes {
    last: Option<(u64, VolumeIndex)>,
    by_number: HashMap<u64, VolumeIndex>,
}

impl NumberedVolumes {
    pub(crate) fn new() -> NumberedVolumes {
        NumberedVolumes { last: None, by_number: HashMap::new() }
    }

    /// The index of volume `number`, which `name` names where it is new.
    pub(crate) fn index_of(
        &mut self,
        number: u64,
        table: &mut VolumeTable,
        name: impl FnOnce(u64) -> String,
    ) -> Result<VolumeIndex, Bad> {
        if let Some((last, volume)) = self.last
            && last == number
        {
            return Ok(volume);
        }
        let volume = match self.by_number.get(&number) {
            Some(volume) => *volume,
            None => {
                let volume = table.index_of(&name(number))?;
                self.by_number.insert(number, volume);
                volume
            }
        };
        self.last = Some((number, volume));
        Ok(volume)
    }
}

/// Volumes by the bytes that name them in the record; remembers the last one, because requests come in runs.
pub(crate) struct NamedVolumes {
    last: Option<(Vec<u8>, VolumeIndex)>,
    by_key: HashMap<Vec<u8>, VolumeIndex>,
}

impl NamedVolumes {
    pub(crate) fn new() -> NamedVolumes {
        NamedVolumes { last: None, by_key: HashMap::new() }
    }

    /// The index of the volume that `key` stands for; `name` makes its name.
    #[inline]
    pub(crate) fn index_of(
        &mut self,
        key: &[u8],
        table: &mut VolumeTable,
        name: impl FnOnce(&str) -> String,
    ) -> Result<VolumeIndex, Bad> {
        if let Some((last, volume)) = &self.last
            && last == key
        {
            return Ok(*volume);
        }
        let volume = match self.by_key.get(key) {
            Some(volume) => *volume,
            None => self.new_volume(key, table, name)?,
        };
        let (last_key, last_volume) = self.last.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        *last_volume = volume;
        Ok(volume)
    }

    fn new_volume(
        &mut self,
        key: &[u8],
        table: &mut VolumeTable,
        name: impl FnOnce(&str) -> String,
    ) -> Result<VolumeIndex, Bad> {
        let text = std::str::from_utf8(key).map_err(|_| Bad::field("volume", key, "UTF-8 text"))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(Bad::field("volume", key, "a name without control characters"));
        }
        let volume = table.index_of(&name(text))?;
        self.by_key.insert(key.to_vec(), volume);
        Ok(volume)
    }
}

/// Threads by the number that a format gives them; remembers the last one, because requests come in runs.
#[derive(Default)]
pub(crate) struct ThreadTable {
    last: Option<(u64, ThreadNumber)>,
    by_id: HashMap<u64, ThreadNumber>,
    count: u16,
}

impl ThreadTable {
    /// The number of the thread that the recorded machine called `id`.
    #[inline]
    pub(crate) fn number_of(&mut self, id: u64) -> ThreadNumber {
        if let Some((last, thread)) = self.last
            && last == id
        {
            return thread;
        }
        let thread = match self.by_id.get(&id) {
            Some(thread) => *thread,
            None => {
                let thread = self.new_thread();
                if thread != ThreadNumber::UNKNOWN {
                    self.by_id.insert(id, thread);
                }
                thread
            }
        };
        self.last = Some((id, thread));
        thread
    }

    /// The number of a thread that was not seen before; unknown where there are no more numbers.
    pub(crate) fn new_thread(&mut self) -> ThreadNumber {
        match self.count.checked_add(1) {
            Some(count) => {
                self.count = count;
                ThreadNumber(count)
            }
            None => ThreadNumber::UNKNOWN,
        }
    }
}

/// What is shared while a trace is read.
pub(crate) struct State {
    pub(crate) volumes: VolumeTable,
    pub(crate) threads: ThreadTable,
    /// The absolute time in nanoseconds that is the trace's zero; 0 until the first batch was seen.
    pub(crate) base: u64,
    /// Times before `base`, which became 0.
    pub(crate) before_start: u64,
    /// By how many nanoseconds the earliest of them lies before `base`.
    pub(crate) early_by: u64,
    pub(crate) skipped: u64,
    pub(crate) skip_malformed: u64,
    pub(crate) ignored: u64,
}

impl State {
    /// The time that `absolute` nanoseconds are since the trace's start.
    #[inline]
    pub(crate) fn since_start(&mut self, absolute: u64) -> Nanos {
        if absolute < self.base {
            self.before_start += 1;
            self.early_by = self.early_by.max(self.base - absolute);
        }
        Nanos(absolute.saturating_sub(self.base))
    }

    /// Counts a malformed record, or is the error where no more of them are allowed.
    #[cold]
    pub(crate) fn malformed(&mut self, file: &str, position: Position, bad: Bad) -> Result<(), TraceError> {
        let file = file.to_owned();
        if bad.0.too_many_volumes {
            return Err(TraceError::TooManyVolumes { file, limit: VOLUMES_MAX });
        }
        if bad.0.recoverable && self.skipped < self.skip_malformed {
            self.skipped += 1;
            return Ok(());
        }
        let bad = *bad.0;
        Err(TraceError::Malformed {
            file,
            position,
            found: bad.found,
            expected: bad.expected,
            skipped: self.skipped,
        })
    }
}

/// No read or write of a recorded trace is longer than this (64 GiB; ours): a longer one is a damaged record, and
/// splitting it into blocks would keep every consumer busy for hours. Discards may be longer.
pub const REQUEST_BYTES_MAX: u64 = 64 << 30;

/// Whether a request's end is a 64-bit number, and its length believable.
#[inline]
pub(crate) fn is_believable(operation: Operation, offset: u64, length: u64) -> bool {
    offset.checked_add(length).is_some() && (length <= REQUEST_BYTES_MAX || operation == Operation::Discard)
}

/// A request, which must be believable.
#[inline]
pub(crate) fn request(
    time: Nanos,
    volume: VolumeIndex,
    operation: Operation,
    offset: u64,
    length: u64,
) -> Result<Request, Bad> {
    if !is_believable(operation, offset, length) {
        return Err(not_believable(offset, length));
    }
    Ok(Request {
        time,
        offset,
        length,
        latency: Nanos::MAX,
        volume,
        thread: ThreadNumber::UNKNOWN,
        operation,
    })
}

#[cold]
fn not_believable(offset: u64, length: u64) -> Bad {
    let expected =
        format!("a range that ends below 2^64 bytes, of at most {REQUEST_BYTES_MAX} unless it is discarded");
    Bad::new(format!("{length} bytes from byte {offset}"), expected)
}

/// `count` units of `bytes` bytes, or of nanoseconds.
#[inline]
pub(crate) fn scaled(count: u64, bytes: u64, name: &str) -> Result<u64, Bad> {
    count.checked_mul(bytes).ok_or_else(|| {
        Bad::new(
            format!("`{count}` as {name}"),
            format!("a number below 2^64 / {bytes}, because it counts by {bytes}"),
        )
    })
}
