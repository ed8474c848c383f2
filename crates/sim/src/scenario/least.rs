//! What a request takes of an origin where nothing waits: the arithmetic behind objectives that cannot be kept.
//!
//! It is *not* what a request takes on average: seeks may be short, and parts of a request are taken to be done side by side. Invariant: no request takes
//! less than what is said to be sure.

use super::{Distribution, OriginKind, OriginTable, Queue};
use forebay_units::{Bytes, Nanos};

/// The least time of a request at an origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Least {
    /// None takes less.
    pub(super) sure: Nanos,
    /// What comes on top of that by chance.
    pub(super) varies: Varies,
}

/// What a request takes by chance, each by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Varies {
    /// Nothing that is counted.
    Not,
    /// A part of a turn of the platters: any, with the same chance, where places are random.
    Turn(Nanos),
    /// Anything up to this, with the same chance.
    Evenly(Nanos),
    /// Exponentially, with this mean.
    Exponentially(Nanos),
}

impl Least {
    fn sure(sure: Nanos) -> Least {
        Least { sure, varies: Varies::Not }
    }

    /// The least on average.
    pub(super) fn mean(self) -> Nanos {
        self.sure
            + match self.varies {
                Varies::Not => Nanos::ZERO,
                Varies::Turn(span) | Varies::Evenly(span) => Nanos(span.0 / 2),
                Varies::Exponentially(mean) => mean,
            }
    }

    /// The share of requests that take no longer than `latency`, at most and on average.
    pub(super) fn within(self, latency: Nanos) -> f64 {
        if latency < self.sure {
            return 0.0;
        }
        let more = (latency - self.sure).0 as f64;
        let share = |of: Nanos| if of == Nanos::ZERO { f64::INFINITY } else { more / of.0 as f64 };
        match self.varies {
            Varies::Not => 1.0,
            Varies::Turn(span) | Varies::Evenly(span) => share(span).min(1.0),
            Varies::Exponentially(mean) => -(-share(mean)).exp_m1(),
        }
    }

    /// What next to none takes longer than.
    pub(super) fn most(self) -> Nanos {
        match self.varies {
            Varies::Not => self.sure,
            Varies::Turn(span) | Varies::Evenly(span) => self.sure + span,
            Varies::Exponentially(mean) => self.sure + Nanos(mean.0.saturating_mul(64)),
        }
    }

    /// It in words, as in "10ms".
    pub(super) fn said(self) -> String {
        let sure = self.sure;
        match self.varies {
            Varies::Not => sure.to_string(),
            Varies::Turn(_) | Varies::Evenly(_) => format!("{sure} to {}", self.most()),
            Varies::Exponentially(mean) => format!("{} on average", sure + mean),
        }
    }
}

/// Time for `bytes` at a rate, rounded down; none where it is not bounded.
pub(super) fn span_of(bytes: u64, per_second: u64) -> Nanos {
    match per_second {
        0 => Nanos::ZERO,
        rate => Nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64),
    }
}

/// The least that the longest piece of `bytes` has, cut at every multiple of `unit`, wherever they begin.
fn longest_piece(bytes: u64, unit: u64) -> u64 {
    let (bytes, unit) = (bytes.max(1), unit.max(1));
    let pieces = (bytes - 1).div_ceil(unit) + 1;
    bytes.div_ceil(pieces).min(unit)
}

impl OriginTable {
    /// The way to it and back for a request of `bytes`.
    pub(super) fn way(&self, bytes: u64) -> Nanos {
        let rate = self.link_per_second.map_or(0, Bytes::get);
        self.link_latency + self.link_latency + span_of(bytes, rate)
    }

    /// What a request of `bytes` takes at least once it is there; `is_random`: its place says nothing of the next one's.
    pub(super) fn least(&self, bytes: u64, writes: bool, is_random: bool) -> Least {
        match self.kind {
            OriginKind::Servers => self.least_of_servers(bytes),
            OriginKind::Disks => self.least_of_array(bytes, writes, is_random),
            OriginKind::Ssd => Least::sure(self.least_of_flash(bytes, writes)),
        }
    }

    fn least_of_servers(&self, bytes: u64) -> Least {
        let transfer = span_of(bytes, self.transfer_per_second.map_or(0, Bytes::get));
        let service = self.service.unwrap_or(Nanos::ZERO);
        match self.distribution.unwrap_or_default() {
            Distribution::Constant => Least::sure(service + transfer),
            Distribution::Exponential => Least { sure: transfer, varies: Varies::Exponentially(service) },
            Distribution::Uniform => {
                let spread = self.service_spread.unwrap_or(Nanos::ZERO);
                let sure = service.saturating_since(spread) + transfer;
                Least { sure, varies: Varies::Evenly(spread + spread) }
            }
        }
    }

    /// An array's cache may have what is read, and takes what is written, but what is more than may be dirty.
    fn least_of_array(&self, bytes: u64, writes: bool, is_random: bool) -> Least {
        let Some(cache) = self.array_cache() else { return self.least_of_disks(bytes, writes, is_random) };
        let page = cache.page_bytes.max(1);
        let dirty_max = cache.bytes / page * cache.dirty_percent_max / 100;
        let goes_through = writes && bytes.div_ceil(page) > dirty_max;
        let disks = match goes_through {
            true => self.least_of_disks(bytes, writes, is_random),
            false => Least::sure(Nanos::ZERO),
        };
        Least { sure: cache.latency + disks.sure, ..disks }
    }

    fn least_of_disks(&self, bytes: u64, writes: bool, is_random: bool) -> Least {
        let group = self.disks();
        let disk = &group.disk;
        let piece = longest_piece(bytes, group.stripe_unit_bytes);
        let transfer = span_of(piece, disk.rate_outer_bytes_s);
        let before = disk.command_latency + disk.service_overhead;
        if self.buffer.is_some() && !writes {
            // What was read ahead comes at the rate of the interface.
            return Least::sure(before + transfer.min(span_of(piece, disk.buffer.interface_bytes_s)));
        }
        // Who takes what is near first need not wait for the platters, and where transfers take no time all places are at one angle.
        let in_turn = self.queue.unwrap_or_default() == Queue::Fifo;
        let varies = match is_random && in_turn && disk.rate_outer_bytes_s > 0 {
            true if disk.rotation > Nanos::ZERO => Varies::Turn(disk.rotation),
            _ => Varies::Not,
        };
        Least { sure: before + transfer, varies }
    }

    /// Pages go round the dies and the channels, so that some die and some channel have their part of them at least. What is written fills whole pages.
    fn least_of_flash(&self, bytes: u64, writes: bool) -> Nanos {
        let ssd = self.ssd();
        let pages = bytes.div_ceil(ssd.page_bytes.max(1)).max(1);
        let channels = u64::from(ssd.channels.max(1));
        let of_a_die = pages.div_ceil(channels * u64::from(ssd.dies_per_channel.max(1)));
        let times = |span: Nanos, count: u64| Nanos(span.0.saturating_mul(count));
        let carried = |bytes: u64| span_of(bytes, ssd.channel_bytes_s);
        let at_flash = match writes {
            true => {
                let dies = carried(ssd.page_bytes) + times(ssd.program, of_a_die);
                dies.max(times(carried(ssd.page_bytes), pages.div_ceil(channels)) + ssd.program)
            }
            false => {
                let longest = longest_piece(bytes, ssd.page_bytes).max(bytes / channels);
                times(ssd.read, of_a_die).max(ssd.read + carried(longest))
            }
        };
        ssd.latency + at_flash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_is_the_longest_that_is_shorter_than_is_said() {
        for unit in 1..=9u64 {
            for bytes in 1..=40u64 {
                let longest = |start: u64| {
                    let units = start / unit..=(start + bytes - 1) / unit;
                    units
                        .map(|at| (start + bytes).min((at + 1) * unit) - start.max(at * unit))
                        .max()
                        .unwrap_or(0)
                };
                let least = (0..unit).map(longest).min().unwrap_or(0);
                let said = longest_piece(bytes, unit);
                assert!(said <= least && said >= 1, "{bytes} bytes by {unit}: {said}, and {least}");
            }
        }
    }
}
