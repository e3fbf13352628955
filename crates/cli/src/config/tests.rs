//! Every key of every command, without a process: what a file says is what would have been typed.
use super::file::{File, parse};
use super::keys::{self, Key, Kind};
use super::{example, start, taken};
use crate::args::{Args, Command as Meant};
use clap::{ArgMatches, Command, CommandFactory};
use std::ffi::OsString;
use std::path::PathBuf;

fn said(text: &str) -> Vec<String> {
    parse(text, &Args::command()).wrongs.iter().map(ToString::to_string).collect()
}

fn words(text: &str, table: &str) -> Vec<String> {
    let file = parse(text, &Args::command());
    assert_eq!(file.wrongs, [], "{text}");
    file.entries(table).iter().flat_map(|entry| entry.words.clone()).collect()
}

#[test]
fn a_file_says_what_would_be_typed() {
    let text = "[serve]\nretain-days = 30\nwire = [\"unix:/a\", \"127.0.0.1:1\"]\nno_dump_on_case = true\nstore = '/s t'\n\
                retain_bytes = 0x10_00\n[agent]\nno-dump = false\nnic = \"eth0\"\n";
    let expected = [
        "--retain-days=30",
        "--wire=unix:/a",
        "--wire=127.0.0.1:1",
        "--no-dump-on-case",
        "--store=/s t",
        "--retain-bytes=4096",
    ];
    assert_eq!(words(text, "serve"), expected);
    assert_eq!(words(text, "agent"), ["--nic=eth0"], "false is what a flag is that nobody gives");
    assert_eq!(words(text, "watch"), [""; 0]);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_to_do() {
    let text =
        "retain-days = 3\n[serve]\nretain-day = 3\ntick_ms = \"1000\"\nretain-days = 0\nhttp = 7701\nhttp = '::'\n";
    assert_eq!(said(text), ["line 7: is not TOML: duplicate key"]);
    let text = "retain-days = 3\n[serve]\nretain-day = 3\ntick_ms = \"1000\"\n\nretain-days = 0\nhttp = 'here'\nhttp_ = 1\n\
                log-format = 'jsn'\nzzz = 1\n[sever]\n[cases]\n";
    let expected = [
        "line 1: retain-days stands in no table: keys belong below [agent], [serve], [watch]",
        "line 3: [serve] has no key retain-day: did you mean retain-days?",
        "line 4: tick_ms in [serve]: must be an integer, and is the string \"1000\"",
        "line 6: retain-days in [serve]: invalid value '0' for '--retain-days <RETAIN_DAYS>': 0 is not in 1..=36500",
        "line 7: http in [serve]: invalid value 'here' for '--http <HTTP>': invalid socket address syntax",
        "line 8: [serve] has no key http_: did you mean http?",
        "line 9: log-format in [serve]: invalid value 'jsn' for '--log-format <LOG_FORMAT>' [possible values: text, json] \
         tip: a similar value exists: 'json'",
        "line 10: [serve] has no key zzz: `mycroft serve --help` lists all, without the --",
        "line 11: no table is called [sever]: did you mean [serve]?",
        "line 12: no table is called [cases]: there are [agent], [serve], [watch]",
    ];
    assert_eq!(said(text), expected);
    assert_eq!(
        said("[serve]\nretain-days = 1\nretain_days = 2\n"),
        ["line 3: retain_days in [serve] is there already, in line 2: remove one"]
    );
    assert_eq!(said("serve = 1\n"), ["line 1: serve is a table: write [serve]"]);
    assert_eq!(said("[serve]\nstore = ['a', 'b']\n"), ["line 2: store in [serve]: must be a string, and is a list"]);
    assert_eq!(said("[serve]\nstore = ''\n").len(), 1, "clap takes no empty path");
    assert_eq!(said("[agent]\nconfig = 'x'\n").len(), 1, "a file does not name another");
}

/// Clap's own idea of a command line without variables of this process.
fn parsed(root: &Command, typed: &[String]) -> ArgMatches {
    let command =
        root.clone().mut_subcommands(|command| command.mut_args(|arg| arg.env(clap::builder::Resettable::Reset)));
    command.try_get_matches_from(typed).unwrap_or_else(|error| panic!("{typed:?}: {error}"))
}

fn values(matches: &ArgMatches, key: Key<'_>) -> Vec<String> {
    let id = key.arg.get_id().as_str();
    match key.kind {
        Kind::Flag => vec![matches.get_flag(id).to_string()],
        _ => matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect(),
    }
}

#[test]
fn the_example_has_every_key_and_its_defaults_are_claps() {
    let root = Args::command();
    let text = example::example(&root);
    assert_eq!(parse(&text, &root).wrongs, []);
    for command in keys::commands(&root) {
        let name = command.get_name();
        let of_table = text.split_once(&format!("\n[{name}]\n")).expect("a table").1;
        let of_table = of_table.split("\n[").next().expect("a table");
        let nothing = parsed(&root, &["mycroft".to_owned(), name.to_owned()]);
        let nothing = nothing.subcommand_matches(name).expect("typed");
        for key in keys::keys(command) {
            let line = of_table.lines().find(|line| line.starts_with(&format!("#{} = ", key.name)));
            let line = line.unwrap_or_else(|| panic!("{name}: no {} in {of_table}", key.name));
            if key.arg.get_default_values().is_empty() && key.kind != Kind::Flag {
                continue;
            }
            let file = parse(&format!("[{name}]\n{}", &line[1..]), &root);
            assert_eq!(file.wrongs, [], "{line}");
            assert_eq!(file.entries(name)[0].values, values(nothing, key), "{line}");
        }
    }
}

#[test]
fn every_flag_of_a_daemon_can_stand_in_the_file() {
    let root = Args::command();
    let names: Vec<&str> = keys::commands(&root).map(Command::get_name).collect();
    assert_eq!(names, ["agent", "serve", "watch"]);
    for command in keys::commands(&root) {
        let options = command.get_arguments().filter(|arg| arg.get_long().is_some());
        assert_eq!(keys::keys(command).count() + 1, options.count(), "{}: all but --config", command.get_name());
        for key in keys::keys(command).filter(|key| key.kind == Kind::Flag && key.arg.get_env().is_none()) {
            assert_eq!((command.get_name(), key.name), ("watch", "once"), "nothing could switch it off again");
        }
    }
}

fn completed(folder: &tempfile::TempDir, text: &str, typed: &[&str]) -> Result<Args, String> {
    let path = folder.path().join("mycroft.toml");
    std::fs::write(&path, text).expect("written");
    let typed: Vec<OsString> = ["mycroft"].iter().chain(typed).map(OsString::from).collect();
    let typed = [typed, vec![format!("--config={}", path.display()).into()]].concat();
    let (words, _) = start::completed(&Args::command(), &typed).map_err(|error| format!("{error:#}"))?;
    taken(Args::command(), &words).map_err(|error| error.to_string())
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[serve]\nretain-days = 30\ntick-ms = 500\nwire = ['unix:/a', 'unix:/b']\n[agent]\nnot-a-key = 1\n";
    let args = completed(&folder, text, &["serve", "--tick-ms", "250", "--wire", "unix:/c"]).expect("meant");
    let Meant::Serve(args) = args.command else { panic!("serve was typed") };
    assert_eq!((args.retain_days, args.tick_ms, args.retain_bytes), (30, 250, 64 << 30));
    assert_eq!(args.wire, ["unix:/c"], "a list is one value");
    let refused = completed(&folder, text, &["agent"]).expect_err("its table is wrong");
    assert!(refused.contains("mycroft.toml:6: [agent] has no key not-a-key"), "{refused}");
    // What one flag asks for may stand in the file.
    let text = "[serve]\ntls-key = '/k'\n";
    let args = completed(&folder, text, &["serve", "--tls-cert", "/c"]).expect("both are there");
    let Meant::Serve(args) = args.command else { panic!("serve was typed") };
    assert_eq!(args.tls_key, Some(PathBuf::from("/k")));
    let refused = completed(&folder, text, &["serve"]).expect_err("half of it");
    assert!(refused.contains("--tls-cert"), "{refused}");
}

#[test]
fn nothing_is_wrong_with_an_empty_file() {
    assert_eq!(parse("", &Args::command()), File::default());
    assert_eq!(said("[serve]\n[agent]\n# only comments\n"), [""; 0]);
    assert_eq!(said("[serve\n").len(), 1);
}
