//! Which promotions pay: what chunks have brought in their lives in the tier, by which share of the accesses the tier had when they came.
//!
//! Flash wears by every chunk that is written to it, and one that comes when the tier already has what is hot is often one of the last of a hot set, which will soon be exchanged, or one that is never asked for again. A
//! threshold does not tell those from the first ones: their counts are the same. So promotions are sorted into classes by the tier's share of the latest accesses, and those of a class that brings less
//! than a promotion must wait for another time.
//!
//! What a class brings is all that chunks of it have saved, of those in the tier too, by the lives that have ended: where few end, as on a load whose hot set stays, it brings much. That is the
//! estimate of a mean life from censored ones (exponential lives, total time on test by the number of deaths). What was before is forgotten. All numbers are ours.

/// Classes of the tier's share of accesses.
const CLASSES: usize = 16;
/// Accesses that the share goes back.
const RECENT: f64 = 256.0;
/// Lives that every class is taken to have had besides, and what those brought, in shares of what they had to.
const PRIOR_LIVES: f64 = 16.0;
const PRIOR_SHARE: f64 = 1.5;
/// What a window leaves of what was known before it.
const KEPT: f64 = 0.95;

/// A class of promotions.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// What its chunks saved, and how many of them have left.
    saved: f64,
    lives: f64,
}

/// What promotions brought. One byte per place.
#[derive(Clone, Debug)]
pub(super) struct Earned {
    classes: [Class; CLASSES],
    /// The share of the latest accesses that the tier had, 0 to 1.
    share: f64,
    /// By place: the class of the promotion that brought its chunk.
    came_as: Vec<u8>,
}

impl Earned {
    pub(super) fn new(places: u32) -> Earned {
        Earned { classes: [Class::default(); CLASSES], share: 0.0, came_as: vec![0; places as usize] }
    }

    fn class(&self) -> usize {
        ((self.share * CLASSES as f64) as usize).min(CLASSES - 1)
    }

    /// A counted access, of a chunk in the tier or not.
    pub(super) fn access(&mut self, in_tier: bool) {
        self.share += (f64::from(u8::from(in_tier)) - self.share) / RECENT;
    }

    /// Whether a chunk that comes now brings at least `least`.
    pub(super) fn pays(&self, least: f64) -> bool {
        let Class { saved, lives } = self.classes[self.class()];
        least <= 0.0 || saved + PRIOR_LIVES * PRIOR_SHARE * least >= least * (lives + PRIOR_LIVES)
    }

    /// A chunk comes to `place`.
    pub(super) fn came(&mut self, place: u32) {
        self.came_as[place as usize] = self.class() as u8;
    }

    /// An access of the chunk in `place` has saved so much; below zero, cost.
    pub(super) fn saved(&mut self, place: u32, saved: f64) {
        self.classes[usize::from(self.came_as[place as usize])].saved += saved;
    }

    /// The chunk in `place` leaves.
    pub(super) fn left(&mut self, place: u32) {
        self.classes[usize::from(self.came_as[place as usize])].lives += 1.0;
    }

    /// A window ends.
    pub(super) fn end_window(&mut self) {
        for class in &mut self.classes {
            class.saved *= KEPT;
            class.lives *= KEPT;
        }
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        self.came_as.capacity() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many chunks come while the tier has `share`, save so much each, and leave.
    fn live(earned: &mut Earned, share: f64, chunks: u32, saved: f64) {
        earned.share = share;
        for _ in 0..chunks {
            earned.came(0);
            earned.saved(0, saved);
            earned.left(0);
        }
    }

    fn pays_at(earned: &mut Earned, share: f64, least: f64) -> bool {
        earned.share = share;
        earned.pays(least)
    }

    #[test]
    fn a_class_that_brings_too_little_waits_until_that_is_forgotten() {
        let mut earned = Earned::new(2);
        assert!(pays_at(&mut earned, 0.1, 0.8) && pays_at(&mut earned, 0.9, 0.8));
        live(&mut earned, 0.1, 100, 3.0);
        // 20 + 16 x 1.2 is below 0.8 x (40 + 16), and 20 + 16 x 0.9 not below 0.6 x (40 + 16).
        live(&mut earned, 0.9, 40, 0.5);
        assert!(pays_at(&mut earned, 0.1, 0.8) && !pays_at(&mut earned, 0.9, 0.8));
        assert!(pays_at(&mut earned, 0.9, 0.6) && pays_at(&mut earned, 0.9, 0.0));
        // It lacks 0.3 for each of its lives, and those before have 6.4 to give: it pays again with 21.3 lives or fewer. 40 x 0.95 ^ 13 = 20.5.
        (0..12).for_each(|_| earned.end_window());
        assert!(!pays_at(&mut earned, 0.9, 0.8));
        earned.end_window();
        assert!(pays_at(&mut earned, 0.9, 0.8));
    }

    #[test]
    fn who_stays_brings_much() {
        // Twenty leave at once and bring nothing: 19.2 to 0.8 x 36. One that stays has saved 20.
        let mut earned = Earned::new(2);
        live(&mut earned, 0.5, 20, 0.0);
        assert!(!pays_at(&mut earned, 0.5, 0.8));
        earned.came(1);
        (0..20).for_each(|_| earned.saved(1, 1.0));
        assert!(pays_at(&mut earned, 0.5, 0.8));
    }

    #[test]
    fn the_share_is_that_of_the_latest_accesses() {
        let mut earned = Earned::new(1);
        // 1 - (255 / 256) ^ 256 = 0.63, and back.
        (0..256).for_each(|_| earned.access(true));
        assert!((0.62..0.64).contains(&earned.share), "{}", earned.share);
        (0..2_000).for_each(|_| earned.access(false));
        assert_eq!(earned.class(), 0);
    }
}
