//! The command line's form of a fault: `KIND@hostN[+hostM][:rankR][,severity=X]` and so on.
use super::Fault;
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@host{}", self.kind, self.host)?;
        if let Some(peer) = self.peer_host {
            write!(f, "+host{peer}")?;
        }
        if let Some(rank) = self.rank {
            write!(f, ":rank{rank}")?;
        }
        let options =
            [("severity", self.severity), ("lasts", self.lasts_s), ("ramp", self.ramp_s), ("every", self.every_s)];
        for (name, value) in options {
            if let Some(value) = value {
                write!(f, ",{name}={value}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        const FORM: &str = "expected KIND@hostN[+hostM][:rankR][,severity=X][,after=S][,lasts=S][,ramp=S][,every=S]";
        let mut parts = text.split(',');
        let (kind, place) = match parts.next().unwrap_or_default().split_once('@') {
            Some((kind, place)) => (kind, place),
            None => (text.split(',').next().unwrap_or_default(), "host0"),
        };
        let mut fault = Fault::new(kind.parse()?, 0);
        let (hosts, rank) = match place.split_once(':') {
            Some((hosts, rank)) => (hosts, Some(rank)),
            None => (place, None),
        };
        let (host, peer) = match hosts.split_once('+') {
            Some((host, peer)) => (host, Some(peer)),
            None => (hosts, None),
        };
        fault.host = numbered(host, "host").ok_or_else(|| format!("fault `{text}`: `{host}`: {FORM}"))?;
        if let Some(peer) = peer {
            let number = numbered(peer, "host").ok_or_else(|| format!("fault `{text}`: `{peer}`: {FORM}"))?;
            fault.peer_host = Some(number);
        }
        if let Some(rank) = rank {
            let number = numbered(rank, "rank").ok_or_else(|| format!("fault `{text}`: `{rank}`: {FORM}"))?;
            fault.rank = Some(number);
        }
        for option in parts {
            let wrong = || format!("fault `{text}`: `{option}`: {FORM}");
            let (name, number) = option.split_once('=').ok_or_else(wrong)?;
            let number = number.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong)?;
            match name {
                "severity" => fault.severity = Some(number),
                "after" => fault.after_s = number,
                "lasts" => fault.lasts_s = Some(number),
                "ramp" => fault.ramp_s = Some(number),
                "every" => fault.every_s = Some(number),
                _ => return Err(wrong()),
            }
        }
        Ok(fault)
    }
}

/// The number after `word`, as in `host3`; digits only.
fn numbered(text: &str, word: &str) -> Option<u32> {
    let digits = text.strip_prefix(word)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_form_round_trips() {
        for text in [
            "nic-down@host1",
            "gpu-power@host2:rank9,severity=3.5",
            "background-traffic@host0+host2",
            "proxy-delay@host0,severity=0.5",
            "nic-bandwidth@host0,severity=4,lasts=30,ramp=5.5,every=60",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert_eq!("gpu-hang".parse::<Fault>().unwrap().host, 0);
    }

    #[test]
    fn wrong_forms_say_what_was_expected() {
        for text in ["nic-dwn@host1", "nic-down@1", "nic-down@host", "nic-down@host+1", "nic-down@host1,sev=2", ""] {
            assert!(text.parse::<Fault>().unwrap_err().contains("expected"), "{text}");
        }
    }
}
