//! `forebay explain`: why a volume has the cache that it has.

use super::reserve;
use super::status::client::Server;
use super::status::{ServerArgs, decides, named, placed, quantity, span};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, bytes};
use crate::whole::whole;
use forebay_actuate::api::encoded;
use forebay_control::{Alternative, DecisionKind, Fact, FactValue};
use forebay_serve::DatedDecision;
use forebay_serve::status::{ControllerState, Explanation};

/// Say why each decision about a volume was made.
///
/// The last decisions of the daemon are told, oldest first, and those of earlier runs where it keeps a history.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The volume
    volume: String,
    #[command(flatten)]
    server: ServerArgs,
    /// How many decisions at most, the last ones; 1 and more
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = whole::<u32>(1..=u32::MAX.into()))]
    last: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// Tells the story of one volume.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let mut explanation = get(&server, &args.volume)?;
    let skip = explanation.decisions.len().saturating_sub(args.last as usize);
    explanation.decisions.drain(..skip);
    let mut output = Output::new();
    if args.output.json {
        output.json(&explanation)?;
    } else {
        print(&mut output, &explanation, skip)?;
    }
    output.finish()
}

fn get(server: &Server, volume: &str) -> Result<Explanation, Failure> {
    server.get(&format!("/api/v1/explain/{}", encoded(volume)))
}

fn print(output: &mut Output, explanation: &Explanation, left_out: usize) -> Result<(), Failure> {
    let status = &explanation.status;
    output.line(format_args!(
        "volume `{}` is {}: cache {} of {}, hit ratio {}, {:.0} requests/s",
        explanation.volume,
        status.state,
        bytes(status.used_bytes),
        bytes(status.quota_bytes),
        status.hit_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        status.iops
    ))?;
    if let Some(placement) = &status.placement {
        output.line(format_args!("  flash is {}", placed(placement)))?;
    }
    for objective in &status.objectives {
        let now = objective.value.map_or("nothing yet".to_owned(), |value| quantity(value, &objective.unit));
        let share = objective.conforming_share.map_or("no window judged".to_owned(), |share| {
            format!("{:.0}% of the last windows conform", share * 100.0)
        });
        output.line(format_args!(
            "  {}: now {now}; {share}, promised {:.0}%",
            named(objective),
            objective.conforming_share_target * 100.0
        ))?;
    }
    let now = reserve::unix_ms();
    let idle = explanation.controller.as_ref().filter(|of| of.state != ControllerState::Running);
    if let Some(controller) = idle {
        output.line(format_args!("  {}: nothing is decided about it meanwhile", decides(controller, now)))?;
    }
    if let Some(trouble) = &explanation.snapshots_trouble {
        output.line(format_args!("  snapshots, which are tried again: {trouble}"))?;
    }
    for reservation in &explanation.reservations {
        output.line(format_args!("  {}", reserve::words(reservation, now)))?;
    }
    output.line("")?;
    if explanation.decisions.is_empty() {
        let why = match (status.objectives.is_empty(), status.controlled) {
            (true, _) => "it has no objective, and no neighbour needed it to have a cache",
            (false, false) => {
                "nobody sizes a cache for it here: its configuration fixes it, or names no controller or no route"
            }
            (false, true) if idle.is_some() => "the controller does not decide now",
            (false, true) => "nothing was wrong for long enough to decide anything",
        };
        return output.line(format_args!("No decision was made about it: {why}."));
    }
    if left_out > 0 {
        output.line(format_args!("({left_out} earlier decisions are left out; --last shows more)"))?;
    }
    for dated in &explanation.decisions {
        decision(output, dated)?;
    }
    Ok(())
}

fn decision(output: &mut Output, dated: &DatedDecision) -> Result<(), Failure> {
    let decision = &dated.decision;
    output.line(format_args!("{}  {}", time(dated.at_unix_ms), heading(decision.kind)))?;
    output.line(format_args!("    {}", decision.summary))?;
    let facts: Vec<String> = decision.facts.iter().map(fact).collect();
    let mut line = String::new();
    for fact in facts {
        if !line.is_empty() && line.len() + fact.len() > 96 {
            output.line(format_args!("      {line}"))?;
            line.clear();
        }
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(&fact);
    }
    if !line.is_empty() {
        output.line(format_args!("      {line}"))?;
    }
    for found in &decision.alternatives {
        alternative(output, found)?;
    }
    Ok(())
}

fn alternative(output: &mut Output, found: &Alternative) -> Result<(), Failure> {
    output.line(format_args!(
        "      {} {} ({}, predicted {}): {}",
        if found.chosen { "->" } else { " -" },
        found.description,
        bytes(found.cost.get()),
        excess(found.predicted_excess),
        found.reason
    ))
}

/// How far beyond an objective something is.
fn excess(excess: f64) -> String {
    if excess > 0.0 {
        format!("{:.0}% beyond the objective", excess * 100.0)
    } else {
        format!("{:.0}% within the objective", -excess * 100.0)
    }
}

fn fact(fact: &Fact) -> String {
    let name = fact.name.replace('_', " ");
    let value = match (&fact.value, &*fact.unit) {
        (FactValue::Text(text), _) => text.clone(),
        (FactValue::Number(number), "s") => span(*number),
        (FactValue::Number(number), "bytes") => bytes(number.max(0.0) as u64),
        (FactValue::Number(number), unit) => {
            let digits = if number.fract() == 0.0 { 0 } else { 3 };
            format!("{number:.digits$}{}{unit}", if unit.is_empty() { "" } else { " " })
        }
    };
    format!("{name} {value}")
}

fn heading(kind: DecisionKind) -> &'static str {
    match kind {
        DecisionKind::Suspected => "suspected",
        DecisionKind::SpikeIgnored => "spike ignored",
        DecisionKind::ViolationFound => "violation found",
        DecisionKind::ViolationEnded => "violation ended",
        DecisionKind::InterferenceJudged => "interference judged",
        DecisionKind::NotCacheable => "not cacheable",
        DecisionKind::SolutionChosen => "solution chosen",
        DecisionKind::NothingHelps => "nothing helps",
        DecisionKind::CacheAwaited => "cache awaited",
        DecisionKind::Granted => "cache granted",
        DecisionKind::Grown => "cache grown",
        DecisionKind::Shrunk => "cache shrunk",
        DecisionKind::PeakForeseen => "peak foreseen",
        DecisionKind::PeakAbsent => "peak absent",
        DecisionKind::PhaseRemembered => "phase remembered",
        DecisionKind::CapacityShort => "capacity short",
        DecisionKind::PrewarmStarted => "warm-up started",
        DecisionKind::PrewarmSkipped => "warm-up skipped",
        DecisionKind::PrewarmCancelled => "warm-up cancelled",
        DecisionKind::Removed => "cache taken back",
        DecisionKind::HostChosen => "host chosen",
        DecisionKind::CacheInPlace => "cache in place",
        DecisionKind::StrayFound => "appliance found",
        DecisionKind::ApplianceFailed => "appliance failed",
        DecisionKind::OriginalRoute => "original route",
        DecisionKind::LeaseLost => "lease lost",
        DecisionKind::ObservationDoubted => "observation doubted",
        _ => "decided",
    }
}

/// As in `2026-11-21 22:05:07 UTC`, whatever time people have here: as the log has it.
pub(super) fn time(unix_ms: i64) -> String {
    let (days, second) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000) / 1000);
    // Days to a date by H. Hinnant's `civil_from_days`, with years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00 UTC");
        // 2024-02-29 12:34:56 UTC is 1,709,210,096 s.
        assert_eq!(time(1_709_210_096_000), "2024-02-29 12:34:56 UTC");
        assert_eq!(time(951_868_799_000), "2000-02-29 23:59:59 UTC");
        assert_eq!(time(-1_000), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn facts_are_said_in_words() {
        assert_eq!(fact(&Fact::number("mean_latency", 0.0042, "s")), "mean latency 4.20 ms");
        assert_eq!(fact(&Fact::number("size", 1_048_576.0, "bytes")), "size 1MiB");
        assert_eq!(fact(&Fact::text("culprit", "scan")), "culprit scan");
        assert_eq!(excess(0.5), "50% beyond the objective");
    }
}
