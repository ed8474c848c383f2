//! `forebay place`: have a running daemon let others onto the flash of a volume.

use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use forebay_actuate::api::encoded;
use forebay_serve::config::FlashAdmission;
use forebay_serve::placing::PlacingRequest;
use forebay_units::Bytes;

/// Have a running daemon let others onto the flash of a volume from now on.
///
/// `evicted` lets in whatever memory evicts. `adaptive` counts, in chunks, reads that memory does not answer, moves to flash what is read often of late, and lets in only that; the count
/// that is often enough adapts, or is the N of `threshold-N`. `demand`, `larc` and `lru` are there for comparison. What is on flash stays. It holds until the daemon ends;
/// `flash_admission` in the configuration lasts. `forebay status` and `forebay explain` tell what it does.
/// The daemon takes it on its unix socket (`http.socket`), and over TCP from who has its token (`http.token`).
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The volume
    volume: String,
    /// evicted, adaptive, threshold-N with N from 1 to 512, demand, larc or lru
    admission: FlashAdmission,
    /// What migrations of `adaptive` and `threshold-N` may read of the origin per second, such as 8MiB [default: as configured; range: 64KiB and more]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Whether reads that the origin's own cache answers count less [default: as configured]
    #[arg(long, value_name = "BOOL")]
    exclusive: Option<bool>,
    /// A client whose requests bring nothing onto it: an IP address, or uid:N for who comes over a unix socket as user N; may be repeated, `nobody` for none [default: as configured]
    #[arg(long, value_name = "CLIENT")]
    leave_out: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &PlaceArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let path = format!("/api/v1/volumes/{}/placement", encoded(&args.volume));
    let request = PlacingRequest {
        admission: args.admission.to_string(),
        migration_bytes_per_second_max: args.rate.map(Bytes::get),
        exclusive: args.exclusive,
        leave_out: (!args.leave_out.is_empty())
            .then(|| args.leave_out.iter().filter(|client| *client != "nobody").cloned().collect()),
    };
    let body = serde_json::to_string(&request).expect("texts and numbers");
    let answer: serde_json::Value = server.ask("POST", &path, &body)?;
    let mut output = Output::new();
    if args.output.json {
        output.json(&answer)?;
    } else {
        output
            .line(format_args!("flash of `{}` is placed by {} from now on", args.volume, args.admission))?;
    }
    output.finish()
}
