//! The room as its users see it: real traces with their published counts, writers read back, and input that is wrong
//! in every way that we could think of.

mod trace {
    pub(crate) mod real;
}
