//! Reads a trace: one JSON object a line, as `docs/formats/calls.md` has them.
use serde_json::Value;
use std::ffi::CString;
use std::path::Path;

/// A group of calls of the API.
pub const GROUP_API: u64 = 256;
/// A call of a collective.
pub const COLL_API: u64 = 512;
/// A call of a send or receive.
pub const P2P_API: u64 = 1024;

/// A whole trace: what one rank's NCCL called on its profiler plugin.
pub struct Trace {
    /// Interface version that NCCL took.
    pub abi: u32,
    /// NCCL's version as `ncclGetVersion` gives it, as far as it is told: "2.29.7" is 22907, "testbed 2.30" is 23000.
    pub nccl: i32,
    /// The calls, in the order of their time.
    pub calls: Vec<Call>,
}

/// One callback.
pub struct Call {
    /// Nanoseconds since the first call.
    pub t: u64,
    /// What was called.
    pub what: What,
    fields: Value,
}

/// Which function of the plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `init`.
    Init,
    /// `startEvent`.
    Start,
    /// `recordEventState`.
    State,
    /// `stopEvent`.
    Stop,
    /// `finalize`.
    Finalize,
}

impl Call {
    /// A number; 0 where the field is absent or no number.
    pub fn number(&self, name: &str) -> u64 {
        let value = &self.fields[name];
        value
            .as_u64()
            .or_else(|| value.as_i64().map(|n| n as u64))
            .unwrap_or_else(|| u64::from(value.as_bool() == Some(true)))
    }

    /// Whether a field is there.
    pub fn has(&self, name: &str) -> bool {
        !self.fields[name].is_null()
    }

    /// A text; empty where absent.
    pub fn text(&self, name: &str) -> &str {
        self.fields[name].as_str().unwrap_or_default()
    }

    /// The communicator's hash: 16 hex digits.
    pub fn hash(&self) -> u64 {
        u64::from_str_radix(self.text("hash"), 16).unwrap_or(0)
    }

    /// A text that lives as long as the process, as NCCL's static strings do.
    pub fn static_text(&self, name: &str) -> *const std::ffi::c_char {
        CString::new(self.text(name)).unwrap_or_default().into_raw()
    }
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// Says which line cannot be read and why.
    pub fn read(path: &Path) -> Result<Trace, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut lines = text.lines().enumerate().map(|(number, line)| {
            serde_json::from_str::<Value>(line).map_err(|e| format!("{}:{}: {e}", path.display(), number + 1))
        });
        let head = lines.next().ok_or_else(|| format!("{}: empty", path.display()))??;
        if head["format"] != "nccl-profiler-calls/1" {
            return Err(format!("{}: no trace of profiler calls (format {})", path.display(), head["format"]));
        }
        let mut calls = Vec::new();
        for line in lines {
            let fields = line?;
            let what = match fields["call"].as_str() {
                Some("init") => What::Init,
                Some("start") => What::Start,
                Some("state") => What::State,
                Some("stop") => What::Stop,
                Some("finalize") => What::Finalize,
                Some(other) => return Err(format!("{}: no call `{other}`", path.display())),
                None => continue, // The name of a thread.
            };
            calls.push(Call { t: fields["t"].as_u64().unwrap_or(0), what, fields });
        }
        let abi = head["abi"].as_u64().and_then(|abi| u32::try_from(abi).ok()).filter(|abi| (1..=7).contains(abi));
        let abi = abi.ok_or_else(|| format!("{}: no interface version 1 to 7 in `abi`", path.display()))?;
        let nccl = version_of(head["nccl"].as_str().unwrap_or_default());
        Ok(Trace { abi, nccl, calls })
    }
}

fn version_of(text: &str) -> i32 {
    let numbers = text.rsplit(' ').next().unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    numbers.zip([10_000, 100, 1]).map(|(part, unit): (i32, i32)| part * unit).sum()
}
