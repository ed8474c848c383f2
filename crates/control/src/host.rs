//! Host selection: the application's host, then its rack, then the first that has room (Dynamite, step 6).

use crate::inventory::{HostId, HostSpec};
use crate::plain;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What there is of a host, is free on it, or is taken from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Main memory.
    #[serde(rename = "memory_bytes", with = "plain::bytes")]
    pub memory: Bytes,
    /// Flash.
    #[serde(rename = "flash_bytes", with = "plain::bytes")]
    pub flash: Bytes,
    /// Thousandths of a processor; `u32::MAX` where they are not counted.
    pub cpu_milli: u32,
}

impl Room {
    /// Whether `needed` is no more than this in any respect.
    pub fn holds(self, needed: Room) -> bool {
        needed.memory <= self.memory && needed.flash <= self.flash && needed.cpu_milli <= self.cpu_milli
    }

    /// What is left when `taken` is gone; nothing where it is more than there is.
    #[must_use]
    pub fn less(self, taken: Room) -> Room {
        Room {
            memory: self.memory.saturating_sub(taken.memory),
            flash: self.flash.saturating_sub(taken.flash),
            cpu_milli: match self.cpu_milli {
                u32::MAX => u32::MAX,
                counted => counted.saturating_sub(taken.cpu_milli),
            },
        }
    }

    /// Both together.
    #[must_use]
    pub fn with(self, more: Room) -> Room {
        Room {
            memory: Bytes(self.memory.get().saturating_add(more.memory.get())),
            flash: Bytes(self.flash.get().saturating_add(more.flash.get())),
            cpu_milli: self.cpu_milli.saturating_add(more.cpu_milli),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of memory", self.memory)?;
        if self.flash > Bytes::ZERO {
            write!(f, ", {} of flash", self.flash)?;
        }
        match self.cpu_milli {
            u32::MAX => Ok(()),
            milli => write!(f, ", {:.2} processors", f64::from(milli) / 1e3),
        }
    }
}

/// What an appliance takes beside the bytes that it caches. The numbers are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApplianceCost {
    /// Memory of the process, or of the machine that it runs in, in bytes. Default 64 MiB.
    #[serde(with = "crate::plain::size")]
    pub memory_bytes: u64,
    /// Memory of the bookkeeping per byte cached. Default 0.01: 32 bytes for each 4 KiB, and some room.
    pub memory_share: f64,
    /// Requests per second that one processor serves. Default 50,000: half of what a hit costs at depth 1; above 0.
    pub requests_per_cpu: f64,
}

impl Default for ApplianceCost {
    fn default() -> ApplianceCost {
        ApplianceCost { memory_bytes: 64 << 20, memory_share: 0.01, requests_per_cpu: 50_000.0 }
    }
}

impl ApplianceCost {
    /// What an appliance takes that caches `cache` in memory, and `flash` on flash, for `rate` requests per second: a tenth of a processor at least.
    pub fn room(&self, cache: Bytes, flash: Bytes, rate: f64) -> Room {
        let bookkeeping = (cache.as_f64() + flash.as_f64()) * self.memory_share;
        let cpu = (rate.max(0.0) / self.requests_per_cpu.max(1.0) * 1e3).ceil();
        Room {
            memory: Bytes(
                cache.get().saturating_add(self.memory_bytes).saturating_add(bookkeeping.ceil() as u64),
            ),
            flash,
            cpu_milli: (cpu as u32).max(100),
        }
    }

    /// The most that an appliance can cache in memory where `memory` is all that there is for it.
    pub fn cache(&self, memory: Bytes) -> Bytes {
        let rest = memory.get().saturating_sub(self.memory_bytes) as f64;
        Bytes((rest / (1.0 + self.memory_share)) as u64)
    }
}

/// Chooses where what takes `needed` goes: `home` if it has room, then the first host of its rack, then the first at all.
///
/// `free` says what each host of `hosts` can still give, in the same order. `None` where none has room; the caller
/// claims the room before it asks again. `O(hosts)`.
///
/// # Panics
/// If the lengths differ.
pub fn choose(home: HostId, needed: Room, hosts: &[HostSpec], free: &[Room]) -> Option<HostId> {
    assert_eq!(hosts.len(), free.len(), "one room for each host");
    let rack = hosts.iter().find(|host| host.id == home).map(|host| host.rack);
    let distance = |host: &HostSpec| match (host.id == home, Some(host.rack) == rack) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    };
    // min_by_key keeps the first of equals: first fit.
    hosts
        .iter()
        .zip(free)
        .filter(|(_, free)| free.holds(needed))
        .min_by_key(|(host, _)| distance(host))
        .map(|(host, _)| host.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_then_rack_then_first_fit() {
        let host = |id, rack| HostSpec::new(HostId(id), format!("h{id}"), rack, Bytes::gib(8));
        let hosts = [host(1, 1), host(2, 2), host(3, 2), host(4, 3)];
        let room = |memory, cpu_milli| Room { memory: Bytes::gib(memory), flash: Bytes::ZERO, cpu_milli };
        let choose = |free: [(u64, u32); 4]| {
            choose(HostId(2), room(4, 500), &hosts, &free.map(|(memory, cpu)| room(memory, cpu)))
        };
        assert_eq!(choose([(8, 500); 4]), Some(HostId(2)));
        assert_eq!(choose([(8, 500), (3, 500), (8, 500), (8, 500)]), Some(HostId(3)));
        assert_eq!(choose([(8, 500), (3, 500), (3, 500), (8, 500)]), Some(HostId(1)));
        assert_eq!(choose([(3, 500); 4]), None);
        // Memory without processors is no room, nor is flash that is not there.
        assert_eq!(choose([(8, 400), (8, 499), (8, 0), (8, 500)]), Some(HostId(4)));
        let flash = Room { flash: Bytes::gib(1), ..room(1, 1) };
        assert_eq!(super::choose(HostId(2), flash, &hosts, &[room(8, 900); 4]), None);
    }

    #[test]
    fn flash_is_counted_as_memory_is() {
        let room = |flash| Room { memory: Bytes::gib(2), flash: Bytes::gib(flash), cpu_milli: 1_500 };
        let flash = Room { flash: Bytes::gib(3), ..Room::default() };
        assert_eq!(room(8).less(flash), room(5));
        assert_eq!(room(2).less(flash), room(0));
        assert_eq!(room(2).with(flash), room(5));
        assert!(room(3).holds(flash) && !room(2).holds(flash));
        assert_eq!(room(8).to_string(), "2GiB of memory, 8GiB of flash, 1.50 processors");
        // What is cached on flash takes memory for its bookkeeping: a hundredth of 100 and of 300 MiB, beside 64 MiB.
        let cost = ApplianceCost::default().room(Bytes::mib(100), Bytes::mib(300), 0.0);
        assert_eq!((cost.memory, cost.flash), (Bytes::mib(168), Bytes::mib(300)));
    }

    #[test]
    fn an_appliance_takes_more_than_it_caches() {
        // 100 MiB and a hundredth of it, and 64 MiB; 80,000 requests/s at 50,000 a processor.
        let cost = ApplianceCost::default();
        let room = cost.room(Bytes::mib(100), Bytes::ZERO, 80_000.0);
        assert_eq!((room.memory, room.cpu_milli), (Bytes::mib(165), 1_600));
        assert_eq!(cost.cache(room.memory), Bytes::mib(100));
        assert_eq!(cost.room(Bytes::ZERO, Bytes::ZERO, 0.0).cpu_milli, 100);
        assert_eq!(cost.cache(Bytes::mib(1)), Bytes::ZERO);
    }
}
