//! By a permanent proxy: clients notice nothing.

use super::{Clients, PAUSE_P99_MAX, Scene, reroutes, soon, spawn};
use crate::support::{Running, wait_for};
use forebay_actuate::route::ProxyRoute;
use forebay_actuate::{Passage, Route, RouteError};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use std::process::Command;

/// A proxy before the storage side, on `proxy.sock`, and the route that it is.
pub(super) fn permanent_proxy(scene: &Scene) -> (Running, ProxyRoute) {
    let origin = Uri::unix(scene.path("storage.sock"), "db");
    let text = format!(
        "listen = [\"unix:proxy.sock\"]\nroutes.path = \"routes.json\"\ncontrol.enabled = false\ncache.memory = \"0\"\n\
         [http]\nlisten = \"off\"\nsocket = \"proxy-http.sock\"\n\
         [[volume]]\nname = \"db\"\norigin = \"{origin}\"\ncache = \"0\"\n"
    );
    scene.configuration("proxy", &text);
    let proxy = start(scene);
    wait_for(&scene.path("proxy.sock"));
    (proxy, ProxyRoute { control: scene.control("proxy-http.sock"), volume: "db".to_owned() })
}

fn start(scene: &Scene) -> Running {
    let configuration = scene.path("proxy.toml");
    let serve = ["serve".as_ref(), configuration.as_os_str()];
    Running(vec![spawn(None, env!("CARGO_BIN_EXE_forebay"), serve)])
}

#[test]
fn clients_of_a_proxy_are_moved_and_notice_nothing() {
    if !programs("re-routes by a proxy", &["fio", "nbdcopy"], false) {
        return;
    }
    let mut scene = Scene::new(None, "", "");
    let (proxy, route) = permanent_proxy(&scene);
    let socket = scene.path("proxy.sock");
    let clients = Clients::new(&scene, "proxy.sock");
    clients.work("proxy", PAUSE_P99_MAX, || {
        (0..reroutes(5)).flat_map(|_| scene.there_and_back(&route)).collect()
    });
    let nowhere = Passage {
        to: scene.export("nobody.sock", "db"),
        epoch: scene.epoch,
        settled: false,
        comes_back: true,
    };
    let refused = route.switch(&nowhere, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::Unusable { .. }), "{refused}");

    // It begins anew while the appliance that it was sent to is gone: it can be sent elsewhere all the same.
    let (_, back) = scene.there(&route);
    drop(proxy);
    scene.appliance = None;
    std::fs::remove_file(scene.path("proxy-http.sock")).unwrap();
    let _proxy = start(&scene);
    wait_for(&scene.path("proxy-http.sock"));
    scene.back_from_the_dead(&route, back).unwrap_or_else(|error| panic!("{error}"));
    let copied = Command::new("nbdcopy")
        .args([Uri::unix(&socket, "db").to_string().as_str(), "null:"])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}
