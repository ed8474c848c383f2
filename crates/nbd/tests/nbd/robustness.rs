//! Rubbish and mutated conversations: no panic, bounded output, the same outcome however the bytes are cut.

use crate::support::{ClientEnd, ServerEnd, converse, everything, pieces};
use forebay_nbd::client::{self, Operation};
use forebay_nbd::server::{self, TlsPolicy};
use proptest::prelude::*;

const SIZE: u64 = 8192;

fn operations() -> Vec<(Operation, Vec<u8>)> {
    vec![
        (Operation::Write { offset: 100, length: 700, fua: true }, vec![9; 700]),
        (Operation::Read { offset: 0, length: 2000, dont_fragment: false }, Vec::new()),
        (Operation::BlockStatus { offset: 0, length: 4096, one_extent: false }, Vec::new()),
        (Operation::Write { offset: 4000, length: 50, fua: false }, vec![3; 50]),
        (Operation::Read { offset: 4000, length: 100, dont_fragment: true }, Vec::new()),
        (Operation::Flush, Vec::new()),
    ]
}

fn server(tls: TlsPolicy) -> ServerEnd {
    let config = server::Config { payload_whole_bytes_max: 600, tls, ..server::Config::default() };
    ServerEnd::new(config, vec![everything("disk", SIZE)], vec![0; SIZE as usize])
}

/// Both directions of a valid conversation.
fn valid(structured: bool) -> (Vec<u8>, Vec<u8>) {
    let config = client::Config { structured_replies: structured, ..client::Config::new("disk") };
    let mut client = ClientEnd::new(config, operations());
    let transcript = converse(&mut server(TlsPolicy::Off), &mut client, &[usize::MAX]);
    (transcript.from_client, transcript.from_server)
}

/// What a server makes of these bytes: its events, its output, its error.
fn outcome(said: &[u8], sizes: &[usize], tls: TlsPolicy) -> (Vec<String>, Vec<u8>, Option<String>) {
    let mut server = server(tls);
    let result = pieces(said, sizes).try_for_each(|piece| server.receive(piece));
    // One message's answer: the longest is a read of the whole volume in pieces, far below a list's.
    assert!(server.output_max <= 64 << 10, "{} bytes in one call", server.output_max);
    (server.log, server.output, result.err().map(|error| error.to_string()))
}

/// Changes some bytes to interesting values, at places given as fractions of the length.
fn mutate(bytes: &mut Vec<u8>, changes: &[(u16, u8, u8)]) {
    for (place, kind, value) in changes {
        if bytes.is_empty() {
            return;
        }
        let at = usize::from(*place) * bytes.len() / (1 << 16);
        match kind % 4 {
            0 => bytes[at] = *value,
            1 => bytes[at] ^= 1 << (value % 8),
            2 => drop(bytes.remove(at)),
            _ => bytes.insert(at, *value),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fragmentation_changes_nothing(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>()), 0..4),
        sizes in proptest::collection::vec(1_usize..80, 1..6),
        structured: bool,
        required: bool,
    ) {
        let (mut said, _) = valid(structured);
        mutate(&mut said, &changes);
        let tls = if required { TlsPolicy::Required } else { TlsPolicy::Off };
        let whole = outcome(&said, &[usize::MAX], tls);
        prop_assert_eq!(outcome(&said, &sizes, tls), whole.clone());
        prop_assert_eq!(outcome(&said, &[1], tls), whole);
    }

    #[test]
    fn a_server_survives_rubbish(mut rubbish in proptest::collection::vec(any::<u8>(), 0..400), prefix in 0..3_usize) {
        // Behind the client's flags, and behind a chosen export, so that rubbish gets past the first check.
        let (valid, _) = valid(true);
        let start = [0, 4, valid.len()][prefix];
        let mut said = valid[..start].to_vec();
        said.append(&mut rubbish);
        outcome(&said, &[usize::MAX], TlsPolicy::Off);
    }

    #[test]
    fn a_client_survives_mutated_servers(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>()), 0..4),
        sizes in proptest::collection::vec(1_usize..80, 1..6),
        structured: bool,
    ) {
        let (_, mut heard) = valid(structured);
        mutate(&mut heard, &changes);
        let listen = |sizes: &[usize]| {
            let config = client::Config { structured_replies: structured, ..client::Config::new("disk") };
            let mut client = ClientEnd::new(config, operations());
            let result = pieces(&heard, sizes).try_for_each(|piece| client.receive(piece));
            (client.done, client.data, client.extents, result.err().map(|error| error.to_string()))
        };
        let whole = listen(&[usize::MAX]);
        if changes.is_empty() {
            prop_assert!(whole.3.is_none() && whole.0.len() >= 4);
        }
        let cut = listen(&sizes);
        prop_assert_eq!(&cut.0, &whole.0);
        // A chunk of extents is judged as it comes: what was told before the mistake depends on the cut.
        if whole.3.is_none() {
            prop_assert_eq!(cut, whole);
        } else {
            prop_assert!(cut.3.is_some());
        }
    }

    #[test]
    fn a_client_survives_rubbish(rubbish in proptest::collection::vec(any::<u8>(), 0..400), at in 0..=65535_u32) {
        let (_, heard) = valid(true);
        let mut heard = heard[..heard.len() * at as usize / 65536].to_vec();
        heard.extend_from_slice(&rubbish);
        let mut client = ClientEnd::new(client::Config::new("disk"), operations());
        let _ = client.receive(&heard);
    }
}
