//! `forebay serve`: volumes over NBD, with caches in front of them that come and go.

use crate::failure::Failure;
use crate::log::say_soon;
use crate::output::say;
use forebay_serve::Daemon;
use forebay_serve::config::{CacheConfig, Config, ConfigError};
use std::path::{Path, PathBuf};

/// Serve volumes over NBD, with caches in front of those that need them
///
/// The file is TOML; docs/reference/configuration.md lists every key with its unit, default and
/// range. This is one that serves a file:
///
///     listen = ["unix:/tmp/forebay.sock"]
///     [[volume]]
///     name = "db"
///     origin = "/srv/db.img"
///
/// SIGTERM, SIGINT and SIGHUP stop listening, let what is in flight complete for at most `limits.drain`
/// (30s unless set), and end.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServeArgs {
    /// The configuration
    file: PathBuf,
    /// Say what is wrong with the configuration and with what it names, and start nothing
    #[arg(long)]
    check: bool,
    /// What is logged on standard error: error, warn, info, debug or trace, also per module as in forebay_origin=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Serves until a signal says otherwise.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    if args.check {
        let config = told(&args.file, Config::read)?;
        say(format_args!("`{}` is good: {}", args.file.display(), summary(&config)));
        return Ok(());
    }
    serve(read(&args.file)?, &args.log)
}

/// What the file says, with a word about what looks like a secret in it.
pub(super) fn read(file: &Path) -> Result<Config, Failure> {
    told(file, Config::read)
}

fn told(file: &Path, read: impl FnOnce(&Path) -> Result<Config, ConfigError>) -> Result<Config, Failure> {
    let config = read(file).map_err(|error| Failure::new(error.to_string()))?;
    config.cautions(file).iter().for_each(|caution| say(format_args!("warning: {caution}")));
    Ok(config)
}

/// Serves by `config` until a signal says otherwise; `log` says what is logged.
pub(super) fn serve(config: Config, log: &str) -> Result<(), Failure> {
    let config = crate::open_files::make_room(config);
    crate::log::begin(log)?;
    // Before anything starts, so that no signal finds the daemon half made.
    let mut signals = crate::interrupt::ends_and(&[])?;
    let daemon = Daemon::start(config)?;
    for volume in &daemon.config().volumes {
        for uri in daemon.uris(&volume.name) {
            say_soon(format_args!("volume `{}` is served at {uri}", volume.name));
        }
    }
    if let Some(address) = daemon.http_address() {
        say_soon(format_args!(
            "metrics at http://{address}/metrics, state by `forebay status --server {address}`"
        ));
    }
    if let Some(path) = daemon.http_socket() {
        say_soon(format_args!("state by `forebay status --server unix:{}`", path.display()));
    }
    say_soon(format_args!("ready: {}", summary(daemon.config())));
    if let Some(signal) = signals.forever().next() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        say_soon(format_args!("{name}: what is in flight completes, then it ends"));
    }
    match daemon.shutdown() {
        forebay_appliance::Drained::Completely => Ok(()),
        forebay_appliance::Drained::NotFlushed => Err(Failure::new(
            "an origin failed the flush behind the last request: what it acknowledged may not be safe",
        )),
        forebay_appliance::Drained::TimedOut => {
            Err(Failure::new("some requests in flight were not answered within `limits.drain`"))
        }
    }
}

pub(super) fn summary(config: &Config) -> String {
    let count = config.volumes.len();
    let controlled = config
        .volumes
        .iter()
        .filter(|volume| matches!(volume.cache, CacheConfig::Controlled { may_cache: true, .. }));
    let objectives: usize = config.volumes.iter().map(|volume| volume.objectives.len()).sum();
    format!(
        "{count} volume{}, {objectives} objective{}, {} of cache for {} of them, decisions every {:?}{}",
        if count == 1 { "" } else { "s" },
        if objectives == 1 { "" } else { "s" },
        config.cache_memory,
        controlled.count(),
        config.control.interval,
        if config.control.enabled { "" } else { " (controller off)" }
    )
}
