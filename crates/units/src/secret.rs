//! Texts that must not be shown.

use std::fmt;

/// A text that only those may know who are let in by it: compared in a time that tells nothing of it, and never printed.
///
/// It is no cryptography: whoever reads the wire learns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Shortest secret, in bytes (ours: 128 bits in hexadecimal digits are 32 bytes, 96 bits in base 64 are 16).
    pub const BYTES_MIN: usize = 16;
    /// Longest secret, in bytes (ours).
    pub const BYTES_MAX: usize = 128;

    /// What a text must be to be one, for whoever is told that it is none.
    pub const FORM: &'static str = "16 to 128 letters, digits, `-` and `_`";

    /// A secret of [`Secret::BYTES_MIN`] to [`Secret::BYTES_MAX`] letters, digits, `-` and `_`, so that it can stand in a URI, in a header and in
    /// the name of an export; `None` for any other text.
    pub fn new(text: impl Into<String>) -> Option<Secret> {
        let text = text.into();
        let is_good = (Secret::BYTES_MIN..=Secret::BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_good.then_some(Secret(text))
    }

    /// Whether `shown` is the secret. Takes the same time wherever the first difference is; the length is no secret.
    pub fn is(&self, shown: &str) -> bool {
        let differs = self.0.bytes().zip(shown.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        self.0.len() == shown.len() && differs == 0
    }

    /// The secret itself, for whoever must show it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_is_the_secret_and_it_is_not_printed() {
        let secret = Secret::new("0123456789abcdef").unwrap();
        assert!(secret.is("0123456789abcdef") && secret.reveal() == "0123456789abcdef");
        for other in ["", "0123456789abcdeg", "0123456789abcde", "0123456789abcdef0", "1123456789abcdef"] {
            assert!(!secret.is(other), "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn what_cannot_stand_in_a_uri_or_is_short_is_none() {
        for bad in ["", "0123456789abcde", "0123456789 abcdef", "0123456789/abcdef", "0123456789äbcdef"] {
            assert_eq!(Secret::new(bad), None, "{bad}");
        }
        assert!(Secret::FORM.starts_with(&format!("{} to {} ", Secret::BYTES_MIN, Secret::BYTES_MAX)));
        assert!(Secret::new("a".repeat(128)).is_some() && Secret::new("a".repeat(129)).is_none());
    }
}
