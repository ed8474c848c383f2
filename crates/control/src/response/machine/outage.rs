//! For how long a volume's way was dead, as far as its controller can know: from the last answer of its appliance until its clients are switched.

use forebay_units::Nanos;

/// The outage of now, and the last one; of one run of the controller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outage {
    /// When the appliance was last known to answer.
    answered: Option<Nanos>,
    /// From when on it may have been dead, since it was found to be.
    from: Option<Nanos>,
    last: Option<Nanos>,
}

impl Outage {
    /// The appliance answers.
    pub(super) fn answers(&mut self, now: Nanos) {
        (self.answered, self.from) = (Some(now), None);
    }

    /// It is given up, since it does not.
    pub(super) fn begin(&mut self) {
        self.from = self.from.or(self.answered);
    }

    /// Clients go by another way.
    pub(super) fn end(&mut self, now: Nanos) {
        if let Some(from) = self.from.take() {
            self.last = Some(now.saturating_since(from));
        }
        self.answered = None;
    }

    /// How long the last one was, at most.
    pub(super) fn last(&self) -> Option<Nanos> {
        self.last
    }
}
