//! `forebay prewarm`: have a running daemon load a cache from its snapshots, or stop loading one.

use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use forebay_actuate::api::encoded;
use forebay_control::prewarm::{Entry, LoadScore};
use forebay_units::Bytes;
use serde_json::{Map, json};

/// Have a running daemon load the cache of a volume from its snapshots, or stop loading it.
///
/// A cache that begins is loaded by itself where that gives enough (`forebay explain` says what was decided, and why); this loads whatever there is room
/// for. `forebay status` tells how far it is. What is loaded is read from the volume's origin now, behind clients' requests and as fast as they do not feel.
/// The daemon takes it on its unix socket (`http.socket`), and over TCP from who has its token (`http.token`). What is not given is as configured (`[control.warmup]`).
#[derive(Debug, clap::Args)]
pub(crate) struct PrewarmArgs {
    /// The volume
    volume: String,
    /// Stop loading, whatever began it; what is loaded stays
    #[arg(long)]
    cancel: bool,
    /// By which score: used-again, k-recent, k-frequent, k-frerecent-linear, k-frerecent-quadratic, frequency-per-byte or decayed-frequency
    #[arg(long, conflicts_with = "cancel")]
    score: Option<LoadScore>,
    /// Where the blocks enter: tail (the next victims, the best the last of them), head (the most recently used) or own-partition (one that misses cannot take)
    #[arg(long, conflicts_with = "cancel")]
    insertion: Option<Entry>,
    /// The largest share of the cache that is loaded, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "cancel")]
    cache_share_max: Option<f64>,
    /// The largest rate per second, as in 1MiB; no more than is configured
    #[arg(long, value_name = "BYTES", conflicts_with = "cancel")]
    bytes_per_second_max: Option<Bytes>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

pub(crate) fn run(args: &PrewarmArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let method = if args.cancel { "DELETE" } else { "POST" };
    let path = format!("/api/v1/volumes/{}/prewarm", encoded(&args.volume));
    let chosen = [
        ("score", args.score.map(|score| json!(score))),
        ("insertion", args.insertion.map(|entry| json!(entry))),
        ("cache_share_max", args.cache_share_max.map(|share| json!(share))),
        ("bytes_per_second", args.bytes_per_second_max.map(|bytes| json!(bytes.get()))),
    ];
    let order: Map<String, serde_json::Value> =
        chosen.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let body = if order.is_empty() { String::new() } else { serde_json::Value::Object(order).to_string() };
    let answer: serde_json::Value = server.ask(method, &path, &body)?;
    let mut output = Output::new();
    if args.output.json {
        output.json(&answer)?;
    } else if args.cancel {
        output.line(format_args!("nothing more is loaded into the cache of `{}`", args.volume))?;
    } else {
        output
            .line(format_args!("loading of `{}` is asked for: `forebay explain` says what comes of it, `forebay status` how far it is", args.volume))?;
    }
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        // JSON has no word for the first three: they would be sent as if nothing had been said.
        for text in ["nan", "inf", "-inf", "-0.1", "1.5", "1e999", "half", ""] {
            assert!(parse_share(text).unwrap_err().contains("from 0 to 1"), "{text}");
        }
        assert_eq!(["0", "0.25", "1"].map(parse_share), [Ok(0.0), Ok(0.25), Ok(1.0)]);
    }
}
