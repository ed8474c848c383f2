//! An estimate of how many distinct blocks were used, in 2 KiB: HyperLogLog (Flajolet et al., AofA '07).

/// Registers are chosen by this many low bits of the hash; thresholds of samples look at the high ones.
const INDEX_BITS: u32 = 11;
const REGISTERS: usize = 1 << INDEX_BITS;
/// The largest rank: all other bits are zero.
const RANK_MAX: usize = 64 - INDEX_BITS as usize + 1;

/// Counts distinct hashes with a standard error of 1.04 / sqrt(2,048) = 2.3%, and nearly exactly while they are few.
///
/// Once every register holds some rank, a hash of at most that rank changes nothing, which one look at its bits tells (ours): of a
/// stream with many more distinct hashes than registers, hardly any reaches a register.
#[derive(Clone, Debug)]
pub struct DistinctSketch {
    registers: Box<[u8; REGISTERS]>,
    /// The lowest rank of all registers, and how many of them have it.
    lowest: u8,
    at_lowest: u16,
    /// The bits of a hash that are all zero if its rank is above the lowest.
    below: u64,
}

impl Default for DistinctSketch {
    fn default() -> DistinctSketch {
        DistinctSketch::new()
    }
}

impl DistinctSketch {
    /// Nothing seen yet.
    pub fn new() -> DistinctSketch {
        DistinctSketch {
            registers: Box::new([0; REGISTERS]),
            lowest: 0,
            at_lowest: REGISTERS as u16,
            below: 0,
        }
    }

    /// Adds a block by its hash, as of [`forebay_units::mix64`].
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if hash & self.below == 0 {
            self.raise(hash);
        }
    }

    #[inline(never)]
    fn raise(&mut self, hash: u64) {
        let register = &mut self.registers[(hash % REGISTERS as u64) as usize];
        // The added bit bounds the rank.
        let rank = ((hash >> INDEX_BITS) | 1 << (64 - INDEX_BITS)).trailing_zeros() as u8 + 1;
        let before = *register;
        if rank > before {
            *register = rank;
            if before == self.lowest {
                self.at_lowest -= 1;
                if self.at_lowest == 0 {
                    self.find_lowest();
                }
            }
        }
    }

    /// Happens at most once per rank between two calls of [`DistinctSketch::clear`].
    #[cold]
    fn find_lowest(&mut self) {
        self.lowest = *self.registers.iter().min().expect("there are registers");
        self.at_lowest = self.registers.iter().filter(|&&rank| rank == self.lowest).count() as u16;
        // A rank of r means that r - 1 bits above the index are zero, and the next is not: above r, r are.
        self.below = ((1 << self.lowest) - 1) << INDEX_BITS;
    }

    /// Adds all that `other` has seen.
    pub fn merge(&mut self, other: &DistinctSketch) {
        for (register, &theirs) in self.registers.iter_mut().zip(other.registers.iter()) {
            *register = (*register).max(theirs);
        }
        self.find_lowest();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.registers.fill(0);
        self.find_lowest();
    }

    /// The estimate, by the improved raw estimator, which needs no tables of corrections (Ertl, arXiv:1702.01284, algorithm 6).
    pub fn estimate(&self) -> u64 {
        let mut counts = [0u32; RANK_MAX + 1];
        self.registers.iter().for_each(|&rank| counts[usize::from(rank)] += 1);
        let m = REGISTERS as f64;
        let mut z = m * tau(1.0 - f64::from(counts[RANK_MAX]) / m);
        for &count in counts[1..RANK_MAX].iter().rev() {
            z = 0.5 * (z + f64::from(count));
        }
        z += m * sigma(f64::from(counts[0]) / m);
        (m * m / (2.0 * std::f64::consts::LN_2 * z)).round() as u64
    }

    /// Bytes held.
    pub const fn bytes(&self) -> usize {
        REGISTERS
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;

    #[test]
    fn estimates_stay_within_four_standard_errors() {
        assert_eq!(DistinctSketch::new().estimate(), 0);
        for count in [1u64, 10, 500, 3_000, 10_000, 300_000, 3_000_000] {
            let mut sketch = DistinctSketch::new();
            (0..count).for_each(|key| sketch.add_hash(mix64(key)));
            let error = (sketch.estimate() as f64 / count as f64 - 1.0).abs();
            assert!(error <= 4.0 * 0.023, "{count}: {}", sketch.estimate());
        }
        let mut few = DistinctSketch::new();
        (0..10).for_each(|key| few.add_hash(mix64(key)));
        assert_eq!(few.estimate(), 10);
    }

    #[test]
    fn what_is_passed_over_would_have_changed_nothing() {
        let mut sketch = DistinctSketch::new();
        let mut plain = [0u8; REGISTERS];
        for key in 0..200_000 {
            let hash = mix64(key);
            sketch.add_hash(hash);
            let register = &mut plain[(hash & 2_047) as usize];
            *register = (*register).max(((hash >> 11).trailing_zeros() as u8).min(53) + 1);
        }
        assert_eq!(*sketch.registers, plain);
        // 98 hashes per register: the chance that one of 2,048 saw none of rank 4 and above is 2,048 * (7/8)^98 = 0.4%.
        assert!(sketch.lowest >= 3 && sketch.below >= 0b111 << 11);
        sketch.clear();
        sketch.add_hash(1 << 11);
        assert_eq!((sketch.lowest, sketch.below, sketch.registers[0]), (0, 0, 1));
    }

    #[test]
    fn merging_is_seeing_both() {
        let (mut a, mut b, mut both) = (DistinctSketch::new(), DistinctSketch::new(), DistinctSketch::new());
        for key in 0..5_000 {
            if key < 3_000 {
                a.add_hash(mix64(key));
            }
            if key > 1_000 {
                b.add_hash(mix64(key));
            }
            both.add_hash(mix64(key));
        }
        a.merge(&b);
        assert_eq!(a.estimate(), both.estimate());
        a.clear();
        assert_eq!(a.estimate(), 0);
        let mut zero = DistinctSketch::new();
        zero.add_hash(0);
        assert_eq!(zero.estimate(), 1);
    }
}
