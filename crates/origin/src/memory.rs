//! An origin in memory, for tests and demonstrations.

use crate::image::{Image, MemoryImage, check};
use crate::pending::Counters;
use crate::request::{CompletionSink, Origin, OriginRequest, OriginTraits};
use crate::statistics::OriginStatistics;
use std::sync::Arc;

/// An origin that holds its bytes in memory and completes every request before `submit` returns.
pub struct MemoryOrigin {
    image: Arc<MemoryImage>,
    counters: Arc<Counters>,
}

impl MemoryOrigin {
    /// An origin over `image`, which may be looked at and filled from outside.
    pub fn new(image: Arc<MemoryImage>) -> MemoryOrigin {
        MemoryOrigin { image, counters: Counters::new(usize::MAX) }
    }
}

impl Origin for MemoryOrigin {
    fn traits(&self) -> OriginTraits {
        self.image.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if let Some(pending) = self.counters.admit(request.id, sink) {
            let result = check(&request.operation, &self.image.traits());
            pending.complete(result.and_then(|()| self.image.execute(&request.operation)));
        }
    }

    fn describe(&self) -> String {
        self.image.describe()
    }

    fn statistics(&self) -> OriginStatistics {
        let mut statistics = OriginStatistics::default();
        self.counters.add_to(&mut statistics);
        statistics
    }
}
