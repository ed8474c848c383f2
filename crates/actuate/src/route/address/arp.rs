//! Who has an address, and who has it from now on, told and asked on the wire.
//!
//! Source: RFC 826 (frames), RFC 5227 (probe and announcement). It probes for a tenth of a second, not for the seconds of the RFC: clients wait
//! meanwhile, and who is on the same wire answers within milliseconds.

use smoltcp::phy::{Device, Medium, RawSocket, RxToken, TxToken, wait};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long an answer to a probe is waited for, and when probes are sent.
const PROBE_TIME: Duration = Duration::from_millis(100);
const PROBES_AT: [Duration; 3] = [Duration::ZERO, Duration::from_millis(25), Duration::from_millis(50)];

const FRAME_BYTES: usize = 42;
const BROADCAST: [u8; 6] = [0xff; 6];
/// Ethernet's type, then: hardware Ethernet, protocol IPv4, addresses of 6 and 4 bytes, a request.
const REQUEST: [u8; 10] = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];

/// An interface on whose wire is spoken, from the namespace of the thread that opened it.
pub(super) struct Wire {
    socket: RawSocket,
    hardware: [u8; 6],
}

impl Wire {
    /// Opens it; `hardware` is the interface's address.
    pub(super) fn open(interface: &str, hardware: [u8; 6]) -> io::Result<Wire> {
        Ok(Wire { socket: RawSocket::new(interface, Medium::Ethernet)?, hardware })
    }

    /// Asks who has `address`: the hardware address of who answers within a tenth of a second, as text; `None` if nobody does.
    pub(super) fn probe(&mut self, address: Ipv4Addr) -> io::Result<Option<String>> {
        let began = Instant::now();
        let mut probes = PROBES_AT.iter().peekable();
        loop {
            let elapsed = began.elapsed();
            if probes.next_if(|at| **at <= elapsed).is_some() {
                self.say(Ipv4Addr::UNSPECIFIED, address)?;
                continue;
            }
            if elapsed >= PROBE_TIME {
                return Ok(None);
            }
            let until = probes.peek().map_or(PROBE_TIME, |at| **at);
            wait(self.socket.as_raw_fd(), Some(until.saturating_sub(elapsed).into()))?;
            let now = smoltcp::time::Instant::ZERO;
            while let Some((frame, _)) = self.socket.receive(now) {
                let owner = frame.consume(|frame| owner(frame, address));
                if let Some(owner) = owner.filter(|owner| *owner != self.hardware) {
                    return Ok(Some(owner.map(|byte| format!("{byte:02x}")).join(":")));
                }
                if began.elapsed() >= PROBE_TIME {
                    break;
                }
            }
        }
    }

    /// Tells everybody that `address` is here.
    pub(super) fn announce(&mut self, address: Ipv4Addr) -> io::Result<()> {
        self.say(address, address)
    }

    fn say(&mut self, sender: Ipv4Addr, target: Ipv4Addr) -> io::Result<()> {
        let frame = frame(self.hardware, sender, target);
        let token = self.socket.transmit(smoltcp::time::Instant::ZERO);
        let token = token.ok_or_else(|| io::Error::other("the interface takes no frame"))?;
        token.consume(frame.len(), |buffer| buffer.copy_from_slice(&frame));
        Ok(())
    }
}

/// A request to everybody: who has `target`?
fn frame(hardware: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let unknown = [0; 6];
    let parts: [&[u8]; 7] =
        [&BROADCAST, &hardware, &REQUEST, &hardware, &sender.octets(), &unknown, &target.octets()];
    parts.concat()
}

/// Who says in a frame that it has `address`, or is about to take it.
fn owner(frame: &[u8], address: Ipv4Addr) -> Option<[u8; 6]> {
    let frame = frame.first_chunk::<FRAME_BYTES>()?;
    if frame[12..20] != REQUEST[..8] {
        return None;
    }
    let (sender, target) = (&frame[28..32], &frame[38..42]);
    let probes = sender == Ipv4Addr::UNSPECIFIED.octets() && target == address.octets();
    (sender == address.octets() || probes).then(|| *frame[22..28].first_chunk().expect("six bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_who_has_an_address() {
        let (us, address) = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 9));
        let probe = frame(us, Ipv4Addr::UNSPECIFIED, address);
        assert_eq!(probe.len(), FRAME_BYTES);
        assert_eq!(
            probe[..22],
            [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]
        );
        // Who announces it has it, and who probes for it is about to; who only asks for it is not.
        assert_eq!(owner(&frame(us, address, address), address), Some(us));
        assert_eq!(owner(&probe, address), Some(us));
        assert_eq!(owner(&frame(us, Ipv4Addr::new(10, 0, 0, 1), address), address), None);
        let mut reply = frame(us, address, Ipv4Addr::UNSPECIFIED);
        reply[21] = 2;
        assert_eq!(owner(&reply, address), Some(us));
        assert_eq!(owner(&reply[..41], address), None);
    }
}
