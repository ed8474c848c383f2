//! An origin: a link, a device behind it, and the volumes' places on it.

use crate::calendar::{Calendar, Planned};
use crate::device::{Device, disk_request, flight_of};
use forebay_devmodel::{DiskCompletion, ParameterError};
use forebay_units::{ByteRange, Nanos};

/// An origin on virtual time.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) device: Device,
    link: Nanos,
    /// The device's event that is planned; later ones count, earlier ones are stale.
    planned: Nanos,
    completions: Vec<DiskCompletion>,
}

impl Origin {
    pub(crate) fn new(table: &crate::scenario::OriginTable, seed: u64) -> Result<Origin, ParameterError> {
        Ok(Origin {
            device: Device::new(table, seed)?,
            link: table.link_latency,
            planned: Nanos::MAX,
            completions: Vec::new(),
        })
    }

    /// Delay of one way.
    pub(crate) fn link(&self) -> Nanos {
        self.link
    }

    /// A request reaches the device.
    pub(crate) fn submit(
        &mut self,
        number: u32,
        now: Nanos,
        flight: u32,
        writes: bool,
        range: ByteRange,
        calendar: &mut Calendar,
    ) {
        match &mut self.device {
            Device::Disks(group, _) => {
                group
                    .submit(now, disk_request(flight, writes, range))
                    .expect("volumes lie within the group, and its maximum is above theirs");
                self.plan(number, calendar);
            }
            Device::Servers(servers, _) => {
                if let Some(span) = servers.arrive(now, flight, range.length) {
                    calendar.plan(now + span, Planned::Served { flight });
                }
            }
        }
    }

    fn plan(&mut self, number: u32, calendar: &mut Calendar) {
        if let Device::Disks(group, _) = &self.device
            && let Some(at) = group.next_event()
            && at < self.planned
        {
            self.planned = at;
            calendar.plan(at, Planned::Device { origin: number });
        }
    }

    /// The device's event at `now`: hands every completion on. Returns whether the event was still meant.
    pub(crate) fn advance(&mut self, number: u32, now: Nanos, calendar: &mut Calendar) -> bool {
        if now != self.planned {
            return false;
        }
        self.planned = Nanos::MAX;
        if let Device::Disks(group, _) = &mut self.device {
            group.advance(now, &mut self.completions);
            for completion in self.completions.drain(..) {
                let flight = flight_of(&completion);
                calendar.plan(completion.at + self.link, Planned::Answer { flight });
            }
        }
        self.plan(number, calendar);
        true
    }

    /// A server is done at `now` with `flight`.
    pub(crate) fn served(&mut self, now: Nanos, flight: u32, calendar: &mut Calendar) {
        if let Device::Servers(servers, _) = &mut self.device
            && let Some((next, span)) = servers.done(now)
        {
            calendar.plan(now + span, Planned::Served { flight: next });
        }
        calendar.plan(now + self.link, Planned::Answer { flight });
    }
}
