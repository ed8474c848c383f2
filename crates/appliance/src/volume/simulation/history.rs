//! What happened to every cell, and whether some order of it explains what was read: a checker of linearizability where every value is written once.

use super::CELLS;
use std::collections::BTreeMap;

/// "Not over yet".
const NEVER: u64 = u64::MAX;

/// All operations of one cell on one version: what Gibbons and Korach ("Testing shared memories", 1997, section 4) call a cluster.
#[derive(Clone, Debug)]
struct Cluster {
    write_start: u64,
    first_end: u64,
    last_start: u64,
    first_read_end: u64,
    /// When the change ended in an error after which the origin applies nothing more: seen at all, it was done by then.
    failed_at: u64,
}

/// What happened to every cell.
#[derive(Default)]
pub(super) struct History {
    clusters: BTreeMap<(u64, u64), Cluster>,
}

impl History {
    pub(super) fn write(&mut self, cell: u64, version: u64, start: u64) {
        let cluster = Cluster {
            write_start: start,
            first_end: NEVER,
            last_start: start,
            first_read_end: NEVER,
            failed_at: NEVER,
        };
        assert!(self.clusters.insert((cell, version), cluster).is_none(), "versions are unique");
    }

    /// Only for changes that succeeded: the others may still take effect, or never.
    pub(super) fn write_ended(&mut self, cell: u64, version: u64, end: u64) {
        let cluster = self.clusters.get_mut(&(cell, version)).expect("it started");
        cluster.first_end = cluster.first_end.min(end);
    }

    /// The change failed, and will not be applied later.
    pub(super) fn write_failed(&mut self, cell: u64, version: u64, end: u64) {
        self.clusters.get_mut(&(cell, version)).expect("it started").failed_at = end;
    }

    pub(super) fn read(&mut self, cell: u64, version: u64, start: u64, end: u64) {
        let cluster = self.clusters.get_mut(&(cell, version));
        let cluster =
            cluster.unwrap_or_else(|| panic!("cell {cell} reads version {version}, which nobody wrote"));
        cluster.first_end = cluster.first_end.min(end);
        cluster.first_read_end = cluster.first_read_end.min(end);
        cluster.last_start = cluster.last_start.max(start);
    }

    /// Whether some order of the operations on each cell explains what was read (values are unique per cell): no read ended
    /// before its write started, no two forward zones overlap, no backward zone lies in a forward zone.
    pub(super) fn check(&self) {
        for cell in 0..CELLS {
            let clusters: Vec<_> = self.clusters.range((cell, 0)..(cell + 1, 0)).collect();
            let (mut forward, mut backward) = (Vec::new(), Vec::new());
            for ((_, version), cluster) in clusters {
                assert!(
                    cluster.first_read_end > cluster.write_start,
                    "cell {cell}: version {version} was read before it was written"
                );
                if cluster.first_end == NEVER {
                    continue; // Failed or unknown, and never seen.
                }
                let first_end = cluster.first_end.min(cluster.failed_at);
                let zone = (first_end, cluster.last_start, *version);
                if first_end < cluster.last_start { forward.push(zone) } else { backward.push(zone) }
            }
            forward.sort_unstable();
            for pair in forward.windows(2) {
                assert!(
                    pair[0].1 < pair[1].0,
                    "cell {cell}: version {} was established at {} and read by who started at {}, version {} \
                     established at {} and read by who started at {}: one of the reads is stale",
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
                    "cell {cell}: version {version} happened within {start}..{end}, in the middle of {inside:?}, \
                     which was read before and after"
                );
            }
        }
    }
}

/// The checker itself can fail: a read of the old value after one of the new one.
#[test]
#[should_panic(expected = "which was read before and after")]
fn the_checker_sees_new_then_old() {
    let mut history = History::default();
    history.write(0, 1, 0);
    history.write_ended(0, 1, 1);
    history.write(0, 2, 2);
    history.read(0, 2, 3, 4);
    history.read(0, 1, 5, 6);
    history.check();
}
