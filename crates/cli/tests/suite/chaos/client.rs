//! Clients of the volume: each asks for one thing at a time, holds every answer against the truth, and comes again when its connection ends.

use super::PATIENCE;
use super::draw::Draw;
use super::truth::{Outcome, Truth};
use crate::client::{Answer, Client};
use crate::ledger::{Floors, SECTOR, content};
use forebay_nbd::client::{Export, Operation};
use std::path::Path;
use std::time::{Duration, Instant};

/// So many sectors are read at a time where all are.
const WHOLE_SECTORS: usize = 256;

/// What is written where, and by whose account.
#[derive(Clone, Copy)]
pub(super) struct Volume<'a> {
    pub(super) socket: &'a Path,
    pub(super) truth: &'a Truth,
}

/// Why a request has no good answer.
pub(super) enum Unanswered {
    /// It failed.
    Failed,
    /// The connection ended.
    Ended,
    /// What holds does not: the run is over.
    Broken(String),
}

use Unanswered::{Broken, Ended, Failed};

pub(super) fn bytes(count: usize) -> u32 {
    (count * SECTOR) as u32
}

pub(super) fn place(first: usize) -> u64 {
    (first * SECTOR) as u64
}

/// One connection.
pub(super) struct Lane<'a> {
    pub(super) volume: Volume<'a>,
    client: Client<usize>,
}

impl<'a> Lane<'a> {
    pub(super) fn connect(volume: Volume<'a>) -> Result<Lane<'a>, Unanswered> {
        let began = Instant::now();
        let name = volume.truth.name();
        match Client::connect_within(volume.socket, &name, PATIENCE) {
            // Somebody else has that name by now.
            Ok(_) if volume.truth.name() != name => Err(Ended),
            Ok(client) => Ok(Lane { volume, client }),
            Err(_) if began.elapsed() < PATIENCE => Err(Ended),
            Err(error) => Err(Broken(format!("nobody is let in within {PATIENCE:?}: {error}"))),
        }
    }

    /// What it offers.
    pub(super) fn export(&self) -> &Export {
        self.client.export()
    }

    /// Asks for all of these at once, each with the data of a write; their answers, in this order.
    pub(super) fn ask_all(&mut self, asked: &[(Operation, &[u8])]) -> Result<Vec<Answer<usize>>, Unanswered> {
        let began = Instant::now();
        for (number, (operation, data)) in asked.iter().enumerate() {
            self.client.ask(*operation, data, number);
        }
        self.client.send();
        let mut answered = Vec::new();
        while answered.len() < asked.len() {
            match self.client.receive() {
                Some(answers) => answered.extend(answers),
                None if began.elapsed() < PATIENCE => return Err(Ended),
                None => {}
            }
            if began.elapsed() >= PATIENCE && answered.len() < asked.len() {
                let operation = asked[0].0;
                return Err(Broken(format!("no answer to {operation:?} within {PATIENCE:?}")));
            }
        }
        answered.sort_by_key(|answer| answer.what);
        Ok(answered)
    }

    pub(super) fn ask(&mut self, operation: Operation, data: &[u8]) -> Result<Vec<u8>, Unanswered> {
        let answers = self.ask_all(&[(operation, data)])?;
        answers.into_iter().next().expect("there is one to each").result.map_err(|_| Failed)
    }

    pub(super) fn read(&mut self, first: usize, count: usize) -> Result<(), Unanswered> {
        let floors: Floors = self.volume.truth.reading(first, count);
        let operation = Operation::Read { offset: place(first), length: bytes(count), dont_fragment: false };
        let answer = self.ask(operation, &[]);
        self.judge_read(first, answer.as_deref(), &floors)?;
        answer.map(drop)
    }

    /// Holds what came of a read against the truth.
    pub(super) fn judge_read(
        &self,
        first: usize,
        answer: Result<&[u8], &Unanswered>,
        floors: &Floors,
    ) -> Result<(), Unanswered> {
        let bytes = match answer {
            Ok(bytes) => Some(bytes),
            Err(Failed) => None,
            Err(_) => {
                self.volume.truth.cut_off();
                return Ok(());
            }
        };
        self.volume.truth.read(first, bytes, floors).map_err(Broken)
    }

    /// Where nobody else is writing.
    pub(super) fn write(
        &mut self,
        first: usize,
        count: usize,
        fua: bool,
        zeroes: bool,
    ) -> Result<(), Unanswered> {
        let Some(version) = self.volume.truth.write(first, count, zeroes) else { return Ok(()) };
        let (offset, length) = (place(first), bytes(count));
        let answer = if zeroes {
            self.ask(Operation::WriteZeroes { offset, length, fua, no_hole: false, fast_zero: false }, &[])
        } else {
            let mut data = vec![0; count * SECTOR];
            for (at, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
                content((first + at) as u64, version, sector);
            }
            self.ask(Operation::Write { offset, length, fua }, &data)
        };
        let outcome = match &answer {
            Ok(_) => Outcome::Done { is_kept: fua },
            Err(Failed) => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.volume.truth.written(version, outcome);
        answer.map(drop)
    }

    pub(super) fn flush(&mut self) -> Result<(), Unanswered> {
        let flush = self.volume.truth.flushing();
        let answer = self.ask(Operation::Flush, &[]);
        match &answer {
            Ok(_) => self.volume.truth.flushed(&flush).map_err(Broken)?,
            Err(Failed) => self.volume.truth.flush_failed(&flush),
            Err(_) => self.volume.truth.flush_cut_off(&flush),
        }
        answer.map(drop)
    }

    /// Reads all of it.
    pub(super) fn read_whole(&mut self) -> Result<(), Unanswered> {
        let sectors = self.volume.truth.sectors;
        let mut starts = (0..sectors).step_by(WHOLE_SECTORS);
        starts.try_for_each(|first| self.read(first, WHOLE_SECTORS.min(sectors - first)))
    }

    /// Asks for something.
    pub(super) fn step(&mut self, draw: &mut Draw) -> Result<(), Unanswered> {
        let count = draw.of(&[1, 8, 8, 8, 8, 16, 64]);
        // Most meet in an eighth of it.
        let area = if draw.percent(70) { self.volume.truth.sectors / 8 } else { self.volume.truth.sectors };
        let mut first = draw.below(area - count + 1);
        if draw.percent(80) {
            first = first / 8 * 8;
        }
        match draw.below(100) {
            0..50 => self.read(first, count),
            50..87 => self.write(first, count, draw.percent(5), false),
            87..90 => self.write(first, count, draw.percent(5), true),
            90..96 => self.flush(),
            _ => self.write(first, count, true, false),
        }
    }
}

/// What a client asks for next.
pub(super) type Step = fn(&mut Lane<'_>, &mut Draw) -> Result<(), Unanswered>;

/// Asks for one thing after the other until it is told to stop. What is asked follows from `draw`.
pub(super) fn work(
    volume: Volume<'_>,
    step: Step,
    mut draw: Draw,
    is_over: impl Fn() -> bool,
) -> Result<(), String> {
    let mut lane = None;
    while !is_over() {
        let result = match &mut lane {
            None => Lane::connect(volume).map(|connected| lane = Some(connected)),
            Some(lane) => step(lane, &mut draw),
        };
        match result {
            Ok(()) | Err(Failed) => {}
            Err(Ended) => {
                lane = None;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Broken(what)) => return Err(what),
        }
        if draw.percent(10) {
            std::thread::sleep(draw.up_to(50));
        }
    }
    Ok(())
}
