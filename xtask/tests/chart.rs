//! The Helm chart in deploy/helm: what it names the program has, its agents have the rights of the unit, and, where helm is
//! (`cargo xtask test` fetches it), it renders to what the daemons take.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The program; `None` where it was not built.
fn mycroft() -> Option<Command> {
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("mycroft");
    if !program.exists() {
        eprintln!("skipped: no {}: `cargo build --workspace` makes it", program.display());
        return None;
    }
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MYCROFT_")) {
        command.env_remove(name);
    }
    Some(command)
}

/// What helm says of the chart; `None` where it is not here.
fn helm(args: &[&str]) -> Option<Output> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/helm");
    let program = if fetched.exists() { fetched.into_os_string() } else { "helm".into() };
    let asked = Command::new(program).args(args).arg(deploy("helm/mycroft")).output();
    asked.inspect_err(|error| eprintln!("skipped: no helm here ({error}): `cargo xtask test` fetches it")).ok()
}

fn rendered(set: &[&str]) -> Option<String> {
    let sets: Vec<&str> = set.iter().flat_map(|value| ["--set", value]).collect();
    let Output { status, stdout, stderr } = helm(&[&["template", "there", "--namespace", "ns"], &sets[..]].concat())?;
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    Some(String::from_utf8_lossy(&stdout).into_owned())
}

/// The rendered objects of a kind.
fn of_kind<'r>(rendered: &'r str, kind: &str) -> Vec<&'r str> {
    let line = format!("\nkind: {kind}\n");
    rendered.split("\n---\n").filter(|object| object.contains(&line)).collect()
}

#[test]
fn the_chart_is_of_this_version_and_names_what_the_program_has() {
    let chart = text("helm/mycroft/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\n")), "{chart}");
    assert!(chart.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
    for (file, command) in [("server.yaml", "serve"), ("agent.yaml", "agent")] {
        let template = text(&format!("helm/mycroft/templates/{file}"));
        let Some(mut program) = mycroft() else { return };
        let help = program.args([command, "--help"]).output().expect("it runs").stdout;
        let help = String::from_utf8_lossy(&help).into_owned();
        assert!(template.contains(&format!("- {command}\n")), "{file} runs {command}");
        let words = template.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
        let named: Vec<&str> = words
            .filter(|word| {
                (word.starts_with("--") && word.len() > 2) || (word.starts_with("MYCROFT_") && word.len() > 8)
            })
            .collect();
        assert!(named.len() > 3, "{file}: {named:?}");
        named.iter().for_each(|word| assert!(help.contains(word), "{file}: {word} is not in the help of {command}"));
    }
}

#[test]
fn agents_have_the_rights_of_the_unit() {
    let unit = text("systemd/mycroft-agent.service");
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("a line");
    let mut of_unit: Vec<&str> = rights.split(' ').filter_map(|right| right.strip_prefix("CAP_")).collect();
    of_unit.sort_unstable();
    let of_chart = |set: &[&str]| -> Option<Vec<String>> {
        let all = rendered(set)?;
        let daemon = *of_kind(&all, "DaemonSet").first().expect("one");
        let added = daemon.split_once("add: [").expect("rights").1.split(']').next().expect("an end");
        let mut rights: Vec<String> = added.split(", ").map(str::to_owned).collect();
        rights.sort_unstable();
        Some(rights)
    };
    let Some(rights) = of_chart(&[]) else { return };
    assert_eq!(rights, of_unit);
    let without: Vec<&str> = of_unit.into_iter().filter(|right| *right != "SYS_PTRACE").collect();
    assert_eq!(of_chart(&["agent.stacks=false"]).expect("helm was there"), without);
}

#[test]
fn the_chart_renders_to_what_the_daemons_take() {
    let Some(linted) = helm(&["lint", "--strict"]) else { return };
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
    let all = rendered(&[
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "agent.users={0,1000000}",
        "agent.config=nic = [\"mlx5_0\"]\nsample-ms = 200",
    ])
    .expect("helm was there");
    for kind in ["StatefulSet", "Service", "DaemonSet", "ConfigMap", "Secret", "ServiceAccount", "ServiceMonitor"] {
        assert_eq!(of_kind(&all, kind).len(), 1, "{kind}");
    }
    assert_eq!(of_kind(&all, "Role").len() + of_kind(&all, "ClusterRole").len(), 0, "nothing asks Kubernetes anything");
    let daemon = of_kind(&all, "DaemonSet")[0];
    for line in ["hostPID: true", "--dir=/dev/shm/mycroft-1000000", "--server=there-mycroft.ns.svc:7700", "path: /tmp,"]
    {
        assert!(daemon.contains(line), "{line}: {daemon}");
    }
    let rules = format!("{}\n", of_kind(&all, "PrometheusRule")[0]);
    for line in text("prometheus/mycroft.rules.yml").lines() {
        assert!(rules.contains(&format!("  {line}\n")), "{line}");
    }
    let config = of_kind(&all, "ConfigMap")[0].split_once("mycroft.toml: |\n").expect("a file").1;
    let config: Vec<&str> = config.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let temp = tempfile::tempdir().expect("a folder");
    let path = temp.path().join("mycroft.toml");
    fs::write(&path, config.join("\n")).expect("written");
    let Some(mut check) = mycroft() else { return };
    let checked = check.args(["config", "check"]).arg(&path).output().expect("it runs");
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && told.contains("mlx5_0") && told.contains("retain-days"), "{told}");
}

#[test]
fn values_that_cannot_work_are_refused_and_a_secret_of_yours_is_taken() {
    for wrong in ["agent.users={ada}", "token.value=short", "server.replicas=2", "server.enabled=false"] {
        let Some(refused) = helm(&["template", "there", "--set", wrong]) else { return };
        assert!(!refused.status.success(), "{wrong}");
    }
    let all = rendered(&["token.existingSecret=ours", "serviceMonitor.enabled=true"]).expect("helm was there");
    assert!(of_kind(&all, "Secret").is_empty(), "{all}");
    assert_eq!(all.matches("secretName: ours").count(), 2, "server and agent");
    assert!(of_kind(&all, "ServiceMonitor")[0].contains("name: ours"));
    let elsewhere = rendered(&["server.enabled=false", "agent.server=s:7700"]).expect("helm was there");
    assert!(of_kind(&elsewhere, "StatefulSet").is_empty() && of_kind(&elsewhere, "Service").is_empty());
    assert!(elsewhere.contains("--server=s:7700"));
}

#[test]
fn with_a_secret_for_tls_both_ports_agents_and_scrape_know_it() {
    let set =
        ["serviceMonitor.enabled=true", "tls.secret=ours", "tls.agents=/etc/node-tls", "tls.name=mycroft.example"];
    let Some(all) = rendered(&set) else { return };
    let (server, agent) = (of_kind(&all, "StatefulSet")[0], of_kind(&all, "DaemonSet")[0]);
    for flag in ["--tls-cert=", "--tls-key=", "--tls-client-ca=", "--http-tls-cert=", "--http-tls-key="] {
        assert!(server.contains(&format!("- {flag}/etc/mycroft/tls/")), "{flag}: {server}");
    }
    for word in
        ["--tls-ca=/etc/mycroft/tls/ca.crt", "--tls-name=mycroft.example", "--tls-key=/etc/mycroft/node/tls.key"]
    {
        assert!(agent.contains(word), "{word}: {agent}");
    }
    assert!(agent.contains("hostPath: {path: /etc/node-tls, type: Directory}"), "{agent}");
    let of_secret =
        agent.split_once("secretName: ours").expect("the authority").1.split("- name:").next().expect("an end");
    assert!(
        of_secret.contains("key: ca.crt") && !of_secret.contains("tls.key"),
        "the server's key stays there: {agent}"
    );
    let scrape = of_kind(&all, "ServiceMonitor")[0];
    assert!(scrape.contains("scheme: https") && scrape.contains("serverName: mycroft.example"), "{scrape}");
    let plain = rendered(&["tls.secret=ours"]).expect("helm was there");
    assert!(plain.contains("--tls-name=there-mycroft.ns.svc") && !plain.contains("--tls-client-ca"), "{plain}");
    assert!(!rendered(&[]).expect("helm was there").contains("tls"), "nothing of it unless it is asked for");
    let half = helm(&["template", "there", "--set", "tls.agents=/etc/node-tls"]).expect("helm was there");
    assert!(!half.status.success(), "agents' certificates without a server's");
}
