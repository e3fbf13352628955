//! The package for RHEL, SUSE and their kin, made by `rpmbuild` of the same tree and the same scripts as the Debian package.
use super::packing::{Packing, run_at};
use super::product::{ARCH, VERSION};
use crate::run::answers;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Sections of a spec, the Debian package's script for each, and what turns rpm's argument (how many versions will be installed
/// after this) into dpkg's words.
const SCRIPTS: &[(&str, &str, &str)] = &[
    ("%post", "postinst", "[ \"$1\" = 1 ] && set -- configure || set -- configure older"),
    ("%preun", "prerm", "[ \"$1\" = 0 ] && set -- remove || set -- upgrade"),
    ("%postun", "postrm", "[ \"$1\" = 0 ] && set -- remove || set -- upgrade"),
];
/// Folder whose files are configuration: what somebody changed there stays.
const CONFIGURATION: &str = "etc/mycroft";
/// A library that is named by itself: glibc's are named by the version of its symbols.
const LIBGCC: &str = "libgcc_s.so.1";

/// Makes `mycroft-VERSION-1.ARCH.rpm` of the tree; says so where the tool for it is not here.
pub(super) fn package(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    if !answers("rpmbuild", &["--version"]) {
        eprintln!("no rpmbuild here, so no .rpm is made (Debian: apt-get install rpm)");
        return Ok(());
    }
    let top = packing.work.join("rpm");
    std::fs::create_dir_all(&top)?;
    let spec = top.join("mycroft.spec");
    std::fs::write(&spec, spec_file(packing, tree)?)?;
    // rpmbuild takes the folder for its own and removes it at the end.
    let root = top.join("root");
    let payload = if packing.quick { "w1.gzdio" } else { "w9.xzdio" };
    let defines = [
        format!("_topdir {}", top.display()),
        format!("_rpmdir {}", packing.out.display()),
        "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        format!("_binary_payload {payload}"),
        // The same bytes whoever builds, and whenever: times are of the last commit.
        "_buildhost localhost".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
        // The programs are stripped already, and nothing is to be changed after they were tested.
        "__os_install_post %{nil}".to_owned(),
        "debug_package %{nil}".to_owned(),
        "_build_id_links none".to_owned(),
        format!("staged {}", tree.display()),
    ];
    let (root, spec) = (root.to_string_lossy().into_owned(), spec.to_string_lossy().into_owned());
    let mut args = vec!["-bb", "--quiet", "--target", ARCH, "--buildroot", &root];
    args.extend(defines.iter().flat_map(|define| ["--define", define]));
    args.push(&spec);
    run_at(packing, packing.root, "rpmbuild", &args).context("the .rpm needs rpmbuild")
}

fn spec_file(packing: &Packing<'_>, tree: &Path) -> Result<String> {
    let mut spec = format!(
        "Name: mycroft\n\
         Version: {VERSION}\n\
         Release: 1\n\
         Summary: says which rank stalls or slows a training job\n\
         License: {}\n\
         URL: {}\n\
         AutoReqProv: no\n\
         Requires: libc.so.6(GLIBC_{})(64bit)\n",
        env!("CARGO_PKG_LICENSE"),
        env!("CARGO_PKG_REPOSITORY"),
        packing.needs.glibc,
    );
    // Writing to a String cannot fail.
    if packing.needs.libraries.iter().any(|name| name == LIBGCC) {
        let _ = writeln!(spec, "Requires: {LIBGCC}()(64bit)");
    }
    spec.push_str(
        "\n%description\n\
         The tracer is a profiler plugin of NCCL; the program is the agent of each host, the\n\
         server and the command line. Nothing is started by the installation.\n\n\
         %install\nmkdir -p %{buildroot}\ncp -a %{staged}/. %{buildroot}/\n",
    );
    for (section, script, words) in SCRIPTS {
        let text = std::fs::read_to_string(packing.root.join("deploy/debian").join(script))?;
        let body = text.strip_prefix("#!/bin/sh\n").context("a script of sh")?.replace('%', "%%");
        let _ = write!(spec, "\n{section}\n{words}\n{body}");
    }
    spec.push_str("\n%files\n%defattr(-,root,root,-)\n");
    for line in files(tree)? {
        let _ = writeln!(spec, "{line}");
    }
    Ok(spec)
}

/// Lines of the list of files: all files, and folders that are only ours.
fn files(tree: &Path) -> Result<Vec<String>> {
    let (mut lines, mut open) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(tree)?.to_owned();
            lines.extend(line(&path, &name)?);
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    lines.sort();
    Ok(lines)
}

fn line(path: &Path, name: &Path) -> Result<Option<String>> {
    let mode = path.metadata()?.permissions().mode() & 0o7777;
    let shown = name.to_string_lossy().replace('%', "%%");
    let is_ours = name.components().any(|part| part.as_os_str() == "mycroft");
    Ok(match (path.is_dir(), is_ours, name.starts_with(CONFIGURATION)) {
        (true, false, _) => None,
        (true, true, _) => Some(format!("%dir %attr({mode:04o},root,root) \"/{shown}\"")),
        (false, _, true) => Some(format!("%config(noreplace) %attr({mode:04o},root,root) \"/{shown}\"")),
        (false, _, false) => Some(format!("%attr({mode:04o},root,root) \"/{shown}\"")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configuration_is_kept_and_only_folders_of_ours_are_owned() {
        let temp = tempfile::tempdir().expect("a folder");
        for (name, mode) in [("usr/bin/mycroft", 0o755), ("etc/mycroft/agent.env", 0o644), ("usr/lib/x/100%", 0o644)] {
            let path = temp.path().join(name);
            std::fs::create_dir_all(path.parent().expect("above")).expect("made");
            std::fs::write(&path, "").expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
        }
        std::fs::set_permissions(temp.path().join("etc/mycroft"), PermissionsExt::from_mode(0o755)).expect("ours");
        let expected = [
            "%attr(0644,root,root) \"/usr/lib/x/100%%\"",
            "%attr(0755,root,root) \"/usr/bin/mycroft\"",
            "%config(noreplace) %attr(0644,root,root) \"/etc/mycroft/agent.env\"",
            "%dir %attr(0755,root,root) \"/etc/mycroft\"",
        ];
        assert_eq!(files(temp.path()).expect("listed"), expected);
    }
}
