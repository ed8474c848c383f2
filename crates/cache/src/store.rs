//! The bytes of slots in memory.
//!
//! It is not a cache: it does not know which block a slot holds or whether its content is valid. Chunks are anonymous mappings
//! of their own, so that a chunk that is released goes back to the operating system at once (a general allocator may keep it), a
//! refusal is an error instead of an abort, and a fresh chunk costs nothing until its pages are written.

use forebay_policy::Slot;
use forebay_units::{BlockSize, Bytes};
use memmap2::MmapMut;
use std::io;
use thiserror::Error;

/// The size of a chunk, unless a block is larger: a huge page, which is released in tens of microseconds.
const CHUNK: u64 = 2 << 20;

/// What must be to be had besides a chunk (ours): where the system sets a limit (`ulimit -v`, strict accounting of memory), a cache that took
/// all of it would leave nothing for a buffer or a thread, and who gets no memory for these is ended.
const SPARE: usize = 16 << 20;

/// A store that could not take bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused the memory of a chunk.
    #[error("no memory for a chunk of `{chunk}` of the cache, with `{held}` held already")]
    OutOfMemory {
        /// The size of the chunk.
        chunk: Bytes,
        /// What the store holds.
        held: Bytes,
        /// What the operating system said.
        source: io::Error,
    },
}

/// An arena of slots of one block each, in chunks of 2 MiB that are mapped as slots are written.
#[derive(Debug)]
pub struct MemoryStore {
    block_size: BlockSize,
    /// Slots per chunk are `1 << shift`.
    shift: u32,
    chunks: Vec<Option<MmapMut>>,
    held_chunks: u64,
}

impl MemoryStore {
    /// A store without memory, whose slots hold one block of `block_size` each.
    pub fn new(block_size: BlockSize) -> MemoryStore {
        let slots = (CHUNK >> block_size.shift()).max(1);
        MemoryStore { block_size, shift: slots.trailing_zeros(), chunks: Vec::new(), held_chunks: 0 }
    }

    /// The size of a slot.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn chunk_bytes(&self) -> u64 {
        self.block_size.bytes() << self.shift
    }

    fn place(&self, slot: Slot) -> (usize, usize) {
        let within = slot.0 & ((1 << self.shift) - 1);
        ((slot.0 >> self.shift) as usize, (within as usize) << self.block_size.shift())
    }

    /// Maps the chunk of `slot`, if it is not, and leaves some memory to be had for others.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] if the operating system refuses it, or 16 MiB besides; the store is then as it was.
    pub fn reserve(&mut self, slot: Slot) -> Result<(), StoreError> {
        let (chunk, _) = self.place(slot);
        if self.chunks.get(chunk).is_some_and(Option::is_some) {
            return Ok(());
        }
        let (bytes, held) = (Bytes(self.chunk_bytes()), self.held_bytes());
        let refused = |source| StoreError::OutOfMemory { chunk: bytes, held, source };
        let map = MmapMut::map_anon(bytes.0 as usize).map_err(refused)?;
        // Given back at once: no page of it was touched.
        drop(MmapMut::map_anon(SPARE).map_err(refused)?);
        // Reads go to any block at any time: one entry for 2 MiB in the processor's tables, in place of 512, saves a look-up in memory for
        // nearly each. The first chunk has small pages, so that a small cache costs no more memory than it fills. Best effort: a system
        // may have no huge pages.
        #[cfg(target_os = "linux")]
        if chunk > 0 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        if chunk >= self.chunks.len() {
            let more = chunk + 1 - self.chunks.len();
            if self.chunks.try_reserve(more).is_err() {
                return Err(refused(io::ErrorKind::OutOfMemory.into()));
            }
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk] = Some(map);
        self.held_chunks += 1;
        Ok(())
    }

    /// The bytes of `slot`, a whole block.
    ///
    /// # Panics
    /// If the chunk of `slot` is not mapped.
    #[inline]
    pub fn read(&self, slot: Slot) -> &[u8] {
        let (chunk, at) = self.place(slot);
        let map = self
            .chunks
            .get(chunk)
            .and_then(Option::as_ref)
            .expect("the chunk of a slot that is read is mapped");
        &map[at..at + self.block_size.bytes() as usize]
    }

    /// Writes `data` into `slot` from `offset` on, both in bytes within the block.
    ///
    /// # Panics
    /// If the chunk of `slot` is not mapped, or the data passes the end of the block.
    #[inline]
    pub fn write(&mut self, slot: Slot, offset: usize, data: &[u8]) {
        self.slot_mut(slot)[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Writes `data` at the start of `slot` and zeros behind it.
    ///
    /// # Panics
    /// As [`MemoryStore::write`].
    pub fn write_whole(&mut self, slot: Slot, data: &[u8]) {
        let (head, tail) = self.slot_mut(slot).split_at_mut(data.len());
        head.copy_from_slice(data);
        tail.fill(0);
    }

    fn slot_mut(&mut self, slot: Slot) -> &mut [u8] {
        let (chunk, at) = self.place(slot);
        let map = self
            .chunks
            .get_mut(chunk)
            .and_then(Option::as_mut)
            .expect("the chunk of a slot that is written is mapped");
        &mut map[at..at + self.block_size.bytes() as usize]
    }

    /// Copies the bytes of `from` to `to`; both chunks are mapped.
    ///
    /// # Panics
    /// If one is not.
    pub fn copy(&mut self, from: Slot, to: Slot) {
        let ((source, from_at), (target, to_at)) = (self.place(from), self.place(to));
        let bytes = self.block_size.bytes() as usize;
        if source == target {
            let map = self.chunks[source].as_mut().expect("the chunk of a slot that moves is mapped");
            map.copy_within(from_at..from_at + bytes, to_at);
        } else if let Ok([Some(source), Some(target)]) = self.chunks.get_disjoint_mut([source, target]) {
            target[to_at..to_at + bytes].copy_from_slice(&source[from_at..from_at + bytes]);
        } else {
            panic!("slot {} moves to {}, but a chunk is not mapped", from.0, to.0);
        }
    }

    /// Gives back at most `chunks_max` chunks that hold no slot below `slots`, the highest first; returns whether none is left.
    pub fn release(&mut self, slots: u32, chunks_max: usize) -> bool {
        let keep = (u64::from(slots)).div_ceil(1 << self.shift) as usize;
        let mut released = 0;
        while self.chunks.len() > keep {
            if released == chunks_max {
                return false;
            }
            if self.chunks.pop().flatten().is_some() {
                self.held_chunks -= 1;
                released += 1;
            }
        }
        true
    }

    /// The memory mapped, in bytes; pages never written do not occupy memory.
    pub fn held_bytes(&self) -> Bytes {
        Bytes(self.held_chunks * self.chunk_bytes())
    }

    /// The memory besides the data, in bytes.
    pub fn footprint_bytes(&self) -> u64 {
        (self.chunks.capacity() * size_of::<Option<MmapMut>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_touch_each_other_and_chunks_go_back() {
        let mut store = MemoryStore::new(BlockSize::DEFAULT);
        // 512 slots of 4 KiB to a chunk of 2 MiB: slots 511 and 512 are in different chunks.
        for slot in [0, 511, 512, 1400] {
            store.reserve(Slot(slot)).unwrap();
            store.write_whole(Slot(slot), &[slot as u8; 4096]);
        }
        assert_eq!(store.held_bytes(), Bytes::mib(6));
        store.write(Slot(511), 4094, &[1, 2]);
        assert_eq!((store.read(Slot(511))[4093], &store.read(Slot(511))[4094..]), (255, [1, 2].as_slice()));
        assert!(store.read(Slot(512)).iter().all(|byte| *byte == 0));
        store.copy(Slot(1400), Slot(1));
        store.copy(Slot(511), Slot(2));
        assert!(store.read(Slot(1)).iter().all(|byte| *byte == 1400u32 as u8));
        assert_eq!(store.read(Slot(2))[4095], 2);
        // Slots from 3 on are not needed: chunks 2 and 1 go, one at a time.
        assert!(!store.release(3, 1));
        assert_eq!(store.held_bytes(), Bytes::mib(4));
        assert!(store.release(3, 1));
        assert_eq!((store.held_bytes(), store.read(Slot(2))[4095]), (Bytes::mib(2), 2));
        assert!(store.release(0, 1));
        assert_eq!(store.held_bytes(), Bytes::ZERO);
    }

    #[test]
    fn a_short_block_is_followed_by_zeros() {
        let mut store = MemoryStore::new(BlockSize::new(Bytes(512)).unwrap());
        store.reserve(Slot(9)).unwrap();
        store.write_whole(Slot(9), &[1; 512]);
        store.write_whole(Slot(9), &[2; 100]);
        assert_eq!(store.read(Slot(9))[..100], [2; 100]);
        assert!(store.read(Slot(9))[100..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn blocks_larger_than_a_chunk_have_chunks_of_their_own() {
        let mut store = MemoryStore::new(BlockSize::new(Bytes::mib(4)).unwrap());
        store.reserve(Slot(1)).unwrap();
        assert_eq!((store.held_bytes(), store.read(Slot(1)).len()), (Bytes::mib(4), 4 << 20));
    }

    #[test]
    #[should_panic(expected = "is mapped")]
    fn a_slot_without_memory_panics() {
        MemoryStore::new(BlockSize::DEFAULT).read(Slot(0));
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn data_beyond_the_block_panics() {
        let mut store = MemoryStore::new(BlockSize::DEFAULT);
        store.reserve(Slot(0)).unwrap();
        store.write(Slot(0), 4000, &[0; 97]);
    }

    /// In a process of its own, whose address space is limited.
    #[test]
    fn a_store_that_gets_no_more_leaves_memory_for_others() {
        const MARK: &str = "FOREBAY_TEST_FILLS_MEMORY";
        if std::env::var_os(MARK).is_none() {
            let name = "store::tests::a_store_that_gets_no_more_leaves_memory_for_others";
            let script = "ulimit -v 400000 && exec \"$0\" --exact --test-threads 1 \"$1\"";
            let mut child = std::process::Command::new("sh");
            child.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(name).env(MARK, "yes");
            let output = child.output().unwrap();
            let words = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && words.contains("1 passed"), "{words}");
            return;
        }
        let mut store = MemoryStore::new(BlockSize::DEFAULT);
        let refused = (0..).find(|chunk| store.reserve(Slot(chunk * 512)).is_err()).unwrap();
        assert!(refused > 1 && store.held_bytes() == Bytes::mib(2 * u64::from(refused)), "{refused}");
        assert!(MmapMut::map_anon(SPARE - (2 << 20)).is_ok());
    }
}
