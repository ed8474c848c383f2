//! Why there is no io_uring to be had, in words that say what to change.

use std::io;
use thiserror::Error;

/// The Linux from which on rings have what is asked of them: completions that wait until their thread asks (`IORING_SETUP_DEFER_TASKRUN`).
pub const RINGS_SINCE: &str = "6.1";

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

/// Where Linux says who may use io_uring.
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why the calling thread has no ring.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingRefused {
    /// The kernel does not make one.
    #[error("io_uring refused: {source}{}", hint(source, disabled().as_deref()))]
    Setup {
        /// What it said.
        source: io::Error,
    },
    /// The kernel makes one that cannot do what is needed.
    #[error("io_uring of this kernel cannot {what}; Linux {RINGS_SINCE} can")]
    Unable {
        /// What.
        what: &'static str,
    },
    /// The thread has one.
    #[error("the thread drives a ring already")]
    Taken,
}

fn disabled() -> Option<String> {
    std::fs::read_to_string(DISABLED).ok().map(|text| text.trim().to_owned())
}

/// What is likely to be behind an error of `io_uring_setup`, given what `kernel.io_uring_disabled` is.
fn hint(error: &io::Error, disabled: Option<&str>) -> String {
    match (error.raw_os_error(), disabled) {
        (Some(EPERM), Some(level @ ("1" | "2"))) => format!("; kernel.io_uring_disabled is {level}"),
        (Some(EPERM), _) => "; a seccomp filter forbids it, as in many containers".to_owned(),
        (Some(ENOSYS), _) => "; this kernel has none, or a seccomp filter hides it".to_owned(),
        (Some(EINVAL), _) => format!("; it needs Linux {RINGS_SINCE}"),
        (Some(ENOMEM), _) => "; perhaps no more memory may be locked (RLIMIT_MEMLOCK)".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_what_is_behind_it() {
        let hint_of = |errno, disabled| hint(&io::Error::from_raw_os_error(errno), disabled);
        assert_eq!(hint_of(EPERM, Some("2")), "; kernel.io_uring_disabled is 2");
        assert!(hint_of(EPERM, Some("0")).contains("seccomp"));
        assert!(hint_of(EPERM, None).contains("seccomp"));
        assert!(hint_of(ENOSYS, Some("0")).contains("has none"));
        assert!(hint_of(EINVAL, Some("0")).contains("6.1"));
        assert!(hint_of(ENOMEM, Some("0")).contains("RLIMIT_MEMLOCK"));
        assert_eq!(hint_of(24, Some("0")), "");
        let refused = RingRefused::Setup { source: io::Error::from_raw_os_error(ENOSYS) };
        assert!(refused.to_string().starts_with("io_uring refused: Function not implemented"), "{refused}");
    }
}
