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

use crate::pending::{EBUSY, Pending};
use crate::request::{CompletionSink, Origin, OriginCompletion, OriginError, OriginRequest};
use crate::timer::Timer;
use std::sync::{Arc, Mutex};
use std::time::Instant;

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
