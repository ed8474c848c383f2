//! The paper's chain on paper: a row for each state, with what leaves it in lists of letters.

use super::super::windows::time_cell;
use super::super::{ANY, Link, Transition};
use super::letters::{Entry, Text, entries};
use super::table;
use serde::{Deserialize, Serialize};

/// `[from, to, kinds, links, requests, gaps]`: from a state, -1 being any, the states, kinds, links, numbers of requests and mean times of its transitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row(i64, String, String, String, String, String);

/// Transitions of a state at most.
const ROWS_MAX: usize = 1 << 20;

/// To four digits.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let last = value.log10().floor() as i32 - 3;
    // A power of ten below 1 is no exact number: what is divided by its inverse has no digits more than it should.
    let unit = 10f64.powi(last.abs());
    if last > 0 { (value / unit).round() * unit } else { (value * unit).round() / unit }
}

/// Rows, and the mean times in microseconds that they have, the commonest first.
pub(super) fn write(transitions: &[Transition]) -> (Vec<Row>, Vec<f64>) {
    let (cells, numbers) = table(transitions.iter().map(|row| time_cell(row.gap_us * 1e3)), 1);
    let mut sums = vec![(0.0, 0.0); cells.len()];
    for row in transitions {
        if let Some(sum) = numbers.get(&time_cell(row.gap_us * 1e3)).and_then(|&at| sums.get_mut(at)) {
            let requests = row.requests.max(1) as f64;
            *sum = (sum.0 + requests, sum.1 + row.gap_us * requests);
        }
    }
    let gaps_us = sums.into_iter().map(|(requests, sum)| rounded(sum / requests)).collect();
    let rows = transitions.chunk_by(|a, b| a.from == b.from).map(|rows| {
        let [mut to, mut kinds, mut links, mut requests, mut gaps]: [Text; 5] = Default::default();
        for row in rows {
            to.push(row.to as usize, || "-1".to_owned());
            kinds.push(row.kind as usize, || row.kind.to_string());
            links.push(row.link as usize, || (row.link as u8).to_string());
            requests.push(row.requests as usize, || row.requests.to_string());
            let at = numbers.get(&time_cell(row.gap_us * 1e3)).copied().unwrap_or(usize::MAX);
            gaps.push(at, || rounded(row.gap_us).to_string());
        }
        let from = if rows[0].from == ANY { -1 } else { i64::from(rows[0].from) };
        let [to, kinds, links, requests, gaps] = [to, kinds, links, requests, gaps].map(Text::finish);
        Row(from, to, kinds, links, requests, gaps)
    });
    (rows.collect(), gaps_us)
}

/// The transitions of rows.
///
/// # Errors
/// What is wrong, with its field.
pub(super) fn read(rows: &[Row], gaps_us: &[f64]) -> Result<Vec<Transition>, String> {
    let mut found = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let wrong = |list: &str, error: String| format!("`transitions[{number}]`, {list}: {error}");
        let Row(from, to, kinds, links, requests, gaps) = row;
        let state = |state: i64| match state {
            -1 => Some(ANY),
            _ => u32::try_from(state).ok().filter(|&state| state != ANY),
        };
        let from =
            state(*from).ok_or_else(|| wrong("from", format!("{from}: expected a state, or -1 for any")))?;
        let to = entries(to, ROWS_MAX, |entry| match entry {
            Entry::Listed(listed) => Ok(listed as u32),
            Entry::Told(told) => {
                let told_state = told.parse().ok().and_then(state);
                told_state.ok_or_else(|| format!("`{told}`: expected a state, or -1 for any"))
            }
        });
        let to = to.map_err(|error| wrong("to", error))?;
        let number_of = |what: &'static str| {
            move |entry: Entry| match entry {
                Entry::Listed(listed) => Ok(listed as u64),
                Entry::Told(told) => told.parse().map_err(|_| format!("`{told}`: expected {what}")),
            }
        };
        let kinds = entries(kinds, ROWS_MAX, number_of("an index of a kind"))
            .map_err(|error| wrong("kinds", error))?;
        let links = entries(links, ROWS_MAX, |entry| match entry {
            Entry::Listed(link) => {
                Link::numbered(link as u32).ok_or_else(|| format!("{link} is no link: expected 0 to 4"))
            }
            Entry::Told(told) => Err(format!("`{told}` is no link: expected a letter from `a` to `e`")),
        });
        let links = links.map_err(|error| wrong("links", error))?;
        let requests = entries(requests, ROWS_MAX, number_of("a number of requests"));
        let requests = requests.map_err(|error| wrong("requests", error))?;
        let gaps = entries(gaps, ROWS_MAX, |entry| match entry {
            Entry::Listed(gap) => gaps_us.get(gap).copied().ok_or_else(|| {
                format!("the letter of entry {gap} of `transition_gaps_us`: it has only {}", gaps_us.len())
            }),
            Entry::Told(told) => told.parse().map_err(|_| format!("`{told}`: expected microseconds")),
        });
        let gaps = gaps.map_err(|error| wrong("gaps", error))?;
        let lengths = [to.len(), kinds.len(), links.len(), requests.len(), gaps.len()];
        if lengths.iter().any(|&length| length != to.len()) {
            return Err(wrong("lists", format!("of {lengths:?} entries: expected as many of each")));
        }
        for ((((to, kind), link), requests), gap_us) in
            to.into_iter().zip(kinds).zip(links).zip(requests).zip(gaps)
        {
            let kind = u32::try_from(kind).unwrap_or(u32::MAX);
            found.push(Transition { from, to, kind, link, requests, gap_us });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: u32, to: u32, kind: u32, link: Link, requests: u64, gap_us: f64) -> Transition {
        Transition { from, to, kind, link, requests, gap_us }
    }

    #[test]
    fn what_leaves_a_state_is_told_by_hand() {
        let transitions = [
            row(0, 0, 1, Link::Jump, 1_200, 1_234.5),
            // 0.12 and 0.123 share a cell, in which the mean counts requests: (3 * 0.12 + 0.123) / 4.
            row(0, 0, 2, Link::Follow, 3, 0.12),
            row(0, 0, 2, Link::Along, 1, 0.123),
            row(0, ANY, 0, Link::Jump, 5, 0.0),
            row(ANY, 0, 1, Link::Along, 5, 77.0),
        ];
        let (rows, gaps_us) = write(&transitions);
        assert_eq!(gaps_us, [0.1208, 0.0, 77.0, 1_235.0]);
        let wanted = serde_json::json!([
            [0, "a3(-1)", "bcca", "abea", "(1200)dbf", "daab"],
            [-1, "a", "b", "e", "f", "c"],
        ]);
        assert_eq!(serde_json::to_value(&rows).unwrap(), wanted);
        let read = read(&rows, &gaps_us).unwrap();
        for (read, row) in read.iter().zip(&transitions) {
            assert!((read.gap_us - row.gap_us).abs() <= 0.02 * row.gap_us, "{} {}", read.gap_us, row.gap_us);
            assert_eq!(Transition { gap_us: 0.0, ..*read }, Transition { gap_us: 0.0, ..*row });
        }
        assert_eq!(read.len(), transitions.len());
    }

    #[test]
    fn what_is_no_chain_is_refused_by_list() {
        let good = || Row(0, "ab".into(), "aa".into(), "aa".into(), "aa".into(), "aa".into());
        assert_eq!(read(&[good()], &[1.0]).unwrap().len(), 2);
        type Change = dyn Fn(&mut Row);
        let changes: [(&Change, &str); 8] = [
            (&|row| row.0 = -2, "`transitions[0]`, from: -2: expected a state, or -1 for any"),
            (&|row| row.1 = "(-2)a".into(), "`transitions[0]`, to: `-2`: expected a state"),
            (&|row| row.1 = "(4294967295)a".into(), "`transitions[0]`, to: `4294967295`: expected a state"),
            (&|row| row.2 = "a".into(), "`transitions[0]`, lists: of [2, 1, 2, 2, 2] entries"),
            (&|row| row.3 = "af".into(), "`transitions[0]`, links: 5 is no link"),
            (&|row| row.3 = "a(0)".into(), "`transitions[0]`, links: `0` is no link"),
            (
                &|row| row.4 = "a(-1)".into(),
                "`transitions[0]`, requests: `-1`: expected a number of requests",
            ),
            (
                &|row| row.5 = "ab".into(),
                "`transitions[0]`, gaps: the letter of entry 1 of `transition_gaps_us`",
            ),
        ];
        for (change, wanted) in changes {
            let mut row = good();
            change(&mut row);
            let message = read(&[row], &[1.0]).unwrap_err();
            assert!(message.contains(wanted), "{message}");
        }
    }
}
