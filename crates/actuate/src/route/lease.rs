//! The lease of a volume at the storage side, raised over the control API of `forebay watch`.

use super::RouteError;
use crate::api::{ApiError, encoded};
use crate::{Control, Deadline};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Who is let in at the epoch of a lease; those who name a higher one always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseHolder {
    /// Who names no epoch.
    Original,
    /// Who names this epoch.
    Named,
}

/// The lease of one volume.
#[derive(Clone, Debug)]
pub struct StorageLease {
    /// Of `forebay watch`.
    pub control: Control,
    /// The volume's name there.
    pub volume: String,
}

impl StorageLease {
    /// Raises the lease. Once this returns well nothing of whom it does not admit is at the origin, and nothing of theirs will be.
    ///
    /// # Errors
    /// [`RouteError::Stale`] if the epoch is over; [`RouteError::NotDrained`] if it is raised and the old path's requests have not ended: ask again;
    /// [`RouteError::Unknown`] if nothing was heard.
    pub fn raise(&self, epoch: u64, holder: LeaseHolder, deadline: Deadline) -> Result<(), RouteError> {
        // The answer needs a moment as well; the API takes 30 s at most.
        let within = deadline.sooner_by(Duration::from_millis(20)).left().as_secs_f64().min(30.0);
        let body = json!({ "epoch": epoch, "holder": holder, "within_s": within }).to_string();
        let path = format!("/api/v1/volumes/{}/lease", encoded(&self.volume));
        match self.control.ask::<Value>("POST", &path, &body, deadline) {
            Ok(_) => Ok(()),
            Err(ApiError::Refused { status: 409, said, .. }) => match self.epoch(deadline) {
                Ok(now) => Err(RouteError::Stale { asked: epoch, now }),
                Err(_) => Err(RouteError::Unheard { who: self.who(), reason: said }),
            },
            Err(ApiError::Refused { status: 503, said, .. }) => Err(RouteError::NotDrained { reason: said }),
            Err(ApiError::Refused { said, .. }) => Err(RouteError::Unheard { who: self.who(), reason: said }),
            Err(error) => Err(RouteError::Unknown { reason: error.to_string() }),
        }
    }

    /// The epoch of the lease.
    ///
    /// # Errors
    /// [`RouteError::Unheard`].
    pub fn epoch(&self, deadline: Deadline) -> Result<u64, RouteError> {
        let unheard = |reason: String| RouteError::Unheard { who: self.who(), reason };
        let status: Value = self
            .control
            .ask("GET", "/api/v1/status", "", deadline)
            .map_err(|error| unheard(error.to_string()))?;
        volume_in(&status, &self.volume)
            .and_then(|volume| volume["lease"]["epoch"].as_u64())
            .ok_or_else(|| unheard(format!("it has no lease of a volume `{}`", self.volume)))
    }

    fn who(&self) -> String {
        format!("the storage side at {}", self.control.address)
    }
}

/// A volume in what a daemon says of itself.
pub(super) fn volume_in<'a>(status: &'a Value, volume: &str) -> Option<&'a Value> {
    status["volumes"].as_array()?.iter().find(|found| found["name"] == volume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fake;

    #[test]
    fn a_lease_is_raised_only_where_the_storage_side_says_that_the_old_path_has_ended() {
        let raise = |answers: &[(u16, Value)]| {
            fake::daemon(answers, |control| {
                let lease = StorageLease { control, volume: "db".to_owned() };
                lease.raise(4, LeaseHolder::Named, Deadline::after(Duration::from_secs(20)))
            })
        };
        let said = |text: &str| json!({ "error": text });
        let (raised, asked) = raise(&[(200, json!({ "epoch": 4 }))]);
        raised.unwrap();
        assert_eq!(asked[0].0, "POST /api/v1/volumes/db/lease");
        assert_eq!((asked[0].1["epoch"].as_u64(), asked[0].1["holder"].as_str()), (Some(4), Some("named")));
        let within = asked[0].1["within_s"].as_f64().unwrap();
        assert!(within > 0.0 && within < 20.0, "{within}: the answer needs a moment as well");
        let refused = raise(&[(503, said("a write is on its way"))]).0.unwrap_err();
        assert!(matches!(&refused, RouteError::NotDrained { reason } if reason.contains("on its way")));
        // Another one has raised it: how far, its status tells.
        let status = json!({ "volumes": [
            { "name": "web", "lease": { "epoch": 1 } }, { "name": "db", "lease": { "epoch": 9 } },
        ] });
        let refused = raise(&[(409, said("stale")), (200, status)]).0.unwrap_err();
        assert!(matches!(refused, RouteError::Stale { asked: 4, now: 9 }), "{refused}");
        let refused = raise(&[(409, said("no leases")), (200, json!({ "volumes": [] }))]).0.unwrap_err();
        assert!(matches!(&refused, RouteError::Unheard { reason, .. } if reason == "no leases"), "{refused}");
        let refused = raise(&[(404, said("there is no volume"))]).0.unwrap_err();
        assert!(matches!(refused, RouteError::Unheard { .. }), "{refused}");
    }

    #[test]
    fn of_a_storage_side_that_is_gone_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let address = crate::api::ApiAddress::Unix(folder.path().join("nobody.sock"));
        let lease = StorageLease { control: Control { address, token: None }, volume: "db".to_owned() };
        let deadline = Deadline::after(Duration::from_secs(20));
        let raised = lease.raise(4, LeaseHolder::Named, deadline).unwrap_err();
        assert!(matches!(raised, RouteError::Unknown { .. }) && !raised.had_no_effect(), "{raised}");
    }
}
