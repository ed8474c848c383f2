//! Where a trace is replayed to.

use crate::failure::{Context, Failure};
use crate::output::{count, say};
use forebay_nbd::Uri;
use forebay_origin::{FileOrigin, FileOriginOptions, NbdOrigin, NbdOriginOptions, OnRing, OpenError, Origin};
use forebay_tls::ClientTls;
use forebay_units::Nanos;
use rustix::fs::{FileType, SeekFrom};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Threads that make the blocking calls of a file or block device (ours); fewer where fewer requests may be in flight.
const FILE_WORKERS_MAX: usize = 32;

/// A target, named and not yet opened.
pub(super) enum Target {
    Nbd(Uri),
    File(PathBuf),
}

/// How a target is opened.
pub(super) struct Opening {
    pub(super) threads: usize,
    pub(super) connections: usize,
    pub(super) outstanding_max: usize,
    pub(super) read_only: bool,
    pub(super) give_up_after: Nanos,
    /// The certificates of those whom to believe, of an `nbds` target.
    pub(super) authorities: Option<PathBuf>,
    /// Certificate and key to show it.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    pub(super) engine: Engine,
}

/// Who reads and writes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Engine {
    Auto,
    #[value(name = "io_uring")]
    IoUring,
    Threads,
}

impl Opening {
    /// What a URI that asks for TLS needs.
    fn tls(&self, uri: &Uri) -> Result<Option<ClientTls>, Failure> {
        if !uri.tls_required {
            return Ok(None);
        }
        let believes = uri.tls_verify_peer.unwrap_or(true);
        if believes && self.authorities.is_none() {
            return Err(Failure::usage(format!("`{uri}` does not say whose certificates to believe")).with_hint(
                "name a PEM file with --tls-authorities, or believe anybody with `tls-verify-peer=no` in the URI",
            ));
        }
        let authorities = self.authorities.as_deref().filter(|_| believes);
        let identity =
            self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        ClientTls::load(authorities, identity).map(Some).context("cannot speak TLS")
    }
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Target, Failure> {
        if text.contains("://") {
            let uri = text.parse().map_err(|error| Failure::usage(format!("`{text}`: {error}")))?;
            return Ok(Target::Nbd(uri));
        }
        Ok(Target::File(PathBuf::from(text)))
    }

    /// Fails where something would be written over that nobody said may be.
    pub(super) fn check_consent(&self, writes: u64, is_given: bool) -> Result<(), Failure> {
        let Target::File(path) = self else { return Ok(()) };
        if writes == 0 || is_given {
            return Ok(());
        }
        let shown = path.display();
        // What cannot be opened, or is no place for blocks, is said when it is opened for use; a FIFO would wait here for who writes to it.
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Ok(());
        }
        let Ok(file) = File::open(path) else { return Ok(()) };
        let status = rustix::fs::fstat(&file).context(format_args!("cannot look at `{shown}`"))?;
        let what = match FileType::from_raw_mode(status.st_mode) {
            FileType::BlockDevice => "is a block device",
            // Every file system that knows no holes says that all is data.
            FileType::RegularFile if rustix::fs::seek(&file, SeekFrom::Data(0)).is_ok() => "holds data",
            _ => return Ok(()),
        };
        Err(Failure::new(format!(
            "`{shown}` {what}, and {} requests of the trace would change it",
            count(writes)
        ))
        .with_hint("write over it with --yes-overwrite, or play only what reads with --reads-only"))
    }

    /// Opens it once per thread; a file only once, for all of them.
    pub(super) fn open(&self, opening: &Opening) -> Result<Vec<Arc<dyn Origin>>, Failure> {
        match self {
            Target::Nbd(uri) => {
                let options = NbdOriginOptions {
                    connections: opening.connections,
                    connection_requests_max: opening.outstanding_max,
                    in_flight_max: 2 * opening.outstanding_max + 1,
                    request_timeout: opening.give_up_after,
                    // A request that cannot be sent now is not what was recorded if it is sent later.
                    wait_for_origin: Nanos::ZERO,
                    ..NbdOriginOptions::default()
                };
                let connect = |_| -> Result<Arc<dyn Origin>, Failure> {
                    Ok(Arc::new(NbdOrigin::connect_secured(uri, opening.tls(uri)?, options, None)?))
                };
                (0..opening.threads).map(connect).collect()
            }
            Target::File(path) => {
                let options = FileOriginOptions {
                    read_only: opening.read_only,
                    workers: opening.outstanding_max.min(FILE_WORKERS_MAX),
                    in_flight_max: 2 * opening.outstanding_max + 1,
                };
                let origin: Arc<dyn Origin> = Arc::new(FileOrigin::open(path, options).map_err(|error| {
                    let hint = match &error {
                        OpenError::NotFound { .. } => Some("make one with `truncate --size 10G FILE`"),
                        OpenError::Empty { .. } => Some("give it a size with `truncate --size 10G FILE`"),
                        _ => None,
                    };
                    let failure = Failure::from(error);
                    match hint {
                        Some(hint) => failure.with_hint(hint),
                        None => failure,
                    }
                })?);
                let origin = match opening.engine {
                    Engine::Threads => origin,
                    engine => match OnRing::new(Arc::clone(&origin)) {
                        Ok(on_ring) => Arc::new(on_ring),
                        Err(refused) if engine == Engine::IoUring => {
                            return Err(Failure::new(refused.to_string()));
                        }
                        Err(refused) => {
                            say(format_args!("the file is read and written by threads: {refused}"));
                            origin
                        }
                    },
                };
                Ok(vec![origin; opening.threads])
            }
        }
    }
}
