//! What strikes a chain. The order of the strikes and everything about each follow from the seed; when they meet what does not.

use super::Struck;
use super::chain::{Chain, PROXY, WATCH};
use super::draw::Draw;
use super::origin;
use super::parts::Parts;
use super::relay::{self, Side};
use forebay_actuate::route::LeaseHolder;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Strike {
    ToAppliance,
    Back,
    KillAppliance,
    KillProxy,
    KillWatch,
    StopProxy,
    StopWatch,
    Cut,
    Late,
    Loss,
    CutOrigin,
    Errors,
    Stall,
    Delay,
    Quota,
    ReadWhole,
}

use Strike::{
    Back, Cut, CutOrigin, Delay, Errors, KillAppliance, KillProxy, KillWatch, Late, Loss, Quota, ReadWhole,
    Stall, StopProxy, StopWatch, ToAppliance,
};

/// Each with how often it strikes, in 29.
const STRIKES: [(Strike, usize); 16] = [
    (ToAppliance, 4),
    (Back, 2),
    (KillAppliance, 3),
    (KillProxy, 2),
    (KillWatch, 2),
    (StopProxy, 1),
    (StopWatch, 1),
    (Cut, 2),
    (Late, 3),
    (Loss, 2),
    (CutOrigin, 1),
    (Errors, 1),
    (Stall, 1),
    (Delay, 1),
    (Quota, 2),
    (ReadWhole, 1),
];

pub(super) const KILLS: [Signal; 3] = [Signal::KILL, Signal::KILL, Signal::TERM];

/// Those that are meant ([`super::meant`]).
pub(super) fn strikes() -> Vec<Strike> {
    super::meant(&STRIKES)
}

impl Struck for Chain<'_> {
    fn strike(&mut self, mut draw: Draw, number: u64) -> Result<(), String> {
        std::thread::sleep(draw.up_to(1500));
        let strike = match draw.of(&strikes()) {
            // There is none yet.
            Back | KillAppliance | Quota if self.appliance.is_none() => ToAppliance,
            strike => strike,
        };
        self.parts.note(&format!("{number}: {strike:?} at {:?}, epoch {}", self.appliance, self.epoch));
        self.strike_with(strike, &mut draw)?;
        self.parts.check()?;
        if draw.percent(20) {
            self.check_route()?;
        }
        Ok(())
    }

    fn mend(&mut self) -> Result<(), String> {
        Chain::mend(self)
    }

    fn parts(&mut self) -> &mut Parts {
        &mut self.parts
    }
}

impl Chain<'_> {
    fn strike_with(&mut self, strike: Strike, draw: &mut Draw) -> Result<(), String> {
        match strike {
            ToAppliance => self.go_to_appliance(draw)?,
            Back => self.back(draw.of(&[Signal::TERM, Signal::KILL]))?,
            KillAppliance => self.kill_appliance(draw)?,
            KillProxy => self.kill_proxy(draw)?,
            KillWatch => self.kill_watch(draw)?,
            StopProxy => self.parts.hold(PROXY, draw.millis(&[100, 1000, 4000])),
            StopWatch => self.parts.hold(WATCH, draw.millis(&[100, 1000, 4000])),
            Cut => self.relay.cut(draw.of(&[Side::Clients, Side::Servers, Side::Both])),
            Late => self.deliver_late(draw)?,
            Quota => {
                if let Some(appliance) = &self.appliance {
                    let bytes = draw.of(&[0, 64 << 10, 1 << 20, 4 << 20]);
                    self.parts.order(appliance, "PUT", "volumes/db/quota", &json!({ "bytes": bytes }));
                }
            }
            ReadWhole => self.read_whole()?,
            Loss => self.lose_power(draw),
            CutOrigin | Errors | Stall | Delay => self.strike_origin(strike, draw),
        }
        Ok(())
    }

    /// Those that a file knows nothing of.
    fn strike_origin(&self, strike: Strike, draw: &mut Draw) {
        let Some(origin) = &self.origin else { return };
        let usual = origin::Manners::default();
        let (manners, time) = match strike {
            Errors => {
                let mut failing = || draw.below(20);
                let (reads_failing, writes_failing, flushes_failing) = (failing(), failing(), failing());
                let manners = origin::Manners { reads_failing, writes_failing, flushes_failing, ..usual };
                (manners, draw.up_to(2000))
            }
            Delay => (origin::Manners { delay: Duration::from_millis(20), ..usual }, draw.up_to(2000)),
            Stall => (origin::Manners { is_stalled: true, ..usual }, draw.millis(&[100, 1000, 4000])),
            CutOrigin => return origin.cut(),
            _ => return,
        };
        origin.behave(manners);
        std::thread::sleep(time);
        if manners.is_stalled {
            origin.cut();
        }
        origin.behave(usual);
    }

    fn lose_power(&self, draw: &mut Draw) {
        let Some(origin) = &self.origin else { return };
        let mut count = 0;
        let is_owed = self.truth.lose(|| {
            let gone = origin.lose();
            count = gone.len();
            gone
        });
        let owed = if is_owed { ", of which somebody has to be told" } else { "" };
        self.parts.note(&format!("power is lost, and {count} sectors{owed}"));
        std::thread::sleep(draw.millis(&[20, 300, 1000, 4000]));
        origin.behave(origin::Manners::default());
    }

    fn kill_proxy(&mut self, draw: &mut Draw) -> Result<(), String> {
        self.parts.end(PROXY, draw.of(&KILLS))?;
        self.truth.tell();
        if draw.percent(30) {
            self.start_proxy();
            std::thread::sleep(draw.up_to(200));
            self.parts.end(PROXY, Signal::KILL)?;
            self.truth.tell();
        }
        self.start_proxy();
        if self.parts.is_up(PROXY, Duration::from_secs(25)) {
            return Ok(());
        }
        Err("the proxy does not come up again".to_owned())
    }

    fn kill_watch(&mut self, draw: &mut Draw) -> Result<(), String> {
        self.parts.end(WATCH, draw.of(&KILLS))?;
        if draw.percent(40) {
            self.lose_power(draw);
        }
        if draw.percent(20) {
            std::thread::sleep(draw.up_to(4000));
        }
        for _ in 0..5 {
            self.start_watch();
            if self.parts.is_up(WATCH, Duration::from_secs(8)) {
                return Ok(());
            }
            if let Some(origin) = &self.origin {
                origin.behave(origin::Manners::default());
            }
            self.parts.end(WATCH, Signal::KILL)?;
        }
        Err("the storage side does not come up again".to_owned())
    }

    /// The appliance dies or stands still, perhaps with the power or the storage side; clients are sent on to another one or home, by who says that all is settled.
    fn kill_appliance(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some(old) = self.appliance.clone() else { return Ok(()) };
        if draw.percent(40) {
            self.parts.signal(&old, Signal::STOP);
            std::thread::sleep(draw.millis(&[100, 1000, 3000]));
        } else {
            self.parts.signal(&old, draw.of(&[Signal::KILL, Signal::TERM]));
        }
        if draw.percent(40) {
            self.lose_power(draw);
        }
        if draw.percent(30) {
            self.kill_watch(draw)?;
        }
        if draw.percent(50) {
            std::thread::sleep(draw.up_to(2000));
        }
        if draw.percent(30) && self.go_on_to_another(&old, draw)? {
            return Ok(());
        }
        self.back(draw.of(&[Signal::TERM, Signal::KILL]))
    }

    /// From an appliance that does not answer straight to another one.
    fn go_on_to_another(&mut self, old: &str, draw: &mut Draw) -> Result<bool, String> {
        let epoch = self.epoch + 1;
        let Some(name) = self.start_appliance(epoch, draw)? else { return Ok(false) };
        if self.raise(epoch, LeaseHolder::Named) == 200 {
            self.epoch = epoch;
            if self.send(&self.by(&name), epoch, true, 5) == 200 {
                self.appliance = Some(name);
                self.parts.signal(old, Signal::CONT);
                std::thread::sleep(draw.millis(&[0, 500]));
                self.parts.end(old, Signal::KILL)?;
                return Ok(true);
            }
        }
        self.parts.end(&name, Signal::KILL)?;
        Ok(false)
    }

    /// Something lies in the network, and arrives whatever has become of who sent it.
    fn deliver_late(&mut self, draw: &mut Draw) -> Result<(), String> {
        let (holds_requests, holds_answers) = draw.of(&[(true, false), (false, true), (true, true)]);
        self.relay.behave(relay::Manners { holds_requests, holds_answers, is_late: true });
        std::thread::sleep(draw.millis(&[50, 300, 1000, 4000]));
        match draw.below(10) {
            0..3 => self.relay.cut(draw.of(&[Side::Clients, Side::Servers, Side::Both])),
            3..5 => self.kill_proxy(draw)?,
            5 => self.kill_watch(draw)?,
            6 => self.kill_appliance(draw)?,
            _ => {}
        }
        std::thread::sleep(draw.millis(&[0, 300]));
        self.relay.behave(relay::Manners { is_late: true, ..relay::Manners::default() });
        self.relay.behave(relay::Manners::default());
        Ok(())
    }
}
