//! Who may reach a volume whose last hop to the data is ours: a lease with an epoch, which fences whoever it was taken from.
//!
//! A client says by the export's name which way its requests come: `NAME@EPOCH` is the holder of that epoch, `NAME` alone the original
//! route. [`Lease::admits`] is the whole rule; the service applies it to connections and requests, the directory to handshakes.
//!
//! Epochs are given out by who raises them, each to one holder and only upwards. So a client with an epoch above the lease's is somebody who is
//! being prepared, and may look before the lease is raised to it; one with an epoch below is somebody whom it was taken from.

use forebay_units::EPOCH_MAX;
use thiserror::Error;

/// The way by which a client says that its requests come, by the export's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entrance {
    /// The original route: the name alone.
    Original,
    /// The holder of an epoch: `NAME@EPOCH`.
    Epoch(u64),
}

/// Who is let in to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Everybody of a lower epoch is fenced.
    pub epoch: u64,
    /// Who holds this epoch.
    pub holder: Holder,
}

/// Who holds the present epoch of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The original route: no lease is out.
    Original,
    /// Who names the epoch; the original route is fenced.
    Named,
}

/// Why a lease is not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// The epoch is over, or held by somebody else.
    #[error("the lease is at epoch {} already: expected a higher one than {asked}", .now.epoch)]
    Stale {
        /// What was asked for.
        asked: u64,
        /// What holds.
        now: Lease,
    },
    /// No other one could follow.
    #[error("epoch {asked} leaves no room for those after it: expected at most {EPOCH_MAX} (2^62)")]
    TooHigh {
        /// What was asked for.
        asked: u64,
    },
}

impl Lease {
    /// Before the first was given out: the original route, at epoch 0.
    pub const FIRST: Lease = Lease { epoch: 0, holder: Holder::Original };

    /// Whether requests by this entrance are served.
    pub fn admits(self, entrance: Entrance) -> bool {
        match (entrance, self.holder) {
            (Entrance::Original, holder) => holder == Holder::Original,
            // The epoch at which the original route got the volume back is nobody else's.
            (Entrance::Epoch(epoch), Holder::Original) => epoch > self.epoch,
            (Entrance::Epoch(epoch), Holder::Named) => epoch >= self.epoch,
        }
    }

    /// The lease after it was raised to `to`; what holds already is no mistake, so that who got no answer may ask again.
    ///
    /// # Errors
    /// [`RaiseError::Stale`] if `to` is not above what holds, [`RaiseError::TooHigh`] if it is above [`EPOCH_MAX`].
    pub fn raised(self, to: Lease) -> Result<Lease, RaiseError> {
        if to.epoch > EPOCH_MAX && to != self {
            Err(RaiseError::TooHigh { asked: to.epoch })
        } else if to.epoch > self.epoch || to == self {
            Ok(to)
        } else {
            Err(RaiseError::Stale { asked: to.epoch, now: self })
        }
    }
}

/// What an export's name says of a leased volume: the volume's name, and the entrance. A name without an epoch is the volume's own.
pub(crate) fn parse_entrance(name: &str) -> (&str, Entrance) {
    match name.rsplit_once('@') {
        Some((volume, epoch)) if !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit()) => {
            match epoch.parse() {
                Ok(epoch) => (volume, Entrance::Epoch(epoch)),
                Err(_) => (name, Entrance::Original),
            }
        }
        _ => (name, Entrance::Original),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_is_let_in_and_who_is_being_prepared() {
        let out = Lease { epoch: 5, holder: Holder::Named };
        let home = Lease { epoch: 5, holder: Holder::Original };
        let admitted = |lease: Lease| {
            [Entrance::Original, Entrance::Epoch(4), Entrance::Epoch(5), Entrance::Epoch(6)]
                .map(|entrance| lease.admits(entrance))
        };
        assert_eq!(admitted(out), [false, false, true, true]);
        assert_eq!(admitted(home), [true, false, false, true]);
        assert!(Lease::FIRST.admits(Entrance::Original) && Lease::FIRST.admits(Entrance::Epoch(1)));
        assert!(!Lease::FIRST.admits(Entrance::Epoch(0)));
    }

    #[test]
    fn epochs_only_rise() {
        let out = Lease { epoch: 5, holder: Holder::Named };
        assert_eq!(out.raised(out), Ok(out));
        let home = Lease { epoch: 5, holder: Holder::Original };
        assert_eq!(out.raised(home), Err(RaiseError::Stale { asked: 5, now: out }));
        assert!(out.raised(Lease { epoch: 4, ..out }).is_err());
        // Where nothing could follow; what is so already holds.
        let (last, beyond) = (Lease { epoch: EPOCH_MAX, ..out }, Lease { epoch: EPOCH_MAX + 1, ..out });
        assert_eq!(out.raised(last), Ok(last));
        assert_eq!(out.raised(beyond), Err(RaiseError::TooHigh { asked: EPOCH_MAX + 1 }));
        assert_eq!(beyond.raised(beyond), Ok(beyond));
        assert_eq!(out.raised(Lease { epoch: 6, ..home }), Ok(Lease { epoch: 6, ..home }));
    }

    #[test]
    fn names_say_the_epoch() {
        assert_eq!(parse_entrance("db"), ("db", Entrance::Original));
        assert_eq!(parse_entrance("db@7"), ("db", Entrance::Epoch(7)));
        assert_eq!(parse_entrance("a@b@18446744073709551615"), ("a@b", Entrance::Epoch(u64::MAX)));
        for name in ["db@", "db@x", "db@-1", "db@+1", "db@18446744073709551616"] {
            assert_eq!(parse_entrance(name), (name, Entrance::Original));
        }
    }
}
