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
