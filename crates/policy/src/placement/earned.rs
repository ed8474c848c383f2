//! Which promotions pay: what chunks have saved in their lives in the tier, by how much the tier had when they came.
//!
//! Flash wears by every chunk that is written to it, and a threshold does not tell who will be asked for again: the first chunk of a hot set has the count of the last one, and of one that is never asked for again. What
//! does is which share of the latest accesses the tier has: it is low when a hot set is new, and high when it is known, and may soon be exchanged. Promotions are sorted into classes by it, and those of a class that
//! saves too little wait for another access; one in so many comes all the same, so that a class that is wronged, or has changed, is found out.
//!
//! What a class saves is all that its chunks have saved, those in the tier too, by the lives that have ended: where few end, as on a load whose hot set stays or in a tier with room, it is much. That is the estimate
//! of a mean life from censored ones (exponential lives, total time on test by the number of deaths). What was saved long ago is forgotten, and a life that ends now may have been lived then: it counts as much as what it
//! saved still does, or the first chunks that come after minutes of idling would be taken for worth nothing, for those that leave for them. It knows no bytes and no wear, and does not see what would have been saved by who never came. All numbers are ours.

/// What a promotion must save, in random accesses of the origin.
const LEAST: f64 = 1.2;
/// Classes of the tier's share of the latest accesses.
const CLASSES: usize = 16;
/// Accesses that the share goes back: long enough for chance, short enough for the first second of a new hot set.
const RECENT: f64 = 192.0;
/// Lives that every class is taken to have had besides, and what those saved, in shares of what they had to.
const PRIOR_LIVES: f64 = 8.0;
const PRIOR_SHARE: f64 = 1.5;
/// Of those that wait, one in so many comes.
const TRIED: u64 = 32;
/// What a window leaves of what was known before it. A life ends long after it began, so that with a shorter memory classes would be let in and kept out in turns.
const KEPT: f64 = 0.98;

/// A class of promotions.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// What its chunks saved, and how many of them have left.
    saved: f64,
    lives: f64,
}

/// What promotions saved. Five bytes per place.
#[derive(Clone, Debug)]
pub(super) struct Earned {
    classes: [Class; CLASSES],
    /// The share of the latest accesses that the tier had, 0 to 1.
    share: f64,
    /// By place: the class of the promotion that brought its chunk.
    came_as: Vec<u8>,
    /// By place: the window in which its chunk was last accessed, or came.
    accessed: Vec<u32>,
    /// The number of the window; wraps after centuries.
    window: u32,
    waited: u64,
}

impl Earned {
    pub(super) fn new(places: u32) -> Earned {
        Earned {
            classes: [Class::default(); CLASSES],
            share: 0.0,
            came_as: vec![0; places as usize],
            accessed: vec![0; places as usize],
            window: 0,
            waited: 0,
        }
    }

    fn class(&self) -> usize {
        ((self.share * CLASSES as f64) as usize).min(CLASSES - 1)
    }

    /// A counted access, of a chunk in the tier (or on its way) or not.
    pub(super) fn access(&mut self, in_tier: bool) {
        self.share += (f64::from(u8::from(in_tier)) - self.share) / RECENT;
    }

    /// Whether a chunk may come now.
    pub(super) fn lets_in(&mut self) -> bool {
        let Class { saved, lives } = self.classes[self.class()];
        if saved + PRIOR_LIVES * PRIOR_SHARE * LEAST >= LEAST * (lives + PRIOR_LIVES) {
            return true;
        }
        self.waited += 1;
        self.waited.is_multiple_of(TRIED)
    }

    /// A chunk comes to `place`.
    pub(super) fn came(&mut self, place: u32) {
        self.came_as[place as usize] = self.class() as u8;
        self.accessed[place as usize] = self.window;
    }

    /// An access of the chunk in `place` has saved so much; below zero, cost.
    pub(super) fn saved(&mut self, place: u32, saved: f64) {
        self.classes[usize::from(self.came_as[place as usize])].saved += saved;
        self.accessed[place as usize] = self.window;
    }

    /// The chunk in `place` leaves. Its life counts as much as what its last access saved still does.
    pub(super) fn left(&mut self, place: u32) {
        let windows = self.window.wrapping_sub(self.accessed[place as usize]);
        self.classes[usize::from(self.came_as[place as usize])].lives += KEPT.powf(windows.into());
    }

    /// A window ends.
    pub(super) fn end_window(&mut self) {
        self.window = self.window.wrapping_add(1);
        for class in &mut self.classes {
            class.saved *= KEPT;
            class.lives *= KEPT;
        }
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        (self.came_as.capacity() + size_of::<u32>() * self.accessed.capacity()) as u64
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

    fn let_in(earned: &mut Earned, share: f64) -> bool {
        earned.share = share;
        earned.lets_in()
    }

    #[test]
    fn a_class_that_saves_too_little_waits_until_that_is_forgotten() {
        let mut earned = Earned::new(2);
        assert!(let_in(&mut earned, 0.1) && let_in(&mut earned, 0.9));
        live(&mut earned, 0.1, 100, 3.0);
        live(&mut earned, 0.9, 20, 0.5);
        // 10 + 8 x 1.8 = 24.4 is below 1.2 x (20 + 8) = 33.6. What comes when the tier has little is another class.
        assert!(!let_in(&mut earned, 0.9) && let_in(&mut earned, 0.1));
        // It lacks 0.7 for each of its lives, and those before have 8 x 0.6 = 4.8 to give, enough for 6.857 lives: 20 x 0.98 ^ 53 = 6.855.
        (0..52).for_each(|_| earned.end_window());
        assert!(!let_in(&mut earned, 0.9));
        earned.end_window();
        assert!(let_in(&mut earned, 0.9));
    }

    #[test]
    fn one_in_some_of_those_that_wait_comes() {
        let mut earned = Earned::new(2);
        live(&mut earned, 0.5, 100, 0.0);
        assert_eq!((0..320).filter(|_| let_in(&mut earned, 0.5)).count(), 10);
    }

    #[test]
    fn who_stays_saves_much() {
        // Twenty leave at once and saved nothing: 14.4 to 33.6. One that stays has saved 20.
        let mut earned = Earned::new(2);
        live(&mut earned, 0.5, 20, 0.0);
        assert!(!let_in(&mut earned, 0.5));
        earned.came(1);
        (0..20).for_each(|_| earned.saved(1, 1.0));
        assert!(let_in(&mut earned, 0.5));
    }

    #[test]
    fn who_leaves_long_after_it_was_asked_for_counts_as_much_as_what_it_saved() {
        let mut earned = Earned::new(20);
        earned.share = 0.1;
        for place in 0..20 {
            earned.came(place);
            (0..3).for_each(|_| earned.saved(place, 1.0));
        }
        // A hundred windows later 60 x 0.98 ^ 100 = 8.0 of it is known, and so is 20 x 0.98 ^ 100 = 2.7 of their lives: 22.4 to 1.2 x 10.7 = 12.8, where all twenty would have 33.6.
        (0..100).for_each(|_| earned.end_window());
        (0..20).for_each(|place| earned.left(place));
        assert!(let_in(&mut earned, 0.1));
        // Who came and left at once without having saved anything counts in full: 22.4 to 1.2 x 30.7 = 36.8.
        live(&mut earned, 0.1, 20, 0.0);
        assert!(!let_in(&mut earned, 0.1));
    }

    #[test]
    fn the_share_is_that_of_the_latest_accesses() {
        let mut earned = Earned::new(1);
        // 1 - (191 / 192) ^ 192 = 0.63, and back.
        (0..192).for_each(|_| earned.access(true));
        assert!((0.62..0.64).contains(&earned.share), "{}", earned.share);
        (0..2_000).for_each(|_| earned.access(false));
        assert_eq!(earned.class(), 0);
    }

    #[test]
    fn a_life_counts_by_when_its_chunk_was_last_asked_for_or_came() {
        let mut earned = Earned::new(2);
        earned.came(0);
        (0..100).for_each(|_| earned.end_window());
        // The first was asked for just now; the place of the second was somebody else's long ago.
        earned.saved(0, 1.0);
        earned.left(0);
        earned.came(1);
        earned.left(1);
        assert_eq!(earned.classes[0].lives, 2.0);
    }

    #[test]
    fn what_accesses_cost_is_taken_from_what_others_saved() {
        let mut earned = Earned::new(1);
        earned.came(0);
        [3.0, -1.0].into_iter().for_each(|saved| earned.saved(0, saved));
        assert_eq!(earned.classes[0].saved, 2.0);
    }
}
