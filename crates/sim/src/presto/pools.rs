//! PRESTO's cache of objects: two LRU pools with hard borders, single-touch and multi-touch.
//!
//! It is not `policy::TwoPool`, whose borders are soft and whose blocks are all of one size: results that are compared with
//! published ones need the published cache. The room of a partition of prewarmed objects follows the same rule in both (`policy::OwnPartition`). Invariant: an object is in at most one pool, each pool is in the order of last use, and
//! the bytes of a pool are at most its limit after every call.
//!
//! Source: PRESTO (slides, "Inside the cache: pools"; pool rules as in its published simulator).

use super::objects::{Object, Objects};
pub use forebay_control::prewarm::Entry;
use forebay_policy::OwnPartition;

const NONE: u32 = u32::MAX;

/// Which pool an object is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// Not cached.
    Out,
    /// Touched once.
    Single,
    /// Touched again, or prewarmed.
    Multi,
    /// Prewarmed, in a partition of its own, and not used since.
    Own,
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    head: u32,
    tail: u32,
    bytes: u64,
    limit: u64,
}

impl Pool {
    const fn new(limit: u64) -> Pool {
        Pool { head: NONE, tail: NONE, bytes: 0, limit }
    }
}

/// The cache.
#[derive(Clone, Debug)]
pub struct Pools {
    objects: Objects,
    place: Vec<Place>,
    /// Towards the head, and towards the tail.
    newer: Vec<u32>,
    older: Vec<u32>,
    single: Pool,
    multi: Pool,
    own: Pool,
    /// The room of those, in bytes.
    own_room: OwnPartition,
    total: u64,
}

impl Pools {
    /// An empty cache of `bytes`, of which single-touch has a fifth.
    pub fn new(objects: Objects, bytes: u64) -> Pools {
        Pools::with_single(objects, bytes, bytes / 5)
    }

    /// An empty cache of `bytes`, of which single-touch has `single`; all of it for the one-pool cache by which PRESTO finds wss80.
    pub fn with_single(objects: Objects, bytes: u64, single: u64) -> Pools {
        let count = objects.count();
        Pools {
            objects,
            place: vec![Place::Out; count],
            newer: vec![NONE; count],
            older: vec![NONE; count],
            single: Pool::new(single),
            multi: Pool::new(bytes - single),
            own: Pool::new(0),
            own_room: OwnPartition::NONE,
            total: bytes,
        }
    }

    /// All the room.
    pub fn capacity(&self) -> u64 {
        self.total
    }

    /// Bytes of what is cached.
    pub fn bytes(&self) -> u64 {
        self.single.bytes + self.multi.bytes + self.own.bytes
    }

    /// Where `object` is.
    pub fn place(&self, object: Object) -> Place {
        self.place[object.index()]
    }

    fn pool(&mut self, place: Place) -> &mut Pool {
        match place {
            Place::Single => &mut self.single,
            Place::Multi => &mut self.multi,
            Place::Own => &mut self.own,
            Place::Out => unreachable!("objects that are not cached have no pool"),
        }
    }

    fn unlink(&mut self, object: Object) {
        let index = object.index();
        let (newer, older) = (self.newer[index], self.older[index]);
        let bytes = self.objects.bytes(object);
        let place = self.place[index];
        if newer == NONE {
            self.pool(place).head = older;
        } else {
            self.older[newer as usize] = older;
        }
        if older == NONE {
            self.pool(place).tail = newer;
        } else {
            self.newer[older as usize] = newer;
        }
        self.pool(place).bytes -= bytes;
        self.place[index] = Place::Out;
    }

    fn link(&mut self, object: Object, place: Place, at_head: bool) {
        let bytes = self.objects.bytes(object);
        let index = object.index();
        let pool = self.pool(place);
        pool.bytes += bytes;
        let (newer, older) = if at_head { (NONE, pool.head) } else { (pool.tail, NONE) };
        let mark = index as u32;
        if at_head {
            pool.head = mark;
            if pool.tail == NONE {
                pool.tail = mark;
            }
        } else {
            pool.tail = mark;
            if pool.head == NONE {
                pool.head = mark;
            }
        }
        if older != NONE {
            self.newer[older as usize] = mark;
        }
        if newer != NONE {
            self.older[newer as usize] = mark;
        }
        self.newer[index] = newer;
        self.older[index] = older;
        self.place[index] = place;
    }

    fn shrink(&mut self, place: Place) {
        loop {
            let pool = self.pool(place);
            if pool.bytes <= pool.limit {
                return;
            }
            let victim = Object(pool.tail);
            self.unlink(victim);
        }
    }

    /// Looks `object` up, and lets it in or moves it as the rules say: a miss enters single-touch, a hit enters multi-touch, both as the
    /// most recent. Returns whether it was cached. Where there is no multi-touch pool, a hit only makes it the most recent.
    pub fn look_up(&mut self, object: Object) -> bool {
        let place = self.place(object);
        match place {
            Place::Out => {
                self.link(object, Place::Single, true);
                self.shrink(Place::Single);
                return false;
            }
            Place::Multi => {
                if self.multi.head != object.0 {
                    self.unlink(object);
                    self.link(object, Place::Multi, true);
                }
            }
            Place::Single if self.multi.limit == 0 && self.own_room.room() == 0 => {
                self.unlink(object);
                self.link(object, Place::Single, true);
            }
            Place::Single => {
                self.unlink(object);
                self.link(object, Place::Multi, true);
                self.shrink(Place::Multi);
            }
            Place::Own => {
                let (bytes, before) = (self.objects.bytes(object), self.own_room.room());
                let is_given = self.own_room.give(self.own.bytes, bytes);
                self.unlink(object);
                if is_given {
                    self.share_out();
                } else {
                    self.multi.limit += before - self.own_room.room();
                }
                self.link(object, Place::Multi, true);
                self.shrink(Place::Multi);
            }
        }
        true
    }

    /// Sets `bytes` of the cache aside for prewarmed objects, or all but single-touch's share; both pools give in proportion.
    pub fn open_own_partition(&mut self, bytes: u64) {
        self.own_room = OwnPartition::open(bytes, self.total, self.total / 5);
        self.share_out();
    }

    /// Nothing more is prewarmed: the pools have what the partition did not need.
    pub fn close_own_partition(&mut self) {
        if self.own_room.is_open() {
            self.own_room.close(self.own.bytes);
            self.share_out();
        }
    }

    /// Shares out what prewarmed objects do not have to themselves.
    fn share_out(&mut self) {
        let left = self.total - self.own_room.room();
        self.single.limit = left / 5;
        self.multi.limit = left - self.single.limit;
        self.shrink(Place::Single);
        self.shrink(Place::Multi);
    }

    /// Loads `object`, which is not cached. Returns whether it is now: prewarming displaces nothing, but what `Entry::OwnPartition` set
    /// aside.
    pub fn prewarm(&mut self, object: Object, entry: Entry) -> bool {
        debug_assert_eq!(self.place(object), Place::Out);
        let bytes = self.objects.bytes(object);
        let fits = |pool: &Pool| pool.bytes + bytes <= pool.limit;
        let place = match entry {
            Entry::OwnPartition if self.own_room.takes(self.own.bytes, bytes) => Place::Own,
            Entry::OwnPartition => return false,
            _ if fits(&self.multi) => Place::Multi,
            _ if fits(&self.single) => Place::Single,
            _ => return false,
        };
        self.link(object, place, entry == Entry::Head);
        true
    }

    /// Visits all that is cached.
    pub fn cached(&self) -> impl Iterator<Item = Object> + '_ {
        (0..self.place.len() as u32).map(Object).filter(|object| self.place(*object) != Place::Out)
    }
}
