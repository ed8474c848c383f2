//! What was written to a volume, sector by sector: which versions it may hold now, and which it must not hold any more.
//!
//! Every sector that is written carries its number, the version of the write and a filling that follows from both, so that content
//! explains itself. Versions count up over all writes; one connection sends those of a sector in ascending order, and Forebay
//! applies overlapping changes in the order in which they came. So a sector holds a version that is not older than the newest that
//! was acknowledged or read, and that was sent.

use forebay_units::mix64;
use std::collections::VecDeque;

/// The unit of all requests here. It is smaller than a block of the cache, so that blocks are patched and not only replaced.
pub(crate) const SECTOR: usize = 512;

/// What a kill must not cut: the kernel copies whole pages, and a write that was begun is the origin's before the next begins.
const PAGE_SECTORS: usize = 8;

/// The content that `version` of `sector` has.
pub(crate) fn content(sector: u64, version: u64, bytes: &mut [u8]) {
    let own = mix64(sector ^ mix64(version));
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => version,
            1 => sector,
            index => mix64(own ^ index as u64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// What a sector shows: a version, or zeroes.
fn shown(sector: u64, bytes: &[u8]) -> Result<Option<u64>, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let version = u64::from_le_bytes(bytes[..8].try_into().expect("a sector has eight bytes"));
    let mut expected = [0; SECTOR];
    content(sector, version, &mut expected);
    if expected == bytes {
        return Ok(Some(version));
    }
    Err(format!("sector {sector} holds bytes that were never written there (as version {version})"))
}

/// Versions that a sector may hold, the oldest first; the first is the least that it must hold.
struct Sector {
    /// The version, and whether it is zeroes.
    versions: VecDeque<(u64, bool)>,
}

impl Sector {
    fn floor(&self) -> u64 {
        self.versions[0].0
    }

    /// It holds `version` or a later one from now on.
    fn raise(&mut self, version: u64) {
        while self.versions.len() > 1 && self.versions[1].0 <= version {
            self.versions.pop_front();
        }
    }
}

/// All sectors of a volume, and every write that was sent.
pub(crate) struct Ledger {
    sectors: Vec<Sector>,
    /// By version.
    writes: Vec<Write>,
}

/// A write that was sent.
struct Write {
    first: usize,
    count: usize,
    zeroes: bool,
}

impl Write {
    fn covers(&self, sector: usize) -> bool {
        (self.first..self.first + self.count).contains(&sector)
    }
}

impl Ledger {
    /// A volume of `sectors` sectors, all of them zeroes.
    pub(crate) fn new(sectors: usize) -> Ledger {
        let zeroes = || Sector { versions: VecDeque::from([(0, true)]) };
        Ledger {
            sectors: (0..sectors).map(|_| zeroes()).collect(),
            writes: vec![Write { first: 0, count: sectors, zeroes: true }],
        }
    }

    /// A write of `count` sectors from `first` on is about to be sent; its version.
    pub(crate) fn send(&mut self, first: usize, count: usize, zeroes: bool) -> u64 {
        let version = self.writes.len() as u64;
        self.writes.push(Write { first, count, zeroes });
        for sector in &mut self.sectors[first..first + count] {
            sector.versions.push_back((version, zeroes));
        }
        version
    }

    /// The write was acknowledged.
    pub(crate) fn acknowledge(&mut self, version: u64) {
        let Write { first, count, .. } = self.writes[version as usize];
        for sector in &mut self.sectors[first..first + count] {
            sector.raise(version);
        }
    }

    /// The oldest version that each of these sectors may hold: to be asked before a read is sent.
    pub(crate) fn floors(&self, first: usize, count: usize) -> Vec<u64> {
        self.sectors[first..first + count].iter().map(Sector::floor).collect()
    }

    /// Checks what a read brought beside writes; `floors` is what held when it was sent. What was seen once must not be taken back.
    /// A sector that was being written may be a mixture of what it held meanwhile: the kernel copies the pages of a file without a
    /// lock against who reads them. Nobody may be shown that later, when only one version is allowed.
    pub(crate) fn check(&mut self, first: usize, bytes: &[u8], floors: &[u64]) -> Result<(), String> {
        for ((at, bytes), floor) in (first..).zip(bytes.chunks_exact(SECTOR)).zip(floors) {
            if shown(at as u64, bytes).is_ok() || !self.is_mixture(at, bytes, *floor) {
                self.check_sector(at, bytes, *floor)?;
            }
        }
        Ok(())
    }

    /// Whether every word of a sector is that of some version that it held from `floor` on.
    fn is_mixture(&self, at: usize, bytes: &[u8], floor: u64) -> bool {
        let since = self.writes.iter().enumerate().skip(floor as usize).filter(|(_, write)| write.covers(at));
        let contents: Vec<[u8; SECTOR]> = since
            .map(|(version, write)| {
                let mut bytes = [0; SECTOR];
                if !write.zeroes {
                    content(at as u64, version as u64, &mut bytes);
                }
                bytes
            })
            .collect();
        (0..SECTOR).step_by(8).all(|word| {
            let word = word..word + 8;
            contents.iter().any(|content| content[word.clone()] == bytes[word.clone()])
        })
    }

    fn check_sector(&mut self, at: usize, bytes: &[u8], floor: u64) -> Result<(), String> {
        let sector = &mut self.sectors[at];
        let shown = shown(at as u64, bytes)?;
        let sent = || sector.versions.iter().map(|(version, _)| *version);
        let version = match shown {
            Some(version) if version < floor => {
                let what = format!("sector {at} holds version {version}, which {floor} had replaced");
                return Err(format!("{what} (sent: {:?})", sent().collect::<Vec<_>>()));
            }
            Some(version) if version > sector.floor() && !sent().any(|sent| sent == version) => {
                return Err(format!("sector {at} holds version {version}, which was never sent there"));
            }
            Some(version) => version,
            // Versions were replaced while the read was on its way: these zeroes may be one of them, and say nothing of later ones.
            None if sector.floor() > floor => return Ok(()),
            // Which of several zeroings it was cannot be seen: at least the first.
            None => match sector.versions.iter().find(|(_, zeroes)| *zeroes) {
                Some((version, _)) => *version,
                None => {
                    let what = format!(
                        "sector {at} is lost: it holds zeroes, and should hold version {floor} or a later one"
                    );
                    return Err(what);
                }
            },
        };
        sector.raise(version);
        Ok(())
    }

    /// Checks the whole volume while nothing is in flight: besides what [`Ledger::check`] says, that no page shows a part of a
    /// write. What it holds now is what it must hold from here on: whoever could have changed it later is dead.
    pub(crate) fn settle(&mut self, volume: &[u8]) -> Result<(), String> {
        let floors = self.floors(0, self.sectors.len());
        for ((at, bytes), floor) in volume.chunks_exact(SECTOR).enumerate().zip(floors) {
            self.check_sector(at, bytes, floor)?;
        }
        for page in 0..self.sectors.len() / PAGE_SECTORS {
            self.check_page(page * PAGE_SECTORS, volume)?;
        }
        for (at, bytes) in volume.chunks_exact(SECTOR).enumerate() {
            let versions = &mut self.sectors[at].versions;
            let held = match shown(at as u64, bytes)? {
                Some(version) => (version, false),
                None => *versions.iter().rfind(|(_, zeroes)| *zeroes).expect("checked above"),
            };
            *versions = VecDeque::from([held]);
        }
        Ok(())
    }

    /// A write that one sector of a page shows must show in all others that it covers, unless a later one covers them.
    fn check_page(&self, first: usize, volume: &[u8]) -> Result<(), String> {
        let mut held = [None; PAGE_SECTORS];
        for (index, held) in held.iter_mut().enumerate() {
            let at = first + index;
            *held = shown(at as u64, &volume[at * SECTOR..(at + 1) * SECTOR])?;
        }
        for version in held.into_iter().flatten() {
            let write = &self.writes[version as usize];
            for (index, other) in held.into_iter().enumerate() {
                let at = first + index;
                let newest_zeroes = || {
                    self.sectors[at]
                        .versions
                        .iter()
                        .rfind(|(_, zeroes)| *zeroes)
                        .map_or(0, |(version, _)| *version)
                };
                if write.covers(at) && other.unwrap_or_else(newest_zeroes) < version {
                    return Err(format!(
                        "the page at sector {first} is torn: {held:?} holds only a part of version {version}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn the_ledger_sees_what_is_lost_invented_torn_or_taken_back() {
    let mut ledger = Ledger::new(8);
    let mut volume = vec![0; 8 * SECTOR];
    let put = |volume: &mut Vec<u8>, at: usize, version| {
        content(at as u64, version, &mut volume[at * SECTOR..(at + 1) * SECTOR]);
    };
    let (old, new) = (ledger.send(0, 2, false), ledger.send(0, 2, false));
    let floors = ledger.floors(0, 8);
    assert_eq!((old, new, floors[0]), (1, 2, 0));
    // Nothing acknowledged: nothing, the one and the other are right; half of one is not.
    for held in [[0, 0], [1, 1], [2, 2]] {
        let mut volume = volume.clone();
        (0..2).filter(|at| held[*at] > 0).for_each(|at| put(&mut volume, at, held[at]));
        let mut ledger = Ledger::new(8);
        ledger.send(0, 2, false);
        ledger.send(0, 2, false);
        ledger.settle(&volume).unwrap();
        assert_eq!(ledger.floors(0, 1), [held[0]]);
    }
    put(&mut volume, 0, new);
    assert!(ledger.settle(&volume).unwrap_err().contains("torn"));
    put(&mut volume, 1, old);
    assert!(ledger.settle(&volume).unwrap_err().contains("torn"));
    // It was seen, so that the older one is lost from here on.
    put(&mut volume, 0, old);
    assert!(ledger.settle(&volume).unwrap_err().contains("replaced"));
    // A read that was sent before may still bring it.
    ledger.check(0, &volume[..SECTOR], &floors[..1]).unwrap();
    // An acknowledged write that is not there.
    let third = ledger.send(3, 1, false);
    ledger.acknowledge(third);
    let floors = ledger.floors(3, 1);
    assert!(ledger.check(3, &[0; SECTOR], &floors).unwrap_err().contains("lost"));
    put(&mut volume, 3, 77);
    assert!(ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap_err().contains("never sent"));
    put(&mut volume, 4, third);
    assert!(ledger.check(4, &volume[4 * SECTOR..5 * SECTOR], &[0]).unwrap_err().contains("never sent"));
    let fourth = ledger.send(3, 1, true);
    ledger.acknowledge(fourth);
    let floors = ledger.floors(3, 1);
    ledger.check(3, &[0; SECTOR], &floors).unwrap();
    volume[3 * SECTOR + 100] ^= 1;
    assert!(ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap_err().contains("never written"));
    volume[3 * SECTOR + 100] ^= 1;
    // Beside a write a sector may show a part of it; after that no more.
    let fifth = ledger.send(3, 1, false);
    put(&mut volume, 3, fifth);
    volume[3 * SECTOR + 64..4 * SECTOR].fill(0);
    ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap();
    ledger.acknowledge(fifth);
    ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap();
    let floors = ledger.floors(3, 1);
    assert!(ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap_err().contains("never written"));
}
