//! Starting, probing, finding and stopping appliances.
//!
//! A [`Provider`] is a way to have one: a process of this machine
//! ([`LocalProcess`]), also in a network namespace, which stands in for another host, one of another machine
//! ([`Ssh`]), or a virtual machine by QEMU ([`Qemu`]) or by libvirt ([`Libvirt`]). What an appliance is to be stands in its
//! [`ApplianceOrder`]; that it is there, and where, in [`Running`].
//!
//! Invariants:
//! * one appliance per name: who starts it again gets the one that runs, if the order is the same, and an error if it is not;
//! * an appliance outlives who started it, and is found by whoever comes next;
//! * after an error nothing of what was started is left running, unless the error says that it may ([`ProvisionError::may_run`]);
//! * no call lasts noticeably longer than its deadline, whatever the other side does or does not.

mod configuration;
mod health;
mod keeper;
mod libvirt;
mod local;
mod process;
mod qemu;
mod ssh;

pub use health::{ProbeError, probe};
pub use libvirt::Libvirt;
pub use local::{LocalProcess, PROCESS_OVERHEAD};
pub use qemu::{Image, MACHINE_OVERHEAD, Qemu, SOCKET_BYTES_MAX, out_of_reach};
pub use ssh::{GREETING, Ssh, answer_host};

use crate::{ApplianceId, ApplianceOrder, Deadline, Listed, OrderError, Running};
use forebay_units::{Bytes, Secret};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// A way to have appliances.
pub trait Provider: Send + Sync {
    /// Has the appliance of `order` run: returns once it serves every volume and answers its control API. One that runs already under this name
    /// with the same order is waited for and returned.
    ///
    /// # Errors
    /// [`ProvisionError`]; what this call started does not run then, unless [`ProvisionError::may_run`].
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError>;

    /// The appliance of this name, if it exists, whoever started it. That it answers is not said: [`probe`] tells.
    ///
    /// # Errors
    /// [`ProvisionError`].
    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError>;

    /// The appliances that run here and were ordered with `token`, whoever started them, in no order: for whoever has lost what it knew of them.
    ///
    /// # Errors
    /// [`ProvisionError`] if it is not known which these are.
    fn list(&self, token: &Secret, deadline: Deadline) -> Result<Vec<Listed>, ProvisionError>;

    /// Ends an appliance: its volumes are drained, then it is asked to end, then it is killed. What is gone already is stopped.
    ///
    /// Route its clients away first: they are disconnected.
    ///
    /// # Errors
    /// [`ProvisionError`] if it may still be there.
    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError>;
}

/// An address that moves leads to appliances that are in its network only.
fn refuse_port(order: &ApplianceOrder) -> Result<(), ProvisionError> {
    let Some(port) = order.port else { return Ok(()) };
    let reason = format!("it is not reached at port {port} of every address of its host");
    Err(ProvisionError::Impossible { id: order.id.clone(), reason })
}

/// Why there is no appliance, or still is one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProvisionError {
    /// Nobody could carry out this order.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// This provider cannot.
    #[error("appliance `{id}` cannot be had here: {reason}")]
    Impossible {
        /// Which.
        id: ApplianceId,
        /// Why.
        reason: String,
    },
    /// One runs under this name that was ordered otherwise.
    #[error("appliance `{id}` runs already with another order; stop it first")]
    OtherOrder {
        /// Which.
        id: ApplianceId,
    },
    /// Another call for this appliance goes on.
    #[error("appliance `{id}` is being started or stopped by somebody else")]
    Busy {
        /// Which.
        id: ApplianceId,
    },
    /// What is kept of it cannot be read or written.
    #[error("what is kept of an appliance cannot be read or written at `{}`", path.display())]
    State {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be run.
    #[error("appliance `{id}`: `{program}` cannot be run")]
    Spawn {
        /// Which.
        id: ApplianceId,
        /// What was to be run.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// An address that it is to listen on is taken.
    #[error("appliance `{id}`: an address is in use by something else: {said}")]
    AddressInUse {
        /// Which.
        id: ApplianceId,
        /// What it said last.
        said: String,
    },
    /// It ended before it served.
    #[error("appliance `{id}` ended before it served ({how}): {said}")]
    Died {
        /// Which.
        id: ApplianceId,
        /// How it ended.
        how: String,
        /// With a failure, or by a signal, and not of itself.
        failed: bool,
        /// What it said last.
        said: String,
    },
    /// It does not serve in time. It was ended.
    #[error("appliance `{id}` did not serve within {waited:.1?} and was ended: {last}; it said last: {said}")]
    NotInTime {
        /// Which.
        id: ApplianceId,
        /// How long it was waited for.
        waited: Duration,
        /// What the last probe found.
        last: String,
        /// What it said last.
        said: String,
    },
    /// It does not have what was ordered. It was ended.
    #[error(
        "appliance `{id}` has {found} of {what} where {ordered} were ordered, and was ended: its host promised more than it has"
    )]
    Short {
        /// Which.
        id: ApplianceId,
        /// Of what it has too little.
        what: &'static str,
        /// What was ordered.
        ordered: Bytes,
        /// What it has.
        found: Bytes,
    },
    /// It could not be ended in time.
    #[error("appliance `{id}` is still there: {reason}")]
    StillThere {
        /// Which.
        id: ApplianceId,
        /// What was tried.
        reason: String,
    },
    /// Another machine does not say which it has.
    #[error("`{destination}` does not say which appliances run there: {said}")]
    Unlisted {
        /// The machine.
        destination: String,
        /// What was said there, or why it was not asked.
        said: String,
    },
    /// Another machine does not have it, or does not say.
    #[error("appliance `{id}` at `{destination}`: {said}{}", if *may_run { "; what became of it is not known" } else { "" })]
    Elsewhere {
        /// Which.
        id: ApplianceId,
        /// The machine.
        destination: String,
        /// What was said there, or why it was not asked.
        said: String,
        /// Whether it may be there all the same, or come to.
        may_run: bool,
    },
}

impl ProvisionError {
    /// Whether the appliance may run in spite of it, or come to.
    pub fn may_run(&self) -> bool {
        match self {
            ProvisionError::OtherOrder { .. }
            | ProvisionError::Busy { .. }
            | ProvisionError::State { .. }
            | ProvisionError::StillThere { .. } => true,
            ProvisionError::Elsewhere { may_run, .. } => *may_run,
            _ => false,
        }
    }
}
