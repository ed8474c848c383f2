//! Whether an appliance does what it is for: answers its control API, and lets clients in.

use crate::api::{ApiError, ApplianceStatus, Stream, connect_tcp, connect_unix, left};
use crate::{Deadline, Endpoint, Running};
use forebay_nbd::Transport;
use forebay_nbd::client::{Config, Event, ProtocolError, Session};
use std::io;
use std::net::ToSocketAddrs;
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
        shake_hands(endpoint, deadline).map_err(|error| match error {
            Broken::Connection(source) => ProbeError::Volume { volume: volume.clone(), source },
            Broken::Protocol(source) => ProbeError::Handshake { volume: volume.clone(), source },
        })?;
    }
    Ok(status)
}

enum Broken {
    Connection(io::Error),
    Protocol(ProtocolError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Connection(error)
    }
}

fn shake_hands(endpoint: &Endpoint, deadline: Deadline) -> Result<(), Broken> {
    let export = &endpoint.uri.export;
    let is_secured = endpoint.uri.tls_required;
    match &endpoint.uri.transport {
        Transport::Unix { path } => {
            let stream = connect_unix(path)?;
            if is_secured { Ok(()) } else { converse(stream, export, deadline) }
        }
        Transport::Tcp { host, port } => {
            let addresses = (host.as_str(), *port).to_socket_addrs()?;
            let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
            for address in addresses {
                match connect_tcp(address, deadline) {
                    Ok(_) if is_secured => return Ok(()),
                    Ok(stream) => return converse(stream, export, deadline),
                    Err(error) => last = error,
                }
            }
            Err(last.into())
        }
    }
}

/// The handshake, to its end.
fn converse(mut stream: impl Stream, export: &str, deadline: Deadline) -> Result<(), Broken> {
    let mut session = Session::new(Config { block_status: false, ..Config::new(export) });
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 4096];
    loop {
        let mut done = 0;
        let is_ready = loop {
            let parsed = session.receive(&input[done..], &mut output).map_err(Broken::Protocol)?;
            done += parsed.consumed;
            match parsed.event {
                Event::NeedMore => break false,
                Event::Ready(_) => break true,
                Event::Closed => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                _ => {}
            }
        };
        input.drain(..done);
        if is_ready {
            // A farewell, so that nobody wonders where the client went.
            output.clear();
            session.disconnect(&mut output);
        }
        stream.limit(left(deadline)?)?;
        stream.write_all(&output)?;
        output.clear();
        if is_ready {
            return Ok(());
        }
        stream.limit(left(deadline)?)?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => input.extend_from_slice(&buffer[..count]),
        }
    }
}
