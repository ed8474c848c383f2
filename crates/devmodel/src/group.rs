//! A group of disks that share their load: what volumes on it do to each other is what the group is for.

use crate::disk::{Disk, DiskObservation, QueueDiscipline};
use crate::geometry::{DiskParameters, Geometry, ParameterError};
use crate::layout::{DiskPart, Layout, WritePlan};
use forebay_units::{ByteRange, Nanos, mix64};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use thiserror::Error;

/// The number that pairs a request with its completion; chosen by who submits, unique among its outstanding ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskRequestId(pub u64);

/// What is asked of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskRequestKind {
    /// Bytes from the media.
    Read,
    /// Bytes to the media.
    Write,
}

/// A request to a group, in the group's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// Pairs it with its completion.
    pub id: DiskRequestId,
    /// What is asked. Without redundancy and buffers, reads and writes take the same time.
    pub kind: DiskRequestKind,
    /// Which bytes. An empty range completes at once.
    pub range: ByteRange,
}

/// A request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCompletion {
    /// The request's number.
    pub id: DiskRequestId,
    /// When the last of its parts was done.
    pub at: Nanos,
}

/// Why a request was not accepted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many requests as allowed are outstanding: try again after a completion.
    #[error("the device holds its maximum of {outstanding_max} outstanding requests")]
    Full {
        /// The maximum.
        outstanding_max: usize,
    },
    /// The range passes the end of the device.
    #[error("bytes {offset}+{length} pass the end of the device at {capacity_bytes}")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The device's size.
        capacity_bytes: u64,
    },
}

/// Whether a device of `capacity_bytes` with so many requests `outstanding` accepts one of `range`.
pub(crate) fn admit(
    range: ByteRange,
    capacity_bytes: u64,
    outstanding: usize,
    outstanding_max: usize,
) -> Result<(), SubmitError> {
    let ByteRange { offset, length } = range;
    if offset.checked_add(length).is_none_or(|end| end > capacity_bytes) {
        return Err(SubmitError::OutOfRange { offset, length, capacity_bytes });
    }
    if outstanding >= outstanding_max {
        return Err(SubmitError::Full { outstanding_max });
    }
    Ok(())
}

/// What makes a group.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskGroupParameters {
    /// Disks, 1 to 1,024; all alike. Their platters stand at different angles, which follow from the index.
    pub spindles: u32,
    /// Consecutive bytes on one spindle, at least 512; 64 KiB by default (ours).
    pub stripe_unit_bytes: u64,
    /// How addresses are spread, and with which redundancy.
    pub layout: Layout,
    /// What each disk is.
    pub disk: DiskParameters,
    /// Which waiting request a disk serves next; first in first out by default.
    pub discipline: QueueDiscipline,
    /// How many waiting requests a disk may choose among, at least 1; 32 by default, as in SATA's queue.
    pub queue_depth: usize,
    /// Requests outstanding in the group, at least 1; 4,096 by default (ours). Above it, [`SubmitError::Full`].
    pub outstanding_max: usize,
}

impl DiskGroupParameters {
    /// A striped group of `spindles` such disks with the defaults of the fields.
    pub fn striped(spindles: u32, disk: DiskParameters) -> DiskGroupParameters {
        DiskGroupParameters {
            spindles,
            stripe_unit_bytes: 64 << 10,
            layout: Layout::Striped,
            disk,
            discipline: QueueDiscipline::Fifo,
            queue_depth: 32,
            outstanding_max: 4096,
        }
    }
}

/// What a group has done; differences of two observations describe the time between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskGroupObservation {
    /// The instant of the observation.
    pub at: Nanos,
    /// Requests accepted and not completed.
    pub outstanding: u64,
    /// Per spindle.
    pub spindles: Vec<DiskObservation>,
}

impl DiskGroupObservation {
    /// The mean share of time, 0 to 1, that the spindles were busy since `earlier`; 0 where no time has passed.
    pub fn utilisation_since(&self, earlier: &DiskGroupObservation) -> f64 {
        let span = self.at.saturating_since(earlier.at).as_secs_f64() * self.spindles.len() as f64;
        let busy: f64 = self
            .spindles
            .iter()
            .zip(&earlier.spindles)
            .map(|(late, early)| late.busy.saturating_since(early.busy).as_secs_f64())
            .sum();
        if span > 0.0 { (busy / span).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// A request, or a step of one that takes several.
#[derive(Clone, Debug)]
struct Outstanding {
    of: Whole,
    /// Parts at disks, or for a request of several steps: its steps.
    left: u32,
    /// The writes that follow when all reads of this step are done.
    then: Vec<DiskPart>,
}

#[derive(Clone, Copy, Debug)]
enum Whole {
    Request(DiskRequestId),
    /// A step of the entry with this token.
    Step(usize),
}

/// Spindles behind one address space.
///
/// Rows of parity are not locked: two small writes in one row at once take as long as in two rows (ours).
///
/// Driven by who owns it: [`DiskGroup::submit`] adds a request, [`DiskGroup::next_event`] says when
/// [`DiskGroup::advance`] has something to do. Everything is deterministic: events at the same instant are taken in
/// order of spindle, and what was submitted at an instant before `advance` was called for it takes part in it.
#[derive(Clone, Debug)]
pub struct DiskGroup {
    parameters: DiskGroupParameters,
    capacity_bytes: u64,
    disks: Vec<Disk>,
    /// Requests accepted and not completed, and steps of them, by the token that their parts carry.
    outstanding: Vec<Option<Outstanding>>,
    tokens_free: Vec<usize>,
    accepted: usize,
    /// At most one entry per spindle: its next event.
    events: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Requests without parts, with their instants: they complete with the next advance.
    immediate: Vec<DiskCompletion>,
    clock: Nanos,
    parts: Vec<DiskPart>,
    plan: WritePlan,
}

impl DiskGroup {
    /// A group at rest at time zero.
    ///
    /// # Errors
    /// [`ParameterError`] names the parameter that is out of its range.
    pub fn new(parameters: DiskGroupParameters) -> Result<DiskGroup, ParameterError> {
        if !(1..=1024).contains(&parameters.spindles) {
            return Err(ParameterError::new("spindles", parameters.spindles, "from 1 to 1024"));
        }
        if let Err(expected) = parameters.layout.check(parameters.spindles) {
            return Err(ParameterError::new("spindles", parameters.spindles, expected));
        }
        if parameters.stripe_unit_bytes < 512 || parameters.stripe_unit_bytes > parameters.disk.capacity_bytes
        {
            return Err(ParameterError::new(
                "stripe_unit_bytes",
                parameters.stripe_unit_bytes,
                "at least 512 and at most a disk's capacity",
            ));
        }
        if parameters.outstanding_max == 0 {
            return Err(ParameterError::new("outstanding_max", 0, "at least 1"));
        }
        let geometry = Arc::new(Geometry::new(parameters.disk.clone())?);
        let disks = (0..parameters.spindles)
            .map(|index| {
                // Platters of different disks are not in step; which angle is fixed per index, so that runs repeat.
                let phase = mix64(u64::from(index)) % parameters.disk.rotation.0.max(1);
                Disk::of(Arc::clone(&geometry), parameters.discipline, parameters.queue_depth, phase)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let units_per_disk = parameters.disk.capacity_bytes / parameters.stripe_unit_bytes;
        let capacity_bytes = units_per_disk
            .checked_mul(parameters.stripe_unit_bytes)
            .and_then(|bytes| {
                bytes.checked_mul(u64::from(parameters.layout.data_spindles(parameters.spindles)))
            })
            .ok_or_else(|| {
                ParameterError::new(
                    "capacity_bytes",
                    parameters.disk.capacity_bytes,
                    "a group below 2^64 bytes",
                )
            })?;
        Ok(DiskGroup {
            parameters,
            capacity_bytes,
            disks,
            outstanding: Vec::new(),
            tokens_free: Vec::new(),
            accepted: 0,
            events: BinaryHeap::new(),
            immediate: Vec::new(),
            clock: Nanos::ZERO,
            parts: Vec::new(),
            plan: WritePlan::default(),
        })
    }

    /// What the group is made of.
    pub fn parameters(&self) -> &DiskGroupParameters {
        &self.parameters
    }

    /// The size of the address space: whole stripe units of all disks, less what redundancy takes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Requests accepted and not completed.
    pub fn outstanding(&self) -> usize {
        self.accepted + self.immediate.len()
    }

    /// Accepts a request that arrives at `now`; an instant before the latest one told counts as that one.
    ///
    /// Its completion comes from an [`DiskGroup::advance`], never from here. Cost is linear in the spindles touched.
    ///
    /// # Errors
    /// [`SubmitError::Full`] at the maximum of outstanding requests, [`SubmitError::OutOfRange`] beyond the end.
    pub fn submit(&mut self, now: Nanos, request: DiskRequest) -> Result<(), SubmitError> {
        if now > self.clock {
            self.catch_up(now);
            self.clock = now;
        }
        let range = request.range;
        admit(range, self.capacity_bytes, self.outstanding(), self.parameters.outstanding_max)?;
        if range.length == 0 {
            self.immediate.push(DiskCompletion { id: request.id, at: self.clock });
            return Ok(());
        }
        self.accepted += 1;
        match request.kind {
            DiskRequestKind::Read => self.read(request.id, range),
            DiskRequestKind::Write => self.write(request.id, range),
        }
        Ok(())
    }

    /// With redundancy, what is sent depends on what happened before: takes what is due before `now`. What completes
    /// comes from the next [`DiskGroup::advance`].
    fn catch_up(&mut self, now: Nanos) {
        if self.parameters.layout != Layout::Striped
            && self.events.peek().is_some_and(|first| first.0.0 < now)
        {
            let mut due = std::mem::take(&mut self.immediate);
            self.take_events(Nanos(now.0 - 1), &mut due);
            self.immediate = due;
        }
    }

    fn read(&mut self, id: DiskRequestId, range: ByteRange) {
        let DiskGroupParameters { layout, spindles, stripe_unit_bytes, .. } = self.parameters;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        layout.split(spindles, stripe_unit_bytes, range, &mut parts);
        if layout == Layout::Mirrored {
            for part in &mut parts {
                let (first, second) =
                    (&self.disks[part.spindle as usize], &self.disks[part.spindle as usize + 1]);
                let cost = |disk: &Disk| (disk.queue_length(), disk.distance(part.range.offset));
                part.spindle += u32::from(cost(second) < cost(first));
            }
        }
        let token = self.enter(Whole::Request(id), parts.len() as u32);
        self.send(token, DiskRequestKind::Read, &parts);
        self.parts = parts;
    }

    fn write(&mut self, id: DiskRequestId, range: ByteRange) {
        let mut plan = std::mem::take(&mut self.plan);
        self.parameters.layout.plan_write(
            self.parameters.spindles,
            self.parameters.stripe_unit_bytes,
            range,
            &mut plan,
        );
        let whole = match plan.steps.len() {
            1 => Whole::Request(id),
            steps => Whole::Step(self.enter(Whole::Request(id), steps as u32)),
        };
        let mut from = 0;
        for &(reads, writes) in &plan.steps {
            let (read, write) = plan.parts[from..][..(reads + writes) as usize].split_at(reads as usize);
            from += (reads + writes) as usize;
            if reads == 0 {
                let token = self.enter(whole, writes);
                self.send(token, DiskRequestKind::Write, write);
            } else {
                let token = self.enter(whole, reads);
                self.outstanding[token].as_mut().expect("it was entered").then.extend_from_slice(write);
                self.send(token, DiskRequestKind::Read, read);
            }
        }
        self.plan = plan;
    }

    fn enter(&mut self, of: Whole, left: u32) -> usize {
        let token = self.tokens_free.pop().unwrap_or_else(|| {
            self.outstanding.push(None);
            self.outstanding.len() - 1
        });
        self.outstanding[token] = Some(Outstanding { of, left, then: Vec::new() });
        token
    }

    /// Hands `parts` to their disks.
    fn send(&mut self, token: usize, kind: DiskRequestKind, parts: &[DiskPart]) {
        for part in parts {
            let disk = &mut self.disks[part.spindle as usize];
            let was_idle = disk.next_event().is_none();
            disk.submit(self.clock, token as u64, kind, part.range);
            if was_idle {
                let at = disk.next_event().expect("a disk with a request has an event");
                self.events.push(Reverse((at, part.spindle)));
            }
        }
    }

    /// When [`DiskGroup::advance`] has something to do next; `None` for a group at rest.
    pub fn next_event(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        let immediate = self.immediate.first().map(|completion| completion.at);
        match (event, immediate) {
            (Some(event), Some(immediate)) => Some(event.min(immediate)),
            (event, immediate) => event.or(immediate),
        }
    }

    /// Lets time pass until `now`, taking everything that is due, and adds what completed to `completions`, in order
    /// of time. Cost is logarithmic in the spindles per event.
    pub fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        self.clock = self.clock.max(now);
        let first_new = completions.len();
        completions.append(&mut self.immediate);
        let merged = completions.len() > first_new;
        self.take_events(self.clock, completions);
        if merged {
            completions[first_new..].sort_by_key(|completion| completion.at);
        }
    }

    /// Takes every event until `now`.
    fn take_events(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        while let Some(&Reverse((at, spindle))) = self.events.peek() {
            if at > now {
                break;
            }
            let disk = &mut self.disks[spindle as usize];
            let done = disk.step();
            match (disk.next_event(), self.events.peek_mut()) {
                (Some(next), Some(mut first)) => *first = Reverse((next, spindle)),
                (_, first) => drop(first.map(PeekMut::pop)),
            }
            if let Some(token) = done {
                self.part_done(token as usize, at, completions);
            }
        }
    }

    fn part_done(&mut self, token: usize, at: Nanos, completions: &mut Vec<DiskCompletion>) {
        let entry = self.outstanding[token].as_mut().expect("a part belongs to an outstanding request");
        entry.left -= 1;
        if entry.left > 0 {
            return;
        }
        if !entry.then.is_empty() {
            let parts = std::mem::take(&mut entry.then);
            entry.left = parts.len() as u32;
            // The instant of the last read, not that until which time was told.
            let told = std::mem::replace(&mut self.clock, at);
            self.send(token, DiskRequestKind::Write, &parts);
            self.clock = told;
            return;
        }
        let of = entry.of;
        self.outstanding[token] = None;
        self.tokens_free.push(token);
        match of {
            Whole::Request(id) => {
                self.accepted -= 1;
                completions.push(DiskCompletion { id, at });
            }
            Whole::Step(request) => self.part_done(request, at, completions),
        }
    }

    /// What the group has done until `now`, which must not lie before the latest instant told.
    pub fn observe(&self, now: Nanos) -> DiskGroupObservation {
        DiskGroupObservation {
            at: now.max(self.clock),
            outstanding: self.outstanding() as u64,
            spindles: self.disks.iter().map(|disk| disk.observe(now.max(self.clock))).collect(),
        }
    }
}
