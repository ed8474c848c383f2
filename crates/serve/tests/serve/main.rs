//! The daemon as its users meet it: files that are wrong, files that are right, clients, metrics, decisions, restarts.

mod config;
mod control;
mod documents;
mod flash;
mod http;
mod interference;
mod leases;
mod prewarm;
mod prometheus;
mod reservations;
mod routes;
mod snapshots;
mod support;
