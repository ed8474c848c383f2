//! Appliances that are processes of this machine, whatever runs in them: one folder for each.
//!
//! ```text
//! FOLDER/ID/order.json     what was ordered          written before the process is started, so that nothing runs of which
//! FOLDER/ID/running.json   where it will answer      nobody could know where it answers
//! FOLDER/ID/process.json   which process it is       written after; if that was missed, or is removed, its environment tells
//! FOLDER/ID/log            what it says
//! ```
//!
//! The folder is its owner's alone, since tokens are in it, and it is locked while an appliance is started or stopped.

use super::ProvisionError;
use super::health::probe;
use super::process::{Family, ProcessId};
use crate::api::{ApiAddress, ApplianceStatus};
use crate::secrets::misunderstood;
use crate::{ApplianceId, ApplianceOrder, Control, Deadline, Listed, Running};
use forebay_units::{Bytes, Secret, mix64, with_causes};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In the environment of every process that is started here: the appliance's folder.
const MARK: &str = "FOREBAY_APPLIANCE";
/// What is repeated of what an appliance said, at most (ours).
const SAID_BYTES_MAX: usize = 1000;
/// What is read of a log, at most (ours): an appliance that starts says far less.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// What is told of an appliance that has said nothing.
pub(super) const NOTHING: &str = "nothing";
/// One look at an appliance takes no longer (ours).
const LOOK: Duration = Duration::from_secs(1);
/// Before the deadline of a stop it is no longer waited politely (ours).
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// What is to be run for an order.
pub(super) struct Launch {
    /// The program and its arguments. They are seen by everybody on this machine.
    pub(super) command: Vec<OsString>,
    /// Files that it reads, in the appliance's folder.
    pub(super) files: Vec<(&'static str, Vec<u8>)>,
    /// Where it will answer.
    pub(super) running: Running,
    /// It calls itself by the number that it has here, so that another one that answers in its place is found out.
    pub(super) knows_its_number: bool,
    /// It is not asked anything before it has said this.
    pub(super) says_when_ready: Option<&'static str>,
    /// Says, from its folder, what else is known when it does not serve.
    pub(super) diagnose: Option<fn(&Path) -> String>,
}

/// The ports of an appliance at an address that others may use as well.
///
/// They follow from its name, so that whoever starts it twice means the same ones; that two names share them is unlikely, and found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) nbd: u16,
    pub(super) http: u16,
}

impl Ports {
    /// Two of those below the ports that the system gives away by itself.
    pub(super) fn of(id: &ApplianceId) -> Ports {
        let hash = id.to_string().bytes().fold(0, |hash, byte| mix64(hash ^ u64::from(byte)));
        let nbd = 10_000 + (hash % 11_000) as u16 * 2;
        Ports { nbd, http: nbd + 1 }
    }
}

/// The folders, and the processes that were started here.
pub(super) struct Keeper {
    folder: PathBuf,
    /// To be waited for when they end, or they would stay in the system's table.
    children: Mutex<BTreeMap<ApplianceId, Child>>,
}

/// What was started, or was found to run.
struct Started {
    process: ProcessId,
    running: Running,
    says_when_ready: Option<&'static str>,
    knows_its_number: bool,
    diagnose: Option<fn(&Path) -> String>,
}

/// A lock on an appliance's folder, held until it is dropped.
struct Locked {
    path: PathBuf,
    _lock: File,
}

impl Keeper {
    pub(super) fn new(folder: PathBuf) -> io::Result<Keeper> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder)?;
        Ok(Keeper { folder: std::fs::canonicalize(folder)?, children: Mutex::default() })
    }

    /// Where an appliance's files are.
    pub(super) fn path(&self, id: &ApplianceId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// Where something is that is no appliance's: its name has a dot, which no appliance's has.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<ApplianceId, Child>> {
        // A map of processes, whole at every moment.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those that have ended out of the system's table.
    fn reap(&self) {
        self.children().retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn lock(&self, id: &ApplianceId, deadline: Deadline) -> Result<Locked, ProvisionError> {
        let path = self.path(id);
        let state = |source| ProvisionError::State { path: path.clone(), source };
        let locked = deadline.wait_for(|| {
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Some(Err(state(error))),
                _ => {}
            }
            // Whoever held it before may have removed it; then it is made anew.
            let lock = File::open(&path).ok()?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return None,
                Err(error) => return Some(Err(state(error.into()))),
            }
            let (held, there) = (lock.metadata().ok()?, std::fs::metadata(&path).ok()?);
            let is_same = (held.dev(), held.ino()) == (there.dev(), there.ino());
            is_same.then(|| Ok(Locked { path: path.clone(), _lock: lock }))
        });
        locked.unwrap_or_else(|| Err(ProvisionError::Busy { id: id.clone() }))
    }

    /// The process of an appliance, if it lives.
    fn process(&self, id: &ApplianceId) -> Result<Option<ProcessId>, ProvisionError> {
        self.reap();
        let path = self.path(id);
        let known: Option<ProcessId> = read(&path.join("process.json")).unwrap_or(None);
        if let Some(process) = known.filter(ProcessId::lives) {
            return Ok(Some(process));
        }
        // Who started it may have died before it wrote down what it started, or somebody has removed what was.
        let Some(process) = ProcessId::with_variable(MARK, path.as_os_str()) else { return Ok(None) };
        if !path.exists() {
            return Ok(Some(process).filter(|process| process.has_lost(&path)));
        }
        write(&path.join("process.json"), &json(&process))?;
        Ok(Some(process))
    }

    /// The appliance, if its process lives.
    pub(super) fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        let Some(process) = self.process(id)? else { return Ok(None) };
        let path = self.path(id);
        match path.exists() {
            true => read(&path.join("running.json")),
            false => {
                let lost = format!(
                    "its folder was removed, with all by which it is reached; its process {process} lives until it is stopped"
                );
                let source = io::Error::new(io::ErrorKind::NotFound, lost);
                Err(ProvisionError::State { path, source })
            }
        }
    }

    /// The appliances that run and were ordered with `token`. Of one whose order cannot be read it is not known whose it is: it is left out.
    pub(super) fn list(&self, token: &Secret) -> Result<Vec<Listed>, ProvisionError> {
        let state = |source| ProvisionError::State { path: self.folder.clone(), source };
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(state)? {
            let name = entry.map_err(state)?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<ApplianceId>().ok()) else { continue };
            if self.process(&id)?.is_none() {
                continue;
            }
            let path = self.path(&id);
            let order = read::<ApplianceOrder>(&path.join("order.json"));
            let known = order.and_then(|order| Ok((order, read::<Running>(&path.join("running.json"))?)));
            match known {
                Ok((Some(order), Some(running))) if order.token == *token => {
                    listed.push(Listed { memory: order.memory, running });
                }
                Ok((Some(_), Some(_))) => {}
                Ok(_) => tracing::warn!(%id, "an appliance runs, and nothing says what was ordered"),
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(%id, error, "an appliance runs, and what was ordered cannot be read");
                }
            }
        }
        listed.extend(self.without_folders());
        Ok(listed)
    }

    /// Appliances that run and whose folders were removed. Nothing says with which token they were ordered, and of which volumes.
    fn without_folders(&self) -> Vec<Listed> {
        let lost = |(folder, process): (OsString, ProcessId)| {
            let path = PathBuf::from(folder);
            let id: ApplianceId = path.strip_prefix(&self.folder).ok()?.to_str()?.parse().ok()?;
            if path.exists() || !process.has_lost(&path) {
                return None;
            }
            tracing::warn!(%id, %process, "an appliance runs, and its folder was removed");
            let control = Control { address: ApiAddress::Unix(path.join("http.sock")), token: None };
            let running = Running { id, endpoints: BTreeMap::new(), control };
            Some(Listed { memory: process.resident(), running })
        };
        ProcessId::with_values_of(MARK).into_iter().filter_map(lost).collect()
    }

    /// Starts what `launch` says, unless the appliance runs already, and waits until it serves.
    pub(super) fn start(
        &self,
        order: &ApplianceOrder,
        deadline: Deadline,
        launch: impl FnOnce(&Path) -> Result<Launch, ProvisionError>,
    ) -> Result<Running, ProvisionError> {
        let id = &order.id;
        let locked = self.lock(id, deadline)?;
        if let Some(process) = self.process(id)? {
            let (ordered, running) = (
                read::<ApplianceOrder>(&locked.path.join("order.json"))?,
                read::<Running>(&locked.path.join("running.json"))?,
            );
            let Some(running) = running.filter(|_| ordered.is_some_and(|ordered| order.is_met_by(&ordered)))
            else {
                return Err(ProvisionError::OtherOrder { id: id.clone() });
            };
            // It was ready once, or whoever started it did not live to see it.
            let there =
                Started { process, running, says_when_ready: None, knows_its_number: false, diagnose: None };
            match self.settle(order, &locked, &there, deadline) {
                Ok(()) => return Ok(there.running),
                // It ended just now. What was ordered is another.
                Err(ProvisionError::Died { .. }) => kill_all(&there.process, &locked.path),
                Err(error) => {
                    self.discard(&locked, Some(&there.process));
                    return Err(error);
                }
            }
        }
        clear(&locked.path)?;
        let launched = launch(&locked.path).and_then(|launch| {
            let process = self.spawn(order, &locked.path, &launch)?;
            let Launch { running, says_when_ready, knows_its_number, diagnose, .. } = launch;
            Ok(Started { process, running, says_when_ready, knows_its_number, diagnose })
        });
        let settled = match launched {
            Ok(started) => match self.settle(order, &locked, &started, deadline) {
                Ok(()) => return Ok(started.running),
                Err(error) => (error, Some(started.process)),
            },
            Err(error) => (error, None),
        };
        self.discard(&locked, settled.1.as_ref());
        Err(settled.0)
    }

    /// Ends what does not do as it should, and forgets it.
    fn discard(&self, locked: &Locked, process: Option<&ProcessId>) {
        if let Some(process) = process {
            kill_all(process, &locked.path);
        }
        self.reap();
        let _ = std::fs::remove_dir_all(&locked.path);
    }

    fn spawn(
        &self,
        order: &ApplianceOrder,
        folder: &Path,
        launch: &Launch,
    ) -> Result<ProcessId, ProvisionError> {
        write(&folder.join("order.json"), &json(order))?;
        write(&folder.join("running.json"), &json(&launch.running))?;
        for (name, content) in &launch.files {
            write(&folder.join(name), content)?;
        }
        let log = folder.join("log");
        let state = |source| ProvisionError::State { path: log.clone(), source };
        // It is new. A hypervisor may write to it as well, so everybody writes behind what is there.
        let output = File::options().create_new(true).append(true).mode(0o600).open(&log).map_err(state)?;
        let (program, arguments) = launch.command.split_first().expect("there is a program");
        let child = Command::new(program)
            .args(arguments)
            .env(MARK, folder)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(state)?)
            .stderr(output)
            // What ends its starter, at a terminal say, must not end it.
            .process_group(0)
            .spawn();
        let id = || order.id.clone();
        let child = child.map_err(|source| {
            let program = program.to_string_lossy().into_owned();
            ProvisionError::Spawn { id: id(), program, source }
        })?;
        let process = i32::try_from(child.id()).ok().and_then(ProcessId::of);
        self.children().insert(id(), child);
        match process {
            Some(process) => match write(&folder.join("process.json"), &json(&process)) {
                Ok(()) => Ok(process),
                Err(error) => {
                    // Its folder goes, and with that everything by which it could be found.
                    let _ = process.kill();
                    process.wait(Deadline::after(LAST_MOMENT));
                    Err(error)
                }
            },
            None => Err(self.died(order, folder)),
        }
    }

    /// Waits until the appliance serves and has what was ordered.
    fn settle(
        &self,
        order: &ApplianceOrder,
        locked: &Locked,
        started: &Started,
        deadline: Deadline,
    ) -> Result<(), ProvisionError> {
        let began = Instant::now();
        let Started { process, running, says_when_ready, knows_its_number, diagnose } = started;
        let mut last = "nothing was heard of it".to_owned();
        let mut has_said = says_when_ready.is_none();
        // Ending it takes a moment, too.
        let ready = deadline.sooner_by(Duration::from_millis(100)).wait_for(|| {
            if !process.lives() {
                return Some(Err(self.died(order, &locked.path)));
            }
            has_said = has_said || says_when_ready.is_some_and(|words| log(&locked.path).contains(words));
            if !has_said {
                return None;
            }
            match probe(running, deadline.within(LOOK)) {
                Ok(status) if *knows_its_number && !process.is_numbered(status.pid) => {
                    last = format!("process {} answers in its place", status.pid);
                    None
                }
                Ok(status) => Some(has_what_was_ordered(order, &status)),
                Err(error) => {
                    last = with_causes(&error);
                    None
                }
            }
        });
        ready.unwrap_or_else(|| {
            let (waited, said) = (began.elapsed(), said(&locked.path));
            if let Some(diagnose) = diagnose {
                last = format!("{last}; {}", diagnose(&locked.path));
            }
            Err(ProvisionError::NotInTime { id: order.id.clone(), waited, last, said })
        })
    }

    /// Why a process that was started is no more.
    fn died(&self, order: &ApplianceOrder, folder: &Path) -> ProvisionError {
        let id = order.id.clone();
        let child = self.children().remove(&id);
        if let Some(leader) = child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?))
        {
            // Nobody has waited for it yet, so its number is its own, and so is the group: what a script leaves there serves nobody.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        let (how, failed) = match child.map(|mut child| child.wait()) {
            Some(Ok(status)) => (status.to_string(), !status.success()),
            _ => ("nobody saw how".to_owned(), false),
        };
        let said = said(folder);
        let is_taken =
            ["Address already in use", "in use by another process", "Could not set up host forwarding rule"];
        if is_taken.iter().any(|words| said.contains(words)) {
            ProvisionError::AddressInUse { id, said }
        } else {
            ProvisionError::Died { id, how, failed, said }
        }
    }

    /// Drains and ends the appliance.
    pub(super) fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        // One whose folder was removed is found by its environment.
        if !self.path(id).exists() && self.process(id)?.is_none() {
            return Ok(());
        }
        let locked = self.lock(id, deadline)?;
        if let Some(process) = self.process(id)? {
            let polite = deadline.sooner_by(LAST_MOMENT);
            if let Ok(Some(running)) = read::<Running>(&locked.path.join("running.json")) {
                for volume in running.endpoints.keys() {
                    match running.control.drain(volume, polite) {
                        Ok(true) => {}
                        Ok(false) => {
                            tracing::warn!(%id, volume, "some requests were not answered, or not made durable, before the end");
                        }
                        Err(error) => {
                            tracing::warn!(%id, volume, error = with_causes(&error), "it cannot be drained");
                        }
                    }
                }
            }
            end(id, &process, &locked.path, polite, deadline)?;
        }
        self.reap();
        std::fs::remove_dir_all(&locked.path)
            .map_err(|source| ProvisionError::State { path: locked.path.clone(), source })
    }
}

/// Kills a process of the appliance in `folder`, and all that was started with it.
fn kill_all(process: &ProcessId, folder: &Path) {
    let mut all = Family::of(process, MARK, folder.as_os_str());
    let _ = all.end(Signal::KILL, Deadline::after(LAST_MOMENT));
}

/// Ends the process of the appliance in `folder`, and what it leaves: a script that runs a hypervisor, and does not become it, ends alone when it is asked to.
fn end(
    id: &ApplianceId,
    process: &ProcessId,
    folder: &Path,
    polite: Deadline,
    deadline: Deadline,
) -> Result<(), ProvisionError> {
    let still_there = |reason: String| ProvisionError::StillThere { id: id.clone(), reason };
    let refused = |error: io::Error| still_there(format!("it cannot be sent a signal: {error}"));
    let mut all = Family::of(process, MARK, folder.as_os_str());
    process.signal(Signal::TERM).map_err(refused)?;
    if process.wait(polite) && all.end(Signal::TERM, polite).map_err(refused)? {
        return Ok(());
    }
    tracing::warn!(%id, "it does not end when asked to, and is killed");
    match all.end(Signal::KILL, deadline).map_err(refused)? {
        true => Ok(()),
        false => Err(still_there("it was killed and has not ended yet".to_owned())),
    }
}

/// Whether the appliance has the memory for the caches that were ordered.
///
/// What a host promised is one thing; what the appliance finds when it is there is another: a guest with less memory than was asked
/// for, a control group that leaves less, a machine whose memory others took.
fn has_what_was_ordered(order: &ApplianceOrder, status: &ApplianceStatus) -> Result<(), ProvisionError> {
    let caches = order.caches();
    let short = |what, found| ProvisionError::Short { id: order.id.clone(), what, ordered: caches, found };
    let capacity = Bytes(status.cache.capacity_bytes);
    if capacity < caches {
        return Err(short("room for caches", capacity));
    }
    let free = Bytes(status.cache.used_bytes.saturating_add(status.memory.available_bytes));
    if free < caches {
        return Err(short("memory", free));
    }
    Ok(())
}

/// Removes what an appliance that is gone left behind.
fn clear(folder: &Path) -> Result<(), ProvisionError> {
    let state = |source| ProvisionError::State { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(state)? {
        std::fs::remove_file(entry.map_err(state)?.path()).map_err(state)?;
    }
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(true).write(true).mode(0o600).open(path)
}

/// Writes a file for its owner alone: whole, or not at all, a loss of power included.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), ProvisionError> {
    let beside = path.with_extension("new");
    let written = create(&beside).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| ProvisionError::State { path: path.to_owned(), source })
}

pub(super) fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data can be written")
}

/// What a file holds; `None` if there is no such file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ProvisionError> {
    let state = |source: io::Error| ProvisionError::State { path: path.to_owned(), source };
    match crate::secrets::read(path) {
        Ok(text) => {
            let told = |error| state(io::Error::other(misunderstood(&error)));
            serde_json::from_slice(&text).map(Some).map_err(told)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(state(error)),
    }
}

/// What an appliance said so far, the first of it.
fn log(folder: &Path) -> String {
    let mut text = Vec::new();
    let _ = File::open(folder.join("log")).map(|file| file.take(LOG_BYTES_MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// The end of what an appliance said, in one line, without its warnings where it tells an error. Of a kernel that panics the reason is told, which it says first.
fn said(folder: &Path) -> String {
    let log = log(folder);
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(panic) = lines.iter().find(|line| line.contains("Kernel panic")) {
        return (*panic).to_owned();
    }
    if lines.is_empty() {
        return NOTHING.to_owned();
    }
    let is_told = lines.iter().any(|line| line.starts_with("error: "));
    let lines: Vec<&str> =
        lines.into_iter().filter(|line| !(is_told && line.starts_with("warning: "))).collect();
    let all = lines.join(" | ");
    all[all.ceil_char_boundary(all.len().saturating_sub(SAID_BYTES_MAX))..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CacheReport, MemoryReport};

    fn order(cache: u64) -> ApplianceOrder {
        let text = format!(
            r#"{{"id":"a","host":"h","memory":104857600,"token":"0123456789abcdef","volumes":[{{"name":"db",
            "origin":{{"uri":"nbd://storage/db"}},"block_size":4096,"cache":{cache}}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_appliance_has_what_was_ordered_where_its_caches_and_its_memory_suffice() {
        let lacks = |capacity_bytes, used_bytes, available_bytes| {
            let cache = CacheReport { capacity_bytes, used_bytes };
            let memory = MemoryReport { total_bytes: 1 << 30, available_bytes };
            let status = ApplianceStatus { pid: 1, cache, memory, volumes: Vec::new() };
            match has_what_was_ordered(&order(1_000), &status) {
                Ok(()) => None,
                Err(ProvisionError::Short { what, ordered, found, .. }) => {
                    Some((what, ordered.get(), found.get()))
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(lacks(1_000, 0, 1_000), None);
        assert_eq!(lacks(999, 0, 1_000), Some(("room for caches", 1_000, 999)));
        // What caches hold already is theirs.
        assert_eq!(lacks(1_000, 400, 600), None);
        assert_eq!(lacks(1_000, 400, 599), Some(("memory", 1_000, 999)));
    }

    #[test]
    fn of_what_an_appliance_said_the_end_is_repeated_and_of_a_panic_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            std::fs::write(folder.path().join("log"), text).unwrap();
            said(folder.path())
        };
        assert_eq!(said("\n \n"), "nothing");
        assert_eq!(said("one\n\n  two \n"), "one | two");
        let long = said(&format!("first\n{}last", "ä\n".repeat(1_000)));
        assert!(
            long.len() <= SAID_BYTES_MAX && long.ends_with("| last") && !long.contains("first"),
            "{long}"
        );
        let warned = "warning: the system lets it have 4096 files open\n";
        assert_eq!(said(&format!("{warned}error: no origin\nPower down")), "error: no origin | Power down");
        assert_eq!(said(warned), warned.trim());
        assert_eq!(said("a\nKernel panic - no init\nb"), "Kernel panic - no init");
    }

    /// A script that runs the appliance (here one that sleeps, whose number comes to be in `pid`), and does not become it.
    fn script(text: &str, running: Running) -> Launch {
        Launch {
            command: ["sh", "-c", text].map(Into::into).to_vec(),
            files: Vec::new(),
            running,
            knows_its_number: true,
            says_when_ready: None,
            diagnose: None,
        }
    }

    fn nobody(folder: &Path) -> Running {
        let control = Control { address: ApiAddress::Unix(folder.join("nobody.sock")), token: None };
        Running { id: "a".parse().unwrap(), endpoints: BTreeMap::new(), control }
    }

    fn noted(path: &Path) -> ProcessId {
        let noted = || std::fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok();
        ProcessId::of(Deadline::after(Duration::from_secs(20)).wait_for(noted).unwrap()).unwrap()
    }

    #[test]
    fn what_a_script_has_run_is_stopped_with_it() {
        // In its group and marked; in its group alone; marked alone; and one that does not end when asked to.
        for (text, is_killed) in [
            ("sh -c 'echo $$ >pid; exec sleep 600'; true", false),
            ("env -i sh -c 'echo $$ >pid; exec sleep 600'; true", false),
            ("setsid sh -c 'echo $$ >pid; exec sleep 600'; true", false),
            ("sh -c \"trap '' TERM; echo \\$\\$ >pid; exec sleep 600\"; true", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let keeper = Keeper::new(folder.path().to_owned()).unwrap();
            let (order, id) = (order(0), "a".parse().unwrap());
            let path = keeper.path(&id);
            std::fs::create_dir(&path).unwrap();
            let leader = keeper.spawn(&order, &path, &script(text, nobody(&path))).unwrap();
            let started = noted(&path.join("pid"));
            assert_ne!(leader, started);
            let (began, allowed) = (Instant::now(), Duration::from_secs(if is_killed { 1 } else { 30 }));
            let stopped = keeper.stop(&id, Deadline::after(allowed));
            let left = started.lives();
            started.signal(Signal::KILL).unwrap();
            assert!(stopped.is_ok() && !left && !leader.lives(), "`{text}`: {stopped:?}, {left}");
            assert!(!path.exists() && (is_killed || began.elapsed() < allowed / 2), "`{text}`");
        }
    }

    #[test]
    fn what_a_script_that_failed_has_run_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(folder.path().to_owned()).unwrap();
        let text = "env -i sh -c 'echo $$ >../pid; exec sleep 600' & while [ ! -s ../pid ]; do sleep 0.01; done; exit 3";
        let launch = |folder: &Path| Ok(script(text, nobody(folder)));
        let died = keeper.start(&order(0), Deadline::after(Duration::from_secs(20)), launch).map(drop);
        let left: i32 = std::fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        let gone =
            Deadline::after(Duration::from_secs(20)).wait_for(|| ProcessId::of(left).is_none().then_some(()));
        assert!(matches!(died, Err(ProvisionError::Died { failed: true, .. })), "{died:?}");
        assert!(gone.is_some(), "process {left} is there still");
    }

    #[test]
    fn an_appliance_whose_folder_is_removed_is_listed_and_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let (all, other) = (folder.path().join("all"), folder.path().join("other"));
        let (keeper, others) = (Keeper::new(all).unwrap(), Keeper::new(other).unwrap());
        let (order, id) = (order(0), "a".parse().unwrap());
        let path = keeper.path(&id);
        std::fs::create_dir(&path).unwrap();
        let leader = keeper.spawn(&order, &path, &script("sleep 600; true", nobody(&path))).unwrap();
        let list = |keeper: &Keeper| keeper.list(&order.token).unwrap();
        assert_eq!(list(&keeper).iter().map(|of| &of.running.id).collect::<Vec<_>>(), [&id]);
        // Who runs in a folder that is there is nobody's whose folder was removed.
        assert!(!leader.has_lost(&path));
        std::fs::remove_dir_all(&path).unwrap();
        let listed = list(&keeper);
        let found = keeper.find(&id).map_err(|error| with_causes(&error));
        let stopped = keeper.stop(&id, Deadline::after(Duration::from_secs(30)));
        let left = leader.lives();
        leader.kill().unwrap();
        let [Listed { memory, running }] = &listed[..] else { panic!("{listed:?}") };
        assert!(running.id == id && running.endpoints.is_empty() && *memory > Bytes::ZERO, "{listed:?}");
        assert!(found.as_ref().is_err_and(|told| told.contains("its folder was removed")), "{found:?}");
        assert!(stopped.is_ok() && !left && !path.exists(), "{stopped:?}, {left}");
        assert!(list(&keeper).is_empty() && list(&others).is_empty());
    }

    #[test]
    fn what_cannot_be_written_down_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(folder.path().to_owned()).unwrap();
        let order = order(0);
        let path = keeper.path(&order.id);
        let launch = |folder: &Path| {
            // In the way of what is to be written down once it runs.
            std::fs::create_dir(folder.join("process.new")).unwrap();
            let control = Control { address: ApiAddress::Unix(folder.join("nobody.sock")), token: None };
            Ok(Launch {
                command: vec!["sleep".into(), "600".into()],
                files: Vec::new(),
                running: Running { id: order.id.clone(), endpoints: BTreeMap::new(), control },
                knows_its_number: true,
                says_when_ready: None,
                diagnose: None,
            })
        };
        let error =
            keeper.start(&order, Deadline::after(Duration::from_secs(20)), launch).map(drop).unwrap_err();
        let left = ProcessId::with_variable(MARK, path.as_os_str());
        if let Some(left) = &left {
            let _ = left.signal(Signal::KILL);
        }
        assert!(matches!(error, ProvisionError::State { .. }), "{error}");
        assert_eq!((left, path.exists()), (None, false), "it runs, and nobody knows");
    }
}
