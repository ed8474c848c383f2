//! `forebay serve`, `status` and `explain` as real processes: started, asked, and ended by signals.

use crate::client::Client;
use crate::support::{args, fail, file, folder, json, run, succeed, wait_for};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_units::ByteRange;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A running daemon; killed if a test fails before it ends it.
struct Daemon {
    child: Child,
    /// What it said until it was ready.
    words: Vec<String>,
}

impl Daemon {
    fn start(config: &Path) -> Daemon {
        Daemon::spawn(&mut Command::new(env!("CARGO_BIN_EXE_forebay")), config)
    }

    /// With SIGHUP as `env` is told, whatever it is to who runs the tests.
    fn start_with(handling: &str, config: &Path) -> Daemon {
        Daemon::spawn(Command::new("env").args([handling, env!("CARGO_BIN_EXE_forebay")]), config)
    }

    fn spawn(command: &mut Command, config: &Path) -> Daemon {
        let mut child = command
            .args(["serve".as_ref(), config.as_os_str()])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut words = Vec::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended before it was ready: {words:#?}"));
            words.push(line.expect("words are UTF-8"));
            if words.last().is_some_and(|line| line.starts_with("ready:")) {
                break;
            }
        }
        // What it says further must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Daemon { child, words }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the daemon runs");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Completions(Sender<OriginCompletion>);

impl CompletionSink for Completions {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

fn client(socket: &Path) -> (NbdOrigin, Arc<dyn CompletionSink>, Receiver<OriginCompletion>) {
    let origin =
        NbdOrigin::connect(&Uri::unix(socket, "db"), NbdOriginOptions::default()).expect("db is served");
    let (sender, completions) = channel();
    (origin, Arc::new(Completions(sender)), completions)
}

/// A file of 1 MiB whose writes take `write` ms, served on `nbd.sock` and `http.sock` of the folder.
fn config(folder: &tempfile::TempDir, write: u32) -> std::path::PathBuf {
    file(folder, "db.img", vec![3; 1 << 20]);
    let text = format!(
        "listen = [\"unix:nbd.sock\"]\n[[volume]]\nname = \"db\"\norigin = \"db.img\"\n\
         layers = [{{ type = \"delay\", write = \"{write}ms\" }}]\n[volume.objective]\nlatency = \"5ms\"\n\
         [http]\nlisten = \"off\"\nsocket = \"http.sock\"\n[control]\ninterval = \"100ms\"\n"
    );
    file(folder, "forebay.toml", text)
}

#[test]
fn a_daemon_serves_says_how_it_does_and_drains_on_sigterm() {
    let folder = folder();
    let config = config(&folder, 400);
    let mut daemon = Daemon::start(&config);
    let socket = folder.path().join("nbd.sock");
    assert!(daemon.words.iter().any(|line| line.contains("nbd+unix:///db?socket=")), "{:#?}", daemon.words);
    let status = json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]));
    assert_eq!(
        (&status["volumes"][0]["name"], &status["volumes"][0]["origin"]["state"]),
        (&"db".into(), &"up".into())
    );
    let table = succeed(args(&[&"status", &"--config", &config]));
    assert!(table.contains("mean latency at most 5ms") && table.contains("hit ratio"), "{table}");
    let explained = succeed(args(&[&"explain", &"db", &"--config", &config]));
    assert!(explained.contains("No decision was made about it"), "{explained}");
    json("forebay.explain/1", args(&[&"explain", &"db", &"--config", &config, &"--json"]));
    let told = succeed(args(&[&"interference", &"--config", &config]));
    assert!(told.starts_with("No table yet: no two volumes have loaded one origin, or its turn"), "{told}");
    json("forebay.interference/1", args(&[&"interference", &"--config", &config, &"--json"]));
    let (code, words) = fail(args(&[&"explain", &"nobody", &"--config", &config]));
    assert!(code == 1 && words.contains("there is no volume `nobody`"), "{words}");

    let (client, sink, completions) = client(&socket);
    let operation = OriginOperation::Write { offset: 4096, data: vec![8; 4096], fua: false };
    client.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
    // The write is at the origin for 400 ms; the signal comes while it is.
    loop {
        let status = json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]));
        if status["volumes"][0]["requests_in_flight"] == 1 {
            break;
        }
        assert!(completions.try_recv().is_err(), "the write was done before it was seen");
    }
    daemon.signal(rustix::process::Signal::TERM);
    let answer = completions.recv_timeout(Duration::from_secs(20)).expect("the write is answered");
    assert_eq!(answer.result, Ok(Vec::new()), "what was in flight completed");
    assert!(daemon.child.wait().expect("it ends").success());
    assert!(!socket.exists(), "its socket is gone");
    let image = std::fs::read(folder.path().join("db.img")).unwrap();
    assert_eq!(image[4096..8192], [8; 4096]);
    let (code, words) = fail(args(&[&"status", &"--config", &config]));
    assert!(code == 1 && words.contains("no daemon answers") && words.contains("hint:"), "{words}");
}

#[test]
fn a_terminal_that_is_gone_ends_a_daemon_in_order() {
    let folder = folder();
    let config = config(&folder, 0);
    let mut daemon = Daemon::start_with("--default-signal=HUP", &config);
    daemon.signal(rustix::process::Signal::HUP);
    assert!(daemon.child.wait().expect("it ends").success());
    assert!(!folder.path().join("nbd.sock").exists(), "its socket is left");
    // Unless it was told to stay, as by `nohup`.
    let mut daemon = Daemon::start_with("--ignore-signal=HUP", &config);
    daemon.signal(rustix::process::Signal::HUP);
    // As whoever rotates logs sends them to other daemons.
    daemon.signal(rustix::process::Signal::USR1);
    daemon.signal(rustix::process::Signal::USR2);
    let (origin, sink, completions) = client(&folder.path().join("nbd.sock"));
    origin.submit(OriginRequest { id: OriginRequestId(1), operation: OriginOperation::Flush }, &sink);
    assert!(completions.recv_timeout(Duration::from_secs(10)).expect("an answer").result.is_ok());
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.child.wait().expect("it ends").success());
}

/// A daemon that is asked to log everything on `stderr`, which nobody reads.
fn unheard(config: &Path, stderr: impl Into<Stdio>) -> Daemon {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["serve".as_ref(), config.as_os_str(), "--log".as_ref(), "trace".as_ref()]);
    let daemon =
        Daemon { child: command.stderr(stderr).spawn().expect("the binary runs"), words: Vec::new() };
    let folder = config.parent().expect("it is in a folder");
    ["nbd.sock", "http.sock"].iter().for_each(|socket| wait_for(&folder.join(socket)));
    daemon
}

/// A pipe that takes nothing until it is read, and how many bytes are in it.
fn full_pipe() -> (PipeReader, PipeWriter, usize) {
    let (reader, mut writer) = std::io::pipe().expect("the system has a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut bytes = 0;
    while let Ok(written) = writer.write(&[b'.'; 4096]) {
        bytes += written;
    }
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (reader, writer, bytes)
}

#[test]
fn a_log_that_nobody_takes_harms_no_client() {
    let (_stopped, full, _) = full_pipe();
    let (_, gone) = std::io::pipe().unwrap();
    let disk = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (who, stderr) in
        [("a full disk", disk.into()), ("who is gone", gone.into()), ("who is stopped", Stdio::from(full))]
    {
        let folder = folder();
        let config = config(&folder, 0);
        let mut daemon = unheard(&config, stderr);
        // A thread that died of a line that it could not write, or waits to write it, answers nobody.
        let (origin, sink, completions) = client(&folder.path().join("nbd.sock"));
        for (id, order) in [(1, "pause"), (2, "resume")] {
            origin
                .submit(OriginRequest { id: OriginRequestId(id), operation: OriginOperation::Flush }, &sink);
            let answer = completions
                .recv_timeout(Duration::from_secs(20))
                .unwrap_or_else(|_| panic!("{who}: no answer"));
            assert_eq!(answer.result, Ok(Vec::new()), "{who}");
            succeed(args(&[&order, &"--config", &config]));
        }
        daemon.signal(rustix::process::Signal::TERM);
        assert!(daemon.child.wait().expect("it ends").success(), "{who}");
    }
}

#[test]
fn lines_of_the_log_that_nobody_took_are_counted_for_who_reads_again() {
    let (mut reader, full, bytes) = full_pipe();
    let folder = folder();
    let config = config(&folder, 0);
    let mut daemon = unheard(&config, full);
    succeed(args(&[&"pause", &"--config", &config]));
    reader.read_exact(&mut vec![0; bytes]).unwrap();
    succeed(args(&[&"resume", &"--config", &config]));
    daemon.signal(rustix::process::Signal::TERM);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    assert!(daemon.child.wait().expect("it ends").success());
    assert!(told.contains(" lines of the log were left out: nobody took them\n"), "{told}");
    assert!(told.contains("controller switched enabled=true"), "{told}");
}

/// A daemon under a limit, as `ulimit` takes it, whatever whoever runs the tests ignores.
fn limited(limit: &str, config: &Path) -> Daemon {
    let script = format!("ulimit {limit} && exec env --default-signal=XFSZ \"$0\" \"$@\"");
    Daemon::spawn(Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_forebay")]), config)
}

#[test]
fn a_daemon_takes_as_many_open_files_as_it_may_have_and_clients_leave_some_for_its_owner() {
    let folder = folder();
    let config = config(&folder, 0);
    let daemon = limited("-Sn 64", &config);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap();
    let files =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the kernel tells it");
    let files: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(files[0], files[1], "{limits}");
    drop(daemon);
    let daemon = limited("-n 300", &config);
    let warning = "300 files open, which is enough for 42 clients at once, and not for the 4096";
    assert!(daemon.words.iter().any(|line| line.contains(warning)), "{:#?}", daemon.words);
    let socket = folder.path().join("nbd.sock");
    let clients: Vec<_> = (0..320).map_while(|_| Client::<()>::connect(&socket, "db")).collect();
    assert_eq!(clients.len(), 42);
    let status = json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]));
    assert_eq!(status["connections"], 42);
}

/// A client that asks for one end of a volume must not take the daemon from all others.
#[test]
fn a_write_past_the_limit_for_files_fails_and_kills_nobody() {
    let folder = folder();
    let config = config(&folder, 0);
    // A thread that writes gets the signal; of a ring's it depends on who has the page.
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("io.engine = \"threads\"\n{text}")).unwrap();
    // Shells count in units of 512 or 1024 bytes.
    let _daemon = limited("-f 512", &config);
    let (client, sink, completions) = client(&folder.path().join("nbd.sock"));
    let ask = |id, operation| {
        client.submit(OriginRequest { id: OriginRequestId(id), operation }, &sink);
        completions.recv_timeout(Duration::from_secs(60)).expect("it is answered").result
    };
    let write = |at| OriginOperation::Write { offset: at, data: vec![7; 4096], fua: false };
    assert!(ask(0, write(768 << 10)).is_err());
    ask(1, write(0)).expect("there is room at the beginning");
    let read = OriginOperation::Read { range: ByteRange::new(768 << 10, 4096) };
    assert!(ask(2, read).expect("what is there is read").iter().all(|byte| *byte == 3));
}

/// As under `ulimit -v`, or where the system accounts for memory strictly.
#[test]
fn a_cache_that_gets_no_memory_stays_small_and_says_so() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let folder = folder();
    let image: Vec<u8> = (0..96u32 << 20).map(|at| (at >> 12) as u8).collect();
    file(&folder, "db.img", image);
    let text = "listen = [\"unix:nbd.sock\"]\ncache.memory = \"96MiB\"\n[http]\nlisten = \"off\"\nsocket = \"http.sock\"\n\
                [limits]\nworkers = 1\n[control]\ninterval = \"100ms\"\n[[volume]]\nname = \"db\"\norigin = \"db.img\"\ncache = \"96MiB\"\n";
    let config = file(&folder, "forebay.toml", text);
    let mut daemon = Daemon::start(&config);
    let (client, sink, completions) = client(&folder.path().join("nbd.sock"));
    let read = |at: u64| {
        let operation = OriginOperation::Read { range: ByteRange::new(at << 16, 1 << 16) };
        client.submit(OriginRequest { id: OriginRequestId(at), operation }, &sink);
        let answer = completions.recv_timeout(Duration::from_secs(60)).expect("a read is answered");
        let data = answer.result.expect("a read is done");
        assert!(
            data.chunks(4096).enumerate().all(|(block, data)| data == [(at * 16 + block as u64) as u8; 4096])
        );
    };
    let pages = || -> u64 {
        std::thread::sleep(Duration::from_millis(10));
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", daemon.child.id())).unwrap();
        pages.split(' ').next().unwrap().parse().unwrap()
    };
    // A thread that is new maps 128 MiB for its allocations and gives half of them back: the least of some looks is without.
    let pages = (0..20).map(|_| pages()).min().unwrap();
    let most = Some((pages << 12) + (64 << 20));
    let limit = Rlimit { current: most, maximum: most };
    prlimit(Some(Pid::from_child(&daemon.child)), Resource::As, limit).expect("it may be limited");
    (0..96 << 4).for_each(read);
    (0..96 << 4).for_each(read);
    let refused = || {
        json("forebay.status/1", args(&[&"status", &"--config", &config, &"--json"]))["volumes"][0].clone()
    };
    let end = Instant::now() + Duration::from_secs(60);
    while refused()["refused_bytes"] == 0 {
        assert!(Instant::now() < end, "it is not told: {}", refused());
        std::thread::sleep(Duration::from_millis(50));
    }
    let volume = refused();
    let [quota, used, refused] =
        ["quota_bytes", "used_bytes", "refused_bytes"].map(|key| volume[key].as_u64().unwrap());
    assert!(quota == 96 << 20 && used > 0 && used <= quota - refused, "{volume}");
    let words = succeed(args(&[&"status", &"--config", &config]));
    assert!(words.contains("! the system refuses the cache of `db` more memory: "), "{words}");
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.child.wait().expect("it ends").success());
}

#[test]
fn sockets_of_a_daemon_that_was_killed_are_taken_over() {
    let folder = folder();
    let config = config(&folder, 0);
    let mut killed = Daemon::start(&config);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(folder.path().join("nbd.sock").exists() && folder.path().join("http.sock").exists());
    let mut daemon = Daemon::start(&config);
    let second = run(args(&[&"serve", &config]));
    assert!(!second.status.success(), "two daemons do not serve one file");
    daemon.signal(rustix::process::Signal::INT);
    assert!(daemon.child.wait().expect("it ends").success());
}

#[test]
fn a_reservation_is_made_shown_and_cancelled() {
    let folder = folder();
    let config = config(&folder, 0);
    let _daemon = Daemon::start(&config);
    let ask = |more: &[&str]| {
        let mut all = args(&[&"reserve", &"--config", &config]);
        all.extend(more.iter().map(Into::into));
        all
    };
    let said = succeed(ask(&["db", "--iops", "20000", "--latency", "5ms", "--for", "40m"]));
    assert!(
        said.starts_with("reservation 1: 20000/s and 5.00 ms mean latency on `db` for another 40 min"),
        "{said}"
    );
    let later =
        json("forebay.reservation/1", ask(&["db", "--iops", "1", "--for", "1m", "--in", "1h", "--json"]));
    assert_eq!((later["id"].as_u64(), later["active"].as_bool()), (Some(2), Some(false)));
    let status = succeed(args(&[&"status", &"--config", &config]));
    assert!(status.contains("reservation 1: 20000/s") && status.contains("reservation 2: 1/s"), "{status}");
    let explained = succeed(args(&[&"explain", &"db", &"--config", &config]));
    assert!(explained.contains("reservation 1: 20000/s"), "{explained}");
    assert_eq!(succeed(ask(&["--cancel", "1"])), "reservation 1 is cancelled\n");
    // Its objective may be shown until the interval ends.
    assert!(!succeed(args(&[&"status", &"--config", &config])).contains("reservation 1: "));
    for (more, code, said) in [
        (&["--cancel", "1"][..], 1, "there is no reservation 1"),
        (&["nobody", "--iops", "1", "--for", "1m"], 1, "`volumes` is `nobody`, expected one of `db`"),
        (&["db", "--iops", "-1", "--for", "1m"], 2, "'-1' for '--iops <RATE>': expected a number above 0"),
        (&["db", "--iops", "NaN", "--for", "1m"], 2, "'NaN' for '--iops <RATE>': expected a number above 0"),
        (&["db", "--for", "1m"], 1, "one of them, or both"),
        (&["db", "--iops", "1"], 2, "--for"),
        (&["db", "--iops", "1", "--for", "0s"], 1, "`duration_s` is 0"),
        (&["db", "--iops", "1", "--for", "500d"], 1, "`duration_s` is 43200000"),
        (&["db", "--cancel", "1"], 2, "cannot be used with"),
    ] {
        let (found, words) = fail(ask(more));
        assert!(found == code && words.contains(said), "{more:?}: {found} {words}");
    }
}

#[test]
fn a_configuration_is_checked_before_anything_starts() {
    let folder = folder();
    let good = config(&folder, 0);
    let checked = run(args(&[&"serve", &"--check", &good]));
    assert!(checked.status.success() && checked.stdout.is_empty());
    assert!(!folder.path().join("nbd.sock").exists());
    let bad = file(
        &folder,
        "bad.toml",
        "listen = [\"unix:nbd.sock\"]\n[[volume]]\nname = \"db\"\norigin = \"db.img\"\nsise = 1\n[[objective]]\nvolume = \"x\"\niops = 3\n",
    );
    for command in [args(&[&"serve", &"--check", &bad]), args(&[&"serve", &bad])] {
        let (code, words) = fail(command);
        assert_eq!(code, 1);
        assert!(words.contains("bad.toml`, line 5, `volume[0].sise`: unknown key `sise`"), "{words}");
        assert!(words.contains("line 7, `objective[0].volume`: there is no volume `x`"), "{words}");
    }
    let (code, words) = fail(args(&[&"status", &"--server", &"nowhere"]));
    assert!(code == 2 && words.contains("is no address"), "{words}");
}

#[test]
fn the_controller_is_paused_and_resumed_by_its_operator() {
    let folder = folder();
    let socket = folder.path().join("http.sock");
    let server = format!("unix:{}", socket.display());
    let text = format!(
        "listen = [\"unix:{}\"]\nhttp = {{ listen = \"off\", socket = {socket:?} }}\ncache.memory = \"1MiB\"\n\
         [[volume]]\nname = \"db\"\norigin = {{ type = \"memory\", size = \"1MiB\" }}\n",
        folder.path().join("nbd.sock").display()
    );
    let _daemon = Daemon::start(&file(&folder, "forebay.toml", text));
    let said = |command: &str| succeed([command, "--server", &server]);
    let status = || succeed(["status", "--server", &server]);
    assert!(status().contains("controller decides every 10 s"), "{}", status());
    assert!(said("resume").contains("was not paused"));
    assert!(said("pause").contains("caches stay as they are until `forebay resume`"));
    assert!(status().contains("controller paused for "), "{}", status());
    let explained = || succeed(["explain", "db", "--server", &server]);
    assert!(
        explained().contains("controller paused for ") && explained().contains("nothing is decided about it")
    );
    assert!(said("pause").contains("already"));
    let resumed = json("forebay.controller/1", ["resume", "--json", "--server", &server]);
    assert_eq!((resumed["enabled"].as_bool(), resumed["was_enabled"].as_bool()), (Some(true), Some(false)));
    assert!(status().contains("controller decides every 10 s"), "{}", status());
    assert!(!explained().contains("controller"), "{}", explained());
}
