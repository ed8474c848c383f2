//! What was written to a volume, sector by sector: which versions it may hold now, and which it must not hold any more.
//!
//! Every sector that is written carries its number, the version of the write and a filling that follows from both, so that content
//! explains itself. Versions count up over all writes; one connection sends those of a sector in ascending order, and Forebay
//! applies overlapping changes in the order in which they came. So a sector holds a version that is not older than the newest that
//! was acknowledged or read, and that was sent.
//!
//! Where several connections write to one sector ([`Ledger::with_races`]), those that are under way together may be applied in any order: what is acknowledged is then no older than
//! the oldest of them. Whoever reads while nobody writes sees the same as the last who did.
//!
//! Behind a disk that loses power there is a second bound, [`Ledger::behind_flushes`]: what no flush covers may be gone, back to the
//! version that was on stable storage. From a loss on until it is written again a sector may show either, in turn: a cache may have
//! outlived the loss.

use forebay_units::mix64;
use std::collections::{BTreeSet, VecDeque};

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

/// Versions that a sector may hold.
struct Sector {
    /// The version, and whether it is zeroes, the oldest first: the first is the least that a loss of power leaves.
    versions: VecDeque<(u64, bool)>,
    /// The least that it must show now.
    floor: u64,
    /// The last that was acknowledged, unless somebody was told since then that it may be lost.
    promised: u64,
    /// What was lost is not written again yet, and may be shown by a cache.
    is_shaken: bool,
    /// What it showed while nobody wrote (zeroes: `None`), with the last version that had been sent.
    settled: Option<(u64, Option<u64>)>,
}

impl Sector {
    fn holding(version: u64, zeroes: bool) -> Sector {
        let versions = VecDeque::from([(version, zeroes)]);
        Sector { versions, floor: version, promised: 0, is_shaken: false, settled: None }
    }

    /// The least that a loss of power leaves.
    fn stable(&self) -> u64 {
        self.versions[0].0
    }

    /// It shows `version` or a later one from now on.
    fn raise(&mut self, version: u64) {
        self.floor = self.floor.max(version);
    }

    /// It keeps `version` or a later one from now on.
    fn keep(&mut self, version: u64) {
        while self.versions.len() > 1 && self.versions[1].0 <= version {
            self.versions.pop_front();
        }
        self.raise(self.stable());
    }
}

/// The oldest version that each of some sectors could show when a request was sent.
pub(crate) struct Floors {
    versions: Vec<u64>,
    /// How many losses there had been.
    losses: usize,
    /// How many writes had been sent to any sector.
    writes: u64,
    /// No write to any of these was under way.
    is_quiet: bool,
}

impl Floors {
    /// Those of `count` of these sectors, from the `index`th on.
    pub(crate) fn of(&self, index: usize, count: usize) -> Floors {
        Floors { versions: self.versions[index..index + count].to_vec(), ..*self }
    }
}

/// All sectors of a volume, and every write that was sent.
pub(crate) struct Ledger {
    sectors: Vec<Sector>,
    /// By version.
    writes: Vec<Write>,
    /// What is acknowledged is kept, as it is where only a process dies.
    keeps_at_once: bool,
    /// Writes that are under way together are of several connections.
    lets_race: bool,
    /// Versions that were sent and are not answered.
    in_flight: BTreeSet<u64>,
    /// Those of them that were when power was lost.
    raced: BTreeSet<u64>,
    /// What each loss of power left at least of all sectors.
    losses: Vec<Vec<u64>>,
}

/// A write that was sent.
struct Write {
    first: usize,
    count: usize,
    zeroes: bool,
    /// As several requests, whose borders need not be those of sectors.
    is_in_pieces: bool,
    is_acknowledged: bool,
    /// Writes that were under way when it was sent, to some of these sectors.
    rivals: Vec<u64>,
}

impl Write {
    fn new(first: usize, count: usize, zeroes: bool) -> Write {
        Write { first, count, zeroes, is_in_pieces: false, is_acknowledged: false, rivals: Vec::new() }
    }

    fn overlaps(&self, first: usize, count: usize) -> bool {
        self.first < first + count && first < self.first + self.count
    }

    fn covers(&self, sector: usize) -> bool {
        (self.first..self.first + self.count).contains(&sector)
    }
}

impl Ledger {
    /// A volume of `sectors` sectors, all of them zeroes, that keeps what it has acknowledged.
    pub(crate) fn new(sectors: usize) -> Ledger {
        Ledger {
            sectors: (0..sectors).map(|_| Sector::holding(0, true)).collect(),
            writes: vec![Write { is_acknowledged: true, ..Write::new(0, sectors, true) }],
            keeps_at_once: true,
            lets_race: false,
            in_flight: BTreeSet::new(),
            raced: BTreeSet::new(),
            losses: Vec::new(),
        }
    }

    /// The same, that keeps what was flushed or written with FUA.
    pub(crate) fn behind_flushes(sectors: usize) -> Ledger {
        Ledger { keeps_at_once: false, ..Ledger::new(sectors) }
    }

    /// The same, where writes that are under way together may be applied in any order.
    pub(crate) fn with_races(self) -> Ledger {
        Ledger { lets_race: true, ..self }
    }

    /// A write of `count` sectors from `first` on is about to be sent; its version.
    pub(crate) fn send(&mut self, first: usize, count: usize, zeroes: bool) -> u64 {
        let version = self.writes.len() as u64;
        let is_rival =
            |version: &&u64| self.lets_race && self.writes[**version as usize].overlaps(first, count);
        let rivals = self.in_flight.iter().filter(is_rival).copied().collect();
        self.writes.push(Write { rivals, ..Write::new(first, count, zeroes) });
        self.in_flight.insert(version);
        for sector in &mut self.sectors[first..first + count] {
            sector.versions.push_back((version, zeroes));
        }
        version
    }

    /// The same, about to be sent as several requests: unless all of them are acknowledged, a part of a sector may stay.
    pub(crate) fn send_in_pieces(&mut self, first: usize, count: usize) -> u64 {
        let version = self.send(first, count, false);
        self.writes[version as usize].is_in_pieces = true;
        version
    }

    /// The write was acknowledged.
    pub(crate) fn acknowledge(&mut self, version: u64) {
        self.complete(version, self.keeps_at_once);
    }

    /// The write was acknowledged as one that is on stable storage.
    pub(crate) fn acknowledge_kept(&mut self, version: u64) {
        self.complete(version, true);
    }

    fn complete(&mut self, version: u64, is_kept: bool) {
        self.in_flight.remove(&version);
        let has_raced = self.raced.remove(&version);
        self.writes[version as usize].is_acknowledged = true;
        let Write { first, count, .. } = self.writes[version as usize];
        for at in first..first + count {
            let oldest = self.oldest_beside(version, at);
            let sector = &mut self.sectors[at];
            if is_kept {
                sector.keep(oldest);
            } else if !has_raced {
                sector.promised = oldest;
            }
            if is_kept || !has_raced {
                sector.raise(oldest);
                sector.is_shaken = false;
            }
        }
    }

    /// The oldest version that a sector may show once it has held `version`: of one that was under way with it the place in the order is not known.
    fn oldest_beside(&self, version: u64, at: usize) -> u64 {
        let rivals = self.writes[version as usize].rivals.iter().copied();
        rivals.filter(|rival| self.writes[*rival as usize].covers(at)).fold(version, u64::min)
    }

    /// The write failed, or its answer will not come: it was done, or will be, or not.
    pub(crate) fn give_up(&mut self, version: u64) {
        self.in_flight.remove(&version);
        self.raced.remove(&version);
    }

    /// Whether a write to any of these sectors is not answered.
    pub(crate) fn is_being_written(&self, first: usize, count: usize) -> bool {
        self.in_flight.iter().any(|version| self.writes[*version as usize].overlaps(first, count))
    }

    /// The same of a write that was sent in pieces.
    pub(crate) fn is_being_pieced(&self, first: usize, count: usize) -> bool {
        let mut writes = self.in_flight.iter().map(|version| &self.writes[*version as usize]);
        writes.any(|write| write.is_in_pieces && write.overlaps(first, count))
    }

    /// The oldest version that each of these sectors may hold: to be asked before a read, or a flush of all of them, is sent.
    pub(crate) fn floors(&self, first: usize, count: usize) -> Floors {
        let versions = self.sectors[first..first + count].iter().map(|sector| sector.floor).collect();
        Floors {
            versions,
            losses: self.losses.len(),
            writes: self.writes.len() as u64,
            is_quiet: !self.is_being_written(first, count),
        }
    }

    /// The least that the `index`th of these may be shown with by now, which is sector `at`.
    fn floor_since(&self, floors: &Floors, index: usize, at: usize) -> u64 {
        let losses = self.losses[floors.losses..].iter().map(|left| left[at]);
        losses.fold(floors.versions[index], u64::min)
    }

    /// A flush succeeded for which all sectors had these floors: they are kept.
    pub(crate) fn flush(&mut self, floors: &Floors) {
        for (sector, floor) in self.sectors.iter_mut().zip(&floors.versions) {
            sector.keep(*floor);
        }
    }

    /// Whether power was lost since these floors were asked for.
    pub(crate) fn has_lost_since(&self, floors: &Floors) -> bool {
        self.losses.len() > floors.losses
    }

    /// Power is lost, and with it what these sectors held. Whether anything of that had been promised to somebody: a flush has to say so.
    pub(crate) fn lose(&mut self, gone: &[usize]) -> bool {
        let is_owed = |at: &usize| {
            let sector = &self.sectors[*at];
            sector.promised > sector.stable() && !self.is_being_written(*at, 1)
        };
        let is_owed = gone.iter().any(is_owed);
        for sector in self.sectors.iter_mut().filter(|sector| sector.versions.len() > 1) {
            sector.floor = sector.stable();
            sector.is_shaken = true;
            sector.settled = None;
        }
        self.losses.push(self.sectors.iter().map(Sector::stable).collect());
        self.raced = self.in_flight.clone();
        is_owed
    }

    /// Everybody was told that what is not flushed may be lost.
    pub(crate) fn write_off(&mut self) {
        for sector in &mut self.sectors {
            sector.promised = 0;
        }
    }

    /// Checks what a read brought beside writes; `floors` is what held when it was sent. What was seen once must not be taken back.
    /// A sector that was being written may be a mixture of what it held meanwhile: the kernel copies the pages of a file without a
    /// lock against who reads them. Nobody may be shown that later, when only one version is allowed.
    pub(crate) fn check(&mut self, first: usize, bytes: &[u8], floors: &Floors) -> Result<(), String> {
        for (index, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            let at = first + index;
            let floor = self.floor_since(floors, index, at);
            if shown(at as u64, bytes).is_ok() || !self.is_mixture(at, bytes, floor) {
                self.check_sector(at, bytes, floor)?;
                self.check_settled(at, bytes, floors)?;
            }
        }
        Ok(())
    }

    /// That a sector which nobody has written shows what it showed before.
    fn check_settled(&mut self, at: usize, bytes: &[u8], floors: &Floors) -> Result<(), String> {
        let sector = &self.sectors[at];
        let last = sector.versions.back().map_or(0, |(version, _)| *version);
        let is_quiet = floors.is_quiet && last < floors.writes && floors.losses == self.losses.len();
        let mut versions = sector.versions.iter().map(|(version, _)| &self.writes[*version as usize]);
        if !is_quiet || sector.is_shaken || !versions.all(|write| write.is_acknowledged) {
            return Ok(());
        }
        let shown = shown(at as u64, bytes)?;
        match sector.settled {
            Some((since, before)) if since == last && before != shown => Err(format!(
                "sector {at} holds {shown:?}, and held {before:?} before, and nobody has written it since"
            )),
            _ => {
                self.sectors[at].settled = Some((last, shown));
                Ok(())
            }
        }
    }

    /// Whether every byte of a sector is that of some version that it held from `floor` on.
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
        (0..SECTOR).all(|place| contents.iter().any(|content| content[place] == bytes[place]))
    }

    /// Whether a part of a write from `floor` on may have stayed in a sector.
    fn may_be_torn(&self, at: usize, floor: u64) -> bool {
        let mut since = self.writes.iter().skip(floor as usize);
        since.any(|write| write.is_in_pieces && write.covers(at))
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
            Some(version) if version > sector.floor && !sent().any(|sent| sent == version) => {
                return Err(format!("sector {at} holds version {version}, which was never sent there"));
            }
            Some(version) => version,
            // Versions were replaced while the read was on its way: these zeroes may be one of them, and say nothing of later ones.
            None if sector.floor > floor => {
                let mut since = self.writes.iter().skip(floor as usize);
                if since.any(|write| write.zeroes && write.covers(at)) {
                    return Ok(());
                }
                return Err(format!(
                    "sector {at} is lost: it holds zeroes, and was never zeroed from version {floor} on"
                ));
            }
            // Which of several zeroings it was cannot be seen: at least the first.
            None => match sector.versions.iter().find(|(version, zeroes)| *zeroes && *version >= floor) {
                Some((version, _)) => *version,
                None => {
                    let what = format!(
                        "sector {at} is lost: it holds zeroes, and should hold version {floor} or a later one"
                    );
                    return Err(what);
                }
            },
        };
        if !sector.is_shaken {
            let oldest = self.oldest_beside(version, at);
            self.sectors[at].raise(oldest);
        }
        Ok(())
    }

    /// Checks the whole volume while nothing is under way, without a word of what it must hold from here on.
    pub(crate) fn check_all(&mut self, volume: &[u8]) -> Result<(), String> {
        let floors = self.floors(0, self.sectors.len());
        for (at, bytes) in volume.chunks_exact(SECTOR).enumerate() {
            let floor = floors.versions[at];
            let is_whole = shown(at as u64, bytes).is_ok();
            if is_whole || !self.may_be_torn(at, floor) || !self.is_mixture(at, bytes, floor) {
                self.check_sector(at, bytes, floor)?;
                self.check_settled(at, bytes, &floors)?;
            }
        }
        Ok(())
    }

    /// Checks the whole volume while nothing is in flight: besides what [`Ledger::check`] says, that no page shows a part of a
    /// write. What it holds now is what it must hold from here on: whoever could have changed it later is dead.
    pub(crate) fn settle(&mut self, volume: &[u8]) -> Result<(), String> {
        self.check_all(volume)?;
        for page in 0..self.sectors.len() / PAGE_SECTORS {
            self.check_page(page * PAGE_SECTORS, volume)?;
        }
        for (at, bytes) in volume.chunks_exact(SECTOR).enumerate() {
            let sector = &mut self.sectors[at];
            let (version, zeroes) = match shown(at as u64, bytes)? {
                Some(version) => (version, false),
                None => *sector.versions.iter().rfind(|(_, zeroes)| *zeroes).expect("checked above"),
            };
            *sector = Sector::holding(version, zeroes);
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
    assert_eq!((old, new, floors.versions[0]), (1, 2, 0));
    // Nothing acknowledged: nothing, the one and the other are right; half of one is not.
    for held in [[0, 0], [1, 1], [2, 2]] {
        let mut volume = volume.clone();
        (0..2).filter(|at| held[*at] > 0).for_each(|at| put(&mut volume, at, held[at]));
        let mut ledger = Ledger::new(8);
        ledger.send(0, 2, false);
        ledger.send(0, 2, false);
        ledger.settle(&volume).unwrap();
        assert_eq!(ledger.floors(0, 1).versions, [held[0]]);
    }
    put(&mut volume, 0, new);
    assert!(ledger.settle(&volume).unwrap_err().contains("torn"));
    put(&mut volume, 1, old);
    assert!(ledger.settle(&volume).unwrap_err().contains("torn"));
    // It was seen, so that the older one is lost from here on.
    put(&mut volume, 0, old);
    assert!(ledger.settle(&volume).unwrap_err().contains("replaced"));
    // A read that was sent before may still bring it.
    ledger.check(0, &volume[..SECTOR], &floors).unwrap();
    // An acknowledged write that is not there.
    let third = ledger.send(3, 1, false);
    ledger.acknowledge(third);
    let floors = ledger.floors(3, 1);
    assert!(ledger.check(3, &[0; SECTOR], &floors).unwrap_err().contains("lost"));
    put(&mut volume, 3, 77);
    assert!(ledger.check(3, &volume[3 * SECTOR..4 * SECTOR], &floors).unwrap_err().contains("never sent"));
    put(&mut volume, 4, third);
    let any = ledger.floors(4, 1);
    assert!(ledger.check(4, &volume[4 * SECTOR..5 * SECTOR], &any).unwrap_err().contains("never sent"));
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

/// A sector as `version` of it; zeroes for version 0.
#[cfg(test)]
fn holding(sector: usize, version: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version > 0 {
        content(sector as u64, version, &mut bytes);
    }
    bytes
}

#[test]
fn a_loss_takes_what_no_flush_covers_and_nothing_else() {
    let mut ledger = Ledger::behind_flushes(4);
    let write = |ledger: &mut Ledger, at| {
        let version = ledger.send(at, 1, false);
        ledger.acknowledge(version);
        version
    };
    let shows = |ledger: &mut Ledger, at, version| {
        let floors = ledger.floors(at, 1);
        ledger.check(at, &holding(at, version), &floors)
    };
    let flushed = write(&mut ledger, 0);
    let floors = ledger.floors(0, 4);
    // Behind the flush's start, so that it covers nothing of it.
    let late = write(&mut ledger, 1);
    ledger.flush(&floors);
    let newer = write(&mut ledger, 0);
    let kept = ledger.send(2, 1, false);
    ledger.acknowledge_kept(kept);
    assert!(shows(&mut ledger, 0, flushed).is_err() && shows(&mut ledger, 1, 0).is_err());

    let before = ledger.floors(0, 1);
    // Whatever was there before the flush is not given up, nor is what was written with FUA.
    assert!(ledger.lose(&[0, 1]));
    for (at, version, may_be) in
        [(0, newer, true), (0, flushed, true), (0, 0, false), (1, late, true), (1, 0, true), (2, 0, false)]
    {
        assert_eq!(shows(&mut ledger, at, version).is_ok(), may_be, "sector {at}, version {version}");
    }
    // A cache may show what the disk has lost, and the disk what it has: in turn.
    assert!(shows(&mut ledger, 0, newer).is_ok() && shows(&mut ledger, 0, flushed).is_ok());
    // So may a read that was under way, also when it is written again meanwhile.
    let again = write(&mut ledger, 0);
    assert!(shows(&mut ledger, 0, newer).is_err());
    ledger.check(0, &holding(0, flushed), &before).unwrap();
    assert!(ledger.check(0, &holding(0, 0), &before).is_err());
    // A flush settles it for the next loss.
    let floors = ledger.floors(0, 4);
    assert!(!ledger.has_lost_since(&floors) && ledger.has_lost_since(&before));
    ledger.flush(&floors);
    assert!(!ledger.lose(&[]));
    assert!(shows(&mut ledger, 0, newer).is_err() && shows(&mut ledger, 0, again).is_ok());
}

#[test]
fn what_was_promised_is_owed_until_somebody_is_told() {
    let mut ledger = Ledger::behind_flushes(2);
    // What is not answered was promised to nobody, however it ends: it may have been done before the loss.
    let racing = ledger.send(0, 1, false);
    assert!(ledger.is_being_written(0, 2) && !ledger.is_being_written(1, 1));
    assert!(!ledger.lose(&[0]));
    ledger.acknowledge(racing);
    let floors = ledger.floors(0, 1);
    ledger.check(0, &holding(0, 0), &floors).unwrap();
    ledger.check(0, &holding(0, racing), &floors).unwrap();
    // With FUA it is there all the same.
    let kept = ledger.send(1, 1, false);
    ledger.lose(&[]);
    ledger.acknowledge_kept(kept);
    let floors = ledger.floors(1, 1);
    assert!(ledger.check(1, &holding(1, 0), &floors).is_err());

    let version = ledger.send(0, 1, false);
    ledger.acknowledge(version);
    assert!(ledger.lose(&[0]) && !ledger.lose(&[1]));
    ledger.write_off();
    assert!(!ledger.lose(&[0]));
}

#[test]
fn a_write_that_failed_may_be_there_and_does_not_go_again_once_it_was_seen() {
    let mut ledger = Ledger::behind_flushes(1);
    let failed = ledger.send(0, 1, false);
    ledger.give_up(failed);
    let floors = ledger.floors(0, 1);
    ledger.check(0, &holding(0, 0), &floors).unwrap();
    ledger.check(0, &holding(0, failed), &floors).unwrap();
    let floors = ledger.floors(0, 1);
    assert!(ledger.check(0, &holding(0, 0), &floors).unwrap_err().contains("lost"));
    // Nor does it come over what was acknowledged later.
    let last = ledger.send(0, 1, false);
    ledger.acknowledge(last);
    assert!(ledger.check_all(&holding(0, failed)).is_err());
    ledger.check_all(&holding(0, last)).unwrap();
}

#[test]
fn of_a_write_in_pieces_a_part_may_stay_unless_all_of_it_is_acknowledged() {
    let mut ledger = Ledger::behind_flushes(1);
    let old = ledger.send(0, 1, false);
    ledger.acknowledge(old);
    let new = ledger.send_in_pieces(0, 1);
    ledger.give_up(new);
    let mut torn = holding(0, new);
    torn[..101].copy_from_slice(&holding(0, old)[..101]);
    ledger.check_all(&torn).unwrap();
    torn[300] ^= 1;
    assert!(ledger.check_all(&torn).is_err());
    torn[300] ^= 1;
    let last = ledger.send_in_pieces(0, 1);
    ledger.acknowledge(last);
    assert!(ledger.check_all(&torn).is_err());
    ledger.check_all(&holding(0, last)).unwrap();
}

#[test]
fn of_writes_that_were_under_way_together_either_may_be_the_last_and_it_stays() {
    let mut ledger = Ledger::new(1).with_races();
    let (one, other) = (ledger.send(0, 1, false), ledger.send(0, 1, false));
    ledger.acknowledge(other);
    let shows = |ledger: &mut Ledger, version| {
        let floors = ledger.floors(0, 1);
        ledger.check(0, &holding(0, version), &floors)
    };
    shows(&mut ledger, other).unwrap();
    shows(&mut ledger, one).unwrap();
    assert!(shows(&mut ledger, 0).unwrap_err().contains("lost"));
    let early = ledger.floors(0, 1);
    ledger.acknowledge(one);
    shows(&mut ledger, one).unwrap();
    assert!(shows(&mut ledger, other).unwrap_err().contains("nobody has written"));
    assert!(ledger.check_all(&holding(0, other)).is_err());
    ledger.check_all(&holding(0, one)).unwrap();
    // Who had asked before may have been answered before.
    ledger.check(0, &holding(0, other), &early).unwrap();
    let last = ledger.send(0, 1, false);
    ledger.acknowledge(last);
    assert!(shows(&mut ledger, one).is_err() && shows(&mut ledger, last).is_ok());
}
