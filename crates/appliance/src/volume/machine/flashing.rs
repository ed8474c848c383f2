//! The flash tier of a volume: blocks that memory evicts go there, reads find them there, and what is read is judged before it is believed.
//!
//! A block that is on flash is resident, in every rule of this machine. It is served old while a change of it is in flight, and leaves
//! before the change is answered. A fill from flash is joinable or marked as one from the origin is. One that fails (an error, or a block
//! that is not what was written) becomes a fill from the origin, with the same waiters; its readers learn nothing of it.

use super::super::observation::FlashObservation;
use super::super::reads::Fill;
use super::placing::Placed;
use super::reading::FillFor;
use super::{Kind, VolumeMachine, span_in};
use crate::slab::SlabKey;
use forebay_cache::flash::{Appended, FlashAddress, FlashPartition};
use forebay_origin::{OriginError, OriginOperation, OriginRequest, OriginRequestId};
use forebay_units::{BlockIndex, BlockRange, ByteRange, Bytes, Nanos};

/// Neighbours on flash that are neighbours of the volume: one read.
#[derive(Debug, Default)]
pub(super) struct FlashRun {
    first: u64,
    addresses: Vec<FlashAddress>,
}

impl FlashRun {
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Whether `block` at `address` goes on where the run ends.
    pub(super) fn takes(&self, block: u64, address: FlashAddress, block_bytes: u64) -> bool {
        self.addresses.last().is_none_or(|last| {
            self.first + self.addresses.len() as u64 == block
                && last.sequence == address.sequence
                && last.offset + block_bytes == address.offset
        })
    }

    pub(super) fn push(&mut self, block: u64, address: FlashAddress) {
        if self.addresses.is_empty() {
            self.first = block;
        }
        self.addresses.push(address);
    }
}

/// What flash has of a block that is read.
#[derive(Debug)]
pub(super) enum FoundOnFlash {
    /// Its content, which the read has now.
    Answered,
    /// Where it is.
    At(FlashAddress),
}

/// Memory evicts `block`, which holds `bytes`: it goes to flash, if there is one, it is not there, and `placed` has nothing against it. Whether it went.
pub(super) fn demote(
    flash: Option<&mut FlashPartition>,
    placed: Option<&Placed>,
    block: BlockIndex,
    bytes: &[u8],
) -> bool {
    flash.is_some_and(|flash| {
        !flash.keeps(block)
            && placed.is_none_or(|placed| placed.admits(block))
            && flash.append(block, bytes) == Appended::Yes
    })
}

impl VolumeMachine {
    /// Gives the volume a tier on flash, before it is served.
    ///
    /// # Panics
    /// If something is in flight.
    pub fn attach_flash(&mut self, flash: FlashPartition) {
        assert!(self.in_flight.is_empty() && self.flash.is_none(), "flash is attached before requests come");
        self.flash = Some(flash);
    }

    /// Looks on flash for a block that memory does not have, for the read `key` of `range`.
    pub(super) fn find_on_flash(
        &mut self,
        block: BlockIndex,
        range: ByteRange,
        key: SlabKey,
    ) -> Option<FoundOnFlash> {
        let flash = self.flash.as_mut()?;
        if !flash.contains(block) {
            flash.count_miss();
            return None;
        }
        let read = self.reads.reads.get_mut(key).expect("the caller inserted it");
        if let Some(bytes) = flash.buffered(block) {
            let span = span_in(range, block, self.settings.block_size);
            read.copy_in(block.offset(self.settings.block_size) + span.start as u64, &bytes[span]);
            flash.count_hit();
            return Some(FoundOnFlash::Answered);
        }
        flash.address(block).map(FoundOnFlash::At)
    }

    /// Asks the flash device for the blocks of the run, for the read `key`; the run is empty then.
    pub(super) fn fetch_flash(&mut self, run: &mut FlashRun, key: SlabKey) {
        let FlashRun { mut first, addresses } = std::mem::take(run);
        // What fails on flash is asked of the origin, in one request.
        let blocks_max = (self.part_bytes_max >> self.settings.block_size.shift()) as usize;
        for addresses in addresses.chunks(blocks_max) {
            let blocks = BlockRange { first, end: first + addresses.len() as u64 };
            first = blocks.end;
            let marked = self.is_untrustworthy(blocks);
            if marked && !self.takes_nothing() {
                self.writes.want(blocks);
            }
            self.send_fill(blocks, self.bytes_of(blocks), addresses.to_vec(), marked, FillFor::read(key));
        }
    }

    /// Moves the requests that the flash device may be asked now into `requests`. They are answered through
    /// [`VolumeMachine::complete`], as the origin's are; their numbers are different ones.
    pub fn take_flash_submissions(&mut self, now: Nanos, requests: &mut Vec<OriginRequest>) {
        while let Some(write) = self.flash.as_mut().and_then(FlashPartition::take_write) {
            let kind = Kind::Demotion { sequence: write.sequence };
            let (flush, failures_seen) = (None, self.overlapping.seen());
            let key =
                self.in_flight.insert(super::InFlight { kind, submitted_at: now, flush, failures_seen });
            self.at_flash += 1;
            let operation = OriginOperation::Write { offset: write.offset, data: write.data, fua: false };
            requests.push(OriginRequest { id: OriginRequestId(key.0), operation });
        }
        while self.at_flash < self.settings.limits.flash_reads_max {
            let Some(key) = self.flash_queue.pop_front() else { return };
            let entry = self.in_flight.get_mut(key).expect("what is queued is in flight");
            entry.submitted_at = now;
            let Kind::Fill(fill) = &mut entry.kind else { unreachable!("only fills are queued") };
            fill.submitted = true;
            let length = (fill.flash.len() as u64) << self.settings.block_size.shift();
            let range = ByteRange::new(fill.flash[0].offset, length);
            self.at_flash += 1;
            requests.push(OriginRequest {
                id: OriginRequestId(key.0),
                operation: OriginOperation::Read { range },
            });
        }
    }

    /// The flash device answered.
    pub(super) fn flash_ended(
        &mut self,
        now: Nanos,
        key: SlabKey,
        kind: Kind,
        result: Result<Vec<u8>, OriginError>,
    ) {
        match kind {
            Kind::Demotion { sequence } => {
                // Once, and not with each: the log may be on the disk that is full. All are counted.
                let failed_before = std::mem::replace(&mut self.flash_write_fails, result.is_err());
                match &result {
                    Err(error) if !failed_before => {
                        // It is no origin that answered.
                        let reason = match error {
                            OriginError::Failed { context, .. } => context.clone(),
                            other => other.to_string(),
                        };
                        tracing::warn!(%reason, "a segment could not be written to flash; its blocks are dropped, and those of others until one can be");
                    }
                    Ok(_) if failed_before => tracing::info!("segments are written to flash again"),
                    _ => {}
                }
                if let Some(flash) = &mut self.flash {
                    flash.write_ended(sequence, result.is_ok());
                }
            }
            Kind::Fill(fill) => match self.judge(&fill, result) {
                Some(data) => self.fill_ended(now, key, fill, Ok(data)),
                None => self.ask_origin_instead(key, fill),
            },
            Kind::Part(_)
            | Kind::Flush { .. }
            | Kind::Status { .. }
            | Kind::LastFlush
            | Kind::HoldFlush { .. } => {
                unreachable!("flash gets no changes of the volume, and no questions")
            }
        }
    }

    /// The content of a fill from flash, if every block of it is what was written.
    fn judge(&mut self, fill: &Fill, result: Result<Vec<u8>, OriginError>) -> Option<Vec<u8>> {
        let flash = self.flash.as_mut()?;
        let block_bytes = self.settings.block_size.bytes() as usize;
        let data = result.ok().filter(|data| data.len() == fill.flash.len() * block_bytes);
        let mut is_right = true;
        for (place, (block, address)) in fill.blocks.zip(&fill.flash).enumerate() {
            let bytes = data.as_ref().map(|data| &data[place * block_bytes..][..block_bytes]);
            is_right &= flash.judge(block, *address, bytes);
        }
        let mut data = data.filter(|_| is_right)?;
        // The volume's last block may be short.
        data.truncate(fill.bytes.length as usize);
        Some(data)
    }

    /// Flash did not have what it should: the origin is asked, for the same readers.
    fn ask_origin_instead(&mut self, key: SlabKey, fill: Fill) {
        if !fill.marked {
            self.reads.joinable.remove(fill.blocks, key);
        }
        // A fill that met a change stays marked, although the origin is asked only now.
        let marked = fill.marked || self.is_untrustworthy(fill.blocks);
        for waiter in &fill.waiters {
            self.reads.reads.get_mut(*waiter).expect("a fill's waiters are in flight").asks_origin = true;
        }
        let blocks = fill.blocks;
        let key = self.enqueue(Kind::Fill(Fill { flash: Vec::new(), submitted: false, marked, ..fill }));
        if !marked {
            self.reads.joinable.insert(blocks, key);
        }
    }

    /// Sets the quota on flash; whole segments of it are used. A smaller one is put in force by [`VolumeMachine::step`].
    pub fn set_flash_quota(&mut self, quota: Bytes) {
        if let Some(flash) = &mut self.flash {
            let segments = quota.0 / u64::from(flash.segment_bytes());
            flash.set_quota(u32::try_from(segments).unwrap_or(u32::MAX));
        }
        self.place_anew();
    }

    /// The quota on flash.
    pub(super) fn flash_quota(&self) -> Bytes {
        self.flash.as_ref().map_or(Bytes::ZERO, |flash| {
            Bytes(u64::from(flash.quota_segments()) * u64::from(flash.segment_bytes()))
        })
    }

    pub(super) fn observe_flash(&self) -> Option<FlashObservation> {
        let flash = self.flash.as_ref()?;
        let statistics = flash.statistics();
        Some(FlashObservation {
            statistics,
            quota_bytes: self.flash_quota(),
            resident_bytes: Bytes(u64::from(statistics.resident_blocks) << self.settings.block_size.shift()),
            held_bytes: Bytes(u64::from(statistics.segments) * u64::from(flash.segment_bytes())),
            buffered_bytes: Bytes(flash.buffered_bytes()),
            bookkeeping_bytes: flash.footprint_bytes()
                + self.placed.as_ref().map_or(0, Placed::footprint_bytes),
            in_flight: self.at_flash + self.flash_queue.len(),
            placing: self
                .placed
                .as_ref()
                .and_then(|placed| placed.observe(self.askers.left_out(), self.placed_before)),
        })
    }
}
