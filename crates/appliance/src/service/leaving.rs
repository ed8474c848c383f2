//! A volume that ends in order while clients are at it.
//!
//! Nothing more is taken of what they ask, and none of them hears of an error for it: who connects again asks again, of whoever serves the volume next. What was taken is answered, unless the
//! origin fails it by then, which is asked again as well; then who named a succession is told whether all of it is safe ([`forebay_nbd::FAREWELL_COOKIE`]), and each hears the end in order.

use super::connection::Closing;
use super::{Service, mark_dirty, touch};
use crate::slab::SlabKey;

impl Service {
    /// Begins the end of a volume. The origin flushes behind the last request if there are clients: those that named a succession are told so, and those of others take what they were told for safe when
    /// they are here again.
    pub fn leave(&mut self, volume: SlabKey) {
        let Some(entry) = self.volumes.get_mut(volume) else { return };
        entry.is_leaving = true;
        let mut has_clients = false;
        for key in self.connections_of(volume) {
            let connection = self.connections.get_mut(key).expect("listed above");
            if connection.closing.is_none() {
                connection.closing = Some(Closing::Leaving);
                has_clients = true;
                mark_dirty(&mut self.connections, &mut self.dirty, key);
            }
        }
        let machine = &mut self.volumes.get_mut(volume).expect("looked up above").machine;
        if has_clients {
            machine.drain_and_flush();
        } else {
            machine.drain();
        }
        touch(&mut self.volumes, &mut self.touched, volume);
    }

    /// The machine of a volume that leaves is idle: its clients hear the end.
    pub fn bid_farewell(&mut self, volume: SlabKey) {
        let Some(entry) = self.volumes.get(volume).filter(|entry| entry.is_leaving) else { return };
        let is_safe = entry.machine.is_safe() && entry.said.is_empty() && entry.writers.have_heard();
        for key in self.connections_of(volume) {
            let connection = self.connections.get_mut(key).expect("listed above");
            if connection.closing != Some(Closing::Leaving) {
                continue;
            }
            connection.closing = Some(Closing::Parting);
            if is_safe && !connection.asks_again && connection.session.told().is_some() {
                let (replies, before) = (connection.replies, connection.output.len());
                connection.output.append(|output| replies.farewell(output));
                self.held_bytes += connection.output.len() - before;
            }
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
    }

    /// Whether no client of a volume that leaves has to hear of anything yet.
    pub fn has_parted(&self, volume: SlabKey) -> bool {
        let waits = |closing: &Option<Closing>| matches!(closing, Some(Closing::Leaving | Closing::Parting));
        !self.connections.iter().any(|(_, c)| c.volume == volume && waits(&c.closing))
    }

    pub(super) fn connections_of(&self, volume: SlabKey) -> Vec<SlabKey> {
        self.connections.iter().filter(|(_, c)| c.volume == volume).map(|(key, _)| key).collect()
    }
}
