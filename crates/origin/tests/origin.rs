//! Every origin and every layer against one conformance suite, and each against what it alone promises.

mod suite {
    pub(crate) mod conformance;
    pub(crate) mod disk_group;
    pub(crate) mod extents;
    pub(crate) mod file;
    pub(crate) mod layers;
    pub(crate) mod nbd;
    pub(crate) mod nbd_flushes;
    pub(crate) mod nbd_lanes;
    pub(crate) mod nbd_server;
    pub(crate) mod peers;
    pub(crate) mod support;
}
