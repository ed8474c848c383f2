//! As much of rtnetlink(7) as it takes to give an interface an address: three messages, each answered before the next.
//!
//! The addresses that clients are moved by have their own, which lists and removes (`route`).
//!
//! Source: `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if_addr.h`, `linux/if_link.h`; numbers are the machine's.

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const REQUEST_WITH_ANSWER: u16 = 0x1 | 0x4;
const CREATE_OR_REPLACE: u16 = 0x100 | 0x400;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const HEADER_BYTES: usize = 16;

/// A conversation with the kernel about interfaces, addresses and routes of this network namespace.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Protocol 0 is NETLINK_ROUTE.
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Switches an interface on.
    pub(super) fn set_up(&mut self, interface: u32) -> io::Result<()> {
        // struct ifinfomsg
        let mut body = vec![0; 4];
        body.extend(interface.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        self.ask(RTM_NEWLINK, 0, &body)
    }

    /// Gives an interface an address; one that it has already stays.
    pub(super) fn add_address(&mut self, interface: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        // struct ifaddrmsg
        let mut body = vec![family(address), prefix, 0, 0];
        body.extend(interface.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &bytes(address));
        attribute(&mut body, IFA_ADDRESS, &bytes(address));
        self.ask(RTM_NEWADDR, CREATE_OR_REPLACE, &body)
    }

    /// Sends what has no way of its own through a gateway.
    pub(super) fn add_default_route(&mut self, gateway: IpAddr) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BY_AN_ADMINISTRATOR: u8 = 4;
        const UNICAST: u8 = 1;
        // struct rtmsg
        let mut body = vec![family(gateway), 0, 0, 0, MAIN_TABLE, BY_AN_ADMINISTRATOR, 0, UNICAST];
        body.extend(0u32.to_ne_bytes());
        attribute(&mut body, RTA_GATEWAY, &bytes(gateway));
        self.ask(RTM_NEWROUTE, CREATE_OR_REPLACE, &body)
    }

    /// Sends a request and waits for its answer, which the kernel gives before it does anything else.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let request = message(kind, REQUEST_WITH_ANSWER | flags, self.sequence, body);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (_, length) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        judge(&answer[..length], self.sequence)
    }
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(body);
    message
}

/// What an answer to the request of this sequence means.
fn judge(answer: &[u8], sequence: u32) -> io::Result<()> {
    let foreign = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is not understood");
    let header = answer.get(..HEADER_BYTES + 4).ok_or_else(foreign)?;
    let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    if kind != NLMSG_ERROR || number(8) != sequence {
        return Err(foreign());
    }
    match number(HEADER_BYTES).cast_signed() {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Adds a struct rtattr with its value, which is 4 or 16 bytes: nothing is to be padded.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_by_hand() {
        let mut body = vec![2, 24, 0, 0, 3, 0, 0, 0];
        attribute(&mut body, IFA_LOCAL, &bytes("10.0.2.15".parse().unwrap()));
        // 16 bytes of header, 8 of ifaddrmsg, 4 of attribute, 4 of address.
        let message = message(RTM_NEWADDR, 5, 7, &body);
        let expected: Vec<u8> = [
            &32u32.to_ne_bytes()[..],
            &20u16.to_ne_bytes(),
            &5u16.to_ne_bytes(),
            &7u32.to_ne_bytes(),
            &[0; 4],
            &[2, 24, 0, 0, 3, 0, 0, 0],
            &8u16.to_ne_bytes(),
            &2u16.to_ne_bytes(),
            &[10, 0, 2, 15],
        ]
        .concat();
        assert_eq!(message, expected);
    }

    #[test]
    fn answers_are_judged() {
        let answer = |kind: u16, sequence: u32, error: i32| {
            message(kind, 0, sequence, &[&error.to_ne_bytes()[..], &[0; 16]].concat())
        };
        assert!(judge(&answer(NLMSG_ERROR, 3, 0), 3).is_ok());
        // EEXIST is 17.
        let refused = judge(&answer(NLMSG_ERROR, 3, -17), 3).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(17));
        assert!(judge(&answer(NLMSG_ERROR, 2, 0), 3).is_err() && judge(&[], 3).is_err());
        assert!(judge(&answer(RTM_NEWADDR, 3, 0), 3).is_err());
    }
}
