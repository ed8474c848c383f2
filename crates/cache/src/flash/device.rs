//! Where a flash tier starts and stops from: reads, writes and syncs that may block.

use super::format::SECTOR;
use forebay_units::mix64;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file or block device as the tier sees it at start and stop. Offsets and lengths are multiples of 4 KiB.
///
/// The data path does not use it: there, reads and writes are requests that complete later.
pub trait FlashDevice: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Reads `length` bytes from `offset` on, past every cache of the host.
    ///
    /// # Errors
    /// As the device says.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>>;

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// As the device says; what is there afterwards is not known then.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes every write that ended stable.
    ///
    /// # Errors
    /// As the device says; nothing is known to be stable then.
    fn sync(&self) -> io::Result<()>;
}

/// A device in memory, for tests and fuzzers.
#[derive(Debug)]
pub struct MemoryFlash {
    bytes: Mutex<Vec<u8>>,
}

impl MemoryFlash {
    /// A device that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> MemoryFlash {
        MemoryFlash { bytes: Mutex::new(bytes) }
    }

    /// Lets `change` change what the device holds.
    pub fn change(&self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl FlashDevice for MemoryFlash {
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let range = offset as usize..offset as usize + length;
        bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let range = offset as usize..offset as usize + data.len();
        let target = bytes.get_mut(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        target.copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// How often a [`FaultyFlash`] does what it should not, in percent of its writes (of all operations, for errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashFaults {
    /// Only some sectors are written.
    pub tear_percent: u64,
    /// Nothing is written.
    pub lose_percent: u64,
    /// It is written elsewhere.
    pub misdirect_percent: u64,
    /// An error is given; a write may be done in part.
    pub fail_percent: u64,
}

#[derive(Debug)]
struct Faulty {
    bytes: Vec<u8>,
    stable: Vec<u8>,
    /// Sectors written since the last sync.
    unstable: BTreeSet<usize>,
    faults: FlashFaults,
    /// How many operations are done before everything fails.
    left: Option<u64>,
    state: u64,
}

/// A device in memory that tears, loses and misdirects writes without saying so, gives errors, rots, and loses what was not synced when
/// power fails. For tests and simulations; the same seed and the same calls give the same faults.
#[derive(Debug)]
pub struct FaultyFlash {
    inner: Mutex<Faulty>,
}

impl FaultyFlash {
    /// An empty device of `size_bytes`, without faults.
    pub fn new(size_bytes: usize, seed: u64) -> FaultyFlash {
        FaultyFlash {
            inner: Mutex::new(Faulty {
                bytes: vec![0; size_bytes],
                stable: vec![0; size_bytes],
                unstable: BTreeSet::new(),
                faults: FlashFaults::default(),
                left: None,
                state: mix64(seed),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Faulty> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which faults happen from now on.
    pub fn set_faults(&self, faults: FlashFaults) {
        self.lock().faults = faults;
    }

    /// Everything fails after so many operations more; `None`: nothing does for that reason.
    pub fn stop_after(&self, operations: Option<u64>) {
        self.lock().left = operations;
    }

    /// Power fails and comes back: each sector that was written since the last sync holds what it held at it, or what was written.
    pub fn crash(&self) {
        let mut inner = self.lock();
        inner.left = None;
        for sector in std::mem::take(&mut inner.unstable) {
            let span = sector * SECTOR..(sector + 1) * SECTOR;
            let is_lost = inner.draw(2) == 0;
            let Faulty { bytes, stable, .. } = &mut *inner;
            if is_lost {
                bytes[span.clone()].copy_from_slice(&stable[span]);
            } else {
                stable[span.clone()].copy_from_slice(&bytes[span]);
            }
        }
    }

    /// A bit flips, anywhere.
    pub fn flip_bit(&self) {
        let mut inner = self.lock();
        let bits = inner.bytes.len() as u64 * 8;
        let bit = inner.draw(bits);
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        inner.bytes[byte] ^= mask;
        inner.stable[byte] ^= mask;
    }
}

impl Faulty {
    fn draw(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix64(self.state) % below
    }

    /// Counts an operation; an error if the device has stopped, or has one for this.
    fn operate(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return Err(io::Error::other("the device has stopped"));
            }
            *left -= 1;
        }
        let luck = self.draw(100);
        if luck < self.faults.fail_percent {
            Err(io::Error::other("the device gives an error"))
        } else {
            Ok(())
        }
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        self.unstable.extend(offset / SECTOR..(offset + data.len()).div_ceil(SECTOR));
    }

    fn put_in_part(&mut self, offset: usize, data: &[u8]) {
        // Sectors of 512 bytes are what devices write whole.
        for (at, piece) in (0..).step_by(512).zip(data.chunks(512)) {
            if self.draw(2) == 0 {
                self.put(offset + at, piece);
            }
        }
    }
}

impl FlashDevice for FaultyFlash {
    fn size_bytes(&self) -> u64 {
        self.lock().bytes.len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut inner = self.lock();
        inner.operate()?;
        let range = offset as usize..offset as usize + length;
        inner.bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.lock();
        let offset = offset as usize;
        if offset + data.len() > inner.bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = inner.operate() {
            inner.put_in_part(offset, data);
            return Err(error);
        }
        let (luck, faults) = (inner.draw(100), inner.faults);
        if luck < faults.tear_percent {
            inner.put_in_part(offset, data);
        } else if luck < faults.tear_percent + faults.lose_percent {
            // Nothing is written, and nobody is told.
        } else if luck < faults.tear_percent + faults.lose_percent + faults.misdirect_percent {
            let places = ((inner.bytes.len() - data.len()) / SECTOR + 1) as u64;
            let elsewhere = inner.draw(places) as usize * SECTOR;
            inner.put(elsewhere, data);
        } else {
            inner.put(offset, data);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.operate()?;
        let Faulty { bytes, stable, unstable, .. } = &mut *inner;
        for sector in std::mem::take(unstable) {
            let span = sector * SECTOR..(sector + 1) * SECTOR;
            stable[span.clone()].copy_from_slice(&bytes[span]);
        }
        Ok(())
    }
}
