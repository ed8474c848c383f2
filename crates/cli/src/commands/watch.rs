//! `forebay watch`: volumes on the storage side, observed and fenced, without a cache.

use super::serve::{read, serve, summary};
use crate::failure::Failure;
use crate::output::say;
use forebay_serve::config::Config;
use std::path::{Path, PathBuf};

/// Watch volumes where their storage is: observe every request, and fence clients whose lease is over
///
/// The data path of `forebay serve` without a cache and without a controller, in front of an
/// export, a file or a device on the storage side. It has the same metrics and the same state. Each
/// volume has a lease with an epoch: a client that names the export `NAME@EPOCH` comes as the
/// holder of that epoch, one that names it `NAME` by the original route. `forebay lease NAME
/// --raise EPOCH` gives the volume to the holder of EPOCH: when that returns, nothing of whoever
/// had it before is at the origin, and nothing of theirs is served any more, also of clients that
/// are connected. Epochs are kept in a file over a restart.
///
/// FILE is a configuration as of `forebay serve`, with `[leases]` and `http.socket`, and without
/// caches; instead, the flags say the same:
///
///     forebay watch --volume db=/srv/db.img --listen unix:/run/db.sock --leases /var/lib/leases.json --http-socket /run/db-http.sock
///
/// SIGTERM, SIGINT and SIGHUP stop listening, let what is in flight complete for at most `limits.drain`
/// (30s unless set), and end.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct WatchArgs {
    /// The configuration
    #[arg(required_unless_present = "volumes", conflicts_with_all = ["volumes", "listen", "leases", "http_socket", "http"])]
    file: Option<PathBuf>,
    /// A volume, and where its data is: a file, a device, or an NBD URI; may be repeated
    #[arg(long = "volume", value_name = "NAME=ORIGIN", requires_all = ["listen", "leases", "http_socket"])]
    volumes: Vec<String>,
    /// Where NBD clients connect: `unix:PATH` or `tcp:ADDRESS:PORT` on loopback; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// The file that keeps the leases
    #[arg(long, value_name = "FILE")]
    leases: Option<String>,
    /// The unix socket for metrics, state, and raising leases
    #[arg(long, value_name = "FILE")]
    http_socket: Option<String>,
    /// A loopback address for metrics and state, where nothing can be changed [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
    /// Say what is wrong with the configuration, and start nothing
    #[arg(long)]
    check: bool,
    /// What is logged on standard error: error, warn, info, debug or trace, also per module as in forebay_origin=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Watches until a signal says otherwise.
pub(crate) fn run(args: &WatchArgs) -> Result<(), Failure> {
    let wrong = |error: forebay_serve::config::ConfigError| Failure::new(error.to_string());
    let config = match &args.file {
        Some(file) => read(file)?,
        None => Config::parse("the flags", &written(args)?, Path::new("")).map_err(wrong)?,
    };
    let config = config.watching().map_err(wrong)?;
    if args.check {
        say(format_args!("it is good: {}", summary(&config)));
        return Ok(());
    }
    serve(config, &args.log)
}

/// What the flags say, as a configuration is written: so they are judged by the same rules.
fn written(args: &WatchArgs) -> Result<String, Failure> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let listen: Vec<String> = args.listen.iter().map(|address| quoted(address)).collect();
    let mut text = format!("listen = [{}]\n", listen.join(", "));
    if let Some(path) = &args.leases {
        text += &format!("leases.path = {}\n", quoted(path));
    }
    if let Some(path) = &args.http_socket {
        text += &format!("http.socket = {}\n", quoted(path));
    }
    text += &format!("http.listen = {}\n", quoted(args.http.as_deref().unwrap_or("off")));
    for volume in &args.volumes {
        let Some((name, origin)) = volume.split_once('=') else {
            return Err(Failure::new(format!(
                "`{volume}` is no volume: expected `NAME=ORIGIN`, as in `db=/srv/db.img`"
            )));
        };
        text += &format!("[[volume]]\nname = {}\norigin = {}\n", quoted(name), quoted(origin));
    }
    Ok(text)
}
