//! Every key of the configuration file, once: the reader refuses what is not here, and the reference is made from here.

/// One key of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The kind of table that it stands in; empty for the top of the file.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What its value is, with the unit.
    pub unit: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What is accepted.
    pub range: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

impl Key {
    /// Whether its value is a size.
    pub(super) fn is_size(&self) -> bool {
        self.unit == SIZE
    }
}

const fn key(
    table: &'static str,
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    range: &'static str,
    meaning: &'static str,
) -> Key {
    Key { table, name, unit, default, range, meaning }
}

/// The kinds of tables, in the order of the reference: how the kind is called here, how it is written, what it is.
pub const TABLES: &[(&str, &str, &str)] = &[
    ("", "Top of the file", "Where to listen."),
    (
        "listen",
        "listen = [{ address = \"...\" }]",
        "An address with its rules; a text alone is short for `{ address = \"TEXT\" }`.",
    ),
    ("tls", "[tls]", "What NBD clients that ask for TLS are shown, and whom it lets in."),
    ("volume", "[[volume]]", "A block device that clients use; at least one."),
    (
        "objective",
        "[volume.objective], [[volume.objective]] or [[objective]]",
        "What a volume was promised. Exactly one of `latency`, `iops` and `bandwidth_per_second`. A request that fails is not served, however fast.",
    ),
    ("origin file", "origin = { type = \"file\" }", "A regular file; `origin = \"/path\"` is short for it."),
    ("origin block-device", "origin = { type = \"block-device\" }", "A block device."),
    ("origin nbd", "origin = { type = \"nbd\" }", "An export of another NBD server."),
    (
        "origin disk-group",
        "origin = { type = \"disk-group\" }",
        "A place on an emulated disk group. Exactly one of `path` and `memory`.",
    ),
    (
        "origin memory",
        "origin = { type = \"memory\" }",
        "Zeroes in memory, lost at the end. For trying things out.",
    ),
    ("layer delay", "layers = [{ type = \"delay\" }]", "Holds requests to the origin back."),
    ("layer error", "layers = [{ type = \"error\" }]", "Fails requests in place of the origin."),
    ("layer rate", "layers = [{ type = \"rate\" }]", "Lets no more through to the origin."),
    ("layer log", "layers = [{ type = \"log\" }]", "Notes each request to the origin."),
    ("disk_group", "[[disk_group]]", "Emulated disks that volumes share, in real time."),
    (
        "disk_group.buffer",
        "buffer = { ... } in a disk group",
        "Every disk's on-board cache with its read-ahead; `{}` is a typical one. Writes go to the media.",
    ),
    (
        "disk_group.array",
        "array = { ... } in a disk group",
        "An array's cache in front of the disks, which all volumes of the group share; it keeps its content without power.",
    ),
    ("cache", "[cache]", "What the caches of all volumes may take together."),
    (
        "flash",
        "[flash]",
        "A second tier of cache, below the memory: a file or a block device for blocks that memory has no room for.",
    ),
    ("observe", "[observe]", "How the locality of reads is observed."),
    ("io", "[io]", "How files are read and written: origins of type `file`, and flash."),
    ("http", "[http]", "Metrics and state for people and programs of this machine."),
    ("history", "[history]", "What is kept across restarts, in SQLite."),
    (
        "snapshots",
        "[snapshots]",
        "Which blocks the caches hold, kept so that whoever serves the volumes next, on this host or another, loads them before they are asked for.",
    ),
    (
        "reservations",
        "[reservations]",
        "Promises for a while, made with `forebay reserve` while the daemon runs. Needs `http.socket` or `http.token`. One that stands while the wall clock is set keeps the time that is left of it; one that is to come begins at its time of day.",
    ),
    (
        "leases",
        "[leases]",
        "Who is let in to a volume, by the entrance that clients name with the export: `NAME@EPOCH`, or `NAME` alone for the original route. Raised with `forebay lease`. Needs `http.socket` or `http.token`.",
    ),
    ("routes", "[routes]", "Where volumes are sent with `forebay route` while they serve."),
    (
        "succession",
        "[succession]",
        "Which client this daemon is to the Forebays that its volumes have their origins at, and in which run. With it, what a run that was killed had sent there is over, or never taken, before the next run writes; without, it may come over what that one has written. For proxies and for daemons of clients; both sides have to be of a version that knows of it.",
    ),
    ("limits", "[limits]", "Maxima of the data path."),
    ("control", "[control]", "The controller."),
    ("control.conformance", "[control.conformance]", "When a window says something."),
    ("control.violation", "[control.violation]", "When non-conformance is sustained."),
    ("control.interference", "[control.interference]", "When a neighbour interferes."),
    ("control.cacheability", "[control.cacheability]", "When a cache can help."),
    ("control.feedback", "[control.feedback]", "How a size is corrected."),
    ("control.warmup", "[control.warmup]", "What is loaded beforehand."),
    ("control.removal", "[control.removal]", "When a cache is taken back."),
    ("control.foresight", "[control.foresight]", "What is granted before it is needed."),
];

/// The keys of a kind of table.
pub fn keys_of(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

const SIZE: &str = "size with unit";
const SPAN: &str = "span of time with unit";

/// All keys, by table.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("", "listen", "array of addresses or tables", "required", "`unix:PATH` or `tcp:ADDRESS:PORT`", "Where NBD clients connect. Port 0 takes a free one. Beyond loopback only with `tls = \"required\"` and `tls.client_authorities`, or with a `secret` for every volume."),
    key("", "tls", "table", "none", "", "See below."),
    key("", "volume", "array of tables", "required", "1 to 4096", "The volumes."),
    key("", "objective", "array of tables", "none", "", "Objectives written apart from their volumes."),
    key("", "disk_group", "array of tables", "none", "", "Emulated disk groups."),
    key("", "cache", "table", "", "", "See below."),
    key("", "flash", "table", "none: memory only", "", "See below."),
    key("", "observe", "table", "", "", "See below."),
    key("", "io", "table", "", "", "See below."),
    key("", "http", "table", "", "", "See below."),
    key("", "history", "table", "", "", "See below."),
    key("", "snapshots", "table", "none: caches begin empty", "", "See below."),
    key("", "leases", "table", "none: everybody is let in", "", "See below."),
    key("", "routes", "table", "none: after a restart volumes go to their origins, and wait where a lease gives those to others", "", "See below."),
    key("", "succession", "table", "none: after a restart it is another client", "", "See below."),
    key("", "reservations", "table", "none: they end with the daemon", "", "See below."),
    key("", "limits", "table", "", "", "See below."),
    key("", "control", "table", "", "", "See below."),

    key("listen", "address", "text", "required", "`unix:PATH` or `tcp:ADDRESS:PORT`", "Where."),
    key("listen", "tls", "text", "`\"off\"`", "`off`, `allowed` or `required`", "Whether clients may, or must, ask for TLS (STARTTLS) before anything else is answered."),

    key("tls", "certificate", "path", "required", "PEM", "The server's certificate, what lies between it and its authority behind it. TLS 1.3 only."),
    key("tls", "key", "path", "required", "PEM", "The key of the certificate."),
    key("tls", "client_authorities", "path", "none: clients show no certificate", "PEM", "Clients are let in with a certificate from one of these authorities only."),

    key("volume", "name", "text", "required", "1 to 255 bytes, no control characters, unique", "The NBD export's name."),
    key("volume", "origin", "path or table", "required", "", "Where the data lives. A file that names a password (`nbd://USER:PASSWORD@...`) must be its owner's alone (`chmod 600`); of an export that looks like `NAME.SECRET` in a file that others may read a warning is said."),
    key("volume", "layers", "array of tables", "none", "at most 16", "What is stacked on the origin, the lowest first."),
    key("volume", "read_only", "boolean", "`false`", "", "Refuse every change."),
    key("volume", "block_size", SIZE, "`\"4KiB\"`", "power of two, 512 B to 64 KiB", "The unit of caching."),
    key("volume", "cache", SIZE, "controlled", "0 to `cache.memory`", "A fixed quota that the controller never changes; `\"0\"`: never cached."),
    key("volume", "may_cache", "boolean", "`true`", "", "Whether the controller may put a cache in front of it; `false` not beside a `minimum` above 0."),
    key("volume", "minimum", SIZE, "`\"0\"`", "0 to `cache.memory`", "Cache that the controller always leaves it."),
    key("volume", "maximum", SIZE, "the volume's size", "`minimum` to `cache.memory`", "Cache that the controller never exceeds."),
    key("volume", "flash", SIZE, "`\"0\"`", "0, or 2 MiB to `flash.size`; of several volumes together what that leaves for blocks", "What it may hold on flash, in whole MiB; needs `[flash]`, and blocks of at least 4 KiB. Some 2 MiB of the device tell of volumes."),
    key("volume", "flash_admission", "text", "`flash.admission`", "as there", "Who is let onto it."),
    key("volume", "sole_writer", "boolean", "`false`", "", "You vouch that nobody but this daemon writes to the origin, also while the daemon is stopped: flash may keep blocks of a block device or an NBD export between starts that serve it by the same name and the same way, as long as its size stays. A start without `[flash]`, or with another device in it, counts as somebody else: clear the device's first 4 KiB after one. Files need no word until the system is started anew: their times tell. Over a start of the system they are proof only with it, since a loss of power may take the times of a change and leave the change."),
    key("volume", "on_absent", "text", "`\"fail\"`", "`fail` or `wait`", "An origin that is absent at the start: do not start, or serve the other volumes and export this one once it is there. One that a lease gives to others is waited for in any case."),
    key("volume", "secret", "text", "none", "16 to 128 letters, digits, `-` and `_`", "Clients must name the export `NAME.SECRET`; the volume is not listed. Without TLS whoever reads the wire learns it. A file with secrets must be its owner's alone (`chmod 600`)."),
    key("volume", "objective", "table or array of tables", "none", "at most 16", "What the volume was promised."),

    key("objective", "volume", "text", "the table's volume", "a volume's name", "Only, and always, in `[[objective]]`."),
    key("objective", "latency", SPAN, "", "above 0, at most `1h`; less than `100s` of a percentile", "The latency must not exceed this."),
    key("objective", "statistic", "text", "`\"mean\"`", "`mean` or a percentile as in `p95`, above 0 and at most 100", "Which number of a window is compared with `latency`."),
    key("objective", "iops", "requests/s", "", "above 0, at most 1e9", "This rate must be reached whenever the workload asks for it."),
    key("objective", "bandwidth_per_second", SIZE, "", "above 0", "Bytes per second that must be reached whenever the workload asks for them."),
    key("objective", "operations", "text", "`\"all\"`", "`reads`, `writes` or `all`", "Which requests count."),
    key("objective", "window", SPAN, "`control.interval`", "`100ms` to `1d`", "The span over which the number is taken; rounded up to whole control intervals."),
    key("objective", "conforming_share", "ratio", "`0.95`", "above 0, at most 1", "Which share of the windows must conform."),
    key("objective", "weight", "number", "`1`", "above 0, at most 1e6", "How much a violation weighs against that of another volume."),
    key("objective", "priority", "number", "`0`", "0 to 255", "Objectives of a higher priority are served first."),

    key("origin file", "type", "text", "required", "`file`", ""),
    key("origin file", "path", "path", "required", "", "Relative to the folder of the configuration. Locked while served."),
    key("origin file", "workers", "threads", "`8`", "1 to 256", "Threads that make the blocking calls."),

    key("origin block-device", "type", "text", "required", "`block-device`", ""),
    key("origin block-device", "path", "path", "required", "", "Locked while served."),
    key("origin block-device", "workers", "threads", "`8`", "1 to 256", "Threads that make the blocking calls."),

    key("origin nbd", "type", "text", "required", "`nbd`", ""),
    key("origin nbd", "uri", "NBD URI", "required", "`nbd://`, `nbd+unix://`, `nbds://` or `nbds+unix://`", "Server and export; `nbds`: over TLS 1.3."),
    key("origin nbd", "authorities", "path", "none", "PEM; needed for `nbds` without `tls-verify-peer=false`", "The server's certificate must come from one of these authorities and be for the URI's host (`tls-hostname`; `localhost` for a unix socket)."),
    key("origin nbd", "certificate", "path", "none", "PEM, with `key`", "What is shown to a server that asks for a certificate."),
    key("origin nbd", "key", "path", "none", "PEM, with `certificate`", "The key of the certificate."),
    key("origin nbd", "connections", "connections", "`4`", "1 to 16", "Connections; one where the server does not allow more."),
    key("origin nbd", "connect_timeout", SPAN, "`\"5s\"`", "`1ms` to `1h`", "For connecting, and again for the handshake."),
    key("origin nbd", "request_timeout", SPAN, "`\"30s\"`", "`1ms` to `1h`", "A request without an answer for so long means that the connection is lost."),
    key("origin nbd", "wait_for_origin", SPAN, "`\"30s\"`", "0 to `1d`", "How long a request that can wait for a new connection does so before its client gets the error."),
    key("origin nbd", "fences_on_disconnect", "boolean", "`false`", "", "The server finishes or drops all of a lost connection before it accepts another. Say so only if you know. Not believed of another server to which the volume is sent (`forebay route`): an appliance does not."),
    key("origin nbd", "keeps_acknowledged_writes", "boolean", "`false`", "", "Acknowledged writes survive whatever interrupts a connection, so that the next flush need not fail."),

    key("origin disk-group", "type", "text", "required", "`disk-group`", ""),
    key("origin disk-group", "group", "text", "required", "a disk group's name", "Which group."),
    key("origin disk-group", "path", "path", "", "", "The file that holds the bytes."),
    key("origin disk-group", "memory", SIZE, "", "above 0", "The size of a volume whose bytes are held in memory, and lost at the end."),
    key("origin disk-group", "offset", SIZE, "behind the volume before", "inside the group", "Where the volume begins in the group."),

    key("origin memory", "type", "text", "required", "`memory`", ""),
    key("origin memory", "size", SIZE, "required", "above 0", "The volume's size."),

    key("layer delay", "type", "text", "required", "`delay`", ""),
    key("layer delay", "read", SPAN, "`\"0s\"`", "0 to `1h`", "For reads."),
    key("layer delay", "write", SPAN, "`\"0s\"`", "0 to `1h`", "For writes, trims and zeroes."),
    key("layer delay", "flush", SPAN, "`\"0s\"`", "0 to `1h`", "For flushes."),
    key("layer delay", "jitter", SPAN, "`\"0s\"`", "0 to `1h`", "Each delayed request gets up to this much more, at random."),
    key("layer delay", "seed", "number", "`0`", "", "Seeds the jitter."),

    key("layer error", "type", "text", "required", "`error`", ""),
    key("layer error", "probability", "ratio", "`1`", "0 to 1", "The share of the matching requests that fail."),
    key("layer error", "errno", "errno", "`5` (EIO)", "1 to 4095", "What they are answered with."),
    key("layer error", "reads", "boolean", "`true`", "", "Reads match."),
    key("layer error", "writes", "boolean", "`true`", "", "Writes, trims and zeroes match."),
    key("layer error", "flushes", "boolean", "`false`", "", "Flushes match."),
    key("layer error", "seed", "number", "`0`", "", "Seeds the choice."),

    key("layer rate", "type", "text", "required", "`rate`", ""),
    key("layer rate", "requests_per_second", "requests/s", "no limit", "above 0, at most 1e9", "Requests; flushes count."),
    key("layer rate", "bytes_per_second", SIZE, "no limit", "above 0", "Bytes read and written per second."),
    key("layer rate", "burst", SPAN, "`\"100ms\"`", "0 to `1h`", "How much unused allowance is kept, as the time in which it collects."),

    key("layer log", "type", "text", "required", "`log`", ""),
    key("layer log", "file", "path", "none", "not there, empty, or such a log", "Where the lines go. It is made anew; what holds anything else is refused."),
    key("layer log", "trace", "boolean", "`false`", "", "Also as debug events of the daemon's own log."),

    key("disk_group", "name", "text", "required", "unique", "How volumes refer to it."),
    key("disk_group", "spindles", "disks", "`4`", "1 to 1024", "Disks, all alike."),
    key("disk_group", "disk", "text", "`\"7200rpm\"`", "`7200rpm`, `15000rpm` or `fixed`", "Seek, turn and transfer of a typical disk; `fixed`: each request takes `service`."),
    key("disk_group", "disk_capacity", SIZE, "`\"64GiB\"`", "`1MiB` to `64TiB`", "Of one disk: seeks are over shares of it."),
    key("disk_group", "service", SPAN, "", "above 0, at most `10s`", "Service time of each request; only, and always, with `fixed`."),
    key("disk_group", "seek_average", SPAN, "of the disk", "0 to `1s`", "Seek over a third of the disk; the other seeks are scaled with it."),
    key("disk_group", "rotation", SPAN, "of the disk", "0 to `1s`", "One turn; 0: no rotational latency."),
    key("disk_group", "transfer_per_second", SIZE, "of the disk", "`64KiB` and more", "A constant media rate per disk in place of zones."),
    key("disk_group", "stripe_unit", SIZE, "`\"64KiB\"`", "512 B to 1 GiB", "Consecutive bytes on one disk."),
    key("disk_group", "raid", "text", "`\"0\"`", "`0`, `1`, `4` or `5`", "Stripes; pairs of copies (an even number of disks); parity on the last disk, or parity that goes round (3 disks and more). A small write takes one request, two, or four (three where three disks have parity)."),
    key("disk_group", "buffer", "table", "none", "", "See below."),
    key("disk_group", "array", "table", "none: the disks alone", "", "See below."),
    key("disk_group", "discipline", "text", "`\"fifo\"`", "`fifo`, `c-look` or `shortest-positioning`", "Which waiting request a disk serves next."),
    key("disk_group", "queue_depth", "requests", "`32`", "1 to 65536", "How many waiting requests a disk may choose among."),
    key("disk_group", "outstanding_max", "requests", "`4096`", "1 to 1048576", "Requests in the group; above it they fail with EBUSY."),

    key("disk_group.buffer", "segments", "streams", "`32`", "1 to 256", "Streams that are told apart."),
    key("disk_group.buffer", "segment", SIZE, "`\"2MiB\"`", "512 B to 1 GiB", "Bytes of each."),
    key("disk_group.buffer", "read_ahead", SIZE, "`\"1MiB\"`", "0 to `segment`", "What an idle disk reads on."),
    key("disk_group.buffer", "interface_per_second", SIZE, "`\"550MB\"`", "`64KiB` and more", "Rate from the buffer."),

    key("disk_group.array", "cache", SIZE, "required", "`256KiB` to `1TiB`, at least 16 pages", "All of it, for reads and writes."),
    key("disk_group.array", "page", SIZE, "`\"16KiB\"`", "512 B to 1 MiB", "The unit of caching."),
    key("disk_group.array", "latency", SPAN, "`\"200us\"`", "0 to `1s`", "Every request's time in the controller."),
    key("disk_group.array", "dirty_share_max", "ratio", "`0.5`", "0 to 0.9 in steps of 0.01", "Above it writes wait; 0: they go through to the disks."),
    key("disk_group.array", "flush_share", "ratio", "`0.1`", "0 to 0.9 in steps of 0.01", "Above it dirty pages are destaged at once, the oldest first."),
    key("disk_group.array", "flush_after", SPAN, "`\"5s\"`", "0 to `1h`", "Or when they have been dirty for so long."),
    key("disk_group.array", "flush_outstanding_max", "requests", "`32`", "1 to 65536", "Writes to the disks that destaging keeps outstanding."),

    key("cache", "memory", SIZE, "a quarter of the machine's memory", "0 to nine tenths of the machine's memory", "All fixed quotas, and what the controller may grant."),

    key("flash", "path", "path", "required", "a file, made if it is not there, or a block device", "Where. Locked while the daemon runs. What is there and is not Forebay's is not overwritten: a device has to be empty (`blkdiscard -z`), or ours."),
    key("flash", "size", SIZE, "all of it", "at least `4MiB`", "Needed where the file is not there. A file that is there has to have this size: remove it to have it made anew. Of a device no more is used; its blocks are dropped when that changes."),
    key("flash", "admission", "text", "`\"evicted\"`", "`evicted`, `adaptive`, `threshold-N` with N from 1 to 512, `demand`, `larc` or `lru`", "Who is let onto it: whatever memory evicts, or chunks that were read often enough of late; the others are for comparison. May be changed while it serves (`forebay place`)."),
    key("flash", "chunk", SIZE, "`\"64KiB\"`", "power of two, `4KiB` to `16MiB`", "The unit in which reads are counted and content is moved; a block if that is larger. No more than a volume's `flash`. Without effect on `evicted`."),
    key("flash", "migration_bytes_per_second_max", SIZE, "`\"64MiB\"`", "at least `64KiB`", "What each volume's migrations may read of its origin per second; less where its clients feel them. Without effect on `evicted`, and on `demand`, `larc` and `lru`, which move what is read at once."),
    key("flash", "leave_out", "text or array", "`[]`", "IP addresses, and `uid:N` for who comes over a unix socket as user N; at most 256", "Clients whose requests bring nothing onto it, such as those of a backup; they are answered from it, and what they alone read of it does not enter memory. May be changed while it serves (`forebay place`). Without effect on `evicted`."),
    key("flash", "exclusive", "boolean", "`true`", "", "Reads that the origin answers within a millisecond, by the time since the last one, count less: its own cache has them. Without effect on `evicted`."),

    key("observe", "enabled", "boolean", "`true`", "", "Without it there is no curve, and the controller grants nothing."),
    key("observe", "curve_memory", SIZE, "`\"128KiB\"`", "`16KiB` to `16MiB`", "Per volume: more is more accurate."),
    key("observe", "epoch", SPAN, "`\"15m\"`", "`1s` to `7d`", "A curve stands for the last one to two of these."),
    key("observe", "window", SPAN, "`\"60s\"`", "`100ms` to `1d`", "Of the working set size and of hot zones."),
    key("observe", "zone_size", SIZE, "`\"1MiB\"`", "power of two, `64KiB` to `1GiB`", "The unit in which heat is tracked."),

    key("io", "engine", "text", "`\"auto\"`", "`auto`, `io_uring` or `threads`", "io_uring saves changes of threads; `auto` takes threads where the kernel refuses it, and says why; with `io_uring` the daemon does not start then."),

    key("http", "listen", "text", "`\"127.0.0.1:9809\"`", "loopback address and port, with `token` any address, or `off`", "`/metrics` and `/api/v1`. Port 0 takes a free one."),
    key("http", "socket", "path", "none", "", "The same on a unix socket, for its owner alone; here, and over TCP with `token`, things can be changed as well."),
    key("http", "token", "text", "none", "16 to 128 letters, digits, `-` and `_`", "Over TCP only who shows it (`Authorization: Bearer TOKEN`) is answered, and may change what the unix socket may. Without it anybody is answered, on loopback only, and nothing can be changed."),

    key("history", "path", "path", "none: nothing is kept", "a local file system", "The database; made if it is not there. One daemon's alone: of two, each writes over what the other remembers of peaks (`PATH.past`), and what they decide of volumes of one name is told as if of one. A `PATH.past` that a start cannot recall becomes `PATH.past.bad`, in the place of an earlier one: mended, or a copy of before, it is recalled by the next start from its old place."),
    key("history", "retention", SPAN, "`\"7d\"`", "`1m` to `3650d`", "Older intervals and decisions are deleted."),
    key("history", "rows_max", "rows", "`2000000`", "1000 to 1000000000", "Intervals kept at most, whatever their age: some 250 bytes each; and decisions as many."),

    key("snapshots", "directory", "path", "this, `origin` or `database` is required", "a folder, which hosts may share", "Where they are, some bytes per cached block at most. A host finds those of another if both name volume and origin alike."),
    key("snapshots", "origin", "path, NBD URI or table", "or this", "a file, a block device or an export that no volume serves", "Where they are, in a range that is reserved for them and was zeros when it was: what is neither zero nor theirs is left as it is. Written as a volume's `origin`."),
    key("snapshots", "database", "path", "or this", "a file system that keeps locks, also between hosts that share it", "Where they are, in an SQLite database of their own; made with the first snapshot."),
    key("snapshots", "offset", SIZE, "`\"0B\"`", "a multiple of 4 KiB", "Where the range begins. With `origin`."),
    key("snapshots", "length", SIZE, "required with `origin`", "a multiple of 4 KiB", "Bytes of the range: a slot for each volume at least, `keep` for each if all are to be kept."),
    key("snapshots", "slot", SIZE, "`\"8MiB\"`", "at least 16 KiB, a multiple of 4 KiB; 2 to 1024 in `length`, each with 4 KiB", "Bytes of a slot, which holds one snapshot: some two bytes per cached block. Hosts that share a range name the same."),
    key("snapshots", "every", SPAN, "`\"1m\"`", "`100ms` to `1d`", "A volume's next one is taken so long after its last, if it was used; also while its cache is being loaded: what is yet to come counts as what was loaded, as far as there is room for it."),
    key("snapshots", "every_requests", "requests", "`100000`", "at least 1", "Or after so many requests, whatever is first; and once more at the end, for which the daemon waits up to 3 s per answer of the place, and 10 s in all: then it ends without, and the log says so."),
    key("snapshots", "keep", "snapshots", "`24`", "1 to 500", "So many are kept of each volume; in a range two at least."),
    key("snapshots", "expire", SPAN, "`\"7d\"`", "`1m` to `3650d`", "Older ones, by what they say themselves of when they were taken, are not read, and are deleted with the next one. Where a directory is full, the oldest go for a new one, but never the only one."),

    key("reservations", "path", "path", "required", "a local file system", "The file in which they outlast a restart; made with the first. One daemon has it at a time, by a lock on `PATH.lock`. One that is not understood is left as it is, and none can be made."),

    key("leases", "path", "path", "required", "a local file system", "The file that keeps them; made at the first start. One daemon has it at a time, by a lock on `PATH.lock`. One that is not understood keeps the daemon from starting: it would let in whom somebody was promised to be rid of. Where it is gone, or put back from before, that is so until a controller that raised them raises them again, within an interval or two."),

    key("routes", "path", "path", "required", "a local file system", "The file that keeps it over a restart; made with the first change. One daemon has it at a time, by a lock on `PATH.lock`. One that is not understood keeps the daemon from starting."),

    key("succession", "path", "path", "required", "a local file system", "The file that keeps it; made at the first start, and written at each. One daemon has it at a time, by a lock on `PATH.lock`. One that is not understood, or cannot be written, keeps the daemon from starting. It is no other daemon's: two that are the same client keep each other out of a volume that both use. A copy of the whole machine is known by `/etc/machine-id`, and is another client. Read-only volumes take no part."),

    key("limits", "workers", "threads", "`0`: one per core, at most 4", "0 to 64", "Threads that serve volumes."),
    key("limits", "connections", "connections", "`4096`", "1 to 65536", "Clients at once; more are refused. Half of them are kept for all volumes in equal shares, as far as a volume has not used its own, so that the clients of one keep those of no other out. Each takes an open file (three over TLS), of which the daemon takes as many as the system allows (`ulimit -Hn`, systemd's `LimitNOFILE`); where that is too few, fewer clients are let in, and a start says so."),
    key("limits", "requests_per_connection", "requests", "`256`", "1 to 65536", "In flight per connection; above it, its client is not read: what it sent waits in its socket, outside of all latencies and unseen by objectives, which begin when a request was read."),
    key("limits", "output_per_connection", SIZE, "`\"256KiB\"`", "`64KiB` to `1GiB`", "Replies that a client has not taken; above it, it is not read, and what it sent waits likewise."),
    key("limits", "held_per_worker", SIZE, "`\"1GiB\"`", "`64MiB` to the machine's memory", "Data of requests and replies of all clients of a worker."),
    key("limits", "stalled_client", SPAN, "`\"30s\"`", "`1s` to `1d`", "Who takes nothing of its replies for so long is disconnected while memory is short."),
    key("limits", "requests_per_volume", "requests", "`4096`", "1 to 65536", "In flight per volume; above it, its clients are not read."),
    key("limits", "origin_requests_per_volume", "requests", "`256`", "1 to 65536", "Outstanding at an origin."),
    key("limits", "drain", SPAN, "`\"30s\"`", "0 to `1h`", "How long what is in flight may take at the end."),

    key("control", "enabled", "boolean", "`true`", "", "Whether caches are granted and taken back. Observation goes on without. `forebay pause` and `forebay resume` switch it while the daemon runs."),
    key("control", "interval", SPAN, "`\"10s\"`", "`100ms` to `1h`", "How often volumes are observed and decisions made."),
    key("control", "sizing_margin", "ratio", "`0.1`", "0 to below 1", "Sizes are chosen so that the prediction stays so far below the bound."),
    key("control", "chunk_bytes", SIZE, "`\"4KiB\"`", "at least `4KiB`", "Caches are sized in multiples of this. A number is of bytes."),
    key("control", "history_intervals", "intervals", "`64`", "8 to 1024", "Intervals that are kept of every volume."),
    key("control", "recent_intervals", "intervals", "`5`", "1 to `history_intervals`", "Intervals that the model is calibrated on."),
    key("control", "analyses_max", "analyses", "`8`", "at least 1", "Violations analysed in one step; the others wait for the next."),
    key("control", "neighbours_max", "volumes", "`8`", "at least 1", "Neighbours considered for a cache in one analysis."),
    key("control", "retry_after", "intervals", "`10`", "at least 1", "Before the same violation is analysed again."),
    key("control", "spare_share", "share", "`1`", "0 to 1", "Of the memory that no cache wants, the part that goes to volumes which are violated and which nothing is known to mend."),
    key("control", "hit_latency_ns", "nanoseconds", "`150000`", "above 0", "Latency of a hit before one was measured."),
    key("control", "servers_assumed", "servers", "`8`", "at least 1", "Of an origin that is neither known nor fitted."),
    key("control", "conformance", "table", "", "", "See below."),
    key("control", "violation", "table", "", "", "See below."),
    key("control", "interference", "table", "", "", "See below."),
    key("control", "cacheability", "table", "", "", "See below."),
    key("control", "feedback", "table", "", "", "See below."),
    key("control", "warmup", "table", "", "", "See below."),
    key("control", "removal", "table", "", "", "See below."),
    key("control", "foresight", "table", "", "", "See below."),

    key("control.conformance", "requests_min", "requests", "`10`", "at least 1", "Fewer completed requests in a window say nothing about latency."),
    key("control.conformance", "backlog_idle_share_max", "ratio", "`0.05`", "0 to 1", "A workload without a request outstanding for at most this share of the time is backlogged, if it also keeps `backlog_depth_min`."),
    key("control.conformance", "backlog_depth_min", "ratio", "`0.5`", "0 to 1", "It has on average at least this share of its most outstanding requests outstanding."),
    key("control.conformance", "backlog_share_min", "ratio", "`0.05`", "0 to 1", "A floor under reads, or under writes, is missed by a backlogged workload only if they are at least this share of its requests, or of the time that it waits."),
    key("control.violation", "windows", "windows", "`5`", "1 to 64", "How many of the last windows are looked at."),
    key("control.violation", "nonconforming", "windows", "`3`", "1 to `windows`", "How many of them must be nonconforming. Of what no cache serves it is also a violation when, of its last 64 windows, at least twice as many miss, and more than the share of its objective allows by chance."),
    key("control.interference", "history_min", "intervals", "`12`", "at least 4", "History below which nothing is said."),
    key("control.interference", "lag_max", "intervals", "`1`", "0 to 8", "By which the victim may lag behind."),
    key("control.interference", "score_min", "ratio", "`0.2`", "0 to 1", "The least score."),
    key("control.interference", "significance_min", "number", "`3.3`", "above 0", "The least score of a neighbour on the same origin, in units of one over the root of the intervals that differ: what lasts counts once."),
    key("control.interference", "significance_together", "number", "`3`", "above 0", "The same where it is not known that they share an origin, but both latencies go together."),
    key("control.interference", "significance_alone", "number", "`5`", "above 0", "The same where nothing else speaks for it."),
    key("control.interference", "variation_min", "ratio", "`0.02`", "0 to 1", "A load whose standard deviation is a smaller share of its mean does not vary."),
    key("control.cacheability", "read_share_min", "ratio", "`0.2`", "0 to 1", "Least share of reads."),
    key("control.cacheability", "floor_max", "ratio", "`0.8`", "0 to 1", "Largest miss ratio that the largest size which it may have leaves."),
    key("control.cacheability", "invalidation_share_max", "number", "`0.8`", "above 0", "Largest number of cached blocks made invalid per block filled."),
    key("control.cacheability", "sequential_share_max", "ratio", "`0.9`", "0 to 1", "Largest share of sequential reads."),
    key("control.cacheability", "curve_accesses_min", "reads", "`200`", "at least 0", "Behind the curve, for it to be believed."),
    key("control.feedback", "law", "text", "`\"model\"`", "`\"model\"` or `\"plain\"`", "Sizes as the model finds sufficient, corrected by what is observed; or by the error alone."),
    key("control.feedback", "percentile", "per cent", "`75`", "above 0, at most 100", "Which percentile of the interval errors is corrected."),
    key("control.feedback", "grow_after", "intervals", "`3`", "at least 1", "Needed before growing."),
    key("control.feedback", "shrink_after", "intervals", "`6`", "at least `grow_after`", "Needed before shrinking."),
    key("control.feedback", "gain", "number", "`0.5`", "above 0", "Growth per error, as a share of the size."),
    key("control.feedback", "growth_max", "number", "`0.5`", "above 0", "Largest growth in one step, as a share of the size."),
    key("control.feedback", "shrink_max", "ratio", "`0.25`", "above 0, below 1", "Largest shrinkage in one step."),
    key("control.feedback", "dead_band", "ratio", "`0.15`", "0 to below 1", "Slack below the objective that is left alone."),
    key("control.feedback", "guard_max", "intervals", "`15`", "at least 1", "Longest guard after growing."),
    key("control.feedback", "model_first_share", "ratio", "`0.9`", "above 0, at most 1", "Law `model`: the first size, as a share of what the model finds sufficient: that is approached from below."),
    key("control.feedback", "model_growth_max", "number", "`1`", "above 0", "Law `model`: largest growth in one step, as a share of the size, where a flood or enough windows ask for it."),
    key("control.feedback", "model_shrink_max", "ratio", "`0.3`", "above 0, below 1", "Law `model`: largest shrinkage in one step."),
    key("control.feedback", "model_dead_band", "ratio", "`0.01`", "0 to below 1", "Law `model`: a size is left alone where less than this share of it could go."),
    key("control.warmup", "zone_share_min", "ratio", "`0.001`", "0 to 1", "Least share of the accesses of a zone that is loaded."),
    key("control.warmup", "overlap_min", "ratio", "`0.5`", "0 to 1", "Least overlap of the hot zones of now and before."),
    key("control.warmup", "dense_min", "ratio", "`0.6666666666666666`", "0 to 1", "Least part of what a cache of as many blocks would answer that zones which are loaded whole must answer."),
    key("control.warmup", "accesses_min", "accesses", "`500`", "at least 0", "Behind the zones, for anything to be loaded."),
    key("control.warmup", "bytes_per_second_max", SIZE, "`\"64MiB\"`", "at least 1 byte", "Largest rate of each volume's loading, in bytes per second. A number is of bytes."),
    key("control.warmup", "idle_share", "ratio", "`0.5`", "0 to 1", "Share of the origin's idle time that loading hot zones begins with."),
    key("control.warmup", "cache_share_max", "ratio", "`1`", "0 to 1", "Largest share of a cache that is loaded from snapshots."),
    key("control.warmup", "hit_ratio_min", "ratio", "`0.05`", "0 to 1", "Least hit ratio, before its snapshots, of a cache that is loaded from them."),
    key("control.warmup", "score", "text", "`\"used-again\"`", "`used-again`, `k-recent`, `k-frequent`, `k-frerecent-linear`, `k-frerecent-quadratic`, `frequency-per-byte`, `decayed-frequency`", "By which score the blocks of snapshots are loaded, the best first; of equal ones those that lie first in the volume. `used-again`: how many snapshots have it, twice where it had been used again, six snapshots counting half. Or the number of the last snapshot that has it; how many have it; the sum of the numbers of those, or of their squares; how many have it, over its bytes (all blocks of a volume have the same); how many have it, six counting half."),
    key("control.warmup", "insertion", "text", "`\"tail\"`", "`tail`, `head`, `own-partition`", "Where loaded blocks enter: as the next victims, the best the last of them; as the most recently used; or in a partition of their own, as large as what is loaded, which misses cannot take: the pools keep the rest, the single-touch pool's share at least, and a block that is used takes its room to them. What is left of it is given up when the volume is loaded anew."),
    key("control.warmup", "spared_min", "ratio", "`0.01`", "0 to 1", "Least share of the look-ups of five minutes whose misses loading from snapshots may spare."),
    key("control.removal", "sustained", "intervals", "`30`", "at least 1", "For which a reason must hold without a break. That the objective would be kept without the cache must do so for twice as long after each time that a violation followed soon."),
    key("control.removal", "low_load_share", "ratio", "`0.3`", "0 to 1", "Load below this share of that at the grant is low."),
    key("control.removal", "excess_without_max", "number", "`-0.3`", "below 0", "Excess that the model may predict without the cache for it to be superfluous."),
    key("control.removal", "hit_ratio_min", "ratio", "`0.03`", "0 to 1", "Share of its volume's reads that a warm cache must answer, and share of the reads of all that it serves that must come to it, warm or not."),
    key("control.foresight", "enabled", "boolean", "`true`", "", "Grant caches before peaks that return by season."),
    key("control.foresight", "bucket_intervals", "intervals", "`60`", "1 to 100000", "The unit of the history; a season has at least six. With a unit of another length, by this or by `interval`, the history begins anew."),
    key("control.foresight", "buckets_max", "buckets", "`3024`", "16 to 65536", "That are remembered, 4 bytes each for every volume; two seasons must fit, and two buckets more."),
    key("control.foresight", "lead_buckets", "buckets", "`2`", "1 to 64", "Before a peak at which its cache is granted."),
    key("control.foresight", "confidence_min", "ratio", "`0.5`", "0 to 1", "The least confidence to act on."),
];
