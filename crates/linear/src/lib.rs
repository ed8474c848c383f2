//! What happened to the cells of one volume, and whether any order of the operations explains it: for the tests of whoever carries data.
//!
//! Times are instants of whatever clock a test has, in its unit. What no order explains is a panic that names the cell and the versions.
//!
//! A *cell* is the unit of content: a quarter of a block. Every change has a *version* of its own, which the bytes of a cell
//! name, so a read says which change it saw. Per cell, reads and changes must be linearizable: the zones of Gibbons and Korach
//! ("Testing shared memories", 1997, section 4) decide, exactly, since values are unique.
//!
//! An origin that crashes may lose what was not flushed. From then on the cell starts a new life (a *cut*): what it held since the
//! last flush may be read (a cache may still hold it) until a change made after the crash is established; nothing
//! older may be read ever, and what was acknowledged and flushed must have survived.

use std::collections::{BTreeMap, BTreeSet};

/// "Not over yet".
pub const NEVER: u64 = u64::MAX;

/// The bytes of a cell that holds `version`.
pub fn cell_bytes(version: u64, cell: u64, length: u64) -> Vec<u8> {
    let word = if version == 0 { 0 } else { version << 16 | cell };
    word.to_le_bytes().repeat((length / 8) as usize)
}

/// The version that a cell's bytes name; all of them must agree.
pub fn version_in(bytes: &[u8], cell: u64) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("cells have eight bytes and more"));
    let version = word >> 16;
    assert!(
        bytes.chunks_exact(8).all(|chunk| chunk == word.to_le_bytes())
            && (word == 0 || word & 0xffff == cell),
        "cell {cell} holds bytes that nobody wrote there: version {version} of cell {}",
        word & 0xffff
    );
    version
}

/// All operations of one cell on one version.
#[derive(Clone, Debug)]
struct Cluster {
    write_start: u64,
    /// When the first operation on the version ended: from then on it was established.
    first_end: u64,
    last_start: u64,
    first_read_end: u64,
    /// When the change was acknowledged.
    acknowledged: u64,
    /// Acknowledged means stable.
    fua: bool,
    /// When the change ended in an error after which it is not applied any more.
    failed: u64,
    /// When its client was told of an error although the origin may still apply it.
    doubted: u64,
}

/// One cell since its last cut.
#[derive(Clone, Debug, Default)]
struct CellHistory {
    clusters: BTreeMap<u64, Cluster>,
    /// What may be read of before the cut.
    before: BTreeSet<u64>,
    /// When the last read of such a version started.
    before_last_start: u64,
    cut: u64,
}

impl CellHistory {
    /// Whether a change that its client was told had failed is seen by who looked at `looked`, although a later one was acknowledged.
    fn check_doubtful(&self, cell: u64, version: u64, doubtful: &Cluster, looked: u64) {
        if doubtful.doubted == NEVER {
            return;
        }
        for (over, cluster) in &self.clusters {
            assert!(
                cluster.acknowledged == NEVER
                    || cluster.write_start < doubtful.doubted
                    || looked <= cluster.acknowledged,
                "cell {cell}: version {version}, of which its client was told an error at {}, is there although version {over},                  which started at {}, was acknowledged at {}: a lost write came back over a later one",
                doubtful.doubted,
                cluster.write_start,
                cluster.acknowledged
            );
        }
    }
}

/// One volume.
#[derive(Debug)]
pub struct History {
    cells: Vec<CellHistory>,
    /// Start of the last flush that succeeded: what was acknowledged before it is stable.
    flushed: u64,
}

impl History {
    /// Of cells that hold version 0.
    pub fn new(cells: u64) -> History {
        History { cells: vec![CellHistory::default(); cells as usize], flushed: 0 }
    }

    /// A change was sent at `start`; with `fua` its answer means that it is stable.
    ///
    /// # Panics
    /// If there was one of that version before.
    pub fn write(&mut self, cell: u64, version: u64, start: u64, fua: bool) {
        let cluster = Cluster {
            write_start: start,
            first_end: NEVER,
            last_start: start,
            first_read_end: NEVER,
            acknowledged: NEVER,
            fua,
            failed: NEVER,
            doubted: NEVER,
        };
        let before = self.cells[cell as usize].clusters.insert(version, cluster);
        assert!(before.is_none(), "versions are unique");
    }

    /// Its client was told at `end` that it is done.
    pub fn write_acknowledged(&mut self, cell: u64, version: u64, end: u64) {
        if let Some(cluster) = self.cells[cell as usize].clusters.get_mut(&version) {
            cluster.first_end = cluster.first_end.min(end);
            cluster.acknowledged = end;
        }
    }

    /// The change failed and is not applied any more; what was applied of it may stay.
    pub fn write_failed(&mut self, cell: u64, version: u64, end: u64) {
        if let Some(cluster) = self.cells[cell as usize].clusters.get_mut(&version) {
            cluster.failed = end;
        }
    }

    /// The client was told of an error, and the origin may apply the change later: but not over one that was acknowledged and that
    /// started when this was known.
    pub fn write_doubted(&mut self, cell: u64, version: u64, end: u64) {
        if let Some(cluster) = self.cells[cell as usize].clusters.get_mut(&version) {
            cluster.doubted = end;
        }
    }

    /// The change will never be applied to this cell any more, whatever its client was told.
    pub fn write_over(&mut self, cell: u64, version: u64, end: u64) {
        if let Some(cluster) = self.cells[cell as usize].clusters.get_mut(&version) {
            cluster.failed = cluster.failed.min(end);
        }
    }

    /// A flush that was sent at `start` succeeded.
    pub fn flushed(&mut self, start: u64) {
        self.flushed = self.flushed.max(start);
    }

    /// A read from `start` to `end` saw `version`.
    ///
    /// # Panics
    /// If nobody wrote that version there, or a crash made it impossible.
    pub fn read(&mut self, cell: u64, version: u64, start: u64, end: u64) {
        let history = &mut self.cells[cell as usize];
        if start < history.cut {
            return; // Concurrent with the crash: what it saw of before is no longer told apart.
        }
        if let Some(cluster) = history.clusters.get_mut(&version) {
            cluster.first_end = cluster.first_end.min(end);
            cluster.first_read_end = cluster.first_read_end.min(end);
            cluster.last_start = cluster.last_start.max(start);
        } else {
            assert!(
                history.before.contains(&version),
                "cell {cell} reads version {version}, which nobody wrote, or which a crash made impossible"
            );
            history.before_last_start = history.before_last_start.max(start);
        }
    }

    /// The origin stopped, and holds `survivor` of the cell where `possible` were written since the last flush.
    ///
    /// If a cache survived, what it holds may be any of `possible`; else only the survivor is left.
    /// A change that was not applied yet (`may_come`) may still be.
    pub fn crash(
        &mut self,
        cell: u64,
        survivor: u64,
        possible: &[u64],
        may_come: impl Fn(u64) -> bool,
        cache_survived: bool,
        now: u64,
    ) {
        self.must_hold(cell, survivor);
        let live = *possible.last().expect("a cell holds something");
        if survivor == live {
            return;
        }
        self.check_cell(cell);
        let history = &mut self.cells[cell as usize];
        let kept: BTreeSet<u64> =
            if cache_survived { possible.iter().copied().collect() } else { BTreeSet::from([survivor]) };
        if cache_survived {
            history.before.extend(&kept);
        } else {
            history.before = kept;
        }
        history.clusters.retain(|version, cluster| may_come(*version) && cluster.failed == NEVER);
        history.before_last_start = 0;
        history.cut = now;
    }

    /// When the client of this change was told that it is done.
    pub fn acknowledged_at(&self, cell: u64, version: u64) -> Option<u64> {
        let cluster = self.cells[cell as usize].clusters.get(&version)?;
        (cluster.acknowledged != NEVER).then_some(cluster.acknowledged)
    }

    /// Whether all that was acknowledged and flushed is there where the origin holds `held`.
    pub fn must_hold(&self, cell: u64, held: u64) {
        let history = &self.cells[cell as usize];
        let doubted = history.clusters.get(&held).map_or(NEVER, |cluster| cluster.doubted);
        let established = match history.clusters.get(&held) {
            Some(cluster) => cluster.first_end.min(cluster.failed),
            None => {
                assert!(
                    history.before.contains(&held),
                    "cell {cell} holds version {held}, which nobody wrote"
                );
                0
            }
        };
        for (version, cluster) in &history.clusters {
            let stable =
                cluster.acknowledged != NEVER && (cluster.fua || cluster.acknowledged < self.flushed);
            assert!(
                !stable || cluster.write_start < doubted,
                "cell {cell}: version {version}, which is stable, is lost; the origin holds version {held}, of which its client was \
                 told an error at {doubted}, before {version} started: a lost write came back over a later one"
            );
            assert!(
                !stable || established >= cluster.write_start || *version == held,
                "cell {cell}: version {version}, acknowledged at {} and {}, is lost; the origin holds version \
                 {held}, which is older",
                cluster.acknowledged,
                if cluster.fua {
                    "written with FUA".to_owned()
                } else {
                    format!("flushed at {}", self.flushed)
                }
            );
        }
    }

    /// Whether some order of the operations on each cell explains what was read.
    pub fn check(&self) {
        (0..self.cells.len() as u64).for_each(|cell| self.check_cell(cell));
    }

    /// No read ended before its write started, no two forward zones overlap, no backward zone lies in a forward zone.
    fn check_cell(&self, cell: u64) {
        let history = &self.cells[cell as usize];
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        for (version, cluster) in &history.clusters {
            assert!(
                cluster.first_read_end > cluster.write_start,
                "cell {cell}: version {version} was read before it was written"
            );
            history.check_doubtful(cell, *version, cluster, cluster.last_start);
            if cluster.first_end == NEVER {
                continue; // Failed, or its client is gone, and it was never seen.
            }
            // Seen at all, a failed change was done by the time it failed.
            let first_end = cluster.first_end.min(cluster.failed);
            assert!(
                history.before_last_start <= first_end,
                "cell {cell}: who started to read at {} was shown what the crash at {} left, although version {version} was \
                 established at {first_end}",
                history.before_last_start,
                history.cut
            );
            let zone = (first_end, cluster.last_start, *version);
            if first_end < cluster.last_start { forward.push(zone) } else { backward.push(zone) }
        }
        forward.sort_unstable();
        for pair in forward.windows(2) {
            assert!(
                pair[0].1 < pair[1].0,
                "cell {cell}: version {} was established at {} and read by who started at {}, version {} established at \
                 {} and read by who started at {}: one of the reads is stale",
                pair[0].2,
                pair[0].0,
                pair[0].1,
                pair[1].2,
                pair[1].0,
                pair[1].1
            );
        }
        for (end, start, version) in backward {
            let inside = forward.iter().find(|zone| zone.0 < start && end < zone.1);
            assert!(
                inside.is_none(),
                "cell {cell}: version {version} happened within {start}..{end}, in the middle of {inside:?}, which was \
                 read before and after"
            );
        }
    }
}

/// The checker can fail: each of these histories is wrong.
#[cfg(test)]
mod tests {
    use super::*;

    fn two_writes() -> History {
        let mut history = History::new(1);
        history.write(0, 1, 0, false);
        history.write_acknowledged(0, 1, 1);
        history.write(0, 2, 2, false);
        history
    }

    #[test]
    #[should_panic(expected = "which was read before and after")]
    fn new_then_old_is_seen() {
        let mut history = two_writes();
        history.read(0, 2, 3, 4);
        history.read(0, 1, 5, 6);
        history.check();
    }

    #[test]
    #[should_panic(expected = "one of the reads is stale")]
    fn an_old_value_after_the_acknowledgement_is_seen() {
        let mut history = two_writes();
        history.write_acknowledged(0, 2, 3);
        history.read(0, 1, 4, 5);
        history.read(0, 2, 6, 7);
        history.check();
    }

    #[test]
    #[should_panic(expected = "is lost")]
    fn a_flushed_write_that_a_crash_lost_is_seen() {
        let mut history = two_writes();
        history.write_acknowledged(0, 2, 3);
        history.flushed(4);
        history.crash(0, 1, &[1, 2], |_| false, true, 6);
    }

    #[test]
    fn what_was_not_flushed_may_be_lost_and_still_be_read() {
        let mut history = two_writes();
        history.write_acknowledged(0, 2, 3);
        history.crash(0, 1, &[1, 2], |_| false, true, 6);
        history.read(0, 2, 7, 8);
        history.read(0, 1, 9, 10);
        history.check();
    }

    #[test]
    #[should_panic(expected = "was shown what the crash")]
    fn what_a_crash_left_may_not_outlive_the_next_write() {
        let mut history = two_writes();
        history.crash(0, 1, &[1, 2], |_| false, true, 6);
        history.write(0, 3, 7, false);
        history.write_acknowledged(0, 3, 8);
        history.read(0, 2, 9, 10);
        history.check();
    }
}
