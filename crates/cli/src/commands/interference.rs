//! `forebay interference`: who slows whom down, now and lately.

use super::explain::time;
use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use forebay_report::Table;
use forebay_serve::interfering::{InterferenceTable, Interferences};

/// Tables whose scores are shown over time, the last ones.
const OVER_TIME: usize = 10;

/// Say which volumes slow each other down, with scores over time
///
/// Of the volumes that share an origin the controller of `forebay serve`, or of `forebay control`
/// (`--server unix:SOCKET`), judges every few intervals whose load and whose latency change
/// together, whether an objective is violated or not. Who does is in one set with whom. Scores go
/// from 0 to 1. Of whom too little is seen to judge, who shares the origin is taken to interfere,
/// without a score. It is not causality: what rises together for a reason outside looks alike.
#[derive(Debug, clap::Args)]
pub(crate) struct InterferenceArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Shows the newest table of each origin.
pub(crate) fn run(args: &InterferenceArgs) -> Result<(), Failure> {
    let told: Interferences = args.server.server()?.get("/api/v1/interference")?;
    let mut output = Output::new();
    if args.output.json {
        output.json(&told)?;
    } else {
        print(&mut output, &told)?;
    }
    output.finish()
}

fn print(output: &mut Output, told: &Interferences) -> Result<(), Failure> {
    let mut origins: Vec<&str> = told.tables.iter().map(|table| table.origin.as_str()).collect();
    origins.sort_unstable();
    origins.dedup();
    if origins.is_empty() {
        return output.line("No table yet: no two volumes have loaded one origin, or its turn has not come.");
    }
    for (at, origin) in origins.into_iter().enumerate() {
        if at > 0 {
            output.line("")?;
        }
        let tables: Vec<&InterferenceTable> =
            told.tables.iter().filter(|table| table.origin == origin).collect();
        one(output, origin, &tables)?;
    }
    Ok(())
}

fn one(output: &mut Output, origin: &str, tables: &[&InterferenceTable]) -> Result<(), Failure> {
    let Some(newest) = tables.last() else { return Ok(()) };
    output.line(format_args!("origin {origin}, at {}", time(newest.at_unix_ms)))?;
    for (number, set) in newest.sets.iter().enumerate() {
        output.line(format_args!("  set {}: {}", number + 1, set.join(", ")))?;
    }
    if newest.pairs.is_empty() {
        return output.line("  no load is seen to change with another volume's latency");
    }
    let lately = &tables[tables.len().saturating_sub(OVER_TIME)..];
    let mut table = Table::new(["load of", "slows down", ">score", ">lag", "seen as", "lately"]);
    for pair in &newest.pairs {
        let score = |table: &&InterferenceTable| {
            let same =
                table.pairs.iter().find(|of| of.aggressor == pair.aggressor && of.victim == pair.victim);
            same.map_or("-".to_owned(), |of| format!("{:.2}", of.score))
        };
        table.push([
            pair.aggressor.clone(),
            pair.victim.clone(),
            format!("{:.2}", pair.score),
            pair.lag.to_string(),
            pair.evidence.clone(),
            lately.iter().map(score).collect::<Vec<_>>().join(" "),
        ]);
    }
    output.table(&table)?;
    match newest.pairs_left_out {
        0 => Ok(()),
        more => output.line(format_args!("  and {more} more, with lower scores")),
    }
}
