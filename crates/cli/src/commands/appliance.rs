//! `forebay appliance`: volumes over NBD, sized and warmed by a controller elsewhere.

use super::serve::{self, serve, summary};
use crate::failure::Failure;
use crate::output::say;
use forebay_serve::config::Config;
use std::path::{Path, PathBuf};

/// Serve volumes over NBD from caches that a controller elsewhere sizes and warms
///
/// The data path of `forebay serve` alone: nothing is decided here. The file is that of `serve`
/// (docs/reference/configuration.md); [control] only says how often volumes are observed. A
/// volume's `cache` is what it begins with (0 where it is not set).
///
/// Orders come over HTTP (docs/reference/appliance.md): on `http.socket`, which is its owner's
/// alone, or over TCP with `http.token`. They set quotas, load caches from zones, drain volumes;
/// state and metrics are there too. An appliance for one volume, beyond loopback:
///
///     listen = ["tcp:10.1.0.2:10809"]
///     http = { listen = "10.1.0.2:9809", token = "..." }
///     cache.memory = "2GiB"
///     [[volume]]
///     name = "db"
///     secret = "..."
///     origin = "nbd://10.1.0.9/db"
///     cache = "1GiB"
///
/// SIGTERM, SIGINT and SIGHUP stop listening, let what is in flight complete for at most `limits.drain`
/// (30s unless set), and end.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ApplianceArgs {
    /// The configuration
    file: PathBuf,
    /// Say what is wrong with the configuration, and start nothing
    #[arg(long)]
    check: bool,
    /// What is logged on standard error: error, warn, info, debug or trace, also per module as in forebay_origin=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Serves until a signal says otherwise.
pub(crate) fn run(args: &ApplianceArgs) -> Result<(), Failure> {
    if args.check {
        let config = read(&args.file)?;
        say(format_args!("`{}` is good: {}", args.file.display(), summary(&config)));
        return Ok(());
    }
    serve_file(&args.file, &args.log)
}

/// Serves what the file says until a signal says otherwise; `log` says what is logged.
pub(super) fn serve_file(file: &Path, log: &str) -> Result<(), Failure> {
    serve(read(file)?, log)
}

fn read(file: &Path) -> Result<Config, Failure> {
    Ok(serve::read(file)?.steered_elsewhere())
}
