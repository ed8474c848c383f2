//! Lists as text: a letter for each entry of a table, and how often it comes in a row.
//!
//! `ab12(7)c` is the entries that `a` stands for, then twelve times that of `b`, then what `7` says for itself, then that of `c`. The commonest entries have letters of one byte.

use std::ops::RangeInclusive;

/// Letters in the order of the entries that they stand for; digits and parentheses have a meaning of their own, quotes and backslashes are two characters each in JSON.
const RANGES: [RangeInclusive<char>; 16] = [
    'a'..='z',
    'A'..='Z',
    '!'..='!',
    '#'..='\'',
    '*'..='/',
    ':'..='@',
    '['..='[',
    ']'..='`',
    '{'..='~',
    // Two bytes each: Latin, Greek and Cyrillic letters, none of which joins with its neighbours.
    '\u{c0}'..='\u{2af}',
    '\u{391}'..='\u{3a1}',
    '\u{3a3}'..='\u{3ff}',
    '\u{400}'..='\u{481}',
    '\u{48a}'..='\u{52f}',
    '\u{531}'..='\u{556}',
    '\u{561}'..='\u{587}',
];

/// How many there are, and how many of them take one byte.
pub(super) const LETTERS: usize = 1_059;
#[cfg(test)]
pub(super) const LETTERS_OF_A_BYTE: usize = 80;

fn length(range: &RangeInclusive<char>) -> usize {
    *range.end() as usize - *range.start() as usize + 1
}

/// The letter of the entry `number`.
fn letter(mut number: usize) -> Option<char> {
    for range in &RANGES {
        if number < length(range) {
            return char::from_u32(*range.start() as u32 + number as u32);
        }
        number -= length(range);
    }
    None
}

/// The entry that a letter stands for.
fn number(letter: char) -> Option<usize> {
    let mut before = 0;
    for range in &RANGES {
        if range.contains(&letter) {
            return Some(before + letter as usize - *range.start() as usize);
        }
        before += length(range);
    }
    None
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// That of a table.
    Listed(usize),
    /// One that is told where it occurs.
    Told(&'a str),
}

/// A list that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    text: String,
    /// What was written last, and how often it comes.
    last: Option<(String, usize)>,
}

impl Text {
    /// The next entry; one beyond what there are letters for is told by `told`.
    pub(super) fn push(&mut self, entry: usize, told: impl FnOnce() -> String) {
        let text = match letter(entry) {
            Some(letter) => letter.to_string(),
            None => format!("({})", told()),
        };
        match &mut self.last {
            Some((last, times)) if *last == text => *times += 1,
            _ => {
                self.end_run();
                self.last = Some((text, 1));
            }
        }
    }

    fn end_run(&mut self) {
        let Some((text, times)) = self.last.take() else { return };
        // Twice the letter is as short as its number.
        match times {
            1 => self.text.push_str(&text),
            2 if text.len() == 1 => self.text.push_str(&text.repeat(2)),
            _ => self.text.push_str(&format!("{text}{times}")),
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.end_run();
        self.text
    }
}

/// The entries of a list, with how often each comes in a row.
///
/// # Errors
/// What was found where an entry was expected.
fn read(text: &str) -> impl Iterator<Item = Result<(Entry<'_>, usize), String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let entry = if let Some(told) = rest.strip_prefix('(') {
            let Some((told, after)) = told.split_once(')') else {
                let found = std::mem::take(&mut rest);
                return Some(Err(format!("`{found}`: expected a closing parenthesis")));
            };
            rest = after;
            Entry::Told(told)
        } else {
            let Some(number) = number(first) else {
                rest = "";
                return Some(Err(format!("`{first}`: expected a letter, or `(` and what it stands for")));
            };
            rest = &rest[first.len_utf8()..];
            Entry::Listed(number)
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (times, after) = rest.split_at(digits);
        rest = after;
        let parsed = if times.is_empty() { Ok(1) } else { times.parse() };
        match parsed.ok().filter(|times| (1..=TIMES_MAX).contains(times)) {
            Some(times) => Some(Ok((entry, times))),
            None => {
                rest = "";
                Some(Err(format!("`{times}` times in a row: expected 1 to {TIMES_MAX}")))
            }
        }
    })
}

/// In a row, at most.
const TIMES_MAX: usize = 1 << 16;

/// The entries of a list, of which there are so many at most.
///
/// # Errors
/// What was found where an entry was expected, or what `entry` says of it.
pub(super) fn entries<T: Clone>(
    text: &str,
    most: usize,
    entry: impl Fn(Entry) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut found = Vec::new();
    for run in read(text) {
        let (of, times) = run?;
        if found.len() + times > most {
            return Err(format!("more than {most} entries"));
        }
        found.resize(found.len() + times, entry(of)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(entries: &[usize]) -> String {
        let mut text = Text::default();
        entries.iter().for_each(|&entry| text.push(entry, || entry.to_string()));
        text.finish()
    }

    #[test]
    fn every_letter_stands_for_one_entry() {
        let letters: Vec<char> = (0..).map_while(letter).collect();
        assert_eq!(letters.len(), LETTERS);
        for (at, &letter) in letters.iter().enumerate() {
            assert_eq!(number(letter), Some(at));
            assert_eq!(letter.len_utf8() == 1, at < LETTERS_OF_A_BYTE, "{letter}");
            assert!(!letter.is_ascii_digit() && !"()\"\\".contains(letter), "{letter}");
            assert_eq!(serde_json::to_string(&letter).unwrap().len(), letter.len_utf8() + 2);
        }
        assert_eq!(letters[..3].iter().collect::<String>(), "abc");
    }

    #[test]
    fn runs_are_counted_by_hand() {
        assert_eq!(written(&[0, 1, 1, 2, 2, 2, 0]), "abbc3a");
        assert_eq!(written(&[LETTERS, LETTERS, 80, 80]), "(1059)2\u{c0}2");
        let found: Vec<_> = read("ab12(7u)3c").collect::<Result<_, _>>().unwrap();
        let wanted =
            [(Entry::Listed(0), 1), (Entry::Listed(1), 12), (Entry::Told("7u"), 3), (Entry::Listed(2), 1)];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, wanted) in [
            ("a\"", "`\"`: expected a letter"),
            ("3a", "`3`: expected a letter"),
            ("a(12", "`(12`: expected a closing parenthesis"),
            ("a0", "`0` times in a row: expected 1 to 65536"),
            ("a65537", "`65537` times"),
            ("a99999999999999999999999", "times in a row"),
        ] {
            let message = read(text).find_map(Result::err).unwrap();
            assert!(message.contains(wanted), "{message}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn lists_survive(entries in prop::collection::vec((0usize..1_100, 1usize..5), 0..40)) {
            let all: Vec<usize> = entries.iter().flat_map(|&(entry, times)| std::iter::repeat_n(entry, times)).collect();
            let text = written(&all);
            let mut found = Vec::new();
            for entry in read(&text) {
                let (entry, times) = entry.unwrap();
                let entry = match entry {
                    Entry::Listed(number) => number,
                    Entry::Told(told) => told.parse().unwrap(),
                };
                found.extend(std::iter::repeat_n(entry, times));
            }
            prop_assert_eq!(found, all);
        }
    }
}
