//! Addresses of an interface by rtnetlink: added, removed, listed, in the network namespace of the calling thread.
//!
//! Source: `rtnetlink(7)`, `netlink(7)`; numbers are those of the kernel's `linux/rtnetlink.h` and `linux/netlink.h`.

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::io;
use std::net::Ipv4Addr;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
/// `ifinfomsg`.
const LINK_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
/// `nlmsghdr` and `ifaddrmsg`.
const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;

/// A conversation with the kernel about the addresses of one namespace.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens it in the namespace of this thread.
    pub(super) fn open() -> io::Result<Netlink> {
        // Protocol 0 is that of routing and addresses.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Adds an address to an interface; one that is there already is an error.
    pub(super) fn add(&mut self, interface: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        self.change(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, interface, address, prefix)
    }

    /// Removes an address from an interface; one that is not there is an error.
    pub(super) fn remove(&mut self, interface: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        self.change(RTM_DELADDR, 0, interface, address, prefix)
    }

    fn change(
        &mut self,
        kind: u16,
        flags: u16,
        interface: u32,
        address: Ipv4Addr,
        prefix: u8,
    ) -> io::Result<()> {
        let mut attributes = Vec::new();
        for attribute in [IFA_LOCAL, IFA_ADDRESS] {
            attributes.extend_from_slice(&8u16.to_ne_bytes());
            attributes.extend_from_slice(&attribute.to_ne_bytes());
            attributes.extend_from_slice(&address.octets());
        }
        let body = [&address_header(interface, prefix)[..], &attributes].concat();
        self.ask(kind, NLM_F_REQUEST | NLM_F_ACK | flags, &body)?;
        let mut buffer = [0; 4096];
        let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        messages(&buffer[..count]).find_map(|message| message.result()).unwrap_or_else(|| Err(garbled()))
    }

    /// Whether the interface has the address.
    pub(super) fn has(&mut self, interface: u32, address: Ipv4Addr) -> io::Result<bool> {
        self.ask(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &address_header(interface, 0))?;
        let (mut buffer, mut found) = (vec![0; 64 << 10], false);
        loop {
            let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if count == 0 {
                return Err(garbled());
            }
            for message in messages(&buffer[..count]) {
                match message.kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => return message.result().unwrap_or_else(|| Err(garbled())).map(|()| found),
                    RTM_NEWADDR => found |= message.is_of(interface, address),
                    _ => {}
                }
            }
        }
    }

    /// The number of an interface.
    pub(super) fn index(&self, interface: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, interface)?)
    }

    /// The hardware address of an interface.
    pub(super) fn hardware(&mut self, interface: u32) -> io::Result<[u8; 6]> {
        let mut body = [0; LINK_BYTES];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        self.ask(RTM_GETLINK, NLM_F_REQUEST, &body)?;
        let mut buffer = vec![0; 64 << 10];
        let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        let message = messages(&buffer[..count]).next().ok_or_else(garbled)?;
        if let Some(result) = message.result() {
            return Err(result.err().unwrap_or_else(garbled));
        }
        let told = message.payload.get(LINK_BYTES..).filter(|_| message.kind == RTM_NEWLINK);
        let mut told = attributes(told.unwrap_or_default()).filter(|(kind, _)| *kind == IFLA_ADDRESS);
        let found = told.find_map(|(_, value)| value.try_into().ok());
        found.ok_or_else(|| io::Error::other("the interface is no Ethernet"))
    }

    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let length = (HEADER_BYTES + body.len()) as u32;
        let mut message = Vec::with_capacity(length as usize);
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&0u32.to_ne_bytes());
        message.extend_from_slice(body);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }
}

/// Family, prefix, flags, scope (0: everywhere), interface.
fn address_header(interface: u32, prefix: u8) -> [u8; ADDRESS_BYTES] {
    let mut header = [AF_INET, prefix, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    header
}

/// The attributes in a message: kinds and values; what is cut off ends them.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]), value))
    })
}

fn garbled() -> io::Error {
    io::Error::other("the kernel's answer is not understood")
}

struct Message<'a> {
    kind: u16,
    payload: &'a [u8],
}

impl Message<'_> {
    /// What an acknowledgement says; `None` for another message.
    fn result(&self) -> Option<io::Result<()>> {
        let code = i32::from_ne_bytes(*self.payload.first_chunk::<4>().filter(|_| self.kind == NLMSG_ERROR)?);
        Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) })
    }

    /// Whether it tells of this address on this interface.
    fn is_of(&self, interface: u32, address: Ipv4Addr) -> bool {
        let Some((header, told)) = self.payload.split_first_chunk::<ADDRESS_BYTES>() else {
            return false;
        };
        let mut local = attributes(told).filter(|(kind, _)| *kind == IFA_LOCAL);
        header[0] == AF_INET
            && header[4..] == interface.to_ne_bytes()
            && local.any(|(_, value)| value == address.octets())
    }
}

/// The messages in what was received at once; what is cut off ends them.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let payload = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, payload })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_apart_and_what_is_cut_off_ends_them() {
        let mut bytes = Vec::new();
        // Two acknowledgements: 0, and -17 (EEXIST).
        for code in [0i32, -17] {
            bytes.extend_from_slice(&20u32.to_ne_bytes());
            bytes.extend_from_slice(&NLMSG_ERROR.to_ne_bytes());
            bytes.extend_from_slice(&[0; 10]);
            bytes.extend_from_slice(&code.to_ne_bytes());
        }
        let results: Vec<_> =
            messages(&bytes).map(|m| m.result().unwrap().map_err(|e| e.raw_os_error())).collect();
        assert_eq!(results, [Ok(()), Err(Some(17))]);
        for cut in 0..bytes.len() {
            assert!(messages(&bytes[..cut]).count() <= cut / 20);
        }
        let mut told = vec![AF_INET, 24, 0, 0];
        told.extend_from_slice(&7u32.to_ne_bytes());
        for (kind, last) in [(IFA_ADDRESS, 1), (IFA_LOCAL, 9)] {
            told.extend_from_slice(&8u16.to_ne_bytes());
            told.extend_from_slice(&kind.to_ne_bytes());
            told.extend_from_slice(&[10, 0, 0, last]);
        }
        let message = Message { kind: RTM_NEWADDR, payload: &told };
        let is_of = |interface, last| message.is_of(interface, Ipv4Addr::new(10, 0, 0, last));
        assert_eq!((is_of(7, 9), is_of(7, 1), is_of(8, 9)), (true, false, false));
    }
}
