//! Appliances as processes of another machine, had by `ssh`: the program that people keep their keys for is run, nothing is linked, and no agent listens there.
//!
//! `ssh` runs `forebay host` there, which says who it is ([`GREETING`]), takes one request in a line, carries it out by a provider of its own machine, and answers in a
//! line. A request is sent only after the greeting: where none came, nothing was asked of anybody, and the failure is certain. Secrets are in the
//! request, never on a command line; times are spans, so the clocks of the two machines may differ.
//!
//! An appliance outlives the connection by which it was started. If that is lost on the way, the process there goes on to its deadline: what became of it is unknown until
//! somebody asks.

use super::local::PROCESS_OVERHEAD;
use super::{Provider, ProvisionError};
use crate::{ApplianceId, ApplianceOrder, Deadline, Listed, Running, secrets};
use forebay_units::{Secret, with_causes};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// What `forebay host` says first, and what it is looked for by: a login may say other things before.
pub const GREETING: &str = "forebay host 1";
/// The longest line that is read of the other side (ours): an order with a volume has less than a kilobyte.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// What a login may say before the greeting, in lines (ours).
const LINES_BEFORE_MAX: usize = 100;
/// What is repeated of what `ssh` said, at most a line more (ours).
const SAID_BYTES_MAX: usize = 1000;
/// What it said has come by then once it has ended (ours).
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What is told of an answer to something else.
const OTHER_ANSWER: &str = "its answer is none to this request";
/// What the way back may take of the time of a request (ours).
const WAY_BACK: Duration = Duration::from_millis(500);
/// How long it is looked for appliances (ours); a start or a stop says itself how long it may take.
const LOOK: Duration = Duration::from_secs(5);

/// What is asked of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// Have the appliance of this order run.
    Start { order: ApplianceOrder, within_ms: u64 },
    /// Is it there?
    Find { id: ApplianceId },
    /// Which run there that were ordered with this token?
    List {
        #[serde(with = "secrets")]
        token: Secret,
    },
    /// End it.
    Stop { id: ApplianceId, within_ms: u64 },
}

/// What a host answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// It runs.
    Running(Running),
    /// There is none.
    Absent,
    /// Those run.
    Listed(Vec<Listed>),
    /// It was not done; `may_run` says whether it may be there all the same, or come to.
    Failed { said: String, may_run: bool },
}

/// Answers one request with what `provider` has here: greets on `output`, reads a line of `input`, writes a line.
///
/// # Errors
/// If the other side cannot be read or written, or what it says is no request.
pub fn answer_host(
    provider: &dyn Provider,
    input: impl Read,
    mut output: impl Write,
) -> Result<(), io::Error> {
    writeln!(output, "{GREETING}")?;
    output.flush()?;
    let mut line = String::new();
    BufReader::new(input.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => carry_out(provider, request),
        // What was asked is not repeated: it may hold secrets.
        Err(error) => Answer::Failed {
            said: format!(
                "this is no request (line 1, column {}): is the controller of another version?",
                error.column()
            ),
            may_run: false,
        },
    };
    serde_json::to_writer(&mut output, &answer)?;
    writeln!(output)?;
    output.flush()
}

fn carry_out(provider: &dyn Provider, request: Request) -> Answer {
    let within = |milliseconds| Deadline::after(Duration::from_millis(milliseconds));
    let done = match request {
        Request::Start { order, within_ms } => provider.start(&order, within(within_ms)).map(Answer::Running),
        Request::Find { id } => {
            provider.find(&id).map(|running| running.map_or(Answer::Absent, Answer::Running))
        }
        Request::List { token } => provider.list(&token, Deadline::after(LOOK)).map(Answer::Listed),
        Request::Stop { id, within_ms } => provider.stop(&id, within(within_ms)).map(|()| Answer::Absent),
    };
    done.unwrap_or_else(|error| Answer::Failed { said: with_causes(&error), may_run: error.may_run() })
}

/// Appliances as processes of another machine, which `ssh` leads to.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The machine, and who is to log in there, as `ssh` takes it: `user@machine`, or a name of its configuration.
    pub destination: String,
    /// Options of `ssh`, as on its command line: `-i`, `-p`, `-F`, `-J`, `-o`. It never asks anybody anything: the machine's key must be known.
    pub options: Vec<String>,
    /// What is to be run there, to the shell of that login; whoever gave the key a command of its own there decides that instead.
    pub command: Vec<String>,
}

/// How talking to the other machine went wrong.
enum Lost {
    /// Before anything was asked.
    Unasked(String),
    /// After the request was sent.
    Unheard(String),
}

impl Ssh {
    /// Runs `forebay host` at `destination`, which keeps what it must know in `folder` there; appliances are reached at `address`, which that machine has.
    pub fn new(
        destination: impl Into<String>,
        program: &str,
        folder: &str,
        address: std::net::IpAddr,
    ) -> Ssh {
        let address = address.to_string();
        let command = [program, "host", "--folder", folder, "--address", &address].map(str::to_owned);
        Ssh { destination: destination.into(), options: Vec::new(), command: command.into() }
    }

    fn spawn(&self, deadline: Deadline) -> io::Result<Child> {
        // It counts whole seconds, and 0 for ever.
        let connect = format!("ConnectTimeout={}", deadline.left().as_secs() + 1);
        let command: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        Command::new("ssh")
            .args(&self.options)
            // What an option says first counts: those of the user may change these.
            .args(["-T", "-a", "-x", "-o", "BatchMode=yes", "-o", &connect])
            .args(["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=10"])
            // A connection that others share would end with them.
            .args(["-o", "ControlMaster=no", "-o", "ControlPath=none"])
            .args(["--", &self.destination, &command.join(" ")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // What ends the controller, at a terminal say, must not end it in the middle.
            .process_group(0)
            .spawn()
    }

    /// One request, and what is answered in time.
    fn ask(&self, request: &Request, deadline: Deadline) -> Result<Answer, Lost> {
        let mut ssh =
            self.spawn(deadline).map_err(|error| Lost::Unasked(format!("`ssh` cannot be run: {error}")))?;
        let mut line = serde_json::to_vec(request).expect("plain data can be written");
        line.push(b'\n');
        let (mut input, output, errors) =
            (ssh.stdin.take().expect("piped"), ssh.stdout.take().expect("piped"), ssh.stderr.take());
        let asked = Arc::new(AtomicBool::new(false));
        let (words, said) = channel();
        let (sender, answers) = channel();
        // Neither is waited for: they end when `ssh` does, or whoever it has started to connect.
        std::thread::spawn(move || {
            for line in BufReader::new(errors.expect("piped")).lines().map_while(Result::ok) {
                let _ = words.send(line);
            }
        });
        let sent = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let answer = await_greeting(&mut output).and_then(|()| {
                sent.store(true, Ordering::SeqCst);
                input.write_all(&line)?;
                let answer = next_line(&mut output)?;
                serde_json::from_str(&answer)
                    .map_err(|_| io::Error::other("its answer is not understood: is it of another version?"))
            });
            // Nobody listens any more when its time is over.
            let _ = sender.send(answer);
        });
        let answer = answers.recv_timeout(deadline.left());
        // It has nothing more to do. Whatever it did not send by now it never will.
        let ended = match &answer {
            Ok(Ok(_)) => Deadline::after(WAY_BACK).within(deadline.left()),
            Ok(Err(_)) => Deadline::after(WAY_BACK),
            Err(_) => Deadline::after(Duration::ZERO),
        };
        let status = end(&mut ssh, ended);
        let mut reason = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => ended_by(&error, status),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                "nothing was heard in time".to_owned()
            }
        };
        while let Ok(line) = said.recv_timeout(LAST_WORDS)
            && reason.len() < SAID_BYTES_MAX
        {
            reason.push_str(" | ");
            reason.push_str(line.trim());
        }
        Err(if asked.load(Ordering::SeqCst) { Lost::Unheard(reason) } else { Lost::Unasked(reason) })
    }

    /// The same, as a provider tells it.
    fn have(
        &self,
        id: &ApplianceId,
        request: &Request,
        deadline: Deadline,
    ) -> Result<Option<Running>, ProvisionError> {
        let (id, destination) = (id.clone(), self.destination.clone());
        match self.ask(request, deadline) {
            Ok(Answer::Running(running)) => Ok(Some(running)),
            Ok(Answer::Absent) => Ok(None),
            Ok(Answer::Listed(_)) => Err(ProvisionError::Elsewhere {
                id,
                destination,
                said: OTHER_ANSWER.to_owned(),
                may_run: true,
            }),
            Ok(Answer::Failed { said, may_run }) => {
                Err(ProvisionError::Elsewhere { id, destination, said, may_run })
            }
            Err(Lost::Unasked(said)) => {
                Err(ProvisionError::Elsewhere { id, destination, said, may_run: false })
            }
            Err(Lost::Unheard(said)) => {
                Err(ProvisionError::Elsewhere { id, destination, said, may_run: true })
            }
        }
    }
}

impl Provider for Ssh {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        order.check(PROCESS_OVERHEAD)?;
        let request = Request::Start { order: order.clone(), within_ms: milliseconds(deadline) };
        let running = self.have(&order.id, &request, deadline)?;
        running.ok_or_else(|| ProvisionError::Elsewhere {
            id: order.id.clone(),
            destination: self.destination.clone(),
            said: "it says neither that it runs nor why it does not".to_owned(),
            may_run: true,
        })
    }

    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        self.have(id, &Request::Find { id: id.clone() }, Deadline::after(LOOK))
    }

    fn list(&self, token: &Secret, deadline: Deadline) -> Result<Vec<Listed>, ProvisionError> {
        let said = match self.ask(&Request::List { token: token.clone() }, deadline) {
            Ok(Answer::Listed(listed)) => return Ok(listed),
            Ok(Answer::Failed { said, .. }) | Err(Lost::Unasked(said) | Lost::Unheard(said)) => said,
            Ok(Answer::Running(_) | Answer::Absent) => OTHER_ANSWER.to_owned(),
        };
        Err(ProvisionError::Unlisted { destination: self.destination.clone(), said })
    }

    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        let request = Request::Stop { id: id.clone(), within_ms: milliseconds(deadline) };
        self.have(id, &request, deadline).map(drop)
    }
}

/// What the other side may take.
fn milliseconds(deadline: Deadline) -> u64 {
    let left = deadline.sooner_by(WAY_BACK).left().as_millis();
    u64::try_from(left).unwrap_or(u64::MAX)
}

/// A word, as a shell takes it for one.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn await_greeting(output: &mut impl BufRead) -> io::Result<()> {
    for _ in 0..LINES_BEFORE_MAX {
        let line = next_line(output)?;
        let version =
            line.trim_end().strip_prefix("forebay host ").and_then(|version| version.parse::<u32>().ok());
        match version {
            Some(_) if line.trim_end() == GREETING => return Ok(()),
            // It says nothing more: it waits for a request, of its own kind.
            Some(other) => {
                let why = format!(
                    "it says `forebay host {other}`, expected `{GREETING}`: it is of another version"
                );
                return Err(io::Error::other(why));
            }
            None => {}
        }
    }
    Err(io::Error::other(format!("it does not say `{GREETING}`: is it of another version?")))
}

fn next_line(output: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    output.take(LINE_BYTES_MAX).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Waits for `ssh`, and ends it if it takes longer.
fn end(ssh: &mut Child, deadline: Deadline) -> Option<ExitStatus> {
    let status = deadline.wait_for(|| ssh.try_wait().ok().flatten());
    if status.is_none() {
        let _ = ssh.kill();
        let _ = ssh.wait();
    }
    status
}

/// What it means that there is no answer.
fn ended_by(error: &io::Error, status: Option<ExitStatus>) -> String {
    match (error.kind(), status.and_then(|status| status.code())) {
        // Of a shell (POSIX, 2.8.2): the command was not found, or cannot be run.
        (io::ErrorKind::UnexpectedEof, Some(126 | 127)) => "`forebay` cannot be run there".to_owned(),
        (io::ErrorKind::UnexpectedEof, Some(255)) => {
            "`ssh` could not connect, or lost the connection".to_owned()
        }
        (io::ErrorKind::UnexpectedEof, _) => "it ended without an answer".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::LocalProcess;

    fn answered(request: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let provider =
            LocalProcess::over_tcp(folder.path(), "/nowhere/forebay", [127, 0, 0, 1].into()).unwrap();
        let mut output = Vec::new();
        answer_host(&provider, request.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn who_greets_as_another_version_is_not_waited_for() {
        // Who says nothing more waits for a request.
        struct Waits;
        impl Read for Waits {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("it is waited for")
            }
        }
        let greets = |said: &str| await_greeting(&mut BufReader::new(said.as_bytes().chain(Waits)));
        greets("You have mail.\nforebay host one\nforebay host 1\n").expect("it is one of ours");
        let told = greets("You have mail.\nforebay host 2\n").unwrap_err().to_string();
        assert_eq!(told, "it says `forebay host 2`, expected `forebay host 1`: it is of another version");
    }

    #[test]
    fn a_host_answers_one_request_in_a_line() {
        assert_eq!(answered("{\"find\":{\"id\":\"a\"}}\n"), "forebay host 1\n\"absent\"\n");
        assert_eq!(answered("{\"stop\":{\"id\":\"a\",\"within_ms\":1000}}"), "forebay host 1\n\"absent\"\n");
        let order =
            r#"{"id":"a","host":"h","memory":104857600,"token":"0123456789abcdef","volumes":[{"name":"db",
            "origin":{"uri":"nbd://storage/db"},"block_size":4096,"cache":0}]}"#
                .replace('\n', "");
        let failed = answered(&format!("{{\"start\":{{\"order\":{order},\"within_ms\":1000}}}}\n"));
        assert!(failed.contains("/nowhere/forebay") && failed.contains("\"may_run\":false"), "{failed}");
    }

    #[test]
    fn what_is_no_request_is_told_and_not_repeated() {
        for bad in ["", "\n", "rubbish 0123456789abcdef", "{\"find\":{\"id\":\"A/B\"}}", "{\"start\":{}}"] {
            let answer = answered(bad);
            assert!(answer.contains("no request") && !answer.contains("0123456789"), "{bad}: {answer}");
        }
    }

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn a_program_that_is_not_there_was_certainly_not_asked() {
        // An unknown option: `ssh` ends before it connects to anybody.
        let ssh = Ssh {
            options: vec!["-o".to_owned(), "NoSuchOption=1".to_owned()],
            ..Ssh::new("nobody.invalid", "forebay", "f", [127, 0, 0, 1].into())
        };
        let error = ssh.find(&"a".parse().unwrap()).unwrap_err();
        assert!(!error.may_run(), "{error}");
    }
}
