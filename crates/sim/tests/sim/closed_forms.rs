//! Queues and caches whose answers are known.

use crate::{compare, run, scenario};

/// The mean of a G/G/c queue of one volume without a cache, in milliseconds.
fn mean_ms(servers: u32, distribution: &str, rate: f64, seed: u64) -> f64 {
    let scenario = scenario(&format!(
        r#"
        name = "queue"
        duration = "4000s"
        measure_from = "100s"
        cache.hit_latency = "0us"
        origin = [{{ name = "o", type = "servers", servers = {servers}, service = "10ms", distribution = "{distribution}" }}]
        [[volume]]
        name = "v"
        size = "1GiB"
        load = [{{ arrivals = "poisson", rate = {rate}, popularity = "uniform", outstanding_max = 100000 }}]
        "#
    ));
    let outcome = run(&scenario, seed);
    outcome.volumes[0].totals.latency.mean_ms.expect("requests completed")
}

#[test]
fn one_exponential_server_is_m_m_1() {
    // T = s / (1 - u): 10 ms / 0.5, / 0.2.
    for (rate, expected, tolerance) in [(50.0, 20.0, 0.02), (80.0, 50.0, 0.05)] {
        compare(&format!("M/M/1 at {rate}/s"), mean_ms(1, "exponential", rate, 3), expected, tolerance);
    }
}

#[test]
fn one_constant_server_is_m_d_1() {
    // T = s + u s / (2 (1 - u)): 10 + 5 = 15 ms at 0.5, 10 + 20 = 30 ms at 0.8.
    for (rate, expected) in [(50.0, 15.0), (80.0, 30.0)] {
        compare(&format!("M/D/1 at {rate}/s"), mean_ms(1, "constant", rate, 4), expected, 0.03);
    }
}

/// The mean wait of M/D/c in service times, exactly (Crommelin, 1932, as a sum by Franx, "A simple solution for the
/// M/D/c waiting time distribution", 2001), by the stationary distribution of the embedded chain: in one service time
/// at most `c` leave and a Poisson number arrives.
fn m_d_c_mean_wait(servers: usize, utilisation: f64) -> f64 {
    let load = servers as f64 * utilisation;
    let states = 600;
    let mut arrivals = vec![(-load).exp()];
    (1..states).for_each(|n| arrivals.push(arrivals[n - 1] * load / n as f64));
    let mut chain = vec![0.0; states];
    chain[0] = 1.0;
    for _ in 0..5_000 {
        let mut next = vec![0.0; states];
        for (n, &weight) in chain.iter().enumerate().filter(|(_, weight)| **weight > 1e-15) {
            let left = n.saturating_sub(servers);
            for (arrived, chance) in arrivals[..states - left].iter().enumerate() {
                next[left + arrived] += weight * chance;
            }
        }
        let sum: f64 = next.iter().sum();
        next.iter_mut().for_each(|weight| *weight /= sum);
        let change: f64 = next.iter().zip(&chain).map(|(a, b)| (a - b).abs()).sum();
        chain = next;
        if change < 1e-12 {
            break;
        }
    }
    // The chain's law is that of the number in the system at any time; Little's law gives the wait.
    let waiting: f64 = chain.iter().enumerate().map(|(n, p)| n.saturating_sub(servers) as f64 * p).sum();
    waiting / load
}

#[test]
fn several_constant_servers_are_m_d_c() {
    assert!((m_d_c_mean_wait(1, 0.8) - 2.0).abs() < 1e-3, "M/D/1: u / (2 (1 - u)) = 2");
    for (servers, rate) in [(4u32, 320.0), (8, 720.0)] {
        let utilisation = rate * 0.010 / f64::from(servers);
        let expected = 10.0 * (1.0 + m_d_c_mean_wait(servers as usize, utilisation));
        compare(&format!("M/D/{servers} at {rate}/s"), mean_ms(servers, "constant", rate, 5), expected, 0.02);
    }
}

#[test]
fn disks_of_fixed_service_are_as_many_m_d_1() {
    // Four spindles at random, 80/s each at 10 ms: 30 ms; the arrivals at each are a quarter of a Poisson process.
    let scenario = scenario(
        r#"
        name = "disks"
        duration = "2000s"
        measure_from = "100s"
        cache.hit_latency = "0us"
        origin = [{ name = "o", type = "disks", spindles = 4, disk = "fixed", service = "10ms" }]
        volume = [{ name = "v", size = "64GiB", load = [{ arrivals = "poisson", rate = 320, popularity = "uniform" }] }]
        "#,
    );
    let outcome = run(&scenario, 6);
    compare("4 x M/D/1", outcome.volumes[0].totals.latency.mean_ms.unwrap(), 30.0, 0.03);
    let busy: f64 = outcome.origins[0].intervals.iter().map(|row| row.utilisation).sum();
    compare("utilisation", busy / outcome.origins[0].intervals.len() as f64, 0.8, 0.01);
}

#[test]
fn a_closed_loop_follows_the_balanced_network() {
    // N = 10 clients thinking Z = 20 ms at one exponential server of 10 ms: mean value analysis, exactly.
    let (service, think) = (0.010, 0.020);
    let (mut queue, mut rate) = (0.0, 0.0);
    for n in 1..=10 {
        let response = service * (1.0 + queue);
        rate = f64::from(n) / (response + think);
        queue = rate * response;
    }
    let scenario = scenario(
        r#"
        name = "closed"
        duration = "2000s"
        measure_from = "100s"
        cache.hit_latency = "0us"
        origin = [{ name = "o", type = "servers", service = "10ms", distribution = "exponential" }]
        [[volume]]
        name = "v"
        size = "1GiB"
        load = [{ arrivals = "closed", clients = 10, think = "20ms", popularity = "uniform" }]
        "#,
    );
    let totals = run(&scenario, 7).volumes[0].totals.clone();
    compare("closed network, requests/s", totals.iops, rate, 0.02);
    compare("closed network, ms", totals.latency.mean_ms.unwrap(), 1_000.0 * queue / rate, 0.02);
}

/// Che's approximation of the hit ratio of LRU under independent references (Che, Tung and Wang, IEEE JSAC 20(7),
/// 2002): a block is hit with `1 - exp(-p t)`, where `t` is the time in which the cache's size of blocks is seen.
fn che(blocks: usize, theta: f64, cache: f64) -> f64 {
    let weights: Vec<f64> = (1..=blocks).map(|rank| (rank as f64).powf(-theta)).collect();
    let sum: f64 = weights.iter().sum();
    let filled = |t: f64| weights.iter().map(|w| 1.0 - (-w / sum * t).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if filled(middle) < cache { low = middle } else { high = middle }
    }
    weights.iter().map(|w| w / sum * (1.0 - (-w / sum * low).exp())).sum()
}

#[test]
fn lru_follows_ches_approximation() {
    for (theta, cache) in [(0.6, 2_000u64), (0.9, 500), (0.9, 4_000), (1.2, 1_000)] {
        let scenario = scenario(&format!(
            r#"
            name = "lru"
            duration = "600s"
            measure_from = "200s"
            cache = {{ memory = "1GiB", hit_latency = "10us", sizing = "fixed", policy = "lru" }}
            origin = [{{ name = "o", type = "servers", servers = 64, service = "1ms" }}]
            [[volume]]
            name = "v"
            size = "80MB"
            cache = "{}KiB"
            load = [{{ arrivals = "poisson", rate = 2000, theta = {theta}, working_set = "78125KiB" }}]
            "#,
            cache * 4
        ));
        let totals = run(&scenario, 8).volumes[0].totals.clone();
        // 78,125 KiB are 19,531 blocks of 4 KiB.
        let what = format!("LRU, Zipf {theta}, {cache} of 19,531 blocks");
        compare(&what, totals.hit_ratio.unwrap(), che(19_531, theta, cache as f64), 0.02);
    }
}

#[test]
fn what_a_closed_form_says_is_held_against_what_came_out() {
    for (text, tolerance) in [
        (include_str!("../../../../scenarios/m-m-1.toml"), 0.1),
        (include_str!("../../../../scenarios/m-d-c.toml"), 0.03),
        (include_str!("../../../../scenarios/closed-network.toml"), 0.03),
    ] {
        let scenario = scenario(text).within(forebay_units::Nanos::secs(300));
        let outcome = run(&scenario, 6);
        assert!(!outcome.expected.is_empty() && outcome.expected.len() == scenario.expected.len());
        for expected in &outcome.expected {
            let totals = &outcome.volumes[0].totals;
            let found = if expected.number == "iops" { totals.iops } else { totals.latency.mean_ms.unwrap() };
            assert_eq!(expected.found, Some(found));
            compare(&expected.by, found, expected.expected, tolerance);
            let error = expected.error.unwrap();
            assert!((expected.expected * (1.0 + error) - found).abs() < 1e-9 * found, "{expected:?}");
        }
    }
}
