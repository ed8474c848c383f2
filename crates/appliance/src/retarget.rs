//! A volume changes its origin while it serves: another way to the same data takes the place of the one that it has.
//!
//! Clients see a pause and no error: what is at the old origin completes and is flushed, then the new one gets what came meanwhile. If that is
//! not to be had in time, or the new origin does not fit, the volume goes on with the old one. That both are the same data is for
//! who asks to know; a mistake is caught where it shows: by size, and by blocks here and there that are read on both
//! while nobody writes.

use crate::appliance::{Appliance, CommandError, WorkerGone};
use crate::driver::{Message, RetargetError};
use crate::volume::Leave;
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginOperation, OriginRequest, OriginRequestId,
};
use forebay_units::{ByteRange, mix64};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Blocks that are compared (ours: enough to tell two volumes apart that hold something, few enough for a disk).
const COMPARED_BLOCKS: u64 = 16;

/// How much longer than it may take a volume is held, so that it goes on with the new origin once that was read (ours).
const GRACE: Duration = Duration::from_secs(2);

/// How often it is seen whether the old origin is there still (ours: little beside what is waited for).
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How an origin is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetargetOptions {
    /// How long it may take at most, the time for which clients may wait included. Default 5 s.
    pub timeout: Duration,
    /// For how long the old origin may refuse connections ([`Origin::refused_for`]) until it is not waited for any more: nobody is there who could complete what
    /// is at it. Default: for as long as it may take, since who serves it may be about to begin anew.
    pub refused: Duration,
    /// Nothing that was asked of the old origin can change data any more, because it was fenced: it is left at once, without a flush, also if it
    /// does not answer. Changes that it was sent and has not answered are asked of the next one. Default: no.
    pub settled: bool,
    /// Forgets what is cached, for who does not want to rely on both being the same data; changes that the old origin may have made fail then, if it is `settled`. Default: what is cached stays.
    pub drops_cache: bool,
}

impl Default for RetargetOptions {
    fn default() -> RetargetOptions {
        RetargetOptions {
            timeout: Duration::from_secs(5),
            refused: Duration::MAX,
            settled: false,
            drops_cache: false,
        }
    }
}

/// A volume is served by another origin.
pub struct Retargeted {
    /// How long requests that needed the origin waited at most: from the first that was held back to the last.
    pub pause: Duration,
    /// How much of it the old origin took to complete what was at it, and to flush.
    pub drain: Duration,
    /// The origin that was left; nothing is at it.
    pub old: Arc<dyn Origin>,
}

/// Why a volume keeps its origin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RetargetFailure {
    /// The command did not reach the volume.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The volume, or the other origin, does not allow it.
    #[error("volume `{name}`: {source}")]
    Refused {
        /// The volume.
        name: String,
        /// Why.
        source: RetargetError,
    },
}

impl Appliance {
    /// Has `origin` take the place of the origin of the volume `name`, which serves on. Both must be ways to the same data.
    ///
    /// # Errors
    /// [`RetargetFailure`]; the volume is served by its old origin then, as before.
    pub fn retarget(
        &self,
        name: &str,
        origin: Arc<dyn Origin>,
        options: RetargetOptions,
    ) -> Result<Retargeted, RetargetFailure> {
        let refused = |source| RetargetFailure::Refused { name: name.to_owned(), source };
        let began = Instant::now();
        let left = || options.timeout.saturating_sub(began.elapsed());
        let entry = self.entry(name)?;
        let gone = || CommandError::Worker(WorkerGone { worker: entry.worker });
        let traits = origin.traits();
        self.run(name, move |machine, _| machine.check_fits(&traits))?
            .map_err(|unfit| refused(unfit.into()))?;
        let size = traits.size_bytes;
        let block_bytes = self.run(name, |machine, _| machine.block_size().bytes())?;
        if !options.settled {
            self.flush_ahead(name, left(), &|| is_lost(&*entry.origin, &options))?.map_err(refused)?;
        }
        let (reply, answer) = sync_channel(1);
        let timeout = left() + GRACE;
        let leave = Leave { settled: options.settled, drops_cache: options.drops_cache };
        let hold = Message::Hold { volume: entry.volume, leave, timeout, reply };
        self.inbox(entry.worker).send(hold);
        let held = loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Disconnected) => return Err(gone().into()),
                Ok(held) => break held,
                Err(RecvTimeoutError::Timeout) if is_lost(&*entry.origin, &options) => {
                    let (reply, released) = sync_channel(1);
                    let go_on = Message::Resume { volume: entry.volume, origin: None, reply };
                    self.inbox(entry.worker).send(go_on);
                    let _ = released.recv();
                    break Err(RetargetError::NobodyThere);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let drain = held.map_err(refused)?;
        // Only now, when clients wait: a new origin that caches must not be asked for what they may still change behind its back.
        let compared = match options.settled || left().is_zero() {
            true if options.settled => Ok(()), // An origin that was fenced cannot be compared with.
            true => Err(RetargetError::TooLate),
            false => {
                let is_lost = || is_lost(&*entry.origin, &options);
                compare(&*entry.origin, &*origin, sampled(size, block_bytes), left(), &is_lost)
            }
        };
        let new = compared.is_ok().then(|| origin.clone());
        // Under the lock, so that the directory has the origin of who was last.
        let mut directory = self.write();
        let (reply, answer) = sync_channel(1);
        self.inbox(entry.worker).send(Message::Resume { volume: entry.volume, origin: new, reply });
        let resumed = answer.recv().map_err(|_| gone())?;
        compared.map_err(refused)?;
        let (old, pause) = resumed.map_err(refused)?;
        if let Some(entry) = directory.entries.get_mut(name) {
            entry.origin = origin;
        }
        Ok(Retargeted { pause: pause.into(), drain: drain.into(), old })
    }

    /// Waits, for at most `within`, until the origin has answered all changes that it is asked because one that was left, `settled`, may have made them or not; how many
    /// parts of them are still out. Until then others who write the same blocks by another way, and have seen them made, may be overwritten by them.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn await_asked_again(&self, name: &str, within: Duration) -> Result<usize, CommandError> {
        let (told, answer) = channel();
        let asked_again = self.run(name, move |machine, _| machine.when_none_is_asked_again(told))?;
        match answer.recv_timeout(within) {
            Ok(()) => Ok(0),
            Err(RecvTimeoutError::Timeout) => Ok(asked_again),
            Err(RecvTimeoutError::Disconnected) => Err(CommandError::Unknown { name: name.to_owned() }),
        }
    }

    /// Flushes the origin before clients wait for that, so that little is left to flush when they do.
    fn flush_ahead(
        &self,
        name: &str,
        within: Duration,
        is_lost: &dyn Fn() -> bool,
    ) -> Result<Result<(), RetargetError>, RetargetFailure> {
        let until = Instant::now() + within;
        let (told, answer) = channel();
        self.run(name, move |machine, _| machine.flush_ahead(told))?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            return Ok(match answer.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(flushed) => flushed.map_err(RetargetError::from),
                Err(RecvTimeoutError::Disconnected) => Err(RetargetError::Gone),
                Err(RecvTimeoutError::Timeout) if is_lost() => Err(RetargetError::NobodyThere),
                Err(RecvTimeoutError::Timeout) if left > LOOK_EVERY => continue,
                Err(RecvTimeoutError::Timeout) => Err(RetargetError::NotDrained { in_flight: 1 }),
            });
        }
    }
}

/// Whether nobody is at the old origin who could complete what is at it, and nobody is waited for.
fn is_lost(old: &dyn Origin, options: &RetargetOptions) -> bool {
    !options.settled && old.refused_for().is_some_and(|refused| refused >= options.refused)
}

/// Blocks all over a volume: the first, the last, and some between that any two calls agree on.
fn sampled(size_bytes: u64, block_bytes: u64) -> Vec<ByteRange> {
    let blocks = size_bytes.div_ceil(block_bytes);
    let mut sampled: Vec<u64> = (2..COMPARED_BLOCKS)
        .map(|index| mix64(index) % blocks.max(1))
        .chain([0, blocks.saturating_sub(1)])
        .collect();
    sampled.sort_unstable();
    sampled.dedup();
    let range = |block: u64| {
        let offset = block * block_bytes;
        ByteRange::new(offset, block_bytes.min(size_bytes - offset))
    };
    sampled.into_iter().filter(|block| *block < blocks).map(range).collect()
}

struct Answers(Sender<OriginCompletion>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// Reads `ranges` on both origins; an error if one of them reads otherwise on one than on the other, or the old one `is_lost` before it has answered.
fn compare(
    old: &dyn Origin,
    new: &dyn Origin,
    ranges: Vec<ByteRange>,
    within: Duration,
    is_lost: &dyn Fn() -> bool,
) -> Result<(), RetargetError> {
    let deadline = Instant::now() + within;
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    for (index, range) in (0..).zip(ranges.iter()) {
        for (side, origin) in [old, new].into_iter().enumerate() {
            let id = OriginRequestId(2 * index + side as u64);
            origin.submit(OriginRequest { id, operation: OriginOperation::Read { range: *range } }, &sink);
        }
    }
    let mut read: Vec<Option<Vec<u8>>> = vec![None; 2 * ranges.len()];
    for _ in 0..read.len() {
        let answer = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(answer) => break answer,
                Err(_) if is_lost() => return Err(RetargetError::NobodyThere),
                Err(_) if left <= LOOK_EVERY => {
                    let reason = "they did not answer in time".to_owned();
                    return Err(RetargetError::NotCompared { reason });
                }
                Err(_) => {}
            }
        };
        let data = answer.result.map_err(|error| RetargetError::NotCompared { reason: error.to_string() })?;
        read[answer.id.0 as usize] = Some(data);
    }
    match read.chunks(2).position(|pair| pair[0] != pair[1]) {
        Some(index) => Err(RetargetError::OtherData { at: ranges[index].offset }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_origin::{MemoryImage, MemoryOrigin};
    use forebay_units::Bytes;

    #[test]
    fn samples_lie_inside_and_reach_both_ends() {
        for (size, block) in [(1, 4096), (4096, 4096), (4097, 4096), (10 << 20, 4096), (u64::MAX / 2, 4096)] {
            let ranges = sampled(size, block);
            assert_eq!((ranges[0].offset, ranges.last().unwrap().end()), (0, size));
            assert!(ranges.len() as u64 <= COMPARED_BLOCKS && ranges.iter().all(|range| range.length > 0));
        }
        assert_eq!(sampled(10 << 20, 4096).len() as u64, COMPARED_BLOCKS);
        assert_eq!(sampled(0, 4096), []);
    }

    #[test]
    fn what_differs_is_found() {
        let image = |byte| {
            let image = Arc::new(MemoryImage::new(Bytes::kib(64)));
            image.write_at(8192, &[byte]);
            MemoryOrigin::new(image)
        };
        let ranges = || vec![ByteRange::new(0, 4096), ByteRange::new(8192, 4096)];
        let within = Duration::from_secs(5);
        assert_eq!(compare(&image(1), &image(1), ranges(), within, &|| false), Ok(()));
        assert_eq!(
            compare(&image(1), &image(2), ranges(), within, &|| false),
            Err(RetargetError::OtherData { at: 8192 })
        );
    }
}
