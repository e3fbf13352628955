//! What the command that holds a job says to agents through the server, and what they answer.
use serde::{Deserialize, Serialize};

/// One exchange with agents.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct GateRequest {
    /// Who asks.
    pub who: String,
    /// The job whose ranks are meant; for the server's log.
    pub job: String,
    /// How long answers are waited for, at most four seconds.
    pub within_ms: u64,
    /// For every agent that is connected, in hex (`docs/formats/hold.md`); `null`: only for those below.
    pub all: Option<String>,
    /// For each of these agents.
    pub to: Vec<GateSaidJson>,
}

/// What is said to an agent, or what it answers.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct GateSaidJson {
    /// The agent, as the server calls this connection of it.
    pub agent: String,
    /// Name of its host; of an answer.
    #[serde(default)]
    pub host: String,
    /// In hex.
    pub bytes: String,
    /// Why there is no answer; empty: there is one.
    #[serde(default)]
    pub error: String,
}

/// What the agents of an exchange answered, each once.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct GateAnswers {
    /// In the order of the request.
    pub agents: Vec<GateSaidJson>,
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes of such a text; `None` for any other.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_text_and_from_no_other() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)), Some(all));
        assert_eq!(["0", "0g", "+1", "\u{e9}"].map(unhex), [None, None, None, None]);
    }
}
