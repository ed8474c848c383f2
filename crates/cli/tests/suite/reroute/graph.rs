//! By QEMU's block graph: clients of its export notice nothing, as its guests would not.

use super::{Clients, PAUSE_P99_MAX, Scene, reroutes, soon};
use crate::support::{Running, spawn, wait_for};
use forebay_actuate::route::QmpRoute;
use forebay_actuate::{Passage, Route, RouteError};
use forebay_prerequisite::programs;
use std::path::Path;
use std::process::Child;

/// A `qemu-storage-daemon` with a permanent node `db`, whose client is described by `server`, exported on `qemu.sock`.
pub(crate) fn storage_daemon(namespace: Option<&str>, folder: &Path, first: &str) -> Child {
    let path = |name: &str| folder.join(name).display().to_string();
    let args = [
        "--chardev".to_owned(),
        format!("socket,id=monitor,server=on,wait=off,path={}", path("qmp.sock")),
        "--monitor".to_owned(),
        "chardev=monitor".to_owned(),
        "--blockdev".to_owned(),
        format!("driver=nbd,node-name=db-first,{first}"),
        "--blockdev".to_owned(),
        "driver=raw,node-name=db,file=db-first".to_owned(),
        "--nbd-server".to_owned(),
        format!("addr.type=unix,addr.path={},max-connections=0", path("qemu.sock")),
        "--export".to_owned(),
        "type=nbd,id=db,node-name=db,name=db,writable=on".to_owned(),
    ];
    spawn(namespace, "qemu-storage-daemon", args)
}

#[test]
fn clients_of_qemu_are_moved_and_notice_nothing() {
    if !programs("re-routes in QEMU", &["fio", "nbdcopy", "qemu-storage-daemon"], false) {
        return;
    }
    let mut scene = Scene::new(None, "", "");
    let first = format!("server.type=unix,server.path={},export=db", scene.path("storage.sock").display());
    let _qemu = Running(vec![storage_daemon(None, scene.folder.path(), &first)]);
    let socket = scene.path("qemu.sock");
    wait_for(&socket);
    let route = QmpRoute::raw(scene.path("qmp.sock"), "db", "db-first");
    assert_eq!(route.now(soon()).unwrap(), scene.export("storage.sock", "db"));
    let clients = Clients::new(&scene, "qemu.sock");
    clients.work("QEMU", PAUSE_P99_MAX, || {
        (0..reroutes(5)).flat_map(|_| scene.there_and_back(&route)).collect()
    });
    let before = route.now(soon()).unwrap();
    for (export, socket) in [("db", "nobody.sock"), ("other", "storage.sock")] {
        let nowhere = Passage {
            to: scene.export(socket, export),
            epoch: scene.epoch,
            settled: false,
            comes_back: true,
        };
        let refused = route.switch(&nowhere, soon()).unwrap_err();
        assert!(matches!(refused, RouteError::Unusable { .. }), "{refused}");
    }
    assert_eq!(route.now(soon()).unwrap(), before);
    // An appliance dies with writes that were not flushed: a daemon has no device to give another node, and stays on the dead path.
    let (_, back) = scene.there(&route);
    Clients::new(&scene, "qemu.sock").write_once();
    scene.appliance = None;
    let refused = scene.back_from_the_dead(&route, back).unwrap_err();
    let told =
        matches!(refused, RouteError::NotDrained { .. }) && refused.to_string().contains("guest's device");
    assert!(told && refused.had_no_effect(), "{refused}");
}
