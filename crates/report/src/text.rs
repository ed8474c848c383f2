//! Text that is safe inside XML and HTML, how wide it is, and numbers in it.

/// Escapes `text` for XML and HTML, in element content and in quoted attributes. Characters that XML 1.0 cannot hold
/// at all (most control characters, section 2.2) become the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(c),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// How wide `text` is about, in pixels, in a sans-serif face of `size` pixels. No face is known here, so this is the
/// mean advance of common ones (0.6 em; ours), with wide scripts counted as one em.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| if c >= '\u{1100}' { 1.0 } else { 0.6 }).sum::<f64>() * size
}

/// `text` cut to at most `count` characters, the last of them an ellipsis where something was cut.
pub(crate) fn shorten(text: &str, count: usize) -> String {
    if text.chars().count() <= count {
        return text.to_owned();
    }
    text.chars().take(count.saturating_sub(1)).chain(['…']).collect()
}

/// A coordinate with at most one decimal: a tenth of a pixel is finer than anything that is seen.
pub(crate) fn coordinate(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { "0".to_owned() } else { format!("{rounded}") }
}

/// `value` with at most `decimals` decimals and no trailing zeros.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(escape("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
        assert_eq!(escape("a\0b\u{1b}[31mc\nd"), "a\u{fffd}b\u{fffd}[31mc\nd");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(coordinate(12.04), "12");
        assert_eq!(coordinate(-0.01), "0");
        assert_eq!(coordinate(12.36), "12.4");
        assert_eq!(trimmed(0.5, 3), "0.5");
        assert_eq!(trimmed(100.0, 2), "100");
        assert_eq!(trimmed(-0.0001, 2), "0");
        assert_eq!(shorten("a long name", 6), "a lon…");
        assert_eq!(shorten("short", 5), "short");
    }
}
