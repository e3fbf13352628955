//! Who is at a server's door: agents that come, go, or are refused.
use crate::places::Peer;
use crate::refusal::Refusal;
use std::net::IpAddr;

/// What happened at a server's door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attendance<'a> {
    /// An agent was let in.
    Came(&'a Peer),
    /// Its connection has ended. One that it replaces by another is not told.
    Gone(&'a Peer),
    /// An agent was refused, or its connection ended with words.
    Refused {
        /// The host that it says it is of; nobody vouches for that. `None`: it did not come to say.
        host: Option<&'a str>,
        /// Where it connected from; `None`: the unix socket.
        from: Option<IpAddr>,
        /// Why.
        code: Refusal,
        /// The same in words for people: no secret in it, and names of the agent's choice.
        text: &'a str,
    },
}
