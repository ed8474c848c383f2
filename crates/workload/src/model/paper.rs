//! A model on paper: the same as in memory but for windows, whose steps are told in three lists, and for what steps have in common, which is told once.
//!
//! It is not a format that hides anything: every number is documented in `docs/reference/model.md`. Windows of versions 4 and 5, which tell each step for itself, are read too.

use super::windows::{Step, ThreadRun, Use, Whereabouts, Window};
use super::{About, AreaModel, Kind, LevelIops, Model, Phase, StateModel, StepsTrial, VolumeModel};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

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
    phases: Vec<Phase>,
    area_bytes: u64,
    areas: Vec<AreaModel>,
    /// Sectors of which all places within areas are multiples.
    #[serde(default = "one")]
    place_sectors: u32,
    /// Times since the request before, the commonest first.
    #[serde(default)]
    gaps_ns: Vec<u64>,
    windows: Vec<WindowOnPaper>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowOnPaper {
    stands_for: u64,
    /// Of each step, its kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<u32>,
    /// Of each step, which of the common times it came after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<u32>,
    /// Of each step, where it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    places: Vec<Place>,
    /// Steps as versions 4 and 5 have them.
    #[serde(default, skip_serializing)]
    steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadRun>,
}

/// Where a step starts: 0 where the one before it ended, 1 the same, and it was used before; `-back` where the step started that many steps before it, as many requests ago;
/// else a list: `[-back, ago]`, or `[area, place]`, and behind it perhaps `ago` or `-1, ago`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Place {
    One(i64),
    Many(Vec<i64>),
}

const INSIDE: i64 = -1;

/// Digits of a number on paper.
fn digits(number: u64) -> u32 {
    number.checked_ilog10().unwrap_or(0) + 1
}

/// What is known of the steps so far, in the order of all windows: where they started.
#[derive(Default)]
struct Told {
    starts: Vec<Option<(u32, u32)>>,
    last: HashMap<(u32, u32), usize, FixedState>,
}

impl Told {
    /// A step's place on paper, in units of so many sectors.
    fn write(&mut self, at: Whereabouts, unit: u32) -> Place {
        let (area, sectors, used) = match at {
            Whereabouts::On { is_new } => {
                self.starts.push(None);
                return Place::One(i64::from(!is_new));
            }
            Whereabouts::At { area, sectors, used } => (area, sectors, used),
        };
        let number = self.starts.len();
        self.starts.push(Some((area, sectors)));
        let before = self.last.insert((area, sectors), number);
        let place = [i64::from(area), i64::from(sectors / unit)];
        let ago = match used {
            Use::New => return Place::Many(place.to_vec()),
            Use::Inside(ago) => return Place::Many([&place[..], &[INSIDE, ago as i64]].concat()),
            Use::Again(ago) => ago,
        };
        let back = before.map(|before| (number - before) as u64);
        match back {
            Some(back) if back == ago => Place::One(-(back as i64)),
            Some(back) if digits(back) < digits(area.into()) + digits((sectors / unit).into()) => {
                Place::Many(vec![-(back as i64), ago as i64])
            }
            _ => Place::Many([&place[..], &[ago as i64]].concat()),
        }
    }

    /// The place of the next step, that was written in units of so many sectors; `None` where it is none.
    fn read(&mut self, place: &Place, unit: u32) -> Option<Whereabouts> {
        let again = |back: i64, ago: i64| {
            let back = usize::try_from(back.checked_neg()?).ok().filter(|&back| back > 0)?;
            let (area, sectors) = (*self.starts.get(self.starts.len().checked_sub(back)?)?)?;
            Some(Whereabouts::At { area, sectors, used: Use::Again(positive(ago)?) })
        };
        let at = |area: i64, place: i64, used: Use| {
            let sectors = u32::try_from(place).ok()?.checked_mul(unit)?;
            Some(Whereabouts::At { area: u32::try_from(area).ok()?, sectors, used })
        };
        let found = match *place {
            Place::One(0) => Whereabouts::On { is_new: true },
            Place::One(1) => Whereabouts::On { is_new: false },
            Place::One(back) => again(back, back.checked_neg()?)?,
            Place::Many(ref numbers) => match numbers[..] {
                [back, ago] if back < 0 => again(back, ago)?,
                [area, place] => at(area, place, Use::New)?,
                [area, place, ago] => at(area, place, Use::Again(positive(ago)?))?,
                [area, place, INSIDE, ago] => at(area, place, Use::Inside(positive(ago)?))?,
                _ => return None,
            },
        };
        self.starts.push(match found {
            Whereabouts::At { area, sectors, .. } => Some((area, sectors)),
            Whereabouts::On { .. } => None,
        });
        Some(found)
    }
}

fn positive(ago: i64) -> Option<u64> {
    u64::try_from(ago).ok().filter(|&ago| ago > 0)
}

impl From<Model> for ModelOnPaper {
    fn from(model: Model) -> ModelOnPaper {
        let steps = || model.windows.iter().flat_map(|window| &window.steps);
        let mut counts: HashMap<u64, u64, FixedState> = HashMap::default();
        steps().for_each(|step| *counts.entry(step.gap_ns).or_default() += 1);
        let mut gaps_ns: Vec<u64> = counts.keys().copied().collect();
        gaps_ns.sort_unstable_by_key(|gap| (std::cmp::Reverse(counts[gap]), *gap));
        let numbers: HashMap<u64, u32, FixedState> = gaps_ns.iter().copied().zip(0..).collect();
        let sectors = steps().filter_map(|step| match step.at {
            Whereabouts::At { sectors, .. } => Some(sectors),
            Whereabouts::On { .. } => None,
        });
        // Powers of two, as blocks are.
        let unit = 1 << sectors.fold(16, |zeros, sectors| zeros.min(sectors.trailing_zeros()));
        let mut told = Told::default();
        let windows = model.windows.iter().map(|window| WindowOnPaper {
            stands_for: window.stands_for,
            kinds: window.steps.iter().map(|step| step.kind).collect(),
            gaps: window.steps.iter().map(|step| numbers[&step.gap_ns]).collect(),
            places: window.steps.iter().map(|step| told.write(step.at, unit)).collect(),
            steps: Vec::new(),
            threads: window.threads.clone(),
        });
        ModelOnPaper {
            windows: windows.collect(),
            place_sectors: unit,
            gaps_ns,
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
            phases: model.phases,
            area_bytes: model.area_bytes,
            areas: model.areas,
        }
    }
}

impl TryFrom<ModelOnPaper> for Model {
    type Error = String;

    fn try_from(paper: ModelOnPaper) -> Result<Model, String> {
        let mut told = Told::default();
        let mut windows = Vec::with_capacity(paper.windows.len());
        for (number, window) in paper.windows.into_iter().enumerate() {
            let WindowOnPaper { stands_for, kinds, gaps, places, mut steps, threads } = window;
            if !steps.is_empty() && !kinds.is_empty() {
                return Err(format!("`windows[{number}]` has both `steps` and `kinds`"));
            }
            if kinds.len() != gaps.len() || kinds.len() != places.len() {
                return Err(format!(
                    "`windows[{number}]` has {} kinds, {} gaps and {} places: expected as many of each",
                    kinds.len(),
                    gaps.len(),
                    places.len()
                ));
            }
            for (at, ((kind, gap), place)) in kinds.into_iter().zip(gaps).zip(&places).enumerate() {
                let Some(&gap_ns) = paper.gaps_ns.get(gap as usize) else {
                    return Err(format!(
                        "`windows[{number}].gaps[{at}]` is {gap}: expected an index below {}",
                        paper.gaps_ns.len()
                    ));
                };
                let Some(at) = told.read(place, paper.place_sectors) else {
                    return Err(format!(
                        "`windows[{number}].places[{at}]` is {}: expected 0, 1, `-back`, `[-back, ago]` or `[area, place]`, and perhaps `ago` or `-1, ago`",
                        match place {
                            Place::One(number) => number.to_string(),
                            Place::Many(numbers) => format!("{numbers:?}"),
                        }
                    ));
                };
                steps.push(Step { kind, gap_ns, at });
            }
            windows.push(Window { stands_for, steps, threads });
        }
        Ok(Model {
            windows,
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
            phases: paper.phases,
            area_bytes: paper.area_bytes,
            areas: paper.areas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::*;
    use proptest::prelude::*;

    fn model(steps: Vec<Vec<Step>>) -> Model {
        let window = |steps: Vec<Step>| Window { stands_for: 300, steps, threads: Vec::new() };
        Model { windows: steps.into_iter().map(window).collect(), ..empty_model() }
    }

    fn written(model: &Model) -> serde_json::Value {
        serde_json::to_value(model).unwrap()
    }

    fn at(area: u32, sectors: u32, used: Use) -> Whereabouts {
        Whereabouts::At { area, sectors, used }
    }

    #[test]
    fn a_place_is_told_once_by_hand() {
        let step = |gap_ns, at| Step { kind: 1, gap_ns, at };
        let model = model(vec![
            vec![step(50, at(70, 800, Use::New)), step(90, Whereabouts::On { is_new: true })],
            vec![
                // Two steps and two requests before; three before, but a window was left out between; and what was never seen.
                step(90, at(70, 800, Use::Again(2))),
                step(90, at(70, 800, Use::Again(33))),
                step(0, Whereabouts::On { is_new: false }),
                step(0, at(9, 16, Use::Again(7_000))),
                step(1, at(9, 24, Use::Inside(5))),
            ],
        ]);
        let paper = written(&model);
        assert_eq!(paper["gaps_ns"], serde_json::json!([90, 0, 1, 50]));
        assert_eq!(paper["place_sectors"], 8);
        assert_eq!(paper["windows"][0]["gaps"], serde_json::json!([3, 0]));
        assert_eq!(paper["windows"][0]["places"], serde_json::json!([[70, 100], 0]));
        let places = serde_json::json!([-2, [-1, 33], 1, [9, 2, 7_000], [9, 3, -1, 5]]);
        assert_eq!(paper["windows"][1]["places"], places);
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
        use serde_json::json;
        for (field, value, wanted) in [
            ("gaps", json!([0]), "`windows[0]` has 2 kinds, 1 gaps and 2 places"),
            ("gaps", json!([0, 1]), "`windows[0].gaps[1]` is 1: expected an index below 1"),
            ("places", json!([-1, 0]), "`windows[0].places[0]` is -1: expected"),
            ("places", json!([0, -1]), "`windows[0].places[1]` is -1: expected"),
            ("places", json!([[0, 8], [-9, 3]]), "`windows[0].places[1]` is [-9, 3]: expected"),
            ("places", json!([[0, 8], [0, 8, 0]]), "`windows[0].places[1]` is [0, 8, 0]: expected"),
            ("places", json!([[0, 8], [0]]), "`windows[0].places[1]` is [0]: expected"),
            ("places", json!([[0, 8], [0, u32::MAX]]), "`windows[0].places[1]` is [0, 4294967295]: expected"),
            ("places", json!([[0, 8], i64::MIN]), "`windows[0].places[1]` is -9223372036854775808: expected"),
            ("steps", json!([[0, 1, 0, 8]]), "`windows[0]` has both `steps` and `kinds`"),
        ] {
            let message = message(field, value);
            assert!(message.contains(wanted), "{message}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn windows_survive_their_paper(
            windows in prop::collection::vec(prop::collection::vec((0u64..3, 0u8..6, 0u32..3, 0u32..4, 1u64..5), 1..12), 1..5),
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
            let windows = windows.into_iter().map(|steps| steps.into_iter().map(step).collect());
            let model = model(windows.collect());
            let text = serde_json::to_string(&model).unwrap();
            prop_assert_eq!(serde_json::from_str::<Model>(&text).unwrap().windows, model.windows);
        }
    }
}
