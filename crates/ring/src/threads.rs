//! A bounded pool of threads for calls that block.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What a thread is to do.
pub type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    waiting: usize,
    threads: Vec<JoinHandle<()>>,
    is_closing: bool,
}

struct Shared {
    name: String,
    threads_max: usize,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    /// Locks; a job that panicked has told its end on the way out, so that the queue is still whole.
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that take jobs in order: one from the start, more when all are busy. The queue is bounded by who submits. Dropping it finishes the queued jobs first.
pub struct Threads {
    shared: Arc<Shared>,
}

/// A way to the threads that does not keep them alive.
#[derive(Clone)]
pub struct ThreadsHandle {
    shared: Arc<Shared>,
}

impl Threads {
    /// Starts the first thread of at most `threads_max`, which is at least 1. Each is called `name-n`.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(name: &str, threads_max: usize) -> io::Result<Threads> {
        let queue = Queue { jobs: VecDeque::new(), waiting: 0, threads: Vec::new(), is_closing: false };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            threads_max: threads_max.max(1),
            queue: Mutex::new(queue),
            wake: Condvar::new(),
        });
        spawn(&shared, &mut shared.locked())?;
        Ok(Threads { shared })
    }

    /// Does `job` on one of the threads.
    pub fn submit(&self, job: Job) {
        // They close only when this is dropped.
        if let Err(job) = self.handle().submit(job) {
            job();
        }
    }

    /// A way to these threads.
    pub fn handle(&self) -> ThreadsHandle {
        ThreadsHandle { shared: Arc::clone(&self.shared) }
    }
}

impl ThreadsHandle {
    /// Does `job` on one of the threads.
    ///
    /// # Errors
    /// The job itself, if the threads have ended.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.locked();
        if queue.is_closing {
            return Err(job);
        }
        queue.jobs.push_back(job);
        if queue.jobs.len() > queue.waiting && queue.threads.len() < self.shared.threads_max {
            // If the system has no more, those that are there do it.
            let _ = spawn(&self.shared, &mut queue);
        }
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let threads = {
            let mut queue = self.shared.locked();
            queue.is_closing = true;
            std::mem::take(&mut queue.threads)
        };
        self.shared.wake.notify_all();
        for thread in threads {
            // The last owner may let go within a job, on one of them: a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn spawn(shared: &Arc<Shared>, queue: &mut Queue) -> io::Result<()> {
    let worker = Arc::clone(shared);
    let name = format!("{}-{}", shared.name, queue.threads.len());
    queue.threads.push(thread::Builder::new().name(name).spawn(move || work(&worker))?);
    Ok(())
}

fn work(shared: &Shared) {
    loop {
        let mut queue = shared.locked();
        let job = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.is_closing {
                return;
            }
            queue.waiting += 1;
            queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        };
        drop(queue);
        job();
    }
}
