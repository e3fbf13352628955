//! What leaves a host without being meant to: secrets, always; addresses, when asked.
//!
//! A line stays a line, and what stands for an address has the form of one, the same for the same: what `mycroft autopsy` reads
//! in a log is as it was.
use regex::bytes::{Captures, Regex};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};

/// What stands where a secret was.
const REMOVED: &str = "(removed)";
/// Longest line looked at as one: what is longer is looked at in pieces.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Values of what is called a secret: `name=value`, `name: value`, `"name": "value"`, `--name value`. Metrics are called tokens as
/// well: those of which the name goes on (`tokens`, `token_id`) and those with a number for a value are none.
const NAMED: &str = concat!(
    r#"(?i)(\b|_|-)(token|secret|passw(?:or)?d|passwd|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|"#,
    r#"credentials?|authorization)("?\s*(?:=>|[=:])\s*"?|\s+)((?:bearer\s+|basic\s+)?[^\s"',;&)}\]]{6,})"#
);
/// Forms that are a secret wherever they stand: of Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS, JSON web tokens, and
/// `user:password@` of a URL.
const FORMS: &str = concat!(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|",
    r"glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{16}|",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)|(?P<url>\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@"
);
/// IPv4 addresses, hardware addresses, IPv6 addresses (GIDs of InfiniBand among them), in this order.
const ADDRESSES: &str = concat!(
    r"(?P<v4>\b(?:\d{1,3}\.){3}\d{1,3}\b)|(?P<mac>\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b)|",
    r"(?P<v6>\b(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\b|\b(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}\b)"
);
const KEY_BEGINS: &[u8] = b"-----BEGIN ";
const KEY_ENDS: &[u8] = b"-----END ";

/// Takes out what is not to leave the host.
pub(super) struct Hider {
    named: Regex,
    forms: Regex,
    addresses: Option<Regex>,
    /// Number of each address, in the order in which they came.
    known: HashMap<Vec<u8>, usize>,
    /// Inside of a private key.
    in_key: bool,
    /// Secrets taken out so far.
    pub(super) removed: usize,
}

impl Hider {
    /// # Errors
    /// A pattern of ours is none.
    pub(super) fn new(hides_addresses: bool) -> Result<Hider, regex::Error> {
        let addresses = hides_addresses.then(|| Regex::new(ADDRESSES)).transpose()?;
        let (named, forms) = (Regex::new(NAMED)?, Regex::new(FORMS)?);
        Ok(Hider { named, forms, addresses, known: HashMap::new(), in_key: false, removed: 0 })
    }

    /// Copies text, line by line.
    pub(super) fn copy(&mut self, from: impl Read, to: &mut impl Write) -> io::Result<()> {
        let mut from = BufReader::with_capacity(1 << 18, from);
        let mut line = Vec::new();
        self.in_key = false;
        while from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
            to.write_all(&self.line(&line))?;
            line.clear();
        }
        Ok(())
    }

    /// A short text.
    pub(super) fn text(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        // Memory takes what is written.
        let _ = self.copy(text, &mut out);
        out
    }

    fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let has = |mark: &[u8]| line.windows(mark.len()).any(|part| part == mark);
        if line.contains(&b'-') && has(KEY_BEGINS) && has(b"PRIVATE KEY") {
            self.in_key = !has(KEY_ENDS);
            self.removed += 1;
            return format!("{REMOVED}\n").into_bytes();
        }
        if self.in_key {
            self.in_key = !has(KEY_ENDS);
            return Vec::new();
        }
        let mut removed = 0;
        let line = self.named.replace_all(line, |found: &Captures<'_>| {
            let (value, between) = (&found[4], &found[3]);
            let is_number =
                value.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'%'));
            // `--token value` is a secret, `the token value` is a sentence.
            let is_sentence = between.iter().all(u8::is_ascii_whitespace) && &found[1] != b"-";
            if is_number || is_sentence {
                return found[0].to_vec();
            }
            removed += 1;
            [&found[1], &found[2], between, REMOVED.as_bytes()].concat()
        });
        let line = self.forms.replace_all(&line, |found: &Captures<'_>| {
            removed += 1;
            match found.name("url") {
                Some(url) => [url.as_bytes(), REMOVED.as_bytes(), b"@"].concat(),
                None => REMOVED.into(),
            }
        });
        self.removed += removed;
        let Some(addresses) = &self.addresses else { return line.into_owned() };
        let known = &mut self.known;
        addresses.replace_all(&line, |found: &Captures<'_>| other(known, found)).into_owned()
    }
}

/// The address that stands for one: of a range that is nobody's (RFC 1112, RFC 3849, locally administered).
fn other(known: &mut HashMap<Vec<u8>, usize>, found: &Captures<'_>) -> Vec<u8> {
    let address = found[0].to_ascii_lowercase();
    let is_here = |v4: &[u8]| v4.starts_with(b"127.") || v4.starts_with(b"0.") || v4.starts_with(b"255.");
    if found.name("v4").is_some_and(|v4| is_here(v4.as_bytes())) {
        return found[0].to_vec();
    }
    let next = known.len() + 1;
    let number = *known.entry(address).or_insert(next);
    let [high, low] = [number >> 8 & 0xff, number & 0xff];
    let text = if found.name("v4").is_some() {
        format!("240.{}.{high}.{low}", number >> 16 & 0xff)
    } else if found.name("mac").is_some() {
        format!("02:00:00:{:02x}:{high:02x}:{low:02x}", number >> 16 & 0xff)
    } else {
        format!("2001:0db8:0000:0000:0000:0000:{:04x}:{:04x}", number >> 16 & 0xffff, number & 0xffff)
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str, hides_addresses: bool) -> String {
        let mut hider = Hider::new(hides_addresses).expect("patterns");
        String::from_utf8(hider.text(text.as_bytes())).expect("it was text")
    }

    #[test]
    fn secrets_are_taken_out_and_lines_stay() {
        for (text, left) in [
            ("HF_TOKEN=hf_aaaabbbbccccddddeeeeffff x=1", "HF_TOKEN=(removed) x=1"),
            ("wandb: api_key: \"0123456789abcdef0123\"", "wandb: api_key: \"(removed)\""),
            ("{\"password\": \"hunter2!\", \"rank\": 3}", "{\"password\": \"(removed)\", \"rank\": 3}"),
            ("train.py --auth-token s3cr3tvalue --lr 0.1", "train.py --auth-token (removed) --lr 0.1"),
            ("Authorization: Bearer abc.def-123456", "Authorization: (removed)"),
            ("cloning https://me:pa55word@git.example.org/x", "cloning https://(removed)@git.example.org/x"),
            ("key AKIAABCDEFGHIJKLMNOP was used", "key (removed) was used"),
        ] {
            assert_eq!(hidden(text, false), left);
        }
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nQ==\n-----END RSA PRIVATE KEY-----\nb\n";
        assert_eq!(hidden(key, false), "a\n(removed)\nb\n");
    }

    #[test]
    fn metrics_and_sentences_are_no_secrets() {
        for text in [
            "step 10 tokens per second: 123456.7 loss 2.1",
            "num_tokens=1048576 token: 1234567",
            "pad_token_id=128001 eos_token_id: 128009",
            "[rank3]:[E812 10:31:00.1 P.cpp:6] [Rank 3] Watchdog caught collective operation timeout",
            "the token generation took longer",
            "NCCL version 2.29.7+cuda13.0",
        ] {
            assert_eq!(hidden(text, false), text);
        }
    }

    #[test]
    fn what_stands_for_an_address_is_one_and_always_the_same() {
        let text = "peer 10.0.3.7<54321> gid fe80:0000:0000:0000:0202:c9ff:fe00:0001 via 10.0.3.7, 127.0.0.1, mac 0c:42:a1:00:00:07\n";
        assert_eq!(hidden(text, false), text);
        let left = "peer 240.0.0.1<54321> gid 2001:0db8:0000:0000:0000:0000:0000:0002 via 240.0.0.1, 127.0.0.1, \
                    mac 02:00:00:00:00:03\n";
        assert_eq!(hidden(text, true), left);
        assert_eq!(hidden("at 10:31:00 rank 3", true), "at 10:31:00 rank 3", "a time is none");
    }
}
