//! `forebay model`: descriptions of workloads that can stand in for traces.

pub(crate) mod compare;
mod fit;
mod generate;
mod show;

use crate::document::read_text;
use crate::failure::{Context, Failure};
use forebay_units::Bytes;
use forebay_workload::model::{Deviation, Model, StepsTrial};
use std::path::Path;

/// What can be done with a model.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ModelCommand {
    Fit(fit::FitArgs),
    Show(show::ShowArgs),
    Generate(generate::GenerateArgs),
    Compare(compare::CompareArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: ModelCommand) -> Result<(), Failure> {
    match command {
        ModelCommand::Fit(args) => fit::run(&args),
        ModelCommand::Show(args) => show::run(&args),
        ModelCommand::Generate(args) => generate::run(&args),
        ModelCommand::Compare(args) => compare::run(&args),
    }
}

/// The row of a trial that uses most of its bound, in words.
fn nearest_to_its_bound(trial: &StepsTrial) -> String {
    let used = |row: &&Deviation| row.deviation.abs() / row.bound;
    let row = trial.rows.iter().max_by(|a, b| used(a).total_cmp(&used(b)));
    row.map_or_else(
        || "nothing to compare".to_owned(),
        |row| format!("`{}` is off by {:.3}, of {} at most", row.metric, row.deviation, row.bound),
    )
}

/// Longer models are not read: a device may have no end (ours).
const BYTES_MAX: Bytes = Bytes(1 << 30);

/// The model in the file at `path`, `-` for standard input.
pub(crate) fn read(path: &Path) -> Result<Model, Failure> {
    let file = path.display();
    let text = read_text(path, BYTES_MAX)?;
    // The version first: what another version calls its fields is no error of the file.
    #[derive(serde::Deserialize)]
    struct Schema {
        schema: Option<String>,
    }
    let readable = forebay_workload::model::MODEL_SCHEMAS_READ;
    if let Ok(Schema { schema }) = serde_json::from_str(&text)
        && !schema.as_deref().is_some_and(|schema| readable.contains(&schema))
    {
        let found = schema.map_or_else(|| "no `schema`".to_owned(), |schema| format!("schema `{schema}`"));
        let wanted = readable.map(|schema| format!("`{schema}`")).join(" or ");
        return Err(Failure::new(format!("`{file}` has {found}: expected {wanted}"))
            .with_hint("fit the model again with `forebay model fit`"));
    }
    let model: Model = serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!("`{file}` is no model: {error}"))
            .with_hint("docs/reference/model.md describes the format")
    })?;
    model.check().context(format_args!("`{file}`"))?;
    Ok(model)
}
