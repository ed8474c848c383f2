//! Judging: who violates an objective, who only had a spike, and whose violation is over.

use super::Controller;
use super::volume::VolumeState;
use crate::config::ControlConfig;
use crate::conformance::Judgement;
use crate::decision::{DecisionKind, Fact, StepOutcome};
use crate::inventory::VolumeId;
use crate::objective::Objective;
use crate::violation::{Assessment, Episode};
use forebay_units::Nanos;
use std::collections::BTreeSet;

impl Controller {
    /// Step one: who violates. Returns those in violation, the highest priority and the worst first.
    pub(super) fn judge(&mut self, at: Nanos, outcome: &mut StepOutcome) -> Vec<VolumeId> {
        let mut violated: Vec<(u8, f64, VolumeId)> = Vec::new();
        let mut decisions = Vec::new();
        let config = &self.config;
        let grants = self.volumes.values().filter_map(|volume| volume.grant.as_ref());
        let served: BTreeSet<VolumeId> = grants.flat_map(|grant| grant.serves.iter().copied()).collect();
        for (id, volume) in &mut self.volumes {
            if volume.spec.objectives.is_empty() {
                continue;
            }
            let is_served = served.contains(id);
            if is_served {
                volume.tracks.iter_mut().for_each(|track| track.alone = 0);
            }
            let (assessment, worst) = volume.assess(config);
            let objective = volume.spec.objectives[worst];
            let last = volume.tracks[worst].last;
            let episode = volume.tracks[worst].episode;
            let before = volume.state;
            let asks_little = |count| volume.asks_for_too_little(count);
            let (asks_little_soon, asks_little_long) =
                (asks_little(config.violation.nonconforming), asks_little(config.violation.windows));
            let mut tell = |kind, summary: String| {
                let mut facts = objective_facts(&objective, last, assessment, config);
                facts.extend(episode.iter().flat_map(|episode| episode_facts(episode, at)));
                decisions.push((*id, kind, summary, facts));
            };
            match assessment {
                Assessment::Violated { nonconforming, windows } => {
                    if volume.violated_since.is_none() {
                        let asked =
                            if windows > config.violation.windows { " that asked for enough" } else { "" };
                        volume.violated_since = Some(at);
                        volume.regrets.violated(self.step, &config.removal);
                        volume.over_after = assessment.over_after(&config.violation);
                        tell(
                            DecisionKind::ViolationFound,
                            format!(
                                "{} is violated: {nonconforming} of the last {windows} windows{asked} miss `{objective}`",
                                volume.spec.name
                            ),
                        );
                    }
                    let excess = last.map_or(0.0, |judgement| judgement.excess);
                    violated.push((objective.priority, excess, *id));
                }
                // What is left of a violation that is over is no new suspicion.
                Assessment::Suspected { nonconforming }
                    if volume.violated_since.is_none() && episode.is_some() =>
                {
                    if before == VolumeState::Conforming {
                        tell(
                            DecisionKind::Suspected,
                            format!(
                                "{} missed `{objective}` in {nonconforming} of the last {} windows, too few to act",
                                volume.spec.name, config.violation.windows
                            ),
                        );
                    }
                    volume.state = VolumeState::Suspected;
                }
                Assessment::Kept if volume.violated_since.is_none() => {
                    if before == VolumeState::Suspected {
                        let kept = kept(&volume.spec.name, &objective, last, asks_little_long);
                        tell(DecisionKind::SpikeIgnored, format!("{kept}: it was a spike"));
                    }
                    volume.state = VolumeState::Conforming;
                }
                Assessment::Suspected { .. } | Assessment::Kept => {}
            }
            if volume.violated_since.is_none() {
                // What was one window here and there is over where none of those that count missed.
                for track in volume.tracks.iter_mut().filter(|track| track.is_kept(config)) {
                    track.episode = None;
                }
            }
            if let Some(since) = volume.violated_since
                && volume.has_recovered(is_served, config)
            {
                volume.violated_since = None;
                volume.tracks.iter_mut().for_each(|track| track.alone = 0);
                volume.state = VolumeState::Conforming;
                let lasted = at.saturating_since(since);
                let kept = kept(&volume.spec.name, &objective, last, asks_little_soon);
                tell(DecisionKind::ViolationEnded, format!("{kept}, {lasted} after the violation was found"));
                volume.tracks.iter_mut().for_each(|track| track.episode = None);
            }
        }
        for (id, kind, summary, facts) in decisions {
            outcome.decisions.push(self.decision(at, id, kind, summary, facts));
        }
        violated.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        violated.into_iter().map(|(_, _, id)| id).collect()
    }
}

/// That an objective is missed no more: of a load that is gone it is not said that it is kept.
fn kept(name: &str, objective: &Objective, last: Option<Judgement>, asks_little: bool) -> String {
    match last.map_or(0, |last| last.requests) {
        _ if !asks_little => format!("{name} keeps `{objective}` again"),
        0 => format!("{name} has no requests any more that could miss `{objective}`"),
        requests => format!(
            "{name} asks for too little to miss `{objective}` any more ({requests} requests in the last window)"
        ),
    }
}

/// Since when the objective is missed, until when, how far, and whom it hits; times in seconds before now.
fn episode_facts(episode: &Episode, at: Nanos) -> [Fact; 5] {
    let ago = |then: Nanos| at.saturating_since(then).as_secs_f64();
    [
        Fact::number("missed_since_ago", ago(episode.from), "s"),
        Fact::number("missed_until_ago", ago(episode.until), "s"),
        Fact::number("depth", episode.depth, ""),
        Fact::number("windows_missed", episode.windows as f64, ""),
        Fact::number("requests_affected_share", episode.share_hit(), ""),
    ]
}

fn objective_facts(
    objective: &Objective,
    last: Option<Judgement>,
    assessment: Assessment,
    config: &ControlConfig,
) -> Vec<Fact> {
    let nonconforming = match assessment {
        Assessment::Kept => 0,
        Assessment::Suspected { nonconforming } | Assessment::Violated { nonconforming, .. } => nonconforming,
    };
    let looked_at = match assessment {
        Assessment::Violated { windows, .. } => windows,
        Assessment::Kept | Assessment::Suspected { .. } => config.violation.windows,
    };
    let mut facts = vec![
        Fact::text("objective", objective.to_string()),
        Fact::number("bound", objective.bound(), objective.unit()),
        Fact::number("windows_nonconforming", nonconforming as f64, ""),
        Fact::number("windows_looked_at", looked_at as f64, ""),
    ];
    if let Some(last) = last {
        facts.extend(last.value.map(|value| Fact::number("observed", value, objective.unit())));
        facts.push(Fact::number("excess", last.excess, ""));
        facts.push(Fact::number("requests", last.requests as f64, ""));
        if last.failed > 0 {
            facts.push(Fact::number("requests_failed", last.failed as f64, ""));
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::tests::latencies;
    use crate::decision::Decision;
    use crate::inventory::VolumeSpec;
    use crate::objective::Operations;
    use crate::observation::{Observation, VolumeObservation};
    use forebay_units::Bytes;

    #[test]
    fn a_share_that_is_missed_here_and_there_is_a_violation_until_it_is_kept_for_long() {
        let interval = Nanos::secs(10);
        let told = |share, windows: u64, missed: fn(u64) -> bool| -> Vec<(u64, DecisionKind)> {
            let mut controller =
                Controller::new(ControlConfig::default(), Bytes::mib(1), Vec::new(), Vec::new()).unwrap();
            let objective = Objective::mean_latency(Nanos::millis(10), Operations::All);
            let objectives = vec![Objective { conforming_share: share, ..objective }];
            controller.register(VolumeSpec { objectives, ..VolumeSpec::any() }).unwrap();
            let step = |at: u64| {
                let each = Nanos::millis(if missed(at) { 20 } else { 5 });
                let seen = VolumeObservation {
                    arrivals: 100,
                    misses: latencies(100, each),
                    ..VolumeObservation::idle(VolumeSpec::any().id, interval)
                };
                let at_ns = Nanos(at * interval.0);
                let observation =
                    Observation { at: at_ns, interval, volumes: vec![seen], ..Observation::default() };
                let decisions = controller.step(&observation).decisions;
                let violation = |kind: &DecisionKind| {
                    [DecisionKind::ViolationFound, DecisionKind::ViolationEnded].contains(kind)
                };
                let kinds = decisions.into_iter().map(|decision| decision.kind).filter(violation);
                kinds.map(move |kind| (at, kind)).collect::<Vec<_>>()
            };
            (1..=windows).flat_map(step).collect()
        };
        // One of five, until the thirtieth: six of 26. Three windows that conform do not end it, three times the mean distance do.
        let here_and_there = |at| at <= 30 && at % 5 == 0;
        let (found, ended) = (DecisionKind::ViolationFound, DecisionKind::ViolationEnded);
        assert_eq!(told(0.99, 60, here_and_there), [(30, found), (43, ended)]);
        assert_eq!(told(0.7, 60, here_and_there), []);
        // What is over is not counted again: it takes six more.
        assert_eq!(
            told(0.99, 90, |at| at % 5 == 0 && !(31..=45).contains(&at)),
            [(30, found), (43, ended), (75, found)]
        );
    }

    /// What is decided of a volume with these objectives in steps of so long each, in each of which 100 reads take so long, one after the other.
    fn decided(objectives: Vec<Objective>, each: &[Nanos], span: Nanos) -> Vec<Decision> {
        let interval = Nanos::secs(1);
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::ZERO, Vec::new(), Vec::new()).unwrap();
        controller.register(VolumeSpec { objectives, ..VolumeSpec::any() }).unwrap();
        let mut step = |(at, each): (usize, &Nanos)| {
            let seen = VolumeObservation {
                arrivals: 100,
                misses: latencies(100, *each),
                // One client that waits for nothing else.
                outstanding_max: 1,
                idle: Nanos::ZERO,
                ..VolumeObservation::idle(VolumeSpec::any().id, span)
            };
            let at = Nanos::secs(at as u64 + 1);
            controller.step(&Observation { at, interval, volumes: vec![seen], ..Observation::default() })
        };
        each.iter().enumerate().flat_map(|step_of| step(step_of).decisions).collect()
    }

    #[test]
    fn what_is_over_is_told_of_the_objective_that_was_missed() {
        let second = Nanos::secs(1);
        let loose = Objective::mean_latency(Nanos::secs(1), Operations::All).over(second);
        let tight = Objective::mean_latency(Nanos::millis(4), Operations::All).over(second);
        let (slow, quick) = (Nanos::millis(8), Nanos::millis(2));
        for slow_windows in [1, 6] {
            let mut each = vec![quick; 6];
            each.extend(vec![slow; slow_windows]);
            each.extend(vec![quick; 12]);
            let told = decided(vec![loose, tight], &each, second);
            let over = [DecisionKind::ViolationEnded, DecisionKind::SpikeIgnored];
            let over = told.iter().find(|decision| over.contains(&decision.kind)).expect("it is told");
            assert!(over.summary.contains("4ms"), "{}", over.summary);
            let depth = over.facts.iter().find(|fact| fact.name == "depth");
            assert!(depth.is_some(), "{:?}", over.facts);
        }
    }

    #[test]
    fn an_interval_that_was_told_late_or_in_other_steps_is_judged_by_its_own_length() {
        let second = Nanos::secs(1);
        let floor = Objective::iops_floor(90.0).over(second);
        // A hundred requests, one after the other.
        let is_violated = |span: Nanos| {
            let decisions = decided(vec![floor], &[Nanos(span.0 / 100); 20], span);
            decisions.iter().any(|decision| decision.kind == DecisionKind::ViolationFound)
        };
        assert!(!is_violated(Nanos::millis(700)) && !is_violated(second));
        assert!(is_violated(Nanos::secs(2)), "50 a second are not 90");
    }
}
