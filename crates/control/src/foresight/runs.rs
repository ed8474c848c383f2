//! Runs of blocks as text, for what is kept of the past over restarts: the runs in their order, each as the distance from the end of the one before
//! to its first block, and how many blocks it has: `5+2 3+1` is blocks 5, 6 and 10. So a run takes some five bytes, where a list of numbers takes twenty.

use forebay_units::BlockRange;
use serde::{Deserialize, Deserializer, Serializer, de};
use std::fmt::Write;
use std::sync::Arc;

/// Runs that are kept of a list at most: as many as an order to load takes. The first are most worth it.
pub(super) const RUNS_MAX: usize = 262_144;

/// See the module.
///
/// # Errors
/// Those of the serializer.
pub(super) fn serialize<S: Serializer>(
    runs: &Option<Arc<[BlockRange]>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Some(runs) = runs else { return serializer.serialize_none() };
    let (mut text, mut end) = (String::new(), 0);
    for run in runs.iter().take(RUNS_MAX) {
        let separator = if text.is_empty() { "" } else { " " };
        let distance = i128::from(run.first) - i128::from(end);
        write!(text, "{separator}{distance}+{}", run.count()).expect("a string takes all");
        end = run.end;
    }
    serializer.serialize_some(&text)
}

/// See the module. `O(runs)`.
///
/// # Errors
/// Those of the deserializer, and a text that is none of [`serialize`].
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<[BlockRange]>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let mut end = 0;
    let run = |word: &str| {
        let (distance, count) = word.split_once('+')?;
        let first = u64::try_from(i128::from(end) + distance.parse::<i128>().ok()?).ok()?;
        let count = count.parse::<u64>().ok().filter(|count| *count > 0)?;
        let run = BlockRange { first, end: first.checked_add(count)? };
        end = run.end;
        Some(run)
    };
    let wrong = || de::Error::custom("what a cache held is no list of runs like `5+2 3+1`");
    let runs: Option<Arc<[BlockRange]>> = text.split_whitespace().map(run).collect();
    runs.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Serialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Kept(#[serde(with = "super")] Option<Arc<[BlockRange]>>);

    fn kept(runs: &[(u64, u64)]) -> Kept {
        Kept(Some(runs.iter().map(|&(first, end)| BlockRange { first, end }).collect()))
    }

    #[test]
    fn runs_are_told_in_their_order() {
        let told = |kept: &Kept| serde_json::to_string(kept).unwrap();
        assert_eq!(told(&kept(&[(5, 7), (10, 11), (2, 3)])), r#""5+2 3+1 -9+1""#);
        assert_eq!((told(&kept(&[])), told(&Kept(None))), (r#""""#.to_owned(), "null".to_owned()));
        let many: Vec<_> = (0..RUNS_MAX as u64 + 5).map(|at| (2 * at, 2 * at + 1)).collect();
        let text = told(&kept(&many));
        assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept(&many[..RUNS_MAX]));
    }

    #[test]
    fn what_is_no_list_of_runs_is_refused() {
        for text in ["5", "+", "5+", "x+1", "5+0", "-1+1", "5+-1", "5+2 3", "18446744073709551615+1", "1e3+1"]
        {
            let error = serde_json::from_str::<Kept>(&format!("{text:?}")).unwrap_err().to_string();
            assert!(error.contains("is no list of runs like `5+2 3+1`"), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Kept>("[1, 2]").is_err());
    }

    proptest! {
        #[test]
        fn what_was_told_is_heard(runs in prop::collection::vec((any::<u64>(), 1u64..1_000_000), 0..50)) {
            let runs: Vec<_> = runs.iter().map(|&(first, count)| {
                let first = first.min(u64::MAX - count);
                (first, first + count)
            }).collect();
            let kept = kept(&runs);
            prop_assert_eq!(serde_json::from_str::<Kept>(&serde_json::to_string(&kept).unwrap()).unwrap(), kept);
        }
    }
}
