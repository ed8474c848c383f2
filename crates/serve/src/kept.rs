//! Small files that outlast the daemon: JSON, replaced as a whole, so that after a crash the old one or the new one is there. They are their
//! owner's alone, since secrets are in some of them. What is read once and written for ever is held meanwhile ([`Hold`]).
//!
//! The last line of an object is a checksum of all before it: an epoch with one digit damaged would let in whom a later one keeps out. A file without that line, of an earlier version or by hand, is taken as it is.

use forebay_actuate::secrets::misunderstood;
use forebay_origin::open_patiently;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What the checksum's line begins with, as no other can: a line's end within a string is written as `\n`, and what is deeper has more blanks.
const CHECKSUM: &[u8] = b",\n  \"checksum\": \"";

/// What is only for its owner.
const OWNER_ONLY: u32 = 0o600;

/// A file that nobody else changes as long as this lives. Two that each have a copy in memory would take back what the other has written.
#[derive(Debug)]
pub(crate) struct Hold {
    _lock: File,
}

impl Hold {
    /// Locks a file beside the one at `path`, which stays there: the other is replaced, and a lock on it would go with it.
    ///
    /// # Errors
    /// Why it cannot be had, as when another process has it for some seconds.
    pub(crate) fn take(path: &Path) -> Result<Hold, String> {
        let beside = beside(path, ".lock");
        let open = || {
            let mut options = OpenOptions::new();
            // Whoever opens a FIFO waits for another who does.
            options.write(true).create(true).mode(OWNER_ONLY).custom_flags(OFlags::NONBLOCK.bits() as i32);
            let lock = options.open(&beside)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Hold { _lock: lock }),
                Err(errno) => Err(errno.into()),
            }
        };
        let is_held = |error: &std::io::Error| error.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error());
        open_patiently(open, is_held).map_err(|error| match is_held(&error) {
            true => format!("another process has it: `{}` is locked", beside.display()),
            false => format!("cannot lock `{}`: {error}", beside.display()),
        })
    }
}

/// What the file at `path` holds; `None` where there is none.
///
/// # Errors
/// Why it is not understood, or cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let mut text = match forebay_actuate::secrets::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(at) = text.windows(CHECKSUM.len()).rposition(|window| window == CHECKSUM) {
        if text[at..].trim_ascii_end() != checksum(&text[..at]).as_bytes() {
            return Err("its checksum is not that of what it says, so that it was damaged, or changed by hand: put a copy back; whoever changed it \
                takes the line of `checksum` out, and the comma before it"
                .to_owned());
        }
        text.truncate(at);
        text.extend_from_slice(END);
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| misunderstood(&error))
}

/// How an object ends, and how one of which this is all but the end does with its checksum.
const END: &[u8] = b"\n}";

fn checksum(object: &[u8]) -> String {
    let begins = String::from_utf8_lossy(CHECKSUM);
    format!("{begins}{:016x}\"\n}}", xxhash_rust::xxh3::xxh3_64(object))
}

/// Writes `kept` beside the file and puts that in its place; on stable storage when this returns.
///
/// # Errors
/// As the file system says; the file is as it was then, unless its folder could not be synced.
pub(crate) fn replace<T: Serialize>(path: &Path, kept: &T) -> std::io::Result<()> {
    let beside = beside(path, ".new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&beside)?;
    // One that was begun before keeps the mode that it was made with.
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    let mut text = serde_json::to_vec_pretty(kept)?;
    if let Some(object) = text.strip_suffix(END) {
        let (length, checksum) = (object.len(), checksum(object));
        text.truncate(length);
        text.extend_from_slice(checksum.as_bytes());
    }
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The file of the same name with `suffix` behind it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_its_owners_alone_whatever_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace(&path, &"nbd://h/db.0123456789abcdef").unwrap();
        assert_eq!(mode(&path), 0o600);
        // Of an earlier version: the file, and one beside it of which a kill left a part.
        for path in [&path, &folder.path().join("routes.json.new")] {
            std::fs::write(path, "{").unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        replace(&path, &"new").unwrap();
        assert_eq!((mode(&path), read::<String>(&path)), (0o600, Ok(Some("new".to_owned()))));
    }

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Epochs {
        schema: String,
        epochs: std::collections::BTreeMap<String, u64>,
    }

    fn epochs() -> Epochs {
        let epochs = [("db".to_owned(), 41), (",\n  \"checksum\": \"".to_owned(), 7)];
        Epochs { schema: "forebay-epochs-1".to_owned(), epochs: epochs.into() }
    }

    #[test]
    fn no_damaged_bit_is_taken_for_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.json");
        replace(&path, &epochs()).unwrap();
        assert_eq!(read(&path), Ok(Some(epochs())));
        let text = std::fs::read(&path).unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok(), "it is JSON for others, too");
        let mut refused_by_checksum = 0;
        for bit in 0..8 * text.len() {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, damaged).unwrap();
            match read::<Epochs>(&path) {
                Ok(kept) => assert_eq!(kept, Some(epochs()), "bit {bit}"),
                Err(reason) => refused_by_checksum += u32::from(reason.contains("checksum is not")),
            }
        }
        assert!(refused_by_checksum > 500, "{refused_by_checksum}");
        // A part of it, at whichever byte it ends.
        for end in 0..text.len() - 1 {
            std::fs::write(&path, &text[..end]).unwrap();
            assert!(read::<Epochs>(&path).is_err(), "{end}");
        }
    }

    #[test]
    fn what_has_no_checksum_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&epochs()).unwrap()).unwrap();
        assert_eq!(read(&path), Ok(Some(epochs())));
        // What is no object, or has nothing in it, has none.
        for value in [serde_json::json!("secret"), serde_json::json!({}), serde_json::json!([1])] {
            replace(&path, &value).unwrap();
            assert_eq!(
                (read(&path), value.clone()),
                (Ok(Some(value)), serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
            );
        }
    }

    #[test]
    fn nobody_is_waited_for_where_a_fifo_is_in_the_place_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db.past");
        for path in [&path, &beside(&path, ".lock")] {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
        }
        // On a thread of its own, so that this ends in any case.
        let (sender, done) = std::sync::mpsc::channel();
        let at = path.clone();
        std::thread::spawn(move || {
            let told = (read::<u32>(&at), Hold::take(&at).is_err());
            sender.send(told)
        });
        let told = done.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for somebody else");
        assert_eq!(told, (Err("it is no file".to_owned()), true));
        // What is kept takes its place.
        replace(&path, &1).unwrap();
        assert_eq!(read(&path), Ok(Some(1)));
    }

    #[test]
    fn of_what_is_not_understood_the_place_is_told_and_not_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.json");
        for (text, told) in [
            ("[1,\n \"hunter2\"]", "it is JSON, and not what is kept here: line 2, column 10"),
            ("[1,\n hunter2]", "it is no JSON, or a part of it: line 2, column 2"),
            ("[1", "it is no JSON, or a part of it: line 1, column 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read::<Vec<u32>>(&path), Err(told.to_owned()));
        }
    }
}
