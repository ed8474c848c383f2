//! Policies by name: what configurations, command lines and reports say, and what stands behind it.

use crate::{Arc, Clock, Fifo, Lfu, Lirs, Lru, Policy, S3Fifo, Sieve, Slru, TwoPool, TwoQ, WTinyLfu};
use std::fmt::{self, Display};
use std::str::FromStr;

/// A policy that needs no knowledge of the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// [`Fifo`]
    Fifo,
    /// [`Clock`]
    Clock,
    /// [`Sieve`]
    Sieve,
    /// [`Lru`]
    Lru,
    /// [`Slru`]
    Slru,
    /// [`TwoPool`]
    TwoPool,
    /// [`TwoQ`]
    TwoQ,
    /// [`Lfu`]
    Lfu,
    /// [`Arc`] with real steps
    Arc,
    /// [`Arc`] with integer steps
    ArcInteger,
    /// [`Lirs`]
    Lirs,
    /// [`S3Fifo`]
    S3Fifo,
    /// [`WTinyLfu`]
    WTinyLfu,
}

impl PolicyKind {
    /// All of them, from the plainest on.
    pub const ALL: [PolicyKind; 13] = [
        PolicyKind::Fifo,
        PolicyKind::Clock,
        PolicyKind::Sieve,
        PolicyKind::Lru,
        PolicyKind::Slru,
        PolicyKind::TwoPool,
        PolicyKind::TwoQ,
        PolicyKind::Lfu,
        PolicyKind::Arc,
        PolicyKind::ArcInteger,
        PolicyKind::Lirs,
        PolicyKind::S3Fifo,
        PolicyKind::WTinyLfu,
    ];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::Fifo => "fifo",
            PolicyKind::Clock => "clock",
            PolicyKind::Sieve => "sieve",
            PolicyKind::Lru => "lru",
            PolicyKind::Slru => "slru",
            PolicyKind::TwoPool => "two-pool",
            PolicyKind::TwoQ => "2q",
            PolicyKind::Lfu => "lfu",
            PolicyKind::Arc => "arc",
            PolicyKind::ArcInteger => "arc-integer",
            PolicyKind::Lirs => "lirs",
            PolicyKind::S3Fifo => "s3-fifo",
            PolicyKind::WTinyLfu => "w-tinylfu",
        }
    }

    /// An empty policy of this kind, of capacity 0.
    pub fn new_policy(self) -> Box<dyn Policy + Send> {
        match self {
            PolicyKind::Fifo => Box::new(Fifo::new()),
            PolicyKind::Clock => Box::new(Clock::new()),
            PolicyKind::Sieve => Box::new(Sieve::new()),
            PolicyKind::Lru => Box::new(Lru::new()),
            PolicyKind::Slru => Box::new(Slru::default()),
            PolicyKind::TwoPool => Box::new(TwoPool::default()),
            PolicyKind::TwoQ => Box::new(TwoQ::new()),
            PolicyKind::Lfu => Box::new(Lfu::new()),
            PolicyKind::Arc => Box::new(Arc::new()),
            PolicyKind::ArcInteger => Box::new(Arc::integer()),
            PolicyKind::Lirs => Box::new(Lirs::new()),
            PolicyKind::S3Fifo => Box::new(S3Fifo::new()),
            PolicyKind::WTinyLfu => Box::new(WTinyLfu::new()),
        }
    }
}

impl Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        write!(f, "`{}` is not a policy: expected one of {names}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<PolicyKind, UnknownPolicy> {
        let found = PolicyKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_policies() {
        for kind in PolicyKind::ALL {
            assert_eq!((kind.name().parse(), kind.new_policy().name()), (Ok(kind), kind.name()));
        }
        let error = "mru".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(error.starts_with("`mru` is not a policy: expected one of fifo, clock, "), "{error}");
    }
}
