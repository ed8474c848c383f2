//! The address of linear hashing: tables that grow by one bucket at a time, without ever hashing everything anew.

/// The bucket of `hash` among `buckets`, which is not 0. A bucket added at index `b` takes over from [`sibling`]`(b)` and from no other.
#[inline]
pub(crate) fn bucket_of(hash: u32, buckets: u32) -> u32 {
    let mask = (buckets - 1).checked_ilog2().map_or(0, |bits| u32::MAX >> (31 - bits));
    let wide = hash & mask;
    if wide < buckets { wide } else { hash & (mask >> 1) }
}

/// The bucket from which the bucket `added`, which is not 0, takes over.
pub(crate) fn sibling(added: u32) -> u32 {
    added & !(1 << added.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_bucket_takes_over_from_its_sibling_alone() {
        for buckets in 1..70u32 {
            for hash in (0..300).chain([u32::MAX, 1 << 31]) {
                let (before, after) = (bucket_of(hash, buckets), bucket_of(hash, buckets + 1));
                assert!(after == before || (after == buckets && before == sibling(buckets)));
                assert!(after <= buckets);
            }
        }
    }
}
