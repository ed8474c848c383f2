//! Having memory fetched before it is read.
//!
//! A read that waits for memory keeps the processor from what comes some three hundred instructions later; a fetch does not wait, so that as many can be on their way
//! as the processor has places for. Where many look-ups are known in advance that is most of their time. It is a hint: what is computed is the same without it.

/// Has the memory of `at` fetched: the cache line in which it begins. Does nothing on processors for which it is not written.
#[inline(always)]
pub fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: the instruction changes nothing and reads nothing that anybody sees, whatever the address, which here is one of a value that lives; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_stays_as_it_is() {
        let values = [3u64, 5, 7];
        values.iter().for_each(prefetch);
        prefetch(&());
        assert_eq!(values, [3, 5, 7]);
    }
}
