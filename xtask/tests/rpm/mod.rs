//! The .rpm holds what the Debian package holds, and does with its scripts what that does.
use super::{command, done, has, only, tree};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Scripts as rpm names them, as Debian names them, and rpm's argument at an installation or removal.
const SCRIPTS: &[(&str, &str)] = &[("POSTIN", "postinst"), ("PREUN", "prerm"), ("POSTUN", "postrm")];

/// Compares the two packages, and installs the .rpm into a folder with books of its own.
pub(crate) fn holds_what_the_debian_package_holds(dist: &Path, temp: &Path) {
    if !has("rpmbuild") || !has("rpm") {
        return;
    }
    let (rpm, deb) = (only(dist, ".rpm"), only(dist, ".deb"));
    assert!(
        rpm.ends_with(format!("mycroft-{}-1.x86_64.rpm", env!("CARGO_PKG_VERSION")))
            || cfg!(not(target_arch = "x86_64"))
    );
    scripts_are_debians(&rpm);
    let asked = |what: &str| done(command("rpm").args(["-qp", what]).arg(&rpm));
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let kept = lines(done(command("dpkg-deb").arg("--info").arg(&deb).arg("conffiles")));
    assert!(kept.len() >= 4 && kept.contains(&"/etc/mycroft/mycroft.toml".to_owned()), "{kept:?}");
    assert_eq!(lines(asked("--configfiles")), kept);
    let needed = asked("--requires");
    assert!(needed.contains("libc.so.6(GLIBC_2.") && !needed.contains("libmycroft"), "{needed}");
    if fs::metadata(temp).expect("there").uid() != 0 {
        eprintln!("the installation of the .rpm is skipped: it needs root, who owns its files");
        return;
    }
    let (ours, debians) = (temp.join("rpm-root"), temp.join("deb-tree"));
    fs::create_dir(&ours).expect("made");
    done(command("dpkg-deb").arg("-x").arg(&deb).arg(&debians));
    let asked = |args: &[&OsStr]| {
        // Its scripts would run below that root, where there is no shell: they are run by themselves.
        let without = ["--dbpath", "/books", "--nodeps", "--noscripts"];
        done(command("rpm").arg("--root").arg(&ours).args(without).args(args))
    };
    asked(&[OsStr::new("-i"), OsStr::new("--ignorearch"), rpm.as_os_str()]);
    let files = |root: &Path| -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let of_books = |name: &Path| name.starts_with("books");
        tree(root).into_iter().filter(|(name, _)| !root.join(name).is_dir() && !of_books(name)).collect()
    };
    let (mine, theirs) = (files(&ours), files(&debians));
    let names = |files: &BTreeMap<PathBuf, _>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&mine), names(&theirs));
    for (name, what) in &theirs {
        assert!(mine[name] == *what, "{}: mode or content differs", name.display());
        assert_eq!(fs::metadata(ours.join(name)).expect("there").uid(), 0, "{}", name.display());
    }
    fs::write(ours.join("etc/mycroft/agent.env"), "MYCROFT_SERVER=10.0.0.1:7700\n").expect("written");
    asked(&[OsStr::new("-U"), OsStr::new("--force"), OsStr::new("--ignorearch"), rpm.as_os_str()]);
    let kept = fs::read_to_string(ours.join("etc/mycroft/agent.env")).expect("kept");
    assert_eq!(kept, "MYCROFT_SERVER=10.0.0.1:7700\n", "an upgrade keeps what was configured");
    asked(&[OsStr::new("-e"), OsStr::new("mycroft")]);
    let left: Vec<PathBuf> = files(&ours).into_keys().collect();
    assert_eq!(left, [Path::new("etc/mycroft/agent.env.rpmsave")], "removed, but what somebody changed");
    assert!(!ours.join("usr/lib/mycroft").exists() && !ours.join("usr/share/mycroft").exists());
}

/// What rpm would run is Debian's script behind a line that turns rpm's argument into dpkg's words.
fn scripts_are_debians(rpm: &Path) {
    for (section, name) in SCRIPTS {
        let text = done(command("rpm").args(["-qp", "--queryformat", &format!("%{{{section}}}")]).arg(rpm));
        let debians = fs::read_to_string(super::repository().join("deploy/debian").join(name)).expect("there");
        let (words, body) = text.split_once('\n').expect("a line and a script");
        assert_eq!(body.trim_end(), debians.strip_prefix("#!/bin/sh\n").expect("sh").trim_end(), "{name}");
        let told = |given: &str| done(command("sh").args(["-ec", &format!("{words}\necho \"$@\""), "sh", given]));
        let (first, later) = match *name {
            "postinst" => ("configure\n", "configure older\n"),
            _ => ("upgrade\n", "upgrade\n"),
        };
        assert_eq!((told("1").as_str(), told("2").as_str()), (first, later), "{name}");
        if *name != "postinst" {
            assert_eq!(told("0"), "remove\n", "{name}");
        }
    }
}
