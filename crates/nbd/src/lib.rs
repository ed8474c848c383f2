//! The NBD protocol as a codec and two session state machines; it knows no sockets.
//!
//! [`wire`] holds the numbers and the byte layouts, [`server::Session`] and [`client::Session`] the two ends of a
//! conversation, [`Uri`] the way people name an export. A session is fed received bytes and answers with typed
//! events and with bytes to send. It owns no socket, no volume, no thread and no clock: whoever drives it decides
//! when to receive, how long to wait, and what to do with a request.
//!
//! # Driving a server session
//!
//! The owner keeps one receive buffer per connection. It calls [`server::Session::receive`] with the bytes that it
//! holds, drops the `consumed` ones from the front, acts on the event, and calls again until the answer is
//! [`server::Event::NeedMore`]. Each call handles at most one message, so what it appends to `output` is bounded,
//! and an owner whose output is not drained simply stops calling: that is the backpressure.
//!
//! ```
//! use forebay_nbd::server::{Config, Event, Payload, Session};
//! use forebay_nbd::wire::{Command, ErrorCode};
//! use forebay_nbd::ExportInfo;
//!
//! # fn drive(received: &[u8]) -> Result<Vec<u8>, forebay_nbd::server::ProtocolError> {
//! let exports = vec![ExportInfo::new("disk", 1 << 20)];
//! let mut output = Vec::new(); // bytes to send
//! let mut session = Session::new(Config::default(), &mut output);
//! let mut input = received;
//! loop {
//!     let parsed = session.receive(input, &exports, &mut output)?;
//!     input = &input[parsed.consumed..];
//!     match parsed.event {
//!         Event::NeedMore | Event::Disconnect(_) => break, // receive more; or flush `output` and close
//!         Event::ExportChosen(export) => println!("serves {}", export.name),
//!         Event::Request { request, payload } => match (request.command, payload) {
//!             (Command::Read, _) => {
//!                 let data = vec![0; request.range.length as usize];
//!                 output.extend_from_slice(&session.replies().read_header(&request));
//!                 output.extend_from_slice(&data); // or one writev of both
//!             }
//!             (Command::Write, Payload::Whole(_data)) => session.replies().success(&request, &mut output),
//!             // `Pending`: the bytes come as `PayloadPart` events, or are received straight into the owner's
//!             // buffer and reported by `payload_received`.
//!             _ => session.replies().error(request.cookie, ErrorCode::Invalid, "not here", &mut output),
//!         },
//!         _ => {} // an option was answered, a request was refused: `output` already holds the reply
//!     }
//! }
//! # Ok(output)
//! # }
//! # assert!(drive(&[]).is_ok());
//! ```
//!
//! # Driving a client session
//!
//! ```
//! use forebay_nbd::client::{Config, Event, Operation, Session};
//!
//! # fn drive(received: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let mut output = Vec::new(); // bytes to send
//! let mut session = Session::new(Config::new("disk"));
//! let mut input = received;
//! loop {
//!     let parsed = session.receive(input, &mut output)?;
//!     input = &input[parsed.consumed..];
//!     match parsed.event {
//!         Event::NeedMore | Event::Closed => break,
//!         Event::Ready(_export) => {
//!             session.submit(7, Operation::Read { offset: 0, length: 4096, dont_fragment: false }, &mut output)?;
//!         }
//!         Event::Data { cookie: _, offset: _, bytes: _ } => {} // copy to its place
//!         Event::Hole { cookie: _, range: _ } => {}            // zeroes
//!         Event::Done { cookie: _, result: _ } => session.disconnect(&mut output),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! # assert!(drive(&[]).is_ok());
//! ```
//!
//! Source: the NBD protocol document (`doc/proto.md` of NetworkBlockDevice/nbd) and its URI document (`doc/uri.md`).
//! The list of what is supported is in `docs/internals/nbd.md`.

pub mod client;
mod export;
mod run;
pub mod server;
mod succession;
mod uri;
pub mod wire;

pub use export::{BlockSizes, ExportInfo};
pub use run::RunId;
pub use succession::{FAREWELL_COOKIE, StorageId, Succeeds, Succession};
pub use uri::{ParseUriError, Transport, Uri, UriTlsType};
