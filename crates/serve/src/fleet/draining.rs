//! Hosts and volumes that a fleet's configuration has drained: which they are, what there is of them yet, and for whom that leaves no host.

use super::config::{FleetConfig, unfit};
use super::id_of;
use crate::status::{DrainStatus, DrainedWhat};
use forebay_control::HostId;
use forebay_control::response::{Drained, Responses};

/// By their numbers.
pub(super) fn drained(config: &FleetConfig) -> Drained {
    let hosts = config.host.iter().enumerate().filter(|(_, host)| host.drain);
    let volumes = config.volume.iter().enumerate().filter(|(_, volume)| volume.drain);
    Drained {
        hosts: hosts.map(|(at, _)| HostId(at as u32)).collect(),
        volumes: volumes.map(|(at, _)| id_of(at)).collect(),
    }
}

/// What is told of each, hosts first, in the order of the configuration.
pub(super) fn statuses(config: &FleetConfig, responses: &Responses) -> Vec<DrainStatus> {
    let Drained { hosts, volumes } = drained(config);
    let host = |id: HostId| DrainStatus {
        what: DrainedWhat::Host,
        name: config.host[id.0 as usize].name.clone(),
        left: responses.left_on(id),
    };
    let volume = |id: forebay_control::VolumeId| DrainStatus {
        what: DrainedWhat::Volume,
        name: config.volume[id.0 as usize].name.clone(),
        left: responses.left_of(id),
    };
    hosts.into_iter().map(host).chain(volumes.into_iter().map(volume)).collect()
}

/// Volumes that may have a cache and find no host for it, in a sentence each.
pub(super) fn nowhere_to_go(config: &FleetConfig) -> Vec<String> {
    let mut sentences = Vec::new();
    for (at, volume) in config.volume.iter().enumerate().filter(|(_, of)| of.why_forbidden().is_none()) {
        let fit = || config.host.iter().filter(|host| unfit(host, volume).is_none());
        if fit().next().is_some() && fit().all(|host| host.drain) {
            let names: Vec<String> = fit().map(|host| format!("`{}`", host.name)).collect();
            sentences.push(format!(
                "`volume[{at}]`: `{}` has no cache for now, since all hosts that its appliance could be on are drained: {}; expected one without `drain = true`",
                volume.name,
                names.join(", ")
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MOVED, config};
    use super::*;

    #[test]
    fn a_volume_whose_hosts_are_all_drained_is_told_and_one_that_is_drained_itself_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), MOVED);
        config.host.push(config.host[0].clone());
        config.host[1].name = "h2".to_owned();
        let mut told = |drained: [bool; 2], volume| {
            (config.host[0].drain, config.host[1].drain) = (drained[0], drained[1]);
            config.volume[0].drain = volume;
            nowhere_to_go(&config)
        };
        assert_eq!(told([true, false], false), Vec::<String>::new());
        assert_eq!(told([true, true], true), Vec::<String>::new());
        let told = told([true, true], false);
        assert!(told.len() == 1 && told[0].contains("are drained: `h1`, `h2`;"), "{told:?}");
    }
}
