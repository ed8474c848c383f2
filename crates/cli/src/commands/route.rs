//! `forebay route`: where a volume of a running daemon goes, asked and changed while it serves.

use super::lease::not_served;
use super::status::{ServerArgs, span};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use crate::whole::whole;
use forebay_actuate::api::encoded;
use forebay_nbd::Uri;
use forebay_serve::route::{Route, RouteRequest, Routed};
use forebay_serve::status::Status;
use forebay_units::{EPOCH_MAX, Nanos};

/// Say where a volume's requests go, or send them another way to the same data
///
/// `--to nbd+unix:///db@7?socket=/run/watch.sock` sends them there while the volume serves: what is on the old way completes and is flushed, and what clients ask
/// meanwhile waits. They see a pause, and no error. If the old way does not drain within `--within`, or the new one does not fit, the volume goes on as before,
/// and it is said why. What is cached stays, since both are ways to the same data; `--drop-cache` forgets it for who does not want to rely on that.
///
/// `--to` where it goes already, without `--epoch`, opens an origin anew that has failed, since it came back with another size, say; with `--settled` writes of unknown outcome are none any more, and with
/// `--drop-cache` what is cached is forgotten.
#[derive(Debug, clap::Args)]
pub(crate) struct RouteArgs {
    /// The volume
    volume: String,
    /// Send it to this export
    #[arg(long, value_name = "NBD-URI")]
    to: Option<String>,
    /// The number of the change; one lower than the last is refused [default: the last one's]
    #[arg(long, requires = "to", value_parser = whole::<u64>(0..=EPOCH_MAX))]
    epoch: Option<u64>,
    /// The old way was fenced (`forebay lease`): leave it at once, also if it does not answer. Changes that it was sent and has not answered are asked of the new way; with `--drop-cache` they fail
    #[arg(long, requires = "to")]
    settled: bool,
    /// Forget what is cached
    #[arg(long, requires = "to")]
    drop_cache: bool,
    /// How long it may take [default: 5s] [range: 0s to 30s]
    #[arg(long, value_name = "TIME", requires = "to")]
    within: Option<Nanos>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Asks, or changes.
pub(crate) fn run(args: &RouteArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let mut output = Output::new();
    let Some(to) = &args.to else {
        let status: Status = server.get("/api/v1/status")?;
        let volume = status.volumes.into_iter().find(|volume| volume.name == args.volume);
        let volume = volume.ok_or_else(|| Failure::new(format!("there is no volume `{}`", args.volume)))?;
        if let Some(refused) = not_served(&volume) {
            return Err(refused);
        }
        let route = volume.route.unwrap_or(Route { to: None, epoch: 0 });
        if args.output.json {
            let mut answer = serde_json::json!(route);
            (answer["schema"], answer["volume"]) = ("forebay.route/1".into(), args.volume.as_str().into());
            output.json(&answer)?;
        } else {
            output.line(format_args!(
                "`{}` goes to {}",
                args.volume,
                route.to.unwrap_or(volume.origin.description)
            ))?;
        }
        return output.finish();
    };
    let request = RouteRequest {
        to: to.clone(),
        epoch: args.epoch,
        settled: args.settled,
        refused_s: None,
        drop_cache: args.drop_cache,
        within_s: args.within.map(Nanos::as_secs_f64),
    };
    let body = serde_json::to_string(&request).map_err(|error| Failure::new(error.to_string()))?;
    let path = format!("/api/v1/volumes/{}/route", encoded(&args.volume));
    let answer: serde_json::Value = server.change(&path, &body, args.within)?;
    if args.output.json {
        output.json(&answer)?;
    } else {
        let routed: Routed = serde_json::from_value(answer)
            .map_err(|error| Failure::new(format!("the answer of {server} is not understood: {error}")))?;
        // A secret in the export's name is not for the screen; what is no URI was accepted by no server.
        let to = to.parse::<Uri>().map_or_else(|_| "its new way".to_owned(), |uri| uri.shown().to_string());
        output.line(format_args!(
            "`{}` goes to {to}; requests waited for at most {}, {} of it for the old way",
            args.volume,
            span(routed.pause_s),
            span(routed.drain_s)
        ))?;
    }
    output.finish()
}
