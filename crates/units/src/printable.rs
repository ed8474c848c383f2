//! Text of others on a terminal.

/// `text` for a terminal, and as one line of a log: control characters, which could steer the one and end the other, are replaced. Whoever sent it may mean harm.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same of several lines: ends of lines and tabs stay.
pub fn printable_lines(text: &str) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        // Escape, bell, delete, and the introducer that is one character of its own.
        let hostile = "\u{1b}[2Jgone\u{7}\u{7f}\u{9b}31m\r\nINFO a line\tof\u{85}ours \u{2026}";
        assert_eq!(
            printable(hostile),
            "\u{fffd}[2Jgone\u{fffd}\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}INFO a line\u{fffd}of\u{fffd}ours \u{2026}"
        );
        assert_eq!(printable_lines("a\tb\n\u{1b}c\r\n"), "a\tb\n\u{fffd}c\u{fffd}\n");
    }
}
