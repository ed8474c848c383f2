//! A model on paper: the same as in memory but for its [transitions](chain) and windows, which are told in [lists of letters](letters), windows by
//! their [places](places) by what was told before.
//!
//! It is not a format that hides anything: every letter and number is documented in `docs/reference/model.md`. What [older versions](older) tell otherwise is read too.

mod chain;
mod letters;
mod older;
mod places;

use super::windows::{Step, ThreadRun, Whereabouts, Window};
use super::{About, AreaModel, Gaps, Kind, LevelIops, Model, Phase, StateModel, StepsTrial, VolumeModel};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use letters::{Entry, Text, entries};
use places::{Known, Place};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::hash::Hash;

/// What is written and read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelOnPaper {
    schema: String,
    about: About,
    block_bytes: u64,
    level: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    levels: Vec<LevelIops>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepsTrial>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placements: Vec<u32>,
    volumes: Vec<VolumeModel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thread_weights: Vec<f64>,
    kinds: Vec<Kind>,
    states: Vec<StateModel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    transitions: Vec<chain::Row>,
    /// Mean times of transitions, the commonest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    transition_gaps_us: Vec<f64>,
    phases: Vec<PhaseOnPaper>,
    area_bytes: u64,
    areas: Vec<AreaModel>,
    /// Sectors of which all places within areas are multiples.
    #[serde(default = "one")]
    place_sectors: u32,
    /// Times since the request before, the commonest first.
    #[serde(default)]
    gaps_ns: Vec<u64>,
    /// Places that several steps have, the commonest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
    windows: Vec<WindowOnPaper>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseOnPaper {
    requests: u64,
    gaps: Gaps,
    /// Versions 4 to 6 have a chain for each phase.
    #[serde(default, skip_serializing)]
    transitions: Vec<older::PhaseTransition>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowOnPaper {
    /// Not there where it stands for itself alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stands_for: Option<u64>,
    /// Not there where the window before it ended there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    /// Of each step, its kind.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    kinds: List<u32>,
    /// Of each step, which of the common times it came after.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    gaps: List<u32>,
    /// Of each step, where it starts.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    places: List<older::Place>,
    /// Steps as versions 4 and 5 have them.
    #[serde(default, skip_serializing)]
    steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadRun>,
}

/// A list of letters; a list of numbers in version 6.
#[derive(Clone, Debug)]
enum List<T> {
    Letters(String),
    Numbers(Vec<T>),
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List::Letters(String::new())
    }
}

impl<T> List<T> {
    fn is_empty(&self) -> bool {
        matches!(self, List::Letters(text) if text.is_empty())
    }
}

impl<T> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            List::Letters(text) => serializer.serialize_str(text),
            List::Numbers(_) => {
                Err(serde::ser::Error::custom("lists of numbers are read, and never written"))
            }
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<T> {
            Letters(String),
            Numbers(Vec<T>),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Letters(text) => List::Letters(text),
            Either::Numbers(numbers) => List::Numbers(numbers),
        })
    }
}

/// The commonest of `entries` first, as many as there are letters for, and of each its number; only those that occur so often at least.
fn table<T: Copy + Eq + Hash + Ord>(
    entries: impl Iterator<Item = T>,
    least: u64,
) -> (Vec<T>, HashMap<T, usize, FixedState>) {
    let mut counts: HashMap<T, u64, FixedState> = HashMap::default();
    entries.for_each(|entry| *counts.entry(entry).or_default() += 1);
    let mut listed: Vec<T> =
        counts.iter().filter(|(_, count)| **count >= least).map(|(entry, _)| *entry).collect();
    listed.sort_unstable_by_key(|entry| (std::cmp::Reverse(counts[entry]), *entry));
    listed.truncate(letters::LETTERS);
    let numbers = listed.iter().copied().zip(0..).collect();
    (listed, numbers)
}

/// A place has a letter of its own if so many steps have it: what it takes in the table is less then than what it saves.
const PLACES_LEAST: u64 = 3;

impl From<Model> for ModelOnPaper {
    fn from(model: Model) -> ModelOnPaper {
        let steps = || model.windows.iter().flat_map(|window| &window.steps);
        let (gaps_ns, gap_numbers) = table(steps().map(|step| step.gap_ns), 1);
        let sectors = steps().filter_map(|step| match step.at {
            Whereabouts::At { sectors, .. } => Some(sectors),
            Whereabouts::On { .. } => None,
        });
        // Powers of two, as blocks are.
        let unit = 1 << sectors.fold(16, |zeros, sectors| zeros.min(sectors.trailing_zeros()));
        let mut known = Known::new(unit, model.area_bytes, places::neighbours(&model.areas, &model.states));
        let mut after = Vec::with_capacity(model.windows.len());
        let mut told: Vec<Vec<Place>> = Vec::with_capacity(model.windows.len());
        for window in &model.windows {
            after.push((window.after != known.position()).then_some(window.after));
            known.begin(window.after);
            let bytes = |step: &Step| model.kinds.get(step.kind as usize).map_or(0, |kind| kind.bytes);
            let steps: Vec<(Whereabouts, u64)> =
                window.steps.iter().map(|step| (step.at, bytes(step))).collect();
            told.push((0..steps.len()).map(|at| known.write(&steps[at..])).collect());
        }
        let (places, place_numbers) = table(told.iter().flatten().copied(), PLACES_LEAST);
        let windows = model.windows.iter().zip(&told).zip(after).map(|((window, told), after)| {
            let [mut kinds, mut gaps, mut places]: [Text; 3] = Default::default();
            for (step, place) in window.steps.iter().zip(told) {
                kinds.push(step.kind as usize, || step.kind.to_string());
                gaps.push(gap_numbers.get(&step.gap_ns).copied().unwrap_or(usize::MAX), || {
                    step.gap_ns.to_string()
                });
                places.push(place_numbers.get(place).copied().unwrap_or(usize::MAX), || place.to_string());
            }
            WindowOnPaper {
                stands_for: (window.stands_for != window.steps.len() as u64).then_some(window.stands_for),
                after,
                kinds: List::Letters(kinds.finish()),
                gaps: List::Letters(gaps.finish()),
                places: List::Letters(places.finish()),
                steps: Vec::new(),
                threads: window.threads.clone(),
            }
        });
        let (transitions, transition_gaps_us) = chain::write(&model.transitions);
        ModelOnPaper {
            windows: windows.collect(),
            place_sectors: unit,
            gaps_ns,
            places: places.iter().map(Place::to_string).collect(),
            transitions,
            transition_gaps_us,
            phases: model
                .phases
                .into_iter()
                .map(|Phase { requests, gaps }| PhaseOnPaper { requests, gaps, transitions: Vec::new() })
                .collect(),
            schema: model.schema,
            about: model.about,
            block_bytes: model.block_bytes,
            level: model.level,
            levels: model.levels,
            steps: model.steps,
            placements: model.placements,
            volumes: model.volumes,
            thread_weights: model.thread_weights,
            kinds: model.kinds,
            states: model.states,
            area_bytes: model.area_bytes,
            areas: model.areas,
        }
    }
}

/// What windows are read with.
struct Reading<'a> {
    kinds: &'a [Kind],
    gaps_ns: &'a [u64],
    places: Vec<Place>,
    known: Known,
}

impl Reading<'_> {
    /// The steps of the window `number`, told in letters.
    fn steps(&mut self, number: usize, kinds: &str, gaps: &str, places: &str) -> Result<Vec<Step>, String> {
        let kinds = entries(kinds, STEPS_MAX, |entry| match entry {
            Entry::Listed(kind) => Ok(kind as u32),
            Entry::Told(told) => told.parse().map_err(|_| format!("`{told}`: expected an index of a kind")),
        });
        let kinds = kinds.map_err(|error| format!("`windows[{number}].kinds`: {error}"))?;
        let gaps = entries(gaps, STEPS_MAX, |entry| match entry {
            Entry::Listed(gap) => self.gaps_ns.get(gap).copied().ok_or_else(|| {
                format!("the letter of entry {gap} of `gaps_ns`: it has only {}", self.gaps_ns.len())
            }),
            Entry::Told(told) => told.parse().map_err(|_| format!("`{told}`: expected nanoseconds")),
        });
        let gaps = gaps.map_err(|error| format!("`windows[{number}].gaps`: {error}"))?;
        let places = entries(places, STEPS_MAX, |entry| match entry {
            Entry::Listed(place) => self.places.get(place).copied().ok_or_else(|| {
                format!("the letter of entry {place} of `places`: it has only {}", self.places.len())
            }),
            Entry::Told(told) => told.parse(),
        });
        let places = places.map_err(|error| format!("`windows[{number}].places`: {error}"))?;
        check_lengths(number, kinds.len(), gaps.len(), places.len())?;
        let mut steps = Vec::with_capacity(kinds.len());
        for ((kind, gap_ns), place) in kinds.into_iter().zip(gaps).zip(places) {
            let Some(Kind { bytes, .. }) = self.kinds.get(kind as usize) else {
                return Err(format!(
                    "`windows[{number}].kinds` has {kind}: expected an index below {}",
                    self.kinds.len()
                ));
            };
            let at = self
                .known
                .read(place, *bytes)
                .map_err(|error| format!("`windows[{number}].places[{}]` is {error}", steps.len()))?;
            steps.push(Step { kind, gap_ns, at });
        }
        Ok(steps)
    }
}

/// Whether the lists of the window `number` are as long as each other.
fn check_lengths(number: usize, kinds: usize, gaps: usize, places: usize) -> Result<(), String> {
    if kinds == gaps && kinds == places {
        return Ok(());
    }
    Err(format!(
        "`windows[{number}]` has {kinds} kinds, {gaps} gaps and {places} places: expected as many of each"
    ))
}

/// Steps of a window at most.
const STEPS_MAX: usize = 1 << 16;

impl TryFrom<ModelOnPaper> for Model {
    type Error = String;

    fn try_from(paper: ModelOnPaper) -> Result<Model, String> {
        let listed = paper
            .places
            .iter()
            .enumerate()
            .map(|(at, place)| place.parse().map_err(|error| format!("`places[{at}]` is {error}")));
        let mut reading = Reading {
            kinds: &paper.kinds,
            gaps_ns: &paper.gaps_ns,
            places: listed.collect::<Result<_, String>>()?,
            known: Known::new(
                paper.place_sectors,
                paper.area_bytes,
                places::neighbours(&paper.areas, &paper.states),
            ),
        };
        let mut told = older::Told::default();
        let mut windows = Vec::with_capacity(paper.windows.len());
        // Of older versions, which do not say where a window is: where those before it stand for all before it.
        let mut stood_for = 0u64;
        for (number, window) in paper.windows.into_iter().enumerate() {
            let WindowOnPaper { stands_for, after, kinds, gaps, places, steps, threads } = window;
            let is_older = !steps.is_empty() || matches!(kinds, List::Numbers(_));
            let after = after.unwrap_or(if is_older { stood_for } else { reading.known.position() });
            let steps = match (kinds, gaps, places) {
                (kinds, gaps, places) if !steps.is_empty() => {
                    if !kinds.is_empty() || !gaps.is_empty() || !places.is_empty() {
                        return Err(format!("`windows[{number}]` has both `steps` and `kinds`"));
                    }
                    steps
                }
                (List::Numbers(kinds), List::Numbers(gaps), List::Numbers(places)) => {
                    let lists = older::Lists { kinds, gaps, places };
                    told.read(number, lists, &paper.gaps_ns, paper.place_sectors)?
                }
                (List::Letters(kinds), List::Letters(gaps), List::Letters(places)) => {
                    reading.known.begin(after);
                    reading.steps(number, &kinds, &gaps, &places)?
                }
                _ => {
                    return Err(format!(
                        "`windows[{number}]` has both lists of letters and lists of numbers: expected either"
                    ));
                }
            };
            let stands_for = stands_for.unwrap_or(steps.len() as u64);
            stood_for = stood_for.saturating_add(stands_for);
            windows.push(Window { stands_for, after, steps, threads });
        }
        let mut transitions = chain::read(&paper.transitions, &paper.transition_gaps_us)?;
        let mut phases = Vec::with_capacity(paper.phases.len());
        let mut by_phases = Vec::new();
        for phase in paper.phases {
            phases.push(Phase { requests: phase.requests, gaps: phase.gaps });
            by_phases.extend(phase.transitions);
        }
        if transitions.is_empty() {
            transitions = older::chain(by_phases.into_iter());
        }
        Ok(Model {
            windows,
            transitions,
            phases,
            schema: paper.schema,
            about: paper.about,
            block_bytes: paper.block_bytes,
            level: paper.level,
            levels: paper.levels,
            steps: paper.steps,
            placements: paper.placements,
            volumes: paper.volumes,
            thread_weights: paper.thread_weights,
            kinds: paper.kinds,
            states: paper.states,
            area_bytes: paper.area_bytes,
            areas: paper.areas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::super::windows::Use;
    use super::super::{GenerateOptions, Generator, Link, Transition};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn model(steps: Vec<Vec<Step>>) -> Model {
        let mut after = 0;
        let window = |steps: Vec<Step>| {
            after += steps.len() as u64 + 30;
            Window { stands_for: 300, after: after - steps.len() as u64, steps, threads: Vec::new() }
        };
        let mut model = Model { windows: steps.into_iter().map(window).collect(), ..empty_model() };
        model.kinds = vec![model.kinds[0].clone(); 4];
        model.kinds.iter_mut().zip([0, 4_096, 8_192, 65_536]).for_each(|(kind, bytes)| kind.bytes = bytes);
        model
    }

    fn written(model: &Model) -> serde_json::Value {
        serde_json::to_value(model).unwrap()
    }

    fn at(area: u32, sectors: u32, used: Use) -> Whereabouts {
        Whereabouts::At { area, sectors, used }
    }

    /// Steps of two windows, of 30 requests before either of which nothing is told.
    fn known() -> Model {
        let step = |gap_ns, at| Step { kind: 1, gap_ns, at };
        model(vec![
            vec![step(50, at(70, 800, Use::New)), step(90, Whereabouts::On { is_new: true })],
            vec![
                // Thirty-two requests ago, as follows from where the windows are; one ago; and what lies in a window that was left out.
                step(90, at(70, 800, Use::Again(32))),
                step(90, at(70, 800, Use::Again(1))),
                step(0, Whereabouts::On { is_new: false }),
                step(0, at(9, 16, Use::Again(7_000))),
                Step { kind: 0, ..step(1, at(9, 24, Use::Inside(5))) },
            ],
        ])
    }

    #[test]
    fn windows_are_told_by_hand() {
        let model = known();
        let paper = written(&model);
        assert_eq!(paper["gaps_ns"], json!([90, 0, 1, 50]));
        assert_eq!(paper["place_sectors"], 8);
        assert_eq!(paper.get("places"), None);
        assert_eq!(
            paper["windows"],
            json!([
                { "stands_for": 300, "after": 30, "kinds": "bb", "gaps": "da", "places": "(70@100)(.)" },
                {
                    "stands_for": 300,
                    "after": 62,
                    "kinds": "b4a",
                    "gaps": "aabbc",
                    "places": "(-2)(=0+1)(.)(9@2a7000)(0+0i5)",
                },
            ])
        );
        assert_eq!(serde_json::from_value::<Model>(paper).unwrap(), model);
    }

    #[test]
    fn what_is_common_has_a_letter() {
        // Three scans one after the other, the last of them over what the first had.
        let scan = |from: u32, used: Use| {
            let on = Step { kind: 3, gap_ns: 7, at: Whereabouts::On { is_new: used == Use::New } };
            let mut steps = vec![on; 100];
            steps[0].at = at(3, from, used);
            steps
        };
        let mut model = model(vec![scan(0, Use::New), scan(128 * 400, Use::New), scan(0, Use::Again(200))]);
        for (window, after) in model.windows.iter_mut().zip([0, 100, 200]) {
            (window.after, window.stands_for) = (after, 100);
        }
        let paper = written(&model);
        assert_eq!(paper["places"], json!(["."]));
        let window = |places: &str| json!({ "kinds": "d100", "gaps": "a100", "places": places });
        // Units are of 64 MiB in 2^16 sectors at most; these places are multiples of 51,200 sectors, so of 2^11.
        assert_eq!(paper["place_sectors"], 2_048);
        assert_eq!(paper["windows"], json!([window("(3@0)a99"), window("(3@25)a99"), window("(-200)a99")]));
        assert_eq!(serde_json::from_value::<Model>(paper).unwrap(), model);
    }

    #[test]
    fn what_is_no_window_is_refused_by_field() {
        let step = Step { kind: 0, gap_ns: 1, at: at(0, 8, Use::New) };
        let good = written(&model(vec![vec![step; 2]]));
        let message = |field: &str, value: serde_json::Value| {
            let mut paper = good.clone();
            paper["windows"][0][field] = value;
            serde_json::from_value::<Model>(paper).unwrap_err().to_string()
        };
        for (field, value, wanted) in [
            ("gaps", json!("a"), "`windows[0]` has 2 kinds, 1 gaps and 2 places"),
            ("gaps", json!("ab"), "`windows[0].gaps`: the letter of entry 1 of `gaps_ns`: it has only 1"),
            ("gaps", json!("(x)2"), "`windows[0].gaps`: `x`: expected nanoseconds"),
            ("kinds", json!("az"), "`windows[0].kinds` has 25: expected an index below 4"),
            ("kinds", json!("a(-1)"), "`windows[0].kinds`: `-1`: expected an index of a kind"),
            ("kinds", json!("a65536a"), "`windows[0].kinds`: more than 65536 entries"),
            (
                "places",
                json!("(0@8)a"),
                "`windows[0].places`: the letter of entry 0 of `places`: it has only 0",
            ),
            ("places", json!("(0@8)(up)"), "`windows[0].places`: `up`: expected `.`, "),
            ("places", json!("(0@8)(-9)"), "`windows[0].places[1]` is `-9`: there is no such step"),
            ("places", json!("(0@8"), "`windows[0].places`: `(0@8`: expected a closing parenthesis"),
            ("places", json!([0, 0]), "`windows[0]` has both lists of letters and lists of numbers"),
            ("steps", json!([[0, 1, 0, 8]]), "`windows[0]` has both `steps` and `kinds`"),
        ] {
            let message = message(field, value);
            assert!(message.contains(wanted), "{message}");
        }
        let message = |field: &str, value: serde_json::Value| {
            let mut paper = good.clone();
            paper[field] = value;
            serde_json::from_value::<Model>(paper).unwrap_err().to_string()
        };
        assert!(message("places", json!([".", " "])).contains("`places[1]` is ` `: expected `.`"));
        let rows = json!([[0, "a", "a", "a", "b", "(x)"]]);
        assert!(message("transitions", rows).contains("`transitions[0]`, gaps: `x`: expected microseconds"));
    }

    /// What version 6 wrote of the same model, but that it knew not where windows are.
    #[test]
    fn lists_of_numbers_are_read() {
        let mut model = known();
        (model.windows[0].after, model.windows[1].after) = (0, 300);
        let mut paper = written(&model);
        paper["schema"] = json!("forebay.model/6");
        paper["windows"] = json!([
            { "stands_for": 300, "kinds": [1, 1], "gaps": [3, 0], "places": [[70, 100], 0] },
            {
                "stands_for": 300,
                "kinds": [1, 1, 1, 1, 0],
                "gaps": [0, 0, 1, 1, 2],
                "places": [[-2, 32], -1, 1, [9, 2, 7_000], [9, 3, -1, 5]],
            },
        ]);
        let rows = json!([
            [0, 1, 0, 2, 0, 30, 10.0],
            [0, 2, 0, 2, 0, 10, 50.0],
            [0, 1, -1, 0, 0, 4, 0.0],
            [0, -1, 0, 1, 3, 4, 1.0],
        ]);
        let gaps = paper["phases"][0]["gaps"].clone();
        paper["phases"] = json!([
            { "requests": 44, "gaps": gaps, "transitions": rows },
            { "requests": 10, "gaps": gaps, "transitions": [[0, 1, 0, 2, 0, 10, 90.0]] },
        ]);
        paper.as_object_mut().unwrap().remove("transitions");
        let good = paper.clone();
        let read: Model = serde_json::from_value(paper).unwrap();
        assert_eq!(read.windows, model.windows);
        let row = |kind, link, requests, gap_us| Transition { from: 0, to: 0, kind, link, requests, gap_us };
        // (30 * 10 + 10 * 50 + 10 * 90) / 50 = 34.
        assert_eq!(read.transitions, [row(1, Link::Again, 4, 1.0), row(2, Link::Jump, 50, 34.0)]);
        assert_eq!(read.phases.iter().map(|phase| phase.requests).collect::<Vec<_>>(), [44, 10]);
        for (field, value, wanted) in [
            ("gaps", json!([0]), "`windows[0]` has 2 kinds, 1 gaps and 2 places"),
            ("gaps", json!([0, 9]), "`windows[0].gaps[1]` is 9: expected an index below 4"),
            ("places", json!([-1, 0]), "`windows[0].places[0]` is -1: expected"),
            ("places", json!([0, -1]), "`windows[0].places[1]` is -1: expected"),
            ("places", json!([[0, 8], [-9, 3]]), "`windows[0].places[1]` is [-9, 3]: expected"),
            ("places", json!([[0, 8], [0, 8, 0]]), "`windows[0].places[1]` is [0, 8, 0]: expected"),
            ("places", json!([[0, 8], [0]]), "`windows[0].places[1]` is [0]: expected"),
            ("places", json!([[0, 8], [0, u32::MAX]]), "`windows[0].places[1]` is [0, 4294967295]: expected"),
            ("places", json!([[0, 8], i64::MIN]), "`windows[0].places[1]` is -9223372036854775808: expected"),
            ("places", json!("aa"), "`windows[0]` has both lists of letters and lists of numbers"),
        ] {
            let mut paper = good.clone();
            paper["windows"][0][field] = value;
            let message = serde_json::from_value::<Model>(paper).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn windows_survive_their_paper(
            windows in prop::collection::vec(prop::collection::vec((0u64..3, 0u8..6, 0u32..4, 0u32..20, 1u64..5), 1..40), 1..5),
        ) {
            let step = |(gap_ns, form, area, sectors, ago): (u64, u8, u32, u32, u64)| {
                let at = |used| at(area, sectors * 8, used);
                let at = match form {
                    0 => Whereabouts::On { is_new: true },
                    1 => Whereabouts::On { is_new: false },
                    2 => at(Use::New),
                    3 => at(Use::Inside(ago)),
                    _ => at(Use::Again(ago)),
                };
                Step { kind: area, gap_ns, at }
            };
            let steps = |steps: Vec<_>| {
                let mut steps: Vec<Step> = steps.into_iter().map(step).collect();
                // A window begins at a place.
                if matches!(steps[0].at, Whereabouts::On { .. }) {
                    steps[0].at = at(1, 8, Use::New);
                }
                steps
            };
            let model = model(windows.into_iter().map(steps).collect());
            let text = serde_json::to_string(&model).unwrap();
            prop_assert_eq!(serde_json::from_str::<Model>(&text).unwrap().windows, model.windows);
        }

        /// Whatever a file says: it is refused, or something is generated from it.
        #[test]
        fn garbage_is_refused_or_does_no_harm(changes in prop::collection::vec((0usize..100_000, 0usize..40), 1..4)) {
            let mut model = known();
            for window in &mut model.windows {
                window.stands_for = 10;
            }
            let mut text: Vec<char> = serde_json::to_string(&model).unwrap().chars().collect();
            for (at, change) in changes {
                let at = at % text.len();
                match "0123456789.-=+@()abcnui\",[]{}:".chars().nth(change) {
                    Some(letter) => text[at] = letter,
                    None => drop(text.remove(at)),
                }
            }
            let Ok(model) = serde_json::from_str::<Model>(&text.into_iter().collect::<String>()) else { return Ok(()) };
            let options = GenerateOptions { requests: Some(100), ..GenerateOptions::default() };
            if let Ok(mut generator) = Generator::new(&model, &options) {
                let mut batch = Vec::new();
                while generator.next_batch(&mut batch) > 0 {}
            }
        }
    }
}
