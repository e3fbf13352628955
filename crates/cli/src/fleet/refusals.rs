//! Agents that the server refuses: which, from where, why, and what lets them in.
use super::finding::Finding;
use crate::check::Grade;
use crate::told::age;
use mycroft_record::NANOS_PER_SEC;
use mycroft_record::text::printable_within;
use mycroft_serve::api::{FleetJson, RefusalJson};
use std::collections::BTreeMap;

/// An agent that is refused comes again every two seconds: one that has not come for so long has stopped, nanoseconds.
const LATELY_NS: u64 = 3600 * NANOS_PER_SEC;
/// Agents that are named for one reason.
const NAMED: usize = 8;
/// Of a name, an address or a reason, what is shown, characters.
const SHOWN_CHARS: usize = 128;

/// One for each reason. Nobody vouches for the names, so none of these hosts counts as ill.
pub(super) fn findings(fleet: &FleetJson) -> Vec<Finding> {
    let mut of: BTreeMap<(&str, &str), Vec<&RefusalJson>> = BTreeMap::new();
    for one in fleet.refusals.iter().filter(|one| fleet.now.ns.saturating_sub(one.last_at.ns) < LATELY_NS) {
        of.entry((&one.reason, &one.text)).or_default().push(one);
    }
    let finding = |((reason, text), agents): ((&str, &str), Vec<&RefusalJson>)| {
        let named: Vec<String> = agents.iter().take(NAMED).map(|agent| named(agent, fleet.now.ns)).collect();
        let more = agents.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = format!("agents are refused, {}: {}{more}", shown(text), named.join("; "));
        Finding::new(Grade::Warn, "refused", found, fix(reason))
    };
    of.into_iter().map(finding).collect()
}

/// `h7 at 10.0.0.7 (12 times, last 2 s ago)`.
fn named(agent: &RefusalJson, now_ns: u64) -> String {
    let host = agent.host.as_deref().map_or("no name".into(), shown);
    let from = agent.address.as_deref().map_or("the unix socket".into(), shown);
    let times = if agent.times == 1 { "once".to_owned() } else { format!("{} times", agent.times) };
    format!("{host} at {from} ({times}, last {} ago)", age(now_ns.saturating_sub(agent.last_at.ns)))
}

fn shown(text: &str) -> String {
    printable_within(text, SHOWN_CHARS).into_owned()
}

fn fix(reason: &str) -> &'static str {
    match reason {
        "token" => {
            "there: the server's token, or one of the host's own (on the server: mycroft token add NAME --role agent --host HOST), in the file of \
             mycroft agent --token-file, then systemctl restart 'mycroft-agent*'"
        }
        "certificate" => {
            "there: a certificate for the host's name by the authority of the server's --tls-client-ca (mycroft agent --tls-cert, \
             --tls-key, --host)"
        }
        "too-old" => "there: install the server's version, then systemctl restart 'mycroft-agent*' (jobs go on)",
        "too-new" => "on the server: install the agents' version, then systemctl restart mycroft-server",
        "tls-required" => "there: mycroft agent --tls-ca FILE",
        "no-tls" => "there: mycroft agent without --tls-ca, or on the server: --tls-cert and --tls-key",
        "full" => "on the server: LimitNOFILE=65536; stop agents that are too many on one host",
        "number-taken" => "there: systemctl restart 'mycroft-agent*'",
        "other-protocol" => "what connects there is no agent: agents use --server HOST:7700, browsers port 7701",
        _ => "on the server: journalctl -u mycroft-server | grep refused; there: mycroft doctor --server HOST:7700",
    }
}
