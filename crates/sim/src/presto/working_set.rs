//! How much cache a volume needs by itself, as PRESTO finds it.

use super::load::Load;
use super::objects::{HM1_BYTES, HM3_BYTES};
use super::pools::Pools;

/// The sizes that PRESTO's simulator tries, in MiB.
const SIZES: [u32; 57] = [
    1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 125, 150, 175, 200, 225, 250, 275, 300, 325, 350, 375,
    400, 425, 450, 475, 500, 550, 600, 650, 700, 750, 800, 850, 900, 950, 1_000, 1_100, 1_200, 1_300, 1_400,
    1_500, 1_600, 1_700, 1_800, 1_900, 2_000, 2_100, 2_200, 2_300, 2_400, 2_500, 2_600, 2_700, 2_800, 2_900,
];

/// wss80: the smallest of PRESTO's sizes, in MiB, with which one LRU pool reaches a mean of 0.8. The mean is over seconds, of the
/// hit ratio per look-up of everything until then. `None` if the largest does not. By bisection: LRU with more room hits no less.
pub fn wss80(load: &Load) -> Option<u32> {
    let reaches = |mib: u32| mean_hit_ratio(load, u64::from(mib) << 20) >= 0.8;
    let place = SIZES.partition_point(|size| !reaches(*size));
    SIZES.get(place).copied()
}

fn mean_hit_ratio(load: &Load, bytes: u64) -> f64 {
    let mut pools = Pools::with_single(load.objects.clone(), bytes, bytes);
    let (mut hits, mut all, mut sum, mut seconds) = (0u64, 0u64, 0.0, 0u32);
    let ratio = |hits: u64, all: u64| if all == 0 { 0.0 } else { hits as f64 / all as f64 };
    for access in &load.accesses {
        while access.at_millis / 1_000 > seconds {
            sum += ratio(hits, all);
            seconds += 1;
        }
        for object in [load.objects.hm1(access.extent), load.objects.hm3(access.extent)] {
            hits += u64::from(pools.look_up(object));
            all += 1;
        }
    }
    (sum + ratio(hits, all)) / f64::from(seconds + 1)
}

/// MiB of the objects that were used in a window of 600 seconds, on average over windows every 300 seconds (the window and stride
/// of PRESTO's simulator, which counts only what is still cached).
pub fn runtime_working_set(load: &Load) -> f64 {
    const STRIDE_MILLIS: u32 = 300_000;
    let strides = load.accesses.last().map_or(0, |access| access.at_millis / STRIDE_MILLIS);
    // The stride in which an extent was last used, plus 1.
    let mut last = vec![0u32; load.objects.extents() as usize];
    let mut distinct = vec![0u64; strides as usize + 2];
    for access in &load.accesses {
        let stride = access.at_millis / STRIDE_MILLIS;
        let before = std::mem::replace(&mut last[access.extent as usize], stride + 1);
        // The window that ends with a stride has what was used in it and in the one before.
        if before != stride + 1 {
            distinct[stride as usize] += u64::from(before != stride + 1);
            // Used in this stride, so in the window that ends with the next, unless it is used there too and counted there.
            distinct[stride as usize + 1] += 1;
            if before == stride && stride > 0 {
                distinct[stride as usize] -= 1;
            }
        }
    }
    let windows = &distinct[1..(strides as usize).max(1)];
    let extents = windows.iter().sum::<u64>() as f64 / windows.len().max(1) as f64;
    extents * (HM1_BYTES + HM3_BYTES) as f64 / f64::from(1 << 20)
}
