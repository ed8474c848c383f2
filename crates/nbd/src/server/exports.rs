//! How a session asks its owner about exports.

use crate::ExportInfo;
use std::collections::BTreeMap;

/// The exports that a client may see on this connection; asked during the handshake only.
///
/// `Vec<ExportInfo>` (its first is the default export) and `BTreeMap<String, ExportInfo>` (the default export is
/// the one under the empty name, or the only one) implement it; an owner with thousands of volumes implements it
/// over its own table.
pub trait Exports {
    /// The export of this name; the empty name asks for the default export, which need not exist. Its block sizes
    /// are valid ([`crate::BlockSizes::is_valid`]): the session panics when a client chooses one whose are not.
    fn find(&self, name: &str) -> Option<ExportInfo>;

    /// Calls `visit` with name and description of every export, in a stable order.
    fn list(&self, visit: &mut dyn FnMut(&str, &str));

    /// Why [`Exports::find`] did not find an export although there is one: it is kept from this client, who is told so with
    /// `NBD_REP_ERR_POLICY`. `None`: there is no such export.
    fn refusal(&self, _name: &str) -> Option<String> {
        None
    }

    /// Whether clients may list at all.
    fn may_list(&self) -> bool {
        true
    }
}

impl Exports for Vec<ExportInfo> {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        self.iter()
            .find(|export| export.name == name)
            .or_else(|| self.first().filter(|_| name.is_empty()))
            .cloned()
    }

    fn list(&self, visit: &mut dyn FnMut(&str, &str)) {
        for export in self {
            visit(&export.name, &export.description);
        }
    }
}

impl Exports for BTreeMap<String, ExportInfo> {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let only = || self.values().next().filter(|_| name.is_empty() && self.len() == 1);
        self.get(name).or_else(only).cloned()
    }

    fn list(&self, visit: &mut dyn FnMut(&str, &str)) {
        for export in self.values() {
            visit(&export.name, &export.description);
        }
    }
}
