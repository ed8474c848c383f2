//! `forebay guest`: the first process of a virtual machine that is an appliance.

use super::appliance;
use crate::failure::Failure;
use forebay_actuate::guest;

/// Be the first process of a virtual machine that is an appliance (docs/internals/appliance-image.md).
#[derive(Debug, clap::Args)]
pub(crate) struct GuestArgs {}

/// Serves until the machine is switched off.
pub(crate) fn run(_: &GuestArgs) -> Result<(), Failure> {
    let served = match guest::prepare() {
        Err(error @ guest::GuestError::NotFirst { .. }) => return Err(error.into()),
        Err(error) => Err(error.into()),
        Ok(configuration) => appliance::serve_file(&configuration, "info"),
    };
    // The kernel panics when its first process ends; what it has to say comes before.
    if let Err(failure) = &served {
        failure.report();
    }
    guest::power_off();
    served
}
