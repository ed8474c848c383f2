//! Where the tests of this room hear of completions.

use crate::request::{CompletionSink, OriginCompletion};
use std::sync::mpsc::Sender;

pub(super) struct Answers(pub(super) Sender<OriginCompletion>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}
