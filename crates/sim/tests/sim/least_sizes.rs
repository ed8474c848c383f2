//! The least caches that keep what was promised, against all sizes tried.

use super::scenario;
use forebay_sim::scenario::Scenario;
use forebay_sim::{Outcome, SizeRange, Traces, least_sizes, with_caches};
use forebay_units::Bytes;

const STEP: Bytes = Bytes::kib(64);

/// Volumes of 4 MiB that read 80 times a second, on one server each unless `shares`, with promises of a mean latency in ms.
fn small(shares: bool, promises: &[(&str, Option<f64>)]) -> Scenario {
    let mut text = String::from("name = \"small\"\nduration = \"300s\"\n");
    let origins = if shares { vec!["o"] } else { promises.iter().map(|(name, _)| *name).collect() };
    for name in &origins {
        let services = 1 + u32::from(shares);
        text.push_str(&format!(
            "[[origin]]\nname = \"{name}\"\ntype = \"servers\"\nservers = {services}\nservice = \"10ms\"\ndistribution = \"exponential\"\n"
        ));
    }
    for (name, promise) in promises {
        let origin = if shares { "o" } else { name };
        text.push_str(&format!(
            "[[volume]]\nname = \"{name}\"\nsize = \"4MiB\"\norigin = \"{origin}\"\nload = [{{ arrivals = \"poisson\", rate = 80, theta = 0.9 }}]\n"
        ));
        if let Some(milliseconds) = promise {
            text.push_str(&format!(
                "[[objective]]\nvolume = \"{name}\"\nlatency = \"{milliseconds}ms\"\nconforming_share = 0.8\n"
            ));
        }
    }
    scenario(&text)
}

fn range(least_kib: u64, guess_kib: u64) -> SizeRange {
    SizeRange { least: Bytes::kib(least_kib), guess: Bytes::kib(guess_kib), most: Bytes::mib(4) }
}

fn run(scenario: &Scenario, caches: &[Bytes]) -> Outcome {
    with_caches(scenario, &Traces::new(), 7, caches).expect("a good scenario")
}

fn keeps_all(outcome: &Outcome) -> bool {
    outcome.volumes.iter().flat_map(|volume| &volume.objectives).all(|objective| objective.met != Some(false))
}

/// A little cache is the worse one at times, by chance, and a larger one than the guess is not the least where that suffices.
#[test]
fn above_a_guess_that_suffices_none_is_found() {
    let near = scenario(
        "name = \"near\"\nduration = \"100s\"\n\
         [[origin]]\nname = \"o\"\ntype = \"servers\"\nservice = \"10ms\"\ndistribution = \"exponential\"\n\
         [[volume]]\nname = \"v\"\nsize = \"64MiB\"\norigin = \"o\"\n\
         load = [{ arrivals = \"poisson\", rate = 70, popularity = \"uniform\" }]\n\
         [[objective]]\nvolume = \"v\"\nlatency = \"48ms\"\nconforming_share = 0.99\n",
    );
    let (mut kept, mut odd) = (0, 0);
    for seed in 1..=48 {
        let keeps = |cache: Bytes| keeps_all(&with_caches(&near, &Traces::new(), seed, &[cache]).unwrap());
        if keeps(Bytes::ZERO) {
            kept += 1;
            odd += usize::from(!keeps(Bytes::kib(640)) || !keeps(Bytes::mib(1)));
            let to_4_mib = SizeRange { least: Bytes::ZERO, guess: Bytes::ZERO, most: Bytes::mib(4) };
            let found = least_sizes(&near, &Traces::new(), seed, &[to_4_mib], STEP).unwrap();
            assert_eq!(found.caches, [Bytes::ZERO], "seed {seed}");
        }
    }
    println!("{kept} of 48 seeds keep it without a cache, and {odd} of those not with a little");
    assert!(odd > 0, "nothing is told by {kept}");
}

#[test]
fn of_one_volume_it_is_the_least_of_all_sizes_whatever_was_guessed() {
    let scenario = small(false, &[("v", Some(8.0))]);
    let by_hand = (0..=64).map(|number| Bytes(number * STEP.get()));
    let by_hand =
        by_hand.clone().find(|cache| keeps_all(&run(&scenario, &[*cache]))).expect("4 MiB hold all");
    assert!(by_hand > Bytes::ZERO && by_hand < Bytes::mib(3), "{by_hand}");
    for guess_kib in [0, 640, 2_048, 4_096] {
        let found = least_sizes(&scenario, &Traces::new(), 7, &[range(0, guess_kib)], STEP).unwrap();
        assert_eq!(found.caches, [by_hand], "guessed {guess_kib} KiB");
        assert!(keeps_all(&found.outcome) && found.runs <= 9, "{} runs", found.runs);
    }
    // What it has in any case counts, and is kept where nothing is promised.
    let more = by_hand + Bytes::mib(1);
    let fixed = SizeRange { least: more, guess: more, most: Bytes::mib(4) };
    assert_eq!(least_sizes(&scenario, &Traces::new(), 7, &[fixed], STEP).unwrap().caches, [more]);
    let nothing = small(false, &[("v", None)]);
    assert_eq!(
        least_sizes(&nothing, &Traces::new(), 7, &[range(0, 640)], STEP).unwrap().caches,
        [Bytes::ZERO]
    );
}

#[test]
fn what_no_size_keeps_is_kept_as_nearly_as_by_the_most() {
    // Hits take 150 us, and the first reads of a cold cache 10 ms: not every window has a mean of 1 ms.
    let mut hopeless = small(false, &[("v", Some(1.0))]);
    hopeless.objective[0].conforming_share = Some(1.0);
    let most = run(&hopeless, &[Bytes::mib(4)]).volumes[0].objectives[0].conforming_share.unwrap();
    assert!(most > 0.0 && most < 1.0, "{most}");
    let found = least_sizes(&hopeless, &Traces::new(), 7, &[range(0, 640)], STEP).unwrap();
    let outcome = &found.outcome.volumes[0].objectives[0];
    assert!(outcome.met == Some(false) && outcome.conforming_share.unwrap() >= most, "{outcome:?}");
    let less = found.caches[0].saturating_sub(STEP);
    let less = run(&hopeless, &[less]).volumes[0].objectives[0].conforming_share.unwrap();
    assert!(found.caches[0] > Bytes::ZERO && less < most, "{less} of {most} with a step less");
}

#[test]
fn of_several_volumes_none_can_be_smaller_and_origins_do_not_meet() {
    let promises = [("a", Some(12.0)), ("b", Some(9.0)), ("c", None)];
    let together = small(true, &promises);
    let ranges = [range(0, 1_024), range(128, 1_024), range(0, 256)];
    let found = least_sizes(&together, &Traces::new(), 7, &ranges, STEP).unwrap();
    assert!(keeps_all(&found.outcome), "{:?}", found.caches);
    assert!(found.caches.iter().any(|cache| *cache > Bytes::kib(128)), "{:?}", found.caches);
    for (at, range) in ranges.iter().enumerate().filter(|(at, range)| found.caches[*at] > range.least) {
        let mut less = found.caches.clone();
        less[at] = less[at].saturating_sub(STEP).max(range.least);
        assert!(!keeps_all(&run(&together, &less)), "{at} of {:?} could be smaller", found.caches);
    }
    // On origins of their own, in the runs of one.
    let (apart, ranges) = (small(false, &promises[..2]), [range(0, 1_024), range(0, 64)]);
    let both = least_sizes(&apart, &Traces::new(), 7, &ranges, STEP).unwrap();
    assert!(both.runs <= 9, "{} runs", both.runs);
    for (at, range) in ranges.iter().enumerate() {
        let mut others_full = vec![Bytes::mib(4); 2];
        let by_hand = (0..=64).map(|number| Bytes(number * STEP.get())).find(|cache| {
            others_full[at] = *cache;
            keeps_all(&run(&apart, &others_full))
        });
        assert_eq!(Some(both.caches[at]), by_hand, "{at}, {range:?}");
    }
}
