//! The protocol's enumerations. Unknown numbers are kept where the protocol asks us to answer them politely.

/// Defines an enumeration over an integer with conversions both ways; unknown numbers are `None`.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$variant_doc:meta])* $variant:ident = $number:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of the protocol document.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number on the wire.
            pub const fn number(self) -> $int {
                match self { $($name::$variant => $number,)* }
            }

            /// The meaning of a number, or `None` where the protocol document gives it none that we know.
            pub const fn from_number(number: $int) -> Option<$name> {
                match number { $(n if n == $number => Some($name::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// What a client can ask for before the transmission.
    OptionCode: u32 {
        /// Choose an export; the old way, without errors.
        ExportName = 1;
        /// End the session.
        Abort = 2;
        /// Name every export.
        List = 3;
        /// Upgrade to TLS.
        StartTls = 5;
        /// Describe an export.
        Info = 6;
        /// Describe and choose an export.
        Go = 7;
        /// Use structured replies.
        StructuredReply = 8;
        /// Name metadata contexts.
        ListMetaContext = 9;
        /// Choose metadata contexts.
        SetMetaContext = 10;
        /// Use extended headers; we answer that it is unsupported.
        ExtendedHeaders = 11;
        /// Succeed earlier connections ([`crate::Succession`]). Ours, and far from the protocol's own numbers: others answer that it is unsupported.
        Succeed = 0x0f0e_ba71;
    }
}

numbered! {
    /// How a server answers an option. Bit 31 marks an error.
    OptionReply: u32 {
        /// Done.
        Ack = 1;
        /// One export of a list.
        Server = 2;
        /// One piece of information on an export.
        Info = 3;
        /// One metadata context.
        MetaContext = 4;
        /// Who lets a connection succeed earlier ones. Ours, as the option.
        Succeeds = 0x0f0e_ba71;
        /// The option is unknown.
        ErrUnsupported = (1 << 31) + 1;
        /// The option is known and forbidden here.
        ErrPolicy = (1 << 31) + 2;
        /// The option's data is malformed, or it comes at the wrong time.
        ErrInvalid = (1 << 31) + 3;
        /// The platform cannot.
        ErrPlatform = (1 << 31) + 4;
        /// TLS first.
        ErrTlsRequired = (1 << 31) + 5;
        /// No such export.
        ErrUnknown = (1 << 31) + 6;
        /// The server is going away.
        ErrShutdown = (1 << 31) + 7;
        /// The client must ask for the block sizes first.
        ErrBlockSizeRequired = (1 << 31) + 8;
        /// The option, or its answer, is too big.
        ErrTooBig = (1 << 31) + 9;
        /// Extended headers first.
        ErrExtendedHeadersRequired = (1 << 31) + 10;
    }
}

impl OptionReply {
    /// Whether a reply number means an error, known or not.
    pub const fn is_error(number: u32) -> bool {
        number & (1 << 31) != 0
    }
}

numbered! {
    /// The kinds of information on an export.
    InfoType: u16 {
        /// Size and transmission flags; always sent.
        Export = 0;
        /// Canonical name.
        Name = 1;
        /// For people.
        Description = 2;
        /// Minimum, preferred and maximum block size.
        BlockSize = 3;
    }
}

numbered! {
    /// The commands of the transmission phase.
    Command: u16 {
        /// Read bytes.
        Read = 0;
        /// Write bytes; the only request with a payload.
        Write = 1;
        /// End the session; has no reply.
        Disconnect = 2;
        /// Acknowledged writes to stable storage.
        Flush = 3;
        /// Content is no longer needed.
        Trim = 4;
        /// Content will be needed soon.
        Cache = 5;
        /// Write zeroes without sending them.
        WriteZeroes = 6;
        /// State of extents.
        BlockStatus = 7;
    }
}

numbered! {
    /// The kinds of chunk in a structured reply. Bit 15 marks an error.
    ChunkType: u16 {
        /// Ends a reply and carries nothing.
        None = 0;
        /// Bytes at an offset.
        OffsetData = 1;
        /// Zeroes at an offset.
        OffsetHole = 2;
        /// Extents of one metadata context.
        BlockStatus = 5;
        /// An error of the whole request.
        Error = (1 << 15) + 1;
        /// An error at an offset.
        ErrorOffset = (1 << 15) + 2;
    }
}

impl ChunkType {
    /// Whether a chunk number means an error, known or not.
    pub const fn is_error(number: u16) -> bool {
        number & (1 << 15) != 0
    }
}
