//! Origins that do not behave: one that keeps requests back, and one that brings down who asks.

use super::scene::{MIB, PATIENCE};
use forebay_origin::{CompletionSink, Origin, OriginCompletion, OriginError, OriginRequest, OriginTraits};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// An origin that keeps requests back until it is told to let them go.
pub(crate) struct HeldOrigin {
    inner: Arc<dyn Origin>,
    pub(crate) held: Mutex<Vec<(OriginRequest, Arc<dyn CompletionSink>)>>,
    changed: Condvar,
    pub(crate) is_open: AtomicBool,
}

impl HeldOrigin {
    pub(crate) fn new(inner: Arc<dyn Origin>) -> Arc<HeldOrigin> {
        Arc::new(HeldOrigin {
            inner,
            held: Mutex::default(),
            changed: Condvar::new(),
            is_open: AtomicBool::new(false),
        })
    }

    pub(crate) fn wait_for(&self, count: usize) {
        let held = self.held.lock().unwrap();
        let (held, timeout) =
            self.changed.wait_timeout_while(held, PATIENCE, |held| held.len() < count).unwrap();
        assert!(!timeout.timed_out(), "{} requests are held, {count} were expected", held.len());
    }

    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        for (request, sink) in std::mem::take(&mut *self.held.lock().unwrap()) {
            self.inner.submit(request, &sink);
        }
    }
}

impl Origin for HeldOrigin {
    fn traits(&self) -> OriginTraits {
        self.inner.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if self.is_open.load(Ordering::SeqCst) {
            return self.inner.submit(request, sink);
        }
        self.held.lock().unwrap().push((request, sink.clone()));
        self.changed.notify_all();
    }

    fn describe(&self) -> String {
        "held".to_owned()
    }
}

/// An origin that loses what is written to its first block: that may be applied later.
pub(crate) struct Loser(pub(crate) Arc<dyn Origin>);

impl Origin for Loser {
    fn traits(&self) -> OriginTraits {
        self.0.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let is_lost = request.operation.changes_content() && request.operation.range().offset == 0;
        if !is_lost {
            return self.0.submit(request, sink);
        }
        let result = Err(OriginError::OutcomeUnknown { context: "lost".to_owned(), asked: None });
        sink.complete(OriginCompletion { id: request.id, result });
    }

    fn describe(&self) -> String {
        "loser".to_owned()
    }
}

/// An origin that brings down who asks for its last block.
pub(crate) struct Trap(pub(crate) Arc<dyn Origin>);

impl Origin for Trap {
    fn traits(&self) -> OriginTraits {
        self.0.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        assert!(request.operation.range().end() < MIB, "a trap: this panic is part of the test");
        self.0.submit(request, sink);
    }

    fn describe(&self) -> String {
        "trap".to_owned()
    }
}
