//! Where a key of a scenario stands in its file.

use crate::document::Document;
use crate::failure::Failure;
use std::fmt::Display;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A failure about `key`, as in `volume[0].load[1].rate`: at its line, or at that of the nearest table around it, or at none where it stands nowhere.
pub(super) fn failure(document: &Document, key: &str, message: impl Display) -> Failure {
    let text = document.text();
    let place = DeTable::parse(text).ok().and_then(|table| span_of(&table, key));
    let Some((span, exact)) = place else {
        return document.failure_of_absent(key, message);
    };
    // Of a line with several keys, as an inline table is, the document names the first.
    let line = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let last = key.rsplit('.').next().unwrap_or(key);
    if exact && text[line..].starts_with(last) {
        document.failure(&span, message)
    } else {
        document.failure(&span, format_args!("`{key}`: {message}"))
    }
}

/// The span of `key`, and whether it is the key itself or what lies around it.
fn span_of(root: &Spanned<DeTable<'_>>, key: &str) -> Option<(Range<usize>, bool)> {
    let mut table = Some(root.get_ref());
    let mut array: Option<&Spanned<DeValue<'_>>> = None;
    let mut found: Option<(Range<usize>, bool)> = None;
    for part in key.replace('[', ".[").split('.') {
        let value = match part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
            Some(place) => {
                let place: usize = place.parse().ok()?;
                array.and_then(|value| value.get_ref().as_array()).and_then(|values| values.get(place))
            }
            None => table.and_then(|table| {
                table.iter().find(|(name, _)| name.get_ref().as_ref() == part).map(|(_, value)| value)
            }),
        };
        let Some(value) = value else { return found.map(|(span, _)| (span, false)) };
        found = Some((value.span(), true));
        table = value.get_ref().as_table();
        array = Some(value);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_tables_arrays_and_dotted() {
        let text = "a.b = 1\n[[volume]]\nname = \"v\"\nload = [{ rate = 1 }, { rate = 22 }]\n";
        let root = DeTable::parse(text).unwrap();
        let at = |key: &str| span_of(&root, key).map(|(span, exact)| (text[span].to_owned(), exact));
        assert_eq!(at("a.b"), Some(("1".to_owned(), true)));
        assert_eq!(at("volume[0].load[1].rate"), Some(("22".to_owned(), true)));
        assert_eq!(at("volume[0].load[1].think").unwrap(), ("{ rate = 22 }".to_owned(), false));
        assert_eq!(at("nothing"), None);
    }

    #[test]
    fn a_failure_names_the_line_of_its_key_or_of_what_lies_around_it_or_none() {
        let document = Document::of("file", "name = \"x\"\n[[volume]]\nname = \"v\"\n");
        let told = |key: &str| failure(&document, key, "wrong").message().to_owned();
        assert_eq!(told("volume[0].name"), "`file`, line 3, `name`: wrong");
        assert_eq!(told("volume[0].size"), "`file`, line 2, `[[volume]]`: `volume[0].size`: wrong");
        assert_eq!(told("origin"), "`file`, `origin`: wrong");
    }
}
