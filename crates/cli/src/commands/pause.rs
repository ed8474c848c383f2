//! `forebay pause` and `forebay resume`: the switch of a running daemon's controller.

use super::status::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs};
use forebay_serve::status::ControllerState;
use forebay_serve::switch::{SwitchRequest, Switched};

/// Have the controller of a running daemon decide nothing for now
///
/// Caches that are in place stay, at the size that they have, and go on caching; what is being loaded is loaded to its end. Volumes are served, observed and judged as
/// before, and `forebay status` says that the controller is paused. Quotas may be ordered over HTTP meanwhile (docs/reference/appliance.md). When it returns well, no
/// size changes any more but by orders. `forebay resume` ends it, and so does a restart, which begins as `control.enabled` says.
/// It is refused where the daemon has nothing to decide about.
/// The daemon takes it on its unix socket (`http.socket`), and over TCP from who has its token (`http.token`); `forebay control` on its `socket`. That carries through what it had begun,
/// looks after clients of appliances that die, as ever, and judges nobody meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Have the controller of a running daemon decide again
///
/// It goes on from the caches that are in place, whoever sized them meanwhile, with the next interval. What it knew before it was paused it still knows, and it has not
/// seen the time between. It is refused where the daemon has nothing to decide about, and while caches of a fixed size were ordered to take what is the controller's.
/// The daemon takes it on its unix socket (`http.socket`), and over TCP from who has its token (`http.token`); `forebay control` on its `socket`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn pause(args: &PauseArgs) -> Result<(), Failure> {
    switch(&args.server, &args.output, false)
}

pub(crate) fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    switch(&args.server, &args.output, true)
}

fn switch(server: &ServerArgs, output: &OutputArgs, enabled: bool) -> Result<(), Failure> {
    let server = server.server()?;
    let body = serde_json::to_string(&SwitchRequest { enabled }).expect("a truth value");
    let answer: serde_json::Value = server.ask("PUT", "/api/v1/controller", &body)?;
    let mut out = Output::new();
    if output.json {
        out.json(&answer)?;
    } else {
        let switched = serde_json::from_value(answer)
            .map_err(|error| Failure::new(format!("the answer of {server} is not understood: {error}")))?;
        out.line(words(switched))?;
    }
    out.finish()
}

/// What became of it, in a line.
fn words(switched: Switched) -> &'static str {
    match switched {
        Switched { enabled: false, was_enabled: true, .. } => {
            "the controller is paused: caches stay as they are until `forebay resume`"
        }
        Switched { enabled: false, was_enabled: false, .. } => {
            "the controller was not deciding already: caches stay as they are until `forebay resume`"
        }
        Switched { state: ControllerState::Dead, .. } => {
            "the controller is on, but died: it is started again after a while"
        }
        Switched { was_enabled: true, .. } => "the controller was not paused",
        Switched { .. } => "the controller goes on from the caches that are in place, with the next interval",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_the_switch_is_said_in_a_line() {
        let of = |enabled, was_enabled, state| words(Switched { enabled, was_enabled, state });
        assert!(of(false, true, ControllerState::Disabled).starts_with("the controller is paused"));
        assert!(of(false, false, ControllerState::Disabled).contains("already"));
        assert!(of(true, false, ControllerState::Running).contains("goes on from the caches"));
        assert!(of(true, true, ControllerState::Running).contains("was not paused"));
        assert!(of(true, false, ControllerState::Dead).contains("died"));
    }
}
