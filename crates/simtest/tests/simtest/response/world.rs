//! The world of one response: daemons, disks, networks and a controller on a virtual clock, everything drawn from one seed.

use super::address::Address;
use super::application::Application;
use super::carrying::Doing;
use super::controller::{rules, specs};
use super::link::Link;
use super::node::{BLOCK, CELL, CELLS, Node, Role, first_history};
use super::strike::{Failure, Kind, Lag, Strike};
use super::visit::Visit;
use super::wires::{Connection, Destination, Peer, Place};
use crate::origin::{AtOrigin, SimOrigin};
use forebay_appliance::service::{Holder as LeaseHolder, Lease};
use forebay_control::response::{ApplianceId, OrderId, Outcome, ResponseStatus, Responses};
use forebay_control::{Decision, DecisionKind, VolumeId};
use forebay_linear::History;
use forebay_nbd::Succession;
use forebay_origin::OriginTraits;
use forebay_units::Bytes;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub(super) const VOLUME: VolumeId = VolumeId(0);
pub(super) const HOSTS: u32 = 3;
/// What lasts a while lasts so long.
pub(super) const WHILE_NS: u64 = 150_000_000;
/// Clients ask nothing more from here on, and all that is a fault is over but for what is so for good.
pub(super) const CALM_NS: u64 = 900_000_000;
/// By then everything has come to its end.
const END_NS: u64 = 24_000_000_000;

/// Behind the storage side of seeds from here on is a server of others, as nbdkit is.
pub(super) const FAR: u64 = 1 << 63;

/// In seeds with this bit clients come by an address that moves, in place of a proxy.
pub(super) const ADDRESS: u64 = 1 << 62;

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Turn(u64),
    Arrival {
        connection: u64,
        to_server: bool,
    },
    /// A daemon's worker takes a connection from whoever shook hands.
    Enter(u64),
    Link(u64),
    Work(u64),
    Answer(u64),
    Think(usize),
    /// The controller takes a step.
    Control,
    /// An order reaches who carries it out; its time is over; its report arrives.
    Begin(u64),
    Deadline(u64),
    Report(u64),
    Strike(Failure),
    /// A host, the storage side's daemon or the proxy comes back.
    Back(Place),
    /// An address that moves was asked for on the wire.
    Asked(u64),
    /// A flush of the old path is not waited for any longer.
    VisitOver(u64),
    /// A daemon that stood still goes on.
    Resume(u64),
    /// A host that lagged behind does.
    CatchUp(u32),
    /// A daemon that was told to end has had its time.
    Overdue(u64),
}

/// A host of appliances.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) is_dead: bool,
    pub(super) no_boot: bool,
    pub(super) in_use: bool,
    pub(super) lies: bool,
    pub(super) deaf_until: u64,
    /// Nothing on it moves until then.
    pub(super) still_until: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) events: u64,
    pub(super) requests: u64,
    pub(super) answers: u64,
    pub(super) errors: u64,
    pub(super) failed_reads: u64,
    pub(super) disconnects: u64,
    pub(super) switches: u64,
    pub(super) strikes: u64,
    pub(super) hits: u64,
    pub(super) in_place: u64,
    pub(super) original: u64,
    /// Clients wait for a host, since nothing but that can say that its appliance is over.
    pub(super) waiting: u64,
    /// They waited for whoever runs the storage side to say that nothing lost comes back.
    pub(super) settled_by_hand: u64,
    /// Flushes that a fence ended with their connection, and that were not taken.
    pub(super) flushes_kept: u64,
    /// Changes that went to a server again, on the connection that took the place of the one on which they were lost.
    pub(super) sent_again: u64,
    /// Requests that a daemon did not take which ended in order.
    pub(super) not_taken: u64,
    /// A link said that what it had left open was over.
    pub(super) settled_by_itself: u64,
    pub(super) power_failures: u64,
    /// Of these, those that took changes of which an application had been told that they were done.
    pub(super) told_and_lost: u64,
    /// Clients were moved away from a host that lagged behind.
    pub(super) left_behind: u64,
    /// Runs of the proxy that were killed while the next one was about to begin.
    pub(super) replaced: u64,
    /// Flushes that the disk failed.
    pub(super) failed_flushes: u64,
    /// Requests that waited for those of a connection whose place theirs took.
    pub(super) overtaking: u64,
    /// Controllers that began without the journal of the one before.
    pub(super) forgotten: u64,
}

impl Course {
    pub(super) fn add(&mut self, other: &Course) {
        self.events += other.events;
        self.requests += other.requests;
        self.answers += other.answers;
        self.errors += other.errors;
        self.failed_reads += other.failed_reads;
        self.disconnects += other.disconnects;
        self.switches += other.switches;
        self.strikes += other.strikes;
        self.hits += other.hits;
        self.in_place += other.in_place;
        self.original += other.original;
        self.waiting += other.waiting;
        self.settled_by_hand += other.settled_by_hand;
        self.flushes_kept += other.flushes_kept;
        self.sent_again += other.sent_again;
        self.not_taken += other.not_taken;
        self.settled_by_itself += other.settled_by_itself;
        self.power_failures += other.power_failures;
        self.told_and_lost += other.told_and_lost;
        self.left_behind += other.left_behind;
        self.replaced += other.replaced;
        self.failed_flushes += other.failed_flushes;
        self.overtaking += other.overtaking;
        self.forgotten += other.forgotten;
    }
}

/// Everything.
pub(super) struct World {
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) now: u64,
    tick: u64,
    numbers: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    due: BTreeMap<u64, Event>,
    /// The storage side has a lease.
    pub(super) leased: bool,
    /// Its data is with a server of others, which has the disk and outlives it.
    pub(super) is_far: bool,
    /// The proxy does not say which run of it this is, and is not killed: what it had sent could come late.
    pub(super) is_nameless: bool,
    pub(super) keeps: bool,
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) applications: Vec<Application>,
    pub(super) budget: u64,
    pub(super) storage: Option<u64>,
    pub(super) server: Option<u64>,
    pub(super) proxy: Option<u64>,
    /// In its place, an address that moves.
    pub(super) address: Option<Address>,
    pub(super) appliances: BTreeMap<ApplianceId, u64>,
    pub(super) hosts: Vec<Host>,
    pub(super) cuts: Vec<(Place, Place, u64)>,
    pub(super) lag: Option<Lag>,
    /// A run of the proxy whose new connections workers take no earlier than then.
    pub(super) held_up: Option<(u64, u64)>,
    /// Which place each connection between daemons has, and by which of them a version came to a daemon.
    pub(super) places: BTreeMap<u64, Succession>,
    pub(super) carried: BTreeMap<(u64, u64), Vec<u64>>,
    /// On the storage side's disk: the lease, and the data.
    pub(super) lease: Lease,
    pub(super) disk: SimOrigin,
    /// How often the machine with the disk was started.
    pub(super) boots: u64,
    /// On the proxy's disk: how often it was started. And how many origins this run of it has opened.
    pub(super) proxy_runs: u32,
    pub(super) proxy_origins: u32,
    /// When changes were lost that applications took for done, if none of them has heard of it since.
    pub(super) untold_loss: Option<u64>,
    /// When one of them last heard of it.
    pub(super) doubted_through: u64,
    /// By whom an application was told that the write of this version is done, and who was the storage side then. Only of those that come by an address.
    pub(super) taken_by: BTreeMap<u64, (u64, Option<u64>)>,
    /// The appliance that alone knows of the loss, as long as clients are on it.
    pub(super) loss_known_by: Option<u64>,
    /// Those who have the old path flush before an address moves.
    pub(super) visits: BTreeMap<u64, Visit>,
    /// When one was told that all is safe before any has heard of a loss.
    pub(super) false_word: Option<u64>,
    /// When the disk failed a flush, if no application has heard of it since; and when one was told since that all is safe.
    pub(super) failed_flush: Option<u64>,
    pub(super) kept_quiet: Option<u64>,
    pub(super) disk_hangs_until: u64,
    pub(super) answers: BTreeMap<u64, AtOrigin>,
    pub(super) history: History,
    /// On the proxy's disk: where it goes, and the number of its last change.
    pub(super) route: (Destination, u64),
    pub(super) changes_of_route: VecDeque<u64>,
    pub(super) controller: u64,
    pub(super) controller_began: u64,
    /// So long after a step it takes the next one.
    pub(super) step_ns: u64,
    pub(super) responses: Responses,
    /// On the controller's disk.
    pub(super) journal: String,
    pub(super) changes: u64,
    pub(super) wanted: Option<Bytes>,
    pub(super) doing: BTreeMap<u64, Doing>,
    pub(super) reports: BTreeMap<u64, (u64, OrderId, Outcome)>,
    pub(super) orders: usize,
    pub(super) orders_of: BTreeMap<Kind, usize>,
    pub(super) strikes: Vec<Strike>,
    /// When the last one struck.
    pub(super) struck_at: u64,
    pub(super) told: Vec<Decision>,
    pub(super) course: Course,
    pub(super) log: Option<Vec<String>>,
}

/// Notes what happened, if somebody will read it.
macro_rules! note {
    ($world:expr, $($words:tt)*) => {
        if $world.log.is_some() {
            let line = format!($($words)*);
            $world.note(line);
        }
    };
}
pub(super) use note;

impl World {
    pub(super) fn new(seed: u64, with_log: bool) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let is_far = seed >= FAR;
        // None of those that failed once.
        let is_nameless = seed % 5 == 2;
        // Who has a lease to raise has it at the storage side, and a storage side without one is a stranger's itself.
        let leased = random.random_range(0..3) > 0 || is_far || seed & ADDRESS != 0;
        let keeps = random.random_range(0..2) == 0;
        let strikes = Strike::draw(&mut random, is_far);
        let step_ns = [2_500_000, 2_500_000, 10_000_000][random.random_range(0..3)];
        let traits = OriginTraits {
            size_bytes: CELLS * CELL,
            read_only: false,
            block_size_min: CELL as u32,
            block_size_preferred: BLOCK as u32,
            request_bytes_max: 1 << 20,
            can_trim: false,
            can_fast_zero: false,
            can_multi_conn: true,
        };
        let mut world = World {
            random,
            now: 0,
            tick: 0,
            numbers: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            due: BTreeMap::new(),
            leased,
            is_far,
            is_nameless,
            keeps,
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            connections: BTreeMap::new(),
            applications: Vec::new(),
            budget: 500,
            storage: None,
            server: None,
            proxy: None,
            address: (seed & ADDRESS != 0).then(Address::at_first),
            appliances: BTreeMap::new(),
            hosts: vec![Host::default(); HOSTS as usize],
            cuts: Vec::new(),
            lag: None,
            held_up: None,
            places: BTreeMap::new(),
            carried: BTreeMap::new(),
            lease: Lease::FIRST,
            disk: SimOrigin::new(traits, CELL),
            boots: 1,
            proxy_runs: 0,
            proxy_origins: 0,
            untold_loss: None,
            doubted_through: 0,
            taken_by: BTreeMap::new(),
            loss_known_by: None,
            visits: BTreeMap::new(),
            false_word: None,
            failed_flush: None,
            kept_quiet: None,
            disk_hangs_until: 0,
            answers: BTreeMap::new(),
            history: first_history(),
            route: (Destination::Storage(None), 0),
            changes_of_route: VecDeque::new(),
            controller: 0,
            controller_began: 0,
            step_ns,
            responses: Responses::new(rules(), specs()),
            journal: String::new(),
            changes: u64::MAX,
            wanted: None,
            doing: BTreeMap::new(),
            reports: BTreeMap::new(),
            orders: 0,
            orders_of: BTreeMap::new(),
            strikes,
            struck_at: 0,
            told: Vec::new(),
            course: Course::default(),
            log: with_log.then(Vec::new),
        };
        note!(world, "leased {leased}, keeps {keeps}, {:?}", world.strikes);
        world.volumes().into_iter().for_each(|(id, route)| world.responses.register(id, route));
        if is_far {
            world.server = Some(world.start_node(Role::Server, Place::Server, None));
        }
        world.start_storage();
        if world.address.is_none() {
            world.proxy = Some(world.start_node(Role::Proxy, Place::Application, Some(world.route.0)));
        }
        for index in 0..2 {
            let depth = world.random.random_range(1..5);
            world.applications.push(Application::new(depth));
            world.think_after(index, 0);
        }
        world.schedule(0, Event::Control);
        world
    }

    pub(super) fn note(&mut self, line: String) {
        let line = format!("{:>11} ns, tick {:>5}: {line}", self.now, self.tick);
        if let Some(log) = &mut self.log {
            log.push(line);
        }
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    pub(super) fn schedule(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence)));
        self.due.insert(self.sequence, event);
    }

    pub(super) fn delay(&mut self) -> u64 {
        match self.random.random_range(0..60) {
            0 => self.random.random_range(0..2_000_000),
            1..10 => self.random.random_range(0..200_000),
            _ => self.random.random_range(0..20_000),
        }
    }

    /// The next event happens; false if there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at, sequence))) = self.events.pop() else { return false };
        self.now = self.now.max(at);
        self.course.events += 1;
        assert!(self.course.events < 3_000_000, "the run does not come to an end");
        match self.due.remove(&sequence).expect("scheduled with it") {
            Event::Turn(node) => self.turn(node),
            Event::Arrival { connection, to_server: true } => self.arrive_at_server_in_time(connection),
            Event::Arrival { connection, to_server: false } => self.arrive_at_client(connection),
            Event::Enter(connection) => self.enter(connection),
            Event::Link(link) => self.tend_link(link),
            Event::Work(serial) => self.work(serial),
            Event::Answer(serial) => self.answer(serial),
            Event::Think(application) => self.think(application),
            Event::Control => self.control(),
            Event::Begin(order) => self.begin_order(order),
            Event::Deadline(order) => self.give_up_order(order),
            Event::Report(report) => self.hear_report(report),
            Event::Strike(failure) => self.strike(failure),
            Event::Back(place) => self.come_back(place),
            Event::Asked(order) => self.asked(order),
            Event::VisitOver(visit) => self.give_up_visit(visit),
            Event::Resume(node) => self.resume(node),
            Event::CatchUp(host) => self.catch_up(host),
            Event::Overdue(node) => self.end_node(node),
        }
        true
    }

    // ---- What strikes -----------------------------------------------------------------------------------------

    pub(super) fn cut_off(&mut self, a: Place, b: Place) {
        self.cut_off_until(a, b, self.now + WHILE_NS);
    }

    pub(super) fn cut_off_until(&mut self, a: Place, b: Place, until: u64) {
        note!(self, "{a:?} and {b:?} are cut off from each other");
        self.cuts.push((a, b, until));
        let between: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let Some(to) = self.nodes.get(&connection.node).map(|node| node.place) else { return false };
                let from = match connection.peer {
                    Peer::Application(_) => Place::Application,
                    Peer::Visitor(_) => Place::Controller,
                    Peer::Link(link) => {
                        match self.links.get(&link).and_then(|link| self.nodes.get(&link.node)) {
                            Some(node) => node.place,
                            None => return false,
                        }
                    }
                };
                (from, to) == (a, b) || (from, to) == (b, a)
            })
            .map(|(id, _)| *id)
            .collect();
        between.into_iter().for_each(|id| self.cut(id));
    }

    pub(super) fn kill_host(&mut self, host: u32, is_back: bool) {
        note!(self, "host {host} dies");
        self.hosts[host as usize].is_dead = true;
        self.address.iter_mut().for_each(|address| address.host_died(host));
        let its: Vec<u64> =
            self.nodes.iter().filter(|(_, n)| n.place == Place::Host(host)).map(|(id, _)| *id).collect();
        its.into_iter().for_each(|node| self.kill_node(node));
        if is_back {
            self.schedule(WHILE_NS, Event::Back(Place::Host(host)));
        }
    }

    fn come_back(&mut self, place: Place) {
        note!(self, "{place:?} is back");
        match place {
            Place::Host(host) => self.hosts[host as usize].is_dead = false,
            Place::Storage if self.storage.is_none() => self.start_storage(),
            Place::Server if self.server.is_none() => {
                self.server = Some(self.start_node(Role::Server, Place::Server, None));
            }
            Place::Application if self.proxy.is_none() && self.address.is_none() => {
                self.proxy = Some(self.start_node(Role::Proxy, Place::Application, Some(self.route.0)));
            }
            _ => {}
        }
    }

    fn start_storage(&mut self) {
        let origin = self.is_far.then_some(Destination::Server);
        self.storage = Some(self.start_node(Role::Storage, Place::Storage, origin));
    }

    /// Who has the disk.
    pub(super) fn holder(&self) -> Option<u64> {
        if self.is_far { self.server } else { self.storage }
    }

    /// Whether this daemon is a stranger's, who says nothing of himself and ends what a lost connection asked before that is lost to whoever asked.
    pub(super) fn is_a_strangers(&self, node: u64) -> bool {
        self.holder() == Some(node) && (self.is_far || !self.leased)
    }

    /// Everything that the disk was given, and all that waits before it, is done.
    pub(super) fn end_at_storage(&mut self) {
        let Some(holder) = self.holder() else { return };
        // Also on a disk that stands still: then the connection is lost a while later.
        self.disk_hangs_until = 0;
        loop {
            let serials: Vec<u64> = self.disk.requests.keys().copied().collect();
            for serial in serials {
                while !self.disk.work(serial, usize::MAX, &mut self.random) {}
                self.work(serial);
            }
            let answers: Vec<u64> = self.answers.keys().copied().collect();
            if answers.is_empty() && self.disk.requests.is_empty() {
                return;
            }
            answers.into_iter().for_each(|serial| self.answer(serial));
            self.turn_now(holder);
        }
    }

    // ---- The run ----------------------------------------------------------------------------------------------

    fn status(&self) -> ResponseStatus {
        self.responses.status(VOLUME).expect("it is registered")
    }

    fn rests(&self) -> bool {
        let status = self.status();
        let is_there = if self.keeps { "serving" } else { "original route" };
        // What struck just now nobody has noticed yet: a host that is dead for as long as three silences take is still said to be serving.
        let is_calm = self.now > CALM_NS.max(self.struck_at) + 4 * WHILE_NS;
        is_calm && [is_there, "original route"].contains(&status.step)
    }

    /// Runs to the end, and judges it.
    pub(super) fn run(&mut self) {
        while self.now < CALM_NS && self.step() {}
        let calm = self.now;
        self.budget = 0;
        let mut is_settled = self.leased;
        while !(self.rests() && self.now > calm + 1_000_000_000) && self.now < END_NS && self.step() {
            // Without a lease nobody but who runs the storage side can say that nothing lost comes back, and clients stay where they are until then.
            if !is_settled && self.now > calm + 4_000_000_000 {
                is_settled = true;
                self.course.settled_by_hand += 1;
                self.settle();
            }
        }
        let hits = self.appliances.values().copied().collect::<Vec<_>>();
        for node in hits {
            self.course.hits += self.machine(node).map_or(0, |machine| machine.counters().reads_hit);
        }
        self.keep_journal();
        let status = self.status();
        note!(self, "at rest: {status:?}");
        if self.strikes.is_empty() {
            // An address that moves ends connections.
            let disconnects = if self.address.is_some() { 0 } else { self.course.disconnects };
            assert_eq!((self.course.errors, disconnects), (0, 0), "clients noticed");
        }
        if self.waits_for_a_host(&status) {
            self.course.waiting += 1;
        } else {
            self.judge_end(&status);
        }
        let (start, end) = (self.tick(), self.tick());
        for cell in 0..CELLS {
            self.history.must_hold(cell, self.disk.held(cell));
            self.history.read(cell, self.disk.held(cell), start, end);
        }
        self.history.check();
        assert_eq!(self.false_word, None, "somebody was told that all is safe, and some of it was lost");
        assert_eq!(
            self.kept_quiet, None,
            "nobody heard of a flush that the disk failed before another one succeeded"
        );
    }

    /// Whoever runs the storage side says that nothing lost comes back.
    fn settle(&mut self) {
        let nodes: Vec<u64> = self.nodes.keys().copied().collect();
        for node in nodes {
            if let Some(machine) = self.machine(node) {
                machine.settle();
                self.wake(node);
            }
        }
    }

    /// Without a lease nothing but a dead host itself can say that what was out on it changes nothing any more.
    fn waits_for_a_host(&self, status: &ResponseStatus) -> bool {
        // Without a journal nobody knows which it is.
        let is_dead =
            status.host.map_or(self.course.forgotten > 0, |host| self.hosts[host.0 as usize].is_dead);
        !self.leased && is_dead && ["stopping before the way back", "switching back"].contains(&status.step)
    }

    fn judge_end(&mut self, status: &ResponseStatus) {
        let in_place = match status.step {
            "serving" if self.keeps => true,
            "original route" => false,
            step => panic!("the response ends at `{step}`, with {status:?}"),
        };
        // Clients are where it says that they are.
        let at = self.route.0;
        match (in_place, at) {
            (true, Destination::Appliance(appliance)) => assert_eq!(status.appliance, Some(appliance)),
            (false, Destination::Storage(_)) => {}
            (_, at) => panic!("the response says {status:?}, and clients are at {at:?}"),
        }
        let holder = if in_place { LeaseHolder::Named } else { LeaseHolder::Original };
        assert!(
            !self.leased || self.lease == Lease::FIRST || self.lease.holder == holder,
            "the response says {status:?}, and the lease is {:?}",
            self.lease
        );
        let last = self.told.iter().rev().find(|decision| {
            matches!(
                decision.kind,
                DecisionKind::CacheInPlace | DecisionKind::OriginalRoute | DecisionKind::NothingHelps
            )
        });
        let said = last.is_some_and(|last| (last.kind == DecisionKind::CacheInPlace) == in_place);
        assert!(said, "it was not said how it ended: {last:?}");
        self.course.in_place += u64::from(in_place);
        self.course.original += u64::from(!in_place);
        // All is read twice, so that it is read from caches as well; of reads, only what is in doubt is not answered.
        self.settle();
        for look in ["first", "second"] {
            assert!(self.read_everything(), "the {look} look at everything is not answered well");
        }
    }
}
