//! What is narrow on the way of requests, a link, the media of disks, a worker of an appliance, and what loads pass through it.
//!
//! Refused and flagged is by the rules of [`super::rates`].

use super::backlog::{Excess, Phase, excesses};
use super::held::percent;
use super::rates::{done_by, told_apart, would_be_shed};
use super::{Flag, OriginKind, OriginTable, Raid, Scenario, ScenarioError, VolumeTable};
use forebay_units::{Bytes, Nanos};

impl OriginTable {
    /// Bytes per second that its media never exceed, and how many of them a byte written costs at least; `None` where that is not
    /// bounded: what an array's cache takes, and overwrites there, never reaches the disks. Channels of flash count with the requests.
    fn media(&self) -> Option<(f64, f64)> {
        if self.kind != OriginKind::Disks || self.array.is_some() || self.buffer.is_some() {
            return None;
        }
        let group = self.disks();
        let spindles = f64::from(group.spindles);
        let rate = group.disk.rate_outer_bytes_s.max(group.disk.rate_inner_bytes_s) as f64;
        let written = match self.raid.unwrap_or_default() {
            Raid::Level0 => 1.0,
            Raid::Level1 => 2.0,
            Raid::Level4 | Raid::Level5 => spindles / (spindles - 1.0).max(1.0),
        };
        (rate > 0.0).then_some((spindles * rate, written))
    }
}

/// What passes through something narrow from an instant on, and the load with most part in it.
#[derive(Default)]
struct Through {
    amount: f64,
    /// What of it may be outstanding.
    held_max: f64,
    worst: Option<(f64, usize, usize)>,
}

impl Through {
    /// Adds what a load has pass per second, and what of it may be outstanding.
    fn add(&mut self, amount: f64, held_max: f64, place: usize, number: usize) {
        if amount > 0.0 {
            self.amount += amount;
            self.held_max += held_max;
            if self.worst.is_none_or(|(most, ..)| amount > most) {
                self.worst = Some((amount, place, number));
            }
        }
    }

    fn of(self, what: String, amount: Amount, at_most: f64) -> Lane {
        Lane { through: self, what, amount, at_most, takes_reads: false }
    }

    /// The same of something that reads pass which caches may answer.
    fn of_reads(self, what: String, at_most: f64) -> Lane {
        Lane { takes_reads: true, ..self.of(what, Amount::Bytes, at_most) }
    }
}

/// What is counted of that which passes.
#[derive(Clone, Copy)]
enum Amount {
    Bytes,
    Work,
}

impl Amount {
    /// Two of them, in words that differ where they do.
    fn told_apart(self, of: [f64; 2]) -> [String; 2] {
        match self {
            Amount::Bytes => {
                let told = of.map(|bytes| Bytes(bytes as u64).to_string());
                let [one, other] = [&told[0], &told[1]].map(|text| text.parse::<Bytes>().ok());
                if one.cmp(&other) == of[0].total_cmp(&of[1]) {
                    return told;
                }
                told_apart(of).map(|bytes| format!("{bytes} B"))
            }
            Amount::Work => told_apart(of).map(|seconds| format!("{seconds} s of work")),
        }
    }

    /// The same per second.
    fn rates_told_apart(self, of: [f64; 2]) -> [String; 2] {
        self.told_apart(of).map(|amount| match self {
            Amount::Bytes => format!("{amount}/s"),
            Amount::Work => format!("{amount} per second"),
        })
    }
}

/// What of the reads is taken to pass.
#[derive(Clone, Copy)]
enum Reads {
    /// Those that nothing before the origin answers, whatever it holds.
    Forced,
    /// Those that no cache answers.
    BesideCaches,
    /// All of them, where nothing is cached.
    All,
}

/// Something narrow, what passes through it from an instant on, and how much of that it carries per second.
struct Lane {
    through: Through,
    what: String,
    amount: Amount,
    at_most: f64,
    /// Whether there is less of it where caches answer reads.
    takes_reads: bool,
}

impl Lane {
    fn key(&self) -> String {
        let (_, place, number) = self.through.worst.unwrap_or_default();
        format!("volume[{place}].load[{number}].rate")
    }

    /// What is said of a phase in which more is asked of it than it does.
    fn said(&self, phase: &Phase, excess: Excess, cached: &str) -> Result<Flag, ScenarioError> {
        let [asked, at_most] = self.amount.rates_told_apart([phase.asked, phase.at_most]);
        let (what, until) = (self.what.clone(), phase.until);
        if let Excess::Queued { waiting, served_by } = excess {
            let [waiting, _] = self.amount.told_apart([waiting, 0.0]);
            let message = format!(
                "{what} falls behind from {} to {until}: {asked}, and it does {at_most} at most{cached}: {waiting} of it wait by then, and {}",
                phase.from,
                done_by(served_by),
            );
            return Ok(Flag { key: self.key(), message });
        }
        let lost = match excess {
            Excess::Shed { waiting } => {
                let [waiting, held] = self.amount.told_apart([waiting, phase.held_max]);
                would_be_shed(until, &waiting, &held)
            }
            _ => String::new(),
        };
        Err(ScenarioError::Narrow {
            key: self.key(),
            what: what.into(),
            asked,
            at: phase.from,
            at_most,
            remark: format!("{cached}{lost}").into(),
        })
    }
}

impl Scenario {
    /// Compares the bytes that must pass with what media and links carry, and the requests with what the appliances' workers do.
    pub(super) fn check_lanes(&self, flags: &mut Vec<Flag>) -> Result<(), ScenarioError> {
        let instants = self.changes_of_load(self.volume.iter());
        let until = |place: usize| instants.get(place + 1).copied().unwrap_or(self.duration);
        // The same ones at each instant.
        let lanes = |reads: Reads| -> Vec<Vec<Lane>> {
            let at =
                |(place, at): (usize, &Nanos)| self.lanes(*at, until(place).saturating_since(*at), reads);
            instants.iter().enumerate().map(at).collect()
        };
        let (forced, beside, all) = (lanes(Reads::Forced), lanes(Reads::BesideCaches), lanes(Reads::All));
        let mut check = |number: usize| {
            let phase = |(place, at): (usize, &Nanos)| {
                let lane = &forced[place][number];
                let (asked, held_max) = (lane.through.amount, lane.through.held_max);
                Phase { from: *at, until: until(place), asked, at_most: lane.at_most, held_max }
            };
            let phases: Vec<Phase> = instants.iter().enumerate().map(phase).collect();
            let found = excesses(&phases);
            for (place, excess) in &found {
                let cached = self.said_of_caches(&forced[*place][number], &phases[*place]);
                flags.push(forced[*place][number].said(&phases[*place], *excess, &cached)?);
            }
            for (place, phase) in phases.iter().enumerate() {
                let lane = &all[place][number];
                let is_told = found.iter().any(|(other, _)| *other == place);
                if lane.through.amount <= lane.at_most || is_told {
                    continue;
                }
                let [asked, at_most] = lane.amount.rates_told_apart([lane.through.amount, lane.at_most]);
                let share = |amount: f64| percent(1.0 - amount / lane.through.amount);
                let message = format!(
                    "where nothing is cached {asked} pass {what} from {} on, and it does {at_most} at most: caches must answer at least {} of that, and can \
                     answer {}{}",
                    phase.from,
                    share(lane.at_most),
                    share(beside[place][number].through.amount),
                    self.said_of_caches(lane, phase),
                    what = lane.what,
                );
                flags.push(Flag { key: lane.key(), message });
            }
            Ok(())
        };
        (0..forced.first().map_or(0, Vec::len)).try_for_each(&mut check)
    }

    /// What caches answer at most of the load with most part in a lane, in brackets; nothing where that may be all, or none.
    fn said_of_caches(&self, lane: &Lane, phase: &Phase) -> String {
        let worst = lane.through.worst.filter(|_| lane.takes_reads);
        let Some((_, place, number)) = worst else { return String::new() };
        self.in_brackets(place, number, phase.until.saturating_since(phase.from))
    }

    /// What is narrow, and what must pass through it from an instant on, for so long.
    fn lanes(&self, at: Nanos, span: Nanos, reads: Reads) -> Vec<Lane> {
        let mut lanes = Vec::new();
        for (origin, table) in self.origin.iter().enumerate() {
            let (mut there, mut back, mut media) =
                (Through::default(), Through::default(), Through::default());
            let written_costs = table.media().map_or(0.0, |(_, written)| written);
            for (place, number, volume, load, rate) in self.open_at(at) {
                if self.origin_of(volume) != Some(origin) {
                    continue;
                }
                let each = load.request_bytes(volume) as f64;
                let (bytes, held) = (rate * each, each * f64::from(load.outstanding_max));
                let taken = self.writes_may_be_taken(volume);
                let written = if taken { 0.0 } else { bytes * (1.0 - load.read_share) };
                let answered = match reads {
                    Reads::Forced => self.held_in_any_case(volume, load, span),
                    Reads::BesideCaches => self.held(volume, load, span).by_cache,
                    // A tier is no cache: what it holds it serves.
                    Reads::All => f64::from(u8::from(volume.tier.is_some())),
                };
                let read = bytes * load.read_share * (1.0 - answered);
                there.add(written, held, place, number);
                back.add(read, held, place, number);
                media.add(written * written_costs + read, held * written_costs.max(1.0), place, number);
            }
            let name = &table.name;
            if let Some(link) = table.link_per_second.map(Bytes::as_f64) {
                lanes.push(there.of(format!("the link to origin `{name}`"), Amount::Bytes, link));
                lanes.push(back.of_reads(format!("the link from origin `{name}`"), link));
            }
            if let Some((at_most, _)) = table.media() {
                lanes.push(media.of_reads(format!("the disks of origin `{name}`"), at_most));
            }
        }
        self.lanes_of_appliances(at, &mut lanes);
        lanes
    }

    /// Hits too pass through the appliance: no cache helps it.
    fn lanes_of_appliances(&self, at: Nanos, lanes: &mut Vec<Lane>) {
        for (appliance, table) in self.appliance.iter().enumerate() {
            let count = table.workers.unwrap_or(1) as usize;
            let mut workers: Vec<Through> = (0..count).map(|_| Through::default()).collect();
            let (mut there, mut back) = (Through::default(), Through::default());
            let on_it = |volume: &VolumeTable| self.appliance_of(volume) == Some(appliance);
            for (place, number, volume, load, rate) in self.open_at(at) {
                if !on_it(volume) {
                    continue;
                }
                // Its volumes go round its workers.
                let worker = self.volume[..place].iter().filter(|before| on_it(before)).count() % count;
                let (bytes, held) = (load.request_bytes(volume) as f64, f64::from(load.outstanding_max));
                let copy = table.copy_per_second.map_or(0.0, |copy| bytes / copy.as_f64());
                let work = table.request_time.as_secs_f64() + copy;
                workers[worker].add(rate * work, held * work, place, number);
                there.add(rate * bytes * (1.0 - load.read_share), held * bytes, place, number);
                back.add(rate * bytes * load.read_share, held * bytes, place, number);
            }
            let name = &table.name;
            let each =
                |worker: Through| worker.of(format!("a worker of appliance `{name}`"), Amount::Work, 1.0);
            lanes.extend(workers.into_iter().map(each));
            if let Some(link) = table.link_per_second.map(Bytes::as_f64) {
                lanes.push(there.of(format!("the link to appliance `{name}`"), Amount::Bytes, link));
                lanes.push(back.of(format!("the link from appliance `{name}`"), Amount::Bytes, link));
            }
        }
    }
}
