//! What a server that keeps clients out says of itself, so that one whom it lets in no more knows whether it is still who served it.
//!
//! The protocol has no field for it: it stands at the end of two texts for people, the description of an export and the reason of a refusal.

use crate::wire::STRING_BYTES_MAX;

const OPENING: &str = " (run ";
const DIGITS: usize = 16;

/// One run of an export at a server: a number that no other run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId(pub u64);

impl RunId {
    /// `text` with the number behind it; `text` alone where that would be longer than the protocol allows.
    pub fn said_in(self, text: &str) -> String {
        let said = format!("{text}{OPENING}{:0width$x})", self.0, width = DIGITS);
        if said.len() > STRING_BYTES_MAX { text.to_owned() } else { said }
    }

    /// The number that stands behind a text, if one does.
    pub fn found_in(text: &str) -> Option<RunId> {
        let (_, digits) = text.strip_suffix(')')?.rsplit_once(OPENING)?;
        let is_ours = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| u64::from_str_radix(digits, 16).ok().map(RunId))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_found() {
        for id in [0, 1, 0xfeed, u64::MAX] {
            for text in ["", "a disk", "of (run 0000000000000001)"] {
                assert_eq!(RunId::found_in(&RunId(id).said_in(text)), Some(RunId(id)), "{text}");
            }
        }
        for text in ["", "(run 1)", " (run 1)", " (run +000000000000001)", " (run 0000000000000001) "] {
            assert_eq!(RunId::found_in(text), None, "{text}");
        }
        let long = "d".repeat(STRING_BYTES_MAX);
        assert_eq!(RunId(1).said_in(&long), long);
    }
}
