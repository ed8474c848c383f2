//! As much of rtnetlink(7) as it takes to give interfaces their addresses, and to move one: in the network namespace of the calling thread.
//!
//! Source: `netlink(7)`, `rtnetlink(7)`; numbers are those of the kernel's `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if_addr.h`, `linux/if_link.h`.

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGED: u16 = 0x4;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_SECONDARY: u8 = 1;
const RTA_GATEWAY: u16 = 5;
/// `struct nlmsghdr`, `struct ifinfomsg`, `struct ifaddrmsg`.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
/// No answer that is not a list is longer, nor a part of one that is.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A conversation with the kernel about interfaces, addresses and routes of one network namespace.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens it in the namespace of this thread.
    pub(crate) fn open() -> io::Result<Netlink> {
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// The number of an interface.
    pub(crate) fn index(&self, interface: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, interface)?)
    }

    /// The name of an interface.
    pub(crate) fn name(&self, interface: u32) -> io::Result<String> {
        Ok(rustix::net::netdevice::index_to_name(&self.socket, interface)?)
    }

    /// Switches an interface on.
    pub(crate) fn set_up(&mut self, interface: u32) -> io::Result<()> {
        let mut body = link(interface);
        body[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
        body[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.change(RTM_NEWLINK, 0, &body)
    }

    /// The hardware address of an interface.
    pub(crate) fn hardware(&mut self, interface: u32) -> io::Result<[u8; 6]> {
        self.send(RTM_GETLINK, 0, &link(interface))?;
        let received = self.receive()?;
        let message = messages(&received).next().ok_or_else(garbled)?;
        if let Some(result) = message.result() {
            return Err(result.err().unwrap_or_else(garbled));
        }
        let told = message.payload.get(LINK_BYTES..).filter(|_| message.kind == RTM_NEWLINK);
        let mut told = attributes(told.unwrap_or_default()).filter(|(kind, _)| *kind == IFLA_ADDRESS);
        let found = told.find_map(|(_, value)| value.try_into().ok());
        found.ok_or_else(|| io::Error::other("the interface is no Ethernet"))
    }

    /// Adds an address to an interface; one that is there already is an error.
    pub(crate) fn add(&mut self, interface: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.change(RTM_NEWADDR, CREATE | EXCLUSIVE, &of_interface(interface, address, prefix))
    }

    /// Adds an address to an interface; one that is there already stays.
    pub(crate) fn keep(&mut self, interface: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.change(RTM_NEWADDR, CREATE | REPLACE, &of_interface(interface, address, prefix))
    }

    /// Removes an address from an interface; one that is not there is an error.
    pub(crate) fn remove(&mut self, interface: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.change(RTM_DELADDR, 0, &of_interface(interface, address, prefix))
    }

    /// Whether an interface has an address.
    pub(crate) fn has(&mut self, interface: u32, address: IpAddr) -> io::Result<bool> {
        let mut found = false;
        self.list(interface, address, |message| found |= message.is_of(interface, address))?;
        Ok(found)
    }

    /// The IPv4 addresses of all interfaces, those of each interface in its own order.
    pub(crate) fn addresses(&mut self) -> io::Result<Vec<Assigned>> {
        let mut found = Vec::new();
        self.list(0, Ipv4Addr::UNSPECIFIED.into(), |message| found.extend(message.assigned()))?;
        Ok(found)
    }

    /// Hears of each address of the family of `address`.
    fn list(
        &mut self,
        interface: u32,
        address: IpAddr,
        mut hear: impl FnMut(&Message<'_>),
    ) -> io::Result<()> {
        self.send(RTM_GETADDR, DUMP, &address_header(interface, address, 0))?;
        loop {
            let received = self.receive()?;
            if received.is_empty() {
                return Err(garbled());
            }
            for message in messages(&received) {
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return message.result().unwrap_or_else(|| Err(garbled())),
                    RTM_NEWADDR => hear(&message),
                    _ => {}
                }
            }
        }
    }

    /// Sends what has no way of its own through a gateway.
    pub(crate) fn add_default_route(&mut self, gateway: IpAddr) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BY_AN_ADMINISTRATOR: u8 = 4;
        const UNICAST: u8 = 1;
        // struct rtmsg
        let mut body = vec![family(gateway), 0, 0, 0, MAIN_TABLE, BY_AN_ADMINISTRATOR, 0, UNICAST];
        body.extend(0u32.to_ne_bytes());
        add_attribute(&mut body, RTA_GATEWAY, gateway);
        self.change(RTM_NEWROUTE, CREATE | REPLACE, &body)
    }

    /// Has something changed, and waits for the answer.
    fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, ACKNOWLEDGED | flags, body)?;
        let received = self.receive()?;
        let answers = messages(&received).filter(|message| message.sequence == self.sequence);
        let mut answers = answers.filter_map(|message| message.result());
        answers.next().unwrap_or_else(|| Err(garbled()))
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let message = message(kind, REQUEST | flags, self.sequence, body);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        buffer.truncate(count);
        Ok(buffer)
    }
}

/// An IPv4 address that an interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) interface: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
    /// Any address of its network: that of the peer, where there is one.
    network: Ipv4Addr,
    /// Another one of its network was there before it.
    is_secondary: bool,
}

impl Assigned {
    /// Whether the kernel removes it from its interface with `first`, unless it promotes secondaries (`__inet_del_ifa` in `net/ipv4/devinet.c`).
    pub(crate) fn goes_with(&self, first: &Assigned) -> bool {
        let ignored = 32 - u32::from(first.prefix.min(32));
        let network = |of: &Assigned| of.network.to_bits().checked_shr(ignored);
        self.is_secondary
            && !first.is_secondary
            && (self.interface, self.prefix, network(self)) == (first.interface, first.prefix, network(first))
    }
}

/// Whether the first of the secondary addresses on an interface takes the place of a primary one that is removed; else they go with it. In the namespace of this thread.
pub(crate) fn promotes_secondaries(interface: &str) -> io::Result<bool> {
    for of in ["all", interface] {
        let value = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/promote_secondaries"))?;
        if value.trim() != "0" {
            return Ok(true);
        }
    }
    Ok(false)
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

/// `struct ifinfomsg` of an interface.
fn link(interface: u32) -> [u8; LINK_BYTES] {
    let mut body = [0; LINK_BYTES];
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    body
}

/// `struct ifaddrmsg`: family, prefix, flags, scope (0: everywhere), interface.
fn address_header(interface: u32, address: IpAddr, prefix: u8) -> [u8; ADDRESS_BYTES] {
    let mut header = [family(address), prefix, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    header
}

fn of_interface(interface: u32, address: IpAddr, prefix: u8) -> Vec<u8> {
    let mut body = address_header(interface, address, prefix).to_vec();
    add_attribute(&mut body, IFA_LOCAL, address);
    add_attribute(&mut body, IFA_ADDRESS, address);
    body
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

/// Adds a `struct rtattr` with its value, which is 4 or 16 bytes: nothing is to be padded.
fn add_attribute(body: &mut Vec<u8>, kind: u16, value: IpAddr) {
    let value = bytes(value);
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
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
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is not understood")
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl Message<'_> {
    /// What an acknowledgement says; `None` for another message.
    fn result(&self) -> Option<io::Result<()>> {
        let code = i32::from_ne_bytes(*self.payload.first_chunk::<4>().filter(|_| self.kind == NLMSG_ERROR)?);
        Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) })
    }

    /// Whether it tells of this address on this interface.
    fn is_of(&self, interface: u32, address: IpAddr) -> bool {
        let Some((header, told)) = self.payload.split_first_chunk::<ADDRESS_BYTES>() else {
            return false;
        };
        // Of IPv6 the kernel tells the address as IFA_ADDRESS alone.
        let kind = if address.is_ipv4() { IFA_LOCAL } else { IFA_ADDRESS };
        let mut told = attributes(told).filter(|(of, _)| *of == kind);
        header[0] == family(address)
            && header[4..] == interface.to_ne_bytes()
            && told.any(|(_, value)| value == bytes(address))
    }

    /// The IPv4 address that it tells of.
    fn assigned(&self) -> Option<Assigned> {
        let (header, told) = self.payload.split_first_chunk::<ADDRESS_BYTES>()?;
        let [of, prefix, flags, _, interface @ ..] = *header;
        let find = |kind| {
            let (_, value) = attributes(told).find(|(of, _)| *of == kind)?;
            <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
        };
        let address = find(IFA_LOCAL).filter(|_| of == family(Ipv4Addr::UNSPECIFIED.into()))?;
        Some(Assigned {
            interface: u32::from_ne_bytes(interface),
            address,
            prefix,
            network: find(IFA_ADDRESS).unwrap_or(address),
            is_secondary: flags & IFA_F_SECONDARY != 0,
        })
    }
}

/// The messages in what was received at once; what is cut off ends them.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let (length, sequence) = (number(0) as usize, number(8));
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let payload = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, payload })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_by_hand() {
        let body = of_interface(3, "10.0.2.15".parse().unwrap(), 24);
        // 16 bytes of header, 8 of ifaddrmsg, twice 4 of attribute and 4 of address.
        let message = message(RTM_NEWADDR, 5, 7, &body);
        let expected: Vec<u8> = [
            &40u32.to_ne_bytes()[..],
            &20u16.to_ne_bytes(),
            &5u16.to_ne_bytes(),
            &7u32.to_ne_bytes(),
            &[0; 4],
            &[2, 24, 0, 0, 3, 0, 0, 0],
            &8u16.to_ne_bytes(),
            &2u16.to_ne_bytes(),
            &[10, 0, 2, 15],
            &8u16.to_ne_bytes(),
            &1u16.to_ne_bytes(),
            &[10, 0, 2, 15],
        ]
        .concat();
        assert_eq!(message, expected);
    }

    #[test]
    fn messages_are_taken_apart_and_what_is_cut_off_ends_them() {
        // Two acknowledgements: 0, and -17 (EEXIST).
        let bytes = [0i32, -17].map(|code| message(NLMSG_ERROR, 0, 3, &code.to_ne_bytes())).concat();
        let results: Vec<_> = messages(&bytes)
            .map(|m| (m.sequence, m.result().unwrap().map_err(|e| e.raw_os_error())))
            .collect();
        assert_eq!(results, [(3, Ok(())), (3, Err(Some(17)))]);
        for cut in 0..bytes.len() {
            assert!(messages(&bytes[..cut]).count() <= cut / 20);
        }
        let mut told = vec![2, 24, 0, 0];
        told.extend(7u32.to_ne_bytes());
        for (kind, last) in [(IFA_ADDRESS, 1), (IFA_LOCAL, 9)] {
            add_attribute(&mut told, kind, Ipv4Addr::new(10, 0, 0, last).into());
        }
        let told = message(RTM_NEWADDR, 0, 1, &told);
        let message = messages(&told).next().unwrap();
        let is_of = |interface, last| message.is_of(interface, Ipv4Addr::new(10, 0, 0, last).into());
        assert_eq!((is_of(7, 9), is_of(7, 1), is_of(8, 9)), (true, false, false));
        assert!(!message.is_of(7, "fd00::9".parse().unwrap()));
    }

    #[test]
    fn what_goes_with_a_primary_address_is_secondary_and_of_its_network() {
        let told = |flags, prefix, interface: u32, last| {
            let mut told = vec![2, prefix, flags, 0];
            told.extend(interface.to_ne_bytes());
            for kind in [IFA_ADDRESS, IFA_LOCAL] {
                add_attribute(&mut told, kind, Ipv4Addr::new(10, 0, 0, last).into());
            }
            let told = message(RTM_NEWADDR, 0, 1, &told);
            messages(&told).next().unwrap().assigned().unwrap()
        };
        // IFA_F_PERMANENT (0x80) is none of it.
        let first = told(0x80, 24, 7, 9);
        assert_eq!((first.address, first.prefix), (Ipv4Addr::new(10, 0, 0, 9), 24));
        assert!(told(0x81, 24, 7, 2).goes_with(&first));
        for other in [told(0x80, 24, 7, 2), told(0x81, 25, 7, 2), told(0x81, 24, 8, 2)] {
            assert!(!other.goes_with(&first), "{other:?}");
        }
        // 9 and 10 are of one network of 30 bits, 9 and 2 are not.
        let first = told(0x80, 30, 7, 9);
        assert!(told(0x81, 30, 7, 10).goes_with(&first) && !told(0x81, 30, 7, 2).goes_with(&first));
        assert!(!told(0x81, 30, 7, 10).goes_with(&told(0x81, 30, 7, 9)), "it is secondary itself");
        // 32 bits are ignored.
        assert!(told(0x81, 0, 7, 10).goes_with(&told(0x80, 0, 7, 9)));
    }

    /// The kernel's own answers, which need no rights where nothing is changed.
    #[test]
    fn the_loopback_interface_has_its_address() {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("lo").unwrap();
        assert!(netlink.has(index, Ipv4Addr::LOCALHOST.into()).unwrap());
        assert!(!netlink.has(index, Ipv4Addr::new(192, 0, 2, 1).into()).unwrap());
        let all = netlink.addresses().unwrap();
        let is_loopback = |of: &Assigned| of.interface == index && of.address == Ipv4Addr::LOCALHOST;
        assert!(all.iter().any(is_loopback), "{all:?}");
        assert_eq!(netlink.name(index).unwrap(), "lo");
        assert_eq!(netlink.hardware(index).unwrap(), [0; 6]);
        assert!(netlink.remove(u32::MAX, Ipv4Addr::new(192, 0, 2, 1).into(), 24).is_err());
    }
}
