//! Ranges of volumes: the states of the chain, at the finest level that they may have.

use super::super::StateModel;

/// The finest level: 4^5 = 1,024 ranges a volume.
pub(super) const LEVEL_MAX: u32 = 5;
const CELLS: usize = 1 << (2 * LEVEL_MAX);
/// States at most.
pub(super) const STATES_MAX: usize = 1 << 14;

/// The cells of a volume.
#[derive(Clone, Debug)]
struct Cells {
    /// The root range is `[0, 2^root_shift)`.
    root_shift: u32,
    /// State by cell of the level, `u32::MAX` where none.
    states: Box<[u32]>,
}

/// New names of states, by their old ones.
pub(super) type Renamed = Vec<u32>;

/// States by volume and cell.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    level: u32,
    volumes: Vec<Option<Cells>>,
    /// Volume and cell by state.
    states: Vec<(u32, u32)>,
}

impl Ranges {
    pub(super) fn new() -> Ranges {
        Ranges { level: LEVEL_MAX, volumes: Vec::new(), states: Vec::new() }
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// Makes the root of `volume` reach to `end`; new names where ranges grew with it.
    pub(super) fn reach(&mut self, volume: usize, end: u64) -> Option<Renamed> {
        if volume >= self.volumes.len() {
            self.volumes.resize(volume + 1, None);
        }
        let cells = self.volumes[volume].get_or_insert_with(|| Cells {
            root_shift: 2 * LEVEL_MAX + 12,
            states: vec![u32::MAX; CELLS].into_boxed_slice(),
        });
        let mut shift = cells.root_shift;
        while shift < 63 && end > 1 << shift {
            shift += 2;
        }
        let by = shift.min(63) - cells.root_shift;
        if by == 0 {
            return None;
        }
        // Cells merge: every `by` bits of them are one.
        cells.root_shift += by;
        let larger = |cell: u32| cell.checked_shr(by).unwrap_or(0);
        Some(self.remap(|of, cell| if of as usize == volume { larger(cell) } else { cell }))
    }

    /// The state of a byte of a volume that was reached; `None` where it is a new one and there are too many.
    #[inline]
    pub(super) fn state(&mut self, volume: usize, byte: u64) -> Option<u32> {
        let cells = self.volumes[volume].as_mut().expect("the volume was reached");
        // Beyond 2^63 the last cell takes what is left.
        let cell = (byte >> (cells.root_shift - 2 * self.level)).min((1 << (2 * self.level)) - 1) as usize;
        let known = cells.states[cell];
        if known != u32::MAX {
            return Some(known);
        }
        (self.states.len() < STATES_MAX).then(|| {
            let state = self.states.len() as u32;
            cells.states[cell] = state;
            self.states.push((volume as u32, cell as u32));
            state
        })
    }

    /// Lowers the level by one; new names of the states. Nothing at level 0.
    pub(super) fn coarsen(&mut self) -> Option<Renamed> {
        self.level = self.level.checked_sub(1)?;
        Some(self.remap(|_, cell| cell >> 2))
    }

    /// Gives every state its new cell; states with one cell become one.
    fn remap(&mut self, cell_of: impl Fn(u32, u32) -> u32) -> Renamed {
        let old = std::mem::take(&mut self.states);
        for cells in self.volumes.iter_mut().flatten() {
            cells.states.fill(u32::MAX);
        }
        let mut renamed = Vec::with_capacity(old.len());
        for (volume, cell) in old {
            let cell = cell_of(volume, cell);
            let cells = self.volumes[volume as usize].as_mut().expect("it has states");
            let state = &mut cells.states[cell as usize];
            if *state == u32::MAX {
                *state = self.states.len() as u32;
                self.states.push((volume, cell));
            }
            renamed.push(*state);
        }
        renamed
    }

    /// The sixteenth of its volume that a state is in.
    pub(super) fn sixteenth(&self, state: u32) -> u32 {
        self.states[state as usize].1 >> (2 * self.level).saturating_sub(4)
    }

    /// The first state within `[byte, byte + bytes)` of a volume; the nearest one of the volume where there is none, so that those of ascending ranges ascend.
    pub(super) fn state_within(&self, volume: u32, byte: u64, bytes: u64) -> u32 {
        let cells = self.volumes[volume as usize].as_ref().expect("the volume was reached");
        let cell = |byte: u64| ((byte >> (cells.root_shift - 2 * self.level)) as usize).min(CELLS - 1);
        let (first, last) = (cell(byte), cell(byte.saturating_add(bytes - 1)));
        let is_known = |cell: &usize| cells.states[*cell] != u32::MAX;
        let nearest = || {
            let away = |cell: &usize| first.saturating_sub(*cell).max(cell.saturating_sub(last));
            (0..CELLS).filter(is_known).min_by_key(away)
        };
        let found = (first..=last).find(is_known).or_else(nearest);
        cells.states[found.expect("a volume that was reached has a state")]
    }

    /// The states of a model, where volume `at` ends at `ends[at]` and is called `names[at]`.
    pub(super) fn models(&self, ends: &[u64], names: &[u32]) -> Vec<StateModel> {
        let model = |&(volume, cell): &(u32, u32)| {
            let cells = self.volumes[volume as usize].as_ref().expect("it has states");
            let shift = cells.root_shift - 2 * self.level;
            let first_byte = u64::from(cell) << shift;
            let bytes = (1u64 << shift).min(ends[volume as usize].saturating_sub(first_byte)).max(1);
            StateModel { volume: names[volume as usize], first_byte, bytes }
        };
        self.states.iter().map(model).collect()
    }
}
