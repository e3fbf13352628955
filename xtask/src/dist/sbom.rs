//! The list of all crates that are in what is handed out, in the words of CycloneDX 1.5.
use super::product::{ARCH, VERSION};
use crate::run::output;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "mycroft.cdx.json";
/// The crates whose products are handed out.
const ROOTS: &[&str] = &["mycroft-cli", "mycroft-nccl", "mycroft-preload", "mycroft-testbed-nccl"];

/// The list for the checkout as its lock file says.
pub(super) fn of_checkout(root: &Path) -> Result<String> {
    let platform = format!("{ARCH}-unknown-linux-gnu");
    let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform];
    let metadata: Value = serde_json::from_str(&output(root, "cargo", &args)?).context("cargo metadata: no JSON")?;
    let lock: toml::Value = toml::from_str(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
    let listed = list(&metadata, &checksums(&lock));
    Ok(serde_json::to_string_pretty(&listed)? + "\n")
}

/// Sums of the packages in a lock file, by name and version.
fn checksums(lock: &toml::Value) -> BTreeMap<(String, String), String> {
    let text = |package: &toml::Value, key| Some(package.get(key)?.as_str()?.to_owned());
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let pair = |package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?));
    packages.filter_map(pair).collect()
}

fn list(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let packages: BTreeMap<&str, &Value> =
        items(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let used = used(metadata, &packages);
    let mut components: Vec<(&str, Value)> = used
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| (package["name"].as_str().unwrap_or_default(), component(package, checksums)))
        .collect();
    components.sort_by(|a, b| a.0.cmp(b.0).then_with(|| a.1["version"].as_str().cmp(&b.1["version"].as_str())));
    let components: Vec<Value> = components.into_iter().map(|(_, component)| component).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "bom-ref": "mycroft", "name": "mycroft", "version": VERSION },
        },
        "components": components,
    })
}

/// The roots and all that is linked into them: neither tools of the build nor what only tests use.
fn used<'a>(metadata: &'a Value, packages: &BTreeMap<&'a str, &'a Value>) -> BTreeSet<&'a str> {
    let nodes: BTreeMap<&str, &Value> =
        items(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_root = |package: &Value| package["name"].as_str().is_some_and(|name| ROOTS.contains(&name));
    let mut open: Vec<&str> = packages.iter().filter(|(_, package)| is_root(package)).map(|(id, _)| *id).collect();
    let mut used = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !used.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).into_iter().flat_map(|node| items(&node["deps"]));
        let linked = |dependency: &&Value| items(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
        open.extend(dependencies.filter(linked).filter_map(|dependency| dependency["pkg"].as_str()));
    }
    used
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let (name, version) = (text("name"), text("version"));
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({ "type": "library", "bom-ref": purl, "name": name, "version": version });
    if !package["source"].is_null() {
        component["purl"] = json!(purl);
    }
    if let Some(sum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if !package["license"].is_null() {
        // Older crates separate alternatives by a slash.
        component["licenses"] = json!([{ "expression": text("license").replace('/', " OR ") }]);
    }
    component
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_tools_and_tests_are_not() {
        let package = |id: &str, name: &str, source: Value| json!({ "id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let edge = |to: &str, kind: Value| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("r", "mycroft-cli", Value::Null), package("a", "linked", json!("registry")),
                package("b", "tool", json!("registry")), package("c", "tests", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "r", "deps": [edge("a", Value::Null), edge("b", json!("build")), edge("c", json!("dev"))] },
                { "id": "a", "deps": [edge("r", Value::Null)] },
            ]},
        });
        let lock: toml::Value =
            toml::from_str("[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n").expect("TOML");
        let listed = list(&metadata, &checksums(&lock));
        let names: Vec<&str> = items(&listed["components"]).filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["linked", "mycroft-cli"]);
        assert_eq!(
            listed["components"][0],
            json!({
                "type": "library", "bom-ref": "pkg:cargo/linked@1.0.0", "name": "linked", "version": "1.0.0",
                "purl": "pkg:cargo/linked@1.0.0", "hashes": [{ "alg": "SHA-256", "content": "ab" }],
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            })
        );
        assert!(listed["components"][1]["purl"].is_null(), "not on a registry");
    }
}
