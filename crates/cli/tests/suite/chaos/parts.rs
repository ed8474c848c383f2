//! The processes of a run and its folder: started, asked, stopped, killed. None may end by itself, and none may panic.

use forebay_actuate::api::{ApiAddress, ApiError};
use forebay_actuate::{Control, Deadline};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a part may take to end once it is told.
const END_MAX: Duration = Duration::from_secs(45);

/// What happened, and when.
pub(super) struct Events {
    began: Instant,
    file: Mutex<File>,
}

impl Events {
    pub(super) fn new(folder: &Path) -> Events {
        let file = File::create(folder.join("events")).expect("the folder takes files");
        Events { began: Instant::now(), file: Mutex::new(file) }
    }

    pub(super) fn note(&self, what: &str) {
        let time = self.began.elapsed().as_secs_f64();
        let mut file = self.file.lock().expect("nobody panics while it is held");
        writeln!(file, "{time:8.2} {what}").expect("the folder takes files");
    }
}

/// What stands in a log where a process begins.
const START: &str = "=== start";

/// What an order over HTTP came to: 0 where nothing was heard.
pub(super) type Status = u16;

pub(super) struct Parts {
    folder: PathBuf,
    pub(super) events: Events,
    running: BTreeMap<String, Child>,
    /// Those of them that were told to end.
    told: BTreeSet<String>,
    pub(super) starts: usize,
}

impl Parts {
    pub(super) fn new(folder: &Path) -> Parts {
        Parts {
            folder: folder.to_owned(),
            events: Events::new(folder),
            running: BTreeMap::new(),
            told: BTreeSet::new(),
            starts: 0,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn note(&self, what: &str) {
        self.events.note(what);
    }

    /// Starts `forebay COMMAND` on this configuration, with its log in the folder.
    pub(super) fn start(&mut self, name: &str, command: &str, configuration: &str) {
        let file = self.path(&format!("{name}.toml"));
        std::fs::write(&file, configuration).expect("the folder takes files");
        let log = File::options().append(true).create(true).open(self.path(&format!("{name}.log")));
        let mut log = log.expect("the folder takes files");
        writeln!(log, "{START}").expect("the folder takes files");
        let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .arg(command)
            .arg(file)
            .args(["--log", &std::env::var("FOREBAY_CHAOS_LOG").unwrap_or("info".to_owned())])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        self.running.insert(name.to_owned(), child);
        self.told.remove(name);
        self.starts += 1;
    }

    /// Whether it answers over HTTP before `within` is over.
    pub(super) fn is_up(&self, name: &str, within: Duration) -> bool {
        let control = self.control(name);
        let answers = || {
            let soon = Deadline::after(Duration::from_secs(3));
            control.text("GET", "/healthz", "", soon).ok()
        };
        Deadline::after(within).wait_for(answers).is_some()
    }

    fn control(&self, name: &str) -> Control {
        Control { address: ApiAddress::Unix(self.path(&format!("{name}-http.sock"))), token: None }
    }

    /// Gives an order; what is answered is noted.
    pub(super) fn order(&self, name: &str, method: &str, path: &str, body: &Value) -> Status {
        let answer = self.control(name).text(
            method,
            &format!("/api/v1/{path}"),
            &body.to_string(),
            Deadline::after(Duration::from_secs(45)),
        );
        let (status, said) = match answer {
            Ok(said) => (200, said),
            Err(ApiError::Refused { status, said, .. }) => (status, said),
            Err(error) => (0, forebay_units::with_causes(&error).to_string()),
        };
        let said: String = said.chars().take(200).collect();
        self.note(&format!("{name}: {path} {body}: {status} {said}"));
        status
    }

    /// What a part says of itself.
    pub(super) fn status(&self, name: &str) -> Option<Value> {
        let soon = Deadline::after(Duration::from_secs(10));
        self.control(name).ask("GET", "/api/v1/status", "", soon).ok()
    }

    /// Where a part says that the volume goes.
    pub(super) fn route(&self, name: &str) -> Option<String> {
        self.status(name)?["volumes"][0]["route"]["to"].as_str().map(str::to_owned)
    }

    /// Whether it has ended, as who does not start does; what it logged since it was started.
    pub(super) fn ended(&mut self, name: &str) -> Option<String> {
        let status = self.running.get_mut(name)?.try_wait().expect("it is a child of ours")?;
        self.running.remove(name);
        let log = std::fs::read(self.path(&format!("{name}.log"))).expect("it can be read");
        let log = String::from_utf8_lossy(&log);
        let words = log.rsplit(START).next().unwrap_or_default();
        Some(format!("{status}: {}", words.trim()))
    }

    /// Sends a signal, if it runs.
    pub(super) fn signal(&mut self, name: &str, signal: Signal) {
        if signal == Signal::TERM || signal == Signal::KILL {
            self.told.insert(name.to_owned());
        }
        if let Some(child) = self.running.get(name) {
            kill_process(Pid::from_child(child), signal)
                .expect("it is a child of ours that nobody waited for");
        }
    }

    /// Stands still for so long.
    pub(super) fn hold(&mut self, name: &str, time: Duration) {
        self.signal(name, Signal::STOP);
        std::thread::sleep(time);
        self.signal(name, Signal::CONT);
    }

    /// Ends it by this signal.
    pub(super) fn end(&mut self, name: &str, signal: Signal) -> Result<(), String> {
        self.signal(name, signal);
        self.signal(name, Signal::CONT);
        let Some(mut child) = self.running.remove(name) else { return Ok(()) };
        let ended = || child.try_wait().expect("it is a child of ours");
        let Some(status) = Deadline::after(END_MAX).wait_for(ended) else {
            self.running.insert(name.to_owned(), child);
            return Err(format!("`{name}` does not end on signal {}", signal.as_raw()));
        };
        self.note(&format!("{name} is ended by {}: {status}", signal.as_raw()));
        let is_told = |by: i32| [Signal::TERM, Signal::KILL].iter().any(|signal| signal.as_raw() == by);
        // By its status it may say that not all was answered, but no other signal ends it.
        if status.signal().is_none_or(is_told) { Ok(()) } else { Err(format!("`{name}` ends with {status}")) }
    }

    /// That none has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for (name, child) in self.running.iter_mut().filter(|(name, _)| !self.told.contains(*name)) {
            if let Some(status) = child.try_wait().expect("it is a child of ours") {
                return Err(format!("`{name}` has ended by itself: {status}"));
            }
        }
        Ok(())
    }

    /// That none has panicked.
    pub(super) fn check_logs(&self) -> Result<(), String> {
        for entry in std::fs::read_dir(&self.folder).expect("it is there").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read(&path).expect("it can be read");
                if String::from_utf8_lossy(&log).contains("panicked") {
                    return Err(format!("there is a panic in {}", path.display()));
                }
            }
        }
        Ok(())
    }

    /// Kills them all, so that nobody waits for any.
    pub(super) fn kill(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.clear();
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.kill();
    }
}
