//! Clients of the volume: each asks for one thing at a time, holds every answer against the truth, and comes again when its connection ends.

use super::PATIENCE;
use super::draw::Draw;
use super::truth::{Outcome, Truth};
use crate::client::Client;
use crate::ledger::{Floors, SECTOR, content};
use forebay_nbd::client::Operation;
use std::path::Path;
use std::time::{Duration, Instant};

/// So many sectors are read at a time where all are.
const WHOLE_SECTORS: usize = 256;

/// What is written where, and by whose account.
#[derive(Clone, Copy)]
pub(super) struct Volume<'a> {
    pub(super) socket: &'a Path,
    pub(super) truth: &'a Truth,
    pub(super) sectors: usize,
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

fn bytes(count: usize) -> u32 {
    (count * SECTOR) as u32
}

fn place(first: usize) -> u64 {
    (first * SECTOR) as u64
}

/// One connection.
pub(super) struct Lane<'a> {
    volume: Volume<'a>,
    client: Client<()>,
}

impl<'a> Lane<'a> {
    pub(super) fn connect(volume: Volume<'a>) -> Result<Lane<'a>, Unanswered> {
        let began = Instant::now();
        match Client::connect_within(volume.socket, "db", PATIENCE) {
            Ok(client) => Ok(Lane { volume, client }),
            Err(_) if began.elapsed() < PATIENCE => Err(Ended),
            Err(error) => Err(Broken(format!("nobody is let in within {PATIENCE:?}: {error}"))),
        }
    }

    fn ask(&mut self, operation: Operation, data: &[u8]) -> Result<Vec<u8>, Unanswered> {
        let began = Instant::now();
        self.client.ask(operation, data, ());
        self.client.send();
        loop {
            match self.client.receive() {
                Some(answers) => {
                    if let Some(answer) = answers.into_iter().next() {
                        return answer.result.map_err(|_| Failed);
                    }
                }
                None if began.elapsed() < PATIENCE => return Err(Ended),
                None => {}
            }
            if began.elapsed() >= PATIENCE {
                return Err(Broken(format!("no answer to {operation:?} within {PATIENCE:?}")));
            }
        }
    }

    pub(super) fn read(&mut self, first: usize, count: usize) -> Result<(), Unanswered> {
        let floors: Floors = self.volume.truth.reading(first, count);
        let operation = Operation::Read { offset: place(first), length: bytes(count), dont_fragment: false };
        let answer = self.ask(operation, &[]);
        match &answer {
            Ok(bytes) => self.volume.truth.read(first, Some(bytes), &floors).map_err(Broken)?,
            Err(Failed) => self.volume.truth.read(first, None, &floors).map_err(Broken)?,
            Err(_) => self.volume.truth.cut_off(),
        }
        answer.map(drop)
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
        let flush = self.volume.truth.flushing(self.volume.sectors);
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
        let mut starts = (0..self.volume.sectors).step_by(WHOLE_SECTORS);
        starts.try_for_each(|first| self.read(first, WHOLE_SECTORS))
    }

    /// Asks for something.
    fn step(&mut self, draw: &mut Draw) -> Result<(), Unanswered> {
        let count = draw.of(&[1, 8, 8, 8, 8, 16, 64]);
        // Most meet in an eighth of it.
        let area = if draw.percent(70) { self.volume.sectors / 8 } else { self.volume.sectors };
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

/// Asks for one thing after the other until it is told to stop. What is asked follows from `draw`.
pub(super) fn work(volume: Volume<'_>, mut draw: Draw, is_over: impl Fn() -> bool) -> Result<(), String> {
    let mut lane = None;
    while !is_over() {
        let result = match &mut lane {
            None => Lane::connect(volume).map(|connected| lane = Some(connected)),
            Some(lane) => lane.step(&mut draw),
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
