//! What clients were told by the old path is flushed there before they leave it: by the new one nobody knows what that owes them.
//!
//! A client that is moved connects anew, and takes its next flush for an answer to all that it wrote. But what an appliance has heard of a loss ends with it; and what a stranger's storage loses later, of what a storage side
//! had sent it that was started anew since, nobody knows of at all. Of what is flushed before its client leaves nothing can be lost behind its back.

use super::AddressPlace;
use crate::Deadline;
use crate::export::{Errand, VisitError, visit};
use crate::route::RouteError;
use std::time::Duration;

/// Whoever does not shake hands by then is not waited for (ours): it stands still, maybe, and clients wait.
const HANDS_SHAKEN_WITHIN: Duration = Duration::from_millis(500);

/// How long the second flush may take (ours): half of the pause that clients may see at most, most of which it is asked on the wire anyway.
const SECOND_FLUSH_WITHIN: Duration = Duration::from_millis(250);

/// Has the old paths flushed while their clients are still there, so that little is left to flush when they wait; those that have.
///
/// # Errors
/// [`RouteError::NotDrained`]: one says that it has not flushed, or shakes hands and does not say in time. Its clients hear of a loss there, with their next flush. Whoever cannot be asked is left to the
/// fence: of what is lost with it clients hear as from any server that is gone, by the end of their connections.
pub(super) fn flush_ahead<'a>(
    old: &[&'a AddressPlace],
    deadline: Deadline,
) -> Result<Vec<&'a AddressPlace>, RouteError> {
    let mut flushed = Vec::new();
    for place in old {
        if ask(place, Errand::Look, deadline.within(HANDS_SHAKEN_WITHIN)).is_err() {
            continue;
        }
        // Half of the time is for the move.
        match ask(place, Errand::Flush, deadline.within(deadline.left() / 2)) {
            Ok(()) => flushed.push(*place),
            Err(error) if says_no(&error) || error.is_silence() => return Err(not_drained(place, &error)),
            Err(_) => {}
        }
    }
    Ok(flushed)
}

/// Has them flush once more, when clients hear nothing of them any more.
///
/// # Errors
/// [`RouteError::NotDrained`]: one says that it has not flushed. Where it takes too long clients go on without: they wait.
pub(super) fn flush_behind(old: &[&AddressPlace], deadline: Deadline) -> Result<(), RouteError> {
    let soon = deadline.within(SECOND_FLUSH_WITHIN);
    for place in old {
        if let Err(error) = ask(place, Errand::Flush, soon)
            && says_no(&error)
        {
            return Err(not_drained(place, &error));
        }
    }
    Ok(())
}

fn says_no(error: &VisitError) -> bool {
    matches!(error, VisitError::NotFlushed { .. })
}

fn not_drained(place: &AddressPlace, error: &VisitError) -> RouteError {
    RouteError::NotDrained { reason: format!("the old path `{}`: {error}", place.endpoint.uri.shown()) }
}

fn ask(place: &AddressPlace, errand: Errand, deadline: Deadline) -> Result<(), VisitError> {
    let asked = place.within(|_| Ok(visit(&place.endpoint.uri, errand, deadline)));
    asked.unwrap_or_else(|error| Err(error.into())).inspect_err(|error| {
        let old = place.endpoint.uri.shown();
        tracing::debug!(%old, ?errand, %error, "the old path is not flushed before its clients leave it");
    })
}
