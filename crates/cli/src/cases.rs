//! `mycroft cases`: what a server holds against whom.
use crate::api::{Api, escaped, list};
use crate::args::CasesArgs;
use crate::{EXIT_FOUND, EXIT_OK};
use anyhow::Result;
use serde_json::Value;

/// Lists cases, or shows one. Exit 1 when an open case is shown.
pub(crate) fn cases(args: &CasesArgs) -> Result<u8> {
    let api = Api::new(&args.server);
    if let Some(id) = &args.id {
        let case = api.json(&format!("/api/v1/cases/{}", escaped(id)))?;
        let case = case.get("case").unwrap_or(&case);
        if args.json {
            println!("{}", serde_json::to_string_pretty(case)?);
        } else {
            print!("{}", whole(case));
        }
        return Ok(exit_code(std::slice::from_ref(case)));
    }
    let mut path = String::from("/api/v1/cases?");
    if let Some(job) = &args.job {
        path.push_str(&format!("job={}&", escaped(job)));
    }
    if !args.all {
        path.push_str("state=open");
    }
    let answer = api.json(&path)?;
    let cases = list(&answer, "cases");
    if args.json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
    } else if cases.is_empty() {
        println!("no {}case", if args.all { "" } else { "open " });
    } else {
        for case in cases {
            println!("{}", line(case));
        }
    }
    Ok(exit_code(cases))
}

fn exit_code(cases: &[Value]) -> u8 {
    if cases.iter().any(|case| case["state"] == "open") { EXIT_FOUND } else { EXIT_OK }
}

/// One line: id, state, what, category, first suspect, since.
pub(crate) fn line(case: &Value) -> String {
    format!(
        "{:<6} {:<7} {:<9} {:<19} {:<34} since {}  job {}",
        text(&case["id"]),
        text(&case["state"]),
        text(&case["what"]),
        text(&case["category"]),
        suspects(case),
        text(&case["since"]),
        text(&case["job"]),
    )
}

/// The suspects in one line.
pub(crate) fn suspects(case: &Value) -> String {
    let names: Vec<String> = list(&case["suspects"], "suspects").iter().map(suspect).collect();
    if names.is_empty() { "no suspect yet".to_owned() } else { names.join(", ") }
}

fn suspect(suspect: &Value) -> String {
    let confidence = suspect["confidence"].as_f64().unwrap_or(0.0) * 100.0;
    let host = suspect["host"].as_str().unwrap_or("");
    match (suspect["rank"].as_u64(), suspect["link"].as_str()) {
        (Some(rank), _) => format!("rank {rank} on {host} ({confidence:.0} %)"),
        (None, Some(link)) => format!("link {link} ({confidence:.0} %)"),
        (None, None) => format!("host {host} ({confidence:.0} %)"),
    }
}

/// Everything the case says, for a person.
pub(crate) fn whole(case: &Value) -> String {
    let mut out = String::new();
    out.push_str(&format!("case {} ({})\n", text(&case["id"]), text(&case["state"])));
    out.push_str(&format!("  what      {} / {}\n", text(&case["what"]), text(&case["category"])));
    out.push_str(&format!("  suspect   {}\n", suspects(case)));
    out.push_str(&format!("  since     {}\n", text(&case["since"])));
    out.push_str(&format!("  detected  {}\n", text(&case["detected_at"])));
    out.push_str(&format!("  diagnosed {}\n", text(&case["diagnosed_at"])));
    for (title, name) in [("because", "because"), ("affected", "blast_radius"), ("do next", "do_next")] {
        let lines = list(&case[name], name);
        if lines.is_empty() {
            continue;
        }
        out.push_str(&format!("  {title}\n"));
        for entry in lines {
            let said =
                entry["text"].as_str().or_else(|| entry.as_str()).map_or_else(|| entry.to_string(), str::to_owned);
            out.push_str(&format!("    - {said}\n"));
        }
    }
    out
}

/// A JSON value as a person reads it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(object) => {
            object.get("text").or_else(|| object.get("rfc3339")).map_or_else(|| value.to_string(), text)
        }
        other => other.to_string(),
    }
}
