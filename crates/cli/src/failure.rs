//! What ends a subcommand early: one line that says what was found where, and often one that says what to do next.

use forebay_units::{printable_lines, with_causes};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a subcommand ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// Something failed; status 1.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: None, status: 1 }
    }

    /// The command line asks for what cannot be; status 2.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { status: 2, ..Failure::new(message) }
    }

    /// The reader of our output went away: nobody is left to be told anything, and nothing is wrong.
    pub(crate) fn reader_gone() -> Failure {
        Failure { message: String::new(), hint: None, status: 0 }
    }

    /// Nothing is to be said; `status` is passed on, as that of a command that was run.
    pub(crate) fn silent(status: u8) -> Failure {
        Failure { message: String::new(), hint: None, status }
    }

    /// The same failure with what to do next, unless that is said already.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint.get_or_insert(hint.into());
        self
    }

    /// The same with the words of `place` for what went wrong.
    pub(crate) fn placed(self, place: impl FnOnce(&str) -> Failure) -> Failure {
        let message = place(&self.message).message;
        Failure { message, ..self }
    }

    /// What went wrong, without what to do next.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Says on standard error what went wrong, and gives the status to end with.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            let mut text = format!("error: {}\n", self.message);
            if let Some(hint) = &self.hint {
                text.push_str(&format!("hint: {hint}\n"));
            }
            // Standard error may be closed; then there is nobody to tell.
            let _ = io::stderr().lock().write_all(printable_lines(&text).as_bytes());
        }
        ExitCode::from(self.status)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(with_causes(&error))
    }
}

/// Adds what was being done to an error.
pub(crate) trait Context<T> {
    /// The message begins with `what`, in lower case.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let failure = error.into();
            Failure { message: format!("{what}: {}", failure.message), ..failure }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_said_once() {
        #[derive(Debug)]
        struct Outer(&'static str, io::Error);
        impl Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }
        let inner = || io::Error::other("disk gone");
        assert_eq!(Failure::from(Outer("`a`", inner())).message, "`a`: disk gone");
        assert_eq!(Failure::from(Outer("`a`: disk gone", inner())).message, "`a`: disk gone");
        let result: Result<(), _> = Err(Failure::usage("x").with_hint("y"));
        let failure = result.context("while z").unwrap_err();
        assert_eq!(
            (failure.message.as_str(), failure.hint.as_deref(), failure.status),
            ("while z: x", Some("y"), 2)
        );
    }
}
