//! What is wrong with a configuration: all of it at once, each with its place.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line in the file, from 1; `None` for a configuration that was made in code.
    pub line: Option<usize>,
    /// Which key, as in `volume[0].origin.path`; empty for the file as a whole.
    pub key: String,
    /// What was found and what was expected.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file; empty for a configuration that was made in code.
    pub file: String,
    /// What is wrong, by line.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            let mut place = Vec::new();
            if !self.file.is_empty() {
                place.push(format!("`{}`", self.file));
            }
            place.extend(problem.line.map(|line| format!("line {line}")));
            if !problem.key.is_empty() {
                place.push(format!("`{}`", problem.key));
            }
            match place.is_empty() {
                true => write!(f, "{}", problem.message)?,
                false => write!(f, "{}: {}", place.join(", "), problem.message)?,
            }
            if let Some(hint) = &problem.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// What was found in a configuration that was made in code, or is not of one place in a file.
pub(crate) fn refused(findings: Vec<Finding>) -> Result<(), ConfigError> {
    if findings.is_empty() {
        return Ok(());
    }
    let problem = |Finding { key, message, hint }| Problem { line: None, key, message, hint };
    Err(ConfigError { file: String::new(), problems: findings.into_iter().map(problem).collect() })
}

/// A problem whose line is not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Finding {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { key: key.into(), message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }
}
