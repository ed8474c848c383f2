//! What all clients of a volume know together: its name, what each sector may show ([`crate::ledger`]), and whom the word of a loss is owed.
//!
//! The clients here name no run of anybody, so that they count as one: the first of them to flush behind a loss has to hear of it, and the
//! others need not.

use crate::ledger::{Floors, Ledger, SECTOR};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    Done {
        is_kept: bool,
    },
    Failed,
    /// It was a hint, that may have been followed.
    Hinted,
    /// The connection ended before the answer.
    Unknown,
}

/// A flush that is under way.
pub(super) struct Flush {
    number: u64,
    floors: Floors,
    /// The words that had been told when it was sent.
    told: u64,
    /// When the last loss was of which nobody had been told then.
    owed: Option<Instant>,
    sent: Instant,
}

/// A flush that succeeded although somebody had to be told: another one that was under way may have been, whose answer is not here yet.
struct Suspect {
    what: String,
    others: BTreeSet<u64>,
}

struct Known {
    ledger: Ledger,
    /// Flushes that are under way, by number.
    flushing: BTreeSet<u64>,
    flushes: u64,
    suspect: Option<Suspect>,
    /// When the last loss was that took what was promised; `None` once somebody was told.
    owed: Option<Instant>,
    /// How often somebody was told that what is not flushed may be lost.
    told: u64,
    counts: BTreeMap<&'static str, u64>,
    /// What was said last of what is kept, for whoever has to find out why.
    said: VecDeque<(Instant, &'static str)>,
}

/// So much of that is kept.
const SAID_MAX: usize = 12;

pub(super) struct Truth {
    known: Mutex<Known>,
    /// By what name it is served.
    name: Mutex<String>,
    pub(super) sectors: usize,
    /// Several writes to a sector may be under way.
    lets_race: bool,
}

impl Truth {
    /// Of `db`, which has so many sectors of zeroes.
    pub(super) fn new(sectors: usize) -> Truth {
        Truth::of("db", Ledger::behind_flushes(sectors), sectors, false)
    }

    /// The same of `name`, of which several writes to a sector may be under way together.
    pub(super) fn of_racers(name: &str, sectors: usize) -> Truth {
        Truth::of(name, Ledger::behind_flushes(sectors).with_races(), sectors, true)
    }

    fn of(name: &str, ledger: Ledger, sectors: usize, lets_race: bool) -> Truth {
        let known = Known {
            ledger,
            flushing: BTreeSet::new(),
            flushes: 0,
            suspect: None,
            owed: None,
            told: 0,
            counts: BTreeMap::new(),
            said: VecDeque::new(),
        };
        Truth { known: Mutex::new(known), name: Mutex::new(name.to_owned()), sectors, lets_race }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while it is held")
    }

    pub(super) fn name(&self) -> String {
        self.name.lock().expect("nobody panics while it is held").clone()
    }

    /// It is served by another name from now on. Nobody serves it just now.
    pub(super) fn rename(&self, name: &str) {
        name.clone_into(&mut self.name.lock().expect("nobody panics while it is held"));
    }

    /// A write is about to be sent; its version, or `None` where another one is under way that it must not meet.
    pub(super) fn write(&self, first: usize, count: usize, zeroes: bool) -> Option<u64> {
        let mut known = self.known();
        let is_free = match self.lets_race {
            true => !known.ledger.is_being_pieced(first, count),
            false => !known.ledger.is_being_written(first, count),
        };
        is_free.then(|| known.ledger.send(first, count, zeroes))
    }

    /// The same, of what is sent as several requests.
    pub(super) fn write_in_pieces(&self, first: usize, count: usize) -> Option<u64> {
        let mut known = self.known();
        let is_free = !known.ledger.is_being_written(first, count);
        is_free.then(|| known.ledger.send_in_pieces(first, count))
    }

    pub(super) fn written(&self, version: u64, outcome: Outcome) {
        let mut known = self.known();
        if outcome == Outcome::Failed {
            known.say("a write fails");
        }
        match outcome {
            Outcome::Done { is_kept: true } => known.ledger.acknowledge_kept(version),
            Outcome::Done { is_kept: false } => known.ledger.acknowledge(version),
            Outcome::Failed | Outcome::Hinted | Outcome::Unknown => known.ledger.give_up(version),
        }
        known.count(match outcome {
            Outcome::Done { .. } => "writes",
            Outcome::Failed => "writes failed",
            Outcome::Hinted => "trims",
            Outcome::Unknown => "requests cut off",
        });
    }

    /// A read is about to be sent.
    pub(super) fn reading(&self, first: usize, count: usize) -> Floors {
        self.known().ledger.floors(first, count)
    }

    /// What came of it: the bytes, or none.
    pub(super) fn read(&self, first: usize, bytes: Option<&[u8]>, floors: &Floors) -> Result<(), String> {
        let mut known = self.known();
        known.count(if bytes.is_some() { "reads" } else { "reads failed" });
        bytes.map_or(Ok(()), |bytes| known.ledger.check(first, bytes, floors))
    }

    /// Somebody says that these sectors are zeroes, who was asked when they had these floors.
    pub(super) fn zeroes(&self, first: usize, count: usize, floors: &Floors) -> Result<(), String> {
        let mut known = self.known();
        known.count("extents of zeroes");
        known.ledger.check(first, &vec![0; count * SECTOR], floors)
    }

    /// A flush is about to be sent.
    pub(super) fn flushing(&self) -> Flush {
        let mut known = self.known();
        known.flushes += 1;
        let number = known.flushes;
        known.flushing.insert(number);
        Flush {
            number,
            floors: known.ledger.floors(0, self.sectors),
            told: known.told,
            owed: known.owed,
            sent: Instant::now(),
        }
    }

    /// It succeeded.
    pub(super) fn flushed(&self, flush: &Flush) -> Result<(), String> {
        let mut known = self.known();
        known.count("flushes");
        known.say("a flush succeeds");
        known.flushing.remove(&flush.number);
        let is_told = known.told != flush.told;
        if let Some(lost) = flush.owed.filter(|_| !is_told) {
            let what = known.untold(flush, lost);
            let others = known.flushing.clone();
            known.suspect.get_or_insert(Suspect { what, others });
        } else if !known.ledger.has_lost_since(&flush.floors) || (!is_told && known.flushing.is_empty()) {
            // Where somebody was told of a loss meanwhile, or is about to be, it was for all of them.
            known.ledger.flush(&flush.floors);
        }
        known.judge()
    }

    /// It failed: whatever is not flushed may be lost from here on.
    pub(super) fn flush_failed(&self, flush: &Flush) {
        let mut known = self.known();
        known.count("flushes failed");
        known.say("a flush fails");
        known.flushing.remove(&flush.number);
        known.tell();
    }

    /// Its connection ended before it was answered, and with it perhaps the word of a loss.
    pub(super) fn flush_cut_off(&self, flush: &Flush) {
        let mut known = self.known();
        known.count("requests cut off");
        known.flushing.remove(&flush.number);
        known.suspect.take_if(|suspect| suspect.others.contains(&flush.number));
    }

    /// The connection ended before a read was answered.
    pub(super) fn cut_off(&self) {
        self.known().count("requests cut off");
    }

    /// All connections are gone, as everybody knows, with what had not been flushed by then.
    pub(super) fn tell(&self) {
        self.known().tell();
    }

    /// Power is lost; `what` says which sectors were by that. Whether somebody has to be told.
    pub(super) fn lose(&self, what: impl FnOnce() -> Vec<usize>) -> bool {
        let mut known = self.known();
        let gone = what();
        let is_owed = known.ledger.lose(&gone);
        known.say("power is lost");
        if is_owed {
            known.owed = Some(Instant::now());
        }
        is_owed
    }

    /// Checks all of it while nothing is under way.
    pub(super) fn check(&self, volume: &[u8]) -> Result<(), String> {
        self.known().ledger.check_all(volume)
    }

    /// How often what came, of all volumes together.
    pub(super) fn counts(truths: &[Truth]) -> String {
        let mut counts = BTreeMap::<_, u64>::new();
        for truth in truths {
            for (what, count) in &truth.known().counts {
                *counts.entry(*what).or_default() += count;
            }
        }
        counts.iter().fold(String::new(), |mut text, (what, count)| {
            let comma = if text.is_empty() { "" } else { ", " };
            write!(text, "{comma}{count} {what}").expect("a text takes text");
            text
        })
    }
}

impl Known {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn untold(&self, flush: &Flush, lost: Instant) -> String {
        let (sent, now) = (flush.sent - lost, lost.elapsed());
        let before = |(when, what): &(Instant, &'static str)| (when.saturating_duration_since(lost), *what);
        let said: Vec<_> = self.said.iter().map(before).collect();
        format!(
            "a flush succeeds {now:?} after a loss of what was acknowledged, of which nobody was told; it was sent {sent:?} after that; what was said: {said:?}"
        )
    }

    /// Whether a flush that succeeded was told wrong, as far as is known.
    fn judge(&mut self) -> Result<(), String> {
        let Some(suspect) = &mut self.suspect else { return Ok(()) };
        suspect.others.retain(|other| self.flushing.contains(other));
        if suspect.others.is_empty() { Err(suspect.what.clone()) } else { Ok(()) }
    }

    fn say(&mut self, what: &'static str) {
        self.said.push_back((Instant::now(), what));
        if self.said.len() > SAID_MAX {
            self.said.pop_front();
        }
    }

    fn tell(&mut self) {
        self.told += 1;
        self.owed = None;
        self.suspect = None;
        self.ledger.write_off();
    }
}

#[test]
fn the_first_to_flush_behind_a_loss_has_to_hear_of_it() {
    let truth = Truth::new(8);
    let write = |at| {
        let version = truth.write(at, 1, false).expect("it is free");
        assert_eq!(truth.write(at, 1, false), None);
        truth.written(version, Outcome::Done { is_kept: false });
    };
    write(0);
    let before = truth.flushing();
    assert!(!truth.lose(|| vec![1]) && truth.lose(|| vec![0]));
    let [behind, other, last] = [(); 3].map(|()| truth.flushing());
    truth.flushed(&before).unwrap();
    // One of those that are under way fails, perhaps, and its answer is not here yet.
    truth.flushed(&behind).unwrap();
    truth.flush_failed(&other);
    // Who had asked meanwhile, and who asks later, may hear what they like.
    truth.flushed(&last).unwrap();
    truth.flushed(&truth.flushing()).unwrap();
    // It is owed once, and only if something new is lost.
    assert!(!truth.lose(|| vec![0]));
    write(0);
    assert!(truth.lose(|| vec![0]));
    truth.tell();
    truth.flushed(&truth.flushing()).unwrap();

    write(0);
    assert!(truth.lose(|| vec![0]));
    let [one, other] = [(); 2].map(|()| truth.flushing());
    truth.flushed(&one).unwrap();
    assert!(truth.flushed(&other).unwrap_err().contains("nobody was told"));
}

#[test]
fn a_flush_that_succeeds_over_a_loss_says_that_nothing_of_before_is_lost() {
    let truth = Truth::new(1);
    let version = truth.write(0, 1, false).unwrap();
    truth.written(version, Outcome::Done { is_kept: false });
    let flush = truth.flushing();
    truth.lose(Vec::new);
    truth.check(&[0; SECTOR]).unwrap();
    truth.flushed(&flush).unwrap();
    assert!(truth.check(&[0; SECTOR]).is_err());
}
