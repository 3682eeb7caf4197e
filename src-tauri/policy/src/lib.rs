//! Text in, decision out: reads policy files and kits, and answers what a task may do.
//!
//! Invariant: nothing here reads a file, a clock, the environment or a socket; what is embedded is embedded at build time.
//!
//! [`load`] is the whole way from a task's [`model::run::PolicyText`] to a [`Policy`]; [`decide`] answers one request.

mod attach;
mod credential;
mod decide;
mod explain;
mod files;
mod host;
mod http;
mod kit;
mod layer;
mod leads;
mod limits;
mod network;
mod place;
mod preset;
mod problem;
mod proxy;
mod read;
mod sections;
mod source;
mod unit;
mod variables;

pub use attach::{Attach, Scope, TokenEndpoint};
pub use credential::{Credential, Source};
pub use decide::{Answer, Cap, Request, answer, decide};
pub use explain::{explain, show};
pub use host::{BadHost, Destination, Host, HostPattern, Target};
pub use http::{BadRequest, HttpRequest, PathPattern, Requests};
pub use kit::{Form, Kit, Program, kit, kits};
pub use layer::{Narrowing, layer, load, parse_repository};
pub use leads::{Leads, Range};
pub use limits::{Limit, Limits};
pub use network::{Ecosystems, Inside, Network, Ports, Rule};
pub use place::{HostPath, holds_credentials};
pub use preset::{preset, presets};
pub use problem::Problem;
pub use proxy::{Direct, Proxy, ProxyAddress, ProxyForm};
pub use source::{Env, Files, Hidden, NotInForce, Policy, Tools, parse};
pub use unit::{duration, show_duration};
