//! The most that a cache can answer of a load, by its size and by what the load asks for.
//!
//! It is *not* what a cache will answer: whatever it holds is taken to be what is asked for most. Invariant: on average no policy and no size that the volume may
//! have answers more reads than is said, those that wait for the same blocks on their way to others included.

use super::{ArrivalKind, LoadTable, Popularity, Scenario, Sizing, VolumeTable};
use forebay_units::{Bytes, Nanos};

/// The most that is answered of the reads of a load before they reach the origin, as shares.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    /// By the largest cache that the volume may have.
    pub(super) by_cache: f64,
    /// By that and by reads of the same blocks that are under way, as many as may be outstanding.
    pub(super) in_all: f64,
    /// With the arithmetic, in words; empty where all of them may be answered, or none.
    pub(super) said: String,
}

impl Held {
    fn all_or_none(share: f64) -> Held {
        Held { by_cache: share, in_all: share, said: String::new() }
    }
}

/// A share in words: to the whole per cent, where that says enough.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 10.0 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

impl Scenario {
    /// The largest cache that a volume may have.
    fn cache_most(&self, volume: &VolumeTable) -> Bytes {
        let most = match (self.cache.sizing, volume.cache) {
            (_, Some(cache)) => cache,
            (Sizing::Fixed, None) => self.cache.memory,
            (Sizing::Control | Sizing::Eafc, None) => {
                self.cache.memory.min(volume.maximum.unwrap_or(volume.size))
            }
        };
        // It is counted in whole blocks, rounded up.
        Bytes(volume.block_size().blocks_for(most).saturating_mul(volume.block_size().bytes()))
    }

    /// The most that is answered before the origin of the reads of a drawn load, while it lasts for `span`.
    pub(super) fn held(&self, volume: &VolumeTable, load: &LoadTable, span: Nanos) -> Held {
        if !self.may_be_cached(volume) {
            return Held::all_or_none(0.0);
        }
        let is_open = matches!(load.arrivals, ArrivalKind::Poisson | ArrivalKind::Constant);
        // A tier may hold everything.
        let (true, None, Some(rate)) = (is_open, &volume.tier, load.rate) else {
            return Held::all_or_none(1.0);
        };
        let (each, set) = (load.request_bytes(volume) as f64, load.span_bytes(volume) as f64);
        let places = load.places(volume);
        let cache = self.cache_most(volume);
        let under_way = f64::from(load.outstanding_max) * each;
        let share = |bytes: f64| match load.popularity {
            Popularity::Sequential => {
                // In each round no more than is held when it begins, and in the first one what was held before.
                let asked = rate * load.read_share * each * span.as_secs_f64();
                bytes / set + bytes / asked.max(f64::MIN_POSITIVE)
            }
            Popularity::Zipf | Popularity::Uniform => places.most_of(bytes / each),
        };
        let (by_cache, in_all) = (share(cache.as_f64()).min(1.0), share(cache.as_f64() + under_way).min(1.0));
        let how = match load.popularity {
            Popularity::Sequential => "one after the other",
            Popularity::Uniform => "evenly",
            Popularity::Zipf => "by Zipf's law",
        };
        let name = &volume.name;
        let said = format!(
            "of the reads of `{name}`, which go {how} to {}, a cache of {cache} answers {} at most, and {} with those that wait for the same reads",
            Bytes(set as u64),
            percent(by_cache),
            percent(in_all),
        );
        let is_worth_saying = by_cache < 1.0 && load.read_share > 0.0;
        Held { by_cache, in_all, said: if is_worth_saying { said } else { String::new() } }
    }

    /// [`Held::said`] of a load by its place, in brackets; nothing where that says nothing.
    pub(super) fn in_brackets(&self, place: usize, number: usize, span: Nanos) -> String {
        let volume = &self.volume[place];
        match self.held(volume, &volume.load[number], span).said {
            said if said.is_empty() => said,
            said => format!(" ({said})"),
        }
    }

    /// The same as far as more may be refused: sizes that are set may be tried out, too small ones among them, and are never.
    pub(super) fn held_in_any_case(&self, volume: &VolumeTable, load: &LoadTable, span: Nanos) -> f64 {
        match volume.cache {
            Some(cache) if cache > Bytes::ZERO => 1.0,
            _ => self.held(volume, load, span).in_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Simulation, Traces};

    #[test]
    fn no_policy_answers_more_than_is_said() {
        for policy in ["lru", "two-pool", "sieve", "s3-fifo", "lirs", "adaptive"] {
            for load in ["\"uniform\"", "\"zipf\"", "\"zipf\", theta = 1.2", "\"sequential\""] {
                for size in ["4KiB", "64KiB"] {
                    let scenario: Scenario = toml::from_str(&format!(
                        r#"
                        name = "held"
                        duration = "60s"
                        cache = {{ memory = "16MiB", sizing = "fixed", shared = true, policy = "{policy}" }}
                        origin = [{{ name = "o", type = "servers", servers = 64, service = "1ms" }}]
                        [[volume]]
                        name = "v"
                        size = "64MiB"
                        load = [{{ arrivals = "poisson", rate = 1000, popularity = {load}, request_size = "{size}", outstanding_max = 64 }}]
                        "#
                    ))
                    .expect("a scenario");
                    let volume = &scenario.volume[0];
                    let held = scenario.held(volume, &volume.load[0], scenario.duration);
                    assert!(held.by_cache <= held.in_all && held.in_all <= 1.0, "{held:?}");
                    let outcome =
                        Simulation::new(&scenario, &Traces::new(), None).expect("it can be run").run();
                    let hits = outcome.volumes[0].totals.hit_ratio.expect("reads");
                    println!("{policy} {load} {size}: {hits:.3} of {:.3}, {:.3}", held.by_cache, held.in_all);
                    // Of 60,000 requests or more a hundredth varies by less than that.
                    assert!(hits <= held.by_cache + 0.01, "{policy} {load} {size}: {hits} and {held:?}");
                    assert!(
                        policy != "lru" || load != "\"uniform\"" || hits > 0.8 * held.by_cache,
                        "{hits}, and {held:?}"
                    );
                }
            }
        }
    }
}
