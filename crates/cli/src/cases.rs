//! `mycroft cases`: what a server holds against whom, and what people say of it.
use crate::api::{Api, escaped};
use crate::args::CasesArgs;
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::mitigate::who;
use crate::told::{is_open, json, line, now, print, whole};
use anyhow::Result;
use mycroft_serve::api::{CaseJson, CasesJson, NoteRequest};

/// Lists cases, shows one, or says something of it. Exit 1 when an open case is shown.
pub(crate) fn cases(args: &CasesArgs) -> Result<u8> {
    let api = Api::new(&args.server)?;
    if let Some(id) = &args.id {
        let path = format!("/api/v1/cases/{}", escaped(id));
        let case: CaseJson = match said(args) {
            Some(note) => api.say(&format!("{path}/notes"), &note)?,
            None => api.get(&path)?,
        };
        if args.json {
            print(&format!("{}\n", json(&case)?))?;
        } else {
            print(&whole(&case, now()))?;
        }
        return Ok(exit_code(std::slice::from_ref(&case)));
    }
    let mut path = String::from("/api/v1/cases?");
    if let Some(job) = &args.job {
        path.push_str(&format!("job={}&", escaped(job)));
    }
    if !args.all {
        path.push_str("state=open");
    }
    let answer: CasesJson = api.get(&path)?;
    if args.json {
        print(&format!("{}\n", json(&answer)?))?;
        return Ok(exit_code(&answer.cases));
    }
    let now = now();
    let mut text: String = answer.cases.iter().map(|case| format!("{}\n", line(case, now))).collect();
    if answer.cases.is_empty() {
        text = format!("no {}case\n", if args.all { "" } else { "open " });
    }
    if answer.more > 0 {
        text.push_str(&format!("and {} more, older ones\n", answer.more));
    }
    print(&text)?;
    Ok(exit_code(&answer.cases))
}

/// What is to be said of the case; `None`: nothing.
fn said(args: &CasesArgs) -> Option<NoteRequest> {
    let text = args.note.clone().unwrap_or_default();
    let silence_s = args.silence.map(|time| time.as_secs());
    let is_said = args.acknowledge || args.note.is_some() || silence_s.is_some();
    is_said.then(|| NoteRequest { who: who(), text, acknowledge: args.acknowledge, silence_s })
}

fn exit_code(cases: &[CaseJson]) -> u8 {
    if cases.iter().any(is_open) { EXIT_FOUND } else { EXIT_OK }
}
