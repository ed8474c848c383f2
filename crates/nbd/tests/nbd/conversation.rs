//! Our client and our server understand each other, whatever is asked and however the bytes are cut.

use crate::support::{ClientEnd, ServerEnd, converse, everything};
use forebay_nbd::client::{self, Goal, Operation, SubmitError};
use forebay_nbd::server::{self, TlsPolicy};
use forebay_nbd::wire::{AllocationFlags, Extent, TransmissionFlags};
use forebay_nbd::{BlockSizes, ExportInfo};
use proptest::prelude::*;

const SIZE: u64 = 16 << 10;

fn server_with(export: ExportInfo) -> ServerEnd {
    let config = server::Config { payload_whole_bytes_max: 600, ..server::Config::default() };
    let volume = vec![0; export.size_bytes as usize];
    ServerEnd::new(config, vec![export], volume)
}

fn operations() -> impl Strategy<Value = (Operation, Vec<u8>)> {
    let range = (0..SIZE).prop_flat_map(|offset| (Just(offset), 1..=(SIZE - offset).min(3000) as u32));
    (0..7_u8, range, any::<bool>(), any::<bool>(), any::<u8>()).prop_map(
        |(kind, (offset, length), a, b, byte)| {
            let operation = match kind {
                0 => Operation::Read { offset, length, dont_fragment: a },
                1 => Operation::Write { offset, length, fua: a },
                2 => Operation::Flush,
                3 => Operation::Trim { offset, length, fua: a },
                4 => Operation::WriteZeroes { offset, length, fua: a, no_hole: b, fast_zero: a ^ b },
                5 => Operation::Cache { offset, length },
                _ => Operation::BlockStatus { offset, length, one_extent: a },
            };
            let data = if kind == 1 {
                (0..length).map(|i| byte.wrapping_add(i as u8)).collect()
            } else {
                Vec::new()
            };
            (operation, data)
        },
    )
}

/// The naive volume: does one operation, says what a client must be told.
fn model(volume: &mut [u8], operation: Operation, data: &[u8]) -> Vec<u8> {
    match operation {
        Operation::Read { offset, length, .. } => {
            return volume[offset as usize..][..length as usize].to_vec();
        }
        Operation::Write { offset, length, .. } => {
            volume[offset as usize..][..length as usize].copy_from_slice(data);
        }
        Operation::Trim { offset, length, .. } | Operation::WriteZeroes { offset, length, .. } => {
            volume[offset as usize..][..length as usize].fill(0);
        }
        _ => {}
    }
    Vec::new()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_volume_behind_the_protocol_is_a_volume(
        operations in proptest::collection::vec(operations(), 1..24),
        sizes in proptest::collection::vec(1_usize..900, 1..6),
        structured: bool,
        contexts: bool,
    ) {
        let mut server = server_with(everything("disk", SIZE));
        let config = client::Config {
            structured_replies: structured,
            block_status: contexts,
            ..client::Config::new("disk")
        };
        let mut client = ClientEnd::new(config, operations.clone());
        converse(&mut server, &mut client, &sizes);

        let export = client.export.clone().expect("the export opens");
        prop_assert_eq!(export.structured_replies, structured);
        prop_assert_eq!(export.block_status, structured && contexts);
        let mut volume = vec![0; SIZE as usize];
        for (cookie, (operation, data)) in operations.iter().enumerate() {
            let cookie = cookie as u64;
            let unfragmented = matches!(operation, Operation::Read { dont_fragment: true, .. });
            let status = matches!(operation, Operation::BlockStatus { .. });
            if (unfragmented && !structured) || (status && !export.block_status) {
                prop_assert!(!client.done.contains_key(&cookie));
                continue;
            }
            let expected = model(&mut volume, *operation, data);
            prop_assert_eq!(client.done.get(&cookie), Some(&Ok(())));
            prop_assert_eq!(client.bytes_of(cookie), expected);
            if let Operation::BlockStatus { offset, length, one_extent } = *operation {
                let extents = &client.extents[&cookie];
                let described: u64 = extents.iter().map(|extent| u64::from(extent.length)).sum();
                let complete = described == u64::from(length);
                prop_assert!(complete || (one_extent && extents.len() == 1));
                prop_assert!(!one_extent || extents.len() == 1);
                let zero = extents[0].flags == AllocationFlags::ZERO;
                let piece = &volume[offset as usize..][..extents[0].length as usize];
                prop_assert!(piece.iter().all(|byte| (*byte == 0) == zero));
            }
        }
        prop_assert_eq!(&server.volume, &volume);
        prop_assert_eq!(client.session.outstanding_count(), 0);
    }
}

#[test]
fn go_tells_everything_about_an_export() {
    let mut export = everything("disk", SIZE);
    export.block_sizes = BlockSizes { min: 512, preferred: 8192, max: 1 << 30 };
    let flags = export.transmission_flags(true);
    let mut server = server_with(export);
    let mut client = ClientEnd::new(client::Config::new(""), Vec::new());
    converse(&mut server, &mut client, &[3]);
    let told = client.export.expect("the default export is the first");
    assert_eq!((told.name.as_str(), told.description.as_str()), ("disk", "all of disk"));
    assert_eq!((told.size_bytes, told.flags), (SIZE, flags));
    assert!(told.flags.contains(TransmissionFlags::CAN_MULTI_CONN.with(TransmissionFlags::ROTATIONAL)));
    // The server's own limit on payloads, 32 MiB, is below the export's wish.
    assert_eq!(told.block_sizes, BlockSizes { min: 512, preferred: 8192, max: 32 << 20 });

    // The client refuses by itself what this server would refuse.
    let mut output = Vec::new();
    let session = &mut client.session;
    let mut read = |offset, length| {
        session.submit(1, Operation::Read { offset, length, dont_fragment: false }, &mut output)
    };
    assert_eq!(read(100, 512), Err(SubmitError::Unaligned { offset: 100, length: 512, block_size_min: 512 }));
    assert!(matches!(read(u64::MAX - 511, 1024), Err(SubmitError::Range { .. })));
    assert!(matches!(read(0, 0), Err(SubmitError::Range { .. })));
    assert_eq!(read(0, 512), Ok(()));
    assert_eq!(read(0, 512), Err(SubmitError::CookieInUse { cookie: 1 }));
    assert_eq!(output.len(), 28, "refused requests leave no bytes");
}

#[test]
fn thousands_of_exports_are_listed() {
    let exports: Vec<_> = (0..5000).map(|i| everything(&format!("volume-{i}"), SIZE)).collect();
    let names: Vec<_> = exports.iter().map(|e| (e.name.clone(), e.description.clone())).collect();
    let mut server = ServerEnd::new(server::Config::default(), exports, Vec::new());
    let config = client::Config { goal: Goal::List, ..client::Config::new("") };
    let mut client = ClientEnd::new(config, Vec::new());
    converse(&mut server, &mut client, &[1000, 7]);
    assert_eq!(client.listed, names);
    assert!(client.closed && server.closed);
}

#[test]
fn describing_leaves_without_opening() {
    let mut server = server_with(everything("disk", SIZE));
    let config = client::Config { goal: Goal::Describe, ..client::Config::new("disk") };
    let mut client = ClientEnd::new(config, Vec::new());
    converse(&mut server, &mut client, &[11]);
    assert_eq!(client.contexts, ["base:allocation"]);
    let described = client.described.expect("it was asked for");
    assert!(described.size_bytes == SIZE && described.block_status);
    assert!(client.closed && server.closed && client.export.is_none());
    assert!(!server.session.is_transmitting());
}

#[test]
fn tls_policies_meet() {
    use TlsPolicy::{Allowed, Off, Required};
    // Server, client; whether the export opens, and whether under TLS.
    for (at_server, at_client, expected) in [
        (Off, Off, Some(false)),
        (Off, Allowed, Some(false)),
        (Off, Required, None),
        (Allowed, Off, Some(false)),
        (Allowed, Allowed, Some(true)),
        (Required, Off, None),
        (Required, Allowed, Some(true)),
        (Required, Required, Some(true)),
    ] {
        let config = server::Config { tls: at_server, ..server::Config::default() };
        let mut server = ServerEnd::new(config, vec![everything("disk", SIZE)], Vec::new());
        let config = client::Config { tls: at_client, ..client::Config::new("disk") };
        let mut client = ClientEnd::new(config, Vec::new());
        let mut refused = false;
        while !refused && client.export.is_none() {
            refused = client.receive(&std::mem::take(&mut server.output)).is_err();
            server.receive(&std::mem::take(&mut client.output)).expect("the client keeps the protocol");
        }
        let found = client.export.map(|_| client.session.is_tls());
        assert_eq!(found, expected, "server {at_server:?}, client {at_client:?}");
        assert!(refused || server.session.is_tls() == client.session.is_tls());
    }
}

#[test]
fn what_was_agreed_in_the_clear_does_not_hold_under_tls() {
    use forebay_nbd::wire::OptionHeader;
    let config = server::Config { tls: TlsPolicy::Allowed, ..server::Config::default() };
    let mut output = Vec::new();
    let mut session = server::Session::new(config, &mut output);
    let mut said = 3_u32.to_be_bytes().to_vec();
    OptionHeader::encode(8, 0, &mut said);
    OptionHeader::encode(5, 0, &mut said);
    let exports = vec![everything("disk", SIZE)];
    let mut at = 0;
    loop {
        let parsed = session.receive(&said[at..], &exports, &mut output).expect("a valid start");
        at += parsed.consumed;
        if parsed.event == server::Event::UpgradeTls {
            break;
        }
    }
    assert_eq!(session.reply_format(), server::ReplyFormat::Structured);
    // Bytes in the clear behind the option are not looked at before the upgrade.
    let injected = session.receive(b"injected", &exports, &mut output).expect("waits for TLS");
    assert_eq!((injected.consumed, injected.event), (0, server::Event::UpgradeTls));
    session.tls_established();
    assert_eq!(session.reply_format(), server::ReplyFormat::Simple);
}

#[test]
fn a_payload_may_be_received_by_the_owner() {
    let mut server = server_with(everything("disk", SIZE));
    let write = (Operation::Write { offset: 0, length: 2000, fua: false }, Vec::new());
    let mut client = ClientEnd::new(client::Config::new("disk"), vec![write]);
    // Only the header travels: 2,000 bytes are above the 600 that this server takes in one piece.
    converse(&mut server, &mut client, &[100]);
    assert_eq!(server.session.payload_wanted(), 2000);
    server.receive_aside(&[7; 1500]);
    server.receive(&[8; 500]).expect("the rest in the common buffer");
    assert_eq!(server.session.payload_wanted(), 0);
    converse(&mut server, &mut client, &[100]);
    assert_eq!(client.done.get(&0), Some(&Ok(())));
    assert_eq!((server.volume[1499], server.volume[1500], server.volume[2000]), (7, 8, 0));
}

#[test]
fn a_read_may_be_received_by_the_owner() {
    let mut server = server_with(everything("disk", SIZE));
    let read = (Operation::Read { offset: 512, length: 1024, dont_fragment: true }, Vec::new());
    let mut client = ClientEnd::new(client::Config::new("disk"), vec![read]);
    while client.export.is_none() {
        client.receive(&std::mem::take(&mut server.output)).expect("a valid handshake");
        server.receive(&std::mem::take(&mut client.output)).expect("a valid handshake");
    }
    // 28 bytes of header and 10 of data through the session, the rest by the owner.
    client.receive(&server.output[..38]).expect("a valid reply");
    assert_eq!(client.session.data_wanted(), Some((0, 522, 1014)));
    client.session.data_received(1014);
    assert!(client.done.is_empty());
    client.receive(&[]).expect("the completion needs no byte");
    assert_eq!(client.done.get(&0), Some(&Ok(())));
}

#[test]
fn extents_reach_the_client_in_order() {
    let mut server = server_with(everything("disk", SIZE));
    server.volume[4096..8192].fill(1);
    let status = (Operation::BlockStatus { offset: 0, length: SIZE as u32, one_extent: false }, Vec::new());
    let mut client = ClientEnd::new(client::Config::new("disk"), vec![status]);
    converse(&mut server, &mut client, &[5]);
    let zero = AllocationFlags::ZERO;
    assert_eq!(
        client.extents[&0],
        [
            Extent { length: 4096, flags: zero },
            Extent { length: 4096, flags: AllocationFlags::NONE },
            Extent { length: 8192, flags: zero },
        ]
    );
}
