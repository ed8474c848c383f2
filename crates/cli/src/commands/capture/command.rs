//! The command whose requests are recorded.

use crate::failure::{Context, Failure};
use forebay_appliance::BoundAddress;
use forebay_nbd::Uri;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGINT;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

/// A running command; dropping it kills it.
pub(super) struct Running {
    child: Child,
    was_asked: bool,
}

impl Running {
    pub(super) fn start(
        program: &str,
        args: &[String],
        uri: &Uri,
        address: &BoundAddress,
    ) -> Result<Running, Failure> {
        let mut command = Command::new(program);
        command.args(args).env("FOREBAY_NBD_URI", uri.to_string());
        if let BoundAddress::Unix(path) = address {
            command.env("FOREBAY_NBD_SOCKET", path);
        }
        let child = command.spawn().context(format_args!("cannot run `{program}`"))?;
        Ok(Running { child, was_asked: false })
    }

    /// Passes a signal on. A terminal's interrupt reaches the command by itself; a second one kills it.
    pub(super) fn ask_to_end(&mut self, signal: i32) {
        if self.was_asked {
            // It may have ended meanwhile.
            let _ = self.child.kill();
        } else if signal != SIGINT {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
                let _ = kill_process(pid, signal);
            }
        }
        self.was_asked = true;
    }

    /// The exit status, if it ended; 128 and the signal's number if one ended it, as shells say it.
    pub(super) fn status(&mut self) -> Result<Option<u8>, Failure> {
        let status = self.child.try_wait().context("cannot wait for the command")?;
        Ok(status.map(|status| {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither can fail in a way that could be mended here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
