//! A bounded pool of threads for calls that block.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Locks; a job that panicked has completed its request on the way out, so that the queue is still whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Queue {
    jobs: VecDeque<Job>,
    closing: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Threads that take jobs in order. The queue is bounded by who submits. Dropping it finishes the queued jobs first.
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    pub(crate) fn start(name: &str, workers: usize) -> io::Result<WorkerPool> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { jobs: VecDeque::new(), closing: false }),
            wake: Condvar::new(),
        });
        let mut pool = WorkerPool { shared, threads: Vec::with_capacity(workers) };
        for index in 0..workers.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread =
                thread::Builder::new().name(format!("{name}-{index}")).spawn(move || work(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(crate) fn submit(&self, job: Job) {
        locked(&self.shared.queue).jobs.push_back(job);
        self.shared.wake.notify_one();
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        locked(&self.shared.queue).closing = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // The last owner may let go within a completion, on a worker: a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut queue = locked(&shared.queue);
        let job = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.closing {
                return;
            }
            queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        job();
    }
}
