//! Which versions of each sector a read may return.

use crate::content::{Content, SECTOR_BYTES};
use forebay_units::ByteRange;

/// The versions of every sector of one volume, as its only writer knows them.
///
/// A sector's version rises with every write submitted to it. A read may return any version from the last one
/// acknowledged before the read was submitted to the last one submitted before it completed. Writes to one sector never
/// overlap in time (the player holds the later one back), because NBD leaves their order open.
pub struct Shadow {
    content: Content,
    submitted: Vec<u32>,
    acknowledged: Vec<u32>,
    /// Writes in flight; as many as the player allows, so a list is enough.
    in_flight: Vec<ByteRange>,
}

impl Shadow {
    /// The shadow of a volume of `size_bytes` (whole sectors) that holds version 0 everywhere. 8 bytes a sector.
    pub fn new(content: Content, size_bytes: u64) -> Shadow {
        let sectors = (size_bytes / SECTOR_BYTES as u64) as usize;
        Shadow { content, submitted: vec![0; sectors], acknowledged: vec![0; sectors], in_flight: Vec::new() }
    }

    /// The volume's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        (self.submitted.len() * SECTOR_BYTES) as u64
    }

    /// The content that this shadow checks.
    pub fn content(&self) -> Content {
        self.content
    }

    fn sectors(range: ByteRange) -> std::ops::Range<usize> {
        let sector = SECTOR_BYTES as u64;
        assert!(
            range.offset.is_multiple_of(sector) && range.length.is_multiple_of(sector),
            "{range:?} is not made of whole sectors"
        );
        (range.offset / sector) as usize..(range.end() / sector) as usize
    }

    /// Whether a write to any sector of `range` is in flight.
    pub fn is_written(&self, range: ByteRange) -> bool {
        self.in_flight.iter().any(|written| written.overlaps(range))
    }

    /// The bytes of the next version of `range`, which counts as submitted from now on.
    ///
    /// # Panics
    /// If a write to one of the sectors is in flight, or `range` is not made of whole sectors of the volume.
    pub fn submit_write(&mut self, range: ByteRange) -> Vec<u8> {
        assert!(!self.is_written(range), "{range:?} has a write in flight");
        self.in_flight.push(range);
        let mut data = vec![0; range.length as usize];
        for (sector, bytes) in Shadow::sectors(range).zip(data.chunks_exact_mut(SECTOR_BYTES)) {
            self.submitted[sector] += 1;
            self.content.fill_sector(sector as u64, self.submitted[sector], bytes);
        }
        data
    }

    /// The write to `range` was acknowledged.
    pub fn acknowledge_write(&mut self, range: ByteRange) {
        self.fail_write(range);
        for sector in Shadow::sectors(range) {
            self.acknowledged[sector] = self.submitted[sector];
        }
    }

    /// The write to `range` was answered with an error: its sectors may hold either version until the next write.
    pub fn fail_write(&mut self, range: ByteRange) {
        self.in_flight.retain(|written| *written != range);
    }

    /// The lowest versions that a read of `range` submitted now may return, one a sector.
    pub fn submit_read(&self, range: ByteRange) -> Vec<u32> {
        self.acknowledged[Shadow::sectors(range)].to_vec()
    }

    /// Checks what a read of `range` returned; `lowest` is what [`Shadow::submit_read`] said.
    ///
    /// # Errors
    /// The first sector that is wrong, in words.
    pub fn check_read(&self, range: ByteRange, lowest: &[u32], data: &[u8]) -> Result<(), String> {
        if data.len() as u64 != range.length {
            return Err(format!(
                "read of {} bytes at {} returned {}",
                range.length,
                range.offset,
                data.len()
            ));
        }
        for ((sector, bytes), low) in Shadow::sectors(range).zip(data.chunks_exact(SECTOR_BYTES)).zip(lowest)
        {
            let version = self.content.version_of(sector as u64, bytes).map_err(|error| error.to_string())?;
            let high = self.submitted[sector];
            if version < *low {
                return Err(format!("sector {sector} is stale: version {version}, acknowledged was {low}"));
            }
            if version > high {
                return Err(format!(
                    "sector {sector} holds version {version}, which was never written: last was {high}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_future_and_foreign_sectors_are_found() {
        let content = Content::new(3);
        let mut shadow = Shadow::new(content, 8 * 512);
        let range = ByteRange::new(512, 1024);
        let old = shadow.submit_read(range);
        let mut initial = vec![0; 1024];
        content.fill_sector(1, 0, &mut initial[..512]);
        content.fill_sector(2, 0, &mut initial[512..]);
        let first = shadow.submit_write(range);
        // The write is in flight: both versions are allowed.
        assert!(shadow.is_written(range) && !shadow.is_written(ByteRange::new(0, 512)));
        assert_eq!(shadow.check_read(range, &old, &initial), Ok(()));
        assert_eq!(shadow.check_read(range, &old, &first), Ok(()));
        shadow.acknowledge_write(range);
        // A read submitted before the acknowledgement may still return the old version, a later one may not.
        let new = shadow.submit_read(range);
        assert_eq!(shadow.check_read(range, &old, &initial), Ok(()));
        assert!(shadow.check_read(range, &new, &initial).unwrap_err().contains("stale"));
        let mut future = first.clone();
        content.fill_sector(2, 2, &mut future[512..]);
        assert!(shadow.check_read(range, &new, &future).unwrap_err().contains("never written"));
        // A failed write leaves both versions possible and does not stand in the way of the next.
        let second = shadow.submit_write(range);
        shadow.fail_write(range);
        assert!(!shadow.is_written(range));
        let after = shadow.submit_read(range);
        assert_eq!(shadow.check_read(range, &after, &first), Ok(()));
        assert_eq!(shadow.check_read(range, &after, &second), Ok(()));
        content.fill_sector(2, 3, &mut future[512..]);
        assert!(shadow.check_read(range, &new, &future).is_err());
        future[600] ^= 1;
        assert!(shadow.check_read(range, &new, &future).is_err());
        assert!(shadow.check_read(range, &new, &first[512..]).is_err());
    }
}
