//! Randomness and sequential runs.
//!
//! A request is sequential if it begins where an earlier one of its volume ended: the last one (strictly, as the DCIO paper's
//! "random %" is read here), or one of the last 32, as several readers side by side interleave (ours).

use forebay_trace::Request;
use serde::Serialize;

/// Streams that are followed on each volume (ours).
const STREAMS: usize = 32;

/// Volumes that are followed (ours); of others every request counts as random.
const VOLUMES_MAX: usize = 1 << 16;

/// How sequential a workload is.
#[derive(Clone, Debug, Serialize)]
pub struct Runs {
    /// Share of the requests that do not begin where the last one of their volume ended; `None` without a request.
    pub random_share: Option<f64>,
    /// Share of the requests that begin where none of the 32 latest streams of their volume had come to.
    pub random_share_of_streams: Option<f64>,
    /// Sequential runs of more than one request, over 32 streams a volume.
    pub runs: u64,
    /// Mean requests of such a run; `None` without one.
    pub run_requests_mean: Option<f64>,
    /// Mean bytes of such a run; `None` without one.
    pub run_bytes_mean: Option<f64>,
    /// The longest run in bytes.
    pub run_bytes_max: u64,
}

#[derive(Clone, Copy)]
struct Stream {
    end: u64,
    requests: u64,
    bytes: u64,
}

#[derive(Default)]
pub(super) struct RunCounter {
    /// By volume: streams, the most recently used first.
    volumes: Vec<Vec<Stream>>,
    requests: u64,
    random: u64,
    random_of_streams: u64,
    runs: u64,
    run_requests: u64,
    run_bytes: u64,
    run_bytes_max: u64,
}

impl RunCounter {
    pub(super) fn add(&mut self, request: &Request) {
        self.requests += 1;
        let index = request.volume.0 as usize;
        if index >= VOLUMES_MAX {
            self.random += 1;
            self.random_of_streams += 1;
            return;
        }
        if self.volumes.len() <= index {
            self.volumes.resize(index + 1, Vec::new());
        }
        let streams = &mut self.volumes[index];
        let found = streams.iter().position(|stream| stream.end == request.offset);
        self.random += u64::from(found != Some(0));
        let mut stream = match found {
            Some(at) => streams.remove(at),
            None => {
                self.random_of_streams += 1;
                let oldest = if streams.len() == STREAMS { streams.pop() } else { None };
                if let Some(oldest) = oldest {
                    self.end(oldest);
                }
                Stream { end: 0, requests: 0, bytes: 0 }
            }
        };
        stream.end = request.range().end();
        stream.requests += 1;
        stream.bytes = stream.bytes.saturating_add(request.length);
        self.volumes[index].insert(0, stream);
    }

    fn end(&mut self, stream: Stream) {
        if stream.requests > 1 {
            self.runs += 1;
            self.run_requests += stream.requests;
            self.run_bytes = self.run_bytes.saturating_add(stream.bytes);
            self.run_bytes_max = self.run_bytes_max.max(stream.bytes);
        }
    }

    pub(super) fn finish(mut self) -> Runs {
        let open: Vec<Stream> = std::mem::take(&mut self.volumes).into_iter().flatten().collect();
        open.into_iter().for_each(|stream| self.end(stream));
        let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Runs {
            random_share: of(self.random, self.requests),
            random_share_of_streams: of(self.random_of_streams, self.requests),
            runs: self.runs,
            run_requests_mean: of(self.run_requests, self.runs),
            run_bytes_mean: of(self.run_bytes, self.runs),
            run_bytes_max: self.run_bytes_max,
        }
    }
}
