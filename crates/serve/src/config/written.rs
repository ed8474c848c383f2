//! The files that a daemon writes: none of them twice, and none over what somebody else has.

use super::check::is_same_file;
use super::problem::Finding;
use super::{Config, LayerConfig, SnapshotPlace, TlsFiles};
use forebay_appliance::{FlashConfig, FlashOpenError, trouble_of_flash};
use forebay_origin::layer::trouble_of_log;
use forebay_tls::ServerTls;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A file that the daemon writes.
struct WrittenFile {
    key: String,
    path: PathBuf,
    kind: Writes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    File,
    /// A file or a block device.
    Storage,
    /// Beside the one that the key names.
    Beside,
}

/// Adds what is wrong with the files that a daemon would write.
pub(super) fn written_files(config: &Config, findings: &mut Vec<Finding>) {
    let written = written(config);
    let range = config.snapshots.as_ref().and_then(|snapshots| snapshots.place.origin()?.path());
    for (index, WrittenFile { key, path, kind }) in written.iter().enumerate() {
        let shown = path.display();
        let name =
            if *kind == Writes::Beside { format!("`{shown}` beside it") } else { format!("`{shown}`") };
        if range.is_some_and(|range| is_same_file(range, path)) {
            findings.push(Finding::new(key, format!("{name} is where snapshots are kept")));
        }
        for volume in &config.volumes {
            if volume.origin.path().is_some_and(|origin| is_same_file(origin, path)) {
                let message =
                    format!("{name} is the origin of volume `{}` and would be overwritten", volume.name);
                findings.push(Finding::new(key, message));
            }
        }
        if written[..index].iter().any(|other| is_same_file(&other.path, path)) {
            findings.push(Finding::new(key, format!("{name} is written by something else too")));
        }
        if *kind == Writes::Beside {
            continue;
        }
        let is_another = |metadata: std::fs::Metadata| match kind {
            Writes::Storage => !metadata.is_file() && !metadata.file_type().is_block_device(),
            _ => !metadata.is_file(),
        };
        if std::fs::metadata(path).is_ok_and(is_another) {
            let expected =
                if *kind == Writes::Storage { "neither a file nor a block device" } else { "no file" };
            findings.push(Finding::new(key, format!("{name} exists and is {expected}")));
        }
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        // Of snapshots it may come later.
        let may_come = key == "snapshots.database" && !folder.exists();
        if !folder.is_dir() && !may_come {
            findings.push(Finding::new(key, format!("the folder `{}` does not exist", folder.display())));
        }
    }
}

/// Files of layers that note requests, by key.
fn logs(config: &Config) -> impl Iterator<Item = (String, &Path)> {
    config.volumes.iter().enumerate().flat_map(|(at, volume)| {
        volume.layers.iter().enumerate().filter_map(move |(index, layer)| match layer {
            LayerConfig::Log(log) => {
                Some((format!("volume[{at}].layers[{index}].file"), log.file.as_deref()?))
            }
            _ => None,
        })
    })
}

/// All files that the daemon writes, with those that it keeps beside them.
fn written(config: &Config) -> Vec<WrittenFile> {
    let mut written = Vec::new();
    let mut add = |key: &str, path: &Path, kind, beside: &[&str]| {
        written.push(WrittenFile { key: key.to_owned(), path: path.to_owned(), kind });
        for end in beside {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            written.push(WrittenFile { key: key.to_owned(), path: name.into(), kind: Writes::Beside });
        }
    };
    let (database, kept) = (["-wal", "-shm", "-journal"], [".lock", ".new"]);
    for (key, path) in logs(config) {
        add(&key, path, Writes::File, &[]);
    }
    if let Some(flash) = &config.flash {
        add("flash.path", &flash.path, Writes::Storage, &[]);
    }
    if let Some(history) = &config.history {
        add("history.path", &history.path, Writes::File, &[database.as_slice(), &[".past"]].concat());
    }
    if let Some(SnapshotPlace::Database(path)) = config.snapshots.as_ref().map(|snapshots| &snapshots.place) {
        add("snapshots.database", path, Writes::File, &database);
    }
    let files = [
        ("reservations.path", &config.reservations),
        ("routes.path", &config.routes),
        ("succession.path", &config.succession),
        ("leases.path", &config.leases),
    ];
    for (key, path) in files {
        path.iter().for_each(|path| add(key, path, Writes::File, &kept));
    }
    written
}

/// What is written over `file`, from which the configuration was read.
pub(super) fn over_itself(config: &Config, file: &Path, findings: &mut Vec<Finding>) {
    for WrittenFile { key, path, .. } in written(config) {
        if file.exists() && is_same_file(&path, file) {
            findings.push(Finding::new(key, format!("`{}` is the configuration itself", path.display())));
        }
    }
}

/// Adds what is wrong with what is in files that `config` names. It opens them: who only asks a daemon for its state may not be able to.
pub(super) fn opened(config: &Config, findings: &mut Vec<Finding>) {
    if let Some(TlsFiles { certificate, key, client_authorities }) = &config.tls
        && let Err(error) = ServerTls::load(certificate, key, client_authorities.as_deref())
    {
        findings.push(Finding::new("tls", with_causes(&error)));
    }
    for (key, path) in logs(config) {
        let trouble = trouble_of_log(path).map(|trouble| Finding::new(key, trouble));
        findings.extend(trouble.map(|finding| finding.hint("remove it, or name another file")));
    }
    if let Some(trouble) = config.leases.as_deref().and_then(crate::lease::trouble) {
        findings.push(Finding::new("leases.path", trouble.to_string()).hint(
            "put back what was kept; without the file everybody is let in, also whom somebody was promised to be rid of",
        ));
    }
    if let Some(trouble) = config.routes.as_deref().and_then(crate::route::trouble) {
        findings.push(Finding::new("routes.path", trouble.to_string()).hint(
            "put back what was kept; without the file volumes go to their origins, past whatever serves them now",
        ));
    }
    if let Some(trouble) = config.succession.as_deref().and_then(crate::succession::trouble) {
        findings.push(Finding::new("succession.path", trouble.to_string()).hint(
            "put back what was kept; without the file this daemon is another client, and what it had under way when it was killed may come over what it writes now",
        ));
    }
    if let Some(FlashConfig { path, size: None }) = &config.flash
        && !path.exists()
    {
        let message = format!("`{}` is not there: expected `flash.size`, to make it", path.display());
        findings.push(Finding::new("flash.path", message));
    } else if let Some(flash) = &config.flash
        && findings.iter().all(|finding| finding.key != "flash.path")
        && let Some(error) = trouble_of_flash(flash)
    {
        let key = match error {
            FlashOpenError::Size { .. } | FlashOpenError::DeviceSize { .. } => "flash.size",
            _ => "flash.path",
        };
        findings.push(Finding::new(key, with_causes(&error)));
    }
}

/// An error and what is behind it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
