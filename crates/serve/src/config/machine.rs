//! What this machine has.

use forebay_units::Bytes;
use std::path::Path;

/// The memory that this process may use: the machine's, or less where its control group says so.
pub fn machine_memory() -> Bytes {
    let group = Group::of_this_process().and_then(|group| group.limit);
    // Without /proc nothing is known: assume little rather than much.
    memory_total().unwrap_or(Bytes::gib(1)).min(Bytes(group.unwrap_or(u64::MAX)))
}

/// The memory of the whole machine, where the system says it.
pub(crate) fn memory_total() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    field_of(&text, "MemTotal:").map(Bytes)
}

/// The memory that this process could still take: what the machine has available, or less where its control group leaves less.
pub fn memory_available() -> Bytes {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| field_of(&text, "MemAvailable:")).unwrap_or(0);
    let group = Group::of_this_process().and_then(|group| Some(group.limit?.saturating_sub(group.taken)));
    Bytes(machine.min(group.unwrap_or(u64::MAX)))
}

/// The memory of a control group. The groups above it are not asked.
struct Group {
    /// `None`: as much as there is.
    limit: Option<u64>,
    /// Without what the system would give back at once: the page cache of files that were not used for long.
    taken: u64,
}

impl Group {
    fn of_this_process() -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |prefix: &str| groups.lines().find_map(|line| line.split_once(prefix).map(|(_, path)| path));
        let second = of("0::/").map(|path| Path::new("/sys/fs/cgroup").join(path));
        let first = of(":memory:/").map(|path| Path::new("/sys/fs/cgroup/memory").join(path));
        second
            .and_then(|folder| Group::read(&folder, ["memory.max", "memory.current", "inactive_file "]))
            .or_else(|| {
                let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
                Group::read(&first?, names)
            })
    }

    fn read(folder: &Path, [limit, taken, idle]: [&str; 3]) -> Option<Group> {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let statistics = text("memory.stat").unwrap_or_default();
        let idle = statistics.lines().find_map(|line| line.strip_prefix(idle)?.parse::<u64>().ok());
        Some(Group {
            limit: text(limit)?.trim().parse().ok(),
            taken: text(taken)?.trim().parse::<u64>().ok()?.saturating_sub(idle.unwrap_or(0)),
        })
    }
}

fn field_of(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kibibytes() {
        assert_eq!(field_of("MemTotal:       16000 kB\nMemFree:  1 kB\n", "MemTotal:"), Some(16_384_000));
        assert_eq!(field_of("nothing", "MemTotal:"), None);
        let folder = tempfile::tempdir().unwrap();
        let names = ["memory.max", "memory.current", "inactive_file "];
        assert!(Group::read(folder.path(), names).is_none());
        for (name, text) in [
            ("memory.max", "1000\n"),
            ("memory.current", "300\n"),
            ("memory.stat", "anon 5\ninactive_file 100\n"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let group = Group::read(folder.path(), names).unwrap();
        assert_eq!((group.limit, group.taken), (Some(1000), 200));
        std::fs::write(folder.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(Group::read(folder.path(), names).unwrap().limit, None);
        assert!(memory_available() > Bytes::ZERO && memory_available() < machine_memory());
        assert!(machine_memory() > Bytes::mib(16));
    }
}
