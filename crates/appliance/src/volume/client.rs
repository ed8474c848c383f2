//! Who asks: clients are told apart by where they connect from.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;

/// From where a client connects, as far as it can be known without asking it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientAddress {
    /// Not known.
    #[default]
    Unknown,
    /// Over TCP, from this address; one of IPv4 is never written as one of IPv6.
    Ip(IpAddr),
    /// Over a unix socket, as this user.
    User(u32),
}

impl ClientAddress {
    /// Over TCP.
    pub fn ip(address: IpAddr) -> ClientAddress {
        ClientAddress::Ip(address.to_canonical())
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Unknown => f.write_str("unknown"),
            ClientAddress::Ip(address) => address.fmt(f),
            ClientAddress::User(uid) => write!(f, "uid:{uid}"),
        }
    }
}

/// A text that names no client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{found}` is no client: expected an IP address, or `uid:N` for who comes over a unix socket as user N"
)]
pub struct UnknownClient {
    found: String,
}

impl FromStr for ClientAddress {
    type Err = UnknownClient;

    fn from_str(text: &str) -> Result<ClientAddress, UnknownClient> {
        let user = text.strip_prefix("uid:").and_then(|uid| uid.parse().ok()).map(ClientAddress::User);
        let found = user.or_else(|| text.parse().ok().map(ClientAddress::ip));
        found.ok_or_else(|| UnknownClient { found: text.to_owned() })
    }
}

/// Who asks a volume at the moment, and whose requests bring nothing onto its flash.
#[derive(Debug, Default)]
pub(super) struct Askers {
    asks: ClientAddress,
    is_left_out: bool,
    left_out: BTreeSet<ClientAddress>,
}

impl Askers {
    /// Requests that follow are this client's.
    pub(super) fn asked_by(&mut self, client: ClientAddress) {
        if client != self.asks {
            self.asks = client;
            self.is_left_out = self.left_out.contains(&client);
        }
    }

    /// Leaves these out from now on, and nobody else.
    pub(super) fn leave_out(&mut self, clients: BTreeSet<ClientAddress>) {
        self.left_out = clients;
        self.is_left_out = self.left_out.contains(&self.asks);
    }

    /// Whether who asks now is left out.
    pub(super) fn is_left_out(&self) -> bool {
        self.is_left_out
    }

    /// How many are left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_as_they_are_written() {
        for text in ["10.0.0.7", "fd00::1", "uid:0", "uid:4294967295"] {
            assert_eq!(text.parse::<ClientAddress>().unwrap().to_string(), text);
        }
        // A client of IPv4 on a socket of IPv6 is the same client.
        assert_eq!("::ffff:10.0.0.7".parse::<ClientAddress>().unwrap().to_string(), "10.0.0.7");
        for text in ["", "10.0.0", "uid:", "uid:-1", "uid:4294967296", "10.0.0.7:10809", "unknown", "host"] {
            let error = text.parse::<ClientAddress>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("uid:N"), "{error}");
        }
    }

    #[test]
    fn who_asks_now_is_left_out_or_not() {
        let [one, other] = ["10.0.0.7", "uid:7"].map(|text| text.parse::<ClientAddress>().unwrap());
        let mut askers = Askers::default();
        askers.asked_by(one);
        assert!(!askers.is_left_out());
        askers.leave_out([one].into());
        assert!(askers.is_left_out() && askers.left_out() == 1);
        askers.asked_by(other);
        assert!(!askers.is_left_out());
        askers.asked_by(one);
        assert!(askers.is_left_out());
        askers.leave_out(BTreeSet::new());
        assert!(!askers.is_left_out());
    }
}
