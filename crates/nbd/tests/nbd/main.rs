//! The two sessions talk to each other in memory, are fed byte-exact conversations, and are fed rubbish.

mod conversation;
mod golden;
mod requests;
mod robustness;
mod support;
