//! Requests to a running daemon, and what to do when it does not answer.

use crate::failure::Failure;
use forebay_actuate::api::{ApiAddress, ApiError};
use forebay_actuate::{Control, Deadline};
use forebay_units::{Nanos, Secret};
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// No answer takes longer, but for the time that the daemon was given for a change.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that it may be given.
const CHANGE_MAX: Nanos = Nanos::secs(30);

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

    /// Likewise, of a change that the daemon may take `within` for, before it says whether it was made.
    pub(crate) fn change<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &str,
        within: Option<Nanos>,
    ) -> Result<T, Failure> {
        self.0.ask("POST", path, body, Deadline::after(patience(within))).map_err(failure)
    }

    /// The text at `path`.
    pub(crate) fn text(&self, path: &str) -> Result<String, Failure> {
        self.0.text("GET", path, "", Deadline::after(TIMEOUT)).map_err(failure)
    }
}

/// How long the answer to a change is waited for that may take `within`. What is above the most is refused at once.
fn patience(within: Option<Nanos>) -> Duration {
    TIMEOUT + within.unwrap_or(CHANGE_MAX).min(CHANGE_MAX).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_has_the_time_that_it_was_given_and_that_of_an_answer() {
        assert_eq!(patience(Some(Nanos::secs(20))), Duration::from_secs(30));
        // What it takes unless it is told is its own affair.
        assert_eq!(patience(None), Duration::from_secs(40));
        assert_eq!(patience(Some(Nanos::MAX)), Duration::from_secs(40));
    }
}
