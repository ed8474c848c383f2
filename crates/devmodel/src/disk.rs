//! One disk: a queue, a mechanism that serves one request at a time, and what it did with its time.

use crate::buffer::{Buffered, Segments};
use crate::geometry::{DiskParameters, Geometry, ParameterError, Place};
use crate::group::DiskRequestKind;
use forebay_units::{ByteRange, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;

/// Which of the waiting requests the disk serves next, among the oldest `queue_depth` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QueueDiscipline {
    /// The oldest.
    #[default]
    Fifo,
    /// The nearest at or above the head's address, else the lowest (C-LOOK): few long seeks.
    ///
    /// A request that it has passed over for longer than 128 turns goes first (ours), since the rule alone lets who reads
    /// on and on where the head is starve all others.
    CLook,
    /// The one that the head reaches first, seek and rotation together (shortest positioning time first).
    ///
    /// A request that it has passed over for longer than 128 turns goes first (ours), since the rule alone starves the far
    /// ones.
    ShortestPositioning,
}

/// Turns after which a request that may be chosen is, where the disk does not take the oldest anyway (ours). What waits
/// behind the queue depth is not passed over: under overload everything waits for long, and order counts most.
const TURNS_UNTIL_URGENT: u64 = 128;

/// What a disk has done; times only grow, so that the difference of two observations describes the time between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskObservation {
    /// Time in which the mechanism was busy, up to the instant of the observation.
    pub busy: Nanos,
    /// Time spent on seeks, of the requests begun.
    pub seek: Nanos,
    /// Time spent waiting for the platters, of the requests begun.
    pub rotation: Nanos,
    /// Time spent on transfers, of the requests begun.
    pub transfer: Nanos,
    /// Requests completed.
    pub completed: u64,
    /// Reads begun that the on-board cache answered, or whose bytes its read-ahead was just reading.
    pub buffered: u64,
    /// Bytes of the requests completed.
    pub bytes: u64,
    /// Requests waiting or in service now.
    pub queue_length: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    token: u64,
    writes: bool,
    range: ByteRange,
    ready: Nanos,
    /// Since when the discipline may choose it.
    among: Nanos,
}

#[derive(Clone, Debug)]
struct InService {
    token: u64,
    range: ByteRange,
    started: Nanos,
    done: Nanos,
}

/// A disk: accepts requests at any time, serves one at a time.
///
/// It is driven by who owns it: [`Disk::submit`] adds a request, [`Disk::next_event`] says when [`Disk::step`] is due.
/// Requests may be submitted before earlier steps are taken: a request is never served before its arrival plus the
/// command latency. The queue is bounded by the owner.
#[derive(Clone, Debug)]
pub struct Disk {
    geometry: Arc<Geometry>,
    discipline: QueueDiscipline,
    queue_depth: usize,
    phase: u64,
    waiting: VecDeque<Waiting>,
    in_service: Option<InService>,
    head_address: u64,
    head_cylinder: u64,
    segments: Option<Segments>,
    free_at: Nanos,
    busy_before: Nanos,
    totals: DiskObservation,
}

impl Disk {
    /// A disk at rest with the head over its first byte. `phase` is where the platters stand at time zero, in
    /// nanoseconds of a turn. `queue_depth` is how many waiting requests the discipline may choose among, at least 1.
    ///
    /// # Errors
    /// [`ParameterError`] names the parameter that is out of its range.
    pub fn new(
        parameters: DiskParameters,
        discipline: QueueDiscipline,
        queue_depth: usize,
        phase: u64,
    ) -> Result<Disk, ParameterError> {
        let geometry = Arc::new(Geometry::new(parameters)?);
        Disk::of(geometry, discipline, queue_depth, phase)
    }

    /// As [`Disk::new`], of a disk that is one of several alike.
    pub(crate) fn of(
        geometry: Arc<Geometry>,
        discipline: QueueDiscipline,
        queue_depth: usize,
        phase: u64,
    ) -> Result<Disk, ParameterError> {
        if queue_depth == 0 {
            return Err(ParameterError::new("queue_depth", 0, "at least 1"));
        }
        let (buffer, capacity_bytes) = (geometry.parameters().buffer, geometry.parameters().capacity_bytes);
        Ok(Disk {
            discipline,
            queue_depth,
            phase: phase % geometry.parameters().rotation.0.max(1),
            geometry,
            waiting: VecDeque::new(),
            in_service: None,
            head_address: 0,
            head_cylinder: 0,
            segments: (buffer.segments > 0).then(|| Segments::new(buffer, capacity_bytes)),
            free_at: Nanos::ZERO,
            busy_before: Nanos::ZERO,
            totals: DiskObservation::default(),
        })
    }

    /// What the disk is made of.
    pub fn parameters(&self) -> &DiskParameters {
        self.geometry.parameters()
    }

    /// Adds a request that arrives at `now`; `token` comes back with its completion. `now` must not lie before that
    /// of an earlier submission.
    pub fn submit(&mut self, now: Nanos, token: u64, kind: DiskRequestKind, range: ByteRange) {
        let ready = now.saturating_add(self.parameters().command_latency);
        let writes = kind == DiskRequestKind::Write;
        self.waiting.push_back(Waiting { token, writes, range, ready, among: ready });
        self.totals.queue_length += 1;
    }

    /// When [`Disk::step`] is due: a completion, or an idle disk's next start. `None` with nothing to do.
    pub fn next_event(&self) -> Option<Nanos> {
        match &self.in_service {
            Some(service) => Some(service.done),
            None => self.waiting.front().map(|first| first.ready.max(self.free_at)),
        }
    }

    /// Takes the step that [`Disk::next_event`] announced: completes the request in service, whose token it returns,
    /// or starts the next one. Does nothing when there is nothing to do.
    ///
    /// Cost is linear in the queue depth, constant for FIFO.
    pub fn step(&mut self) -> Option<u64> {
        let now = self.next_event()?;
        let mut completed = None;
        if let Some(service) = self.in_service.take() {
            self.totals.completed += 1;
            self.totals.bytes += service.range.length;
            self.totals.queue_length -= 1;
            self.busy_before += service.done - service.started;
            self.free_at = service.done;
            completed = Some(service.token);
        }
        if let Some(at) = self.segments.as_ref().and_then(|segments| segments.head(now)) {
            self.set_head(at, self.geometry.place(at).cylinder());
        }
        if let Some(index) = self.choose(now) {
            let next = self.waiting.remove(index).expect("the chosen request waits");
            if let Some(last) = self.waiting.get_mut(self.queue_depth - 1) {
                last.among = last.ready.max(now);
            }
            self.serve(now, &next);
        }
        completed
    }

    /// What the disk has done until `now`.
    pub fn observe(&self, now: Nanos) -> DiskObservation {
        let current = self
            .in_service
            .as_ref()
            .map_or(Nanos::ZERO, |service| now.min(service.done).saturating_since(service.started));
        DiskObservation { busy: self.busy_before + current, ..self.totals }
    }

    /// Requests waiting or in service.
    pub(crate) fn queue_length(&self) -> u64 {
        self.totals.queue_length
    }

    /// How far the heads are from the byte at `offset`, in cylinders.
    pub(crate) fn distance(&self, offset: u64) -> u64 {
        self.geometry.place(offset).cylinder().abs_diff(self.head_cylinder)
    }

    /// The heads stand before the byte at `address`, in that byte's cylinder: a sequential request needs no seek, since skew hides the step.
    fn set_head(&mut self, address: u64, cylinder: u64) {
        (self.head_address, self.head_cylinder) = (address, cylinder);
    }

    fn serve(&mut self, now: Nanos, request: &Waiting) {
        let done = self.end_buffered(now, request).unwrap_or_else(|| self.end_at_media(now, request));
        self.in_service = Some(InService { token: request.token, range: request.range, started: now, done });
    }

    /// When a read ends for which the heads need not move.
    fn end_buffered(&mut self, now: Nanos, request: &Waiting) -> Option<Nanos> {
        let segments = self.segments.as_mut().filter(|_| !request.writes)?;
        let found = segments.read(now, request.range);
        let buffer = self.geometry.parameters().buffer;
        let least = self.geometry.parameters().service_overhead + buffer.host_time(request.range.length);
        let done = match found {
            Buffered::Whole => now.saturating_add(least),
            Buffered::Coming(at) => at.max(now.saturating_add(least)),
            Buffered::No => return None,
        };
        self.totals.buffered += 1;
        self.totals.transfer += done - now;
        Some(done)
    }

    /// When a request ends that the heads serve from `now` on.
    fn end_at_media(&mut self, now: Nanos, request: &Waiting) -> Nanos {
        let place = self.geometry.place(request.range.offset);
        let (seek, rotation) = self.positioning(now, place);
        let transfer = place.transfer(request.range.length);
        let service = self.parameters().service_overhead + seek + rotation + transfer;
        self.totals.seek += seek;
        self.totals.rotation += rotation;
        self.totals.transfer += transfer;
        let (address, end) = (request.range.end(), place.after(request.range.length));
        let end = end.unwrap_or_else(|| self.geometry.place(address));
        let rate = end.rate();
        self.set_head(address, end.cylinder());
        let done = now.saturating_add(service);
        if let Some(segments) = &mut self.segments {
            segments.stop(now);
            if request.writes {
                segments.written(request.range);
            } else {
                segments.filled(done, request.range, rate);
            }
        }
        done
    }

    /// Seek, then the wait for the platters, for a service that starts at `now`.
    fn positioning(&self, now: Nanos, place: Place<'_>) -> (Nanos, Nanos) {
        let seek = self.geometry.seek(place.cylinder().abs_diff(self.head_cylinder));
        let there = now.saturating_add(self.parameters().service_overhead).saturating_add(seek);
        (seek, self.geometry.rotation_wait(there, place, self.phase))
    }

    /// The index of the request to serve from `now` on, if one is ready; ties go to the oldest.
    fn choose(&self, now: Nanos) -> Option<usize> {
        // Requests get ready in order of arrival, so that the ready ones are the first ones.
        let oldest = self.waiting.front().filter(|first| first.ready <= now)?;
        let ready = || {
            self.waiting.iter().take(self.queue_depth).take_while(|request| request.ready <= now).enumerate()
        };
        let limit = self.parameters().rotation.0.saturating_mul(TURNS_UNTIL_URGENT);
        if limit > 0 && now.saturating_since(oldest.among).0 > limit {
            return Some(0);
        }
        match self.discipline {
            QueueDiscipline::Fifo => Some(0),
            QueueDiscipline::CLook => ready()
                .min_by_key(|(_, request)| (request.range.offset < self.head_address, request.range.offset))
                .map(|(index, _)| index),
            QueueDiscipline::ShortestPositioning => ready()
                .min_by_key(|(_, request)| {
                    let (seek, rotation) = self.positioning(now, self.geometry.place(request.range.offset));
                    seek + rotation
                })
                .map(|(index, _)| index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::DiskBuffer;

    const READ: DiskRequestKind = DiskRequestKind::Read;

    fn simple(discipline: QueueDiscipline) -> Disk {
        // 300 cylinders of 1,000 bytes, seeks 1 ms to 3 ms, no rotation, no transfer.
        let parameters = DiskParameters {
            capacity_bytes: 300_000,
            cylinders: 300,
            seek_track: Nanos::millis(1),
            seek_average: Nanos::millis(2),
            seek_full: Nanos::millis(3),
            ..DiskParameters::fixed_service(300_000, Nanos::ZERO)
        };
        Disk::new(parameters, discipline, 32, 0).unwrap()
    }

    fn order(disk: &mut Disk) -> Vec<u64> {
        let mut tokens = Vec::new();
        while disk.next_event().is_some() {
            tokens.extend(disk.step());
        }
        tokens
    }

    #[test]
    fn disciplines_order_as_their_names_say() {
        // The head starts at 0; token 0 at 150,000 is served first, being alone when the disk is idle.
        let offsets = [150_000, 10_000, 200_000, 140_000, 160_000];
        for (discipline, expected) in [
            (QueueDiscipline::Fifo, [0, 1, 2, 3, 4]),
            // Upwards from 150,000: 160,000, 200,000; then from the lowest: 10,000, 140,000.
            (QueueDiscipline::CLook, [0, 4, 2, 1, 3]),
            // Nearest: 140,000 and 160,000 are 10 and 9 or 10 cylinders off; then 200,000; then 10,000.
            (QueueDiscipline::ShortestPositioning, [0, 3, 4, 2, 1]),
        ] {
            let mut disk = simple(discipline);
            disk.submit(Nanos::ZERO, 0, READ, ByteRange::new(offsets[0], 1));
            assert_eq!(disk.step(), None);
            for (token, offset) in offsets.iter().enumerate().skip(1) {
                disk.submit(Nanos(1), token as u64, READ, ByteRange::new(*offset, 1));
            }
            assert_eq!(order(&mut disk), expected, "{discipline:?}");
        }
    }

    #[test]
    fn who_reads_on_and_on_does_not_starve_others() {
        for discipline in [QueueDiscipline::CLook, QueueDiscipline::ShortestPositioning] {
            let parameters = DiskParameters::rpm_7200(1 << 40);
            let turn = parameters.rotation.0;
            let mut disk = Disk::new(parameters, discipline, 32, 0).unwrap();
            // Three reads from the beginning on, of which there is always a next one, and one in the middle.
            let read_on = |token: u64| ByteRange::new((token - 1) << 16, 1 << 16);
            (1..4).for_each(|token| disk.submit(Nanos::ZERO, token, READ, read_on(token)));
            disk.submit(Nanos::ZERO, 0, READ, ByteRange::new(1 << 39, 4_096));
            let (mut next, mut turns) = (4, 0);
            while let Some(at) = disk.next_event().filter(|_| turns < 1_000) {
                turns = at.0 / turn;
                match disk.step() {
                    Some(0) => break,
                    Some(_) => {
                        disk.submit(at, next, READ, read_on(next));
                        next += 1;
                    }
                    None => {}
                }
            }
            assert!((128..132).contains(&turns), "{discipline:?}: {turns}");
        }
    }

    #[test]
    fn a_request_waits_for_its_command_latency_but_not_behind_another() {
        let parameters = DiskParameters {
            command_latency: Nanos::millis(1),
            ..DiskParameters::fixed_service(1000, Nanos::millis(4))
        };
        let mut disk = Disk::new(parameters, QueueDiscipline::Fifo, 1, 0).unwrap();
        disk.submit(Nanos::ZERO, 7, READ, ByteRange::new(0, 1));
        disk.submit(Nanos::millis(2), 8, READ, ByteRange::new(0, 1));
        // Starts at 1, ends at 5; the second was ready at 3 and so runs from 5 to 9.
        assert_eq!(disk.next_event(), Some(Nanos::millis(1)));
        assert_eq!(disk.step(), None);
        assert_eq!(disk.observe(Nanos::millis(3)).busy, Nanos::millis(2));
        assert_eq!(disk.next_event(), Some(Nanos::millis(5)));
        assert_eq!(disk.step(), Some(7));
        assert_eq!(disk.next_event(), Some(Nanos::millis(9)));
        assert_eq!(disk.step(), Some(8));
        assert_eq!(disk.next_event(), None);
        assert_eq!(disk.observe(Nanos::millis(50)).busy, Nanos::millis(8));
    }

    #[test]
    fn a_sequential_stream_with_a_request_waiting_runs_at_the_media_rate() {
        // The next request is ready before the current one ends, so that no turn is lost between them.
        let mut parameters = DiskParameters::rpm_7200(1 << 30);
        parameters.zones = 1;
        parameters.rate_inner_bytes_s = parameters.rate_outer_bytes_s;
        let mut disk = Disk::new(parameters, QueueDiscipline::Fifo, 32, 0).unwrap();
        for token in 0..1000 {
            disk.submit(Nanos::ZERO, token, READ, ByteRange::new(token * 65_536, 65_536));
        }
        let mut end = Nanos::ZERO;
        while let Some(at) = disk.next_event() {
            end = at;
            disk.step();
        }
        let rate = 65_536_000.0 / end.as_secs_f64();
        // 65.5 MB at 210 MB/s take 312 ms; a first turn of at most 8.4 ms is lost, and none after it.
        assert!(rate > 0.97 * 210e6, "{rate}");
    }

    #[test]
    fn read_ahead_serves_a_stream_that_comes_one_at_a_time() {
        // Without a buffer each of these waits for most of a turn; with one, the media reads on meanwhile.
        let run = |buffer: DiskBuffer| {
            let mut parameters = DiskParameters::rpm_7200(1 << 30);
            parameters.zones = 1;
            parameters.rate_inner_bytes_s = parameters.rate_outer_bytes_s;
            parameters.buffer = buffer;
            let mut disk = Disk::new(parameters, QueueDiscipline::Fifo, 32, 0).unwrap();
            let mut now = Nanos::ZERO;
            for token in 0..1_000 {
                disk.submit(now, token, READ, ByteRange::new(token * 65_536, 65_536));
                while let Some(at) = disk.next_event() {
                    now = at;
                    disk.step();
                }
            }
            (65_536_000.0 / now.as_secs_f64(), disk.observe(now).buffered)
        };
        let (without, none) = run(DiskBuffer::default());
        let (with, buffered) = run(DiskBuffer::typical());
        assert_eq!((none, buffered), (0, 999));
        // 65,536 bytes a turn of 8.33 ms are 7.9 MB/s.
        assert!((7.5e6..8.0e6).contains(&without), "{without}");
        assert!(with > 0.97 * 210e6, "{with}");
    }

    #[test]
    fn a_write_drops_what_was_buffered() {
        // 1 ms overhead, no motion: every request from the media and from the buffer takes 1 ms, but only reads of what
        // is there count as buffered.
        let mut parameters = DiskParameters::fixed_service(1 << 20, Nanos::millis(1));
        parameters.buffer = DiskBuffer { read_ahead_bytes: 4_096, ..DiskBuffer::typical() };
        let mut disk = Disk::new(parameters, QueueDiscipline::Fifo, 32, 0).unwrap();
        let kinds = [(READ, 0), (READ, 4_096), (DiskRequestKind::Write, 4_096), (READ, 4_096), (READ, 0)];
        for (token, (kind, offset)) in kinds.into_iter().enumerate() {
            disk.submit(Nanos::ZERO, token as u64, kind, ByteRange::new(offset, 4_096));
        }
        assert_eq!(order(&mut disk), [0, 1, 2, 3, 4]);
        // The second comes from the first's read-ahead; the fourth not, after the write; the fifth does.
        assert_eq!(disk.observe(Nanos::secs(1)).buffered, 2);
    }
}
