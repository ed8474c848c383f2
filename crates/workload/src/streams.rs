//! Sequential streams: which of the latest ones a request continues.

use forebay_units::ByteRange;

/// Streams that are told apart (ours; as many as the segments of a typical disk's on-board cache).
const STREAMS: usize = 32;

/// The latest streams of one volume, each with a `T` of its own. A request continues the one that ended where it begins, as several readers side by
/// side interleave; one that continues none begins another, in the place of the one that was least recently continued.
#[derive(Clone, Debug)]
pub struct Streams<T = ()> {
    /// Where each ended; the most recently continued first.
    streams: Vec<(u64, T)>,
}

/// What a request is to a volume's streams.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed<'a, T> {
    /// How many were continued since the one that it continues was, 0 for the last; `None` for one that begins another.
    pub continues: Option<usize>,
    /// What is kept of its stream.
    pub stream: &'a mut T,
    /// What was kept of the one that made room for it.
    pub ended: Option<T>,
}

impl<T> Default for Streams<T> {
    fn default() -> Streams<T> {
        Streams { streams: Vec::new() }
    }
}

impl<T: Default> Streams<T> {
    /// Takes a request in. `O(STREAMS)`.
    pub fn request(&mut self, range: ByteRange) -> Placed<'_, T> {
        let continues = self.streams.iter().position(|(end, _)| *end == range.offset);
        let ended = match continues {
            Some(_) => None,
            None if self.streams.len() == STREAMS => self.streams.pop(),
            None => None,
        };
        if continues.is_none() {
            self.streams.push((0, T::default()));
        }
        let at = continues.unwrap_or(self.streams.len() - 1);
        self.streams[..=at].rotate_right(1);
        let (end, stream) = &mut self.streams[0];
        *end = range.end();
        Placed { continues, stream, ended: ended.map(|(_, ended)| ended) }
    }

    /// What is kept of those that have not ended.
    pub fn into_open(self) -> impl Iterator<Item = T> {
        self.streams.into_iter().map(|(_, stream)| stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_side_by_side_are_told_apart_up_to_a_number() {
        let at = |offset| ByteRange { offset, length: 10 };
        let mut streams = Streams::<u32>::default();
        let mut continues = |offset| streams.request(at(offset)).continues;
        assert_eq!(continues(0), None);
        // The same again is no continuation, what begins behind the last one or the one before it is.
        assert_eq!(
            [continues(0), continues(1_000), continues(1_010), continues(10)],
            [None, None, Some(0), Some(1)]
        );
        // Of two that ended in the same place one goes on; then the other.
        assert_eq!([continues(10), continues(10)], [Some(2), None]);
        // As many others as are told apart, and it is over.
        let mut streams = Streams::<u32>::default();
        *streams.request(at(0)).stream += 7;
        for other in 1..STREAMS as u64 {
            assert_eq!(streams.request(at(1_000 * other)).ended, None);
        }
        let other = streams.request(at(1_000_000));
        assert_eq!((other.continues, &*other.stream, other.ended), (None, &0, Some(7)));
        assert_eq!(streams.request(at(1_010)).continues, Some(STREAMS - 1));
        assert_eq!(streams.into_open().count(), STREAMS);
    }
}
