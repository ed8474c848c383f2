//! The machine of one volume: what happens to every request, without I/O, clock or threads.
//!
//! This file holds its state and both its edges, to clients and to the origin; `reading`, `changing`, `describing`, `flashing`, `placing`, `syncing`,
//! `holding` and `commanding` hold what happens in between.

mod changing;
mod commanding;
mod describing;
mod ending;
mod flashing;
mod holding;
mod placing;
mod reading;
mod syncing;

pub use holding::{HoldError, HoldState, Leave, UnfitError};

use self::ending::LastFlush;
use self::holding::Hold;
use self::syncing::OwedError;
use super::client::Askers;
use super::flushes::{FailuresSeen, FlushNumber, OverlappingFlushes};
use super::listing::Listing;
use super::observation::Observer;
use super::prewarm::Loads;
use super::ranges::RangeSet;
use super::reads::{Fill, Reads};
use super::request::{ClientOperation, Errno, Reply, RequestTag, VolumeLimits};
use super::writes::{Change, WritePart, Writes};
use crate::slab::{Slab, SlabKey};
use forebay_cache::CachePartition;
use forebay_cache::flash::FlashPartition;
use forebay_locality::{LiveConfig, LiveObserver};
use forebay_origin::{OriginCompletion, OriginOperation, OriginRequest, OriginRequestId, OriginTraits};
use forebay_policy::TwoPool;
use forebay_policy::placement::PlacementStatistics;
use forebay_units::{BlockIndex, BlockRange, BlockSize, ByteRange, Bytes, Nanos, Ratio};
pub use placing::FlashPlacing;
use placing::Placed;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use thiserror::Error;

/// What a volume's machine is made from.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Size and abilities of the origin.
    pub origin: OriginTraits,
    /// Refuses every change, whatever the origin allows.
    pub read_only: bool,
    /// The unit of caching.
    pub block_size: BlockSize,
    /// The partition's quota at the start, in bytes; whole blocks of it are used. 0: nothing is cached.
    pub quota: Bytes,
    /// The share of the single-touch pool.
    pub single_touch_share: Ratio,
    /// Makes the collisions of the index unpredictable to clients.
    pub seed: u64,
    /// How curve, working set and hot zones are observed; `None`: not at all. Its block size is that of the volume.
    pub locality: Option<LiveConfig>,
    /// Maxima.
    pub limits: VolumeLimits,
}

/// Why a machine cannot be made from its settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeSettingsError {
    /// Blocks would not be aligned as the origin needs it.
    #[error("block size `{found}` is below the origin's smallest unit `{origin}`")]
    BlockSizeBelowOrigin {
        /// What was set.
        found: BlockSize,
        /// What the origin accepts at least.
        origin: Bytes,
    },
    /// The origin cannot fill a block in one request.
    #[error("block size `{found}` is above the origin's longest request `{origin}`")]
    BlockSizeAboveOrigin {
        /// What was set.
        found: BlockSize,
        /// What the origin accepts at most.
        origin: Bytes,
    },
}

/// A request at the origin or at the flash device, or in the queue before it.
#[derive(Debug)]
struct InFlight {
    kind: Kind,
    submitted_at: Nanos,
    /// Of a flush that was sent, or of a change that was to be on stable storage with that.
    flush: Option<FlushNumber>,
    failures_seen: FailuresSeen,
}

#[derive(Debug)]
enum Kind {
    Fill(Fill),
    Part(WritePart),
    Flush {
        tag: RequestTag,
        started: Nanos,
    },
    Status {
        tag: RequestTag,
        range: ByteRange,
        one_extent: bool,
    },
    /// The flush before a volume is stopped.
    LastFlush,
    /// A flush before the volume changes its origin: in the pause, or ahead of it for who is told.
    HoldFlush {
        told: Option<Sender<Result<(), HoldError>>>,
    },
    /// A segment on its way to flash.
    Demotion {
        sequence: u64,
    },
}

impl Kind {
    /// Whether the flash device is asked, not the origin.
    fn is_flash(&self) -> bool {
        match self {
            Kind::Fill(fill) => fill.is_flash(),
            Kind::Demotion { .. } => true,
            Kind::Part(_)
            | Kind::Flush { .. }
            | Kind::Status { .. }
            | Kind::LastFlush
            | Kind::HoldFlush { .. } => false,
        }
    }

    /// Whether the origin is to have all on stable storage that it has acknowledged.
    fn is_flush(&self) -> bool {
        matches!(self, Kind::Flush { .. } | Kind::LastFlush | Kind::HoldFlush { .. })
    }

    /// Whether the origin may say that it has lost what it acknowledged: flushes, and changes that are to be on stable storage when they end. Not of those that were handed over.
    fn forces(&self) -> bool {
        let is_forced = |part: &WritePart| part.operation.as_ref().is_some_and(OriginOperation::fua);
        self.is_flush() || matches!(self, Kind::Part(part) if is_forced(part))
    }
}

/// The request machine of one volume: its partition, everything in flight on it, and the rules that keep reads true.
///
/// Told of requests ([`VolumeMachine::read`], [`VolumeMachine::request`]), completions ([`VolumeMachine::complete`]), commands and
/// the time, it yields replies ([`VolumeMachine::take_replies`]) and requests for the origin ([`VolumeMachine::take_submissions`]).
/// The same calls with the same arguments yield the same answers.
#[derive(Debug)]
pub struct VolumeMachine {
    settings: VolumeSettings,
    /// Longest origin request, a multiple of the block size.
    part_bytes_max: u64,
    cache: CachePartition<TwoPool>,
    reads: Reads,
    writes: Writes,
    in_flight: Slab<InFlight>,
    /// Not yet handed to the origin.
    queue: VecDeque<SlabKey>,
    at_origin: usize,
    /// The tier below the memory, if the volume has one.
    flash: Option<FlashPartition>,
    /// What was last written to it could not be.
    flash_write_fails: bool,
    /// Who is let onto flash; `None`: whatever memory evicts.
    placed: Option<Placed>,
    /// How many placements there have been: their numbers are never used again, since migrations outlive what ordered them.
    placements: u64,
    /// What those that are gone did.
    placed_before: PlacementStatistics,
    askers: Askers,
    /// Reads not yet handed to the flash device.
    flash_queue: VecDeque<SlabKey>,
    at_flash: usize,
    /// A flush failed: the origin may have lost what was acknowledged, and flash is not kept.
    flush_failed: bool,
    last_flush: LastFlush,
    /// Flushes at the origin, and those that succeeded and wait for others.
    overlapping: OverlappingFlushes<Kind>,
    /// The origin flushes at the end, also where nothing is on flash.
    flushes_at_end: bool,
    /// Flushes ahead of changes of the origin that have not ended.
    flushes_ahead: usize,
    /// A pause in which nothing goes to the origin, or the way to it.
    hold: Option<Hold>,
    /// On which terms the origin is left, while it is held.
    leave: Leave,
    /// Parts of changes that are asked again, and who is told once there is none.
    asked_again: usize,
    none_asked_again: Option<Sender<()>>,
    /// A flush failed, ours or that of a client that left, and no client has been told yet.
    owed_flush_error: Option<OwedError>,
    /// Flushes and questions about block status in flight.
    flushes: usize,
    statuses: usize,
    doubt: RangeSet,
    loads: Loads,
    /// First come, first served; bounded by the callers that wait for them.
    listings: VecDeque<Listing>,
    observer: Observer,
    locality: Option<LiveObserver>,
    replies: Vec<Reply>,
    /// Reads served since the batch began, whose latency is known when it ends.
    served_in_batch: u32,
    draining: bool,
}

/// Slots of a shrinking partition that one call of [`VolumeMachine::step`] works off (ours; well under a millisecond).
pub const QUOTA_STEP_SLOTS: u32 = 256;

impl VolumeMachine {
    /// A machine with an empty partition.
    ///
    /// # Errors
    /// [`VolumeSettingsError`] if the block size does not go with the origin.
    pub fn new(settings: VolumeSettings, now: Nanos) -> Result<VolumeMachine, VolumeSettingsError> {
        let (found, origin) = (settings.block_size, settings.origin);
        if found.bytes() < u64::from(origin.block_size_min) {
            let origin = Bytes(origin.block_size_min.into());
            return Err(VolumeSettingsError::BlockSizeBelowOrigin { found, origin });
        }
        let part_bytes_max = u64::from(origin.request_bytes_max) >> found.shift() << found.shift();
        if part_bytes_max == 0 {
            let origin = Bytes(origin.request_bytes_max.into());
            return Err(VolumeSettingsError::BlockSizeAboveOrigin { found, origin });
        }
        let cache = CachePartition::new(
            TwoPool::new(settings.single_touch_share),
            found,
            settings.quota.0 >> found.shift(),
            settings.seed,
        );
        let locality = settings.locality.map(|config| {
            let zone_size = config.zone_size.max(Bytes(found.bytes()));
            LiveObserver::new(LiveConfig { block_size: found, zone_size, ..config }, now)
        });
        Ok(VolumeMachine {
            settings,
            part_bytes_max,
            cache,
            reads: Reads::new(),
            writes: Writes::new(origin.block_size_min, found),
            in_flight: Slab::new(),
            queue: VecDeque::new(),
            at_origin: 0,
            flash: None,
            flash_write_fails: false,
            placed: None,
            placements: 0,
            placed_before: PlacementStatistics::default(),
            askers: Askers::default(),
            flash_queue: VecDeque::new(),
            at_flash: 0,
            flush_failed: false,
            last_flush: LastFlush::NotAsked,
            overlapping: OverlappingFlushes::new(),
            flushes_at_end: false,
            flushes_ahead: 0,
            hold: None,
            leave: Leave::default(),
            asked_again: 0,
            none_asked_again: None,
            owed_flush_error: None,
            flushes: 0,
            statuses: 0,
            doubt: RangeSet::default(),
            loads: Loads::new(),
            listings: VecDeque::new(),
            observer: Observer::new(now),
            locality,
            replies: Vec::new(),
            served_in_batch: 0,
            draining: false,
        })
    }

    /// Size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.settings.origin.size_bytes
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.settings.read_only || self.settings.origin.read_only
    }

    /// Whether another request may be handed in; if not, the caller stops reading its connections until replies came.
    pub fn has_room(&self) -> bool {
        self.requests_in_flight() < self.settings.limits.requests_max
    }

    /// Client requests in flight.
    pub fn requests_in_flight(&self) -> usize {
        let looking = self.reads.reads.len() + self.loads.asked.len() + self.statuses;
        looking + self.writes.writes.len() + self.flushes
    }

    /// Whether nothing is in flight, warm-up included; of a volume that drains, nothing is left to write to flash or to flush either.
    pub fn is_idle(&self) -> bool {
        self.requests_in_flight() == 0
            && self.in_flight.is_empty()
            && self.replies.is_empty()
            && !(self.draining && self.is_stopping())
    }

    /// The bytes of whole blocks; the volume's last block may be short.
    fn bytes_of(&self, blocks: BlockRange) -> ByteRange {
        let offset = BlockIndex(blocks.first).offset(self.settings.block_size);
        let end = BlockIndex(blocks.end).offset(self.settings.block_size).min(self.size_bytes());
        ByteRange::new(offset, end - offset)
    }

    /// A client asks for anything but a read; a [`Reply`] for `tag` follows, perhaps at once.
    pub fn request(&mut self, now: Nanos, tag: RequestTag, operation: ClientOperation) {
        let counters = &mut self.observer.counters;
        match operation {
            ClientOperation::Write { offset, data, fua } => {
                counters.writes += 1;
                counters.bytes_written += data.len() as u64;
                counters.write_sizes.record(data.len() as u64);
                let range = ByteRange::new(offset, data.len() as u64);
                self.change(now, tag, range, Change::Write { data }, fua);
            }
            ClientOperation::Trim { range, fua } => {
                counters.trims += 1;
                self.change(now, tag, range, Change::Trim, fua);
            }
            ClientOperation::WriteZeroes { range, may_trim, fua, fast } => {
                counters.write_zeroes += 1;
                self.change(now, tag, range, Change::WriteZeroes { may_trim, fast }, fua);
            }
            ClientOperation::Flush => {
                counters.flushes += 1;
                if self.draining {
                    return self.refuse(tag, Errno::SHUTDOWN);
                }
                // In doubt it is owed as long as there are clients that were told of another keeper: they are let go with a flush that is under way.
                if !self.is_in_doubt()
                    && let Some(owed) = self.owed_flush_error.take()
                {
                    // The origin is not asked, and does not say that all is safe now: where it told this to us last, and we are killed or fenced before somebody has heard, it says it again to who comes another way.
                    let reply = Reply::new(tag, Err(owed.errno));
                    self.reply(Reply { is_said_once: true, told_before: owed.told_before, ..reply });
                    return;
                }
                // Every write that was acknowledged is complete at the origin, so nothing has to be waited for.
                self.flushes += 1;
                self.enqueue(Kind::Flush { tag, started: now });
            }
            ClientOperation::Cache { range } => {
                counters.cache_requests += 1;
                self.load(tag, range);
            }
            ClientOperation::BlockStatus { range, one_extent } => {
                counters.status_requests += 1;
                self.describe(tag, range, one_extent);
            }
        }
    }

    /// Whether a request may be served at all.
    fn check(&self, range: ByteRange, changes: bool) -> Result<(), Errno> {
        if self.draining {
            return Err(Errno::SHUTDOWN);
        }
        if changes && self.is_read_only() {
            return Err(Errno::PERM);
        }
        let end = range.offset.checked_add(range.length);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(if changes { Errno::NO_SPACE } else { Errno::INVALID });
        }
        let unit = u64::from(self.settings.origin.block_size_min.max(1));
        if changes
            && !(range.offset.is_multiple_of(unit)
                && (range.length.is_multiple_of(unit) || end == Some(self.size_bytes())))
        {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    fn refuse(&mut self, tag: RequestTag, errno: Errno) {
        self.reply(Reply::new(tag, Err(errno)));
    }

    fn reply(&mut self, reply: Reply) {
        self.observer.counters.errors += u64::from(reply.result.is_err());
        self.replies.push(reply);
    }

    fn enqueue(&mut self, kind: Kind) -> SlabKey {
        let is_flash = kind.is_flash();
        let failures_seen = self.overlapping.seen();
        let entry = InFlight { kind, submitted_at: Nanos::ZERO, flush: None, failures_seen };
        let key = self.in_flight.insert(entry);
        if is_flash {
            self.flash_queue.push_back(key);
        } else {
            self.queue.push_back(key);
        }
        key
    }

    /// Moves the requests that the origin may be asked now into `requests`. Called when a batch of requests was handed
    /// in: until then adjacent misses merge.
    pub fn take_submissions(&mut self, now: Nanos, requests: &mut Vec<OriginRequest>) {
        self.observer.outstanding(now, self.requests_in_flight());
        if self.hold.is_some() {
            return self.submit_held(now, requests);
        }
        self.pump_loads(now);
        if self.draining {
            self.stop();
        }
        while self.at_origin < self.settings.limits.origin_requests_max {
            let Some(key) = self.queue.pop_front() else { return };
            let entry = self.in_flight.get_mut(key).expect("what is queued is in flight");
            entry.submitted_at = now;
            // One that is asked of a second way has been asked already.
            if entry.flush.is_none() && entry.kind.forces() {
                entry.flush = Some(self.overlapping.send());
            }
            let counters = &mut self.observer.counters;
            counters.origin_requests += 1;
            let operation = match &mut entry.kind {
                Kind::Fill(fill) => {
                    fill.submitted = true;
                    counters.origin_reads += 1;
                    counters.origin_bytes_read += fill.bytes.length;
                    OriginOperation::Read { range: fill.bytes }
                }
                Kind::Part(part) => {
                    counters.origin_bytes_written += part.range.length;
                    if let (Some(OriginOperation::Write { data, .. }), None) = (&part.operation, &part.kept)
                        && VolumeMachine::keeps(&self.cache, &self.writes, part, self.settings.block_size)
                    {
                        part.kept = Some(data.clone());
                    }
                    part.operation.take().expect("a part is submitted once")
                }
                Kind::Flush { .. } | Kind::LastFlush | Kind::HoldFlush { .. } => OriginOperation::Flush,
                Kind::Status { range, one_extent, .. } => {
                    OriginOperation::BlockStatus { range: *range, one_extent: *one_extent }
                }
                Kind::Demotion { .. } => unreachable!("they are not queued here"),
            };
            self.at_origin += 1;
            requests.push(OriginRequest { id: OriginRequestId(key.0), operation });
        }
    }

    /// The origin answered, or the flash device. A completion of nothing that is in flight is ignored: an origin that answers
    /// twice must not harm anybody.
    pub fn complete(&mut self, now: Nanos, mut completion: OriginCompletion) {
        let key = SlabKey(completion.id.0);
        let submitted = self.in_flight.get(key).is_some_and(|entry| match &entry.kind {
            Kind::Fill(fill) => fill.submitted,
            Kind::Part(part) => part.operation.is_none(),
            Kind::Flush { .. } | Kind::LastFlush | Kind::HoldFlush { .. } => entry.flush.is_some(),
            Kind::Status { .. } | Kind::Demotion { .. } => true,
        });
        if !submitted {
            tracing::error!(
                id = completion.id.0,
                "origin completed a request that is not outstanding; ignored"
            );
            return;
        }
        if self.asks_again(key, &mut completion) {
            return;
        }
        let Some(entry) = self.in_flight.remove(key) else { return };
        if entry.kind.is_flash() {
            self.at_flash -= 1;
            return self.flash_ended(now, key, entry.kind, completion.result);
        }
        self.at_origin -= 1;
        self.observer.origin.record(now.saturating_since(entry.submitted_at));
        self.observer.counters.origin_errors += u64::from(completion.result.is_err());
        if entry.kind.is_flush() {
            return self.flush_ended(now, entry, completion.result);
        }
        self.forced_ended(now, &entry, &completion.result);
        match entry.kind {
            Kind::Fill(fill) => {
                if completion.result.is_ok() {
                    self.origin_answered(&fill, now.saturating_since(entry.submitted_at));
                }
                self.fill_ended(now, key, fill, completion.result);
            }
            Kind::Part(part) => {
                let was_asked_again = part.is_asked_again;
                self.part_ended(now, part, completion.result);
                if was_asked_again {
                    self.answered_again();
                }
            }
            Kind::Status { tag, range, one_extent } => {
                self.status_ended(tag, range, one_extent, completion.result);
            }
            Kind::Flush { .. } | Kind::HoldFlush { .. } | Kind::LastFlush | Kind::Demotion { .. } => {
                unreachable!("handled above")
            }
        }
    }

    /// Moves the replies that are ready to the end of `replies`.
    pub fn take_replies(&mut self, replies: &mut Vec<Reply>) {
        replies.append(&mut self.replies);
    }

    /// From here on nothing but counters is observed of hits: no histogram, curve, working set or zone. Only for measuring what
    /// observation costs; a daemon never does so.
    pub fn observe_nothing(&mut self) {
        self.observer.is_off = true;
        self.locality = None;
    }

    /// The batch of requests that were received at `started` has been answered as far as it could be: their hits took
    /// until `now`. Called once per batch, so that a hit costs no reading of a clock.
    pub fn end_batch(&mut self, started: Nanos, now: Nanos) {
        self.observer.served(std::mem::take(&mut self.served_in_batch), started, now);
    }
}

/// The bytes of `range` that lie in `block`, counted from the block's start.
#[inline]
fn span_in(range: ByteRange, block: BlockIndex, block_size: BlockSize) -> std::ops::Range<usize> {
    let start = block.offset(block_size);
    let low = range.offset.max(start) - start;
    let high = (range.end() - start).min(block_size.bytes());
    low as usize..high as usize
}
