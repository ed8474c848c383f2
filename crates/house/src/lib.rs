//! Nothing to build here: `tests/house.rs` holds the tree to its own rules.
