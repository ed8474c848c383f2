//! JSON of which a structure is an object.
//!
//! What serde derives for a structure takes an array as well, and its elements in the order in which Rust names the fields: `[4096]` for
//! `{"bytes": 4096}`. That order is nobody's contract, so that whoever forgot the names would have something else done than was meant. [`read`] refuses
//! that; all orders of the HTTP API are read with it, and a structure within one is an [`Object`].

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What `body` says.
///
/// # Errors
/// It is no JSON, or not of a `T`: what was found, where, and what is expected.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map(|Object(read)| read)
}

/// A structure that is read from an object alone.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        bytes: u64,
        name: Option<String>,
    }

    #[test]
    fn an_object_is_read_as_serde_reads_it_and_an_array_is_not() {
        for body in [
            r#"{"bytes": 7, "name": "a\u00e9"}"#,
            r#"{"bytes": 7, "more": 1}"#,
            r#"{"bytes": -1}"#,
            "{}",
            "{} {}",
            "{",
            "",
        ] {
            let told = |found: Result<Order, serde_json::Error>| found.map_err(|error| error.to_string());
            assert_eq!(told(read(body.as_bytes())), told(serde_json::from_str(body)), "{body}");
        }
        for (body, found) in [(r#"[7, "a"]"#, "sequence"), ("7", "integer `7`"), ("null", "null")] {
            let told = read::<Order>(body.as_bytes()).unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("invalid type: {found}, expected an object at line 1 column ")),
                "{told}"
            );
        }
    }
}
