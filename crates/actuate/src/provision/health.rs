//! Whether an appliance does what it is for: answers its control API, and lets clients in.

use crate::api::{ApiError, ApplianceStatus};
use crate::export::{Errand, VisitError, visit};
use crate::{Deadline, Running};
use forebay_nbd::client::ProtocolError;
use std::io;
use thiserror::Error;

/// Why an appliance is not known to be well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Its control API does not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A volume cannot be reached.
    #[error("volume `{volume}` is not served")]
    Volume {
        /// Which.
        volume: String,
        /// Why.
        source: io::Error,
    },
    /// What answers does not speak NBD, or does not know the volume.
    #[error("volume `{volume}` is not served")]
    Handshake {
        /// Which.
        volume: String,
        /// Why.
        source: ProtocolError,
    },
}

/// Asks an appliance how it does and opens every volume once, as a client would. Volumes over TLS are only connected to.
///
/// # Errors
/// [`ProbeError`].
pub fn probe(running: &Running, deadline: Deadline) -> Result<ApplianceStatus, ProbeError> {
    let status = running.control.status(deadline)?;
    for (volume, endpoint) in &running.endpoints {
        visit(&endpoint.uri, Errand::Look, deadline).map_err(|error| match error {
            VisitError::Protocol(source) => ProbeError::Handshake { volume: volume.clone(), source },
            VisitError::Connection(source) => ProbeError::Volume { volume: volume.clone(), source },
            error => ProbeError::Volume { volume: volume.clone(), source: io::Error::other(error) },
        })?;
    }
    Ok(status)
}
