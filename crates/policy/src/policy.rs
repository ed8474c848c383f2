//! The one trait between a partition and its policy. It is not a policy and holds no state.

use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// The place of a block in a partition, from 0: dense, so that policies are arrays and stores are arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The largest number of slots of one partition: 2^31 - 2, that is 8 TiB in blocks of 4 KiB (ours: links keep two
/// bits for tags and one value for "none").
pub const SLOTS_MAX: u32 = (1 << 31) - 2;

/// Why a block enters, which decides where a policy puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// It was asked for and missed.
    Miss,
    /// Warm-up as PRESTO has it: where a block that was used again would be, as the most recent.
    Prewarm,
    /// Warm-up in the order of falling score: behind everything that is there, as the next victim. The best, which
    /// comes first, is then the last victim of those warmed, and warm-up never displaces what clients asked for
    /// (ours; head insertion loses up to 0.143 of hit ratio, measured with PRESTO's own volumes).
    PrewarmTail,
}

/// A block about to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Which block.
    pub block: BlockIndex,
    /// Why it enters.
    pub insertion: Insertion,
}

/// An order over slots, and the decision who leaves and who may enter.
///
/// # The protocol
///
/// | event | calls, in this order |
/// | --- | --- |
/// | a look-up finds the block | `on_hit` |
/// | a look-up does not | `on_miss` (whether or not the block is inserted later) |
/// | a block is inserted | `admit`; if admitted and the partition is full: `victim(Some)`, `on_evict`; then `on_insert` |
/// | the quota shrinks | `set_capacity` once, then `victim(None)`, `on_evict` for each block too many, `on_move` for survivors, `release` |
/// | a block is invalidated | `on_remove` |
/// | the partition uses one slot more than ever | `reserve`, before `on_insert` |
///
/// # Why this shape carries all of them
///
/// * **LRU, FIFO, SLRU, two-pool**: lists of slots ([`crate::Links`]); `on_move` renames a slot within its list.
/// * **CLOCK, SIEVE**: the hand moves in `victim`, which therefore takes `&mut self` and may relink. A visited bit is a
///   tag of the link. The hand survives `on_evict`, `on_remove` and `on_move` because each names the slot.
/// * **LFU**: lists per frequency; `on_hit` moves the slot up by one list.
/// * **2Q, ARC, LIRS, S3-FIFO** remember blocks that are no longer resident. Such ghosts are keyed by block, so
///   `on_evict` and `on_insert` name the block and residents need no key of their own. *Leaving because somebody else came*
///   (`on_evict`, may leave a ghost) differs from *no longer true* (`on_remove`, must not). ARC adapts its target by the
///   ghost list that the incoming block is in, before it chooses: so `victim` knows the incoming block. LIRS keeps
///   resident and non-resident blocks in one stack: even ids are slots, odd ids ghosts. Ghosts are bounded by the
///   capacity and counted in `footprint_bytes`.
/// * **W-TinyLFU** counts every access by block in a sketch: `on_hit` and `on_miss` name the block. Its duel between window
///   and main area is `victim`; a pure TinyLFU filter, and any policy that refuses one-time blocks, is `admit`.
/// * **Two kinds of warm-up**: [`Insertion`] says why a block enters; `admit` refuses what would displace its betters.
/// * **Belady** knows the future by the number of the look-up: it counts `on_hit` and `on_miss`.
///
/// What it rules out on purpose: an eviction by `on_hit`. A hit costs a bounded number of links and nothing of the
/// store. Policies whose segments have hard borders let them overhang until the next insertion (see [`crate::TwoPool`]).
///
/// Every call but `visit_hottest_first` is `O(1)` (Belady: `O(log n)`); `victim` of CLOCK, SIEVE and S3-FIFO, and LIRS's pruning,
/// only amortised: after everything was used once, one call goes round all slots (about 10 ns each), which a data path with
/// millions of them must know. No call allocates except
/// `reserve` (and ghosts, within memory that `reserve` or `set_capacity` obtained). The trait can be a trait object;
/// partitions take it as a type parameter, since a virtual call per hit is a measurable share of a hit.
pub trait Policy {
    /// The name by which configurations and reports call it, in lower case.
    fn name(&self) -> &'static str;

    /// Makes the slots `0..slots` usable. Called with rising numbers, one slot at a time, so that no call has much to do.
    ///
    /// # Errors
    /// The allocator's refusal; the policy is then as it was.
    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError>;

    /// Gives back the memory of all slots from `slots` on; none of them holds a block.
    fn release(&mut self, slots: u32);

    /// Tells how many blocks may be resident from now on. More may be at this moment: they leave through `victim(None)`.
    fn set_capacity(&mut self, blocks: u32);

    /// Whether a block that is not resident may enter. Called once per insertion, before `victim`.
    fn admit(&mut self, incoming: Incoming) -> bool {
        let _ = incoming;
        true
    }

    /// Chooses who leaves: for the incoming block, or because the quota shrinks (`None`; the coldest leave first).
    ///
    /// The slot stays ordered until `on_evict`, which follows at once. `None` exactly if no block is resident.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot>;

    /// A look-up found `block` in `slot`.
    fn on_hit(&mut self, slot: Slot, block: BlockIndex);

    /// A look-up did not find `block`.
    fn on_miss(&mut self, block: BlockIndex) {
        let _ = block;
    }

    /// Has the memory fetched that hits of `hits` and insertions or evictions of `others` will touch, and changes nothing. A hint: who works off many
    /// look-ups at once waits for their memory together instead of for one after another. May do nothing.
    fn anticipate(&self, hits: &[Slot], others: &[BlockIndex]) {
        let _ = (hits, others);
    }

    /// A slot that will probably be chosen soon, each told once, the soonest first: what choosing it reads of the policy is being fetched. `None` while enough are told. A hint like
    /// [`Policy::anticipate`], which changes no choice: to be asked about twice for each block that leaves.
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        None
    }

    /// `incoming` is in `slot` from now on; the slot was reserved and is not ordered.
    fn on_insert(&mut self, slot: Slot, incoming: Incoming);

    /// `block` leaves `slot` because `victim` chose it; a policy with a memory may remember it.
    fn on_evict(&mut self, slot: Slot, block: BlockIndex);

    /// `block` leaves `slot` because it is invalid; nothing may be concluded from it.
    fn on_remove(&mut self, slot: Slot, block: BlockIndex);

    /// The block in `from` is in `to` from now on, at the same place of the order; `to` was reserved and is not ordered.
    fn on_move(&mut self, from: Slot, to: Slot);

    /// Visits all ordered slots, the last victim first and the next victim last, until `visit` breaks.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>);

    /// The memory it holds, in bytes, by the capacity of its allocations.
    fn footprint_bytes(&self) -> u64;
}

/// A policy behind a pointer, chosen while the program runs.
impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        (**self).reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        (**self).release(slots);
    }

    fn set_capacity(&mut self, blocks: u32) {
        (**self).set_capacity(blocks);
    }

    fn admit(&mut self, incoming: Incoming) -> bool {
        (**self).admit(incoming)
    }

    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        (**self).victim(incoming)
    }

    fn on_hit(&mut self, slot: Slot, block: BlockIndex) {
        (**self).on_hit(slot, block);
    }

    fn on_miss(&mut self, block: BlockIndex) {
        (**self).on_miss(block);
    }

    fn anticipate(&self, hits: &[Slot], others: &[BlockIndex]) {
        (**self).anticipate(hits, others);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        (**self).fetch_victim_ahead()
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        (**self).on_insert(slot, incoming);
    }

    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        (**self).on_evict(slot, block);
    }

    fn on_remove(&mut self, slot: Slot, block: BlockIndex) {
        (**self).on_remove(slot, block);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        (**self).on_move(from, to);
    }

    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        (**self).visit_hottest_first(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        (**self).footprint_bytes()
    }
}

impl std::fmt::Debug for dyn Policy + Send {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("name", &self.name()).finish_non_exhaustive()
    }
}
