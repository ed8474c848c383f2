//! The handshake as a client: TLS, structured replies, metadata context, succession, then `GO` or its older sister.

use super::{Event, Goal, Parsed, Phase, ProtocolError, Receiving, Session};
use crate::server::TlsPolicy;
use crate::wire::{
    CONTEXT_BASE_ALLOCATION, ClientFlags, EXPORT_NAME_ZEROES, GREETING_BYTES, GoRequest, HandshakeFlags,
    InfoType, MAGIC_OLDSTYLE, MAGIC_OPTION, MAGIC_OPTION_REPLY, MAGIC_SERVER, MetaContextRequest,
    OPTION_REPLY_HEADER_BYTES, OptionCode, OptionHeader, OptionReply, OptionReplyHeader, Reader,
    STRING_BYTES_MAX, TransmissionFlags, Truncated,
};
use crate::{BlockSizes, Succeeds};
use forebay_units::printable;

/// Metadata contexts that a list may have (ours).
const CONTEXTS_MAX: u32 = 1024;

/// What a server told of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its canonical name if the server said one, else the name that was asked for.
    pub name: String,
    /// For people; empty if the server said none.
    pub description: String,
    /// Size in bytes, at most 2^63 - 1.
    pub size_bytes: u64,
    /// What it offers.
    pub flags: TransmissionFlags,
    /// Its units; the protocol's defaults if the server said none.
    pub block_sizes: BlockSizes,
    /// Whether replies to reads are structured.
    pub structured_replies: bool,
    /// Whether block status may be asked for.
    pub block_status: bool,
    /// Who begins what comes here once everything is over that came on earlier connections of the succession. `None`: nothing is known of that.
    pub succeeds: Option<Succeeds>,
}

impl Export {
    pub(super) fn unknown(name: &str) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size_bytes: 0,
            flags: TransmissionFlags::NONE,
            block_sizes: BlockSizes::default(),
            structured_replies: false,
            block_status: false,
            succeeds: None,
        }
    }
}

/// The option whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    StartTls,
    StructuredReply,
    ListContexts,
    MetaContext,
    Succeed,
    List,
    Info,
    Go,
}

impl Step {
    const fn option(self) -> OptionCode {
        match self {
            Step::StartTls => OptionCode::StartTls,
            Step::StructuredReply => OptionCode::StructuredReply,
            Step::ListContexts => OptionCode::ListMetaContext,
            Step::MetaContext => OptionCode::SetMetaContext,
            Step::Succeed => OptionCode::Succeed,
            Step::List => OptionCode::List,
            Step::Info => OptionCode::Info,
            Step::Go => OptionCode::Go,
        }
    }
}

impl Session {
    pub(super) fn receive_greeting<'a>(
        &mut self,
        input: &'a [u8],
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        // Each magic number is judged as soon as it is there: a stranger may never send the rest.
        let mut reader = Reader::new(input);
        let Ok(found) = reader.u64() else {
            return Ok(need_more());
        };
        if found != MAGIC_SERVER {
            return Err(ProtocolError::ServerMagic { found });
        }
        let Ok(found) = reader.u64() else {
            return Ok(need_more());
        };
        match found {
            MAGIC_OPTION => {}
            MAGIC_OLDSTYLE => return Err(ProtocolError::Oldstyle),
            _ => return Err(ProtocolError::GreetingMagic { found }),
        }
        let Ok(flags) = reader.u16().map(HandshakeFlags) else {
            return Ok(need_more());
        };
        let fixed = flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        self.check_config(fixed)?;
        self.no_zeroes = flags.contains(HandshakeFlags::NO_ZEROES);
        let reply = ClientFlags::NONE
            .with_if(fixed, ClientFlags::FIXED_NEWSTYLE)
            .with_if(self.no_zeroes, ClientFlags::NO_ZEROES);
        output.extend_from_slice(&reply.0.to_be_bytes());
        if !fixed {
            self.ask_export_name(output);
        } else if self.config.tls == TlsPolicy::Off {
            self.after_tls(output);
        } else {
            self.ask(Step::StartTls, &[], output);
        }
        Ok(Parsed { consumed: GREETING_BYTES, event: Event::Progress })
    }

    fn check_config(&self, fixed: bool) -> Result<(), ProtocolError> {
        if self.config.export.len() > STRING_BYTES_MAX {
            return Err(ProtocolError::NameTooLong { bytes: self.config.export.len() });
        }
        let needed = match (self.config.tls, self.config.goal) {
            (TlsPolicy::Required, _) => "TLS",
            (_, Goal::List) => "listing exports",
            (_, Goal::Describe) => "describing an export",
            (_, Goal::Use) => return Ok(()),
        };
        if fixed { Ok(()) } else { Err(ProtocolError::NotFixedNewstyle { needed }) }
    }

    /// The first option behind the question of TLS.
    pub(super) fn after_tls(&mut self, output: &mut Vec<u8>) {
        if self.config.goal == Goal::List {
            self.ask(Step::List, &[], output);
        } else if self.config.structured_replies {
            self.ask(Step::StructuredReply, &[], output);
        } else {
            self.ask_for_export(output);
        }
    }

    fn ask(&mut self, step: Step, data: &[u8], output: &mut Vec<u8>) {
        OptionHeader::encode(step.option().number(), data.len() as u32, output);
        output.extend_from_slice(data);
        self.phase = Phase::Option(step);
    }

    /// What contexts there are, of which nobody would be told anything, is asked by who describes the export only.
    fn ask_contexts(&mut self, output: &mut Vec<u8>) {
        if !self.config.block_status {
            return self.ask_for_export(output);
        }
        let mut data = Vec::new();
        if self.config.goal == Goal::Describe && self.contexts_listed.is_none() {
            self.contexts_listed = Some(0);
            MetaContextRequest::encode(&self.config.export, &[], &mut data);
            return self.ask(Step::ListContexts, &data, output);
        }
        MetaContextRequest::encode(&self.config.export, &[CONTEXT_BASE_ALLOCATION], &mut data);
        self.ask(Step::MetaContext, &data, output);
    }

    fn ask_for_export(&mut self, output: &mut Vec<u8>) {
        let mut data = Vec::new();
        if let Some(succession) = self.config.succession
            && self.config.goal == Goal::Use
            && !self.has_asked_to_succeed
        {
            self.has_asked_to_succeed = true;
            succession.encode(&self.config.export, &mut data);
            return self.ask(Step::Succeed, &data, output);
        }
        let infos = [InfoType::Name, InfoType::Description, InfoType::BlockSize];
        GoRequest::encode(&self.config.export, &infos, &mut data);
        let step = if self.config.goal == Goal::Describe { Step::Info } else { Step::Go };
        self.ask(step, &data, output);
    }

    fn ask_export_name(&mut self, output: &mut Vec<u8>) {
        let name = &self.config.export;
        OptionHeader::encode(OptionCode::ExportName.number(), name.len() as u32, output);
        output.extend_from_slice(name.as_bytes());
        self.phase = Phase::ExportName;
    }

    /// Says goodbye during option haggling.
    fn leave(&mut self, output: &mut Vec<u8>) {
        OptionHeader::encode(OptionCode::Abort.number(), 0, output);
        self.phase = Phase::Closed;
    }

    pub(super) fn receive_option_reply<'a>(
        &mut self,
        step: Step,
        input: &'a [u8],
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let Some((header, rest)) = input.split_first_chunk::<OPTION_REPLY_HEADER_BYTES>() else {
            return Ok(need_more());
        };
        let header = OptionReplyHeader::decode(header);
        if header.magic != MAGIC_OPTION_REPLY {
            return Err(ProtocolError::OptionReplyMagic { found: header.magic });
        }
        let expected = step.option().number();
        if header.option != expected {
            return Err(ProtocolError::OptionMismatch { found: header.option, expected });
        }
        if header.length > self.config.reply_bytes_max {
            let (found, max) = (u64::from(header.length), u64::from(self.config.reply_bytes_max));
            return Err(ProtocolError::TooLarge { what: "option reply (bytes)", found, max });
        }
        let Some(data) = rest.get(..header.length as usize) else {
            return Ok(need_more());
        };
        let event = if OptionReply::is_error(header.reply) {
            self.take_refusal(step, header.reply, data, output)?
        } else {
            self.take_answer(step, header.reply, data, output)?
        };
        Ok(Parsed { consumed: OPTION_REPLY_HEADER_BYTES + data.len(), event })
    }

    /// An error: some options can be done without.
    fn take_refusal(
        &mut self,
        step: Step,
        reply: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Event<'static>, ProtocolError> {
        let unsupported = reply == OptionReply::ErrUnsupported.number();
        match step {
            Step::StartTls if self.config.tls == TlsPolicy::Allowed => self.after_tls(output),
            Step::ListContexts if reply != OptionReply::ErrTlsRequired.number() => self.ask_contexts(output),
            Step::StructuredReply | Step::MetaContext | Step::Succeed
                if reply != OptionReply::ErrTlsRequired.number() =>
            {
                match step {
                    Step::MetaContext => self.context_id = None,
                    Step::Succeed => self.export.succeeds = None,
                    _ => {}
                }
                self.ask_for_export(output);
            }
            Step::Go if unsupported => self.ask_export_name(output),
            _ => {
                let message = printable(&String::from_utf8_lossy(&data[..data.len().min(STRING_BYTES_MAX)]));
                return Err(ProtocolError::Refused { option: step.option().number(), reply, message });
            }
        }
        Ok(Event::Progress)
    }

    fn take_answer(
        &mut self,
        step: Step,
        reply: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Event<'static>, ProtocolError> {
        let option = step.option().number();
        let malformed = |detail| ProtocolError::OptionReplyData { option, reply, detail };
        let known = OptionReply::from_number(reply);
        if known == Some(OptionReply::Ack) && !data.is_empty() {
            return Err(malformed("an acknowledgement has no data"));
        }
        match (step, known) {
            (Step::StartTls, Some(OptionReply::Ack)) => {
                self.phase = Phase::Tls;
                return Ok(Event::UpgradeTls);
            }
            (Step::StructuredReply, Some(OptionReply::Ack)) => {
                self.structured = true;
                self.ask_contexts(output);
            }
            (Step::ListContexts, Some(OptionReply::MetaContext)) => {
                let listed = self.contexts_listed.unwrap_or(0) + 1;
                self.contexts_listed = Some(listed);
                if listed > CONTEXTS_MAX {
                    let (found, max) = (u64::from(listed), u64::from(CONTEXTS_MAX));
                    return Err(ProtocolError::TooLarge { what: "list of metadata contexts", found, max });
                }
                let mut reader = Reader::new(data);
                reader.u32().map_err(|_| malformed("a context has an id of four bytes"))?;
                let name = String::from_utf8(reader.take_rest().to_vec());
                return Ok(Event::Context { name: name.map_err(|_| malformed("name is not UTF-8"))? });
            }
            (Step::ListContexts, Some(OptionReply::Ack)) => self.ask_contexts(output),
            (Step::MetaContext, Some(OptionReply::MetaContext)) => {
                let mut reader = Reader::new(data);
                let id = reader.u32().map_err(|_| malformed("a context has an id of four bytes"))?;
                if reader.take_rest() != CONTEXT_BASE_ALLOCATION.as_bytes() || self.context_id.is_some() {
                    return Err(malformed("only `base:allocation` was asked for, and once"));
                }
                self.context_id = Some(id);
            }
            (Step::MetaContext | Step::Succeed, Some(OptionReply::Ack)) => self.ask_for_export(output),
            (Step::Succeed, Some(OptionReply::Succeeds)) => {
                let succeeds =
                    Succeeds::decode(data).map_err(|_| malformed("three numbers have eight bytes each"))?;
                self.export.succeeds = Some(succeeds);
            }
            (Step::List, Some(OptionReply::Server)) => {
                let max = self.config.exports_max;
                if self.exports_listed >= max {
                    let found = u64::from(max) + 1;
                    return Err(ProtocolError::TooLarge {
                        what: "list of exports",
                        found,
                        max: u64::from(max),
                    });
                }
                self.exports_listed += 1;
                let (name, rest) =
                    split_server(data).map_err(|_| malformed("name is longer than the reply"))?;
                let name = String::from_utf8(name.to_vec()).map_err(|_| malformed("name is not UTF-8"))?;
                return Ok(Event::Listed { name, description: printable(&String::from_utf8_lossy(rest)) });
            }
            (Step::List, Some(OptionReply::Ack)) => {
                self.leave(output);
                return Ok(Event::Closed);
            }
            (Step::Info | Step::Go, Some(OptionReply::Info)) => {
                self.take_info(data).map_err(|_| malformed("information is too short for its type"))?;
            }
            (Step::Info | Step::Go, Some(OptionReply::Ack)) => {
                if !self.has_export_info {
                    return Err(ProtocolError::NoExportInfo);
                }
                self.check_export()?;
                if step == Step::Info {
                    self.leave(output);
                    return Ok(Event::Described(self.export.clone()));
                }
                self.phase = Phase::Replies(Receiving::Header);
                return Ok(Event::Ready(self.export.clone()));
            }
            _ => return Err(ProtocolError::OptionReply { option, reply }),
        }
        Ok(Event::Progress)
    }

    /// One piece of information; kinds that we do not know are not looked at, as the protocol demands.
    fn take_info(&mut self, data: &[u8]) -> Result<(), Truncated> {
        let mut reader = Reader::new(data);
        match InfoType::from_number(reader.u16()?) {
            Some(InfoType::Export) => {
                self.export.size_bytes = reader.u64()?;
                self.export.flags = TransmissionFlags(reader.u16()?);
                self.has_export_info = true;
            }
            Some(InfoType::Name) => {
                self.export.name = String::from_utf8_lossy(reader.take_rest()).into_owned();
            }
            Some(InfoType::Description) => {
                self.export.description = printable(&String::from_utf8_lossy(reader.take_rest()));
            }
            Some(InfoType::BlockSize) => {
                self.export.block_sizes =
                    BlockSizes { min: reader.u32()?, preferred: reader.u32()?, max: reader.u32()? };
            }
            None => return Ok(()),
        }
        if reader.left() > 0 { Err(Truncated { needed: 0, left: reader.left() }) } else { Ok(()) }
    }

    pub(super) fn receive_export_name<'a>(&mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let consumed = 10 + if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
        if input.len() < consumed {
            return Ok(need_more());
        }
        let mut reader = Reader::new(input);
        let (Ok(size_bytes), Ok(flags)) = (reader.u64(), reader.u16()) else {
            return Ok(need_more());
        };
        self.export = Export::unknown(&self.config.export);
        self.export.size_bytes = size_bytes;
        self.export.flags = TransmissionFlags(flags);
        self.check_export()?;
        self.phase = Phase::Replies(Receiving::Header);
        Ok(Parsed { consumed, event: Event::Ready(self.export.clone()) })
    }

    /// Checks what the server said, and adds what was agreed on.
    fn check_export(&mut self) -> Result<(), ProtocolError> {
        let export = &mut self.export;
        let max = i64::MAX as u64;
        if export.size_bytes > max {
            return Err(ProtocolError::TooLarge {
                what: "export size (bytes)",
                found: export.size_bytes,
                max,
            });
        }
        // Looser than the rules for servers: a preferred size below 512 hurts nobody.
        let sizes = export.block_sizes;
        let sane = sizes.min.is_power_of_two()
            && sizes.min <= 1 << 16
            && sizes.preferred.is_power_of_two()
            && sizes.preferred >= sizes.min
            && sizes.max >= sizes.min;
        if !sane {
            return Err(ProtocolError::BlockSizes(sizes));
        }
        export.structured_replies = self.structured;
        export.block_status = self.context_id.is_some();
        Ok(())
    }
}

const fn need_more() -> Parsed<'static> {
    Parsed { consumed: 0, event: Event::NeedMore }
}

/// Name and description of a `NBD_REP_SERVER`.
fn split_server(data: &[u8]) -> Result<(&[u8], &[u8]), Truncated> {
    let mut reader = Reader::new(data);
    let length = reader.u32()?;
    let name = reader.take(length as usize)?;
    Ok((name, reader.take_rest()))
}
