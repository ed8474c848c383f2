//! The formats that can be read: names, descriptions, and what each of them can say.

use std::fmt;
use std::str::FromStr;

/// A trace format; [`FORMATS`] describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own compact binary format.
    Forebay,
    /// MSR Cambridge CSV.
    Msr,
    /// SPC, as UMass publishes it.
    Spc,
    /// The kernel's binary records, one file per CPU.
    Blktrace,
    /// The default text of `blkparse`.
    Blkparse,
    /// fio's log of I/O, versions 2 and 3.
    FioIolog,
    /// CloudPhysics binary, versions 1 and 2.
    Vscsi,
    /// Alibaba block traces of 2020.
    Alibaba,
    /// Tencent cloud block storage.
    Tencent,
    /// SYSTOR '17, Fujitsu VDI.
    Systor17,
    /// Florida International University, with content hashes.
    Fiu,
    /// libCacheSim, 24-byte records.
    OracleGeneral,
    /// libCacheSim, 27-byte records with operation and name space.
    OracleGeneralOpNs,
    /// libCacheSim's format with a header, versions 1 to 8.
    Lcs,
    /// blkreplay's load files.
    Blkreplay,
    /// DiskSim and SSDSim ASCII.
    Disksim,
    /// Cuts of MSR volumes: milliseconds, device, offset and size in bytes, type.
    MsDev,
    /// Page runs of the ARC paper.
    ArcLis,
    /// One block number a line, as the LIRS paper's traces.
    Lirs,
    /// An array of block numbers.
    LbnU32Le,
    /// CacheLib's block replay CSV.
    CachelibCsv,
}

/// What a person is told about a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatDescription {
    /// The format.
    pub format: Format,
    /// What `--format` takes and `info` prints.
    pub name: &'static str,
    /// One line for help texts.
    pub description: &'static str,
    /// Whether its records carry times.
    pub has_time: bool,
    /// Whether it counts pages instead of bytes, so that a page is a block.
    pub counts_pages: bool,
}

const fn describe(
    format: Format,
    name: &'static str,
    has_time: bool,
    counts_pages: bool,
    description: &'static str,
) -> FormatDescription {
    FormatDescription { format, name, description, has_time, counts_pages }
}

/// Every format, ours first, in the order in which help lists them.
pub const FORMATS: [FormatDescription; 21] = [
    describe(Format::Forebay, "forebay", true, false, "Forebay's own compact binary format (.fbt)"),
    describe(
        Format::Msr,
        "msr",
        true,
        false,
        "MSR Cambridge CSV: filetime,host,disk,Read|Write,offset,size,response",
    ),
    describe(Format::Spc, "spc", true, false, "SPC / UMass CSV: asu,lba,bytes,r|w,seconds"),
    describe(Format::Blktrace, "blktrace", true, false, "blktrace binary records, one source per CPU"),
    describe(Format::Blkparse, "blkparse", true, false, "blkparse default text"),
    describe(Format::FioIolog, "fio-iolog", true, false, "fio iolog version 2 or 3"),
    describe(Format::Vscsi, "vscsi", true, false, "CloudPhysics vscsi binary, version 1 or 2"),
    describe(
        Format::Alibaba,
        "alibaba",
        true,
        false,
        "Alibaba block 2020 CSV: device,R|W,offset,length,microseconds",
    ),
    describe(Format::Tencent, "tencent", true, false, "Tencent CBS CSV: seconds,sector,sectors,0|1,volume"),
    describe(
        Format::Systor17,
        "systor17",
        true,
        false,
        "SYSTOR '17 CSV: seconds,response,R|W|blank,lun,offset,size",
    ),
    describe(Format::Fiu, "fiu", true, false, "FIU text: ns pid process sector sectors R|W major minor md5"),
    describe(
        Format::OracleGeneral,
        "oracle-general",
        true,
        false,
        "libCacheSim oracleGeneral, 24-byte records",
    ),
    describe(
        Format::OracleGeneralOpNs,
        "oracle-general-opns",
        true,
        false,
        "libCacheSim oracleGeneralOpNS, 27-byte records",
    ),
    describe(Format::Lcs, "lcs", true, false, "libCacheSim LCS with its 8 KiB header, versions 1 to 8"),
    describe(
        Format::Blkreplay,
        "blkreplay",
        true,
        false,
        "blkreplay .load: seconds ; sector ; sectors ; R|W|RA ; 0 ; 0",
    ),
    describe(
        Format::Disksim,
        "disksim",
        true,
        false,
        "DiskSim / SSDSim ASCII: time device sector sectors type(bit 0 = read)",
    ),
    describe(
        Format::MsDev,
        "ms-dev",
        true,
        false,
        "cuts of MSR volumes: milliseconds device offset size type(1 = read)",
    ),
    describe(Format::ArcLis, "arc-lis", false, true, "ARC .lis: start pages 0 id"),
    describe(Format::Lirs, "lirs", false, true, "LIRS text: one block number per line, `*` lines ignored"),
    describe(Format::LbnU32Le, "lbn-u32le", false, true, "array of little-endian 32-bit block numbers"),
    describe(
        Format::CachelibCsv,
        "cachelib-csv",
        true,
        false,
        "CacheLib block replay CSV with its header line",
    ),
];

impl Format {
    /// What a person is told about it.
    pub fn description(self) -> &'static FormatDescription {
        // FORMATS is in the order of the enum, which a test checks.
        &FORMATS[self as usize]
    }

    /// What `--format` takes.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Whether its records carry times; requests without one are all at time 0.
    pub fn has_time(self) -> bool {
        self.description().has_time
    }

    /// Whether its records name ids, of which [`crate::Ids`] says what they are.
    pub fn has_ids(self) -> bool {
        matches!(self, Format::OracleGeneral | Format::OracleGeneralOpNs | Format::Lcs)
    }

    /// Whether it counts pages instead of bytes.
    pub fn counts_pages(self) -> bool {
        self.description().counts_pages
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a trace format: expected one of {}", names())]
pub struct ParseFormatError {
    /// What was found.
    pub found: String,
}

/// All names, for messages.
pub(crate) fn names() -> String {
    FORMATS.map(|format| format.name).join(", ")
}

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Format, ParseFormatError> {
        FORMATS
            .iter()
            .find(|format| format.name.eq_ignore_ascii_case(text.trim()))
            .map(|format| format.format)
            .ok_or_else(|| ParseFormatError { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for (at, format) in FORMATS.iter().enumerate() {
            assert_eq!(format.format as usize, at, "{} stands in the wrong place", format.name);
            assert_eq!(format.name.parse(), Ok(format.format));
            assert_eq!(format.format.to_string(), format.name);
        }
        assert!("msrr".parse::<Format>().unwrap_err().to_string().contains("fio-iolog"));
    }
}
