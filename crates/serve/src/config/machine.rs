//! What this machine has.

use forebay_units::Bytes;

/// The memory that this process may use: the machine's, or less where its control group says so.
pub fn machine_memory() -> Bytes {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let group =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    // Without /proc nothing is known: assume little rather than much.
    Bytes(total.unwrap_or(1 << 30).min(group.unwrap_or(u64::MAX)))
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kibibytes() {
        assert_eq!(total_of("MemTotal:       16000 kB\nMemFree:  1 kB\n"), Some(16_384_000));
        assert_eq!(total_of("nothing"), None);
        assert!(machine_memory() > Bytes::mib(16));
    }
}
