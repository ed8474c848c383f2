//! An origin: a link, and a device behind it.

use crate::calendar::{Calendar, Planned};
use crate::device::{Device, Submitted, flight_of};
use crate::scenario::HangTable;
use forebay_devmodel::{DiskCompletion, Lane, ParameterError};
use forebay_units::{ByteRange, Nanos};

/// An origin on virtual time.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) device: Device,
    /// The way to it and the way back.
    there: Lane,
    back: Lane,
    /// Whether the ways take time at all.
    far: bool,
    hangs: Vec<HangTable>,
    /// By flight: the bytes of its answer, where they count.
    answers: Vec<u32>,
    /// The device's event that is planned.
    planned: Nanos,
    completions: Vec<DiskCompletion>,
}

impl Origin {
    pub(crate) fn new(table: &crate::scenario::OriginTable, seed: u64) -> Result<Origin, ParameterError> {
        let link = table.link();
        Ok(Origin {
            device: Device::new(table, seed)?,
            there: Lane::new(link)?,
            back: Lane::new(link)?,
            far: link != Default::default(),
            hangs: table.hangs.clone(),
            answers: Vec::new(),
            planned: Nanos::MAX,
            completions: Vec::new(),
        })
    }

    /// A request sets out at `now`: when it reaches the device; `None` for at once.
    pub(crate) fn set_out(&mut self, now: Nanos, flight: u32, writes: bool, bytes: u64) -> Option<Nanos> {
        let arrives = self.travel(now, flight, writes, bytes);
        let held = |at| self.hangs.iter().find_map(|hang| hang.holds(at, writes));
        // It may hang again where it stops to.
        std::iter::successors(held(arrives.unwrap_or(now)), |&at| held(at)).last().or(arrives)
    }

    fn travel(&mut self, now: Nanos, flight: u32, writes: bool, bytes: u64) -> Option<Nanos> {
        if !self.far {
            return None;
        }
        let place = flight as usize;
        if self.answers.len() <= place {
            self.answers.resize(place + 1, 0);
        }
        self.answers[place] = if writes { 0 } else { bytes as u32 };
        Some(self.there.send(now, if writes { bytes } else { 0 }))
    }

    fn answer(&mut self, at: Nanos, flight: u32, calendar: &mut Calendar) {
        let bytes = if self.far { self.answers[flight as usize].into() } else { 0 };
        calendar.plan(self.back.send(at, bytes), Planned::Answer { flight });
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
        match self.device.submit(now, flight, writes, range) {
            Submitted::Queued => self.plan(number, calendar),
            Submitted::Server { queue, span: Some(span) } => {
                calendar.plan(now + span, Planned::Served { flight, queue });
            }
            Submitted::Server { span: None, .. } => {}
        }
    }

    fn plan(&mut self, number: u32, calendar: &mut Calendar) {
        if let Some(at) = self.device.next_event()
            && at < self.planned
        {
            self.planned = at;
            calendar.plan_device(number, at);
        }
    }

    /// The device's event at `now`: hands every completion on.
    pub(crate) fn advance(&mut self, number: u32, now: Nanos, calendar: &mut Calendar) {
        self.planned = Nanos::MAX;
        let mut completions = std::mem::take(&mut self.completions);
        self.device.advance(now, &mut completions);
        for completion in completions.drain(..) {
            self.answer(completion.at, flight_of(&completion), calendar);
        }
        self.completions = completions;
        self.plan(number, calendar);
    }

    /// A server is done at `now` with `flight` of its queue.
    pub(crate) fn served(&mut self, now: Nanos, flight: u32, queue: u32, calendar: &mut Calendar) {
        if let Device::Servers(servers, _) = &mut self.device
            && let Some((next, span)) = servers.done(now, queue)
        {
            calendar.plan(now + span, Planned::Served { flight: next, queue });
        }
        self.answer(now, flight, calendar);
    }
}
