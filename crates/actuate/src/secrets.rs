//! Secrets in files and in orders. They are written in the clear, since what holds them is for its owner alone; of what stands in the place of one only the
//! kind is told when it is refused, as it may nearly be the secret.

use forebay_units::Secret;
use rustix::fs::OFlags;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};
use serde_json::error::Category;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// For `#[serde(with)]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(secret.reveal())
}

/// For `#[serde(with)]`.
///
/// # Errors
/// If there is no secret, without a word of what there is but its kind.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
    // Whoever is asked for a text says what else there is before the visitor is heard.
    from.deserialize_any(SecretVisitor)
}

/// What the file of ours at `path` holds. Whoever opens a FIFO waits for another who does, deaf to signals; what is no file is refused.
///
/// # Errors
/// Why it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let at_once = OFlags::NONBLOCK.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(at_once).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Why a file of ours with secrets in it is not understood, and where, without a word of what stands there.
pub fn misunderstood(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Data => "it is JSON, and not what is kept here",
        _ => "it is no JSON, or a part of it",
    };
    format!("{what}: line {}, column {}", error.line(), error.column())
}

/// [`serialize`] and [`deserialize`], where there may be none.
pub mod optional {
    use super::SecretVisitor;
    use forebay_units::Secret;
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serialize, Serializer};
    use std::fmt;

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(secret: &Option<Secret>, to: S) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::reveal).serialize(to)
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// If there is something else than a secret, without a word of it but its kind.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
        from.deserialize_option(OptionVisitor)
    }

    struct OptionVisitor;

    impl<'de> Visitor<'de> for OptionVisitor {
        type Value = Option<Secret>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            SecretVisitor.expecting(f)
        }

        fn visit_none<E: Error>(self) -> Result<Option<Secret>, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Option<Secret>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<Secret>, D::Error> {
            super::deserialize(from).map(Some)
        }
    }
}

struct SecretVisitor;

/// What serde would say of itself shows numbers and texts.
fn refused<T, E: Error>(kind: &str) -> Result<T, E> {
    Err(E::custom(format_args!("{kind} is no secret: expected {} in quotes", Secret::FORM)))
}

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
        Secret::new(text).map_or_else(|| refused("the text"), Ok)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Secret, E> {
        refused("a boolean")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
        refused("a number")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
        refused("a number")
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<Secret, E> {
        refused("a number")
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Secret, E> {
        refused("a number")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
        refused("a number")
    }

    fn visit_unit<E: Error>(self) -> Result<Secret, E> {
        refused("nothing")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Secret, A::Error> {
        refused("an array")
    }

    /// What reads TOML says of a date that it is a map, too.
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Secret, A::Error> {
        refused("a table or a time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Holder {
        #[serde(with = "super")]
        one: Secret,
        #[serde(default, with = "super::optional")]
        other: Option<Secret>,
    }

    #[test]
    fn what_is_no_secret_is_refused_by_its_kind_alone() {
        let read = |one: &str, other: &str| {
            serde_json::from_str::<Holder>(&format!(r#"{{"one":{one},"other":{other}}}"#))
        };
        let good = r#""0123456789abcdef""#;
        let holder = read(good, "null").unwrap();
        assert!(holder.one.is("0123456789abcdef") && holder.other.is_none());
        assert!(read(good, good).unwrap().other.is_some());
        for (bad, kind) in [
            ("1234567890123456", "a number"),
            ("-1234567890123456", "a number"),
            ("12345678901234567890123", "a number"),
            ("1234567890.123456", "a number"),
            ("true", "a boolean"),
            (r#""123456789012345""#, "the text"),
            (r#"["1234567890123456"]"#, "an array"),
            (r#"{"1234567890123456":1234567890123456}"#, "a table or a time"),
        ] {
            for error in [read(bad, "null").unwrap_err(), read(good, bad).unwrap_err()] {
                let error = error.to_string();
                assert!(error.starts_with(&format!("{kind} is no secret: expected 16 to 128 ")), "{error}");
                assert!(!error.contains("12345") && !error.contains("true"), "{error}");
            }
        }
        let error = read("null", "null").unwrap_err().to_string();
        assert!(error.starts_with("nothing is no secret"), "{error}");
    }
}
