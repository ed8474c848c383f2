//! What serde says of a value that it cannot take, as people speak: what was found, and what is expected.

/// `message` of serde, without the names of types that nobody but programmers know. What it is no word of is left as it is.
pub fn spoken(message: &str) -> String {
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        return format!("{}, expected {}", found_word(found), expected_word(expected));
    }
    match message.strip_prefix("unknown variant ") {
        // What the parser itself says of a word that is none.
        None if message == "wanted string or table" => "expected one of its words in quotes".to_owned(),
        Some(rest) if rest.contains(", expected ") => rest.to_owned(),
        _ => message.to_owned(),
    }
}

fn found_word(found: &str) -> &str {
    match found {
        "map" => "a table",
        "sequence" => "an array",
        _ => ["integer ", "floating point ", "boolean ", "character ", "string "]
            .into_iter()
            .find_map(|kind| found.strip_prefix(kind))
            .unwrap_or(found),
    }
}

fn expected_word(expected: &str) -> String {
    let number = |most: u64| format!("a whole number from 0 to {most}");
    let word = match expected {
        "a string" => "a text in quotes",
        "path string" => "a path in quotes",
        "a boolean" => "`true` or `false`",
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u64" | "usize" => "a whole number, 0 or more",
        "u8" => return number(u8::MAX.into()),
        "u16" => return number(u16::MAX.into()),
        "u32" => return number(u32::MAX.into()),
        "a sequence" => "an array",
        "a map" => "a table",
        _ if ["struct ", "internally tagged enum "].iter().any(|kind| expected.starts_with(kind)) => {
            "a table"
        }
        _ if expected.starts_with("enum ") => "one of its words in quotes",
        _ => expected,
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::path::PathBuf;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Table {
        #[serde(default)]
        number: u32,
        #[serde(default)]
        count: u64,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        is_on: bool,
        #[serde(default)]
        path: PathBuf,
        #[serde(default)]
        texts: Vec<String>,
        inner: Option<Inner>,
        kind: Option<Kind>,
        table: Option<Box<Table>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "type", rename_all = "lowercase")]
    #[allow(dead_code)]
    enum Inner {
        Process { program: String },
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn what_is_found_and_expected_is_said_without_names_of_types() {
        for (text, told) in [
            ("number = \"x\"", "\"x\", expected a whole number from 0 to 4294967295"),
            ("number = -1", "`-1`, expected a whole number from 0 to 4294967295"),
            ("number = 1.5", "`1.5`, expected a whole number from 0 to 4294967295"),
            ("count = {}", "a table, expected a whole number, 0 or more"),
            ("share = true", "`true`, expected a number"),
            ("is_on = 1", "`1`, expected `true` or `false`"),
            ("path = []", "an array, expected a path in quotes"),
            ("texts = \"x\"", "\"x\", expected an array"),
            ("texts = [1]", "`1`, expected a text in quotes"),
            ("inner = 5", "`5`, expected a table"),
            ("table = 5", "`5`, expected a table"),
            ("inner = { type = \"process\", program = 5 }", "`5`, expected a text in quotes"),
            ("inner = { type = \"other\" }", "`other`, expected `process`"),
            ("kind = \"three\"", "`three`, expected `one` or `two`"),
            ("kind = 2", "expected one of its words in quotes"),
            ("numbr = 1", "unknown field `numbr`, expected one of `number`"),
            ("inner = {}", "missing field `type`"),
        ] {
            let error = toml::from_str::<Table>(text).unwrap_err();
            let said = spoken(error.message());
            assert!(said.starts_with(told), "{text}: {said} ({})", error.message());
        }
    }
}
