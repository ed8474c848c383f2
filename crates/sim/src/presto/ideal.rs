//! What prewarming could do at best: an order made by somebody who knows the future.
//!
//! It is a bound in practice, not by proof: nobody without that knowledge came near it. The algorithm: serve the accesses after the failure
//! from cold, and note each object's misses within the horizon. Loading an object before its first miss is worth the weight of all of its
//! misses. Objects are taken by the time of their first miss; whenever those taken need more bytes than rate and limit allow until
//! then, the one worth least per byte is given up. What is left is loaded in the order in which it is needed. For objects of one size this
//! is the optimal schedule of unit jobs with deadlines (J. M. Moore, Management Science 15(1), 1968, with weights); what it leaves out is
//! that objects which were given up could still be loaded before a later miss, and that loading changes what the pools evict.

use super::destination::Loading;
use super::learnt::Goal;
use super::load::Load;
use super::metrics::{Metric, fetch_micros};
use super::objects::{HM1_BYTES, HM3_BYTES, Object};
use super::pools::Pools;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Default)]
struct Job {
    /// The second of the first miss, from 1 on; 0: none yet.
    deadline: u32,
    value: f64,
}

/// The order for `goal`, with a cache of `capacity` bytes.
pub fn ideal(load: &Load, failure: usize, capacity: u64, how: Loading, goal: Goal) -> Vec<Object> {
    let metric = goal.metric;
    let jobs = misses(load, failure, capacity, goal);
    let extents = load.objects.extents();
    let whole = |job: usize| -> Vec<Object> {
        match metric {
            Metric::Both => vec![load.objects.hm1(job as u32), load.objects.hm3(job as u32)],
            _ => vec![Object(job as u32)],
        }
    };
    let bytes = |job: usize| match metric {
        Metric::Both => HM1_BYTES + HM3_BYTES,
        _ if (job as u32) < extents => HM1_BYTES,
        _ => HM3_BYTES,
    };
    let mut by_deadline: Vec<usize> = (0..jobs.len()).filter(|&job| jobs[job].deadline > 0).collect();
    by_deadline.sort_by_key(|&job| jobs[job].deadline);
    let mut taken = BinaryHeap::new();
    let mut given_up = vec![false; jobs.len()];
    let mut sum = 0;
    for &job in &by_deadline {
        let allowed = how.rate.map_or(how.limit, |rate| how.limit.min(rate * u64::from(jobs[job].deadline)));
        // Worth per byte as an integer, so that it has an order.
        taken.push(Reverse(((jobs[job].value / bytes(job) as f64 * 1e12) as u64, job)));
        sum += bytes(job);
        while sum > allowed {
            let Some(Reverse((_, least))) = taken.pop() else { break };
            given_up[least] = true;
            sum -= bytes(least);
        }
    }
    by_deadline.into_iter().filter(|&job| !given_up[job]).flat_map(whole).collect()
}

/// Misses of a cold node: by object, or by extent where only both objects together count.
fn misses(load: &Load, failure: usize, capacity: u64, goal: Goal) -> Vec<Job> {
    let Goal { metric, horizon, .. } = goal;
    let start = load.accesses.get(failure).map_or(0, |access| access.at_millis / 1_000);
    let weights = goal.weights();
    let mut jobs = vec![Job::default(); load.objects.count()];
    let mut pools = Pools::new(load.objects.clone(), capacity);
    for access in &load.accesses[failure..] {
        let second = access.at_millis / 1_000 - start;
        if second >= horizon {
            break;
        }
        let (hm1, hm3) = (load.objects.hm1(access.extent), load.objects.hm3(access.extent));
        let found = (pools.look_up(hm1), pools.look_up(hm3));
        let weight = weights[second as usize];
        let mut miss = |job: usize, worth: f64| {
            let job = &mut jobs[job];
            job.value += weight * worth;
            if job.deadline == 0 {
                job.deadline = second + 1;
            }
        };
        match metric {
            Metric::Both if !(found.0 && found.1) => miss(access.extent as usize, 1.0),
            Metric::Both => {}
            Metric::LookUps | Metric::Latency => {
                let worth = |bytes| if metric == Metric::Latency { fetch_micros(bytes) as f64 } else { 1.0 };
                if !found.0 {
                    miss(hm1.index(), worth(HM1_BYTES));
                }
                if !found.1 {
                    miss(hm3.index(), worth(HM3_BYTES));
                }
            }
        }
    }
    jobs
}
