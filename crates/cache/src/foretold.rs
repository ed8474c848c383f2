//! The victims that a policy has foretold, so that what their evictions will read is fetched in steps. A hint, not a promise: who is used meanwhile stays.

use forebay_policy::Slot;

/// How many victims later the next step is taken (ours).
const STEP: usize = 5;

/// The last victims foretold, in a ring.
#[derive(Debug)]
pub(crate) struct Foretold {
    victims: [Slot; 2 * STEP],
    /// The place of the oldest of them.
    oldest: u8,
}

impl Foretold {
    /// As if the first slot had been foretold all the time: looking at it in vain costs nothing.
    pub(crate) const fn new() -> Foretold {
        Foretold { victims: [Slot(0); 2 * STEP], oldest: 0 }
    }

    /// Takes the next one; returns those that were foretold one step and two steps before.
    #[inline]
    pub(crate) fn push(&mut self, victim: Slot) -> (Slot, Slot) {
        let at = usize::from(self.oldest);
        self.oldest = ((at + 1) % (2 * STEP)) as u8;
        let one_step = self.victims[(at + STEP) % (2 * STEP)];
        (one_step, std::mem::replace(&mut self.victims[at], victim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_back_one_step_and_two_steps_later() {
        let mut foretold = Foretold::new();
        for at in 0..40 {
            let before = |steps: u32| Slot(100 + at - steps * STEP as u32);
            let (one, two) = foretold.push(Slot(100 + at));
            assert_eq!(one, if at >= 5 { before(1) } else { Slot(0) });
            assert_eq!(two, if at >= 10 { before(2) } else { Slot(0) });
        }
    }
}
