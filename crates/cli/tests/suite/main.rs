//! The real binary, run as a person or a script runs it: on small traces made here, and on recorded ones.
//!
//! Recorded traces lie in the folder that `FOREBAY_TRACES` names (by default beside the workspace, in `shared/traces`). Where it is
//! absent, tests that need it say `skipped: ...` and pass, except under `CI=true`, where they fail.

mod bad_input;
mod capture;
mod chaos;
mod client;
mod control;
mod crash;
mod daemon;
mod demo;
mod emulated;
mod guest;
mod interference;
mod interoperability;
mod killed_proxy;
mod ledger;
mod model;
mod mrc;
mod overload;
mod peers;
mod placement;
mod plan;
mod prewarming;
mod protocol;
mod provision;
mod refused;
mod replay;
mod reroute;
mod restarts;
mod secured;
mod serve;
mod sim;
mod simulate;
mod simulated_plan;
mod support;
mod tools;
mod trace;
mod watch;
mod wire;
