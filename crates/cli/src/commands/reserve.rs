//! `forebay reserve`: promises for a while, asked of a running daemon.

use super::status::{ServerArgs, quantity, span};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use crate::whole::{ANY, whole};
use forebay_serve::reservation::ReservationRequest;
use forebay_serve::status::ReservationStatus;
use forebay_units::Nanos;
use std::time::{SystemTime, UNIX_EPOCH};

/// Have a running daemon promise volumes a rate or a latency for a while.
///
/// `forebay reserve orders reports --iops 20000 --for 40m` promises 20,000 requests/s on the two volumes together, 10,000 each, for the next 40
/// minutes. While it stands it is judged and served beside the objectives of the configuration, and before them unless --priority says
/// otherwise; then it ends by itself. Like any objective it is kept as far as cache can keep it: `forebay explain` tells. It begins and ends with a
/// control interval. The daemon takes reservations on its unix socket (`http.socket`), and over TCP from who has its token (`http.token`), and keeps them over a restart in
/// the file that `reservations.path` names.
#[derive(Debug, clap::Args)]
pub(crate) struct ReserveArgs {
    /// The volumes
    #[arg(required_unless_present = "cancel", conflicts_with = "cancel", value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Requests per second, of all the volumes together; each is promised an equal part
    #[arg(long, value_name = "RATE", value_parser = above_0, conflicts_with = "cancel")]
    iops: Option<f64>,
    /// Mean latency of the requests of each, as in `5ms`
    #[arg(long, value_name = "TIME", conflicts_with = "cancel")]
    latency: Option<Nanos>,
    /// How long it stands, as in `40m` [range: 1s to 366d]
    #[arg(long = "for", value_name = "TIME", required_unless_present = "cancel", conflicts_with = "cancel")]
    duration: Option<Nanos>,
    /// Begin after this time instead of at once [range: to 366d]
    #[arg(long = "in", value_name = "TIME", conflicts_with = "cancel")]
    after: Option<Nanos>,
    /// How much a violation weighs against that of other objectives of its priority [default: 1]
    #[arg(long, value_name = "WEIGHT", value_parser = above_0, conflicts_with = "cancel")]
    weight: Option<f64>,
    /// Objectives of a higher priority are served first; those of the configuration have 0 unless set [default: 1]
    #[arg(long, value_name = "PRIORITY", value_parser = whole::<u8>(0..=u8::MAX.into()), conflicts_with = "cancel")]
    priority: Option<u8>,
    /// End the reservation with this number, which `forebay status` shows
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64>(ANY))]
    cancel: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// JSON has neither infinity nor what is no number: the daemon would hear of nothing.
fn above_0(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Makes a reservation, or ends one.
pub(crate) fn run(args: &ReserveArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let now = unix_ms();
    let answer: serde_json::Value = match args.cancel {
        Some(id) => server.ask("DELETE", &format!("/api/v1/reservations/{id}"), "")?,
        None => {
            let seconds = |span: Nanos| span.as_secs_f64();
            let request = ReservationRequest {
                volumes: args.volumes.clone(),
                iops: args.iops,
                latency_s: args.latency.map(seconds),
                duration_s: args.duration.map_or(0.0, seconds),
                from_unix_ms: args.after.map(|after| now.saturating_add((after.0 / 1_000_000) as i64)),
                weight: args.weight,
                priority: args.priority,
            };
            let body = serde_json::to_string(&request).map_err(|error| Failure::new(error.to_string()))?;
            server.ask("POST", "/api/v1/reservations", &body)?
        }
    };
    let mut output = Output::new();
    if args.output.json {
        output.json(&answer)?;
    } else {
        let reservation: ReservationStatus = serde_json::from_value(answer)
            .map_err(|error| Failure::new(format!("the answer of {server} is not understood: {error}")))?;
        if args.cancel.is_some() {
            output.line(format_args!("reservation {} is cancelled", reservation.reservation.id))?;
        } else {
            output.line(words(&reservation, now))?;
        }
    }
    output.finish()
}

pub(super) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A reservation in a line.
pub(super) fn words(status: &ReservationStatus, now_unix_ms: i64) -> String {
    let reservation = &status.reservation;
    let volumes: Vec<String> = reservation.volumes.iter().map(|name| format!("`{name}`")).collect();
    let rate = reservation.iops.map(|iops| {
        let together = if volumes.len() > 1 { " together" } else { "" };
        format!("{}{together}", quantity(iops, "requests/s"))
    });
    let latency = reservation.latency_s.map(|latency| format!("{} mean latency", span(latency)));
    let promised: Vec<String> = rate.into_iter().chain(latency).collect();
    let from_now = |at_unix_ms: i64| span((at_unix_ms - now_unix_ms).max(0) as f64 / 1e3);
    let when = if status.active {
        format!("for another {}", from_now(reservation.until_unix_ms))
    } else {
        let length = (reservation.until_unix_ms - reservation.from_unix_ms) as f64 / 1e3;
        format!("in {} for {}", from_now(reservation.from_unix_ms), span(length))
    };
    let kept =
        if status.kept { "" } else { "; a restart of the daemon ends it (`reservations.path` is not set)" };
    let unproven: Vec<String> = status.unproven.iter().map(|name| format!("`{name}`")).collect();
    let unproven = match unproven.is_empty() {
        true => String::new(),
        false => format!(
            "; whether a cache can be as fast is not known yet of {}: too few of their requests were hits",
            unproven.join(", ")
        ),
    };
    format!(
        "reservation {}: {} on {} {when}{kept}{unproven}",
        reservation.id,
        promised.join(" and "),
        volumes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_serve::reservation::Reservation;

    #[test]
    fn a_reservation_is_said_in_a_line() {
        let reservation = Reservation {
            id: 3,
            volumes: vec!["orders".to_owned(), "reports".to_owned()],
            iops: Some(20_000.0),
            latency_s: Some(0.005),
            from_unix_ms: 1_000,
            until_unix_ms: 2_401_000,
            weight: 1.0,
            priority: 1,
        };
        let status = ReservationStatus { reservation, active: true, kept: true, unproven: Vec::new() };
        assert_eq!(
            words(&status, 601_000),
            "reservation 3: 20000/s together and 5.00 ms mean latency on `orders`, `reports` for another 30 min"
        );
        let unproven = ReservationStatus { unproven: vec!["orders".to_owned()], ..status.clone() };
        assert!(words(&unproven, 601_000).contains("is not known yet of `orders`: too few"));
        let later = ReservationStatus { active: false, kept: false, ..status };
        assert!(words(&later, 0).contains("in 1 s for 40 min; a restart"), "{}", words(&later, 0));
    }
}
