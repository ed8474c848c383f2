//! Simulations on all processors: each belongs to one thread, and every thread sees every batch.

use forebay_cache::{Access, AdaptiveSimulation, Outcome, Simulation};
use forebay_policy::{Belady, Future, Policy, PolicyKind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that may wait for a thread: the trace is not read far ahead of the slowest.
const WAITING_MAX: usize = 4;

/// One policy at one size.
pub(super) enum Job {
    Fixed(Simulation<Box<dyn Policy + Send>>),
    Adaptive(AdaptiveSimulation),
}

impl Job {
    pub(super) fn of(policy: Box<dyn Policy + Send>, size_blocks: u64, seed: u64) -> Job {
        Job::Fixed(Simulation::new(policy, size_blocks, seed))
    }

    pub(super) fn belady(future: Future, size_blocks: u64, seed: u64) -> Job {
        Job::of(Box::new(Belady::new(future)), size_blocks, seed)
    }

    pub(super) fn adaptive(candidates: &[PolicyKind], size_blocks: u64, seed: u64) -> Job {
        Job::Adaptive(AdaptiveSimulation::new(candidates, size_blocks, seed))
    }

    fn feed(&mut self, accesses: &[Access]) {
        match self {
            Job::Fixed(simulation) => simulation.feed(accesses),
            Job::Adaptive(simulation) => simulation.feed(accesses),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Job::Fixed(simulation) => simulation.outcome(),
            Job::Adaptive(simulation) => simulation.outcome(),
        }
    }
}

type Worker = JoinHandle<Vec<(usize, Outcome)>>;

/// The threads and their queues.
pub(super) struct Crew {
    workers: Vec<(SyncSender<Arc<[Access]>>, Worker)>,
    jobs: usize,
}

impl Crew {
    /// Starts as many threads as there are processors or jobs, and deals the jobs out: neighbours, which cost about the same, to different threads.
    pub(super) fn start(jobs: Vec<Job>) -> Crew {
        let count = jobs.len();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut shares: Vec<Vec<(usize, Job)>> = Vec::new();
        shares.resize_with(processors.min(count).max(1), Vec::new);
        let threads = shares.len();
        for (at, job) in jobs.into_iter().enumerate() {
            shares[at % threads].push((at, job));
        }
        let worker = |mut share: Vec<(usize, Job)>| {
            let (sender, receiver) = sync_channel::<Arc<[Access]>>(WAITING_MAX);
            let worker = thread::spawn(move || {
                for batch in receiver {
                    share.iter_mut().for_each(|(_, job)| job.feed(&batch));
                }
                share.into_iter().map(|(at, job)| (at, job.outcome())).collect()
            });
            (sender, worker)
        };
        Crew { workers: shares.into_iter().map(worker).collect(), jobs: count }
    }

    /// Passes `batch` to every thread; waits for the slowest if it is behind.
    pub(super) fn feed(&self, batch: &Arc<[Access]>) {
        for (sender, _) in &self.workers {
            // A thread is gone only if it panicked, and then `finish` panics too.
            let _ = sender.send(Arc::clone(batch));
        }
    }

    /// The outcomes in the order of the jobs.
    ///
    /// # Panics
    /// If a simulation did.
    pub(super) fn finish(self) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::default(); self.jobs];
        for (sender, worker) in self.workers {
            drop(sender);
            for (at, outcome) in worker.join().expect("simulations do not panic") {
                outcomes[at] = outcome;
            }
        }
        outcomes
    }
}
