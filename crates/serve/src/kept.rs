//! Small files that outlast the daemon: JSON, replaced as a whole, so that after a crash the old one or the new one is there.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What the file at `path` holds; `None` where there is none.
///
/// # Errors
/// Why it is not understood, or cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| error.to_string())
}

/// Writes `kept` beside the file and puts that in its place; on stable storage when this returns.
///
/// # Errors
/// As the file system says; the file is as it was then, unless its folder could not be synced.
pub(crate) fn replace<T: Serialize>(path: &Path, kept: &T) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let beside = PathBuf::from(name);
    let mut file = File::create(&beside)?;
    serde_json::to_writer_pretty(&mut file, kept)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
