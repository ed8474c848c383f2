//! Running the binary, making traces, finding recorded ones.

use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `forebay` with `args` to its end.
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).output().expect("the binary runs")
}

/// What `forebay` prints, which must succeed.
pub(crate) fn succeed<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// The JSON that `forebay` prints, which must succeed and carry the schema `schema`.
pub(crate) fn json<S: AsRef<OsStr>>(schema: &str, args: impl IntoIterator<Item = S>) -> Value {
    let value: Value = serde_json::from_str(&succeed(args)).expect("output is JSON");
    assert_eq!(value["schema"], schema);
    value
}

/// The status and the words on standard error of a `forebay` that must fail and print no data.
pub(crate) fn fail<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> (i32, String) {
    let output = run(args);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    (
        output.status.code().expect("ends by itself"),
        String::from_utf8(output.stderr).expect("words are UTF-8"),
    )
}

/// The status of a `forebay` whose output nobody reads.
pub(crate) fn unread<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> i32 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    child.wait().expect("it ends").code().expect("by itself")
}

/// MSR lines: (time in 100 ns, volume number, whether a read, offset, length).
pub(crate) fn msr(requests: &[(u64, u32, bool, u64, u64)]) -> String {
    let mut text = String::new();
    for (time, disk, read, offset, length) in requests {
        let time = 128_166_372_000_000_000 + time;
        let kind = if *read { "Read" } else { "Write" };
        writeln!(text, "{time},host,{disk},{kind},{offset},{length},1000").unwrap();
    }
    text
}

/// Writes `content` to the file `name` in `folder`; its path.
pub(crate) fn file(folder: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The same, for what holds secrets.
pub(crate) fn secret_file(folder: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = file(folder, name, content);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    path
}

/// A new folder that is removed at the end.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The arguments as text.
pub(crate) fn args(args: &[&dyn AsRef<OsStr>]) -> Vec<std::ffi::OsString> {
    args.iter().map(|arg| arg.as_ref().to_owned()).collect()
}

/// A check that `xml` nests: every tag is closed in order. What an XML parser demands first.
pub(crate) fn assert_nests(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in xml.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag ends").0) {
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') || tag.starts_with('!') || tag.starts_with('?') => {}
            None => open.push(tag.split([' ', '\n']).next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The seed of this run: `FOREBAY_SEED`, or the time; tests that use it print it.
pub(crate) fn seed() -> u64 {
    std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let since = std::time::UNIX_EPOCH.elapsed().expect("the clock is past 1970");
        since.as_secs() & 0xffff_ffff
    })
}

/// Runs `forebay serve` on `configuration`, with its log in `log`.
pub(crate) fn serve(configuration: &Path, log: std::fs::File) -> Child {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("serve")
        .arg(configuration)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the binary runs")
}

/// A program that is run in a network namespace if there is one to be in.
pub(crate) fn command(namespace: Option<&str>, program: &str) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    // Not by `ip netns exec`, which hides control groups.
    let mut command = Command::new("nsenter");
    command.args([&format!("--net=/run/netns/{namespace}"), "--", program]);
    command
}

/// Starts a program that nobody talks with, in a network namespace if there is one to be in.
pub(crate) fn spawn<S: AsRef<OsStr>>(
    namespace: Option<&str>,
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Child {
    let mut command = command(namespace, program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Programs that are killed when the test is over.
pub(crate) struct Running(pub(crate) Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until somebody listens at `socket`.
pub(crate) fn wait_for(socket: &Path) {
    let end = Instant::now() + Duration::from_secs(30);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < end, "{} does not listen", socket.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tells other threads of a test to stop, also when the test fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
