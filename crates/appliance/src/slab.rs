//! A table of things in flight: a key is an index and a generation, so that a stale key finds nothing.

/// A growable table with stable keys; freed places are used again under a new generation.
///
/// It never shrinks: its size is bounded by the limits of who inserts. All operations are `O(1)`.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// The key of a connection, a volume or a request in flight: stale once what it named is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlabKey(pub(crate) u64);

impl SlabKey {
    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// How many values are held.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key that the next insertion will return.
    pub(crate) fn next_key(&self) -> SlabKey {
        match self.free.last() {
            Some(index) => {
                SlabKey(u64::from(self.places[*index as usize].generation) << 32 | u64::from(*index))
            }
            None => SlabKey(self.places.len() as u64),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> SlabKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, value: None });
            u32::try_from(self.places.len() - 1).expect("limits keep tables far below 2^32")
        });
        let place = &mut self.places[index as usize];
        debug_assert!(place.value.is_none(), "place {index} was on the free list and holds a value");
        place.value = Some(value);
        SlabKey(u64::from(place.generation) << 32 | u64::from(index))
    }

    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        self.places.get(key.index()).filter(|place| place.generation == key.generation())?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let place = self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index() as u32);
        Some(value)
    }

    /// Every key and value, by place. Linear in the places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let key = SlabKey(u64::from(place.generation) << 32 | index as u64);
            place.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let next = slab.next_key();
        let second = slab.insert("b");
        assert_eq!(next, second);
        assert_eq!(slab.next_key().index(), 1);
        // Same place, next generation.
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&"b")));
        assert_eq!((slab.len(), slab.is_empty(), slab.iter().count()), (1, false, 1));
    }
}
