//! The protocol's bit fields as types, so that a command flag cannot be passed for a transmission flag.

/// Defines a bit set over an unsigned integer with the usual set operations.
macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// No bit set.
            pub const NONE: $name = $name(0);
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*
            /// Every bit that the protocol document gives a meaning and this crate knows.
            pub const KNOWN: $name = $name(0 $(| (1 << $bit))*);

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits of either.
            #[must_use]
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The bits of this that are not in `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// The bits of `other` if `condition`, besides those of this.
            #[must_use]
            pub const fn with_if(self, condition: bool, other: $name) -> $name {
                if condition { self.with(other) } else { self }
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }
    };
}

bit_set! {
    /// What the server says of itself in its greeting.
    HandshakeFlags: u16 {
        /// Speaks fixed newstyle: unknown options are answered, not punished.
        FIXED_NEWSTYLE = 0;
        /// Can leave out the 124 zeroes after `EXPORT_NAME`.
        NO_ZEROES = 1;
    }
}

bit_set! {
    /// What the client answers to the greeting.
    ClientFlags: u32 {
        /// Speaks fixed newstyle.
        FIXED_NEWSTYLE = 0;
        /// Wants no 124 zeroes after `EXPORT_NAME`.
        NO_ZEROES = 1;
    }
}

bit_set! {
    /// What an export offers.
    TransmissionFlags: u16 {
        /// Always set.
        HAS_FLAGS = 0;
        /// Every change is refused.
        READ_ONLY = 1;
        /// `FLUSH` may be sent.
        SEND_FLUSH = 2;
        /// `FUA` may be set.
        SEND_FUA = 3;
        /// Behaves like a rotating medium.
        ROTATIONAL = 4;
        /// `TRIM` may be sent.
        SEND_TRIM = 5;
        /// `WRITE_ZEROES` may be sent.
        SEND_WRITE_ZEROES = 6;
        /// `DF` may be set; only with structured replies.
        SEND_DF = 7;
        /// A flush on one connection covers writes acknowledged on another.
        CAN_MULTI_CONN = 8;
        /// Resizing, an extension that we neither offer nor use.
        SEND_RESIZE = 9;
        /// `CACHE` may be sent.
        SEND_CACHE = 10;
        /// `FAST_ZERO` may be set.
        SEND_FAST_ZERO = 11;
        /// A block status request may have a payload; extended headers only, which we do not speak.
        BLOCK_STATUS_PAYLOAD = 12;
    }
}

bit_set! {
    /// How a command is to be done.
    CommandFlags: u16 {
        /// On stable storage before the reply.
        FUA = 0;
        /// Write zeroes must not make a hole.
        NO_HOLE = 1;
        /// At most one content chunk in the reply to a read.
        DF = 2;
        /// Only the first extent is of interest.
        REQ_ONE = 3;
        /// Write zeroes must fail with `ENOTSUP` rather than be as slow as a write.
        FAST_ZERO = 4;
        /// Extended headers only, which we do not speak: always refused.
        PAYLOAD_LEN = 5;
    }
}

bit_set! {
    /// Flags of a structured chunk.
    ChunkFlags: u16 {
        /// The last chunk of this reply.
        DONE = 0;
    }
}

bit_set! {
    /// State of an extent in the `base:allocation` context.
    AllocationFlags: u32 {
        /// Not allocated.
        HOLE = 0;
        /// Reads as zeroes.
        ZERO = 1;
    }
}
