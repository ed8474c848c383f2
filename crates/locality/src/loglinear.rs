//! Buckets that grow with their values: 64 per doubling, so that a value is known within 1.6%, and exactly below 128.

const SHIFT: u32 = 6;
const SUB: u64 = 1 << SHIFT;

/// The bucket of `value`.
#[inline]
pub(crate) fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let octave = value.ilog2() - SHIFT;
    (((u64::from(octave) + 1) << SHIFT) + ((value >> octave) - SUB)) as usize
}

/// The smallest value of a bucket; that of the next one ends it.
pub(crate) fn bucket_start(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let octave = (bucket >> SHIFT) - 1;
    (SUB + bucket % SUB) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_numbers() {
        for bucket in 0..3_000 {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert!(start < end);
            assert_eq!((bucket_of(start), bucket_of(end - 1)), (bucket, bucket));
            assert!((end - start) * 64 <= start.max(64), "bucket {bucket} is too wide");
        }
    }
}
