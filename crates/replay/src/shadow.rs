//! Which versions of each sector a read may return.

use crate::content::{Content, SECTOR_BYTES};
use forebay_units::ByteRange;
use std::collections::HashMap;

/// Sectors whose versions are kept together: those of 1 MiB.
const PAGE_SECTORS: u64 = 2048;

/// The versions of one page's sectors.
struct Page {
    submitted: [u32; PAGE_SECTORS as usize],
    acknowledged: [u32; PAGE_SECTORS as usize],
}

/// The versions of every sector of one volume, as its only writer knows them.
///
/// A sector's version rises with every write submitted to it. A read may return any version from the last one
/// acknowledged before the read was submitted to the last one submitted before it completed; where these are several, it may also return a part of one and
/// a part of another: neither NBD nor a file promises that a read sees a write that is under way as a whole or not at all. Writes to one sector never
/// overlap in time (the player holds the later one back), because NBD leaves their order open.
///
/// Costs 16 KiB for each MiB that was ever written to; what was not is version 0.
pub struct Shadow {
    content: Content,
    size_bytes: u64,
    /// Whether version 0 is on the volume; else nothing is known of a sector until a write to it was acknowledged.
    initial_is_known: bool,
    pages: HashMap<u64, Box<Page>>,
    /// Writes in flight; as many as the player allows, so a list is enough.
    in_flight: Vec<ByteRange>,
}

/// What a read that is right came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Bytes that could be checked: all, unless the initial content is unknown.
    pub bytes: u64,
    /// Sectors of it that are parts of several versions, because writes to them were under way.
    pub torn: u64,
}

impl Shadow {
    /// The shadow of a volume of `size_bytes` (whole sectors) that holds version 0 of `content` everywhere.
    pub fn new(content: Content, size_bytes: u64) -> Shadow {
        let size_bytes = size_bytes - size_bytes % SECTOR_BYTES as u64;
        Shadow { content, size_bytes, initial_is_known: true, pages: HashMap::new(), in_flight: Vec::new() }
    }

    /// The shadow of a volume of which nothing is known yet: a sector is checked from the first acknowledged write to it on.
    pub fn over_unknown(content: Content, size_bytes: u64) -> Shadow {
        Shadow { initial_is_known: false, ..Shadow::new(content, size_bytes) }
    }

    /// The volume's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The content that this shadow checks.
    pub fn content(&self) -> Content {
        self.content
    }

    fn sectors(&self, range: ByteRange) -> std::ops::Range<u64> {
        let sector = SECTOR_BYTES as u64;
        assert!(
            range.offset.is_multiple_of(sector) && range.length.is_multiple_of(sector),
            "{range:?} is not made of whole sectors"
        );
        assert!(
            range.end() <= self.size_bytes,
            "{range:?} ends beyond the volume's {} bytes",
            self.size_bytes
        );
        range.offset / sector..range.end() / sector
    }

    /// (submitted, acknowledged) of one sector.
    fn versions(&self, sector: u64) -> (u32, u32) {
        let at = (sector % PAGE_SECTORS) as usize;
        let page = self.pages.get(&(sector / PAGE_SECTORS));
        page.map_or((0, 0), |page| (page.submitted[at], page.acknowledged[at]))
    }

    fn page_mut(&mut self, sector: u64) -> (&mut Page, usize) {
        let new = || Box::new(Page { submitted: [0; _], acknowledged: [0; _] });
        let page = self.pages.entry(sector / PAGE_SECTORS).or_insert_with(new);
        (page, (sector % PAGE_SECTORS) as usize)
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
        let sectors = self.sectors(range);
        self.in_flight.push(range);
        let mut data = vec![0; range.length as usize];
        let content = self.content;
        for (sector, bytes) in sectors.zip(data.chunks_exact_mut(SECTOR_BYTES)) {
            let (page, at) = self.page_mut(sector);
            page.submitted[at] += 1;
            content.fill_sector(sector, page.submitted[at], bytes);
        }
        data
    }

    /// The write to `range` was acknowledged.
    pub fn acknowledge_write(&mut self, range: ByteRange) {
        self.fail_write(range);
        for sector in self.sectors(range) {
            let (page, at) = self.page_mut(sector);
            page.acknowledged[at] = page.submitted[at];
        }
    }

    /// The write to `range` was answered with an error: its sectors may hold either version until the next write.
    pub fn fail_write(&mut self, range: ByteRange) {
        self.in_flight.retain(|written| *written != range);
    }

    /// The lowest versions that a read of `range` submitted now may return, one a sector.
    pub fn submit_read(&self, range: ByteRange) -> Vec<u32> {
        self.sectors(range).map(|sector| self.versions(sector).1).collect()
    }

    /// Checks what a read of `range` returned; `lowest` is what [`Shadow::submit_read`] said.
    ///
    /// # Errors
    /// The first sector that is wrong, in words.
    pub fn check_read(&self, range: ByteRange, lowest: &[u32], data: &[u8]) -> Result<Checked, String> {
        if data.len() as u64 != range.length {
            return Err(format!(
                "read of {} bytes at {} returned {}",
                range.length,
                range.offset,
                data.len()
            ));
        }
        let mut checked = Checked::default();
        for ((sector, bytes), low) in self.sectors(range).zip(data.chunks_exact(SECTOR_BYTES)).zip(lowest) {
            if *low == 0 && !self.initial_is_known {
                continue;
            }
            checked.bytes += SECTOR_BYTES as u64;
            let (high, _) = self.versions(sector);
            let version = match self.content.version_of(sector, bytes) {
                Ok(version) => version,
                Err(_) if *low < high && self.content.is_mixture(sector, *low..=high, bytes) => {
                    checked.torn += 1;
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
            if version < *low {
                return Err(format!("sector {sector} is stale: version {version}, acknowledged was {low}"));
            }
            if version > high {
                return Err(format!(
                    "sector {sector} holds version {version}, which was never written: last was {high}"
                ));
            }
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: u64) -> Result<Checked, String> {
        Ok(Checked { bytes, torn: 0 })
    }

    #[test]
    fn a_sector_may_be_torn_by_a_write_that_is_under_way_only() {
        let mut shadow = Shadow::new(Content::new(3), 8 * 512);
        let range = ByteRange::new(512, 1024);
        let first = shadow.submit_write(range);
        shadow.acknowledge_write(range);
        let during = shadow.submit_read(range);
        let second = shadow.submit_write(range);
        let torn = [&second[..256], &first[256..]].concat();
        assert_eq!(shadow.check_read(range, &during, &torn), Ok(Checked { bytes: 1024, torn: 1 }));
        shadow.acknowledge_write(range);
        assert_eq!(shadow.check_read(range, &during, &torn), Ok(Checked { bytes: 1024, torn: 1 }));
        let after = shadow.submit_read(range);
        assert!(shadow.check_read(range, &after, &torn).unwrap_err().contains("claims version 2"));
        let mut corrupt = torn;
        corrupt[300] ^= 1;
        assert!(shadow.check_read(range, &during, &corrupt).is_err());
    }

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
        assert_eq!(shadow.check_read(range, &old, &initial), whole(1024));
        assert_eq!(shadow.check_read(range, &old, &first), whole(1024));
        shadow.acknowledge_write(range);
        // A read submitted before the acknowledgement may still return the old version, a later one may not.
        let new = shadow.submit_read(range);
        assert_eq!(shadow.check_read(range, &old, &initial), whole(1024));
        assert!(shadow.check_read(range, &new, &initial).unwrap_err().contains("stale"));
        let mut future = first.clone();
        content.fill_sector(2, 2, &mut future[512..]);
        assert!(shadow.check_read(range, &new, &future).unwrap_err().contains("never written"));
        // A failed write leaves both versions possible and does not stand in the way of the next.
        let second = shadow.submit_write(range);
        shadow.fail_write(range);
        assert!(!shadow.is_written(range));
        let after = shadow.submit_read(range);
        assert_eq!(shadow.check_read(range, &after, &first), whole(1024));
        assert_eq!(shadow.check_read(range, &after, &second), whole(1024));
        content.fill_sector(2, 3, &mut future[512..]);
        assert!(shadow.check_read(range, &new, &future).is_err());
        future[600] ^= 1;
        assert!(shadow.check_read(range, &new, &future).is_err());
        assert!(shadow.check_read(range, &new, &first[512..]).is_err());
    }

    #[test]
    fn what_was_there_before_is_checked_from_the_first_acknowledged_write_on() {
        let mut shadow = Shadow::over_unknown(Content::new(3), 8 * 512);
        let both = ByteRange::new(0, 1024);
        let early = shadow.submit_read(both);
        assert_eq!(shadow.check_read(both, &early, &[7; 1024]), whole(0));
        let data = shadow.submit_write(ByteRange::new(0, 512));
        assert_eq!(shadow.check_read(both, &shadow.submit_read(both), &[7; 1024]), whole(0));
        shadow.acknowledge_write(ByteRange::new(0, 512));
        // The read from before may still see the old bytes; a new one must see the write, and may see anything beside it.
        assert_eq!(shadow.check_read(both, &early, &[7; 1024]), whole(0));
        let late = shadow.submit_read(both);
        assert!(shadow.check_read(both, &late, &[7; 1024]).is_err());
        assert_eq!(shadow.check_read(both, &late, &[data, vec![7; 512]].concat()), whole(512));
    }
}
