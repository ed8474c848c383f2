//! Independent parts of an evaluation, side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `run` gives for each number below `count`, in their order; they are begun in it, on as many threads as there are processors.
///
/// # Panics
/// If a run does.
pub(super) fn side_by_side<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(count) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let result = run(at);
                    *results[at].lock().expect("no run panics while it holds its place") = Some(result);
                }
            });
        }
    });
    let done =
        |result: Mutex<Option<T>>| result.into_inner().expect("no run panicked").expect("every run was made");
    results.into_iter().map(done).collect()
}
