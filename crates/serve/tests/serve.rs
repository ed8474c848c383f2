//! The daemon as its users meet it: files that are wrong, files that are right, clients, metrics, decisions, restarts.

#[path = "serve/config.rs"]
mod config;
#[path = "serve/control.rs"]
mod control;
#[path = "serve/documents.rs"]
mod documents;
#[path = "serve/flash.rs"]
mod flash;
#[path = "serve/http.rs"]
mod http;
#[path = "serve/interference.rs"]
mod interference;
#[path = "serve/leases.rs"]
mod leases;
#[path = "serve/prewarm.rs"]
mod prewarm;
#[path = "serve/prometheus.rs"]
mod prometheus;
#[path = "serve/reservations.rs"]
mod reservations;
#[path = "serve/routes.rs"]
mod routes;
#[path = "serve/snapshots.rs"]
mod snapshots;
#[path = "serve/support.rs"]
mod support;
