//! Answers questions for names, without asking anybody.

use crate::arbiter::{Arbiter, Fact, Limits};
use crate::gate::{Gate, Lookup};
use crate::record::Recorder;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use model::event::Process;
use model::path::RawPath;
use policy::{BadHost, Host, Policy};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Seconds that an answer holds. A name keeps its address for the run, so it may be long; short keeps resolvers honest after one.
const TTL: u32 = 60;

/// An owner that hears each fact, and has no connections.
struct Hears<F>(F);

impl<F: Fn(Fact) + Send + Sync + 'static> Arbiter for Hears<F> {
    fn announced(&self, _: SocketAddr) -> Option<Process> {
        None
    }

    fn record(&self, fact: Fact) {
        (self.0)(fact);
    }
}

/// What a new run answers to one packet, and tells `heard` of it. It opens no socket: the way from hostile bytes to an answer, for
/// whoever wants to try it.
pub fn answered(policy: Arc<Policy>, packet: &[u8], heard: impl Fn(Fact) + Send + Sync + 'static) -> Option<Vec<u8>> {
    let gate = Gate::new(policy, Limits::default().names, Recorder::new(Arc::new(Hears(heard))));
    answer(&gate, packet)
}

/// The answer to a packet; [`None`] where it deserves none.
pub(crate) fn answer(gate: &Gate, packet: &[u8]) -> Option<Vec<u8>> {
    let [a, b, flags, ..] = packet else { return None };
    if packet.len() < 12 || flags & 0x80 != 0 {
        return None;
    }
    let Ok(asked) = Message::from_vec(packet) else {
        let id = u16::from_be_bytes([*a, *b]);
        return Message::error_msg(id, OpCode::Query, ResponseCode::FormErr).to_vec().ok();
    };
    if asked.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut out = Message::response(asked.metadata.id, asked.metadata.op_code);
    out.metadata.recursion_desired = asked.metadata.recursion_desired;
    out.metadata.recursion_available = true;
    out.metadata.response_code = match (asked.metadata.op_code, asked.queries.as_slice()) {
        (OpCode::Query, [query]) => {
            out.add_query(query.clone());
            let (code, records) = question(gate, query);
            out.add_answers(records.into_iter().map(|data| Record::from_rdata(query.name().clone(), TTL, data)));
            code
        }
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    out.to_vec().ok()
}

fn question(gate: &Gate, query: &Query) -> (ResponseCode, Option<RData>) {
    const NOTHING: (ResponseCode, Option<RData>) = (ResponseCode::NoError, None);
    const NO_SUCH_NAME: (ResponseCode, Option<RData>) = (ResponseCode::NXDomain, None);
    if query.query_class() != DNSClass::IN {
        return (ResponseCode::Refused, None);
    }
    let (name, kind) = (query.name(), query.query_type());
    if kind == RecordType::PTR {
        return pointer(gate, name).map_or(NO_SUCH_NAME, |n| (ResponseCode::NoError, Some(RData::PTR(PTR(n)))));
    }
    let address = matches!(kind, RecordType::A | RecordType::AAAA);
    // Only names of services have labels with an underscore, and services are never asked for an address.
    let labels = name.iter().skip_while(|l| !address && l.starts_with(b"_"));
    let host = match Host::from_labels(labels) {
        Ok(h) => h,
        Err(why) => {
            if !(name.is_root() && why == BadHost::Empty) {
                let shown: Vec<u8> = name.iter().collect::<Vec<_>>().join(&b'.');
                gate.malformed(RawPath(shown).to_string(), why.to_string(), kind);
            }
            return NO_SUCH_NAME;
        }
    };
    if host.is_localhost() {
        return match kind {
            RecordType::A => (ResponseCode::NoError, Some(RData::A(Ipv4Addr::LOCALHOST.into()))),
            RecordType::AAAA => (ResponseCode::NoError, Some(RData::AAAA(Ipv6Addr::LOCALHOST.into()))),
            _ => NOTHING,
        };
    }
    if !address {
        return if gate.knows(&host, kind) { NOTHING } else { NO_SUCH_NAME };
    }
    match gate.lookup(&host, kind) {
        Lookup::Refused => NO_SUCH_NAME,
        Lookup::Full => (ResponseCode::ServFail, None),
        Lookup::Given(v4, _) if kind == RecordType::A => (ResponseCode::NoError, Some(RData::A(v4.into()))),
        Lookup::Given(_, v6) => (ResponseCode::NoError, Some(RData::AAAA(v6.into()))),
    }
}

/// The name of an address that this run gave out.
fn pointer(gate: &Gate, name: &Name) -> Option<Name> {
    let net = name.parse_arpa_name().ok().filter(|n| n.prefix_len() == n.max_prefix_len())?;
    let ip: IpAddr = net.addr();
    if ip.is_loopback() {
        return Name::from_ascii("localhost.").ok();
    }
    gate.name_of(ip).and_then(|h| Name::from_ascii(format!("{h}.")).ok())
}
