//! `forebay prewarm`: have a running daemon load a cache from its snapshots, or stop loading one.

use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use forebay_actuate::api::encoded;

/// Have a running daemon load the cache of a volume from its snapshots, or stop loading it.
///
/// A cache that begins is loaded by itself where that gives enough (`forebay explain` says what was decided, and why); this loads whatever there is room
/// for. `forebay status` tells how far it is. What is loaded is read from the volume's origin now, behind clients' requests and as fast as they do not feel.
/// The daemon takes it on its unix socket only (`http.socket`).
#[derive(Debug, clap::Args)]
pub(crate) struct PrewarmArgs {
    /// The volume
    volume: String,
    /// Stop loading, whatever began it; what is loaded stays
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &PrewarmArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let method = if args.cancel { "DELETE" } else { "POST" };
    let path = format!("/api/v1/volumes/{}/prewarm", encoded(&args.volume));
    let answer: serde_json::Value = server.ask(method, &path, "")?;
    let mut output = Output::new();
    if args.output.json {
        output.json(&answer)?;
    } else if args.cancel {
        output.line(format_args!("loading of `{}` is stopped", args.volume))?;
    } else {
        output
            .line(format_args!("`{}` is being loaded; `forebay status` tells how far it is", args.volume))?;
    }
    output.finish()
}
