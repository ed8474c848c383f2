//! `forebay host`: appliances on this machine for a controller elsewhere, which runs it by `ssh`.

use crate::failure::Failure;
use forebay_actuate::provision::{LocalProcess, answer_host};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Have appliances on this machine for a `forebay control` elsewhere, which runs this by ssh
///
/// It greets, takes one request on standard input, answers it on standard output, and ends: nothing
/// listens here but the appliances themselves. A controller reaches it by `provider = { type =
/// "ssh", ... }` (docs/reference/control.md). Give the controller's key this command in
/// `authorized_keys`, and it can do nothing else here:
///
///     restrict,command="/usr/bin/forebay host --folder /var/lib/forebay/hosted --address 10.1.0.2" ssh-ed25519 AAAA... controller
///
/// Appliances serve clients over TCP at the address, each volume under a secret that the controller
/// chooses, and go on when the connection ends.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HostArgs {
    /// Where it keeps what it must know of each appliance: its owner's alone, on a local file system; made if it is absent
    #[arg(long)]
    folder: PathBuf,
    /// The address of this machine at which appliances are reached
    #[arg(long)]
    address: IpAddr,
}

/// Answers one request.
pub(crate) fn run(args: &HostArgs) -> Result<(), Failure> {
    let (folder, address) = (&args.folder, args.address);
    if address.is_unspecified() || address.is_multicast() {
        return Err(Failure::new(format!("appliances cannot be reached at {address}")).with_hint(
            "`--address` takes the one of this machine that clients and the controller connect to",
        ));
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("this program cannot be found: {error}")))?;
    let provider = LocalProcess::over_tcp(folder, program, address)
        .map_err(|error| Failure::new(format!("`{}` cannot be made: {error}", folder.display())))?;
    answer_host(&provider, io::stdin().lock(), io::stdout().lock())
        .map_err(|error| Failure::new(format!("whoever asked cannot be heard or told: {error}")))
}
