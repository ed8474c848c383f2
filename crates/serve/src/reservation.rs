//! The book of reservations: promises for a while, made while the daemon runs, as in "20,000 requests/s on these two volumes for 40 minutes".
//!
//! While one stands, its objectives are judged and served beside those of the configuration; it ends by itself. Where a file is configured, what
//! stands and what is to come outlasts a restart. Not here: what they promise each volume, and what is done to keep it, which are the controller's.
//! Invariant: what was answered as made is in the file, where there is one, before it is answered.
//! Source: SANCache's goals by API.

use crate::clock::{ClockWatch, Moment};
use crate::config::VolumeConfig;
use crate::kept;
use forebay_control::{Objective, Reserved};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Reservations at once.
pub const RESERVATIONS_MAX: usize = 64;
/// How far ahead one may reach.
const AHEAD_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Names the layout of the file.
const SCHEMA: &str = "forebay.reservations/1";

/// What somebody asks for; the body of `POST /api/v1/reservations`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    /// For which volumes.
    pub volumes: Vec<String>,
    /// Requests per second of all of them together; each is promised an equal part.
    #[serde(default)]
    pub iops: Option<f64>,
    /// Mean latency of the requests of each, in seconds.
    #[serde(default)]
    pub latency_s: Option<f64>,
    /// How long it stands.
    pub duration_s: f64,
    /// When it begins, milliseconds since 1970; at once unless set.
    #[serde(default)]
    pub from_unix_ms: Option<i64>,
    /// How much a violation weighs against that of other objectives of its priority; 1 unless set.
    #[serde(default)]
    pub weight: Option<f64>,
    /// Objectives of a higher priority are served first; 1 unless set, above those of the configuration.
    #[serde(default)]
    pub priority: Option<u8>,
}

/// A reservation that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its number, by which it is cancelled.
    pub id: u64,
    /// For which volumes.
    pub volumes: Vec<String>,
    /// Requests per second of all of them together.
    pub iops: Option<f64>,
    /// Mean latency of the requests of each, in seconds.
    pub latency_s: Option<f64>,
    /// When it begins, milliseconds since 1970.
    pub from_unix_ms: i64,
    /// When it ends.
    pub until_unix_ms: i64,
    /// How much a violation weighs.
    pub weight: f64,
    /// Objectives of a higher priority are served first.
    pub priority: u8,
}

impl Reservation {
    /// Whether it stands at `at_unix_ms`.
    pub fn is_active(&self, at_unix_ms: i64) -> bool {
        (self.from_unix_ms..self.until_unix_ms).contains(&at_unix_ms)
    }

    /// What it promises each of its volumes, judged over `window`.
    pub fn objectives(&self, window: Nanos) -> impl Iterator<Item = Objective> {
        let latency = self.latency_s.map(Nanos::from_secs_f64);
        let reserved = Reserved { iops: self.iops, latency, weight: self.weight, priority: self.priority };
        reserved.objectives(self.volumes.len(), window)
    }
}

/// Why a reservation is not made or cancelled.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// A field cannot be what it is.
    #[error("`{field}` is {found}, expected {expected}")]
    Refused {
        /// Which.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// There are as many as there may be.
    #[error(
        "there are {RESERVATIONS_MAX} reservations, and no more at once: cancel one, or wait until one ends"
    )]
    Full,
    /// None has this number.
    #[error("there is no reservation {id}")]
    Unknown {
        /// The number.
        id: u64,
    },
    /// It could not be kept, and so was not made.
    #[error("the file of reservations `{path}` cannot be {verb}: {reason}")]
    NotKept {
        /// Where.
        path: String,
        /// `read` or `written`.
        verb: &'static str,
        /// Why.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: String,
    next: u64,
    reservations: Vec<Reservation>,
}

/// All reservations that stand or are to come.
#[derive(Debug)]
pub(crate) struct ReservationBook {
    /// In the order in which they were made.
    reservations: Vec<Reservation>,
    next: u64,
    file: Option<PathBuf>,
    /// Why nothing can be kept. A file that is not understood is not overwritten.
    trouble: Option<ReservationError>,
    /// The file tells of some that have ended.
    tells_too_many: bool,
    clock: ClockWatch,
}

impl ReservationBook {
    /// Those that `file` keeps, without what has ended and without volumes that are no longer in `volumes`.
    pub(crate) fn open(file: Option<PathBuf>, volumes: &[VolumeConfig], now_unix_ms: i64) -> ReservationBook {
        let mut book = ReservationBook {
            reservations: Vec::new(),
            next: 1,
            file,
            trouble: None,
            tells_too_many: false,
            clock: ClockWatch::default(),
        };
        let Some(path) = &book.file else { return book };
        match read(path) {
            Ok(None) => {}
            Ok(Some(kept)) => {
                book.next = kept.next;
                book.reservations = kept.reservations;
                for reservation in &mut book.reservations {
                    let known = |name: &String| volumes.iter().any(|volume| volume.name == *name);
                    if let Some(gone) = reservation.volumes.iter().find(|name| !known(name)) {
                        let id = reservation.id;
                        tracing::error!(
                            id,
                            volume = gone,
                            "a reservation is ended: a volume of it is no longer configured"
                        );
                        reservation.until_unix_ms = i64::MIN;
                    }
                }
                book.end(now_unix_ms);
            }
            Err(reason) => {
                let path = path.display().to_string();
                let error = ReservationError::NotKept { path, verb: "read", reason };
                tracing::error!(%error, "no reservation stands, and none can be made");
                book.trouble = Some(error);
            }
        }
        book
    }

    /// Makes a reservation.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing has changed then.
    pub(crate) fn make(
        &mut self,
        request: ReservationRequest,
        volumes: &[VolumeConfig],
        now_unix_ms: i64,
    ) -> Result<Reservation, ReservationError> {
        let reservation = checked(request, volumes, now_unix_ms, self.next)?;
        self.end(now_unix_ms);
        if self.reservations.len() >= RESERVATIONS_MAX {
            return Err(ReservationError::Full);
        }
        self.reservations.push(reservation.clone());
        self.next += 1;
        if let Err(error) = self.keep() {
            self.reservations.pop();
            self.next -= 1;
            return Err(error);
        }
        Ok(reservation)
    }

    /// Ends a reservation before its time; what it was.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing has changed then.
    pub(crate) fn cancel(&mut self, id: u64) -> Result<Reservation, ReservationError> {
        let at = self.reservations.iter().position(|reservation| reservation.id == id);
        let at = at.ok_or(ReservationError::Unknown { id })?;
        let cancelled = self.reservations.remove(at);
        if let Err(error) = self.keep() {
            self.reservations.insert(at, cancelled);
            return Err(error);
        }
        Ok(cancelled)
    }

    /// Looks whether the wall clock was set. What stands was made for a span of time, and keeps what is left of it; what is to come stays at the time of day
    /// that it was made for.
    pub(crate) fn look(&mut self, now: Moment) {
        let Some(step_ms) = self.clock.tell(now) else { return };
        let before = now.unix_ms.saturating_sub(step_ms);
        // What ended since the last look does not stand again where the clock goes back.
        self.end(before);
        let mut has_moved = false;
        for reservation in self.reservations.iter_mut().filter(|reservation| reservation.is_active(before)) {
            reservation.from_unix_ms = reservation.from_unix_ms.saturating_add(step_ms);
            reservation.until_unix_ms = reservation.until_unix_ms.saturating_add(step_ms);
            has_moved = true;
        }
        // By the clock of now, what has ended may be to end yet: it would stand again after a restart.
        if (has_moved || self.tells_too_many)
            && let Err(error) = self.keep()
        {
            tracing::error!(%error, "the file of reservations tells of them as they were before the wall clock was set");
        }
    }

    /// How often the wall clock was set.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.clock.steps()
    }

    /// Forgets those that have ended. The file follows with the next change, or when the wall clock is set: until then what has ended in it is not read.
    pub(crate) fn end(&mut self, now_unix_ms: i64) {
        self.reservations.retain(|reservation| {
            let stands = now_unix_ms < reservation.until_unix_ms;
            if !stands {
                tracing::info!(id = reservation.id, "a reservation has ended");
                self.tells_too_many = true;
            }
            stands
        });
    }

    /// Those that stand and those to come, in the order in which they were made.
    pub(crate) fn all(&self) -> &[Reservation] {
        &self.reservations
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.as_ref().map(ToString::to_string)
    }

    /// Whether they outlast a restart.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some() && self.trouble.is_none()
    }

    /// Writes all of them beside the file, and puts that in its place.
    fn keep(&mut self) -> Result<(), ReservationError> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let Some(path) = &self.file else { return Ok(()) };
        let kept =
            Kept { schema: SCHEMA.to_owned(), next: self.next, reservations: self.reservations.clone() };
        kept::replace(path, &kept).map_err(|error| {
            let path = path.display().to_string();
            ReservationError::NotKept { path, verb: "written", reason: error.to_string() }
        })?;
        self.tells_too_many = false;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Kept>, String> {
    match kept::read::<Kept>(path)? {
        Some(kept) if kept.schema != SCHEMA => {
            Err(format!("found layout `{}`, expected `{SCHEMA}`", kept.schema))
        }
        kept => Ok(kept),
    }
}

fn checked(
    request: ReservationRequest,
    volumes: &[VolumeConfig],
    now_unix_ms: i64,
    id: u64,
) -> Result<Reservation, ReservationError> {
    let refusal = |field, found: String, expected: &str| ReservationError::Refused {
        field,
        found,
        expected: expected.to_owned(),
    };
    let refused = |field, found, expected: &str| Err(refusal(field, found, expected));
    if request.volumes.is_empty() {
        return refused("volumes", "empty".to_owned(), "at least one volume");
    }
    for (at, name) in request.volumes.iter().enumerate() {
        if !volumes.iter().any(|volume| volume.name == *name) {
            let names: Vec<String> = volumes.iter().map(|volume| format!("`{}`", volume.name)).collect();
            return refused("volumes", format!("`{name}`"), &format!("one of {}", names.join(", ")));
        }
        if request.volumes[..at].contains(name) {
            return refused("volumes", format!("`{name}` twice"), "each volume once");
        }
    }
    if request.iops.is_none() && request.latency_s.is_none() {
        return refused("iops", "absent, and so is `latency_s`".to_owned(), "one of them, or both");
    }
    let within = |field, value: Option<f64>, least: f64, most: f64| match value {
        Some(value) if !(value >= least && value <= most) => {
            Err(refusal(field, value.to_string(), &format!("a number from {least} to {most}")))
        }
        _ => Ok(()),
    };
    // NaN is refused with the rest.
    within("iops", request.iops, 0.001, 1e9)?;
    within("latency_s", request.latency_s, 1e-6, 3_600.0)?;
    within("weight", request.weight, 1e-6, 1e6)?;
    within("duration_s", Some(request.duration_s), 1.0, AHEAD_MAX.as_secs_f64())?;
    let ahead_ms = AHEAD_MAX.as_millis() as i64;
    let from_unix_ms = request.from_unix_ms.unwrap_or(now_unix_ms);
    if from_unix_ms > now_unix_ms.saturating_add(ahead_ms) {
        return refused("from_unix_ms", from_unix_ms.to_string(), "at most a year ahead");
    }
    let until_unix_ms = from_unix_ms.saturating_add((request.duration_s * 1e3) as i64);
    if until_unix_ms <= now_unix_ms {
        return refused("from_unix_ms", from_unix_ms.to_string(), "a time at which it has not ended yet");
    }
    Ok(Reservation {
        id,
        volumes: request.volumes,
        iops: request.iops,
        latency_s: request.latency_s,
        from_unix_ms,
        until_unix_ms,
        weight: request.weight.unwrap_or(Reserved::WEIGHT),
        priority: request.priority.unwrap_or(Reserved::PRIORITY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OriginConfig;
    use forebay_units::Bytes;

    const NOW: i64 = 1_000_000;

    fn volumes() -> Vec<VolumeConfig> {
        ["a", "b"].map(|name| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) })).to_vec()
    }

    fn request() -> ReservationRequest {
        ReservationRequest {
            volumes: vec!["a".to_owned(), "b".to_owned()],
            iops: Some(20_000.0),
            latency_s: Some(0.005),
            duration_s: 2_400.0,
            from_unix_ms: None,
            weight: None,
            priority: None,
        }
    }

    #[test]
    fn what_has_ended_does_not_stand_again_when_the_clock_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        for has_looked in [false, true] {
            let file = Some(folder.path().join(format!("{has_looked}.json")));
            let mut book = ReservationBook::open(file.clone(), &volumes(), NOW);
            book.look(Moment { unix_ms: NOW, running_ms: 0 });
            book.make(ReservationRequest { duration_s: 10.0, ..request() }, &volumes(), NOW).unwrap();
            if has_looked {
                book.end(NOW + 12_000);
            }
            // Five seconds after its end, an hour back.
            let now = NOW + 15_000 - 3_600_000;
            book.look(Moment { unix_ms: now, running_ms: 15_000 });
            book.end(now);
            assert_eq!(book.all(), []);
            // Nor after a restart.
            assert_eq!(ReservationBook::open(file, &volumes(), now).all(), []);
        }
    }

    #[test]
    fn a_clock_that_is_set_ends_no_span_early_and_moves_no_appointment() {
        let folder = tempfile::tempdir().unwrap();
        let file = Some(folder.path().join("reservations.json"));
        let mut book = ReservationBook::open(file.clone(), &volumes(), NOW);
        let mut running_ms = 0;
        let mut at = |book: &mut ReservationBook, unix_ms| {
            running_ms += 1_000;
            book.look(Moment { unix_ms, running_ms });
            book.end(unix_ms);
            book.all().iter().map(|r| (r.from_unix_ms - NOW, r.until_unix_ms - NOW)).collect::<Vec<_>>()
        };
        assert_eq!(at(&mut book, NOW), []);
        book.make(request(), &volumes(), NOW).unwrap();
        let later = ReservationRequest { from_unix_ms: Some(NOW + 5_000_000), ..request() };
        book.make(later, &volumes(), NOW).unwrap();
        assert_eq!(at(&mut book, NOW + 1_000), [(0, 2_400_000), (5_000_000, 7_400_000)]);
        // An hour forward, behind its end.
        let moved = [(3_600_000, 6_000_000), (5_000_000, 7_400_000)];
        assert_eq!(at(&mut book, NOW + 3_602_000), moved);
        assert_eq!(ReservationBook::open(file, &volumes(), NOW + 3_602_000).all().len(), 2);
        // Two hours back: the first has 2,397 s left, the second is later than ever.
        let moved = [(-3_600_000, -1_200_000), (5_000_000, 7_400_000)];
        assert_eq!(at(&mut book, NOW - 3_597_000), moved);
        assert_eq!(book.clock_steps(), 2);
        assert_eq!(at(&mut book, NOW - 3_596_000), moved);
    }

    #[test]
    fn a_rate_is_shared_out_and_a_latency_is_everybodys() {
        let mut book = ReservationBook::open(None, &volumes(), NOW);
        let made = book.make(request(), &volumes(), NOW).unwrap();
        assert_eq!((made.id, made.until_unix_ms, made.priority), (1, NOW + 2_400_000, 1));
        let objectives: Vec<String> = made
            .objectives(Nanos::secs(20))
            .map(|objective| format!("{objective} over {}", objective.window))
            .collect();
        assert_eq!(objectives.len(), 2);
        assert!(objectives[0].contains("10000") && objectives[0].ends_with("over 20s"), "{objectives:?}");
        assert!(objectives[1].contains("5ms"), "{objectives:?}");
        // It stands from its first to before its last millisecond.
        let stands = [NOW - 1, NOW, NOW + 2_399_999, NOW + 2_400_000].map(|at| made.is_active(at));
        assert_eq!(stands, [false, true, true, false]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        type Change = fn(&mut ReservationRequest);
        let cases: [(Change, &str); 15] = [
            (|r| r.volumes.clear(), "volumes"),
            (|r| r.volumes.push("c".to_owned()), "volumes"),
            (|r| r.volumes.push("a".to_owned()), "volumes"),
            (|r| (r.iops, r.latency_s) = (None, None), "iops"),
            (|r| r.iops = Some(0.0), "iops"),
            (|r| r.iops = Some(f64::NAN), "iops"),
            (|r| r.iops = Some(1e10), "iops"),
            (|r| r.latency_s = Some(-1.0), "latency_s"),
            (|r| r.weight = Some(0.0), "weight"),
            (|r| r.duration_s = 0.0, "duration_s"),
            (|r| r.duration_s = f64::INFINITY, "duration_s"),
            (|r| r.duration_s = 1e18, "duration_s"),
            (|r| r.from_unix_ms = Some(i64::MAX), "from_unix_ms"),
            (|r| r.from_unix_ms = Some(i64::MIN), "from_unix_ms"),
            (|r| r.from_unix_ms = Some(NOW - 2_400_000), "from_unix_ms"),
        ];
        let mut book = ReservationBook::open(None, &volumes(), NOW);
        for (change, expected) in cases {
            let mut request = request();
            change(&mut request);
            match book.make(request, &volumes(), NOW) {
                Err(ReservationError::Refused { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        assert!(book.all().is_empty());
        assert_eq!(book.cancel(7), Err(ReservationError::Unknown { id: 7 }));
    }

    #[test]
    fn what_cannot_be_kept_is_neither_made_nor_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reservations.json");
        let mut book = ReservationBook::open(Some(path), &volumes(), NOW);
        let made: Vec<Reservation> = (0..2).map(|_| book.make(request(), &volumes(), NOW).unwrap()).collect();
        std::fs::create_dir(folder.path().join("reservations.json.new")).unwrap();
        let refused = [book.make(request(), &volumes(), NOW), book.cancel(made[0].id)];
        for refused in refused {
            assert!(matches!(refused, Err(ReservationError::NotKept { .. })), "{refused:?}");
        }
        assert_eq!(book.all(), made);
    }

    #[test]
    fn weight_priority_and_the_beginning_are_those_that_were_asked_for() {
        let mut book = ReservationBook::open(None, &volumes(), NOW);
        let mut made = |request| {
            let made = book.make(request, &volumes(), NOW).unwrap();
            (made.weight, made.priority, made.from_unix_ms, made.until_unix_ms)
        };
        // It may have begun before it is made, and ends by when it began.
        let from_unix_ms = Some(NOW - 1_000_000);
        let asked = ReservationRequest { weight: Some(2.5), priority: Some(7), from_unix_ms, ..request() };
        assert_eq!(made(asked), (2.5, 7, NOW - 1_000_000, NOW + 1_400_000));
        assert_eq!(made(request()), (1.0, 1, NOW, NOW + 2_400_000));
    }

    #[test]
    fn there_is_a_maximum_and_the_end_makes_room() {
        let mut book = ReservationBook::open(None, &volumes(), NOW);
        (0..RESERVATIONS_MAX).for_each(|_| drop(book.make(request(), &volumes(), NOW).unwrap()));
        assert_eq!(book.make(request(), &volumes(), NOW), Err(ReservationError::Full));
        assert_eq!(book.make(request(), &volumes(), NOW + 2_400_000).unwrap().id, 65);
        assert_eq!(book.all().len(), 1);
    }

    #[test]
    fn the_file_outlasts_a_restart_and_a_strange_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reservations.json");
        let open = |now| ReservationBook::open(Some(path.clone()), &volumes(), now);
        let mut book = open(NOW);
        let later = ReservationRequest { from_unix_ms: Some(NOW + 5_000_000), ..request() };
        let (first, second) = (book.make(request(), &volumes(), NOW), book.make(later, &volumes(), NOW));
        let (first, second) = (first.unwrap(), second.unwrap());
        let third = book.make(request(), &volumes(), NOW).unwrap();
        book.cancel(third.id).unwrap();
        assert_eq!(open(NOW).all(), [first, second.clone()]);
        // The first has ended meanwhile; numbers are not used again.
        let mut book = open(NOW + 3_000_000);
        assert_eq!(book.all(), [second]);
        assert_eq!(book.make(request(), &volumes(), NOW + 3_000_000).unwrap().id, 4);
        // Without one of its volumes a reservation says something else than what was promised.
        assert!(ReservationBook::open(Some(path.clone()), &volumes()[..1], NOW).all().is_empty());
        std::fs::write(&path, "{}").unwrap();
        let mut book = open(NOW);
        assert!(!book.is_kept() && book.trouble().is_some());
        assert!(matches!(book.make(request(), &volumes(), NOW), Err(ReservationError::NotKept { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
    }
}
