//! Bytes on their way to a client: small replies side by side in one buffer, long ones as they came.
//!
//! Invariants: `len` is the number of bytes in all segments that were not sent yet; only the first segment is sent in part; besides what was not sent, and what
//! is kept to be used again, there is at most one segment of what was, whose small replies are [`SEGMENT_BYTES_MAX`] and one reply at most.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Data from this length on is not copied into the common buffer (ours: two pages of bookkeeping cost less than
/// copying sixteen of data).
const SEGMENT_BYTES_MIN: usize = 32 << 10;

/// Nothing is appended to a common buffer of this length or more (ours): a client that never has taken all of its replies would keep what it has taken.
const SEGMENT_BYTES_MAX: usize = 128 << 10;

/// A spare buffer above this is given back to the allocator: as a common buffer grows by doubling, and by less than [`SEGMENT_BYTES_MIN`] at a time, none becomes larger. Long replies do.
const SPARE_BYTES_MAX: usize = 2 * (SEGMENT_BYTES_MAX + SEGMENT_BYTES_MIN);

/// Replies that the client has not taken yet.
#[derive(Debug, Default)]
pub struct Output {
    /// The last one may be appended to if `open`.
    segments: VecDeque<Vec<u8>>,
    open: bool,
    /// Bytes of the first segment that were sent.
    sent: usize,
    len: usize,
    spare: Vec<u8>,
}

impl Output {
    /// Bytes that were not sent yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets `append` append to the common buffer.
    #[inline]
    pub(crate) fn append<R>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if !self.open || self.segments.back().is_none_or(|buffer| buffer.len() >= SEGMENT_BYTES_MAX) {
            self.segments.push_back(std::mem::take(&mut self.spare));
            self.open = true;
        }
        let buffer = self.segments.back_mut().expect("an open segment is there");
        let before = buffer.len();
        let result = append(buffer);
        self.len += buffer.len() - before;
        result
    }

    /// Appends data that is ours to keep.
    pub(crate) fn append_data(&mut self, data: Vec<u8>) {
        if data.len() < SEGMENT_BYTES_MIN {
            return self.append(|buffer| buffer.extend_from_slice(&data));
        }
        self.len += data.len();
        self.segments.push_back(data);
        self.open = false;
    }

    /// What is to be sent, in order, in at most `slices.len()` pieces; how many were set.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let rest = if index == 0 { &segment[self.sent..] } else { &segment[..] };
            if rest.is_empty() {
                continue;
            }
            let Some(slice) = slices.get_mut(count) else { break };
            *slice = IoSlice::new(rest);
            count += 1;
        }
        count
    }

    /// Appends all that was not sent to `target`.
    pub fn copy_to(&self, target: &mut Vec<u8>) {
        for (index, segment) in self.segments.iter().enumerate() {
            target.extend_from_slice(&segment[if index == 0 { self.sent } else { 0 }..]);
        }
    }

    /// The first `bytes` bytes were sent.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        debug_assert!(bytes <= self.len);
        self.len -= bytes;
        while let Some(front) = self.segments.front() {
            let rest = front.len() - self.sent;
            if bytes < rest {
                self.sent += bytes;
                return;
            }
            bytes -= rest;
            self.sent = 0;
            let mut front = self.segments.pop_front().expect("looked at above");
            if self.segments.is_empty() {
                self.open = false;
            }
            if self.spare.capacity() < front.capacity() && front.capacity() <= SPARE_BYTES_MAX {
                front.clear();
                self.spare = front;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(output: &Output) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 8];
        let count = output.slices(&mut slices);
        slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn common_buffers_are_used_again_and_long_replies_are_not_kept() {
        let mut output = Output::default();
        output.append_data(vec![7; 1 << 20]);
        output.advance(1 << 20);
        assert!(output.spare.capacity() <= 320 << 10, "{} bytes are kept", output.spare.capacity());
        // Whatever lengths replies have, the buffer that they fill is the next one.
        for length in (1..SEGMENT_BYTES_MIN).step_by(509) {
            output.spare = Vec::new();
            for _ in 0..2 * SEGMENT_BYTES_MAX / length {
                output.append(|buffer| buffer.extend(std::iter::repeat_n(7, length)));
            }
            let full = output.segments[0].capacity();
            output.advance(output.len());
            assert!(output.spare.capacity() >= full, "{full} bytes filled with replies of {length}");
        }
    }

    /// As of a client with a slow connection and enough requests in flight: something always waits.
    #[test]
    fn what_was_sent_is_given_up_although_more_always_waits() {
        const REPLY_BYTES: usize = 4112;
        let mut output = Output::default();
        let append = |output: &mut Output, reply: u32| {
            output.append(|buffer| buffer.extend((0..REPLY_BYTES).map(|at| (reply as usize + at) as u8)));
        };
        (0..4).for_each(|reply| append(&mut output, reply));
        for reply in 4..10_000 {
            append(&mut output, reply);
            let first: Vec<u8> = (0..REPLY_BYTES).map(|at| (reply as usize - 4 + at) as u8).collect();
            assert!(all(&output).starts_with(&first));
            output.advance(REPLY_BYTES);
            let held: usize = output.segments.iter().map(Vec::len).sum();
            let most = output.len() + SEGMENT_BYTES_MAX + REPLY_BYTES;
            assert!(held <= most, "{held} bytes are held after {reply} replies, {most} at most");
        }
        assert_eq!(output.len(), 4 * REPLY_BYTES);
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let mut output = Output::default();
        output.append(|buffer| buffer.extend_from_slice(b"header"));
        output.append_data(vec![7; SEGMENT_BYTES_MIN]);
        output.append(|buffer| buffer.extend_from_slice(b"next"));
        output.append_data(b"small".to_vec());
        let mut expected = b"header".to_vec();
        expected.extend(vec![7; SEGMENT_BYTES_MIN]);
        expected.extend_from_slice(b"nextsmall");
        assert_eq!((all(&output), output.segments.len()), (expected.clone(), 3));
        for step in [1, 5, 10, SEGMENT_BYTES_MIN - 10, 3] {
            output.advance(step);
            expected.drain(..step);
            assert_eq!((all(&output), output.len()), (expected.clone(), expected.len()));
        }
        output.append(|buffer| buffer.push(b'!'));
        expected.push(b'!');
        assert_eq!(all(&output), expected);
        output.advance(expected.len());
        assert!(output.is_empty() && output.segments.is_empty());
        output.append(|buffer| buffer.push(b'?'));
        assert_eq!(all(&output), b"?");
    }
}
