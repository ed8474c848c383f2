//! Byte-exact conversations, written down by hand from the protocol document.

use crate::support::{ClientEnd, ServerEnd, everything};
use forebay_nbd::client::{self, Operation};
use forebay_nbd::server::{self, ProtocolError, ReplyEncoder, ReplyFormat};
use forebay_nbd::{BlockSizes, ExportInfo, RunId, StorageId, Succeeds, Succession};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
const REPLY_MAGIC: &[u8] = &[0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];

fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An option reply.
fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    cat(&[REPLY_MAGIC, &option.to_be_bytes(), &kind.to_be_bytes(), &length, data])
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    cat(&[b"IHAVEOPT", &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data])
}

fn plain() -> ExportInfo {
    ExportInfo { flush: true, fua: true, ..ExportInfo::new("d", 0x10000) }
}

fn serve(config: server::Config, exports: Vec<ExportInfo>, said: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let mut server = ServerEnd::new(config, exports, vec![0x5a; 0x10000]);
    server.receive(said)?;
    Ok(server.output)
}

fn answers(exports: Vec<ExportInfo>, said: &[&[u8]], expected: &[&[u8]]) {
    let said = cat(&[&[0, 0, 0, 3], &cat(said)]);
    let output = serve(server::Config::default(), exports, &said).unwrap();
    assert_eq!(output, cat(&[GREETING, &cat(expected)]));
}

const ERR: u32 = 1 << 31;

#[test]
fn export_name_with_and_without_zeroes() {
    // Size 0x10000, flags HAS_FLAGS|FLUSH|FUA = 1 + 4 + 8 = 0x0d.
    let body = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0x0d];
    let with = cat(&[&[0, 0, 0, 1], &option(1, b"d")]);
    let output = serve(server::Config::default(), vec![plain()], &with).unwrap();
    assert_eq!(output, cat(&[GREETING, &body, &[0; 124]]));
    answers(vec![plain()], &[&option(1, b"d")], &[&body]);
    // A client of plain newstyle may say nothing else.
    let old = cat(&[&[0, 0, 0, 0], &option(1, b"d")]);
    assert_eq!(serve(server::Config::default(), vec![plain()], &old).unwrap().len(), 18 + 10 + 124);
    let old = cat(&[&[0, 0, 0, 0], &option(3, b"")]);
    let error = serve(server::Config::default(), vec![plain()], &old);
    assert_eq!(error, Err(ProtocolError::NotFixedNewstyle { option: 3 }));
}

#[test]
fn go_then_a_structured_read() {
    let mut export = plain();
    export.description = "x".into();
    let said = cat(&[
        &option(8, b""),
        &option(7, &[0, 0, 0, 1, b'd', 0, 3, 0, 1, 0, 2, 0, 3]),
        &[0x25, 0x60, 0x95, 0x13, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2],
    ]);
    answers(
        vec![export],
        &[&said],
        &[
            &reply(8, 1, b""),
            &reply(7, 3, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x8d]), // DF is bit 7
            &reply(7, 3, &[0, 1, b'd']),
            &reply(7, 3, &[0, 2, b'x']),
            &reply(7, 3, &[0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]),
            &reply(7, 1, b""),
            &[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10],
            &[0, 0, 0, 0, 0, 0, 0, 0x10, 0x5a, 0x5a],
        ],
    );
}

#[test]
fn lists_and_unknown_options() {
    let mut second = plain();
    second.name = "e".into();
    second.description = "two".into();
    answers(
        vec![plain(), second],
        &[&option(3, b""), &option(3, b"x"), &option(11, b""), &option(99, b"abc"), &option(2, b"")],
        &[
            &reply(3, 2, b"\0\0\0\x01d"),
            &reply(3, 2, b"\0\0\0\x01etwo"),
            &reply(3, 1, b""),
            &reply(3, ERR + 3, b"this option has no data"),
            &reply(11, ERR + 1, b""),
            &reply(99, ERR + 1, b""),
            &reply(2, 1, b""),
        ],
    );
}

#[test]
fn refused_options_name_their_reason() {
    let mut sized = plain();
    sized.name = "s".into();
    sized.block_sizes = BlockSizes { min: 512, preferred: 4096, max: 1 << 20 };
    let long_name = cat(&[&[0, 0, 0x10, 1], &[b'a'; 4097], &[0, 0]]);
    answers(
        vec![plain(), sized],
        &[
            &option(5, b""),
            &option(6, b"\0\0\0\x01q\0\0"),
            &option(6, b"\0\0\0\x02q\0\0"),
            &option(6, b"\0\0\0\x01\xff\0\0"),
            &option(6, &long_name),
            &option(7, b"\0\0\0\x01s\0\0"),
            &option(3, &[0; 65537]),
        ],
        &[
            &reply(5, ERR + 2, b"TLS is not configured here"),
            &reply(6, ERR + 6, b"there is no such export"),
            &reply(6, ERR + 3, b"lengths do not fit the option's data"),
            &reply(6, ERR + 3, b"an export name is UTF-8 without NUL"),
            &reply(6, ERR + 9, b"an export name has at most 4096 bytes"),
            &reply(7, ERR + 8, b"ask for the block sizes and keep to them"),
            &reply(3, ERR + 9, b""),
        ],
    );
}

#[test]
fn metadata_contexts() {
    let query = |queries: &[&[u8]]| {
        let mut data = cat(&[b"\0\0\0\x01d", &(queries.len() as u32).to_be_bytes()]);
        for query in queries {
            data.extend_from_slice(&cat(&[&(query.len() as u32).to_be_bytes(), query]));
        }
        data
    };
    let allocation = |id: u8| cat(&[&[0, 0, 0, id], b"base:allocation"]);
    answers(
        vec![everything("d", 0x10000)],
        &[
            &option(10, &query(&[b"base:allocation"])), // before structured replies
            &option(8, b""),
            &option(9, &query(&[])),
            &option(9, &query(&[b"base:"])),
            &option(9, &query(&[b"qemu:"])),
            &option(10, &query(&[b"base:"])), // only a whole name selects
            &option(10, &query(&[b"qemu:x", b"base:allocation"])),
            &option(10, &[0, 0, 0, 1, b'd', 0, 0, 0, 9]),
        ],
        &[
            &reply(10, ERR + 3, b"ask for structured replies first"),
            &reply(8, 1, b""),
            &reply(9, 4, &allocation(0)),
            &reply(9, 1, b""),
            &reply(9, 4, &allocation(0)),
            &reply(9, 1, b""),
            &reply(9, 1, b""),
            &reply(10, 1, b""),
            &reply(10, 4, &allocation(1)),
            &reply(10, 1, b""),
            &reply(10, ERR + 3, b"lengths do not fit the option's data"),
        ],
    );
}

/// Ours: by the numbers of `docs/internals/nbd.md`.
const SUCCEED: u32 = 0x0f0e_ba71;

fn place(number: u8, flags: u8, name: &[u8]) -> Vec<u8> {
    cat(&[&[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, number, 0, 0, 0, flags], name])
}

#[test]
fn who_names_a_place_in_a_succession_hears_of_the_run() {
    let succeeds = Some(Succeeds { run: RunId(0x0102), storage: Some(StorageId(3)), keeper: Some(RunId(4)) });
    let ours = ExportInfo { succeeds, ..ExportInfo::new("s", 0x10000) };
    let run =
        reply(SUCCEED, SUCCEED, &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4]);
    let acknowledged = reply(SUCCEED, 1, b"");
    answers(
        vec![plain(), ours.clone()],
        &[
            &option(SUCCEED, &place(1, 0, b"s")),
            &option(SUCCEED, &place(1, 0, b"d")),
            &option(SUCCEED, &place(1, 0, b"q")),
            &option(SUCCEED, &place(1, 0, b"")[..19]),
        ],
        &[
            &run,
            &acknowledged,
            &reply(SUCCEED, ERR + 1, b""),
            &reply(SUCCEED, ERR + 6, b"there is no such export"),
            &reply(SUCCEED, ERR + 3, b"two numbers of eight bytes and flags of four are expected"),
        ],
    );
    // It is of the export that it was named for, and of the last time.
    let succession = Succession { id: 5, number: 2, lacks_flush: true };
    let first = option(SUCCEED, &place(1, 0, b"s"));
    let second = option(SUCCEED, &place(2, 1, b"s"));
    let other = option(SUCCEED, &place(2, 1, b"d"));
    for (said, expected, told) in [
        (cat(&[&first, &second, &option(1, b"s")]), Some(succession), succeeds),
        (cat(&[&second, &option(1, b"d")]), None, None),
        (cat(&[&first, &other, &option(1, b"s")]), None, None),
        // Who is promised nothing has given up its earlier connections all the same.
        (cat(&[&other, &option(1, b"d")]), Some(succession), None),
    ] {
        let exports = vec![plain(), ours.clone()];
        let mut server = ServerEnd::new(server::Config::default(), exports, vec![0; 0x10000]);
        server.receive(&cat(&[&[0, 0, 0, 3], &said])).unwrap();
        assert_eq!((server.session.succession(), server.session.told()), (expected, told));
    }
}

#[test]
fn a_client_asks_to_succeed_before_it_chooses_and_does_without() {
    let succession = Some(Succession { id: 5, number: 2, lacks_flush: true });
    let config = client::Config { structured_replies: false, succession, ..client::Config::new("d") };
    let info = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let chosen = cat(&[&reply(7, 3, &info), &reply(7, 1, b"")]);
    let run =
        reply(SUCCEED, SUCCEED, &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let go = option(7, &[0, 0, 0, 1, b'd', 0, 3, 0, 1, 0, 2, 0, 3]);
    for (answer, succeeds) in [
        (
            cat(&[&run, &reply(SUCCEED, 1, b"")]),
            Some(Succeeds { run: RunId(0x0102), storage: None, keeper: None }),
        ),
        (reply(SUCCEED, ERR + 1, b""), None),
        (reply(SUCCEED, 1, b""), None),
        (cat(&[&run, &reply(SUCCEED, ERR + 2, b"not now")]), None),
    ] {
        let mut client = ClientEnd::new(config.clone(), Vec::new());
        client.receive(&cat(&[GREETING, &answer, &chosen])).unwrap();
        assert_eq!(client.output, cat(&[&[0, 0, 0, 3], &option(SUCCEED, &place(2, 1, b"d")), &go]));
        assert_eq!(client.session.export().unwrap().succeeds, succeeds);
    }
    let (_, result) = ask(config, &[], &cat(&[GREETING, &reply(SUCCEED, SUCCEED, b"short")]));
    let detail = "three numbers have eight bytes each";
    let malformed = client::ProtocolError::OptionReplyData { option: SUCCEED, reply: SUCCEED, detail };
    assert_eq!(result, Err(malformed));
}

#[test]
fn a_farewell_is_heard_of_who_lets_connections_succeed_one_another_and_of_nobody_else() {
    let mut farewell = Vec::new();
    ReplyEncoder::new(ReplyFormat::Structured).farewell(&mut farewell);
    assert_eq!(farewell, *b"\x67\x44\x66\x98\0\0\0\x6c\xff\xff\xff\xff\xff\xff\xff\xff");
    let succession = Some(Succession { id: 5, number: 2, lacks_flush: false });
    let config = client::Config { structured_replies: false, succession, ..client::Config::new("d") };
    let info = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let chosen = cat(&[&reply(7, 3, &info), &reply(7, 1, b"")]);
    let run =
        reply(SUCCEED, SUCCEED, &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let promised = cat(&[&run, &reply(SUCCEED, 1, b"")]);
    let unknown = || Err(client::ProtocolError::UnknownCookie { cookie: u64::MAX });
    for (answer, said, result) in [
        (&promised, &farewell[..], Ok(())),
        (&promised, b"\x67\x44\x66\x98\0\0\0\x05\xff\xff\xff\xff\xff\xff\xff\xff", unknown()),
        (&reply(SUCCEED, ERR + 1, b""), &farewell[..], unknown()),
    ] {
        let mut client = ClientEnd::new(config.clone(), Vec::new());
        client.receive(&cat(&[GREETING, answer, &chosen])).unwrap();
        assert_eq!(client.receive(said), result);
        assert_eq!(client.farewell, result.is_ok());
    }
}

#[test]
fn required_tls_comes_first() {
    let config = server::Config { tls: server::TlsPolicy::Required, ..server::Config::default() };
    let said = cat(&[&[0, 0, 0, 3], &option(3, b""), &option(99, b"")]);
    let required = b"TLS is required here";
    let expected = cat(&[GREETING, &reply(3, ERR + 5, required), &reply(99, ERR + 5, required)]);
    assert_eq!(serve(config.clone(), vec![plain()], &said), Ok(expected));
    let said = cat(&[&[0, 0, 0, 3], &option(1, b"d")]);
    assert_eq!(serve(config, vec![plain()], &said), Err(ProtocolError::TlsRequired));
}

#[test]
fn fatal_handshakes() {
    let serve = |said: &[u8]| serve(server::Config::default(), vec![plain()], said).unwrap_err();
    assert_eq!(serve(&[0, 0, 0, 7]), ProtocolError::ClientFlags { found: 7, offered: 3 });
    assert_eq!(
        serve(&cat(&[&[0, 0, 0, 3], b"GET / HTTP/1.1\r\n"])),
        ProtocolError::OptionMagic { found: u64::from_be_bytes(*b"GET / HT") }
    );
    let unknown = serve(&cat(&[&[0, 0, 0, 3], &option(1, b"nope")]));
    assert_eq!(unknown, ProtocolError::UnknownExport { name: "nope".into() });
    let flood: Vec<u8> = cat(&[&[0, 0, 0, 3], &option(99, b"").repeat(4097)]);
    assert_eq!(serve(&flood), ProtocolError::TooManyOptions { max: 4096 });
}

/// What a client says to these bytes.
fn ask(
    config: client::Config,
    operations: &[Operation],
    heard: &[u8],
) -> (Vec<u8>, Result<(), client::ProtocolError>) {
    let operations = operations.iter().map(|operation| (*operation, Vec::new())).collect();
    let mut client = ClientEnd::new(config, operations);
    let result = client.receive(heard);
    (client.output, result)
}

#[test]
fn a_client_falls_back_to_export_name() {
    let config = client::Config { structured_replies: false, ..client::Config::new("d") };
    let read = Operation::Read { offset: 0x10, length: 2, dont_fragment: false };
    let heard = cat(&[GREETING, &reply(7, ERR + 1, b""), &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1]]);
    let (said, result) = ask(config, &[read], &heard);
    assert_eq!(result, Ok(()));
    let go = option(7, &[0, 0, 0, 1, b'd', 0, 3, 0, 1, 0, 2, 0, 3]);
    let request =
        [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2];
    assert_eq!(said, cat(&[&[0, 0, 0, 3], &go, &option(1, b"d"), &request]));
}

/// A server that lists no contexts may still have one; one that lists without end is not borne.
#[test]
fn a_client_that_describes_asks_what_contexts_there_are() {
    let config = client::Config { goal: client::Goal::Describe, ..client::Config::new("d") };
    let heard = cat(&[GREETING, &reply(8, 1, b""), &reply(9, ERR + 1, b""), &reply(10, 1, b"")]);
    let (said, result) = ask(config.clone(), &[], &heard);
    assert_eq!(result, Ok(()));
    let context = |queries: &[u8]| cat(&[&[0, 0, 0, 1, b'd'], queries]);
    let list = option(9, &context(&[0, 0, 0, 0]));
    let set = option(10, &context(&cat(&[&[0, 0, 0, 1, 0, 0, 0, 15], b"base:allocation"])));
    let info = option(6, &[0, 0, 0, 1, b'd', 0, 3, 0, 1, 0, 2, 0, 3]);
    assert_eq!(said, cat(&[&[0, 0, 0, 3], &option(8, b""), &list, &set, &info]));
    let endless = reply(9, 4, b"\0\0\0\0x:y").repeat(1025);
    let (_, result) = ask(config, &[], &cat(&[GREETING, &reply(8, 1, b""), &endless]));
    assert!(matches!(result, Err(client::ProtocolError::TooLarge { found: 1025, .. })));
}

#[test]
fn a_client_names_what_is_wrong_with_a_server() {
    use client::ProtocolError as E;
    let hears = |heard: &[u8]| ask(client::Config::new("d"), &[], heard).1;
    assert_eq!(hears(b"SSH-2.0-"), Err(E::ServerMagic { found: u64::from_be_bytes(*b"SSH-2.0-") }));
    let oldstyle = cat(&[b"NBDMAGIC", &[0, 0, 0x42, 2, 0x81, 0x86, 0x12, 0x53]]);
    assert_eq!(hears(&oldstyle), Err(E::Oldstyle));
    assert!(matches!(hears(b"NBDMAGICNBDMAGIC"), Err(E::GreetingMagic { .. })));
    assert!(matches!(hears(&cat(&[GREETING, &[0; 20]])), Err(E::OptionReplyMagic { found: 0 })));
    let mismatch = cat(&[GREETING, &reply(7, 1, b"")]);
    assert_eq!(hears(&mismatch), Err(E::OptionMismatch { found: 7, expected: 8 }));
    let refused = cat(&[GREETING, &reply(8, ERR + 1, b""), &reply(7, ERR + 6, b"no `d`")]);
    assert_eq!(hears(&refused), Err(E::Refused { option: 7, reply: ERR + 6, message: "no `d`".into() }));
    let silent = cat(&[GREETING, &reply(8, ERR + 1, b""), &reply(7, 1, b"")]);
    assert_eq!(hears(&silent), Err(E::NoExportInfo));
    let mut huge = reply(8, 1, b"");
    huge[16..20].copy_from_slice(&[0xff; 4]);
    assert!(matches!(hears(&cat(&[GREETING, &huge])), Err(E::TooLarge { .. })));
}

/// Replies of a server to one structured read of 16 bytes at 0, cookie 0.
#[test]
fn a_client_names_what_is_wrong_with_a_reply() {
    use client::ProtocolError as E;
    let start = cat(&[
        GREETING,
        &reply(8, 1, b""),
        &reply(7, 3, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x8d]),
        &reply(7, 1, b""),
    ]);
    let chunk = |flags: u8, kind: u16, cookie: u8, payload: &[u8]| {
        let header =
            cat(&[&[0x66, 0x8e, 0x33, 0xef, 0, flags], &kind.to_be_bytes(), &[0, 0, 0, 0, 0, 0, 0, cookie]]);
        cat(&[&header, &(payload.len() as u32).to_be_bytes(), payload])
    };
    let hears = |parts: &[&[u8]]| {
        let config = client::Config { block_status: false, ..client::Config::new("d") };
        let read = Operation::Read { offset: 0, length: 16, dont_fragment: false };
        let operations = vec![(read, Vec::new())];
        let mut client = ClientEnd::new(config, operations);
        let result = client.receive(&cat(&[&start, &cat(parts)]));
        result.map(|()| client.done.remove(&0))
    };
    let half = cat(&[&[0; 8], &[1; 8]]);
    let hole = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8];
    assert_eq!(hears(&[&chunk(0, 1, 0, &half), &chunk(1, 2, 0, &hole)]), Ok(Some(Ok(()))));
    let done = chunk(1, 0, 0, b"");
    let incomplete = hears(&[&chunk(0, 1, 0, &half), &done]);
    assert_eq!(incomplete, Err(E::Incomplete { cookie: 0, found: 8, expected: 16 }));
    assert!(matches!(hears(&[&chunk(0, 1, 0, &half), &chunk(0, 1, 0, &half)]), Err(E::Chunk { .. })));
    let outside = cat(&[&[0, 0, 0, 0, 0, 0, 0, 9], &[1; 8]]);
    assert!(matches!(hears(&[&chunk(0, 1, 0, &outside)]), Err(E::Chunk { .. })));
    let far = cat(&[&[0xff; 8], &[1; 8]]);
    assert!(matches!(hears(&[&chunk(0, 1, 0, &far)]), Err(E::Chunk { .. })));
    assert!(matches!(hears(&[&chunk(0, 1, 0, &[0; 8])]), Err(E::Chunk { .. })), "no data");
    assert!(matches!(hears(&[&chunk(0, 0, 0, b"")]), Err(E::Chunk { .. })), "NONE must be the last");
    assert!(matches!(hears(&[&chunk(1, 77, 0, b"")]), Err(E::Chunk { chunk: 77, .. })));
    assert_eq!(hears(&[&chunk(1, 0, 5, b"")]), Err(E::UnknownCookie { cookie: 5 }));
    assert_eq!(hears(&[b"\0\0\0\0"]), Err(E::ReplyMagic { found: 0 }));
    let simple = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(matches!(hears(&[&simple]), Err(E::ReplyFormat { .. })));
    // Errors: the first one counts, unknown kinds are understood, the read need not be complete.
    let error = [0, 0, 0, 5, 0, 3, b'b', b'a', b'd', 0, 0, 0, 0, 0, 0, 0, 4];
    let answer = hears(&[&chunk(0, 0x8002, 0, &error), &chunk(1, 0x8777, 0, &[0, 0, 0, 22, 0, 0])]);
    let error = answer.unwrap().unwrap().unwrap_err();
    assert_eq!((error.number, error.message.as_str(), error.offset), (5, "bad", Some(4)));
    assert_eq!(error.to_string(), "server answered EIO (5) at offset 4: bad");
    assert!(matches!(hears(&[&chunk(1, 0x8001, 0, &[0, 0, 0, 0, 0, 0])]), Err(E::Chunk { .. })), "error 0");
    assert!(matches!(hears(&[&chunk(1, 0x8001, 0, &[0, 0, 0, 5, 0, 9])]), Err(E::Chunk { .. })), "message");
}
