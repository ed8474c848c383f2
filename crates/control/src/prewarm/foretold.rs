//! How well a volume's habits foretell its visits: how many of them were told beforehand, and how often something was told for each.
//!
//! What clients' accesses tell beforehand can be loaded then; what comes untold must be there already. So what an order that is fixed at a
//! failure should hold depends on it. Ours.

/// Chances are told apart by twentieths.
const BINS: usize = 20;
/// Milliseconds for which something that was told holds.
const HOLDS_MILLIS: u32 = 2_000;
/// Visits below which nothing is known: all of them are taken for untold.
const VISITS_MIN: u32 = 200;

/// What was told of one volume's zones, and what came of it. 8 bytes per zone.
#[derive(Clone, Debug)]
pub struct Foretold {
    /// When each zone was last told, plus 1 (0: never), and its highest chance since it was first told.
    told: Vec<(u32, u8)>,
    /// Tellings (a zone told again while that holds is one) by the highest chance.
    tellings: [u32; BINS],
    /// Visits that were told, by the highest chance.
    visits_told: [u32; BINS],
    visits: u32,
}

fn bin(chance: f64) -> usize {
    ((chance * BINS as f64) as usize).min(BINS - 1)
}

impl Foretold {
    /// Nothing, of so many zones.
    pub fn new(zones: usize) -> Foretold {
        Foretold { told: vec![(0, 0); zones], tellings: [0; BINS], visits_told: [0; BINS], visits: 0 }
    }

    fn holds(told: u32, at_millis: u32) -> bool {
        told > 0 && at_millis.saturating_sub(told - 1) < HOLDS_MILLIS
    }

    /// A zone was told with this chance. Zones beyond the last are left out.
    pub fn tell(&mut self, zone: usize, chance: f64, at_millis: u32) {
        let Some((told, highest)) = self.told.get_mut(zone) else { return };
        let now = bin(chance);
        if !Foretold::holds(*told, at_millis) {
            self.tellings[now] += 1;
            *highest = now as u8;
        } else if now > usize::from(*highest) {
            self.tellings[usize::from(*highest)] -= 1;
            self.tellings[now] += 1;
            *highest = now as u8;
        }
        *told = at_millis.saturating_add(1);
    }

    /// A zone was visited. What was told of it is over.
    pub fn visit(&mut self, zone: usize, at_millis: u32) {
        self.visits += 1;
        if let Some((told, highest)) = self.told.get_mut(zone)
            && Foretold::holds(std::mem::take(told), at_millis)
        {
            self.visits_told[usize::from(*highest)] += 1;
        }
    }

    /// For every visit, how many visits and how many tellings there were of at least this chance: the first is at most 1.
    pub fn per_visit(&self, chance: f64) -> (f64, f64) {
        if self.visits < VISITS_MIN || chance > 1.0 {
            return (0.0, 0.0);
        }
        let sum = |bins: &[u32; BINS]| bins[bin(chance)..].iter().sum::<u32>();
        let (visits, tellings) = (sum(&self.visits_told), sum(&self.tellings));
        let share = |count: u32| f64::from(count) / f64::from(self.visits);
        (share(visits), share(tellings.max(visits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_count_as_told_by_the_highest_chance_before_them() {
        let mut foretold = Foretold::new(10);
        // 400 times: zone 1 is told with 0.3, then with 0.6, and visited; zone 2 is told with 0.6 and not visited; zone 3 is visited untold, and zone 4 three seconds after it was told.
        for round in 0..400u32 {
            let at = round * 10_000;
            foretold.tell(1, 0.3, at);
            foretold.tell(1, 0.6, at + 1_000);
            foretold.tell(1, 0.4, at + 2_000);
            foretold.tell(2, 0.6, at);
            foretold.tell(4, 0.9, at);
            foretold.visit(1, at + 3_000);
            foretold.visit(3, at + 3_000);
            foretold.visit(4, at + 3_000);
        }
        // Three visits a round; one of them told with 0.6, and of at least 0.5 three tellings.
        assert_eq!(foretold.per_visit(0.5), (1.0 / 3.0, 1.0));
        assert_eq!(foretold.per_visit(0.7), (0.0, 1.0 / 3.0));
        assert_eq!(foretold.per_visit(0.0), (1.0 / 3.0, 1.0));
        assert_eq!(foretold.per_visit(1.5), (0.0, 0.0));
    }

    #[test]
    fn little_seen_is_nothing_known_and_zones_beyond_the_last_are_left_out() {
        let mut foretold = Foretold::new(2);
        for round in 0..199 {
            foretold.tell(0, 0.9, round * 10_000);
            foretold.visit(0, round * 10_000 + 5);
        }
        assert_eq!(foretold.per_visit(0.1), (0.0, 0.0));
        foretold.tell(2, 0.9, 0);
        foretold.visit(2, 0);
        assert_eq!(foretold.per_visit(0.1), (0.995, 0.995));
    }
}
