//! The books of a daemon: what was asked of it from outside or by its controller, and who is let in, each behind a lock of its own. Those that outlast it
//! are files, and no other daemon has them meanwhile.

use crate::clock::{Moment, unix_ms};
use crate::config::Config;
use crate::daemon::StartError;
use crate::kept::Hold;
use crate::lease::LeaseBook;
use crate::listing::ListBook;
use crate::loading::LoadBook;
use crate::orders::Ordered;
use crate::reservation::ReservationBook;
use crate::route::RouteBook;
use forebay_origin::Lineage;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
pub(crate) struct Books {
    /// Which run this is, where that is kept.
    lineage: Option<Lineage>,
    reservations: Mutex<ReservationBook>,
    leases: Option<Mutex<LeaseBook>>,
    routes: Mutex<RouteBook>,
    /// On the files of these books.
    _holds: Vec<Hold>,
    /// Held while a route is changed, which may take seconds.
    changes_of_routes: Mutex<()>,
    loads: Mutex<LoadBook>,
    lists: Mutex<ListBook>,
    /// Held while an order for a quota is judged and carried out, the controller is switched, and what it decided is done.
    quota_orders: Mutex<Ordered>,
}

impl Books {
    /// Opens those that are files. Volumes that were sent elsewhere have their origins there in `config` from then on.
    ///
    /// # Errors
    /// [`StartError`]: one is in other hands, or cannot be read; or that of runs cannot be written.
    pub(crate) fn open(config: &mut Config) -> Result<Books, StartError> {
        let kept = [&config.leases, &config.routes, &config.reservations, &config.succession];
        let hold = |path: &PathBuf| {
            Hold::take(path).map_err(|reason| StartError::Kept { path: path.clone(), reason })
        };
        // Before any of them is read.
        let holds = kept.into_iter().flatten().map(hold).collect::<Result<_, _>>()?;
        let routes = RouteBook::open(config)?;
        let leases = config.leases.as_ref().map(|path| LeaseBook::open(path, &config.volumes)).transpose()?;
        let reservations = ReservationBook::open(config.reservations.clone(), &config.volumes, unix_ms());
        // Last, since it counts starts.
        let lineage = config.succession.as_deref().map(crate::succession::begin).transpose()?;
        Ok(Books {
            lineage,
            reservations: Mutex::new(reservations),
            leases: leases.map(Mutex::new),
            routes: Mutex::new(routes),
            _holds: holds,
            changes_of_routes: Mutex::default(),
            loads: Mutex::default(),
            lists: Mutex::default(),
            quota_orders: Mutex::default(),
        })
    }

    pub(crate) fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    pub(crate) fn reservations(&self) -> MutexGuard<'_, ReservationBook> {
        // Each change of it is whole or not made.
        let mut book = self.reservations.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anybody asks what has ended.
        book.look(Moment::now());
        book
    }

    pub(crate) fn routes(&self) -> MutexGuard<'_, RouteBook> {
        // As for reservations.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes_of_routes(&self) -> MutexGuard<'_, ()> {
        self.changes_of_routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leases(&self) -> Option<MutexGuard<'_, LeaseBook>> {
        // As for reservations.
        self.leases.as_ref().map(|book| book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn loads(&self) -> MutexGuard<'_, LoadBook> {
        // Wishes and words, each whole.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lists(&self) -> MutexGuard<'_, ListBook> {
        // As for wishes.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not to be asked for with the state in hands.
    pub(crate) fn quota_orders(&self) -> MutexGuard<'_, Ordered> {
        self.quota_orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OriginConfig, VolumeConfig};
    use forebay_units::Bytes;

    #[test]
    fn every_file_that_is_kept_is_one_daemons() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        type Place = fn(&mut Config) -> &mut Option<PathBuf>;
        let places: [Place; 4] = [
            |config| &mut config.leases,
            |config| &mut config.routes,
            |config| &mut config.reservations,
            |config| &mut config.succession,
        ];
        let config = |place: Place| {
            let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
            let mut config = Config::new(vec![volume]);
            *place(&mut config) = Some(path.clone());
            config
        };
        let mine = Hold::take(&path).unwrap();
        std::thread::scope(|scope| {
            let opens = places.map(|place| scope.spawn(move || Books::open(&mut config(place)).err()));
            for open in opens {
                let refused = open.join().unwrap();
                assert!(
                    matches!(&refused, Some(StartError::Kept { path, .. }) if path.ends_with("kept.json"))
                );
            }
        });
        assert!(!path.exists(), "nothing was written");
        drop(mine);
        Books::open(&mut config(places[2])).map(drop).unwrap();
    }
}
