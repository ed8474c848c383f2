//! What every subcommand prints with: data to standard output, words to standard error, files by name.

use crate::failure::{Context, Failure};
use clap::builder::{PathBufValueParser, TypedValueParser};
use forebay_report::{Chart, Report, Table};
use forebay_units::{Bytes, printable_lines};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Read, StdoutLock, Write};
use std::path::{Path, PathBuf};

/// As many links of one name are followed as Linux follows.
const LINKS_MAX: usize = 40;

/// How a subcommand shows its result.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print JSON instead of a table; its `schema` field names the layout, see docs/reference/json.md
    #[arg(long)]
    pub(crate) json: bool,
}

/// Standard output, buffered.
pub(crate) struct Output {
    stream: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Standard output, held until this value is dropped.
    pub(crate) fn new() -> Output {
        Output { stream: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Prints `text` as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.stream.write_all(text.as_bytes()).map_err(output_failure)
    }

    /// Prints a line; what would steer a terminal in it, since others may have said it, is replaced.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.stream, "{}", printable_lines(&line.to_string())).map_err(output_failure)
    }

    /// Prints a table.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        self.text(&table.to_text())
    }

    /// Prints `value` as JSON, indented, with a newline at its end.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        // serde_json hides the kind of an I/O error, so the text is made first.
        let mut text = serde_json::to_string_pretty(value).context("the result cannot be written as JSON")?;
        text.push('\n');
        self.text(&text)
    }

    /// Passes everything on.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.stream.flush().map_err(output_failure)
    }
}

/// Has `print` show a result, and then does what comes of it, files that were asked for and the verdict, also where nobody reads what is printed any more (`| head`).
pub(crate) fn show(
    print: impl FnOnce(&mut Output) -> Result<(), Failure>,
    then: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut output = Output::new();
    let printed = print(&mut output).and_then(|()| output.finish());
    // What is said of a failure of the first goes before the second's.
    match (printed, then()) {
        (Err(failure), _) if !failure.message().is_empty() => Err(failure),
        (printed, done) => done.and(printed),
    }
}

/// Output is a stream of bytes too, as for a trace that is converted to standard output.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The failure for an error while writing standard output.
pub(crate) fn output_failure(error: io::Error) -> Failure {
    if error.kind() == ErrorKind::BrokenPipe {
        Failure::reader_gone()
    } else {
        Failure::new(format!("cannot write to standard output: {error}"))
    }
}

/// Says something to the person at the terminal, on standard error; what would steer that is replaced.
pub(crate) fn say(words: impl Display) {
    // Standard error may be closed; then there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(&words.to_string()));
}

/// The place of a report or a chart that is written at the end of long work: what would keep it from being written is said before that
/// begins. Only one like it is replaced: any other file may be what is read, one that a scenario names say, or somebody's only copy.
pub(crate) fn writable() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| trouble_of(&path).or_else(|| kept(&path)).map_or(Ok(path), Err))
}

/// Why the file at `path`, if one is there, is not replaced by a report or a chart.
fn kept(path: &Path) -> Option<String> {
    // A name that leads to what is open, as /dev/stdout, is written as the shell would have it.
    let target = file_behind(path)?;
    // Whoever cannot read it may not be able to replace it, and is told then.
    let mut start = Vec::new();
    std::fs::File::open(target).ok()?.take(64).read_to_end(&mut start).ok()?;
    let start = start.trim_ascii_start().to_ascii_lowercase();
    let is_drawn =
        [&b"<!doctype html"[..], b"<html", b"<svg", b"<?xml"].iter().any(|kind| start.starts_with(kind));
    let told = "it is there and is neither a page nor a picture, expected a new name, or a report or chart to replace: \
                name another place, or remove it";
    (!start.is_empty() && !is_drawn).then(|| told.to_owned())
}

/// Why no file can be made at `path`, as far as can be seen without making it.
fn trouble_of(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some("it is a folder, expected the name of a file".to_owned());
    }
    let target = file_behind(path)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = folder.display();
    if !folder.is_dir() {
        return Some(format!("there is no folder `{shown}`: make it, or name another place"));
    }
    // Of a folder in which the name is taken, by a file that may not be replaced say, more is told when it is written.
    let may = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    let told =
        |error| format!("nothing can be written to the folder `{shown}` ({error}): name another place");
    may.err().map(told)
}

/// Writes `content` to the file at `path`, replacing what is there, or leaves that as it was.
pub(crate) fn write_file(path: &Path, content: &str) -> Result<(), Failure> {
    write_whole(path, |partial| {
        std::fs::write(partial, content).context(format_args!("cannot write `{}`", path.display()))
    })
}

/// Has `write` fill a file that takes the name `target` once it is whole: a cut one looks like a shorter one. If it fails, what was there is
/// as it was; a signal that ends the process leaves no part of it. Links are followed, also to where nothing is yet. What is no file, as /dev/null, or open already, as /dev/stdout, is written as it is.
pub(crate) fn write_whole<T>(
    target: &Path,
    write: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(target) = file_behind(target) else { return write(target) };
    let partial = free_name_beside(&target);
    let _unfinished = crate::interrupt::unfinished(&partial);
    let written = write(&partial).and_then(|written| {
        let named = std::fs::rename(&partial, &target);
        named.context(format_args!("cannot name `{}`", target.display())).map(|()| written)
    });
    if written.is_err() {
        // What cannot be removed is left: the failure that led here matters more.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// A name beside `target` that nothing has: what has one like it may be what is read, or somebody else's.
fn free_name_beside(target: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = target.as_os_str().to_owned();
        name.push(if number == 0 { ".partial".to_owned() } else { format!(".partial-{number}") });
        PathBuf::from(name)
    };
    let is_free = |name: &PathBuf| std::fs::symlink_metadata(name).is_err();
    (0..1_000).map(name).find(is_free).unwrap_or_else(|| name(std::process::id()))
}

/// The file that `target` leads to, there or not; `None` if another cannot take its place.
fn file_behind(target: &Path) -> Option<PathBuf> {
    if std::fs::metadata(target).is_ok_and(|metadata| !metadata.is_file()) {
        return None;
    }
    let mut at = target.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // It is not there, or not to be reached: whoever makes the file says so.
        let Ok(folder) = std::fs::canonicalize(folder) else { return Some(at) };
        // What a process has open is named in /proc, where nothing can be renamed; a name that leads there, as /dev/stdout, must go on doing so.
        if folder.starts_with("/proc") {
            return None;
        }
        let Ok(next) = std::fs::read_link(&at) else { return Some(at) };
        at = folder.join(next);
    }
    // It leads round and round; whoever makes the file says so.
    None
}

/// Draws `chart` into the file at `path` where one is wanted, and says so.
pub(crate) fn write_chart(path: Option<&PathBuf>, chart: impl FnOnce() -> Chart) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    write_file(path, &chart().to_svg("forebay").context("the chart cannot be drawn")?)?;
    say(format_args!("chart written to {}", path.display()));
    Ok(())
}

/// Draws `report` into the file at `path` where one is wanted, and says so.
pub(crate) fn write_report(path: Option<&PathBuf>, report: impl FnOnce() -> Report) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    write_file(path, &report().to_html().context("the report cannot be drawn")?)?;
    say(format_args!("report written to {}", path.display()));
    Ok(())
}

/// A count with separators, as in `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as they are told everywhere, and typed: `64MiB`.
pub(crate) fn bytes(value: u64) -> String {
    Bytes(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([bytes(0), bytes(4096), bytes(1_610_612_736)], ["0B", "4KiB", "1.50GiB"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write_file(&path, "good").unwrap();
        let failed: Result<(), Failure> = write_whole(&path, |partial| {
            std::fs::write(partial, "cut sh").unwrap();
            Err(Failure::new("no space left"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "good");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the part is removed");
        // What happens to have the name of the part, as what is read may have, is no part of ours.
        let other = folder.path().join("report.html.partial");
        std::fs::write(&other, "of others").unwrap();
        write_whole(&path, |partial| {
            std::fs::write(partial, std::fs::read_to_string(&other)? + ", better").context("cannot write")
        })
        .unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of others, better");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "of others");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_reports_and_charts_are_replaced_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        assert_eq!(kept(&path), None, "nothing is there");
        for replaced in ["", "\n", "<!DOCTYPE html>\n<html>", " <svg xmlns", "<?xml version"] {
            std::fs::write(&path, replaced).unwrap();
            assert_eq!((kept(&path), kept(&link)), (None, None), "{replaced:?}");
        }
        for theirs in ["[scenario]\nseconds = 1", "1,2,<svg", "\0\0", "<!doctype"] {
            std::fs::write(&path, theirs).unwrap();
            assert!(kept(&path).is_some() && kept(&link).is_some(), "{theirs:?}");
        }
        assert_eq!(kept(Path::new("/dev/null")), None);
        assert_eq!(kept(Path::new("/dev/stdout")), None);
    }

    #[test]
    fn links_lead_to_the_same_after_what_they_lead_to_was_written() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let [path, link, standard_output, further] =
            ["report.html", "link", "stdout", "further"].map(|name| folder.path().join(name));
        write_file(&path, "old").unwrap();
        std::os::unix::fs::symlink("report.html", &link).unwrap();
        write_file(&link, "new").unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("report.html"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        // As /dev/stdout leads to what is open.
        let open = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let of_process = format!("/proc/self/fd/{}", open.as_raw_fd());
        std::os::unix::fs::symlink(&of_process, &standard_output).unwrap();
        std::os::unix::fs::symlink("stdout", &further).unwrap();
        for (name, content) in
            [(standard_output.as_path(), "first"), (Path::new(&of_process), "second"), (&further, "third")]
        {
            write_file(name, content).unwrap();
            assert_eq!(std::io::read_to_string(std::fs::File::open(&of_process).unwrap()).unwrap(), content);
        }
        assert_eq!(std::fs::read_link(&standard_output).unwrap(), Path::new(&of_process));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
        // Where nothing is yet, what it leads to is made.
        std::fs::remove_file(&path).unwrap();
        write_file(&link, "made").unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("report.html"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "made");
        // Of what leads round and round nothing is replaced.
        let round = folder.path().join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        assert!(write_file(&round, "never").is_err());
        // What is told is the name that was given, and not that of a part.
        let told = write_file(&folder.path().join("gone/report.html"), "never").unwrap_err();
        assert!(told.message().contains("gone/report.html`: No such file"), "{told:?}");
        assert_eq!(std::fs::read_link(&round).unwrap(), Path::new("round"));
    }
}
