//! TLS on one side, plain bytes on the other: what lies between a socket and an NBD session.
//!
//! [`ServerTls`] and [`ClientTls`] are certificates and rules, read from files; a [`Tunnels`] is a thread that moves bytes. Whoever
//! has a connected socket and has agreed on TLS gives it away and gets another one in its place, which carries the same
//! conversation in the clear and goes nowhere but to that thread. So nothing that serves requests knows of TLS, whatever system
//! calls it uses for its sockets.
//!
//! It is not a protocol of its own: who asks for TLS, and when, is NBD's business. Only TLS 1.3 is spoken, so that there is no
//! renegotiation, no compression and no choice of weak ciphers. Source: `doc/proto.md` of NBD, "TLS support"; RFC 8446.

mod files;
mod tunnel;
mod tunnels;

pub use files::{ClientTls, ServerTls, TlsFilesError};
pub use tunnel::Unsent;
pub use tunnels::{TlsConnectError, Tunnels};
