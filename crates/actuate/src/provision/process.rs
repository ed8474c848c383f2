//! Processes that may outlive who started them: which one is meant, whether it lives, how it is ended.
//!
//! A number alone does not say which process is meant, since numbers are used again: the time at which it started, in ticks since the
//! machine did, and the machine's boot belong to it.

use crate::Deadline;
use forebay_units::Bytes;
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process, distinct from every other there ever was on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pid: i32,
    start_ticks: u64,
    boot: String,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

impl ProcessId {
    /// The process that has this number now; `None` if none has, or it has ended and was not waited for.
    pub(crate) fn of(pid: i32) -> Option<ProcessId> {
        let stat = stat(pid)?;
        ProcessId::at(pid, &stat).filter(|_| !stat.is_over())
    }

    fn at(pid: i32, stat: &Stat) -> Option<ProcessId> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        Some(ProcessId { pid, start_ticks: stat.start_ticks, boot })
    }

    /// The process whose environment has `name` with this value, of several the one that leads a group. Processes of others, which cannot be looked into, are left out.
    pub(crate) fn with_variable(name: &str, value: &OsStr) -> Option<ProcessId> {
        let mut all = ProcessId::all_with_variable(name, value);
        let leader = all.iter().position(ProcessId::leads).unwrap_or(0);
        (!all.is_empty()).then(|| all.swap_remove(leader))
    }

    fn all_with_variable(name: &str, value: &OsStr) -> Vec<ProcessId> {
        let mut wanted = name.as_bytes().to_vec();
        wanted.push(b'=');
        wanted.extend_from_slice(value.as_bytes());
        let has_it = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        };
        pids().filter(has_it).filter_map(ProcessId::of).collect()
    }

    /// The values that `name` has in the environments of processes, each with its process, of several the one that leads a group.
    pub(crate) fn with_values_of(name: &str) -> Vec<(OsString, ProcessId)> {
        let begin = [name.as_bytes(), b"="].concat();
        let mut found: Vec<(OsString, ProcessId)> = Vec::new();
        for pid in pids() {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let value = environment.split(|byte| *byte == 0).find_map(|of| of.strip_prefix(&begin[..]));
            let Some((value, process)) = value.zip(ProcessId::of(pid)) else { continue };
            let value = OsStr::from_bytes(value).to_owned();
            match found.iter_mut().find(|(known, _)| *known == value) {
                None => found.push((value, process)),
                Some((_, known)) if !known.leads() && process.leads() => *known = process,
                Some(_) => {}
            }
        }
        found
    }

    /// Whether the folder that it works in was at `path`, and is removed. What has another folder at that path, in a mount namespace of its own, does not.
    pub(crate) fn has_lost(&self, path: &Path) -> bool {
        let mut removed = path.as_os_str().to_owned();
        removed.push(" (deleted)");
        let works_in = std::fs::read_link(format!("/proc/{}/cwd", self.pid));
        works_in.is_ok_and(|folder| folder.as_os_str() == removed) && self.lives()
    }

    /// The memory that it takes now, as far as the system says.
    pub(crate) fn resident(&self) -> Bytes {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Bytes(kib.unwrap_or(0).saturating_mul(1024))
    }

    /// Whether it leads a group of its own.
    fn leads(&self) -> bool {
        self.is_in(self.pid)
    }

    /// Whether it is in this group. One that has ended is until it was waited for.
    fn is_in(&self, group: i32) -> bool {
        stat(self.pid)
            .is_some_and(|stat| stat.group == group && ProcessId::at(self.pid, &stat).as_ref() == Some(self))
    }

    /// Whether it has this number here.
    pub(crate) fn is_numbered(&self, pid: u32) -> bool {
        i64::from(pid) == i64::from(self.pid)
    }

    /// Whether it still runs. One that has ended and was not waited for does not.
    pub(crate) fn lives(&self) -> bool {
        ProcessId::of(self.pid).as_ref() == Some(self)
    }

    /// Sends it a signal; without effect if it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        // The descriptor is that of the process that has the number now; if that is the one that is meant, it stays so.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !self.lives() {
            return Ok(());
        }
        match pidfd_send_signal(&process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills it, and what it started where it leads a group of its own: a script that runs the appliance ends without it.
    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Some(pid) = Pid::from_raw(self.pid)
            && self.lives()
            && getpgid(Some(pid)) == Ok(pid)
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.signal(Signal::KILL)
    }

    /// Waits until it has ended; `false` if it has not by the deadline.
    pub(crate) fn wait(&self, deadline: Deadline) -> bool {
        deadline.wait_for(|| (!self.lives()).then_some(())).is_some()
    }
}

/// All that was started with a process: itself, who is in the group that it leads, and who has inherited a variable of its environment. A script that runs an appliance, and ends when it is
/// asked to, leaves the appliance behind.
pub(crate) struct Family<'a> {
    head: ProcessId,
    leads: bool,
    variable: (&'a str, &'a OsStr),
    /// Whoever was seen, the head first; they may have ended.
    known: Vec<ProcessId>,
}

impl<'a> Family<'a> {
    /// That of `head`, as it is now.
    pub(crate) fn of(head: &ProcessId, variable: &'a str, value: &'a OsStr) -> Family<'a> {
        let mut family = Family {
            leads: head.leads(),
            variable: (variable, value),
            known: vec![head.clone()],
            head: head.clone(),
        };
        family.look();
        family
    }

    /// Looks who has come.
    fn look(&mut self) {
        let (name, value) = self.variable;
        let mut found = ProcessId::all_with_variable(name, value);
        let group = self.head.pid;
        if self.leads {
            let members: Vec<ProcessId> = pids()
                .filter(|pid| stat(*pid).is_some_and(|stat| stat.group == group))
                .filter_map(ProcessId::of)
                .collect();
            // Asked behind that: no number is used again while a group has it, and this group has been there all along if one is in it who was before.
            if self.known.iter().any(|known| known.is_in(group)) {
                found.extend(members);
            }
        }
        for process in found {
            if !self.known.contains(&process) {
                self.known.push(process);
            }
        }
    }

    /// Sends all of them this signal, also those that come meanwhile, and waits until they have ended; `false` if they have not by the deadline.
    ///
    /// # Errors
    /// If one cannot be sent a signal.
    pub(crate) fn end(&mut self, signal: Signal, deadline: Deadline) -> io::Result<bool> {
        let mut sent = 0;
        let ended = deadline.wait_for(|| {
            while sent < self.known.len() {
                if let Err(error) = self.known[sent].signal(signal) {
                    return Some(Err(error));
                }
                sent += 1;
            }
            if self.known.iter().any(ProcessId::lives) {
                return None;
            }
            self.look();
            (sent == self.known.len()).then_some(Ok(()))
        });
        ended.map_or(Ok(false), |ended| ended.map(|()| true))
    }
}

/// The numbers of all processes.
fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    group: i32,
    threads: u32,
    start_ticks: u64,
}

impl Stat {
    /// Whether it runs no more. Its first thread may have ended before others, as when it is killed, which have its memory and its ports until they end, too.
    fn is_over(&self) -> bool {
        match self.state {
            b'Z' => self.threads <= 1,
            state => matches!(state, b'X' | b'x'),
        }
    }
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 3, 5, 20 and 22 of `/proc/PID/stat` (proc(5)). Field 2, the program's name in parentheses, may hold anything.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        state: *field(3)?.as_bytes().first()?,
        group: field(5)?.parse().ok()?,
        threads: field(20)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_name_that_looks_like_fields_is_no_field() {
        // Fields 3 to 22: S 1 ... the 20th of them is 777.
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        let known = Stat { state: b'S', group: 2, threads: 17, start_ticks: 777 };
        assert_eq!(parse_stat(&format!("9 (a) Z 1 (b c)) {rest}")), Some(known));
        assert_eq!(parse_stat("9 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_over_when_its_last_thread_is() {
        let is_over = |state, threads| Stat { state, group: 1, threads, start_ticks: 1 }.is_over();
        assert!(!is_over(b'S', 1) && !is_over(b'Z', 2), "one of two threads has the memory still");
        assert!(is_over(b'Z', 1) && is_over(b'Z', 0) && is_over(b'X', 1));
    }

    #[test]
    fn a_process_is_known_until_it_ends_and_no_longer() {
        let mut child = Command::new("sleep")
            .arg("100")
            .env("FOREBAY_TEST_PROCESS", "this one")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = Deadline::after(Duration::from_secs(10))
            .wait_for(|| ProcessId::with_variable("FOREBAY_TEST_PROCESS", "this one".as_ref()))
            .unwrap();
        assert_eq!(Some(&found), ProcessId::of(pid).as_ref());
        assert_eq!(ProcessId::with_variable("FOREBAY_TEST_PROCESS", "this".as_ref()), None);
        let another = ProcessId { start_ticks: found.start_ticks + 1, ..found.clone() };
        let another_boot = ProcessId { boot: "before".to_owned(), ..found.clone() };
        assert!(found.lives() && !another.lives() && !another_boot.lives(), "the number is used again");
        another.signal(Signal::KILL).unwrap();
        another_boot.signal(Signal::KILL).unwrap();
        assert!(found.lives() && !found.wait(Deadline::after(Duration::from_millis(5))));
        found.signal(Signal::KILL).unwrap();
        assert!(
            found.wait(Deadline::after(Duration::from_secs(10))),
            "it lives no more, though nobody waited for it"
        );
        child.wait().unwrap();
        found.signal(Signal::KILL).unwrap();
        assert!(!found.lives());
    }

    #[test]
    fn who_is_killed_takes_along_what_it_started_in_its_group() {
        let mut script = Command::new("sh")
            .args(["-c", "FOREBAY_TEST_PROCESS='started by a script' sleep 100; true"])
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let started = Deadline::after(Duration::from_secs(10))
            .wait_for(|| ProcessId::with_variable("FOREBAY_TEST_PROCESS", "started by a script".as_ref()))
            .unwrap();
        let leader = ProcessId::of(i32::try_from(script.id()).unwrap()).unwrap();
        assert_ne!(leader, started);
        leader.kill().unwrap();
        let soon = || Deadline::after(Duration::from_secs(10));
        assert!(leader.wait(soon()) && started.wait(soon()));
        script.wait().unwrap();
    }
}
