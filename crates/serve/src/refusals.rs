//! Agents that the server has refused: which host they say they are of, from where they came, why, and how often. For
//! `GET /api/v1/fleet`.
use crate::api::{RefusalJson, TimeJson};
use mycroft_record::text::printable_within;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::Refusal;
use mycroft_wire::sync::lock;
use std::net::IpAddr;
use std::sync::Mutex;

/// Agents that are told apart by host, address and reason. More than a person mends one by one, and two texts of 256 characters
/// each: 128 KiB.
const REFUSALS_MAX: usize = 64;
/// One that does not come again for so long is forgotten, nanoseconds: a day, as hosts are.
const FORGOTTEN_NS: u64 = 24 * 3600 * NANOS_PER_SEC;
/// Of a name or a reason, what is kept, characters: as lines of the log show.
const SHOWN_CHARS: usize = 256;

/// Those that were refused lately.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Vec<Refused>>);

/// Who is refused, as far as that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Who {
    host: Option<String>,
    from: Option<IpAddr>,
    code: Refusal,
}

#[derive(Debug)]
struct Refused {
    who: Who,
    text: String,
    first_at: HostTime,
    last_at: HostTime,
    times: u64,
}

impl Refusals {
    /// An agent was refused. Where there is no room, of the address with the most of them the one goes that was away longest: who
    /// comes under a thousand names pushes out himself.
    pub(crate) fn note(
        &self,
        at: HostTime,
        (host, from): (Option<&str>, Option<IpAddr>),
        (code, text): (Refusal, &str),
    ) {
        if matches!(code, Refusal::Stopping | Refusal::Failed | Refusal::Busy) {
            // The server's own want, of which health tells.
            return;
        }
        let (who, text) = (Who { host: host.map(shown), from, code }, shown(text));
        let mut all = lock(&self.0);
        if let Some(known) = all.iter_mut().find(|known| known.who == who) {
            *known = Refused { who, text, first_at: known.first_at, last_at: at, times: known.times.saturating_add(1) };
            return;
        }
        if all.len() >= REFUSALS_MAX
            && let Some(victim) = victim(&all)
        {
            all.remove(victim);
        }
        all.push(Refused { who, text, first_at: at, last_at: at, times: 1 });
    }

    /// An agent of this host was let in: it is mended there.
    pub(crate) fn mended(&self, host: &str) {
        let host = Some(shown(host));
        lock(&self.0).retain(|one| one.who.host != host);
    }

    /// The newest first.
    pub(crate) fn json(&self, now: HostTime) -> Vec<RefusalJson> {
        let mut all = lock(&self.0);
        all.retain(|one| now.since_ns(one.last_at) < FORGOTTEN_NS);
        let mut told: Vec<(HostTime, RefusalJson)> = all.iter().map(|one| (one.last_at, one.json())).collect();
        told.sort_by_key(|(last_at, _)| std::cmp::Reverse(*last_at));
        told.into_iter().map(|(_, json)| json).collect()
    }
}

fn shown(text: &str) -> String {
    printable_within(text, SHOWN_CHARS).into_owned()
}

fn victim(all: &[Refused]) -> Option<usize> {
    let of_its_address = |one: &Refused| all.iter().filter(|other| other.who.from == one.who.from).count();
    let weight = |(_, one): &(usize, &Refused)| (of_its_address(one), std::cmp::Reverse(one.last_at));
    all.iter().enumerate().max_by_key(weight).map(|(index, _)| index)
}

impl Refused {
    fn json(&self) -> RefusalJson {
        RefusalJson {
            host: self.who.host.clone(),
            address: self.who.from.map(|from| from.to_string()),
            reason: self.who.code.word().to_owned(),
            text: self.text.clone(),
            times: self.times,
            first_at: TimeJson::exact(self.first_at),
            last_at: TimeJson::exact(self.last_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = NANOS_PER_SEC;
    const NOW: HostTime = HostTime(1_735_689_600 * NANOS_PER_SEC);

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn token(refusals: &Refusals, at: HostTime, host: &str, from: u8) {
        refusals.note(at, (Some(host), address(from)), (Refusal::BadToken, "the token is missing or wrong"));
    }

    fn hosts(refusals: &Refusals, now: HostTime) -> Vec<String> {
        refusals.json(now).into_iter().map(|one| one.host.unwrap_or_default()).collect()
    }

    #[test]
    fn who_comes_again_is_one_and_the_newest_is_first() {
        let refusals = Refusals::default();
        token(&refusals, NOW, "h0", 1);
        token(&refusals, NOW + S, "h1", 2);
        token(&refusals, NOW + 2 * S, "h0", 1);
        refusals.note(NOW, (None, None), (Refusal::BadCertificate, "the agent's certificate: expired"));
        let told = refusals.json(NOW + 3 * S);
        let seen: Vec<_> = told.iter().map(|one| (one.host.as_deref(), &*one.reason, one.times)).collect();
        assert_eq!(seen, [(Some("h0"), "token", 2), (Some("h1"), "token", 1), (None, "certificate", 1)]);
        assert_eq!((told[0].address.as_deref(), told[2].address.as_deref()), (Some("10.0.0.1"), None));
        assert_eq!((told[0].first_at.ns, told[0].last_at.ns), (NOW.0, NOW.0 + 2 * S));
        refusals.note(NOW, (Some("h2"), None), (Refusal::Busy, "no memory"));
        assert_eq!(hosts(&refusals, NOW).len(), 3, "no fault of the agent's");
        refusals.mended("h0");
        assert_eq!(hosts(&refusals, NOW + 3 * S), ["h1", ""]);
        assert_eq!(hosts(&refusals, NOW + S + FORGOTTEN_NS), [""; 0]);
    }

    #[test]
    fn who_comes_under_a_thousand_names_pushes_out_himself() {
        let refusals = Refusals::default();
        token(&refusals, NOW, "old", 1);
        (0..1_000).for_each(|nth| token(&refusals, NOW + S, &format!("evil{nth}"), 66));
        let told = hosts(&refusals, NOW + S);
        assert_eq!((told.len(), told.iter().any(|host| host == "old")), (REFUSALS_MAX, true));
    }

    #[test]
    fn names_and_reasons_are_short_and_harmless() {
        let refusals = Refusals::default();
        let evil = format!("h\u{1b}[2J{}", "x".repeat(1_000));
        refusals.note(NOW, (Some(&evil), None), (Refusal::Malformed, &evil));
        let one = &refusals.json(NOW)[0];
        for text in [one.host.as_deref().expect("a name"), &one.text] {
            assert!(!text.contains('\u{1b}') && text.len() < 300, "{text:?}");
        }
    }
}
