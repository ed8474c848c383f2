//! What an export is, as told to a client or by a server.

use crate::Succeeds;
use crate::wire::{PAYLOAD_BYTES_PORTABLE, TransmissionFlags};

/// The units in which an export wants to be addressed, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it: a power of two, at most 64 KiB.
    pub min: u32,
    /// Best performance: a power of two, at least `min` and 512.
    pub preferred: u32,
    /// Longest payload: a multiple of `min`.
    pub max: u32,
}

impl Default for BlockSizes {
    /// Any byte, best in 4 KiB, payloads up to 32 MiB: what a client assumes of a server that does not say.
    fn default() -> BlockSizes {
        BlockSizes { min: 1, preferred: 4096, max: PAYLOAD_BYTES_PORTABLE }
    }
}

impl BlockSizes {
    /// Whether the sizes keep the rules of `doc/proto.md`, "Block size constraints".
    pub fn is_valid(&self) -> bool {
        self.min.is_power_of_two()
            && self.min <= 1 << 16
            && self.preferred.is_power_of_two()
            && self.preferred >= self.min.max(512)
            && self.max >= self.min
            && (self.max == u32::MAX || self.max.is_multiple_of(self.min))
    }
}

/// One export of a server: its name, its size and what it can do.
///
/// [`ExportInfo::new`] offers everything that costs an owner nothing to honour (flush and FUA, nothing optional);
/// the owner switches on what it implements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name, at most 4,096 bytes.
    pub name: String,
    /// For people; may be empty; at most 4,096 bytes.
    pub description: String,
    /// Size in bytes; at most 2^63 - 1, because clients keep it in a signed number.
    pub size_bytes: u64,
    /// Refuses every change.
    pub read_only: bool,
    /// Offers `FLUSH`.
    pub flush: bool,
    /// Offers `FUA`.
    pub fua: bool,
    /// Offers `TRIM`.
    pub trim: bool,
    /// Offers `WRITE_ZEROES`.
    pub write_zeroes: bool,
    /// Offers `FAST_ZERO`, which needs `write_zeroes`.
    pub fast_zero: bool,
    /// Offers `CACHE`.
    pub cache: bool,
    /// Offers `DF`, if structured replies were agreed on.
    pub dont_fragment: bool,
    /// Offers the `base:allocation` context, if structured replies were agreed on.
    pub block_status: bool,
    /// A flush on one connection covers writes acknowledged on another.
    pub multi_conn: bool,
    /// Behaves like a rotating medium.
    pub rotational: bool,
    /// Lets connections succeed one another ([`crate::Succession`]), and says who does.
    pub succeeds: Option<Succeeds>,
    /// Units of addressing.
    pub block_sizes: BlockSizes,
}

impl ExportInfo {
    /// A writable export with flush, FUA and DF and nothing else.
    pub fn new(name: impl Into<String>, size_bytes: u64) -> ExportInfo {
        ExportInfo {
            name: name.into(),
            description: String::new(),
            size_bytes,
            read_only: false,
            flush: true,
            fua: true,
            trim: false,
            write_zeroes: false,
            fast_zero: false,
            cache: false,
            dont_fragment: true,
            block_status: false,
            multi_conn: false,
            rotational: false,
            succeeds: None,
            block_sizes: BlockSizes::default(),
        }
    }

    /// The transmission flags; `DF` only where structured replies were agreed on, as the protocol demands. A
    /// read-only export offers no changing command, though answering one with an error would be allowed too.
    pub fn transmission_flags(&self, structured: bool) -> TransmissionFlags {
        use TransmissionFlags as Flags;
        let writable = !self.read_only;
        Flags::HAS_FLAGS
            .with_if(self.read_only, Flags::READ_ONLY)
            .with_if(self.flush, Flags::SEND_FLUSH)
            .with_if(self.fua, Flags::SEND_FUA)
            .with_if(self.rotational, Flags::ROTATIONAL)
            .with_if(self.trim && writable, Flags::SEND_TRIM)
            .with_if(self.write_zeroes && writable, Flags::SEND_WRITE_ZEROES)
            .with_if(self.fast_zero && self.write_zeroes && writable, Flags::SEND_FAST_ZERO)
            .with_if(self.dont_fragment && structured, Flags::SEND_DF)
            .with_if(self.multi_conn, Flags::CAN_MULTI_CONN)
            .with_if(self.cache, Flags::SEND_CACHE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_keep_the_protocol_s_rules() {
        let sizes = |min, preferred, max| BlockSizes { min, preferred, max }.is_valid();
        assert!(BlockSizes::default().is_valid());
        assert!(sizes(1, 512, 1) && sizes(512, 512, u32::MAX) && sizes(1 << 16, 1 << 16, 1 << 25));
        assert!(!sizes(0, 512, 512) && !sizes(3, 512, 513) && !sizes(1 << 17, 1 << 17, 1 << 25));
        assert!(!sizes(1, 256, 512) && !sizes(4096, 512, 8192) && !sizes(1, 513, 4096));
        assert!(!sizes(512, 4096, 511) && !sizes(512, 4096, 1000));
    }

    #[test]
    fn flags_follow_what_was_agreed_and_what_can_change() {
        use TransmissionFlags as Flags;
        let export =
            ExportInfo { trim: true, write_zeroes: true, fast_zero: true, ..ExportInfo::new("d", 1) };
        assert!(export.transmission_flags(true).contains(Flags::SEND_DF));
        assert!(!export.transmission_flags(false).contains(Flags::SEND_DF));
        let read_only = ExportInfo { read_only: true, ..export }.transmission_flags(true);
        // HAS_FLAGS 1, READ_ONLY 2, FLUSH 4, FUA 8, DF 128.
        assert_eq!(read_only.0, 1 + 2 + 4 + 8 + 128);
    }
}
