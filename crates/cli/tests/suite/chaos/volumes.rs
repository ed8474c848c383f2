//! The volumes of a daemon: where their data lives, and how each is configured for the next start.

use super::draw::Draw;
use super::origin::{self, Origin};
use super::relay::{self, Address, Relay, Side};
use super::truth::Truth;
use crate::ledger::SECTOR;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where the data of a volume lives.
pub(super) enum Place {
    File(PathBuf),
    /// Behind a relay it may deliver what it was sent long ago: it fences nothing.
    Stranger {
        origin: Origin,
        relay: Option<Relay>,
        connections: usize,
    },
}

/// How a volume is configured for the next start.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) is_served: bool,
    /// `None`: the controller sizes it.
    pub(super) cache: Option<u64>,
    /// What it may hold on flash, in MiB.
    flash_mib: u64,
    admission: &'static str,
    block_size: &'static str,
    is_read_only: bool,
    /// Some of its requests fail before they get to the origin.
    fails: bool,
}

pub(super) struct Served<'a> {
    pub(super) truth: &'a Truth,
    pub(super) place: Place,
    pub(super) is_sole_writer: bool,
    pub(super) setup: Setup,
    /// The quota that it has; `None` where that is not known.
    pub(super) quota: Option<u64>,
}

/// Sizes of volumes in sectors; blocks are larger, so that the last one may be short.
pub(super) const SIZES: [usize; 4] = [8192, 8192, 8195, 4097];

impl<'a> Served<'a> {
    /// One in `folder`, by its `number`.
    pub(super) fn new(folder: &Path, number: usize, truth: &'a Truth, draw: &mut Draw) -> Served<'a> {
        let size = truth.sectors * SECTOR;
        let place = if draw.percent(50) {
            let path = folder.join(format!("disk-{number}"));
            let mut disk = File::create(&path).expect("the folder takes files");
            if draw.percent(50) {
                disk.write_all(&vec![0; size]).expect("the folder takes files");
            }
            // No unit goes into that.
            let odd = draw.of(&[0, 0, 100]);
            disk.set_len((size + odd) as u64).expect("the folder takes files");
            Place::File(path)
        } else {
            let path = folder.join(format!("origin-{number}.sock"));
            let origin = Origin::start(&path, size, Draw::new(draw.below(usize::MAX) as u64, 0));
            let entrance = folder.join(format!("relay-{number}.sock"));
            let relay = match draw.below(3) {
                0 => None,
                1 => Some(Relay::start(Some(&entrance), &path)),
                _ => Some(Relay::start(None, &path)),
            };
            Place::Stranger { origin, relay, connections: draw.of(&[1, 2, 4]) }
        };
        let setup = Setup::plain();
        Served { truth, place, is_sole_writer: draw.percent(60), setup, quota: None }
    }

    /// Where requests go, for an order that names it.
    pub(super) fn uri(&self) -> Option<String> {
        let Place::Stranger { origin, relay, .. } = &self.place else { return None };
        Some(match relay.as_ref().map(|relay| &relay.address) {
            None => format!("nbd+unix:///db?socket={}", origin.path.display()),
            Some(Address::Unix(path)) => format!("nbd+unix:///db?socket={}", path.display()),
            Some(Address::Tcp(address)) => format!("nbd://{address}/db"),
        })
    }

    pub(super) fn describe(&self) -> &'static str {
        match &self.place {
            Place::File(_) => "file",
            Place::Stranger { relay: None, .. } => "server",
            Place::Stranger { relay: Some(Relay { address: Address::Unix(_), .. }), .. } => "relay",
            Place::Stranger { .. } => "relay (TCP)",
        }
    }

    /// Its tables for the next start.
    pub(super) fn configuration(&self, has_flash: bool) -> String {
        let Setup { cache, flash_mib, admission, block_size, is_read_only, fails, .. } = self.setup;
        let origin = match &self.place {
            Place::File(path) => format!("{path:?}"),
            Place::Stranger { relay, connections, .. } => format!(
                "{{ type = \"nbd\", uri = \"{}\", connections = {connections}, wait_for_origin = \"2s\", \
                 request_timeout = \"3s\", fences_on_disconnect = {} }}",
                self.uri().expect("a server's"),
                relay.is_none()
            ),
        };
        let mut text = format!(
            "[[volume]]\nname = \"{}\"\norigin = {origin}\nblock_size = \"{block_size}\"\nread_only = {is_read_only}\n",
            self.truth.name()
        );
        text += &match cache {
            Some(bytes) => format!("cache = \"{bytes}\"\n"),
            // Nothing is that fast, so that it gets what there is.
            None => "objective = { latency = \"1us\" }\n".to_owned(),
        };
        if has_flash && flash_mib > 0 {
            text += &format!("flash = \"{flash_mib}MiB\"\nflash_admission = \"{admission}\"\n");
        }
        if self.is_sole_writer {
            text += "sole_writer = true\n";
        }
        if fails {
            text += "layers = [{ type = \"error\", probability = 0.02 }]\n";
        }
        text
    }

    /// Has its origin behave again.
    pub(super) fn behave(&self) {
        if let Place::Stranger { origin, relay, .. } = &self.place {
            origin.behave(origin::Manners::default());
            if let Some(relay) = relay {
                relay.behave(relay::Manners::default());
            }
        }
    }

    /// Nothing of what was sent to its origin until now has an effect any more.
    pub(super) fn fence(&self) {
        if let Place::Stranger { origin, relay: Some(relay), .. } = &self.place {
            relay.behave(relay::Manners::default());
            relay.cut(Side::Both);
            origin.cut();
        }
    }

    /// Its data, as they are and as a loss of power would leave them.
    pub(super) fn images(&self) -> Vec<Vec<u8>> {
        match &self.place {
            Place::File(path) => vec![std::fs::read(path).expect("it can be read")],
            Place::Stranger { origin, .. } => origin.images().to_vec(),
        }
    }
}

impl Setup {
    /// Nothing but the volume.
    pub(super) fn plain() -> Setup {
        Setup {
            is_served: true,
            cache: Some(0),
            flash_mib: 0,
            admission: "evicted",
            block_size: "4KiB",
            is_read_only: false,
            fails: false,
        }
    }

    /// As it is, but served and without faults of its own.
    pub(super) fn behaving(self) -> Setup {
        Setup { is_served: true, is_read_only: false, fails: false, ..self }
    }

    /// What it is like follows from `draw`; on flash there are `room_mib` left.
    pub(super) fn new(draw: &mut Draw, room_mib: &mut u64) -> Setup {
        let flash_mib = draw.of(&[0, 2, 3, 3]).min(*room_mib);
        let flash_mib = if flash_mib < 2 { 0 } else { flash_mib };
        *room_mib -= flash_mib;
        let small = ["512", "4KiB", "16KiB"];
        let cache = draw.of(&[0, 64 << 10, 64 << 10, 256 << 10, 1 << 20]);
        Setup {
            is_served: draw.percent(92),
            cache: if draw.percent(20) { None } else { Some(cache) },
            flash_mib,
            admission: draw.of(&["evicted", "evicted", "demand", "threshold-2", "adaptive", "larc", "lru"]),
            // Most keep theirs, and with it what they hold on flash.
            block_size: if draw.percent(85) {
                "4KiB"
            } else if flash_mib == 0 {
                draw.of(&small)
            } else {
                draw.of(&["8KiB", "64KiB"])
            },
            is_read_only: draw.percent(7),
            fails: draw.percent(20),
        }
    }
}
