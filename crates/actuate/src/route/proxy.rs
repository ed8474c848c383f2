//! A permanent proxy: a daemon that clients are always connected to, and that is told where its volume goes.

use super::lease::volume_in;
use super::{Passage, Pause, Route, RouteError};
use crate::api::{ApiError, encoded};
use crate::{Control, Deadline, Endpoint};
use serde_json::{Value, json};
use std::time::Duration;

/// An appliance that has refused connections for so long has ended (ours: more than one attempt).
const ENDED_AFTER_S: f64 = 1.0;

/// The route of one volume through a permanent proxy.
#[derive(Clone, Debug)]
pub struct ProxyRoute {
    /// Of the proxy.
    pub control: Control,
    /// The volume's name there.
    pub volume: String,
}

impl ProxyRoute {
    fn who(&self) -> String {
        format!("the proxy at {}", self.control.address)
    }

    /// Where the volume goes, and the number of the last switch.
    fn in_force(&self, deadline: Deadline) -> Result<(Option<String>, u64), RouteError> {
        let unheard = |reason: String| RouteError::Unheard { who: self.who(), reason };
        let status: Value = self
            .control
            .ask("GET", "/api/v1/status", "", deadline)
            .map_err(|error| unheard(error.to_string()))?;
        let volume = volume_in(&status, &self.volume)
            .ok_or_else(|| unheard(format!("it has no volume `{}`", self.volume)))?;
        let to = volume["route"]["to"].as_str().map(str::to_owned);
        Ok((to, volume["route"]["epoch"].as_u64().unwrap_or(0)))
    }
}

impl Route for ProxyRoute {
    fn drains(&self) -> bool {
        true
    }

    fn switch(&self, passage: &Passage, deadline: Deadline) -> Result<Pause, RouteError> {
        let to = passage.to.uri.to_string();
        let (_, now) = self.in_force(deadline)?;
        if passage.epoch < now {
            return Err(RouteError::Stale { asked: passage.epoch, now });
        }
        // The answer needs a moment as well; the API takes 30 s at most.
        let within = deadline.sooner_by(Duration::from_millis(20)).left().as_secs_f64().min(30.0);
        let mut body = json!({
            "to": to, "epoch": passage.epoch, "settled": passage.settled, "within_s": within,
        });
        if !passage.comes_back {
            body["refused_s"] = ENDED_AFTER_S.into();
        }
        let path = format!("/api/v1/volumes/{}/route", encoded(&self.volume));
        match self.control.ask::<Value>("POST", &path, &body.to_string(), deadline) {
            Ok(answer) => {
                let pause = answer["pause_s"].as_f64().filter(|pause| (0.0..1e6).contains(pause));
                Ok(Pause(Duration::from_secs_f64(pause.unwrap_or(0.0))))
            }
            Err(ApiError::Refused { status: 409, said, .. }) => Err(RouteError::NotDrained { reason: said }),
            Err(ApiError::Refused { status: 422, said, .. }) => {
                let to = passage.to.uri.shown().to_string();
                Err(RouteError::OtherData { to, reason: said })
            }
            Err(ApiError::Refused { status: 502, said, .. }) => {
                let to = passage.to.uri.shown().to_string();
                Err(RouteError::Unusable { to, reason: said })
            }
            Err(ApiError::Refused { status: 500, said, .. }) => Err(RouteError::Unknown { reason: said }),
            Err(ApiError::Refused { said, .. }) => Err(RouteError::Unheard { who: self.who(), reason: said }),
            Err(error) => Err(RouteError::Unknown { reason: error.to_string() }),
        }
    }

    fn epoch(&self, deadline: Deadline) -> Result<u64, RouteError> {
        Ok(self.in_force(deadline)?.1)
    }

    fn now(&self, deadline: Deadline) -> Result<Endpoint, RouteError> {
        let unheard = |reason: String| RouteError::Unheard { who: self.who(), reason };
        let (to, _) = self.in_force(deadline)?;
        let to = to.ok_or_else(|| unheard("its volume goes to no export".to_owned()))?;
        let uri = to.parse().map_err(|error| unheard(format!("`{to}`: {error}")))?;
        Ok(Endpoint::new(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fake;

    /// A proxy that was sent elsewhere last at epoch 3.
    fn switched(epoch: u64, answer: Option<(u16, Value)>) -> (Result<Pause, RouteError>, fake::Asked) {
        let status = json!({ "volumes": [{ "name": "db", "route": { "to": "nbd://h1/db", "epoch": 3 } }] });
        let answers: Vec<(u16, Value)> = [(200, status)].into_iter().chain(answer).collect();
        fake::daemon(&answers, |control| {
            let route = ProxyRoute { control, volume: "db".to_owned() };
            let to = Endpoint::new("nbd://h2/db@4".parse().unwrap());
            let passage = Passage { to, epoch, settled: true, comes_back: epoch != 4 };
            route.switch(&passage, Deadline::after(Duration::from_secs(20)))
        })
    }

    #[test]
    fn what_a_proxy_says_of_a_switch_is_not_taken_for_something_else() {
        let (pause, asked) = switched(4, Some((200, json!({ "pause_s": 0.25 }))));
        assert_eq!(pause.unwrap(), Pause(Duration::from_millis(250)));
        let (first, body) = &asked[1];
        assert_eq!(first, "POST /api/v1/volumes/db/route");
        assert_eq!(
            (&body["to"], &body["epoch"], &body["settled"]),
            (&json!("nbd://h2/db@4"), &json!(4), &json!(true))
        );
        assert_eq!(body["refused_s"], json!(ENDED_AFTER_S), "an appliance that is gone is not waited for");
        let within = body["within_s"].as_f64().unwrap();
        assert!(within > 0.0 && within < 20.0, "{within}: the answer needs a moment as well");
        let refused = |status| switched(4, Some((status, json!({ "error": "why" })))).0.unwrap_err();
        assert!(matches!(refused(409), RouteError::NotDrained { .. }));
        assert!(matches!(refused(502), RouteError::Unusable { .. }));
        // Whoever takes it for a path that does not serve fences the old one, behind which nothing is compared.
        let other = refused(422);
        assert!(matches!(other, RouteError::OtherData { .. }) && other.had_no_effect(), "{other}");
        assert!(matches!(refused(404), RouteError::Unheard { .. }));
        // It goes there, and after a restart it may go back.
        let unknown = refused(500);
        assert!(matches!(unknown, RouteError::Unknown { .. }) && !unknown.had_no_effect());
    }

    #[test]
    fn a_switch_of_an_epoch_that_is_over_is_not_asked_for() {
        let (refused, asked) = switched(2, None);
        assert!(matches!(refused, Err(RouteError::Stale { asked: 2, now: 3 })), "{refused:?}");
        assert_eq!(asked.len(), 1);
        let (again, asked) = switched(3, Some((200, json!({ "pause_s": 0.0 }))));
        assert!(again.is_ok(), "again");
        assert_eq!(asked[1].1["refused_s"], Value::Null);
    }
}
