//! Memory for the kernel to read from or write to: aligned where a file asks for it, and used again.

/// Bytes of memory that are kept for reuse, at most (ours).
const SPARE_BYTES_MAX: usize = 4 << 20;

/// Bytes in one piece that begin at a multiple of an alignment.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// The bytes of `memory`, wherever they are.
    pub(crate) fn unaligned(memory: Vec<u8>) -> Buffer {
        let length = memory.len();
        Buffer { memory, start: 0, length }
    }

    fn aligned(memory: Vec<u8>, length: usize, alignment: usize) -> Buffer {
        let start = memory.as_ptr().align_offset(alignment);
        assert!(
            start.saturating_add(length) <= memory.len(),
            "{length} bytes at {start} are not in {}",
            memory.len()
        );
        Buffer { memory, start, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }

    /// The bytes by themselves.
    fn into_bytes(self) -> Vec<u8> {
        if self.start == 0 && self.length == self.memory.len() {
            return self.memory;
        }
        self.bytes().to_vec()
    }
}

/// Memory of aligned buffers that are not in use. Each has the length of a power of two and an alignment to spare.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<Vec<u8>>>,
    spare_bytes: usize,
}

impl Buffers {
    /// A buffer of `length` bytes that begins at a multiple of `alignment`, a power of two; what is in it is left over.
    pub(crate) fn take(&mut self, length: usize, alignment: usize) -> Buffer {
        if alignment <= 1 {
            return Buffer::unaligned(vec![0; length]);
        }
        let class = class_of(length);
        let needed = (1usize << class) + alignment;
        let spare = self.spare.get_mut(class).and_then(Vec::pop);
        let spare = spare.inspect(|memory| self.spare_bytes -= memory.len());
        // All files of a thread have the same alignment, or none.
        let memory = spare.filter(|memory| memory.len() >= needed).unwrap_or_else(|| vec![0; needed]);
        Buffer::aligned(memory, length, alignment)
    }

    /// The bytes of `buffer`, of which the memory is kept if it is an aligned one.
    pub(crate) fn finish(&mut self, buffer: Buffer) -> Vec<u8> {
        let is_aligned = buffer.memory.len() > buffer.length;
        if !is_aligned {
            return buffer.into_bytes();
        }
        let bytes = buffer.bytes().to_vec();
        self.give_back(buffer);
        bytes
    }

    /// Keeps the memory of `buffer`, unless enough is kept.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        let memory = buffer.memory;
        let class = class_of(buffer.length);
        if memory.len() <= buffer.length || self.spare_bytes + memory.len() > SPARE_BYTES_MAX {
            return;
        }
        if self.spare.len() <= class {
            self.spare.resize_with(class + 1, Vec::new);
        }
        self.spare_bytes += memory.len();
        self.spare[class].push(memory);
    }
}

fn class_of(length: usize) -> usize {
    length.max(1).next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_used_again_and_kept_within_bounds() {
        let mut buffers = Buffers::default();
        for length in [1, 511, 4096, 4097, 65_536, 100_000] {
            let mut buffer = buffers.take(length, 4096);
            assert_eq!((buffer.len(), buffer.bytes().as_ptr() as usize % 4096), (length, 0));
            buffer.bytes_mut().fill(7);
            assert_eq!(buffers.finish(buffer), vec![7; length]);
        }
        let first = buffers.take(4096, 4096);
        let address = first.bytes().as_ptr();
        buffers.give_back(first);
        assert_eq!(buffers.take(4000, 4096).bytes().as_ptr(), address);
        let many: Vec<Buffer> = (0..64).map(|_| buffers.take(128 << 10, 4096)).collect();
        many.into_iter().for_each(|buffer| buffers.give_back(buffer));
        assert!(buffers.spare_bytes <= SPARE_BYTES_MAX);
        let kept: usize = buffers.spare.iter().flatten().map(Vec::len).sum();
        assert_eq!(kept, buffers.spare_bytes);
        // What nobody aligned is handed on as it is.
        let memory = vec![1, 2, 3];
        let address = memory.as_ptr();
        let bytes = buffers.finish(Buffer::unaligned(memory));
        assert_eq!(bytes.as_ptr(), address);
    }
}
