//! Clients of which nothing more is taken, and that were answered, until they have seen that no answer follows.
//!
//! A socket that is closed with something unread in it takes answers along that are still on their way (over TCP), and the client hears of a broken connection. To one that
//! hears its end in order, the end says more: all answers came, and what has none was not done. So our side of it ends first, and what the client still sends is dropped
//! unread until it leaves.

use super::socket::Received;
use super::worker::Client;
use crate::slab::SlabKey;
use forebay_units::Nanos;
use std::collections::HashMap;

/// For how long (ours). Who leaves later finds a closed socket.
const PARTING: Nanos = Nanos::secs(2);

#[derive(Default)]
pub(super) struct Parting {
    clients: HashMap<SlabKey, (Client, Nanos)>,
}

impl Parting {
    /// A client from which nothing is wanted any more, and which is still waited for with `key`.
    pub(super) fn begin(&mut self, now: Nanos, key: SlabKey, client: Client) {
        if client.socket.end_sending().is_ok() {
            self.clients.insert(key, (client, now.saturating_add(PARTING)));
        }
    }

    /// Something came of it: it is dropped, and so is the client if it left. Whoever else has this key is none of ours.
    pub(super) fn receive(&mut self, key: SlabKey, buffer: &mut [u8]) {
        if let Some((client, _)) = self.clients.get(&key)
            && matches!(client.socket.receive(buffer), Received::End)
        {
            self.clients.remove(&key);
        }
    }

    pub(super) fn end_late(&mut self, now: Nanos) {
        self.clients.retain(|_, (_, until)| now < *until);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// When there is something to end.
    pub(super) fn wake_at(&self) -> Option<Nanos> {
        self.clients.values().map(|(_, until)| *until).min()
    }
}
