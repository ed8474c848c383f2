//! An emulated disk group in real time: real bytes, modelled time, and neighbours that really get in each other's way.

use crate::image::{FileImage, Image, MemoryImage, check, wants_sync};
use crate::open_error::OpenError;
use crate::pending::{Counters, EBUSY, EINVAL, Pending};
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginError, OriginOperation, OriginRequest, OriginTraits};
use crate::statistics::{DeviceStatistics, OriginStatistics};
use forebay_devmodel::{
    Array, ArrayCache, DiskCompletion, DiskGroup, DiskGroupObservation, DiskGroupParameters, DiskRequest,
    DiskRequestId, DiskRequestKind, ParameterError, SubmitError,
};
use forebay_ring::Threads;
use forebay_units::{ByteRange, Nanos};
use std::collections::HashMap;
use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The last part of a wait is spun, since a sleeping thread is woken some 50 us late (ours).
const SPIN: Duration = Duration::from_micros(50);
/// A completion later than this counts as late (ours).
const LATE: Nanos = Nanos::millis(1);
/// Threads that force bytes to stable storage for all volumes of a group.
const SYNC_WORKERS: usize = 2;

/// What holds the bytes of a volume on an emulated disk group.
#[derive(Clone)]
pub enum VolumeBacking {
    /// A file or block device, locked while the volume exists.
    File {
        /// Where.
        path: PathBuf,
        /// Refuse every change.
        read_only: bool,
    },
    /// Memory; it may be filled and looked at from outside, without the modelled delays.
    Memory(Arc<MemoryImage>),
}

struct InFlight {
    pending: Pending,
    operation: OriginOperation,
    image: Arc<dyn Image>,
}

/// The model: disks alone, or behind an array's cache.
enum Model {
    Disks(Box<DiskGroup>),
    Array(Box<Array>),
}

impl Model {
    fn new(parameters: DiskGroupParameters, cache: Option<ArrayCache>) -> Result<Model, ParameterError> {
        Ok(match cache {
            None => Model::Disks(Box::new(DiskGroup::new(parameters)?)),
            Some(cache) => Model::Array(Box::new(Array::new(parameters, cache)?)),
        })
    }

    fn capacity_bytes(&self) -> u64 {
        match self {
            Model::Disks(group) => group.capacity_bytes(),
            Model::Array(array) => array.capacity_bytes(),
        }
    }

    /// What the disks have done, and how many requests wait for an answer.
    fn observe(&self, now: Nanos) -> DiskGroupObservation {
        match self {
            Model::Disks(group) => group.observe(now),
            Model::Array(array) => {
                let outstanding = array.outstanding() as u64;
                DiskGroupObservation { outstanding, ..array.observe(now).group }
            }
        }
    }

    fn submit(&mut self, now: Nanos, request: DiskRequest) -> Result<(), SubmitError> {
        match self {
            Model::Disks(group) => group.submit(now, request),
            Model::Array(array) => array.submit(now, request),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        match self {
            Model::Disks(group) => group.next_event(),
            Model::Array(array) => array.next_event(),
        }
    }

    fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        match self {
            Model::Disks(group) => group.advance(now, completions),
            Model::Array(array) => array.advance(now, completions),
        }
    }
}

struct State {
    group: Model,
    in_flight: HashMap<u64, InFlight>,
    next_id: u64,
    volumes: Vec<ByteRange>,
    stopping: bool,
}

/// How well time is kept; counted for each completion before it is made known.
#[derive(Default)]
struct Punctuality {
    completed: AtomicU64,
    late: AtomicU64,
    lateness_max: AtomicU64,
    lateness_total: AtomicU64,
}

impl Punctuality {
    fn count(&self, lateness: Nanos) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.late.fetch_add(u64::from(lateness > LATE), Ordering::Relaxed);
        self.lateness_max.fetch_max(lateness.0, Ordering::Relaxed);
        self.lateness_total.fetch_add(lateness.0, Ordering::Relaxed);
    }
}

struct Shared {
    started: Instant,
    state: Mutex<State>,
    punctuality: Punctuality,
    /// Told when something is due earlier than the timekeeper believes.
    earlier: Condvar,
}

impl Shared {
    fn now(&self) -> Nanos {
        Nanos::from(self.started.elapsed())
    }
}

/// An emulated disk group: one model, one thread that keeps its time, and the volumes on it.
///
/// A request takes as long as the model says. Its bytes are read or written at the modelled instant of its
/// completion, in the order of completions, so that a write that was never completed was never made. Disks have no
/// write cache, and an array's is taken for one that keeps its content: a completed write is safe. A flush, and the FUA flag, additionally force the backing
/// file to stable storage, on other threads; that takes what it takes.
///
/// Where the machine is too busy to complete on time, the delay is counted ([`DeviceStatistics::late`]); it does not add
/// up, since the model goes on from its own instants.
///
/// The maximum of requests in the group is [`DiskGroupParameters::outstanding_max`]; above it, `EBUSY`.
pub struct DiskGroupDevice {
    shared: Arc<Shared>,
    timekeeper: Option<JoinHandle<()>>,
    parameters: DiskGroupParameters,
}

impl DiskGroupDevice {
    /// Starts a group at rest.
    ///
    /// # Errors
    /// [`OpenError::Parameter`] for a parameter out of its range, [`OpenError::Thread`] where no thread is to be had.
    pub fn start(parameters: DiskGroupParameters) -> Result<Arc<DiskGroupDevice>, OpenError> {
        DiskGroupDevice::start_behind(None, parameters)
    }

    /// As [`DiskGroupDevice::start`], with the disks behind an array's `cache` that all volumes share.
    ///
    /// # Errors
    /// As [`DiskGroupDevice::start`].
    pub fn start_behind(
        cache: Option<ArrayCache>,
        parameters: DiskGroupParameters,
    ) -> Result<Arc<DiskGroupDevice>, OpenError> {
        let group = Model::new(parameters.clone(), cache)?;
        let shared = Arc::new(Shared {
            started: Instant::now(),
            state: Mutex::new(State {
                group,
                in_flight: HashMap::new(),
                next_id: 0,
                volumes: Vec::new(),
                stopping: false,
            }),
            punctuality: Punctuality::default(),
            earlier: Condvar::new(),
        });
        let thread_error = |source| OpenError::Thread { source };
        let syncers = Threads::start("disk-group-sync", SYNC_WORKERS).map_err(thread_error)?;
        let for_thread = Arc::clone(&shared);
        let timekeeper = thread::Builder::new()
            .name("disk-group".into())
            .spawn(move || keep_time(&for_thread, &syncers))
            .map_err(thread_error)?;
        Ok(Arc::new(DiskGroupDevice { shared, timekeeper: Some(timekeeper), parameters }))
    }

    /// A volume whose first byte lies at `offset_bytes` of the group. Its place is free again once it is dropped.
    ///
    /// # Errors
    /// [`OpenError`] for a file that cannot be opened, a volume beyond the group's end, or one that overlaps another.
    pub fn volume(
        self: &Arc<DiskGroupDevice>,
        backing: VolumeBacking,
        offset_bytes: u64,
    ) -> Result<DiskGroupOrigin, OpenError> {
        let image: Arc<dyn Image> = match backing {
            VolumeBacking::File { path, read_only } => Arc::new(FileImage::open(&path, read_only)?),
            VolumeBacking::Memory(image) => image,
        };
        let place = ByteRange::new(offset_bytes, image.size_bytes());
        let mut state = locked(&self.shared.state);
        let capacity_bytes = state.group.capacity_bytes();
        if offset_bytes.checked_add(place.length).is_none_or(|end| end > capacity_bytes) {
            return Err(OpenError::BeyondGroup { offset_bytes, size_bytes: place.length, capacity_bytes });
        }
        if let Some(other) = state.volumes.iter().find(|other| other.overlaps(place)) {
            let other_offset_bytes = other.offset;
            return Err(OpenError::OverlapsInGroup {
                offset_bytes,
                size_bytes: place.length,
                other_offset_bytes,
            });
        }
        state.volumes.push(place);
        drop(state);
        let counters = Counters::new(self.parameters.outstanding_max);
        // The disks write zeroes like anything else.
        let traits = OriginTraits { can_fast_zero: false, ..image.traits() };
        Ok(DiskGroupOrigin { device: Arc::clone(self), traits, image, place, counters })
    }

    /// The size of the group in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        locked(&self.shared.state).group.capacity_bytes()
    }

    /// What each spindle has done until now.
    pub fn observe(&self) -> DiskGroupObservation {
        let state = locked(&self.shared.state);
        state.group.observe(self.shared.now())
    }

    /// The group's counters.
    pub fn statistics(&self) -> DeviceStatistics {
        let state = locked(&self.shared.state);
        let observed = state.group.observe(self.shared.now());
        drop(state);
        let punctuality = &self.shared.punctuality;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceStatistics {
            at: observed.at,
            spindles: self.parameters.spindles,
            busy: observed.spindles.iter().fold(Nanos::ZERO, |sum, spindle| sum + spindle.busy),
            outstanding: observed.outstanding,
            completed: get(&punctuality.completed),
            late: get(&punctuality.late),
            lateness_max: Nanos(get(&punctuality.lateness_max)),
            lateness_total: Nanos(get(&punctuality.lateness_total)),
        }
    }
}

impl Drop for DiskGroupDevice {
    fn drop(&mut self) {
        locked(&self.shared.state).stopping = true;
        self.shared.earlier.notify_all();
        if let Some(thread) =
            self.timekeeper.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

/// Lets the model's time pass with the machine's, and completes what is due.
fn keep_time(shared: &Shared, syncers: &Threads) {
    let mut completions: Vec<DiskCompletion> = Vec::new();
    let mut due: Vec<(Nanos, InFlight)> = Vec::new();
    let mut state = locked(&shared.state);
    loop {
        if state.stopping {
            // What the model has not completed was not applied; dropping it says so.
            let abandoned = std::mem::take(&mut state.in_flight);
            drop(state);
            drop(abandoned);
            return;
        }
        let now = shared.now();
        state.group.advance(now, &mut completions);
        if !completions.is_empty() {
            for completion in completions.drain(..) {
                let request =
                    state.in_flight.remove(&completion.id.0).expect("the model completes what it was given");
                due.push((completion.at, request));
            }
            drop(state);
            for (at, request) in due.drain(..) {
                shared.punctuality.count(shared.now().saturating_since(at));
                finish(request, syncers);
            }
            state = locked(&shared.state);
            continue;
        }
        state = match state.group.next_event() {
            None => shared.earlier.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let wait = Duration::from(at.saturating_since(now));
                if wait > SPIN {
                    let waited = shared.earlier.wait_timeout(state, wait - SPIN);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                } else {
                    drop(state);
                    while shared.now() < at {
                        std::hint::spin_loop();
                    }
                    locked(&shared.state)
                }
            }
        };
    }
}

/// Carries out what the model has completed. Syncs that can take long go to other threads, so that time is kept.
fn finish(request: InFlight, syncers: &Threads) {
    let InFlight { mut pending, operation, image } = request;
    pending.begin();
    let result = image.apply(&operation);
    if result.is_err() || !wants_sync(&operation) || !image.sync_blocks() {
        return pending.complete(result);
    }
    syncers.submit(Box::new(move || pending.complete(image.sync().map(|()| Vec::new()))));
}

/// A volume on an emulated disk group.
///
/// Reads, writes and zeroes take the model's time for their ranges; trims, flushes and questions about block status take none. Dropping it lets what
/// is in flight complete at its time; dropping the last volume and the device completes the rest as not carried out.
pub struct DiskGroupOrigin {
    device: Arc<DiskGroupDevice>,
    image: Arc<dyn Image>,
    traits: OriginTraits,
    place: ByteRange,
    counters: Arc<Counters>,
}

impl DiskGroupOrigin {
    /// The group that it lies on.
    pub fn device(&self) -> &Arc<DiskGroupDevice> {
        &self.device
    }
}

impl Origin for DiskGroupOrigin {
    fn traits(&self) -> OriginTraits {
        self.traits
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(pending) = self.counters.admit(request.id, sink) else {
            return;
        };
        if let Err(error) = check(&request.operation, &self.traits) {
            return pending.complete(Err(error));
        }
        let range = request.operation.range();
        let (kind, length) = match &request.operation {
            OriginOperation::Read { .. } => (DiskRequestKind::Read, range.length),
            OriginOperation::Write { .. } | OriginOperation::WriteZeroes { .. } => {
                (DiskRequestKind::Write, range.length)
            }
            OriginOperation::Trim { .. } | OriginOperation::BlockStatus { .. } | OriginOperation::Flush => {
                (DiskRequestKind::Write, 0)
            }
        };
        let shared = &self.device.shared;
        let mut state = locked(&shared.state);
        let id = state.next_id;
        state.next_id += 1;
        let before = state.group.next_event();
        let range = ByteRange::new(self.place.offset + range.offset, length);
        let submitted = state.group.submit(shared.now(), DiskRequest { id: DiskRequestId(id), kind, range });
        if let Err(error) = submitted {
            drop(state);
            let errno = if matches!(error, SubmitError::Full { .. }) { EBUSY } else { EINVAL };
            self.counters.count_refused();
            return pending.complete(Err(OriginError::Failed { errno, context: error.to_string() }));
        }
        let operation = request.operation;
        state.in_flight.insert(id, InFlight { pending, operation, image: Arc::clone(&self.image) });
        let after = state.group.next_event();
        drop(state);
        if before.is_none() || after < before {
            shared.earlier.notify_one();
        }
    }

    fn metadata(&self) -> Option<Metadata> {
        self.image.metadata()
    }

    fn describe(&self) -> String {
        let spindles = self.device.parameters.spindles;
        format!(
            "{} on an emulated group of {spindles} disks, at {}",
            self.image.describe(),
            self.place.offset
        )
    }

    fn statistics(&self) -> OriginStatistics {
        let mut statistics =
            OriginStatistics { device: Some(self.device.statistics()), ..OriginStatistics::default() };
        self.counters.add_to(&mut statistics);
        statistics
    }
}

impl Drop for DiskGroupOrigin {
    fn drop(&mut self) {
        let mut state = locked(&self.device.shared.state);
        if let Some(index) = state.volumes.iter().position(|place| *place == self.place) {
            state.volumes.swap_remove(index);
        }
    }
}
