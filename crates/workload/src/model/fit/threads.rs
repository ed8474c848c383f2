//! Whose requests there were: requests by thread, and the threads of the steps of the window that is not yet complete.

use super::super::windows::{ThreadRun, Window};
use forebay_trace::ThreadNumber;

/// Threads of a model: of more, the rarest count as one, the last (ours).
const THREADS_KEPT: usize = 1 << 10;

/// Counts by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    /// By the trace's number; the first one is of requests whose thread is not known.
    counts: Vec<u64>,
    runs: Vec<ThreadRun>,
}

impl Threads {
    /// The thread of the next request.
    #[inline]
    pub(super) fn count(&mut self, thread: ThreadNumber) {
        let number = usize::from(thread.0);
        if number >= self.counts.len() {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
        match self.runs.last_mut() {
            Some(run) if run.0 == thread.0 => run.1 += 1,
            _ => self.runs.push((thread.0, 1)),
        }
    }

    /// The threads of the steps since the last call.
    pub(super) fn end_window(&mut self) -> Vec<ThreadRun> {
        std::mem::take(&mut self.runs)
    }

    /// The weights of the threads that a model keeps, in the order of their first requests, by which it numbers them; `windows` get these numbers. Nothing, where no
    /// thread is known.
    pub(super) fn models(&self, windows: &mut [Window]) -> Vec<f64> {
        let known: Vec<usize> = (1..self.counts.len()).filter(|&number| self.counts[number] > 0).collect();
        if known.is_empty() {
            windows.iter_mut().for_each(|window| window.threads.clear());
            return Vec::new();
        }
        let mut kept = known.clone();
        let others = known.len() > THREADS_KEPT;
        if others {
            kept.sort_by_key(|&number| (std::cmp::Reverse(self.counts[number]), number));
            kept.truncate(THREADS_KEPT - 1);
            kept.sort_unstable();
        }
        // What is neither kept nor unknown is the last of all.
        let mut names = vec![kept.len() as u16 + 1; self.counts.len()];
        names[0] = 0;
        (1..).zip(&kept).for_each(|(name, &number)| names[number] = name);
        let mut counts = vec![0u64; kept.len() + usize::from(others)];
        known.iter().for_each(|&number| counts[usize::from(names[number]) - 1] += self.counts[number]);
        for window in windows {
            window.threads.iter_mut().for_each(|run| run.0 = names[usize::from(run.0)]);
            window.threads.dedup_by(|next, run| {
                let same = next.0 == run.0;
                run.1 += if same { next.1 } else { 0 };
                same
            });
        }
        let requests = self.counts.iter().sum::<u64>() as f64;
        counts.into_iter().map(|count| count as f64 / requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(threads: &mut Threads, of: impl IntoIterator<Item = u16>) -> Window {
        let mut steps = 0;
        of.into_iter().for_each(|thread| {
            threads.count(ThreadNumber(thread));
            steps += 1;
        });
        Window { stands_for: steps, after: 0, steps: Vec::new(), threads: threads.end_window() }
    }

    #[test]
    fn numbers_that_do_not_occur_are_left_out() {
        let mut threads = Threads::default();
        let mut windows = [window(&mut threads, [3, 3, 0, 9, 9, 9]), window(&mut threads, [9, 3])];
        assert_eq!(threads.models(&mut windows), [0.375, 0.5]);
        assert_eq!(windows[0].threads, [(1, 2), (0, 1), (2, 3)]);
        assert_eq!(windows[1].threads, [(2, 1), (1, 1)]);
        let mut threads = Threads::default();
        let mut windows = [window(&mut threads, [0, 0])];
        assert!(threads.models(&mut windows).is_empty() && windows[0].threads.is_empty());
    }

    #[test]
    fn the_rarest_of_too_many_are_one() {
        let mut threads = Threads::default();
        // 2,000 threads with a request each, then threads 1 to 1,023 with another one.
        let mut windows = [window(&mut threads, (1..=2_000).chain(1..=1_023))];
        let weights = threads.models(&mut windows);
        assert_eq!((weights.len(), weights[0], weights[1_023]), (1_024, 2.0 / 3_023.0, 977.0 / 3_023.0));
        assert_eq!(windows[0].threads[1_022..1_025], [(1_023, 1), (1_024, 977), (1, 1)]);
    }
}
