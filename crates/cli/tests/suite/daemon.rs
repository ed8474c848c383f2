//! A daemon of a test's own: its folder, its configuration and its log.

use crate::support::{secret_file, serve};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// `forebay serve`, killed at the end.
pub(crate) struct Daemon {
    pub(crate) folder: TempDir,
    pub(crate) child: Child,
}

impl Daemon {
    /// Starts it in a folder, and waits until it is ready.
    pub(crate) fn start(folder: TempDir, configuration: String) -> Daemon {
        let file = secret_file(&folder, "forebay.toml", configuration);
        let log = std::fs::File::create(folder.path().join("log")).expect("the folder takes files");
        let daemon = Daemon { child: serve(&file, log), folder };
        daemon.wait_for("ready:");
        daemon
    }

    /// A file or socket of its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("it has one")
    }

    /// Waits until the log says `words`.
    pub(crate) fn wait_for(&self, words: &str) {
        self.wait_for_times(words, 1);
    }

    /// Waits until the log says `words`, so many times.
    pub(crate) fn wait_for_times(&self, words: &str, times: usize) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.log().matches(words).count() < times {
            assert!(Instant::now() < end, "the log does not say `{words}`: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
