//! Where the data lives: files, block devices, NBD exports, an emulated disk group, and layers stacked on any of them.

mod request;

pub use request::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId, OriginTraits,
};
