//! `forebay lease`: who is let in to a volume, asked of a running daemon and changed.

use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use crate::whole::whole;
use forebay_actuate::api::encoded;
use forebay_serve::lease::{LeaseHolder, LeaseRequest, LeaseStatus};
use forebay_serve::status::{Status, VolumeStatus};
use forebay_units::{EPOCH_MAX, Nanos};

/// Say who is let in to a volume, or give it to the holder of another epoch
///
/// A daemon with leases (`forebay watch`, or `leases.path` in the configuration of `forebay serve`) lets in the holder of a volume's epoch, and who names a
/// higher one and is being prepared. `--raise 7` gives it to clients that name the export `VOLUME@7`; `--raise 8 --original` gives it back
/// to those that name it `VOLUME`. When it returns well, nothing of whoever had it before is at the origin, and nothing of theirs is served any more. If that
/// takes longer than `--within`, they are refused all the same; ask again for the same epoch to go on waiting.
#[derive(Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// The volume
    volume: String,
    /// Raise the lease to this epoch, higher than all before
    #[arg(long, value_name = "EPOCH", value_parser = whole::<u64>(0..=EPOCH_MAX))]
    raise: Option<u64>,
    /// For clients that name no epoch
    #[arg(long, requires = "raise")]
    original: bool,
    /// How long to wait for what is at the origin [default: 10s] [range: 0s to 30s]
    #[arg(long, value_name = "TIME", requires = "raise")]
    within: Option<Nanos>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Asks, or raises.
pub(crate) fn run(args: &LeaseArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let lease = match args.raise {
        Some(epoch) => {
            let holder = if args.original { LeaseHolder::Original } else { LeaseHolder::Named };
            let request = LeaseRequest { epoch, holder, within_s: args.within.map(Nanos::as_secs_f64) };
            let body = serde_json::to_string(&request).map_err(|error| Failure::new(error.to_string()))?;
            let path = format!("/api/v1/volumes/{}/lease", encoded(&args.volume));
            let answer: serde_json::Value = server.change(&path, &body, args.within)?;
            let of = |name: &str| answer[name].clone();
            serde_json::from_value(serde_json::json!({ "epoch": of("epoch"), "holder": of("holder") }))
                .map_err(|error| Failure::new(format!("the answer of {server} is not understood: {error}")))?
        }
        None => {
            let status: Status = server.get("/api/v1/status")?;
            let volume = status.volumes.into_iter().find(|volume| volume.name == args.volume);
            let volume =
                volume.ok_or_else(|| Failure::new(format!("there is no volume `{}`", args.volume)))?;
            if let Some(refused) = not_served(&volume) {
                return Err(refused);
            }
            volume.lease.ok_or_else(|| {
                Failure::new(format!("everybody is let in to `{}`: it has no lease", args.volume))
                    .with_hint("`leases.path` in the daemon's configuration gives its volumes leases")
            })?
        }
    };
    let mut output = Output::new();
    if args.output.json {
        let LeaseStatus { epoch, holder } = lease;
        let answer = serde_json::json!({
            "schema": "forebay.lease/1", "volume": args.volume, "epoch": epoch, "holder": holder,
        });
        output.json(&answer)?;
    } else {
        output.line(words(&args.volume, lease))?;
    }
    output.finish()
}

/// A controller of other daemons serves no volume: it has no way to be asked for, and knows of no lease or route but what it ordered.
pub(crate) fn not_served(volume: &VolumeStatus) -> Option<Failure> {
    volume.uris.is_empty().then(|| {
        Failure::new(format!("`{}` is not served there but looked after", volume.name))
            .with_hint("ask the storage side, or the proxy, by `--server`")
    })
}

/// A lease in a line.
fn words(volume: &str, lease: LeaseStatus) -> String {
    let LeaseStatus { epoch, holder } = lease;
    match holder {
        LeaseHolder::Named => format!("`{volume}` is leased to clients that name it `{volume}@{epoch}`"),
        LeaseHolder::Original => {
            format!("`{volume}` is served to clients that name no epoch; epochs to {epoch} are over")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_said_in_a_line() {
        let named = LeaseStatus { epoch: 7, holder: LeaseHolder::Named };
        assert_eq!(words("db", named), "`db` is leased to clients that name it `db@7`");
        let original = LeaseStatus { holder: LeaseHolder::Original, ..named };
        assert!(words("db", original).ends_with("epochs to 7 are over"));
    }
}
