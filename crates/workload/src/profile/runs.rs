//! Randomness and sequential runs.
//!
//! A request is sequential if it begins where an earlier one of its volume ended: the last one (strictly, as the DCIO paper's
//! "random %" is read here), or one of the last 32, as several readers side by side interleave (ours).

use crate::streams::{Placed, Streams};
use forebay_trace::Request;
use serde::Serialize;

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

#[derive(Clone, Copy, Default)]
struct Stream {
    requests: u64,
    bytes: u64,
}

#[derive(Default)]
pub(super) struct RunCounter {
    /// By volume.
    volumes: Vec<Streams<Stream>>,
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
            self.volumes.resize_with(index + 1, Streams::default);
        }
        let Placed { continues, stream, ended } = self.volumes[index].request(request.range());
        stream.requests += 1;
        stream.bytes = stream.bytes.saturating_add(request.length);
        self.random += u64::from(continues != Some(0));
        self.random_of_streams += u64::from(continues.is_none());
        if let Some(ended) = ended {
            self.end(ended);
        }
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
        let open: Vec<Stream> =
            std::mem::take(&mut self.volumes).into_iter().flat_map(Streams::into_open).collect();
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
