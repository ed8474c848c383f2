//! Nothing to build here: `tests/house` holds the tree to its own rules.
