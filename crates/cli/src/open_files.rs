//! How many files a daemon may have open. Clients take one each; where none is left for anything else, nobody can ask or tell it anything any more, and nothing can be kept.

use crate::output::say;
use forebay_appliance::ListenerConfig;
use forebay_serve::config::{Config, OriginConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open besides clients and origins, at most (ours): 128 connections of HTTP, and what the data path and books have.
const BESIDE: u64 = 256;

/// Takes all that the system allows: by default it is 1024, which is for programs of another time. Where `config` lets in more clients than that is enough for, fewer are let in, which is
/// told.
pub(crate) fn make_room(mut config: Config) -> Config {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, all).is_ok() { all } else { limit };
    let Some(most) = limit.current else { return config };
    let room = clients(&config, most);
    if config.limits.connections > room {
        say(format_args!(
            "warning: the system lets it have {most} files open, which is enough for {room} clients at once, and not for the {} of `limits.connections`; allow more (`ulimit -Hn`, systemd's `LimitNOFILE`)",
            config.limits.connections
        ));
        config.limits.connections = room;
    }
    config
}

/// So many clients leave room for everything else where `most` files may be open; one at least.
fn clients(config: &Config, most: u64) -> usize {
    let of_origin = |origin: &OriginConfig| match origin {
        OriginConfig::Nbd { uri, options, .. } => {
            options.connections as u64 * if uri.tls_required { TUNNEL } else { 1 }
        }
        _ => 1,
    };
    // Twice: where a volume goes may be changed, and then both ways are open.
    let origins: u64 = config.volumes.iter().map(|volume| 2 * of_origin(&volume.origin)).sum();
    let has_tls = config.listen.iter().any(|listener| matches!(listener, ListenerConfig::Tls { .. }));
    let of_client = if has_tls { TUNNEL } else { 1 };
    let room = most.saturating_sub(BESIDE + origins) / of_client;
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

/// What a connection over TLS takes: its own socket, and both ends of that behind it.
const TUNNEL: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_serve::config::{OriginTls, VolumeConfig};

    #[test]
    fn clients_leave_room_for_origins_and_all_else() {
        let volume = |uri: &str| {
            let origin = OriginConfig::Nbd {
                uri: uri.parse().unwrap(),
                options: forebay_origin::NbdOriginOptions::default(),
                tls: OriginTls::default(),
            };
            VolumeConfig::new(uri, origin)
        };
        let mut config = Config::new(vec![volume("nbd://h/one"), volume("nbds://h/two")]);
        // 1000 - 256 - 2 x (4 + 3 x 4) = 712.
        assert_eq!([1_000, 10].map(|most| clients(&config, most)), [712, 1]);
        let listener = Box::new(ListenerConfig::Unix { path: "nbd.sock".into() });
        config.listen = vec![ListenerConfig::Tls { listener, required: true }];
        assert_eq!(clients(&config, 1_000), 237);
    }
}
