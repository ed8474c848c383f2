//! By a real Prometheus server alone: what it tells of a volume is judged, what it tells no more, or what began anew, is said, and nothing is done for that.

use super::site::{CONTROLLER, HTTP, STORAGE, Site};
use super::{Ledger, Telling, Work, count, drive};
use crate::reroute::SECRET;
use crate::support::{Running, SetOnDrop, secret_file, spawn};
use crate::wire::Wire;
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use serde_json::Value;

#[test]
fn a_volume_of_which_prometheus_tells_is_judged_and_gaps_are_said() {
    if !programs("control with Prometheus", &["prometheus", "ip"], true) {
        return;
    }
    let mut site = Site::new();
    let scrape = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n  - job_name: storage\n    authorization: {{ credentials: {SECRET} }}\n    \
         static_configs: [{{ targets: ['{}:{HTTP}'] }}]\n",
        Wire::address(STORAGE)
    );
    let scrape = secret_file(&site.folder, "prometheus.yml", scrape);
    let server = spawn(
        Some(site.wire.name(CONTROLLER)),
        "prometheus",
        [
            format!("--config.file={}", scrape.display()),
            format!("--storage.tsdb.path={}", site.path("prometheus").display()),
            "--web.listen-address=127.0.0.1:9090".to_owned(),
        ],
    );
    let _server = Running(vec![server]);
    let series = |name: &str, op: &str| {
        format!("'forebay_volume_request_duration_seconds_{name}{{volume=\"db\",op=\"{op}\"}}'")
    };
    let bytes = |op: &str| format!("'forebay_volume_request_bytes_total{{volume=\"db\",op=\"{op}\"}}'");
    let text = format!(
        "socket = \"control.sock\"\nstate = \"state\"\ninterval = \"500ms\"\ncontrol.violation = {{ windows = 5, nonconforming = 4 }}\n\
         [[host]]\nname = \"h1\"\nmemory = \"256MiB\"\n\
         [[volume]]\nname = \"db\"\nhome = \"h1\"\norigin = \"nbd://{}/db\"\n\
         [volume.prometheus]\nurl = \"http://127.0.0.1:9090\"\nreads = {}\nread_seconds = {}\nread_buckets = {}\nread_bytes = {}\n\
         writes = {}\nwrite_seconds = {}\nwrite_buckets = {}\nwrite_bytes = {}\nwaits = true\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"1s\"\nstatistic = \"p99\"\noperations = \"reads\"\n\
         [[objective]]\nvolume = \"db\"\nbandwidth_per_second = \"1KiB\"\n",
        Wire::address(STORAGE),
        series("count", "read"),
        series("sum", "read"),
        series("bucket", "read"),
        bytes("read"),
        series("count", "write"),
        series("sum", "write"),
        series("bucket", "write"),
        bytes("write"),
    );
    secret_file(&site.folder, "control.toml", text);
    let _controller = site.control();
    let folder = site.folder.path().to_owned();
    let telling = Telling(&folder);
    let said = |told: &Value, words: &str| told["decisions"].to_string().matches(words).count();
    let work = |until: &dyn Fn(&Value) -> bool, what: &str| {
        let work = Work::default();
        let uri = Uri::unix(folder.join("storage.sock"), format!("db.{SECRET}"));
        let mut ledger = Ledger::new();
        std::thread::scope(|scope| {
            let _stops = SetOnDrop(&work.stop);
            scope.spawn(|| drive(uri, &mut ledger, &work));
            telling.wait(what, until)
        })
    };
    let value = |told: &Value, of: usize| told["status"]["objectives"][of]["value"].as_f64();
    let is_judged = |told: &Value| (1..3).all(|of| value(told, of).is_some());
    let told = work(&|told| count(told, "violation_found") == 1 && is_judged(told), "a violation");
    // Eight requests are outstanding, each of which takes 8 ms: a thousand a second. What is asked for between two scrapes is no interval of its own.
    let (iops, latency) = (&told["status"]["iops"], &told["status"]["read_latency"]["mean_s"]);
    assert!((200.0..1_100.0).contains(&iops.as_f64().unwrap()), "{iops}");
    assert!(latency.as_f64().is_some_and(|seconds| seconds > 0.007), "{told}");
    // Most take 8 ms, and nobody half a second.
    assert!((0.004..0.5).contains(&value(&told, 1).unwrap()), "{told}");
    assert!((1e5..1e8).contains(&value(&told, 2).unwrap()), "{told}");
    assert_eq!(count(&told, "host_chosen"), 0, "nobody knows its locality");
    site.kill_storage();
    telling.wait("a word of the silence", |told| said(told, "has no series now") == 1);
    site.start_storage();
    telling.wait("a word of the new beginning", |told| said(told, "its counters began anew") == 1);
    telling.wait("what is good again", |told| told["status"]["origin"]["state"] == "up");
}
