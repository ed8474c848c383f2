//! Which commit is built: `FOREBAY_VERSION` (as in `0.1.0 (0123456789ab)`), and `FOREBAY_COMMIT` where it is known.
//!
//! It is known where this package belongs to a checkout of git. *Not* told is whether that was changed since.

use std::path::Path;
use std::process::Command;

/// What git answers, on one line; `None` where there is no git, or nothing that it could tell.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo says which version it builds");
    // A source without a history of its own may lie in somebody else's checkout.
    let is_ours = git(&["ls-files", "--error-unmatch", "Cargo.toml"]).is_some();
    let commit = is_ours.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    let Some(commit) = commit else {
        println!("cargo:rustc-env=FOREBAY_VERSION={version}");
        return;
    };
    println!("cargo:rustc-env=FOREBAY_VERSION={version} ({commit})");
    println!("cargo:rustc-env=FOREBAY_COMMIT={commit}");
    // Of a checkout with other working trees these lie elsewhere.
    let file = |name: &str| git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists());
    let watch = |path: String| println!("cargo:rerun-if-changed={path}");
    file("HEAD").into_iter().for_each(watch);
    if let Some(reference) = git(&["symbolic-ref", "-q", "HEAD"]) {
        match file(&reference) {
            Some(path) => watch(path),
            // It is packed, and gets a file with the next commit, of which the log tells.
            None => ["packed-refs", "logs/HEAD"].into_iter().filter_map(file).for_each(watch),
        }
    }
}
