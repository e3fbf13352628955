//! The pages about scenarios say what the code does.
use mycroft_sim::{Cluster, Family, Fault, FaultKind, FaultLevel, Life, Nature, Scenario};
use std::fmt::Write;
use std::path::PathBuf;

const BEGIN: &str = "<!-- faults -->\n";
const END: &str = "<!-- /faults -->\n";

fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)
}

fn table() -> String {
    let mut out = String::from(
        "| kind | what breaks | who | profile | severity (default; range) | right answer | tempting | source |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for kind in FaultKind::ALL {
        let facts = kind.facts();
        let who = match facts.level {
            FaultLevel::Rank => "rank",
            FaultLevel::Host => "host",
            FaultLevel::HostPair => "two hosts",
            FaultLevel::Hosts => "hosts",
            FaultLevel::All => "all",
            FaultLevel::Nobody => "nobody",
        };
        let profile = match facts.nature {
            Nature::Gradual => "gradual",
            Nature::Switch => "switch",
            Nature::Final => "final",
        };
        let lasts = kind.usual_lasts_s().map_or(String::new(), |lasts| format!(", {lasts} s"));
        let severity = match facts.severity {
            "" => "-".to_owned(),
            meaning => format!("{meaning} ({}; {} to {})", facts.usual, facts.range.0, facts.range.1),
        };
        let whats: Vec<&str> = facts.whats.iter().map(|what| what.as_str()).collect();
        let categories: Vec<&str> = facts.categories.iter().map(|category| category.as_str()).collect();
        let right = match whats.is_empty() {
            true => "no case".to_owned(),
            false => format!("{}; {}", whats.join(" or "), categories.join(" or ")),
        };
        let mark = if kind.only_simulated() { "" } else { " (t)" };
        let (breaks, tempting, source) = (facts.breaks.trim(), facts.tempting, facts.source);
        writeln!(
            out,
            "| `{kind}`{mark} | {breaks} | {who} | {profile}{lasts} | {severity} | {right} | {tempting} | {source} |"
        )
        .unwrap();
    }
    out.push_str("\n(t): the testbed plays it too.\n");
    out
}

#[test]
fn the_catalogue_of_faults_is_the_code_s() {
    let page = path("docs/formats/scenario.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let wanted = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some() {
        std::fs::write(&page, &wanted).unwrap();
        return;
    }
    assert_eq!(text, wanted, "{} differs; MYCROFT_UPDATE_GOLDEN=1 rewrites it", page.display());
}

#[test]
fn families_are_described() {
    let text = std::fs::read_to_string(path("docs/formats/scenario.md")).unwrap();
    for family in Family::ALL {
        assert!(text.contains(&format!("| `{family}` |")), "{family}");
    }
}

#[test]
fn every_field_has_its_meaning_and_default() {
    let text = std::fs::read_to_string(path("scenarios/README.md")).unwrap();
    let fault = Fault { rank: Some(1), peer_host: Some(1), ..Fault::new(FaultKind::GpuPower, 0) };
    let fault = Fault { severity: Some(2.0), lasts_s: Some(1.0), ramp_s: Some(1.0), every_s: Some(3.0), ..fault };
    let fields = |table: &str| -> Vec<String> {
        let table: toml::Table = toml::from_str(table).unwrap();
        table.keys().map(String::clone).collect()
    };
    let scenario = fields(&toml::to_string(&Scenario::default()).unwrap());
    assert!(scenario.len() > 35, "{scenario:?}");
    let all = [
        scenario,
        fields(&toml::to_string(&Cluster::default()).unwrap()),
        fields(&toml::to_string(&Life::default()).unwrap()),
        fields(&toml::to_string(&fault).unwrap()),
    ];
    for field in all.concat() {
        let known = text.contains(&format!("`{field}`")) || text.contains(&format!("`[{field}]`"));
        assert!(known, "scenarios/README.md does not describe `{field}`");
    }
}
