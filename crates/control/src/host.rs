//! Host selection: the application's host, then its rack, then the first that has room (Dynamite, step 6).

use crate::inventory::{HostId, HostSpec};
use forebay_units::Bytes;

/// Chooses where a cache of `size` goes: `home` if it has room, then the first host of its rack, then the first at all.
///
/// `free` says what each host of `hosts` can still give, in the same order. `None` where none has room; the caller
/// reserves the bytes before it asks again. `O(hosts)`.
///
/// # Panics
/// If the lengths differ.
pub fn choose(home: HostId, size: Bytes, hosts: &[HostSpec], free: &[Bytes]) -> Option<HostId> {
    assert_eq!(hosts.len(), free.len(), "one number of free bytes for each host");
    let rack = hosts.iter().find(|host| host.id == home).map(|host| host.rack);
    let distance = |host: &HostSpec| match (host.id == home, Some(host.rack) == rack) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    };
    // min_by_key keeps the first of equals: first fit.
    hosts
        .iter()
        .zip(free)
        .filter(|(_, free)| **free >= size)
        .min_by_key(|(host, _)| distance(host))
        .map(|(host, _)| host.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_then_rack_then_first_fit() {
        let host =
            |id, rack| HostSpec { id: HostId(id), name: format!("h{id}"), rack, capacity: Bytes::gib(8) };
        let hosts = [host(1, 1), host(2, 2), host(3, 2), host(4, 3)];
        let choose = |free: [u64; 4]| choose(HostId(2), Bytes::gib(4), &hosts, &free.map(Bytes::gib));
        assert_eq!(choose([8, 8, 8, 8]), Some(HostId(2)));
        assert_eq!(choose([8, 3, 8, 8]), Some(HostId(3)));
        assert_eq!(choose([8, 3, 3, 8]), Some(HostId(1)));
        assert_eq!(choose([3, 3, 3, 3]), None);
    }
}
