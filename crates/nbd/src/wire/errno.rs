//! The eight error values of the protocol and how Linux error numbers become them.

use std::fmt;

/// An error as NBD knows it. The numbers are those that Linux on x86 happens to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `EPERM` (1): not permitted, for example a write to a read-only export.
    NotPermitted,
    /// `EIO` (5): the storage failed.
    Io,
    /// `ENOMEM` (12): out of memory.
    NoMemory,
    /// `EINVAL` (22): the request makes no sense here.
    Invalid,
    /// `ENOSPC` (28): no space, or a write beyond the end.
    NoSpace,
    /// `EOVERFLOW` (75): too long to be answered in one piece.
    Overflow,
    /// `ENOTSUP` (95): not supported, for example zeroes that cannot be fast.
    NotSupported,
    /// `ESHUTDOWN` (108): the server is going away.
    Shutdown,
}

/// An error number as Linux defines it, for example `LinuxErrno(5)` for `EIO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinuxErrno(pub i32);

impl ErrorCode {
    /// Every value.
    pub const ALL: [ErrorCode; 8] = [
        ErrorCode::NotPermitted,
        ErrorCode::Io,
        ErrorCode::NoMemory,
        ErrorCode::Invalid,
        ErrorCode::NoSpace,
        ErrorCode::Overflow,
        ErrorCode::NotSupported,
        ErrorCode::Shutdown,
    ];

    /// The number on the wire; never 0.
    pub const fn number(self) -> u32 {
        match self {
            ErrorCode::NotPermitted => 1,
            ErrorCode::Io => 5,
            ErrorCode::NoMemory => 12,
            ErrorCode::Invalid => 22,
            ErrorCode::NoSpace => 28,
            ErrorCode::Overflow => 75,
            ErrorCode::NotSupported => 95,
            ErrorCode::Shutdown => 108,
        }
    }

    /// The meaning of a number on the wire. `None` for 0 (no error); a number that the protocol does not define
    /// becomes `Invalid`, as `doc/proto.md` ("Error values") recommends to clients.
    pub fn from_number(number: u32) -> Option<ErrorCode> {
        if number == 0 {
            return None;
        }
        Some(ErrorCode::ALL.into_iter().find(|code| code.number() == number).unwrap_or(ErrorCode::Invalid))
    }

    /// The protocol's word for a Linux error number. `EACCES` and `EROFS` become `NotPermitted`, `EDQUOT` and
    /// `EFBIG` become `NoSpace` (the protocol document asks for the latter); what has no counterpart becomes
    /// `Io`, because an error of the storage must never look like a mistake of the client (ours).
    pub const fn from_linux(errno: LinuxErrno) -> ErrorCode {
        match errno.0 {
            1 | 13 | 30 => ErrorCode::NotPermitted,
            12 => ErrorCode::NoMemory,
            22 => ErrorCode::Invalid,
            27 | 28 | 122 => ErrorCode::NoSpace,
            75 => ErrorCode::Overflow,
            95 => ErrorCode::NotSupported,
            108 => ErrorCode::Shutdown,
            _ => ErrorCode::Io,
        }
    }

    /// The Linux error number.
    pub const fn to_linux(self) -> LinuxErrno {
        LinuxErrno(self.number() as i32)
    }

    /// The name as in `errno.h`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorCode::NotPermitted => "EPERM",
            ErrorCode::Io => "EIO",
            ErrorCode::NoMemory => "ENOMEM",
            ErrorCode::Invalid => "EINVAL",
            ErrorCode::NoSpace => "ENOSPC",
            ErrorCode::Overflow => "EOVERFLOW",
            ErrorCode::NotSupported => "ENOTSUP",
            ErrorCode::Shutdown => "ESHUTDOWN",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_both_ways() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
            assert_eq!(ErrorCode::from_linux(code.to_linux()), code);
        }
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(ErrorCode::from_number(4711), Some(ErrorCode::Invalid));
    }

    #[test]
    fn linux_numbers_without_a_counterpart_are_the_storage_s_fault() {
        assert_eq!(ErrorCode::from_linux(LinuxErrno(122)), ErrorCode::NoSpace); // EDQUOT
        assert_eq!(ErrorCode::from_linux(LinuxErrno(27)), ErrorCode::NoSpace); // EFBIG
        assert_eq!(ErrorCode::from_linux(LinuxErrno(30)), ErrorCode::NotPermitted); // EROFS
        assert_eq!(ErrorCode::from_linux(LinuxErrno(110)), ErrorCode::Io); // ETIMEDOUT
        assert_eq!(ErrorCode::from_linux(LinuxErrno(-1)), ErrorCode::Io);
    }
}
