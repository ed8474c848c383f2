//! A small file system of its own, that can be full.

use forebay_prerequisite::programs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: &str = "size=40m";
const FILLING: &str = "filling";

/// It is gone with this.
pub(super) struct Space {
    path: PathBuf,
}

impl Space {
    /// One at `path`; `None` where that takes rights that we do not have, which is said.
    pub(super) fn new(path: &Path) -> Option<Space> {
        if !programs("chaos on a full file system", &["mount", "umount"], true) {
            return None;
        }
        std::fs::create_dir(path).expect("the folder takes folders");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "chaos"]).arg(path).status();
        assert!(mounted.is_ok_and(|status| status.success()), "no file system at {}", path.display());
        Some(Space { path: path.to_owned() })
    }

    /// Nothing fits in any more.
    pub(super) fn fill(&self) {
        let mut filling = File::create(self.path.join(FILLING)).expect("the folder takes files");
        for size in [1 << 16, 1 << 12, 1] {
            while filling.write_all(&vec![1; size]).is_ok() {}
        }
    }

    pub(super) fn free(&self) {
        let _ = std::fs::remove_file(self.path.join(FILLING));
    }

    pub(super) fn is_full(&self) -> bool {
        self.path.join(FILLING).exists()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.free();
        // Also where a process has a file there for a moment yet.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
