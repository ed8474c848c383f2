//! A partition's index on the device: a chain of segments of its own.

use super::super::format::{INDEX_HEADER_BYTES, IndexHeader, NO_SEGMENT, Record, SECTOR};
use super::super::index::{IndexItem, IndexReader, IndexWriter};
use super::super::partition::FlashPartition;
use super::{FlashError, FlashTier, io_error};
use std::io;

impl FlashTier {
    /// Reads the index into the partition; how many blocks it names, or `None` if anything about it is wrong.
    pub(super) fn read_index(
        &self,
        record: &Record,
        partition: &mut FlashPartition,
        index: &mut Vec<u32>,
    ) -> Option<u64> {
        let geometry = self.geometry();
        let per_segment = geometry.segment_bytes / record.block_bytes;
        let mut reader = IndexReader::new(per_segment);
        let (mut segment, mut blocks, mut is_taken) = (record.index_first, 0, false);
        for ordinal in 0..record.index_segments {
            if segment >= geometry.segments {
                return None;
            }
            let bytes =
                self.device.read(geometry.segment_offset(segment), geometry.segment_bytes as usize).ok()?;
            let (header, payload) = IndexHeader::decode(&bytes).ok()?;
            let expected = IndexHeader {
                device_id: record.device_id,
                volume: record.volume,
                epoch: record.index_epoch,
                ordinal,
                ..header
            };
            if header != expected {
                return None;
            }
            let read = reader.read(payload, |item| match item {
                // A segment that another volume has by now is not ours any more.
                IndexItem::Frame(frame) => {
                    is_taken = frame.segment < geometry.segments && self.pool.claim(frame.segment);
                    if is_taken && !partition.restore_frame(frame) {
                        self.pool.give(frame.segment);
                        is_taken = false;
                    }
                }
                IndexItem::Entry(entry) => {
                    blocks += 1;
                    if is_taken {
                        partition.restore_entry(entry);
                    }
                }
            });
            read.ok()?;
            index.push(segment);
            segment = header.next;
        }
        reader.finish().ok()?;
        (blocks == record.blocks && segment == NO_SEGMENT).then(|| u64::from(partition.resident_blocks()))
    }

    /// Writes the index into segments of its own, for which the oldest blocks leave if there are no others.
    pub(super) fn write_index(
        &self,
        partition: &mut FlashPartition,
        epoch: u64,
        index: &mut Vec<u32>,
    ) -> Result<(), FlashError> {
        let geometry = self.geometry();
        let payload_bytes = geometry.segment_bytes as usize - INDEX_HEADER_BYTES;
        loop {
            let bytes = IndexWriter::bytes(partition.segments().into(), partition.resident_blocks().into());
            let needed = bytes.div_ceil(payload_bytes as u64) as usize;
            if index.len() >= needed {
                index.drain(needed..).for_each(|segment| self.pool.give(segment));
                break;
            }
            match self.pool.take() {
                Some(segment) => index.push(segment),
                None if partition.drop_oldest() => {}
                None => {
                    return Err(io_error("finding room for an index")(io::ErrorKind::StorageFull.into()));
                }
            }
        }
        let volume = partition.settings().volume;
        let mut ordinal = 0;
        let mut result = Ok(());
        let mut write = |payload: Vec<u8>| {
            if result.is_err() {
                return;
            }
            let mut segment = vec![0; (INDEX_HEADER_BYTES + payload.len()).next_multiple_of(SECTOR)];
            segment[INDEX_HEADER_BYTES..INDEX_HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            let header = IndexHeader {
                device_id: self.superblock.device_id,
                volume,
                epoch,
                ordinal: ordinal as u32,
                next: index.get(ordinal + 1).copied().unwrap_or(NO_SEGMENT),
                payload_bytes: payload.len() as u32,
            };
            header.encode(&mut segment);
            result = self.device.write(geometry.segment_offset(index[ordinal]), &segment);
            ordinal += 1;
        };
        let mut writer = IndexWriter::new(payload_bytes);
        partition.visit_index(|item| {
            if let Some(payload) = writer.write(item) {
                write(payload);
            }
        });
        if let Some(payload) = writer.finish() {
            write(payload);
        }
        debug_assert!(result.is_err() || ordinal == index.len());
        result.map_err(io_error("writing an index"))
    }
}
