//! Writers: one per format that `convert` can produce. Each takes requests and a `Write`; none opens files.

mod forebay;

pub use forebay::ForebayWriter;
