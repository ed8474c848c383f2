//! An order as the configuration of `forebay appliance`.

use crate::{ApplianceOrder, VolumeOrder};
use forebay_units::{Bytes, Secret};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// How often an appliance looks at what it serves, where its order says nothing of that (ours).
const INTERVAL_MS: u64 = 1_000;

/// Where an appliance is to listen.
pub(super) struct Listeners<'a> {
    /// NBD clients: `unix:PATH` or `tcp:ADDRESS:PORT`.
    pub(super) nbd: String,
    /// The control API over TCP.
    pub(super) http: Option<String>,
    /// The control API on a unix socket.
    pub(super) http_socket: Option<PathBuf>,
    /// What volumes and the control API over TCP are guarded with.
    pub(super) secret: Option<&'a Secret>,
    /// How long an origin may take to let it in; `None`: as long as by default.
    pub(super) patience: Option<&'static str>,
}

/// The file, with `room` for caches.
pub(super) fn configuration(order: &ApplianceOrder, room: Bytes, listeners: &Listeners<'_>) -> Vec<u8> {
    let mut root = Table::new();
    root.insert("listen".into(), Value::Array(vec![listeners.nbd.clone().into()]));
    let mut http = Table::new();
    http.insert("listen".into(), listeners.http.clone().unwrap_or_else(|| "off".to_owned()).into());
    if let Some(socket) = &listeners.http_socket {
        http.insert("socket".into(), socket.display().to_string().into());
    }
    if let Some(secret) = listeners.secret {
        http.insert("token".into(), secret.reveal().into());
    }
    root.insert("http".into(), http.into());
    root.insert("cache".into(), Table::from_iter([("memory".to_owned(), size(room))]).into());
    let interval = format!("{}ms", order.interval_ms.unwrap_or(INTERVAL_MS));
    root.insert("control".into(), Table::from_iter([("interval".to_owned(), interval.into())]).into());
    let volumes = order.volumes.iter().map(|order| volume(order, listeners).into());
    root.insert("volume".into(), Value::Array(volumes.collect()));
    root.to_string().into_bytes()
}

fn volume(order: &VolumeOrder, listeners: &Listeners<'_>) -> Table {
    let mut origin = Table::new();
    origin.insert("type".into(), "nbd".into());
    origin.insert("uri".into(), order.origin.uri.to_string().into());
    if let Some(patience) = listeners.patience {
        origin.insert("connect_timeout".into(), patience.into());
    }
    if let Some(tls) = &order.origin.tls {
        let path = |path: &Path| Value::from(path.display().to_string());
        if let Some(authorities) = &tls.authorities {
            origin.insert("authorities".into(), path(authorities));
        }
        if let Some((certificate, key)) = &tls.identity {
            origin.insert("certificate".into(), path(certificate));
            origin.insert("key".into(), path(key));
        }
    }
    let mut volume = Table::new();
    volume.insert("name".into(), order.name.clone().into());
    volume.insert("origin".into(), origin.into());
    volume.insert("block_size".into(), size(Bytes(order.block_size.bytes())));
    volume.insert("cache".into(), size(order.cache));
    volume.insert("read_only".into(), order.read_only.into());
    if let Some(secret) = listeners.secret {
        let secret = order.secret.as_ref().unwrap_or(secret);
        volume.insert("secret".into(), secret.reveal().into());
    }
    volume
}

/// Whole bytes: the text has no unit to round to.
fn size(bytes: Bytes) -> Value {
    bytes.get().to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_often_as_is_ordered() {
        let interval = |ordered: &str| {
            let text = format!(
                r#"{{"id":"a","host":"h","memory":104857600,"token":"0123456789abcdef","volumes":[]{ordered}}}"#
            );
            let order: ApplianceOrder = serde_json::from_str(&text).unwrap();
            let nbd = "unix:nbd.sock".to_owned();
            let listeners = Listeners { nbd, http: None, http_socket: None, secret: None, patience: None };
            let file = configuration(&order, Bytes::mib(1), &listeners);
            let file: Table = String::from_utf8(file).unwrap().parse().unwrap();
            file["control"]["interval"].as_str().unwrap().to_owned()
        };
        assert_eq!(interval(r#","interval_ms":200"#), "200ms");
        // As earlier versions order.
        assert_eq!(interval(""), "1000ms");
    }
}
