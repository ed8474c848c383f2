//! Requests to a running daemon, and what to do when it does not answer.

use crate::failure::Failure;
use forebay_actuate::api::{ApiAddress, ApiError};
use forebay_actuate::{Control, Deadline};
use forebay_units::Secret;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// No answer takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where a daemon answers, and what must be shown there.
#[derive(Clone, Debug)]
pub(crate) struct Server(Control);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.address.fmt(f)
    }
}

impl Server {
    pub(crate) fn new(address: ApiAddress, token: Option<Secret>) -> Server {
        Server(Control { address, token })
    }

    /// On a unix socket.
    pub(crate) fn unix(path: &Path) -> Server {
        Server::new(ApiAddress::Unix(path.to_owned()), None)
    }

    /// The JSON at `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask("GET", path, "")
    }

    /// The JSON that `method` at `path` answers to `body`.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T, Failure> {
        self.0.ask(method, path, body, Deadline::after(TIMEOUT)).map_err(failure)
    }

    /// The text at `path`.
    pub(crate) fn text(&self, path: &str) -> Result<String, Failure> {
        self.0.text("GET", path, "", Deadline::after(TIMEOUT)).map_err(failure)
    }
}

fn failure(error: ApiError) -> Failure {
    let hint = match error {
        ApiError::Silent { .. } => {
            Some("start one with `forebay serve FILE`; `--server` or `--config` says where it answers")
        }
        ApiError::Refused { status: 401, .. } => Some("`--token-file` says where the token is"),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
