//! The objects that PRESTO's cache holds: for each MiB of a volume one of HM1 (1,400 bytes) and one of HM3 (27,648 bytes).
//!
//! Source: PRESTO ("Base model"), and its published simulator for the sizes. (The slides speak of 4 MiB per HM3 object; the simulator
//! and the slides' 36 MB of data per MB of objects both mean 1 MiB.)

use forebay_units::mix64;

/// Bytes of the volume that a pair of objects describes.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// Bytes of an HM1 object.
pub const HM1_BYTES: u64 = 1_400;
/// Bytes of an HM3 object.
pub const HM3_BYTES: u64 = 27_648;

/// An object: the HM1 objects of all extents, then their HM3 objects, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub u32);

impl Object {
    /// As a place in a table of all objects.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// All objects of some volumes that lie behind one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// The first extent of each volume, and the number of all extents.
    bounds: Vec<u32>,
}

impl Objects {
    /// Of volumes of so many bytes each.
    ///
    /// # Panics
    /// If there are 2^31 extents or more.
    pub fn of(volume_bytes: &[u64]) -> Objects {
        let mut bounds = vec![0u32];
        for bytes in volume_bytes {
            let end = u64::from(bounds[bounds.len() - 1]) + bytes.div_ceil(EXTENT_BYTES);
            assert!(end < 1 << 31, "at most 2^31 extents, found {end}");
            bounds.push(end as u32);
        }
        Objects { bounds }
    }

    /// How many extents there are.
    pub fn extents(&self) -> u32 {
        self.bounds[self.bounds.len() - 1]
    }

    /// The extents of each volume: the first, and the one behind the last.
    pub fn volumes(&self) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        self.bounds.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The extents of volume number `volume`.
    pub fn volume(&self, volume: usize) -> std::ops::Range<u32> {
        self.bounds[volume]..self.bounds[volume + 1]
    }

    /// The extent that holds byte `offset` of volume number `volume`.
    pub fn extent(&self, volume: usize, offset: u64) -> u32 {
        self.bounds[volume] + (offset / EXTENT_BYTES) as u32
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        2 * self.extents() as usize
    }

    /// The HM1 object of an extent.
    pub fn hm1(&self, extent: u32) -> Object {
        Object(extent)
    }

    /// The HM3 object of an extent.
    pub fn hm3(&self, extent: u32) -> Object {
        Object(self.extents() + extent)
    }

    /// Which extent an object describes.
    pub fn extent_of(&self, object: Object) -> u32 {
        if object.0 < self.extents() { object.0 } else { object.0 - self.extents() }
    }

    /// The place of an object in the published simulator's lists, by which it breaks ties: HM1 objects by volume and extent, then HM3
    /// objects by a hash of both, and so in no order of either. (Two HM3 objects may share a number: of 614,400, one in 3,500 does.)
    pub fn published_number(&self, object: Object) -> u32 {
        if object.0 < self.extents() {
            object.0
        } else {
            // The half above the HM1 objects. Ours is another hash than the original's, which takes digits of a SHA-1.
            1 << 31 | (mix64(object.0.into()) >> 33) as u32
        }
    }

    /// The bytes of an object.
    pub fn bytes(&self, object: Object) -> u64 {
        if object.0 < self.extents() { HM1_BYTES } else { HM3_BYTES }
    }
}
