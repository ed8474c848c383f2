//! Every origin and every layer against one conformance suite, and each against what it alone promises.

mod conformance;
mod disk_group;
mod extents;
mod file;
mod layers;
mod nbd;
mod nbd_flushes;
mod nbd_lanes;
mod nbd_server;
mod peers;
mod support;
