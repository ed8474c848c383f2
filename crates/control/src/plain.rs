//! How quantities of `units`, which knows no serialisation, are written: as plain numbers, the unit in the field name.

/// `Nanos` as whole nanoseconds; fields are named `..._ns`.
pub(crate) mod nanos {
    use forebay_units::Nanos;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
        u64::deserialize(deserializer).map(Nanos)
    }
}

/// `Bytes` as whole bytes; fields are named `..._bytes`.
pub(crate) mod bytes {
    use forebay_units::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        u64::deserialize(deserializer).map(Bytes)
    }
}

/// A parameter in whole bytes that people may also write as a text with a unit, as in `"64MiB"`; told as a number.
pub(crate) mod size {
    use forebay_units::Bytes;
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(*value)
    }

    struct Size;

    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes, or a size with a unit as in \"64MiB\"")
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            text.parse::<Bytes>().map(Bytes::get).map_err(E::custom)
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(Size)
    }
}

#[cfg(test)]
mod tests {
    use crate::host::ApplianceCost;
    use crate::response::ResponseRules;
    use crate::warmup::WarmupRules;

    #[test]
    fn sizes_are_numbers_of_bytes_or_texts_with_units() {
        let rate =
            |json: &str| serde_json::from_str::<WarmupRules>(json).map(|rules| rules.bytes_per_second_max);
        assert_eq!(rate(r#"{"bytes_per_second_max": "1MiB"}"#).unwrap(), 1 << 20);
        assert_eq!(rate(r#"{"bytes_per_second_max": 7}"#).unwrap(), 7);
        for (json, message) in [
            (r#"{"bytes_per_second_max": "1 parsec"}"#, "parsec"),
            (r#"{"bytes_per_second_max": -1}"#, "a size with a unit"),
            (r#"{"bytes_per_second_max": true}"#, "a size with a unit"),
        ] {
            let error = rate(json).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let rules: ResponseRules = serde_json::from_str(r#"{"headroom_bytes": "1GiB"}"#).unwrap();
        assert_eq!(rules.headroom_bytes, 1 << 30);
        let cost: ApplianceCost = serde_json::from_str(r#"{"memory_bytes": "2KiB"}"#).unwrap();
        assert_eq!(serde_json::to_value(cost).unwrap()["memory_bytes"], 2048);
    }
}
