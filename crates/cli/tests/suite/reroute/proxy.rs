//! By a permanent proxy: clients notice nothing.

use super::{Scene, reroutes, soon, spawn, while_clients_work};
use crate::support::{Running, prerequisites, wait_for};
use forebay_actuate::route::ProxyRoute;
use forebay_actuate::{Passage, Route, RouteError};
use forebay_nbd::Uri;
use std::time::Duration;

#[test]
fn clients_of_a_proxy_are_moved_and_notice_nothing() {
    if !prerequisites("re-routes by a proxy", &["fio", "nbdcopy"], false) {
        return;
    }
    let mut scene = Scene::new(None, "", "");
    let origin = Uri::unix(scene.path("storage.sock"), "db");
    let text = format!(
        "listen = [\"unix:proxy.sock\"]\nroutes.path = \"routes.json\"\ncontrol.enabled = false\ncache.memory = \"0\"\n\
         [http]\nlisten = \"off\"\nsocket = \"proxy-http.sock\"\n\
         [[volume]]\nname = \"db\"\norigin = \"{origin}\"\ncache = \"0\"\n"
    );
    let configuration = scene.configuration("proxy", &text);
    let serve = ["serve".as_ref(), configuration.as_os_str()];
    let _proxy = Running(vec![spawn(None, env!("CARGO_BIN_EXE_forebay"), serve)]);
    let socket = scene.path("proxy.sock");
    wait_for(&socket);
    let route = ProxyRoute { control: scene.control("proxy-http.sock"), volume: "db".to_owned() };
    let p99_max = Duration::from_millis(50);
    while_clients_work("proxy", &mut scene, &socket, p99_max, |scene| {
        (0..reroutes()).flat_map(|_| scene.there_and_back(&route)).collect()
    });
    let nowhere = Passage { to: scene.export("nobody.sock", "db"), epoch: scene.epoch, settled: false };
    let refused = route.switch(&nowhere, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::Unusable { .. }), "{refused}");
}
