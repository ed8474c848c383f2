//! Every request that must be refused is refused with the error that the protocol asks for, and nothing gets lost.

use crate::support::{ClientEnd, ServerEnd, converse, everything};
use forebay_nbd::client;
use forebay_nbd::server::{self, ProtocolError};
use forebay_nbd::wire::{CommandFlags, RequestHeader};
use forebay_nbd::{BlockSizes, ExportInfo};
use forebay_units::ByteRange;

const SIZE: u64 = 64 << 20;

/// A server whose client has opened the export.
fn open(export: ExportInfo, structured: bool) -> ServerEnd {
    let config = server::Config { payload_bytes_max: 1 << 20, ..server::Config::default() };
    let mut server = ServerEnd::new(config, vec![export], vec![0; SIZE as usize]);
    let config = client::Config { structured_replies: structured, ..client::Config::new("disk") };
    let mut client = ClientEnd::new(config, Vec::new());
    converse(&mut server, &mut client, &[64]);
    assert!(client.export.is_some());
    server
}

/// The error number of the one reply to a request, with as many payload bytes as a write announces.
fn errno(server: &mut ServerEnd, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
    let mut bytes =
        RequestHeader::new(command, CommandFlags(flags), 0xc00c1e, offset, length).encode().to_vec();
    if command == 1 {
        bytes.resize(bytes.len() + length as usize, 0xaa);
    }
    server.receive(&bytes).expect("the conversation goes on");
    let reply = std::mem::take(&mut server.output);
    assert_eq!(&reply[8..16], &0xc00c1e_u64.to_be_bytes());
    match &reply[..4] {
        [0x67, 0x44, 0x66, 0x98] => u32::from_be_bytes(reply[4..8].try_into().unwrap()),
        [0x66, 0x8e, 0x33, 0xef] if reply[6] & 0x80 != 0 => {
            u32::from_be_bytes(reply[20..24].try_into().unwrap())
        }
        [0x66, 0x8e, 0x33, 0xef] => 0,
        magic => panic!("{magic:x?} starts no reply"),
    }
}

#[test]
fn each_mistake_has_its_error() {
    const EPERM: u32 = 1;
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const EOVERFLOW: u32 = 75;
    let (read, write, flush, trim, cache, zeroes, status) = (0, 1, 3, 4, 5, 6, 7);
    let (fua, no_hole, df, one, fast) = (1, 2, 4, 8, 16);
    let mib = 1 << 20;
    for structured in [false, true] {
        let mut export = everything("disk", SIZE);
        export.block_sizes = BlockSizes { min: 512, preferred: 4096, max: 8 << 20 };
        let mut server = open(export, structured);
        let mut check = |what: &str, request: (u16, u16, u64, u32), expected: u32| {
            let (command, flags, offset, length) = request;
            let found = errno(&mut server, command, flags, offset, length);
            assert_eq!(found, expected, "{what}, structured {structured}");
        };
        let if_structured = |ok| if structured { ok } else { EINVAL };
        check("read", (read, 0, 0, 512), 0);
        check("read to the last byte", (read, fua, SIZE - 512, 512), 0);
        check("read of a mebibyte", (read, 0, 0, mib), 0);
        check("read behind the end", (read, 0, SIZE, 512), EINVAL);
        check("read across the end", (read, 0, SIZE - 512, 1024), EINVAL);
        check("read whose end passes 2^64", (read, 0, u64::MAX - 511, 1024), EINVAL);
        check("empty read", (read, 0, 0, 0), EINVAL);
        check("unaligned offset", (read, 0, 1, 512), EINVAL);
        check("unaligned length", (read, 0, 0, 513), EINVAL);
        check("read above the maximum", (read, 0, 0, mib + 512), EINVAL);
        check("unfragmented read", (read, df, 0, 512), if_structured(0));
        check("unfragmented read above the maximum", (read, df, 0, mib + 512), if_structured(EOVERFLOW));
        check("read with a flag of another command", (read, no_hole, 0, 512), EINVAL);
        check("read with an unknown flag", (read, 1 << 9, 0, 512), EINVAL);
        check("read with a payload length", (read, 1 << 5, 0, 512), EINVAL);
        check("write", (write, fua, 0, 512), 0);
        check("write across the end", (write, 0, SIZE - 512, 1024), ENOSPC);
        check("write above the maximum is skipped", (write, 0, 0, mib + 512), EINVAL);
        check("write of 32 MiB is skipped", (write, 0, 0, 32 << 20), EINVAL);
        check("write with a wrong flag is skipped", (write, df, 0, 512), EINVAL);
        check("empty write", (write, 0, 0, 0), EINVAL);
        check("flush", (flush, fua, 0, 0), 0);
        check("flush with a range", (flush, 0, 0, 512), EINVAL);
        check("trim", (trim, fua, 0, 32 << 20), 0);
        check("trim across the end", (trim, 0, SIZE - 512, 1024), EINVAL);
        check("cache", (cache, 0, 0, 32 << 20), 0);
        check("zeroes", (zeroes, fua | no_hole | fast, 0, 32 << 20), 0);
        check("zeroes across the end", (zeroes, 0, SIZE - 512, 1024), ENOSPC);
        check("block status", (status, one, 0, 512), if_structured(0));
        check("block status across the end", (status, 0, SIZE - 512, 1024), EINVAL);
        check("unknown command", (8, 0, 0, 512), EINVAL);
        check("unknown command without bytes", (0xffff, 0xffff, u64::MAX, u32::MAX), EINVAL);
        check("and still in step", (read, 0, 0, 512), 0);

        // Nothing that was not offered works.
        let mut server =
            open(ExportInfo { flush: false, fua: false, ..ExportInfo::new("disk", SIZE) }, structured);
        for command in [flush, trim, cache, zeroes, status] {
            let length = if command == flush { 0 } else { 512 };
            assert_eq!(errno(&mut server, command, 0, 0, length), EINVAL, "command {command}");
        }
        assert_eq!(errno(&mut server, write, fua, 0, 512), EINVAL);

        // A read-only export says so.
        let mut server = open(ExportInfo { read_only: true, ..everything("disk", SIZE) }, structured);
        for command in [write, trim, zeroes] {
            assert_eq!(errno(&mut server, command, 0, 0, 512), EPERM, "command {command}");
        }
        assert_eq!(errno(&mut server, read, 0, 0, 512), 0);
    }
}

#[test]
fn a_write_that_is_too_long_to_skip_ends_the_conversation() {
    let mut server = open(everything("disk", SIZE), true);
    let header = RequestHeader::new(1, CommandFlags::NONE, 1, 0, (32 << 20) + 1).encode();
    let error = server.receive(&header).expect_err("nobody skips that much");
    assert_eq!(error, ProtocolError::PayloadTooLong { length: (32 << 20) + 1, max: 32 << 20 });
    assert_eq!(server.receive(&[]), Err(error), "a broken conversation stays broken");
}

#[test]
fn a_wrong_magic_number_ends_the_conversation() {
    let mut server = open(everything("disk", SIZE), true);
    let mut header = RequestHeader::new(0, CommandFlags::NONE, 1, 0, 512).encode();
    header[3] = 0x14;
    assert_eq!(server.receive(&header), Err(ProtocolError::RequestMagic { found: 0x2560_9514 }));
}

#[test]
fn reads_are_looked_ahead_to_as_far_as_they_will_be_found_valid() {
    let server = open(everything("disk", SIZE), true);
    let header =
        |command, offset, length| RequestHeader::new(command, CommandFlags::NONE, 7, offset, length).encode();
    let mut ranges = [ByteRange::new(0, 0); 3];
    let mut look = |requests: &[[u8; 28]], cut: usize| {
        let bytes = requests.concat();
        let count = server.session.upcoming_reads(&bytes[..bytes.len() - cut], &mut ranges);
        ranges[..count].to_vec()
    };
    let (first, second) = (header(0, 0, 512), header(0, SIZE - 4096, 4096));
    let both = [ByteRange::new(0, 512), ByteRange::new(SIZE - 4096, 4096)];
    assert_eq!(look(&[first, second], 0), both);
    // The second is not whole yet.
    assert_eq!(look(&[first, second], 1), both[..1]);
    // A write, a read behind the end, and something that is no request.
    for stop in [header(1, 0, 512), header(0, SIZE, 512), header(0, u64::MAX, 512), [0; 28]] {
        assert_eq!(look(&[first, stop, second], 0), both[..1]);
        assert_eq!(look(&[stop, first], 0), []);
    }
    // No more than there is room for.
    assert_eq!(look(&[first; 5], 0).len(), 3);
}
