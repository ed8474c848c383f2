//! Load from traces and models through real connections, with every byte checked.
//!
//! A [`Player`] drives one volume through a connection (any [`forebay_origin::Origin`], usually the NBD client): open
//! loop from a trace, or closed loop from a generator. What it writes and expects to read is a function of the volume,
//! the sector and the sector's version ([`Content`]), and a [`Shadow`] knows which versions a read may return. So a
//! wrong byte, a lost write and a stale read are all found, whatever lies between client and disk.
//!
//! It is not a measure of replay fidelity: lateness is reported, and a faithful replayer is a later matter.

mod content;
mod player;
mod shadow;

pub use content::{Content, ContentError, SECTOR_BYTES};
pub use player::{IntervalReport, Load, PlayError, PlayOptions, PlayReport, Player, WrongContent};
pub use shadow::Shadow;
