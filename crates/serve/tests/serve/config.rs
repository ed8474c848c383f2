//! Configurations that are wrong: each problem with its line and key, and all of them at once.

use forebay_appliance::{EngineChoice, ListenerConfig};
use forebay_serve::config::{CacheConfig, Config, OriginConfig, machine_memory};
use forebay_serve::fleet::FleetConfig;
use forebay_units::{Bytes, Nanos};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.img"), [0; 4096]).unwrap();
    std::fs::write(folder.path().join("b.img"), [0; 4096]).unwrap();
    std::fs::write(folder.path().join("empty.img"), []).unwrap();
    std::fs::hard_link(folder.path().join("a.img"), folder.path().join("also-a.img")).unwrap();
    std::os::unix::fs::symlink("a.img", folder.path().join("link-to-a.img")).unwrap();
    folder
}

/// The problems as `line key: message`.
fn problems(text: &str, folder: &Path) -> Vec<String> {
    match Config::parse("forebay.toml", text, folder) {
        Ok(config) => panic!("nothing is wrong with\n{text}\n{config:?}"),
        Err(error) => {
            assert!(error.to_string().contains("forebay.toml"));
            let line = |line: Option<usize>| line.map_or("-".to_owned(), |line| line.to_string());
            error.problems.iter().map(|p| format!("{} {}: {}", line(p.line), p.key, p.message)).collect()
        }
    }
}

const HEAD: &str = "listen = [\"unix:f.sock\"]\n";
const VOLUME: &str = "[[volume]]\nname = \"a\"\norigin = \"a.img\"\n";

#[test]
fn every_mistake_is_told_with_its_line_and_key() {
    let folder = folder();
    let too_large = Bytes(machine_memory().get() * 2);
    // Lines: `listen` is line 1, `[[volume]]` line 2, `name` line 3, `origin` line 4, what follows line 5.
    let group = |keys: &str| {
        format!("{HEAD}{VOLUME}[[disk_group]]\nname = \"g\"\ndisk_capacity = \"1GiB\"\n{keys}\n")
    };
    let cases: Vec<(String, &str, &str)> = vec![
        (group("spindles = 2\nraid = \"5\""), "5 disk_group[0]", "at least 3 for RAID 4 and 5"),
        (group("spindles = 3\nraid = \"1\""), "5 disk_group[0]", "an even number for RAID 1"),
        (
            "listen = [\"tcp:127.0.0.1:10809\"]\n[[volume]]\nname = \"a\"\norigin = \"nbd://127.0.0.1/a\"\n"
                .to_owned(),
            "4 volume[0].origin",
            "`nbd://127.0.0.1/a` is volume `a` itself, as it is served here",
        ),
        (group("raid = \"6\""), "8 disk_group[0].raid", "`6` is no value here"),
        (group("raid = 5"), "8 disk_group[0].raid", "a text"),
        (group("array = { }"), "8 disk_group[0].array.cache", "missing key `cache`"),
        (group("array = { cache = \"1KiB\" }"), "8 disk_group[0].array.cache", "out of range"),
        (group("array = { cache = \"1MiB\", page = \"1MiB\" }"), "5 disk_group[0]", "from 16"),
        (
            group("array = { cache = \"1GiB\", dirty_share_max = nan }"),
            "8 disk_group[0].array.dirty_share_max",
            "out of range",
        ),
        (
            group("array = { cache = \"1GiB\", dirty_share_max = 0.255 }"),
            "8 disk_group[0].array.dirty_share_max",
            "a share in steps of 0.01",
        ),
        (
            group("array = { cache = \"1GiB\", flush_share = 0.95 }"),
            "8 disk_group[0].array.flush_share",
            "out of range",
        ),
        (group("array = { cache = \"1GiB\", pgae = 1 }"), "8 disk_group[0].array.pgae", "unknown key"),
        (group("buffer = { segment = \"64KiB\", read_ahead = \"1MiB\" }"), "5 disk_group[0]", "read_ahead"),
        (group("buffer = { segments = 0 }"), "8 disk_group[0].buffer.segments", "out of range"),
        (
            format!("{HEAD}{VOLUME}[reservations]\npath = \"r.json\"\n"),
            "5 reservations",
            "made over `http.socket`",
        ),
        (format!("{HEAD}{VOLUME}[reservations]\nfile = \"r.json\"\n"), "6 reservations.file", "unknown key"),
        (
            format!("{HEAD}{VOLUME}[http]\nsocket = \"h.sock\"\n[reservations]\npath = \"a.img\"\n"),
            "8 reservations.path",
            "a.img",
        ),
        (format!("{HEAD}{VOLUME}sise = 3\n"), "5 volume[0].sise", "unknown key `sise`"),
        (format!("{HEAD}{VOLUME}[cache]\nmemroy = \"1GiB\"\n"), "6 cache.memroy", "unknown key"),
        (
            format!("{HEAD}{VOLUME}[[objective]]\nvolume = \"z\"\nlatency = \"5ms\"\n"),
            "6 objective[0].volume",
            "no volume `z`",
        ),
        (format!("{HEAD}{VOLUME}{VOLUME}"), "6 volume[1].name", "the name `a` is that of volume 1 too"),
        (
            format!("{HEAD}{VOLUME}[[volume]]\nname = \"b\"\norigin = \"./a.img\"\n"),
            "7 volume[1].origin",
            "same origin as volume `a`",
        ),
        (
            format!("{HEAD}{VOLUME}[[volume]]\nname = \"b\"\norigin = \"also-a.img\"\n"),
            "7 volume[1].origin",
            "same origin as volume `a`",
        ),
        (
            format!("{HEAD}{VOLUME}read_only = true\n[[volume]]\nname = \"b\"\norigin = \"link-to-a.img\"\n"),
            "8 volume[1].origin",
            "same origin as volume `a`",
        ),
        (format!("{HEAD}{VOLUME}[cache]\nmemory = \"{too_large}\"\n"), "6 cache.memory", "nine tenths"),
        (
            format!("{HEAD}{VOLUME}cache = \"2GiB\"\n[cache]\nmemory = \"1MiB\"\n"),
            "5 volume[0].cache",
            "`cache.memory` is 1MiB",
        ),
        (
            format!(
                "{HEAD}[[volume]]\nname = \"m\"\norigin = {{ type = \"memory\", size = \"{too_large}\" }}\n"
            ),
            "4 volume[0].origin.size",
            "this machine has",
        ),
        (format!("{HEAD}{VOLUME}[control]\ninterval = \"10ms\"\n"), "6 control.interval", "out of range"),
        (
            format!("{HEAD}{VOLUME}[control.violation]\nwindows = 2\nnonconforming = 3\n"),
            "7 control.violation.nonconforming",
            "expected",
        ),
        (
            format!("{HEAD}{VOLUME}[control.violation]\nwindow = 2\n"),
            "6 control.violation.window",
            "unknown key",
        ),
        (format!("{HEAD}{VOLUME}[http]\nlisten = \"0.0.0.0:80\"\n"), "6 http.listen", "no `http.token`"),
        (format!("listen = [\"tcp:0.0.0.0:10809\"]\n{VOLUME}"), "1 listen[0]", "neither a secret nor TLS"),
        (
            format!(
                "listen = [{{ address = \"tcp:0.0.0.0:10809\", tls = \"required\" }}]\n{VOLUME}[tls]\ncertificate = \"c\"\nkey = \"k\"\n"
            ),
            "1 listen[0]",
            "TLS that asks clients for a certificate",
        ),
        (
            format!(
                "listen = [{{ address = \"tcp:0.0.0.0:10809\", tls = \"allowed\" }}]\n{VOLUME}[tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_authorities = \"a\"\n"
            ),
            "1 listen[0]",
            "neither a secret nor TLS",
        ),
        (
            format!("listen = {{ address = \"unix:s\", tls = \"allowed\" }}\n{VOLUME}"),
            "1 listen[0]",
            "there is no certificate",
        ),
        (
            format!("listen = {{ address = \"unix:s\", tls = \"on\" }}\n{VOLUME}"),
            "1 listen.tls",
            "expected `off` or",
        ),
        (format!("listen = {{ tls = \"off\" }}\n{VOLUME}"), "1 listen.address", "missing key `address`"),
        (format!("listen = [7]\n{VOLUME}"), "1 listen[0]", "expected a text in quotes or a table"),
        (format!("{HEAD}{VOLUME}[tls]\nkey = \"k\"\n"), "5 tls.certificate", "missing key `certificate`"),
        (
            format!("{HEAD}{VOLUME}flash = \"4MiB\"\n[flash]\npath = \"a.img\"\n"),
            "7 flash.path",
            "is the origin of volume `a` and would be overwritten",
        ),
        (
            format!("{HEAD}{VOLUME}[flash]\npath = \"none\"\n"),
            "6 flash.path",
            "is not there: expected `flash.size`",
        ),
        (
            format!("{HEAD}{VOLUME}[flash]\npath = \".\"\n"),
            "6 flash.path",
            "neither a file nor a block device",
        ),
        (
            format!("{HEAD}{VOLUME}layers = [{{ type = \"log\", file = \"a.img\" }}]\n"),
            "5 volume[0].layers[0].file",
            "is the origin of volume `a`",
        ),
        (
            format!("{HEAD}{VOLUME}[history]\npath = \"h\"\n[routes]\npath = \"h-wal\"\n"),
            "8 routes.path",
            "is written by something else too",
        ),
        (format!("listen = []\n{VOLUME}"), "1 listen", "no address: expected where NBD clients connect"),
        (format!("listen = [\"udp:1\"]\n{VOLUME}"), "1 listen[0]", "expected `unix:PATH` or `tcp:"),
        (format!("listen = [\"unix:no/such/folder/s\"]\n{VOLUME}"), "1 listen[0]", "does not exist"),
        (format!("listen = [\"unix:a.img\"]\n{VOLUME}"), "1 listen[0]", "exists and is no socket"),
        (VOLUME.to_owned(), "- listen", "missing key `listen`"),
        (HEAD.to_owned(), "- volume", "at least one"),
        (
            format!("{HEAD}[[volume]]\nname = \"a\"\norigin = \"none.img\"\n"),
            "4 volume[0].origin",
            "cannot open origin",
        ),
        (
            format!("{HEAD}[[volume]]\nname = \"a\"\norigin = \"empty.img\"\n"),
            "4 volume[0].origin",
            "size of 0 bytes",
        ),
        (format!("{HEAD}[[volume]]\nname = \"a\"\norigin = \".\"\n"), "4 volume[0].origin", "is a directory"),
        (format!("{HEAD}[[volume]]\nname = \"a\"\n"), "2 volume[0].origin", "missing key `origin`"),
        (
            format!("{HEAD}[[volume]]\nname = \"a\"\norigin = {{ type = \"tape\" }}\n"),
            "4 volume[0].origin",
            "`tape` is no type",
        ),
        (
            format!("{HEAD}[[volume]]\nname = \"a\"\norigin = {{ type = \"nbd\", uri = \"http://x\" }}\n"),
            "4 volume[0].origin.uri",
            "",
        ),
        (
            format!(
                "{HEAD}[[volume]]\nname = \"a\"\norigin = {{ type = \"disk-group\", group = \"g\", memory = \"1MiB\" }}\n"
            ),
            "4 volume[0].origin.group",
            "there is no disk group `g`",
        ),
        (
            format!(
                "{HEAD}[[disk_group]]\nname = \"g\"\n[[volume]]\nname = \"a\"\norigin = {{ type = \"disk-group\", group = \"g\", memory = \"1MiB\" }}\n\
                 [[volume]]\nname = \"b\"\norigin = {{ type = \"disk-group\", group = \"g\", memory = \"1MiB\", offset = \"4KiB\" }}\n"
            ),
            "9 volume[1].origin.offset",
            "overlaps volume `a`",
        ),
        (
            format!(
                "{HEAD}[[disk_group]]\nname = \"g\"\nspindles = 1\ndisk_capacity = \"1MiB\"\n[[volume]]\nname = \"a\"\norigin = {{ type = \"disk-group\", group = \"g\", memory = \"2MiB\" }}\n"
            ),
            "8 volume[0].origin",
            "passes the end of disk group",
        ),
        (
            format!("{HEAD}{VOLUME}[volume.objective]\nlatency = \"5ms\"\niops = 3\n"),
            "6 volume[0].objective[0]",
            "exactly one of",
        ),
        (
            format!("{HEAD}{VOLUME}[volume.objective]\nlatency = 5\n"),
            "6 volume[0].objective[0].latency",
            "expected a span of time",
        ),
        (
            format!("{HEAD}{VOLUME}[volume.objective]\nlatency = \"5ms\"\nstatistic = \"p101\"\n"),
            "7 volume[0].objective[0].statistic",
            "`p101`: expected `mean`, or a percentile as in `p95`",
        ),
        (
            format!("{HEAD}{VOLUME}block_size = \"5000\"\n"),
            "5 volume[0].block_size",
            "expected a power of two from 512B to 64KiB",
        ),
        (
            format!("{HEAD}{VOLUME}[control]\nanalyses_max = -1\n"),
            "6 control.analyses_max",
            "-1 is out of range: expected 0 or more",
        ),
        (
            format!("{HEAD}{VOLUME}layers = [{{ type = \"error\", errno = 0 }}]\n"),
            "5 volume[0].layers[0].errno",
            "out of range",
        ),
        (
            format!(
                "{HEAD}{VOLUME}layers = [{{ type = \"log\", file = \"b.img\" }}]\n[[volume]]\nname = \"b\"\norigin = \"b.img\"\n"
            ),
            "5 volume[0].layers[0].file",
            "would be overwritten",
        ),
        (format!("{HEAD}{VOLUME}[history]\npath = \"a.img\"\n"), "6 history.path", "would be overwritten"),
        (format!("{HEAD}{VOLUME}[snapshots]\nkeep = 2\n"), "5 snapshots.directory", "missing key"),
        (
            format!("{HEAD}{VOLUME}[snapshots]\norigin = \"a.img\"\nlength = \"64MiB\"\n"),
            "6 snapshots.origin",
            "is the origin of volume `a`",
        ),
        (format!("{HEAD}{VOLUME}[snapshots]\norigin = \"s.img\"\n"), "5 snapshots.length", "missing key"),
        (
            format!("{HEAD}{VOLUME}[snapshots]\norigin = \"s.img\"\nlength = \"64MiB\"\nslot = \"48MiB\"\n"),
            "8 snapshots.slot",
            "64MiB hold 1 slots of 48MiB",
        ),
        (
            format!(
                "{HEAD}{VOLUME}[snapshots]\norigin = \"s.img\"\nlength = \"64MiB\"\noffset = \"1000B\"\n"
            ),
            "8 snapshots.offset",
            "no multiple of 4096",
        ),
        (
            format!(
                "{HEAD}{VOLUME}[snapshots]\norigin = {{ type = \"memory\", size = \"64MiB\" }}\nlength = \"64MiB\"\n"
            ),
            "6 snapshots.origin",
            "do not outlast it",
        ),
        (
            format!(
                "{HEAD}{VOLUME}[history]\npath = \"s.img\"\n[snapshots]\norigin = \"s.img\"\nlength = \"64MiB\"\n"
            ),
            "6 history.path",
            "is where snapshots are kept",
        ),
        (
            format!("{HEAD}{VOLUME}[snapshots]\norigin = \"s.img\"\ndirectory = \".\"\n"),
            "5 snapshots.origin",
            "in one place",
        ),
        (
            format!("{HEAD}{VOLUME}[snapshots]\ndirectory = \".\"\ndatabase = \"s.db\"\n"),
            "5 snapshots.database",
            "in one place",
        ),
        (
            format!("{HEAD}{VOLUME}[history]\npath = \"h.db\"\n[snapshots]\ndatabase = \"h.db\"\n"),
            "8 snapshots.database",
            "is written by something else too",
        ),
        (
            format!("{HEAD}{VOLUME}[control.warmup]\nbytes_per_second_max = \"1 parsec\"\n"),
            "6 control.warmup.bytes_per_second_max",
            "parsec",
        ),
        (
            format!("{HEAD}{VOLUME}[control.warmup]\nscore = \"k-best\"\n"),
            "6 control.warmup.score",
            "`k-best`, expected one of `",
        ),
        (
            format!("{HEAD}{VOLUME}[snapshots]\ndirectory = \".\"\nslot = \"1MiB\"\n"),
            "7 snapshots.slot",
            "in a range",
        ),
        (format!("{HEAD}{VOLUME}[snapshots]\ndirectory = \".\"\nkeep = 0\n"), "7 snapshots.keep", "1 to 500"),
        (
            format!("{HEAD}{VOLUME}minimum = \"4MiB\"\nmaximum = \"1MiB\"\n"),
            "6 volume[0].maximum",
            "below `minimum`",
        ),
        (
            format!("{HEAD}{VOLUME}minimum = \"4MiB\"\nmay_cache = false\n"),
            "6 volume[0].may_cache",
            "beside a `minimum` of 4MiB",
        ),
        (
            format!("{HEAD}{VOLUME}[io]\nengine = \"fast\"\n"),
            "6 io.engine",
            "`auto` or `io_uring` or `threads`",
        ),
        (format!("{HEAD}{VOLUME}on_absent = \"pray\"\n"), "5 volume[0].on_absent", "`fail` or `wait`"),
        ("listen = [\n".to_owned(), "", ""),
    ];
    for (text, place, message) in &cases {
        let found = problems(text, folder.path());
        assert!(
            found.iter().any(|problem| problem.starts_with(place) && problem.contains(message)),
            "expected `{place}: {message}` of\n{text}\nfound {found:#?}"
        );
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let folder = folder();
    let text = "listen = [\"tcp:0.0.0.0:1\"]\nlissten = 3\n[[volume]]\nname = \"a\"\norigin = \"none.img\"\nblock_size = 7\n";
    let found = problems(text, folder.path());
    let lines: Vec<&str> = found.iter().map(|problem| &problem[..2]).collect();
    assert_eq!(lines, ["1 ", "2 ", "5 ", "6 "], "{found:#?}");
    let error = Config::parse("forebay.toml", text, folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(
            "`forebay.toml`, line 2, `lissten`: unknown key `lissten`\n  hint: did you mean `listen`?"
        ),
        "{error}"
    );
}

#[test]
fn a_flash_file_whose_size_is_wrong_is_not_told_to_lack_one() {
    let folder = folder();
    for size in ["x", "3MiB"] {
        let text = format!("{HEAD}{VOLUME}[flash]\npath = \"none\"\nsize = \"{size}\"\n");
        let found = problems(&text, folder.path());
        assert!(found.len() == 1 && found[0].starts_with("7 flash.size"), "{found:#?}");
    }
}

#[test]
fn rules_of_the_controller_that_are_wrong_hide_no_others() {
    let folder = folder();
    let text = format!(
        "{HEAD}{VOLUME}[control]\ninterval = \"1s\"\nspare_share = 2\n[control.feedback]\nlaw = \"x\"\n\
         [control.warmup]\ncache_share_max = 2\nscore = \"best\"\nhit_ratio_min = 7\ninsertion = \"middle\"\n"
    );
    let found = problems(&text, folder.path());
    let places: Vec<&str> = found.iter().filter_map(|problem| Some(problem.split_once(": ")?.0)).collect();
    let expected = [
        "7 control.spare_share",
        "9 control.feedback.law",
        "11 control.warmup.cache_share_max",
        "12 control.warmup.score",
        "13 control.warmup.hit_ratio_min",
        "14 control.warmup.insertion",
    ];
    assert_eq!(places, expected, "{found:#?}");
    for (at, told) in [
        (1, "`x`, expected "),
        (2, "2 is out of range"),
        (3, "`best`, expected "),
        (5, "`middle`, expected "),
    ] {
        assert!(found[at].contains(told), "{}", found[at]);
    }
}

/// One rule for all kinds of place. What is there and is something else is a mistake of the configuration; what is not there may come, and snapshots are hints, which a
/// daemon serves without.
#[test]
fn a_place_for_snapshots_that_is_something_else_is_refused_and_one_that_is_absent_is_told() {
    let folder = folder();
    let path = folder.path().join("forebay.toml");
    let read = |keys: &str| {
        std::fs::write(&path, format!("{HEAD}{VOLUME}[snapshots]\n{keys}\n")).unwrap();
        Config::read(&path)
    };
    let range = "origin = \"b.img\"\nslot = \"16KiB\"\nlength";
    for (keys, expected) in [
        ("directory = \"b.img\"", "line 6, `snapshots.directory`: `"),
        ("origin = \".\"\nlength = \"64MiB\"", "line 6, `snapshots.origin`: origin `"),
        ("database = \"b.img\"", "b.img`: it is no database"),
        ("database = \".\"", "exists and is no file"),
        ("database = \"b.img/s.db\"", "the folder `"),
    ] {
        let error = read(keys).expect_err(keys).to_string();
        assert!(error.contains(expected), "{keys}: {error}");
    }
    let short = format!("{range} = \"40KiB\"\noffset = \"4KiB\"");
    for (keys, expected) in [
        ("directory = \"nowhere\"", "`snapshots.directory`: the folder `"),
        ("database = \"nowhere/s.db\"", "`snapshots.database`: the folder `"),
        ("origin = \"s.img\"\nlength = \"64MiB\"", "`snapshots.origin`: cannot open origin `"),
        (&short, "`snapshots.length`: the range ends at 44KiB, behind the end of `"),
    ] {
        let config = read(keys).unwrap_or_else(|error| panic!("{keys}: {error}"));
        let told = config.cautions(&path);
        assert!(told.len() == 1 && told[0].contains(expected), "{keys}: {told:?}");
        assert!(told[0].contains("until it is there, which is tried again"), "{told:?}");
    }
    assert!(!folder.path().join("nowhere").exists(), "nothing is made");
    std::fs::write(folder.path().join("b.img"), [0; 44 << 10]).unwrap();
    assert_eq!(read(&short).unwrap().cautions(&path), [""; 0]);
    assert_eq!(std::fs::read(folder.path().join("b.img")).unwrap(), [0; 44 << 10], "nothing is written");
}

#[test]
fn what_is_kept_and_not_understood_is_told_with_the_configuration() {
    let folder = folder();
    let path = folder.path().join("forebay.toml");
    let keys = "[leases]\npath = \"leases.json\"\n[routes]\npath = \"routes.json\"\n[succession]\npath = \"succession.json\"\n";
    std::fs::write(&path, format!("{HEAD}{VOLUME}{keys}[http]\nsocket = \"h.sock\"\n")).unwrap();
    let read = || [Config::read(&path), Config::read(&path)];
    for config in read() {
        config.unwrap();
    }
    for (file, text, told) in [
        ("leases.json", "{", "line 6, `leases.path`: the leases in `"),
        ("leases.json", r#"{"schema":"forebay.leases/9","leases":{}}"#, "found layout `forebay.leases/9`"),
        (
            "leases.json",
            "{\n  \"schema\": \"forebay.leases/1\",\n  \"leases\": {},\n  \"checksum\": \"0123456789abcdef\"\n}\n",
            "its checksum is not that of what it says",
        ),
        ("routes.json", "{", "line 8, `routes.path`: where volumes go, in `"),
        ("succession.json", "{", "line 10, `succession.path`: which run this is, in `"),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
        for read in read() {
            let error = read.expect_err(text).to_string();
            assert!(error.contains(told) && error.contains("hint: put back what was kept"), "{error}");
        }
        std::fs::remove_file(folder.path().join(file)).unwrap();
    }
}

#[test]
fn two_read_only_volumes_may_share_a_file() {
    let folder = folder();
    let text = format!(
        "{HEAD}{VOLUME}read_only = true\n[[volume]]\nname = \"b\"\norigin = \"a.img\"\nread_only = true\n"
    );
    assert_eq!(Config::parse("f", &text, folder.path()).unwrap().volumes.len(), 2);
}

#[test]
fn an_origin_is_the_same_volume_wherever_the_daemon_is_started() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let from_here = Path::new(folder.path().file_name().unwrap());
    std::fs::write(from_here.join("a.img"), [0; 8192]).unwrap();
    for origin in ["\"a.img\"", "{ type = \"file\", path = \"a.img\" }"] {
        let text = format!("{HEAD}[[volume]]\nname = \"a\"\norigin = {origin}\n");
        let config = Config::parse("f", &text, from_here).unwrap();
        let OriginConfig::File { path, .. } = &config.volumes[0].origin else { panic!("{config:?}") };
        assert_eq!(*path, std::env::current_dir().unwrap().join(from_here).join("a.img"));
    }
}

#[test]
fn what_is_written_is_what_is_meant() {
    let folder = folder();
    let text = "listen = [\"unix:f.sock\", \"tcp:127.0.0.1:0\"]\n\
        [[volume]]\nname = \"a\"\norigin = \"a.img\"\ncache = \"8KiB\"\nlayers = [{ type = \"delay\", read = \"5ms\" }]\n\
        [[volume]]\nname = \"late\"\norigin = \"late.img\"\non_absent = \"wait\"\n\
        [[volume.objective]]\nlatency = \"3ms\"\nstatistic = \"p95\"\n[[volume.objective]]\niops = 100\n\
        [cache]\nmemory = \"1MiB\"\n[control]\ninterval = \"200ms\"\nretry_after = 7\n[control.feedback]\ngain = 1\n[io]\nengine = \"threads\"\n[http]\nlisten = \"off\"\n";
    let config = Config::parse("f", text, folder.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.volumes[0].cache, CacheConfig::Fixed(Bytes::kib(8)));
    assert!(
        matches!(&config.volumes[0].origin, OriginConfig::File { path, .. } if *path == folder.path().join("a.img"))
    );
    let objectives: Vec<String> = config.volumes[1].objectives.iter().map(ToString::to_string).collect();
    assert_eq!(objectives, ["p95 latency at most 3ms", "at least 100 requests/s"]);
    assert_eq!(config.volumes[1].objectives[0].window, Nanos::millis(200), "the interval unless it is set");
    assert_eq!((config.control.rules.retry_after, config.control.rules.feedback.gain), (7, 1.0));
    assert_eq!((config.http.listen, config.cache_memory), (None, Bytes::mib(1)));
    assert_eq!(config.io, EngineChoice::Threads);
}

#[test]
fn tls_beyond_loopback_asks_clients_for_certificates() {
    let folder = folder();
    let text = "listen = [\"unix:f.sock\", { address = \"tcp:0.0.0.0:0\", tls = \"required\" }, { address = \"unix:g.sock\", tls = \"allowed\" }]\n\
        [[volume]]\nname = \"a\"\norigin = \"a.img\"\n\
        [tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\nclient_authorities = \"a.pem\"\n";
    let absent = Config::parse("f", text, folder.path()).unwrap_err().to_string();
    assert!(
        absent.contains("line 5, `tls`: `") && absent.contains("a.pem` holds no usable certificate"),
        "{absent}"
    );
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates/good");
    for (of, name) in [("server-cert.pem", "c.pem"), ("server-key.pem", "k.pem"), ("ca-cert.pem", "a.pem")] {
        std::fs::copy(good.join(of), folder.path().join(name)).unwrap();
    }
    let config = Config::parse("f", text, folder.path()).unwrap_or_else(|error| panic!("{error}"));
    // Who asks a daemon for its state need not be let in to them.
    let path = folder.path().join("forebay.toml");
    std::fs::write(&path, text.replace("c.pem", "none.pem")).unwrap();
    assert!(Config::read(&path).is_err() && Config::read_alone(&path).is_ok());
    // Those of two servers do not go together.
    std::fs::copy(good.join("client-key.pem"), folder.path().join("k.pem")).unwrap();
    let pair = Config::parse("f", text, folder.path()).unwrap_err().to_string();
    assert!(pair.contains("cannot be used with key"), "{pair}");
    let address = "0.0.0.0:0".parse().unwrap();
    let tcp = ListenerConfig::Tcp { address, allow_remote: true };
    assert_eq!(config.listen[1], ListenerConfig::Tls { listener: Box::new(tcp), required: true });
    assert!(matches!(&config.listen[2], ListenerConfig::Tls { required: false, .. }));
    let files = config.tls.expect("it was read");
    assert_eq!(files.client_authorities, Some(folder.path().join("a.pem")));
}

#[test]
fn the_configuration_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forebay.toml");
    std::fs::write(folder.path().join("a.img"), [0; 4096]).unwrap();
    for more in [
        "[routes]\npath = \"forebay.toml\"",
        "[succession]\npath = \"forebay.toml\"",
        "[flash]\npath = \"./forebay.toml\"",
    ] {
        std::fs::write(&path, format!("{HEAD}{VOLUME}{more}\n")).unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains("forebay.toml` is the configuration itself"), "{error}");
    }
}

#[test]
fn a_key_that_everybody_may_read_is_warned_of_and_what_has_no_end_is_not_read() {
    let folder = folder();
    let path = folder.path().join("forebay.toml");
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates/good");
    let key = folder.path().join("key.pem");
    std::fs::copy(format!("{certificates}/server-key.pem"), &key).unwrap();
    let text = format!(
        "listen = [\"unix:f.sock\"]\ntls = {{ certificate = \"{certificates}/server-cert.pem\", key = \"key.pem\" }}\n\
         [[volume]]\nname = \"a\"\norigin = {{ type = \"memory\", size = \"1MiB\" }}\n"
    );
    std::fs::write(&path, text).unwrap();
    let told = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        Config::read(&path).unwrap().cautions(&path)
    };
    let cautions = told(0o644);
    assert!(
        cautions.len() == 1 && cautions[0].starts_with("`tls.key`: everybody on this machine may read"),
        "{cautions:?}"
    );
    assert!(cautions[0].contains("its mode is 0644, expected 0600 or 0640; chmod o= "), "{cautions:?}");
    assert_eq!((told(0o640), told(0o600)), (Vec::new(), Vec::new()));

    let endless = Path::new("/dev/zero");
    let expected = "cannot read the configuration: it is too long, expected a text of at most 16MiB";
    for error in [Config::read(endless).unwrap_err(), FleetConfig::read(endless).unwrap_err()] {
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_secret_in_an_origin_is_not_for_others() {
    let folder = folder();
    let path = folder.path().join("forebay.toml");
    let text =
        |uri: &str| format!("listen = [\"unix:f.sock\"]\n[[volume]]\nname = \"a\"\norigin = \"{uri}\"\n");
    let read = |uri: &str, mode| {
        std::fs::write(&path, text(uri)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let config = Config::read(&path).map_err(|error| error.to_string())?;
        Ok::<_, String>(config.cautions(&path))
    };
    let none: Result<Vec<String>, String> = Ok(Vec::new());
    // What may be a secret is warned of: a name of somebody else's may look like one.
    let uri = "nbd://h/db.0123456789abcdef";
    let cautions = read(uri, 0o644).unwrap();
    let expected = "`volume[0].origin` is `nbd://h/db.SECRET`, which looks as if it held a secret";
    assert!(cautions.len() == 1 && cautions[0].contains(expected), "{cautions:?}");
    assert!(cautions[0].contains("its mode is 0644, expected 0600; chmod 600 "), "{cautions:?}");
    assert!(!cautions[0].contains("0123456789abcdef"), "{cautions:?}");
    assert_eq!(read(uri, 0o600), none);
    assert_eq!(read("nbd://h/db.img", 0o644), none);
    assert_eq!(read("nbd://alice@h/db", 0o644), none);
    // A password is one.
    let refused = read("nbd://alice:open-sesame@h/db", 0o640).unwrap_err();
    assert!(refused.contains("its mode is 0640, expected 0600"), "{refused}");
    assert!(!refused.contains("open-sesame"), "{refused}");
    assert_eq!(read("nbd://alice:open-sesame@h/db", 0o600), none);
}

#[test]
fn secrets_open_what_is_beyond_loopback_and_stay_secret() {
    let folder = folder();
    let text = |secrets: &str, token: &str| {
        format!(
            "listen = [\"tcp:0.0.0.0:0\"]\nhttp = {{ listen = \"0.0.0.0:0\"{token} }}\n\
             [[volume]]\nname = \"a\"\norigin = \"a.img\"\nsecret = \"0123456789abcdef\"\n\
             [[volume]]\nname = \"b\"\norigin = \"b.img\"\n{secrets}"
        )
    };
    let (secrets, token) = ("secret = \"fedcba9876543210\"\n", ", token = \"a-token_with-20chars\"");
    let config = Config::parse("f", &text(secrets, token), folder.path()).unwrap_or_else(|e| panic!("{e}"));
    let address = "0.0.0.0:0".parse().unwrap();
    assert_eq!(config.listen[0], ListenerConfig::Tcp { address, allow_remote: true });
    assert!(config.http.token.as_ref().is_some_and(|token| token.is("a-token_with-20chars")));
    assert!(!format!("{config:?}").contains("0123456789abcdef"), "secrets are not printed");
    // Who shows the token may change things: no socket is needed for that.
    let changed = "reservations = { path = \"r.json\" }\nleases = { path = \"l.json\" }\n";
    let text_of = |http: &str| changed.to_owned() + &text(secrets, http);
    Config::parse("f", &text_of(token), folder.path()).unwrap_or_else(|e| panic!("{e}"));
    let found =
        problems(&text_of("").replace("{ listen = \"0.0.0.0:0", "{ listen = \"127.0.0.1:0"), folder.path());
    assert!(found.iter().all(|problem| problem.ends_with("found neither")) && found.len() == 2, "{found:?}");
    let found = problems(&text("", token), folder.path());
    assert!(
        found.len() == 1 && found[0].starts_with("1 listen[0]: `0.0.0.0:0` is not loopback"),
        "{found:?}"
    );
    let found = problems(&text(secrets, ""), folder.path());
    assert!(found.len() == 1 && found[0].contains("no `http.token`"), "{found:?}");
    for (value, kind) in [
        ("\"too short\"", "the text"),
        ("1234567890123456", "a number"),
        ("1234567890.123456", "a number"),
        ("true", "a boolean"),
        ("[\"1234567890123456\"]", "an array"),
        ("{ key = \"1234567890123456\" }", "a table or a time"),
        ("1234-05-06", "a table or a time"),
    ] {
        let told = format!("{kind} is no secret: expected 16 to 128 letters, digits, `-` and `_` in quotes");
        let found = problems(&text(&format!("secret = {value}\n"), token), folder.path());
        assert!(found.contains(&format!("10 volume[1].secret: {told}")), "{found:?}");
        assert!(!found.concat().contains("too short") && !found.concat().contains("1234"), "{found:?}");
        let found = problems(&text(secrets, &format!(", token = {value}")), folder.path());
        assert!(found.contains(&format!("2 http.token: {told}")), "{found:?}");
        assert!(!found.concat().contains("too short") && !found.concat().contains("1234"), "{found:?}");
    }
    // A file with secrets is its owner's alone.
    let path = folder.path().join("forebay.toml");
    std::fs::write(&path, text(secrets, token)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = Config::read(&path).unwrap_err().to_string();
    assert!(
        refused.contains("others than its owner may read it: its mode is 0640, expected 0600"),
        "{refused}"
    );
    assert!(refused.contains(&format!("chmod 600 {}", path.display())), "{refused}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Config::read(&path).unwrap_or_else(|error| panic!("{error}"));
}
