//! `forebay control`: a controller for appliances elsewhere.

use crate::failure::Failure;
use crate::log::say_soon;
use crate::output::say;
use forebay_serve::fleet::{Fleet, FleetConfig};
use std::path::PathBuf;
use std::time::Duration;

/// Control caches for volumes that others serve: appliances that are started where they are needed, and gone afterwards
///
/// Each interval it asks `forebay watch` on the storage side, and the appliances that serve, how
/// the volumes fare. Where an objective is violated and a cache helps, an appliance is started on a
/// host with room for it (a process here or in a network namespace, a virtual machine by QEMU or
/// libvirt), clients are moved to it (by their permanent proxy, by QEMU's block graph, or by an
/// address that moves), and the original path is fenced by its lease; when it is not needed any
/// more they are moved back and it is stopped. What is under way is kept in a journal: a controller
/// that is started again goes on. docs/reference/control.md lists every key. This is one with one
/// volume:
///
///     socket = "/run/forebay/control.sock"
///     state = "/var/lib/forebay/control"
///     [[host]]
///     name = "h1"
///     memory = "4GiB"
///     [[volume]]
///     name = "db"
///     home = "h1"
///     origin = "nbd+unix:///db?socket=/run/forebay/watch.sock"
///     watch = "unix:/run/forebay/watch-http.sock"
///     route = { type = "proxy", server = "unix:/run/forebay/proxy-http.sock" }
///     [[objective]]
///     volume = "db"
///     latency = "5ms"
///
/// `forebay status` and `forebay explain` ask it by `--server unix:SOCKET`; with `listen` (a loopback address)
/// Prometheus asks it for `/metrics`. SIGTERM, SIGINT and SIGHUP end it; appliances go on without it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ControlArgs {
    /// The configuration
    file: PathBuf,
    /// Say what is wrong with the configuration, and whether it can go on with what `state` tells is under way; start nothing
    #[arg(long)]
    check: bool,
    /// What is logged on standard error: error, warn, info, debug or trace, also per module as in forebay_control=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// How often it looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Controls until a signal says otherwise, or it cannot.
pub(crate) fn run(args: &ControlArgs) -> Result<(), Failure> {
    let config = FleetConfig::read(&args.file)?;
    config.cautions(&args.file).iter().for_each(|caution| say(format_args!("warning: {caution}")));
    let counted = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let summary = format!(
        "{}, {}, {}, decisions every {}",
        counted(config.volume.len(), "volume"),
        counted(config.host.len(), "host"),
        counted(config.objective.len(), "objective"),
        config.interval
    );
    if args.check {
        if !Fleet::check(&config)? {
            let state = config.state.display();
            say(format_args!(
                "warning: `{state}` is not for us to read: whether a controller could go on with what is there is not known"
            ));
        }
        say(format_args!("`{}` is good: {summary}", args.file.display()));
        return Ok(());
    }
    crate::log::begin(&args.log)?;
    // Before anything starts, so that no signal finds the controller half made.
    let mut signals = crate::interrupt::ends_and(&[])?;
    let fleet = Fleet::start(config)?;
    let socket =
        std::path::absolute(&fleet.config().socket).unwrap_or_else(|_| fleet.config().socket.clone());
    if let Some(address) = fleet.http_address() {
        say_soon(format_args!("metrics at http://{address}/metrics"));
    }
    say_soon(format_args!("state by `forebay status --server unix:{}`", socket.display()));
    say_soon(format_args!("ready: {summary}"));
    loop {
        if let Some(signal) = signals.pending().next() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            say_soon(format_args!("{name}: it ends, and what it started goes on"));
            return Ok(());
        }
        if let Some(what) = fleet.failure() {
            let failure = format!("the control loop panicked, which is a bug: {what}");
            return Err(Failure::new(failure).with_hint("start it again: it goes on by its journal"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
