//! Leaving a path whose server is dead, and what that leaves behind.
//!
//! QEMU flushes a node before it reopens it, and refuses if that fails: so a permanent node stays on a server that is gone with writes since the last flush. But
//! a guest's device can be given another node (`qom-set` of its `drive`), for which QEMU lets end what is out, and flushes nothing. It gets the new NBD client itself;
//! then the permanent node, which nobody writes to any more, is reopened without a flush; and then the device gets the permanent node again.
//!
//! That is safe for a path that is settled: what was acknowledged on it is at the storage side by then. It need not be flushed there, and QEMU would not pass on the guest's next
//! flush (a new client has nothing to flush), so the new path is flushed by a client of ours first.
//!
//! What was out when the server died has failed. A guest is not told of it if its device stops the machine for errors (`rerror=stop,werror=stop`), and asks again when it is
//! told to go on, which is the last step here. A server that hangs is dead too: its connection is cut first (`yank`), so that what is out on it fails.

use super::{Node, QmpRoute};
use crate::Deadline;
use crate::export::{Errand, VisitError, visit};
use crate::qmp::{Qmp, QmpError};
use crate::route::{Passage, RouteError};
use forebay_nbd::Uri;
use serde_json::json;

impl QmpRoute {
    fn device_path(device: &str) -> String {
        format!("/machine/peripheral/{device}")
    }

    /// The node that requests enter: the permanent one, unless the device was left on another.
    pub(super) fn entry(&self, qmp: &mut Qmp, deadline: Deadline) -> Result<String, RouteError> {
        let Some(device) = &self.device else { return Ok(self.node.clone()) };
        let asked = json!({ "path": Self::device_path(device), "property": "drive" });
        let found = qmp.run("qom-get", asked, deadline).map_err(|error| self.unheard(error))?;
        let node = found.as_str().filter(|node| !node.is_empty()).map(str::to_owned);
        node.ok_or_else(|| self.unheard(format!("its device `{device}` has no drive")))
    }

    fn attach(&self, qmp: &mut Qmp, device: &str, node: &str, deadline: Deadline) -> Result<(), QmpError> {
        let asked = json!({ "path": Self::device_path(device), "property": "drive", "value": node });
        qmp.run("qom-set", asked, deadline).map(drop)
    }

    /// Has the permanent node lead to the NBD client that the device is on, and gives it back to the device.
    pub(super) fn enter_by_the_permanent_node(
        &self,
        qmp: &mut Qmp,
        client: &str,
        deadline: Deadline,
    ) -> Result<(), QmpError> {
        self.reopen(qmp, client, deadline)?;
        let Some(device) = &self.device else { return Ok(()) };
        self.attach(qmp, device, &self.node, deadline)
    }

    /// Cuts the connection of a path that is settled and does not answer: QEMU would wait for it, and with it the guest.
    pub(super) fn cut_what_hangs(&self, qmp: &mut Qmp, nodes: &[Node], top: &Node, deadline: Deadline) {
        let Ok(old) = top.file.parse::<Uri>() else { return };
        if self.device.is_none() || old.tls_required {
            return;
        }
        let answer = visit(&old, Errand::Flush, deadline.within(deadline.left() / 4));
        if !answer.is_err_and(|error| error.is_silence()) {
            return;
        }
        for node in nodes.iter().filter(|node| node.file == top.file && node.name != self.node) {
            super::cut(qmp, &node.name, deadline);
        }
    }

    /// Gives the guest's device the NBD client `client`, after the permanent node could not be reopened for what QEMU `said`.
    pub(super) fn leave_dead_path(
        &self,
        qmp: &mut Qmp,
        client: &str,
        passage: &Passage,
        said: &str,
        deadline: Deadline,
    ) -> Result<(), RouteError> {
        let refused = |reason: String| RouteError::NotDrained { reason };
        let device = match &self.device {
            Some(device) if passage.settled => device,
            Some(_) => return Err(refused(said.to_owned())),
            None => {
                let hint = "QEMU leaves a path that it cannot flush only where the guest's device is known";
                return Err(refused(format!("{said}; {hint}")));
            }
        };
        match visit(&passage.to.uri, Errand::Flush, deadline.within(deadline.left() / 2)) {
            // Something may be lost, and the guest hears of it there; on the dead path it would not.
            Ok(()) | Err(VisitError::NotFlushed { is_passed_on: true, .. }) => {}
            Err(error) => {
                return Err(refused(format!("{said}; and the new path is not flushed: {error}")));
            }
        }
        match self.attach(qmp, device, client, deadline) {
            Ok(()) => {}
            Err(QmpError::Refused { description, .. }) => {
                return Err(refused(format!("{said}; {description}")));
            }
            Err(error) => return Err(RouteError::Unknown { reason: error.to_string() }),
        }
        // Requests take the new path from here on. What is left undone the next switch does.
        if let Err(error) = self.enter_by_the_permanent_node(qmp, client, deadline) {
            tracing::warn!(device, client, %error, "a guest's device stays on the NBD client itself");
        }
        self.let_go_on(qmp, deadline);
        Ok(())
    }

    /// Lets a machine go on that stopped for an error of a disk.
    pub(super) fn let_go_on(&self, qmp: &mut Qmp, deadline: Deadline) {
        if self.device.is_none() {
            return;
        }
        let went_on = qmp.run("query-status", json!({}), deadline).and_then(|status| {
            if status["status"] == "io-error" {
                qmp.run("cont", json!({}), deadline).map(drop)
            } else {
                Ok(())
            }
        });
        if let Err(error) = went_on {
            tracing::warn!(%error, "it is not known whether the machine goes on");
        }
    }
}
