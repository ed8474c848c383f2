//! The handshake: client flags, then options until one chooses an export or leaves.

use super::{
    CONTEXT_ID_ALLOCATION, Disconnect, Event, Exports, Parsed, Phase, ProtocolError, Session, TlsPolicy,
};
use crate::wire::{
    CONTEXT_BASE_ALLOCATION, ClientFlags, EXPORT_NAME_ZEROES, GoRequest, InfoType, MAGIC_OPTION,
    MetaContextRequest, OPTION_HEADER_BYTES, OptionCode, OptionHeader, OptionReply, OptionReplyHeader,
    PAYLOAD_BYTES_PORTABLE, STRING_BYTES_MAX,
};
use crate::{ExportInfo, Succeeds, Succession};
use std::borrow::Cow;

/// What was agreed on so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) fixed_newstyle: bool,
    pub(super) no_zeroes: bool,
    pub(super) tls: bool,
    pub(super) structured: bool,
    /// The export whose `base:allocation` context was selected.
    context_export: Option<String>,
    /// The export for which the client named its place in a succession, that, and what it was told, if anything.
    succession_export: Option<(String, Succession, Option<Succeeds>)>,
    /// The client's place in a succession, if it named one for the export that it chose, and what it was told, if anything.
    pub(super) succession: Option<(Succession, Option<Succeeds>)>,
    /// Whether block status may be asked for in the transmission phase.
    pub(super) allocation_context: bool,
}

impl Negotiated {
    /// Forgets everything but the client's flags: what was said in the clear does not count under TLS.
    pub(super) fn restart_under_tls(&mut self) {
        *self = Negotiated {
            fixed_newstyle: self.fixed_newstyle,
            no_zeroes: self.no_zeroes,
            tls: true,
            ..Negotiated::default()
        };
    }

    /// What was agreed on for another export does not hold for this one.
    pub(super) fn keep_those_of(&mut self, export: &ExportInfo) {
        self.allocation_context = self.context_export.take().is_some_and(|name| name == export.name);
        let succession = self.succession_export.take().filter(|(name, ..)| *name == export.name);
        self.succession = succession.map(|(_, succession, told)| (succession, told));
    }
}

/// How an option that did not choose an export ended.
enum Answer<'d> {
    /// Any reply but the last is already written; this is the last.
    Reply(OptionReply, &'static str),
    /// There is no such export, or it is kept from this client: which, and why.
    Refused { name: &'d str, reply: OptionReply, message: Cow<'static, str> },
    /// The export was chosen and the last reply written.
    Chosen(ExportInfo),
    /// TLS begins.
    Tls,
    /// The client leaves.
    Abort,
}

impl Session {
    /// One step of the handshake.
    pub(super) fn receive_handshake<'a>(
        &mut self,
        input: &'a [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        match self.phase {
            Phase::ClientFlags => {
                let Some(bytes) = input.first_chunk::<4>() else {
                    return Ok(Parsed { consumed: 0, event: Event::NeedMore });
                };
                self.take_client_flags(u32::from_be_bytes(*bytes))?;
                Ok(Parsed { consumed: 4, event: Event::Negotiated })
            }
            Phase::Option => self.receive_option(input, exports, output),
            Phase::SkippingOption { option, remaining } => {
                Ok(self.skip_option(input, option, remaining, output))
            }
            // The owner must upgrade first; nothing is consumed, so that nothing sent in the clear is believed.
            Phase::Tls => Ok(Parsed { consumed: 0, event: Event::UpgradeTls }),
            Phase::Closed(how) => Ok(Parsed { consumed: input.len(), event: Event::Disconnect(how) }),
            Phase::Broken(ref error) => Err(error.clone()),
            Phase::Request | Phase::Payload { .. } | Phase::SkippingPayload { .. } => {
                unreachable!("the transmission phase is handled by the caller")
            }
        }
    }

    fn take_client_flags(&mut self, found: u32) -> Result<(), ProtocolError> {
        let flags = ClientFlags(found);
        if !flags.without(ClientFlags::KNOWN).is_empty() {
            return Err(ProtocolError::ClientFlags { found, offered: ClientFlags::KNOWN.0 });
        }
        self.negotiated.fixed_newstyle = flags.contains(ClientFlags::FIXED_NEWSTYLE);
        self.negotiated.no_zeroes = flags.contains(ClientFlags::NO_ZEROES);
        self.phase = Phase::Option;
        Ok(())
    }

    fn receive_option<'a>(
        &mut self,
        input: &'a [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Parsed<'a>, ProtocolError> {
        let Some((header, rest)) = input.split_first_chunk::<OPTION_HEADER_BYTES>() else {
            return Ok(Parsed { consumed: 0, event: Event::NeedMore });
        };
        let header = OptionHeader::decode(header);
        if header.magic != MAGIC_OPTION {
            return Err(ProtocolError::OptionMagic { found: header.magic });
        }
        if self.options_seen >= self.config.options_max {
            return Err(ProtocolError::TooManyOptions { max: self.config.options_max });
        }
        let code = OptionCode::from_number(header.option);
        // A client without fixed newstyle does not expect replies: `EXPORT_NAME` is all that it can say.
        if !self.negotiated.fixed_newstyle && code != Some(OptionCode::ExportName) {
            return Err(ProtocolError::NotFixedNewstyle { option: header.option });
        }
        if header.length > self.config.option_bytes_max {
            let max = PAYLOAD_BYTES_PORTABLE;
            if code == Some(OptionCode::ExportName) || header.length > max {
                let OptionHeader { option, length, .. } = header;
                return Err(ProtocolError::OptionTooLong { option, length, max });
            }
            self.options_seen += 1;
            let skipped = self.skip_option(rest, header.option, header.length, output);
            return Ok(Parsed { consumed: OPTION_HEADER_BYTES + skipped.consumed, event: skipped.event });
        }
        let Some(data) = rest.get(..header.length as usize) else {
            return Ok(Parsed { consumed: 0, event: Event::NeedMore });
        };
        self.options_seen += 1;
        let event = match self.answer(header.option, code, data, exports, output)? {
            Answer::Reply(reply, message) => {
                say(header.option, reply, message, output);
                Event::Negotiated
            }
            Answer::Refused { name, reply, message } => {
                say(header.option, reply, &message, output);
                Event::ExportRefused { name, is_choice: code == Some(OptionCode::Go) }
            }
            Answer::Chosen(export) => {
                self.choose(&export);
                Event::ExportChosen(Box::new(export))
            }
            Answer::Tls => {
                OptionReplyHeader::encode(header.option, OptionReply::Ack.number(), 0, output);
                self.phase = Phase::Tls;
                Event::UpgradeTls
            }
            Answer::Abort => {
                OptionReplyHeader::encode(header.option, OptionReply::Ack.number(), 0, output);
                self.phase = Phase::Closed(Disconnect::Aborted);
                Event::Disconnect(Disconnect::Aborted)
            }
        };
        Ok(Parsed { consumed: OPTION_HEADER_BYTES + data.len(), event })
    }

    /// Drops data of an option that is too long; the answer follows the last byte.
    fn skip_option<'a>(
        &mut self,
        input: &[u8],
        option: u32,
        remaining: u32,
        output: &mut Vec<u8>,
    ) -> Parsed<'a> {
        let skipped = input.len().min(remaining as usize);
        let remaining = remaining - skipped as u32;
        if remaining > 0 {
            self.phase = Phase::SkippingOption { option, remaining };
            return Parsed { consumed: skipped, event: Event::NeedMore };
        }
        OptionReplyHeader::encode(option, OptionReply::ErrTooBig.number(), 0, output);
        self.phase = Phase::Option;
        Parsed { consumed: skipped, event: Event::Negotiated }
    }

    /// Answers one whole option.
    fn answer<'d>(
        &mut self,
        number: u32,
        code: Option<OptionCode>,
        data: &'d [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Answer<'d>, ProtocolError> {
        use OptionReply as Reply;
        let tls_first = self.config.tls == TlsPolicy::Required && !self.negotiated.tls;
        Ok(match code {
            Some(OptionCode::ExportName) if tls_first => return Err(ProtocolError::TlsRequired),
            Some(OptionCode::ExportName) => self.answer_export_name(data, exports, output)?,
            Some(OptionCode::Abort) => Answer::Abort,
            Some(OptionCode::StartTls) => self.answer_start_tls(data),
            _ if tls_first => Answer::Reply(Reply::ErrTlsRequired, "TLS is required here"),
            Some(OptionCode::List) => answer_list(number, data, exports, output),
            Some(OptionCode::Info | OptionCode::Go) => {
                self.answer_go(number, code == Some(OptionCode::Go), data, exports, output)
            }
            Some(OptionCode::StructuredReply) if self.config.structured_replies => {
                if data.is_empty() {
                    self.negotiated.structured = true;
                    Answer::Reply(Reply::Ack, "")
                } else {
                    Answer::Reply(Reply::ErrInvalid, "this option has no data")
                }
            }
            Some(OptionCode::ListMetaContext | OptionCode::SetMetaContext)
                if self.config.structured_replies =>
            {
                let set = code == Some(OptionCode::SetMetaContext);
                self.answer_meta_context(number, set, data, exports, output)
            }
            Some(OptionCode::Succeed) => self.answer_succeed(number, data, exports, output),
            _ => Answer::Reply(Reply::ErrUnsupported, ""),
        })
    }

    fn answer_export_name(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Answer<'static>, ProtocolError> {
        let Some(export) = parse_name(data).and_then(|name| exports.find(name)) else {
            let name = String::from_utf8_lossy(&data[..data.len().min(256)]).into_owned();
            return Err(ProtocolError::UnknownExport { name });
        };
        output.extend_from_slice(&export.size_bytes.to_be_bytes());
        output.extend_from_slice(&export.transmission_flags(self.negotiated.structured).0.to_be_bytes());
        if !self.negotiated.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(Answer::Chosen(export))
    }

    fn answer_start_tls(&mut self, data: &[u8]) -> Answer<'static> {
        if self.config.tls == TlsPolicy::Off {
            Answer::Reply(OptionReply::ErrPolicy, "TLS is not configured here")
        } else if self.negotiated.tls {
            Answer::Reply(OptionReply::ErrInvalid, "TLS is already in use")
        } else if !data.is_empty() {
            Answer::Reply(OptionReply::ErrInvalid, "this option has no data")
        } else {
            Answer::Tls
        }
    }

    fn answer_go<'d>(
        &mut self,
        number: u32,
        go: bool,
        data: &'d [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Answer<'d> {
        let Ok(request) = GoRequest::decode(data) else {
            return Answer::Reply(OptionReply::ErrInvalid, "lengths do not fit the option's data");
        };
        let export = match find(request.name, exports) {
            Ok(export) => export,
            Err(answer) => return answer,
        };
        let asks_block_size = request.asks_for(InfoType::BlockSize);
        if export.block_sizes.min > 1 && !asks_block_size {
            return Answer::Reply(
                OptionReply::ErrBlockSizeRequired,
                "ask for the block sizes and keep to them",
            );
        }
        let flags = export.transmission_flags(self.negotiated.structured);
        info(number, InfoType::Export, &[&export.size_bytes.to_be_bytes(), &flags.0.to_be_bytes()], output);
        if request.asks_for(InfoType::Name) {
            info(number, InfoType::Name, &[export.name.as_bytes()], output);
        }
        if request.asks_for(InfoType::Description) && !export.description.is_empty() {
            info(number, InfoType::Description, &[export.description.as_bytes()], output);
        }
        if asks_block_size {
            let sizes = export.block_sizes;
            let (min, max) = (sizes.min.max(1), self.advertised_block_size_max(&export));
            let fields = [&min.to_be_bytes()[..], &sizes.preferred.to_be_bytes(), &max.to_be_bytes()];
            info(number, InfoType::BlockSize, &fields, output);
        }
        if go {
            OptionReplyHeader::encode(number, OptionReply::Ack.number(), 0, output);
            Answer::Chosen(export)
        } else {
            Answer::Reply(OptionReply::Ack, "")
        }
    }

    fn answer_succeed<'d>(
        &mut self,
        number: u32,
        data: &'d [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Answer<'d> {
        self.negotiated.succession_export = None;
        let Ok((succession, name)) = Succession::decode(data) else {
            return Answer::Reply(
                OptionReply::ErrInvalid,
                "two numbers of eight bytes and flags of four are expected",
            );
        };
        let export = match find(name, exports) {
            Ok(export) => export,
            Err(answer) => return answer,
        };
        let told = export.succeeds;
        self.negotiated.succession_export = Some((export.name, succession, told));
        let Some(succeeds) = told else {
            return Answer::Reply(OptionReply::ErrUnsupported, "");
        };
        OptionReplyHeader::encode(number, OptionReply::Succeeds.number(), Succeeds::BYTES, output);
        succeeds.encode(output);
        Answer::Reply(OptionReply::Ack, "")
    }

    fn answer_meta_context<'d>(
        &mut self,
        number: u32,
        set: bool,
        data: &'d [u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Answer<'d> {
        if set {
            // The option replaces the selection, whatever comes of it.
            self.negotiated.context_export = None;
        }
        if !self.negotiated.structured {
            return Answer::Reply(OptionReply::ErrInvalid, "ask for structured replies first");
        }
        let Ok(request) = MetaContextRequest::decode(data) else {
            return Answer::Reply(OptionReply::ErrInvalid, "lengths do not fit the option's data");
        };
        let export = match find(request.name, exports) {
            Ok(export) => export,
            Err(answer) => return answer,
        };
        // Listing without a query means everything; a namespace alone matches only when listing.
        let context = CONTEXT_BASE_ALLOCATION.as_bytes();
        let matches = |query: &[u8]| query == context || (!set && query == b"base:");
        let wanted = (!set && request.query_count == 0) || request.queries().any(matches);
        if wanted && export.block_status {
            let id: u32 = if set { CONTEXT_ID_ALLOCATION } else { 0 };
            OptionReplyHeader::encode(
                number,
                OptionReply::MetaContext.number(),
                4 + context.len() as u32,
                output,
            );
            output.extend_from_slice(&id.to_be_bytes());
            output.extend_from_slice(context);
            if set {
                self.negotiated.context_export = Some(export.name);
            }
        }
        Answer::Reply(OptionReply::Ack, "")
    }
}

fn answer_list(number: u32, data: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) -> Answer<'static> {
    if !data.is_empty() {
        return Answer::Reply(OptionReply::ErrInvalid, "this option has no data");
    }
    if !exports.may_list() {
        return Answer::Reply(OptionReply::ErrPolicy, "listing exports is not allowed here");
    }
    exports.list(&mut |name, description| {
        let length = 4 + name.len() + description.len();
        OptionReplyHeader::encode(number, OptionReply::Server.number(), length as u32, output);
        output.extend_from_slice(&(name.len() as u32).to_be_bytes());
        output.extend_from_slice(name.as_bytes());
        output.extend_from_slice(description.as_bytes());
    });
    Answer::Reply(OptionReply::Ack, "")
}

/// A name as the protocol allows it: UTF-8 without NUL, at most 4,096 bytes.
fn parse_name(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

fn find<'d>(name: &'d [u8], exports: &dyn Exports) -> Result<ExportInfo, Answer<'d>> {
    if name.len() > STRING_BYTES_MAX {
        return Err(Answer::Reply(OptionReply::ErrTooBig, "an export name has at most 4096 bytes"));
    }
    let Some(name) = parse_name(name) else {
        return Err(Answer::Reply(OptionReply::ErrInvalid, "an export name is UTF-8 without NUL"));
    };
    exports.find(name).ok_or_else(|| {
        let (reply, message) = match exports.refusal(name) {
            Some(reason) => (OptionReply::ErrPolicy, reason.into()),
            None => (OptionReply::ErrUnknown, "there is no such export".into()),
        };
        Answer::Refused { name, reply, message }
    })
}

/// Appends the last reply to an option, with a message for people.
fn say(option: u32, reply: OptionReply, message: &str, output: &mut Vec<u8>) {
    OptionReplyHeader::encode(option, reply.number(), message.len() as u32, output);
    output.extend_from_slice(message.as_bytes());
}

/// Appends one piece of information.
fn info(option: u32, kind: InfoType, fields: &[&[u8]], output: &mut Vec<u8>) {
    let length = 2 + fields.iter().map(|field| field.len() as u32).sum::<u32>();
    OptionReplyHeader::encode(option, OptionReply::Info.number(), length, output);
    output.extend_from_slice(&kind.number().to_be_bytes());
    for field in fields {
        output.extend_from_slice(field);
    }
}
