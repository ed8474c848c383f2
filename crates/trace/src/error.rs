//! What can be wrong with a trace, and where.

use crate::{Format, detect::DetectError};
use std::borrow::Cow;
use std::fmt;
use std::io;

/// Where in a source something was found; both count in the *decompressed* content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The line, from 1.
    Line(u64),
    /// The byte at which the record starts, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(line) => write!(f, "line {line}"),
            Position::Byte(byte) => write!(f, "byte offset {byte}"),
        }
    }
}

/// Why a trace could not be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is nothing to read.
    #[error("there is nothing to read: no source was given, or only archives without files")]
    NoSources,
    /// It was said what ids are, of a format that has none.
    #[error(
        "a {format} trace has no ids, so that nothing can be said of them: expected oracle-general, oracle-general-opns or lcs, or no word of `ids`"
    )]
    NoIds {
        /// The format.
        format: Format,
    },
    /// The format could not be told from the content.
    #[error("`{file}`: {error}")]
    Detect {
        /// The source's name.
        file: String,
        /// What was tried.
        #[source]
        error: DetectError,
    },
    /// The sources of one trace have different formats.
    #[error(
        "`{file}` is {found} but the sources before it are {expected}; the sources of one trace must have one format"
    )]
    MixedFormats {
        /// The first source that differs.
        file: String,
        /// Its format.
        found: Format,
        /// The format of the sources before it.
        expected: Format,
    },
    /// The underlying reader failed.
    #[error("`{file}`: cannot read at byte offset {offset}: {error}")]
    Read {
        /// The source's name.
        file: String,
        /// How many bytes were read before, decompressed.
        offset: u64,
        /// The reader's own error.
        #[source]
        error: io::Error,
    },
    /// A compressed stream or an archive is damaged or ends too early.
    #[error("`{file}`: corrupt {encoding} stream after {offset} decompressed bytes: {error}")]
    Corrupt {
        /// The source's name.
        file: String,
        /// `gzip`, `zstd`, `xz`, `bzip2` or `tar`.
        encoding: &'static str,
        /// How many bytes came out before.
        offset: u64,
        /// The decoder's own error.
        #[source]
        error: io::Error,
    },
    /// An archive has too many members.
    #[error(
        "`{file}`: this tar archive has more than {limit} members; a recording of one file per processor is expected: extract it, and give its members a part at a time"
    )]
    ArchiveOfTooMany {
        /// The source's name.
        file: String,
        /// The most that is accepted.
        limit: usize,
    },
    /// The members of an archive, which are held in memory, are too large.
    #[error(
        "`{file}`: the members of this tar archive hold more than {limit} bytes, which are kept in memory; extract it and give its members instead"
    )]
    ArchiveTooLarge {
        /// The source's name.
        file: String,
        /// The most that is accepted.
        limit: u64,
    },
    /// A record is not what the format demands; more than the allowed number of them, if some are allowed.
    #[error("`{file}`, {position}: found {found}, expected {expected}{}", Skipped(*.skipped))]
    Malformed {
        /// The source's name.
        file: String,
        /// Where the record starts.
        position: Position,
        /// What is there, shortened and with control characters escaped.
        found: String,
        /// What should be there.
        expected: Cow<'static, str>,
        /// How many malformed records were skipped before, as allowed.
        skipped: u64,
    },
    /// A trace names more volumes than we keep apart.
    #[error(
        "`{file}`: more than {limit} volumes in one trace; a field was perhaps taken for a volume by a wrong `--format`"
    )]
    TooManyVolumes {
        /// The source's name.
        file: String,
        /// The most that is accepted.
        limit: usize,
    },
}

/// The end of the message where malformed records were skipped before.
struct Skipped(u64);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 {
            write!(f, " ({} malformed records were skipped before, as allowed)", self.0)
        } else {
            Ok(())
        }
    }
}

/// A malformed record as its parser sees it: without the place, which the driver adds.
#[derive(Debug)]
pub(crate) struct Bad(pub(crate) Box<BadRecord>);

/// The two halves of the message.
#[derive(Debug)]
pub(crate) struct BadRecord {
    /// What is there.
    pub(crate) found: String,
    /// What should be there.
    pub(crate) expected: Cow<'static, str>,
    /// Whether reading can go on behind the record.
    pub(crate) recoverable: bool,
    /// Whether the cause is too many volumes.
    pub(crate) too_many_volumes: bool,
}

impl Bad {
    /// A whole record is wrong.
    pub(crate) fn new(found: String, expected: impl Into<Cow<'static, str>>) -> Bad {
        Bad(Box::new(BadRecord {
            found,
            expected: expected.into(),
            recoverable: true,
            too_many_volumes: false,
        }))
    }

    /// What follows the record cannot be found, so that reading cannot go on.
    pub(crate) fn fatal(found: String, expected: impl Into<Cow<'static, str>>) -> Bad {
        Bad::new(found, expected).into_fatal()
    }

    /// The same, where what follows the record cannot be found.
    pub(crate) fn into_fatal(mut self) -> Bad {
        self.0.recoverable = false;
        self
    }

    /// Field `name` holds `bytes`.
    #[cold]
    pub(crate) fn field(name: &str, bytes: &[u8], expected: impl Into<Cow<'static, str>>) -> Bad {
        Bad::new(format!("{} as {name}", excerpt(bytes)), expected)
    }

    /// The line is not of the format at all.
    #[cold]
    pub(crate) fn line(line: &[u8], expected: impl Into<Cow<'static, str>>) -> Bad {
        Bad::new(excerpt(line), expected)
    }

    /// No more volumes can be told apart.
    #[cold]
    pub(crate) fn too_many_volumes() -> Bad {
        let mut bad = Bad::fatal(String::new(), "");
        bad.0.too_many_volumes = true;
        bad
    }
}

/// At most this many bytes of what was found are shown.
const EXCERPT_BYTES: usize = 80;

/// `bytes` as a person can read them: quoted, escaped, shortened.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let shown = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    let mut text = String::from("`");
    for chunk in shown.utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(|c| {
            let escaped: Vec<char> = if c.is_control() { c.escape_default().collect() } else { vec![c] };
            escaped
        }));
        // A character cut by the shortening is not the file's fault, but showing its bytes does no harm.
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if bytes.len() > EXCERPT_BYTES {
        text.push_str("...");
    }
    text.push('`');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_shown_safely() {
        assert_eq!(excerpt(b""), "nothing");
        assert_eq!(excerpt(b"a\0b\xff"), "`a\\u{0}b\\xff`");
        assert_eq!(excerpt(&[b'x'; 200]).len(), 80 + 2 + 3);
    }

    #[test]
    fn the_message_names_file_place_found_and_expected() {
        let error = |skipped| TraceError::Malformed {
            file: "hm_0.csv".into(),
            position: Position::Line(7),
            found: "`x` as size".into(),
            expected: "a whole number".into(),
            skipped,
        };
        assert_eq!(error(0).to_string(), "`hm_0.csv`, line 7: found `x` as size, expected a whole number");
        assert!(error(3).to_string().ends_with("(3 malformed records were skipped before, as allowed)"));
    }
}
