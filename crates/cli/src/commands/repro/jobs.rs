//! Independent parts of an evaluation, side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each of `jobs` comes to, in their order; they are begun in it, on as many threads as there are processors.
///
/// # Panics
/// If a job does.
pub(super) fn side_by_side<T: Send>(jobs: &[Box<dyn Fn() -> T + Sync + '_>]) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let result = job();
                    *results[at].lock().expect("no job panics while it holds its place") = Some(result);
                }
            });
        }
    });
    results
        .into_iter()
        .map(|result| result.into_inner().expect("no job panicked").expect("every job ran"))
        .collect()
}
