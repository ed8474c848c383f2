//! Guests: small virtual machines in QEMU's software emulation, with Debian's kernel and what a test gives them to run.

use crate::emulated::{self, Turn};
use crate::support::command;
use forebay_prerequisite::{programs, skip};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The kernel and the modules that `scripts/bootstrap` took from Debian's package; `None` where it did not, which is said.
pub(crate) fn kernel() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest-kernel");
    if folder.join("vmlinuz").exists() && folder.join("test-modules").exists() {
        return Some(folder);
    }
    skip("a guest", "no kernel for it (scripts/bootstrap test)");
    None
}

/// A guest that works until it is told to stop, and says a dot for each piece of work.
pub(crate) struct Guest {
    qemu: Child,
    console: Option<JoinHandle<String>>,
    _turn: Turn,
}

/// What it says when it has found no error and no wrong byte.
const CONTENT: &str = "the guest is content";

impl Guest {
    /// Boots a guest with its files in `folder`, whose first process is `init` and finds `tools`; `None` where that cannot be, which is said.
    /// `parameters` are on its kernel's command line, `args` are for QEMU; pieces of work are counted in `done`.
    pub(crate) fn boot(
        namespace: Option<&str>,
        folder: &Path,
        (init, tools): (&str, &[&str]),
        parameters: &str,
        args: &[String],
        done: &Arc<AtomicU64>,
    ) -> Option<Guest> {
        let needed = [&["qemu-system-x86_64", "cpio"], tools].concat();
        if !programs("a guest", &needed, false) {
            return None;
        }
        let (kernel, turn) = (kernel()?, emulated::turn());
        std::fs::write(folder.join("init"), init).unwrap();
        let script = include_str!("guest.sh");
        let made = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &format!("{script}\nfirst_file_system init \"$@\""), "guest.sh"])
            .args(tools)
            .current_dir(folder)
            .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
            .env("guest_kernel", &kernel)
            .output()
            .expect("bash runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut qemu = command(namespace, "qemu-system-x86_64")
            .args(["-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", "192", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-kernel"])
            .args([kernel.join("vmlinuz"), "-initrd".into(), folder.join("initramfs"), "-append".into()])
            .arg(format!("console=ttyS0 quiet panic=-1 no_timer_check {parameters}"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("QEMU runs");
        let (console, done) = (BufReader::new(qemu.stdout.take().expect("it is piped")), Arc::clone(done));
        let console = std::thread::spawn(move || {
            let mut said = String::new();
            for line in console.lines().map_while(Result::ok) {
                match line.trim() {
                    "." => drop(done.fetch_add(1, Ordering::Relaxed)),
                    other => said += &format!("{other}\n"),
                }
            }
            said
        });
        Some(Guest { qemu, console: Some(console), _turn: turn })
    }

    /// Has it end its work; what it said.
    ///
    /// # Panics
    /// If it met an error or a wrong byte, and says which.
    pub(crate) fn stop(mut self) -> String {
        let told = self.qemu.stdin.take().expect("it is piped").write_all(b"\n");
        let said = self.console.take().expect("it is stopped once").join().expect("what it says can be read");
        assert!(told.is_ok() && said.contains(CONTENT), "{said}");
        said
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        // A test that fails shows what it said.
        if let Some(said) = self.console.take().and_then(|console| console.join().ok()) {
            println!("the guest said: {said}");
        }
    }
}
