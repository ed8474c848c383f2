//! Layers: origins that pass requests on to another one, later, not at all, or with a note about it.
//!
//! They stack on any `Arc<dyn Origin>` in any order. Injecting faults and limits is part of the product, for tests,
//! demonstrations and fences around fragile storage. What a layer does not say it changes reaches the origin beneath
//! unchanged: sizes, abilities, errors, completions.

mod delay;
mod error;
mod log;
mod rate;

pub use delay::{Delay, DelayParameters};
pub use error::{ErrorInjection, ErrorParameters};
pub use log::{Log, LogParameters, trouble_of_log};
pub use rate::{Rate, RateParameters};

use crate::pending::{Counters, EBUSY, Pending};
use crate::request::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginRequest, OriginTraits, Unflushed,
};
use crate::statistics::OriginStatistics;
use crate::timer::Timer;
use forebay_nbd::{RunId, StorageId};
use std::fs::Metadata;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests that one layer holds back at a time (ours); above it, `EBUSY`.
pub const HELD_MAX: usize = 4096;

/// A parameter of a layer that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layer `{layer}`: `{name}` is {found}: expected {expected}")]
pub struct LayerError {
    /// Which layer.
    pub layer: &'static str,
    /// Which parameter.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What would do.
    pub expected: &'static str,
}

/// An origin that passes requests on to another one, its inner. It is an [`Origin`] by what it says here; all else that an origin tells or is told passes it unchanged, but
/// for the inner's [`Origin::reactor`], by which requests could not be held back: with a layer, completions come from the origin's own thread.
pub trait Layer: Send + Sync {
    /// What is beneath.
    fn inner(&self) -> &dyn Origin;

    /// Does with a request what the layer is for; as [`Origin::submit`].
    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>);

    /// As [`Origin::submit_all`].
    fn pass_all(&self, requests: &mut dyn Iterator<Item = OriginRequest>, sink: &Arc<dyn CompletionSink>) {
        requests.for_each(|request| self.pass(request, sink));
    }

    /// One line for people, of what the one beneath says of itself.
    fn describe_over(&self, inner: &str) -> String;

    /// What is counted from above, of what is counted beneath.
    fn counted(&self, inner: OriginStatistics) -> OriginStatistics {
        inner
    }
}

impl<L: Layer> Origin for L {
    fn traits(&self) -> OriginTraits {
        self.inner().traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        self.pass(request, sink);
    }

    fn submit_all(&self, requests: &mut dyn Iterator<Item = OriginRequest>, sink: &Arc<dyn CompletionSink>) {
        self.pass_all(requests, sink);
    }

    fn describe(&self) -> String {
        self.describe_over(&self.inner().describe())
    }

    fn statistics(&self) -> OriginStatistics {
        self.counted(self.inner().statistics())
    }

    fn settle(&self) {
        self.inner().settle();
    }

    fn storage(&self) -> Option<StorageId> {
        self.inner().storage()
    }

    fn metadata(&self) -> Option<Metadata> {
        self.inner().metadata()
    }

    fn is_settled(&self) -> bool {
        self.inner().is_settled()
    }

    fn keeper(&self, own: RunId) -> Option<RunId> {
        self.inner().keeper(own)
    }

    fn refused_for(&self) -> Option<Duration> {
        self.inner().refused_for()
    }

    fn unflushed(&self) -> Option<Unflushed> {
        self.inner().unflushed()
    }

    fn inherit(&self, unflushed: Unflushed) {
        self.inner().inherit(unflushed);
    }

    fn abandon(&self) {
        self.inner().abandon();
    }
}

/// What is counted beneath, with the requests as the layer saw them: each counts once, as what the layer was given, with what only the layers beneath refused.
fn with_counts(inner: OriginStatistics, own: &Counters) -> OriginStatistics {
    let mut seen = OriginStatistics::default();
    own.add_to(&mut seen);
    let OriginStatistics { requests, errors, in_flight, refused, .. } = seen;
    OriginStatistics { requests, errors, in_flight, refused: refused + inner.refused, ..inner }
}

/// Sends a request beneath at its instant. The completion owed is handed over to the origin beneath with it.
fn pass_on_at(timer: &Timer, at: Instant, inner: &Arc<dyn Origin>, request: OriginRequest, pending: Pending) {
    let slot = Arc::new(Mutex::new(Some(pending)));
    let (inner, for_timer) = (Arc::clone(inner), Arc::clone(&slot));
    let scheduled = timer.schedule(
        at,
        Box::new(move || {
            let held = crate::pool::locked(&for_timer).take();
            if let Some(pending) = held {
                pass_on(&*inner, request, pending);
            }
        }),
    );
    if !scheduled {
        let held = crate::pool::locked(&slot).take();
        if let Some(pending) = held {
            let context = format!("{} requests wait in the timer, which is its maximum", Timer::WAITING_MAX);
            pending.complete(Err(OriginError::Failed { errno: EBUSY, context }));
        }
    }
}

/// Sends a request beneath now.
fn pass_on(inner: &dyn Origin, request: OriginRequest, mut pending: Pending) {
    pending.begin();
    let sink: Arc<dyn CompletionSink> = Arc::new(HandOver { pending: Mutex::new(Some(pending)) });
    inner.submit(request, &sink);
}

/// Completes a request of the layer with what the origin beneath said.
struct HandOver {
    pending: Mutex<Option<Pending>>,
}

impl CompletionSink for HandOver {
    fn complete(&self, completion: OriginCompletion) {
        let pending = crate::pool::locked(&self.pending).take();
        if let Some(pending) = pending {
            pending.complete(completion.result);
        }
    }
}
