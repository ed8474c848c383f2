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

/// `Option<Nanos>`, as [`nanos`] or `null`.
pub(crate) mod optional_nanos {
    use forebay_units::Nanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Option<Nanos>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.0).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Nanos))
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
