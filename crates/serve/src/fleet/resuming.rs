//! What a controller finds of the one before it, and whether it can go on with that: asked at the start, and by who only checks a configuration.

use super::config::FleetConfig;
use super::{FleetStartError, hosts, making, routes};
use crate::kept;
use forebay_actuate::secrets;
use forebay_control::response::{Journal, Responses};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the journal is.
pub(super) fn journal_file(state: &Path) -> PathBuf {
    state.join("responses.json")
}

/// What to do about a journal that is not understood.
const WITHOUT_JOURNAL: &str = "put back what was kept of it (an older one than the last may be of appliances that are gone, and of lower epochs), or remove it: then nothing is done for a volume before its lease and \
    its route have said where they are, which takes a minute (`response.late_max_ms`), and clients who may be on an appliance are brought back to their original route first";

/// The journal; `None` where there is none.
///
/// # Errors
/// [`FleetStartError`] if it is not understood, or nothing could bring the clients of a volume back that it tells of, or tell whether its cache is needed.
pub(super) fn journal(config: &FleetConfig) -> Result<Option<Journal>, FleetStartError> {
    let path = journal_file(&config.state);
    let kept = kept::read::<Journal>(&path).map_err(|reason| {
        let reason = format!("{reason}; {WITHOUT_JOURNAL}");
        FleetStartError::State { path, reason }
    })?;
    let Some(journal) = kept else { return Ok(None) };
    for name in journal.on_appliances() {
        let Some(table) = config.volume.iter().find(|volume| volume.name == name) else { continue };
        let of_it = || (name.to_owned(), journal.appliances_of(name));
        if table.route.is_none() {
            let (volume, holds) = of_it();
            return Err(FleetStartError::RouteGone { volume, holds });
        }
        if table.watch.is_none() {
            let (volume, holds) = of_it();
            return Err(FleetStartError::WatchGone { volume, holds });
        }
    }
    Ok(Some(journal))
}

/// Whether a controller that is started with this could go on where the one before it ended. Nothing is changed, and a controller may be running.
///
/// Who may not read the journal is not refused: its owner is, at the start. Whether it was read.
///
/// # Errors
/// [`FleetStartError`], as [`super::Fleet::start`] has it.
pub(super) fn check(config: &FleetConfig) -> Result<bool, FleetStartError> {
    let found = secrets::read(&journal_file(&config.state));
    if found.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        return Ok(false);
    }
    if let Some(journal) = journal(config)? {
        let routes =
            routes(config, |_, volume| making::draining(volume, making::route(config, volume).as_deref()));
        Responses::recover(journal, config.response, hosts(config), routes)?;
    }
    Ok(true)
}
