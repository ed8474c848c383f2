//! TOML documents whose errors name file, key and line.

use crate::failure::Failure;
use forebay_serve::config::spoken;
use forebay_units::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use std::fmt::{self, Display};
use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

/// Longer documents are not read: nobody writes so long a one, and a device may have no end (ours).
const BYTES_MAX: Bytes = Bytes(16 << 20);

/// The text in the file at `path`, `-` for standard input, of at most `bytes_max`.
pub(crate) fn read_text(path: &Path, bytes_max: Bytes) -> Result<String, Failure> {
    let name =
        if path.as_os_str() == "-" { "standard input".into() } else { format!("`{}`", path.display()) };
    let cannot = |error: std::io::Error| Failure::new(format!("cannot read {name}: {error}"));
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(bytes_max.get() + 1).read_to_end(&mut bytes).map_err(cannot)?;
    } else {
        let file = std::fs::File::open(path).map_err(cannot)?;
        file.take(bytes_max.get() + 1).read_to_end(&mut bytes).map_err(cannot)?;
    }
    if bytes.len() as u64 > bytes_max.get() {
        return Err(Failure::new(format!("{name} is too long: expected a text of at most {bytes_max}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let found = error.as_bytes()[at];
        Failure::new(format!("{name} is no text: found byte 0x{found:02x} at offset {at}, expected UTF-8"))
    })
}

/// A TOML file and where it came from.
#[derive(Debug)]
pub(crate) struct Document {
    file: String,
    text: String,
}

impl Document {
    /// Reads the file at `path`, `-` for standard input; at most 16 MiB.
    pub(crate) fn read(path: &Path) -> Result<Document, Failure> {
        Ok(Document { file: path.display().to_string(), text: read_text(path, BYTES_MAX)? })
    }

    /// What it says, as it was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A document that stands in no file.
    #[cfg(test)]
    pub(crate) fn of(file: &str, text: &str) -> Document {
        Document { file: file.to_owned(), text: text.to_owned() }
    }

    /// A failure about `key` in a line.
    pub(crate) fn failure_in(&self, line_number: usize, key: &str, message: impl Display) -> Failure {
        Failure::new(format!("`{}`, line {line_number}, `{key}`: {message}", self.file))
    }

    /// A failure about `key`, which stands nowhere.
    pub(crate) fn failure_of_absent(&self, key: &str, message: impl Display) -> Failure {
        Failure::new(format!("`{}`, `{key}`: {message}", self.file))
    }

    /// What the document holds. Unknown keys and values of a wrong type are failures where `T` says so.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        toml::from_str(&self.text).map_err(|error: toml::de::Error| {
            // The first line says what is wrong; serde appends what it expected to the same line.
            let message = spoken(&error.message().replace('\n', " "));
            match error.span() {
                Some(span) => self.failure(&span, message),
                None => Failure::new(format!("`{}`: {message}", self.file)),
            }
        })
    }

    /// A failure about what stands at `span`.
    pub(crate) fn failure(&self, span: &Range<usize>, message: impl Display) -> Failure {
        let start = span.start.min(self.text.len());
        let line_number = self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        let line = self.text.lines().nth(line_number - 1).unwrap_or("").trim();
        let place = match key_of(line) {
            Some(key) => format!("`{}`, line {line_number}, `{key}`", self.file),
            None => format!("`{}`, line {line_number}", self.file),
        };
        Failure::new(format!("{place}: {message}"))
    }
}

/// The key that a line sets, or the table that it opens.
fn key_of(line: &str) -> Option<&str> {
    if line.starts_with('[') {
        return Some(&line[..=line.rfind(']')?]);
    }
    let key = line.split_once('=')?.0.trim();
    (!key.is_empty() && !key.starts_with('#')).then_some(key)
}

/// A value that is written as text and read by its [`FromStr`], as sizes and spans of time are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        struct TextVisitor<T>(PhantomData<T>);
        impl<T: FromStr<Err: Display>> Visitor<'_> for TextVisitor<T> {
            type Value = Text<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, with a unit, as in \"64MiB\" or \"5ms\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
                text.parse().map(Text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::{Bytes, Nanos};
    use serde_spanned::Spanned;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        size: Spanned<Text<Bytes>>,
        #[serde(default)]
        window: Option<Text<Nanos>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Root {
        part: Vec<Table>,
    }

    fn message(text: &str) -> String {
        let document = Document { file: "plan.toml".into(), text: text.into() };
        format!("{:?}", document.parse::<Root>().unwrap_err())
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let unknown = message("# a comment\n[[part]]\nsize = \"4KiB\"\nsise = 3\n");
        assert!(
            unknown
                .contains("`plan.toml`, line 4, `sise`: unknown field `sise`, expected `size` or `window`"),
            "{unknown}"
        );
        let value = message("[[part]]\nsize = \"4 parsecs\"\n");
        assert!(value.contains("`plan.toml`, line 2, `size`: `4 parsecs` is not a size in bytes"), "{value}");
        let kind = message("[[part]]\nsize = 4\n");
        assert!(kind.contains("line 2, `size`: `4`, expected a text in quotes"), "{kind}");
        let missing = message("[[part]]\nwindow = \"5s\"\n");
        assert!(missing.contains("line 1, `[[part]]`: missing field `size`"), "{missing}");
        let syntax = message("[[part]\n");
        assert!(syntax.contains("`plan.toml`, line 1"), "{syntax}");
        assert!(
            message("[[part]]\nsize=\"1\"\nwindow=\"5\"")
                .contains("line 3, `window`: `5` is not a span of time")
        );
    }

    #[test]
    fn what_is_no_text_is_told_with_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, b"name = \"\xff\"").unwrap();
        let told = Document::read(&path).unwrap_err().message().to_owned();
        assert!(
            told.ends_with("plan.toml` is no text: found byte 0xff at offset 8, expected UTF-8"),
            "{told}"
        );
    }

    #[test]
    fn checks_after_parsing_can_point_too() {
        let document = Document { file: "f".into(), text: "[[part]]\n\nsize = \"4KiB\"".into() };
        let root: Root = document.parse().unwrap();
        let failure = document.failure(&root.part[0].size.span(), "too small");
        assert!(format!("{failure:?}").contains("`f`, line 3, `size`: too small"));
        assert_eq!((root.part[0].size.get_ref().0, root.part[0].window), (Bytes(4096), None));
    }
}
