//! Load from traces and models through real connections: at its times, and, where wanted, with every byte checked.
//!
//! A [`Player`] drives one volume through a connection (any [`forebay_origin::Origin`], usually the NBD client): open
//! loop from what is [`Due`], or closed loop. [`replay()`] puts a trace through one or several players: a [`Survey`] of it
//! says what its volumes and times are, an [`AddressMap`] where they lie on the target, a [`Schedule`] what is due when. Every
//! run reports its [`Fidelity`]: by how much each request was issued too late, and what the bound on requests in flight did.
//!
//! What a checking player writes and expects to read is a function of the volume, the sector and the sector's version
//! ([`Content`]), and a [`Shadow`] knows which versions a read may return. So a wrong byte, a lost write and a stale read are
//! all found, whatever lies between client and disk.
//!
//! It opens no files and connects to nothing: connections are given. It does not infer which requests waited for which.

mod address;
mod content;
mod filler;
mod ledger;
mod load;
mod pace;
mod player;
mod progress;
mod replay;
mod report;
mod schedule;
mod shadow;
mod survey;

pub use address::{AddressMap, Fit, MapError, Mapped, ParseFitError};
pub use content::{Content, ContentError, SECTOR_BYTES};
pub use load::{AfterWait, Due, Load, PlayOptions};
pub use player::{PlayError, Player};
pub use progress::Progress;
pub use replay::{Feed, Pace, ReplayError, ReplayOptions, replay};
pub use report::{Fidelity, GaveUp, IntervalReport, LATE_FROM, PlayReport, WrongContent};
pub use schedule::{
    CountsAhead, ParseWholeSecondsError, REORDER_MAX, SECOND_MAX, Schedule, ScheduleCounts, ScheduleOptions,
    WholeSeconds,
};
pub use shadow::{Checked, Shadow};
pub use survey::{Survey, VolumeSurvey};
