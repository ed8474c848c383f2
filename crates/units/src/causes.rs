//! An error as people read it: one line, with what it comes from.

use std::error::Error;

/// The messages of `error` and of its sources, outermost first, with `: ` between them. A message that the one before holds already is left
/// out: many errors say what they come from themselves.
pub fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut last = line.clone();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !last.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        last = text;
        source = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::with_causes;
    use std::error::Error;
    use std::fmt::{self, Display, Formatter};

    #[derive(Debug)]
    struct Said(&'static str, Option<Box<Said>>);

    impl Display for Said {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Said {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn each_cause_is_said_once() {
        let root = Said("no space left", None);
        let told = Said("`a.json` cannot be written: no space left", Some(Box::new(root)));
        let whole = Said("the snapshot is not kept", Some(Box::new(told)));
        assert_eq!(
            with_causes(&whole),
            "the snapshot is not kept: `a.json` cannot be written: no space left"
        );
        assert_eq!(with_causes(&Said("alone", None)), "alone");
    }
}
