//! A drawn fleet with something wrong on most hosts: the table and what is told of each.
use super::*;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::api::{
    AgentJson, CertificateJson, ClockJson, ClocksJson, DiskJson, DroppedJson, HostClockJson, HostJson, LastAgentJson,
    LostJson, QueueJson, RanksOfJobJson, RefusalJson, SpoolJson, TimeJson, TracedJson,
};

const NOW: u64 = 1_735_689_600;

fn at(seconds_ago: i64) -> TimeJson {
    TimeJson::exact(HostTime((NOW.cast_signed() - seconds_ago).cast_unsigned() * NANOS_PER_SEC))
}

fn health() -> HealthJson {
    HealthJson {
        status: "ok".to_owned(),
        problems: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: at(0),
        uptime_s: 93_780.0,
        agents_connected: 15,
        hosts_heard: 14,
        jobs: 2,
        open_cases: 0,
        batches: 1,
        records: 1,
        lag_ms: 40,
        queue: QueueJson { batches: 0, records: 0 },
        dropped: DroppedJson { queue: 0, store: 0, jobs: 0, limits: 0 },
        engine_panics: 0,
        clocks: ClocksJson::default(),
        disk: Some(DiskJson { free_bytes: 80 << 30, bytes: 200 << 30, retain_s: 7 * 86_400, retain_bytes: 64 << 30 }),
    }
}

fn traced(job: &str, nccl_code: u32, nccl: &str) -> TracedJson {
    let (job, nccl) = (job.to_owned(), Some(nccl.to_owned()));
    TracedJson { job, processes: 8, nccl, nccl_code, profiler_abi: 5, kernel_events: Some(true) }
}

/// Nothing is wrong there.
fn host(name: &str, ms: f64) -> HostJson {
    let software = format!("mycroft {}", env!("CARGO_PKG_VERSION"));
    HostJson {
        host: name.to_owned(),
        agents: vec![AgentJson { software, wire_version: 4, silent_s: None, spool: None }],
        last_agent: None,
        first_heard_at: Some(at(90_000)),
        last_heard_at: Some(at(0)),
        silent_s: 0.1,
        behind_s: 0.1,
        clock: Some(HostClockJson { offset_s: ms / 1e3, bound_s: Some(0.0004), drift_ppm: 2.0 }),
        agent_dropped: 0,
        lost: LostJson::default(),
        traced: vec![traced("train", 22_606, "2.26.6")],
    }
}

fn fleet(hosts: Vec<HostJson>) -> FleetJson {
    FleetJson {
        now: at(0),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wire_versions: [1, 4],
        uptime_s: 93_780.0,
        hosts,
        more: 0,
        jobs: Vec::new(),
        refused: 0,
        refusals: Vec::new(),
        put_out: 0,
        certificates: Vec::new(),
    }
}

fn job(name: &str, world_size: u32, missing_ranks: &[[u32; 2]]) -> RanksOfJobJson {
    let missing: u32 = missing_ranks.iter().map(|[first, last]| last - first + 1).sum();
    RanksOfJobJson {
        job: name.to_owned(),
        known_s: 3_600.0,
        world_size: Some(world_size),
        hosts: 16,
        ranks: u64::from(world_size - missing),
        missing: u64::from(missing),
        missing_ranks: missing_ranks.to_vec(),
    }
}

fn asked(fleet: FleetJson) -> Asked {
    Asked { url: "https://mycroft.example:7701".to_owned(), health: health(), fleet: Some(fleet) }
}

/// Sixteen hosts: of ten something is to be mended.
fn drawn() -> Asked {
    let mut hosts: Vec<HostJson> = (0..16).map(|nth| host(&format!("h{nth:02}"), f64::from(nth) / 10.0)).collect();
    for old in [1, 2, 3, 4] {
        hosts[old].agents[0] =
            AgentJson { software: "mycroft 0.0.9".to_owned(), wire_version: 2, silent_s: None, spool: None };
        hosts[old].clock = None;
    }
    (hosts[5].agents, hosts[5].silent_s, hosts[5].last_heard_at) = (Vec::new(), 312.0, Some(at(312)));
    hosts[6].clock = Some(HostClockJson { offset_s: -3.25, bound_s: Some(0.0006), drift_ppm: 0.0 });
    hosts[7].clock = Some(HostClockJson { offset_s: 0.5, bound_s: None, drift_ppm: 0.0 });
    hosts[8].lost = LostJson { ring: 1_200, spool: 7, last_at: Some(at(60)), ..LostJson::default() };
    hosts[9].behind_s = 95.0;
    hosts[10].traced = vec![traced("train", 22_809, "2.28.9")];
    hosts[11].traced[0].kernel_events = Some(false);
    hosts[12].lost = LostJson { ring: 5, last_at: Some(at(7_200)), ..LostJson::default() };
    let mut told = fleet(hosts);
    told.jobs = vec![job("train", 128, &[[8, 15], [40, 40]])];
    told.refused = 12;
    told.certificates = vec![
        CertificateJson { of: "http".to_owned(), ends_at: Some(at(-10 * 86_400)) },
        CertificateJson { of: "wire".to_owned(), ends_at: Some(at(-300 * 86_400)) },
    ];
    let mut asked = asked(told);
    asked.health.disk = Some(DiskJson { free_bytes: 1 << 30, ..asked.health.disk.unwrap() });
    asked
}

#[test]
fn a_drawn_fleet_is_told_worst_first() {
    let all = found(&drawn());
    assert_eq!((all.hosts, all.healthy), (16, 5), "{:?}", all.findings);
    assert!(all.findings.is_sorted_by(|a, b| a.grade >= b.grade), "{:?}", all.findings);
    assert_eq!(all.findings[0].grade, Grade::Fail);
    let told = text::text(&all);
    assert!(told.ends_with("\n   ok  5 of 16 hosts: nothing to mend\n"), "{told}");
}

#[test]
fn a_healthy_fleet_is_one_line() {
    let asked = asked(fleet((0..300).map(|nth| host(&format!("h{nth:03}"), 0.1)).collect()));
    let all = found(&asked);
    assert_eq!((all.hosts, all.healthy, all.findings.len()), (300, 300, 0), "{:?}", all.findings);
    let told = text::text(&all);
    assert!(told.ends_with("\n   ok  all 300 hosts: nothing to mend\n"), "{told}");
    assert_eq!(told.lines().count(), 5, "{told}");
}

/// The findings of one host or job as `check grade`, and the texts.
fn of(change: impl FnOnce(&mut Asked)) -> Vec<(&'static str, Grade, String, String)> {
    let mut asked = asked(fleet(vec![host("h0", 0.0), host("h1", 0.0)]));
    change(&mut asked);
    found(&asked).findings.into_iter().map(|one| (one.check, one.grade, one.found, one.fix)).collect()
}

fn first_host(asked: &mut Asked) -> &mut HostJson {
    &mut asked.fleet.as_mut().expect("a fleet").hosts[0]
}

/// One finding, which says all of these.
fn says(change: impl FnOnce(&mut Asked), check: &str, grade: Grade, parts: &[&str]) {
    let told = of(change);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0, told[0].1), (check, grade), "{told:?}");
    let text = format!("{} -> {}", told[0].2, told[0].3);
    for part in parts {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn each_thing_that_can_be_wrong_with_a_host_is_told_with_what_mends_it() {
    use Grade::{Fail, Warn};
    let dropped = |asked: &mut Asked| first_host(asked).agent_dropped = 9;
    says(dropped, "lost", Warn, &["dropped 9 records", "--spool-bytes"]);
    let hangs = |asked: &mut Asked| first_host(asked).silent_s = 90.0;
    says(hangs, "agent", Fail, &["connected and has sent nothing for 1 min", "systemctl status"]);
    let idle = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.silent_s, host.agents, host.traced) = (90.0, Vec::new(), Vec::new());
    };
    says(idle, "agent", Warn, &["no job ran there", "systemctl start"]);
    let mute = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.last_heard_at, host.clock, host.traced) = (None, None, Vec::new());
    };
    says(mute, "agent", Warn, &["has sent nothing"]);
    let wide = |asked: &mut Asked| first_host(asked).clock.as_mut().unwrap().bound_s = Some(0.02);
    says(wide, "clock", Warn, &["to within 0.0200 s only"]);
    let slewed = |asked: &mut Asked| first_host(asked).clock.as_mut().unwrap().drift_ppm = -400.0;
    says(slewed, "clock", Warn, &["-400 us a second", "chronyc tracking"]);
    let near = |asked: &mut Asked| first_host(asked).clock.as_mut().unwrap().offset_s = 0.099;
    assert!(of(near).is_empty(), "a tenth of a second is corrected and not told");
    let old_nccl = |asked: &mut Asked| {
        let hosts = &mut asked.fleet.as_mut().unwrap().hosts;
        for host in hosts {
            host.traced = vec![TracedJson { profiler_abi: 0, ..traced("train", 22_105, "2.21.5") }];
        }
    };
    says(old_nccl, "nccl", Warn, &["2.21.5 has no profiler plugins", "libmycroft_preload.so"]);
    let unloaded = |asked: &mut Asked| first_host(asked).traced[0].profiler_abi = 0;
    says(unloaded, "tracer", Warn, &["has not loaded the tracer", "NCCL_PROFILER_PLUGIN"]);
    let costly = |asked: &mut Asked| {
        let hosts = &mut asked.fleet.as_mut().unwrap().hosts;
        for host in hosts {
            host.traced = vec![TracedJson { kernel_events: Some(false), ..traced("train", 23_102, "2.31.2") }];
        }
    };
    says(costly, "tracer", Warn, &["kernel events are off", "4 to 13 %"]);
    let unknown = |asked: &mut Asked| {
        let one = &mut first_host(asked).traced[0];
        (one.nccl, one.nccl_code, one.profiler_abi, one.kernel_events) = (None, 0, 0, None);
    };
    assert!(of(unknown).is_empty(), "before its first communicator nothing is known");
    let mixed = |asked: &mut Asked| first_host(asked).traced = vec![traced("train", 22_605, "2.26.5")];
    says(mixed, "nccl", Warn, &["2.26.5 on h0; 2.26.6 on h1", "one NCCL"]);
}

#[test]
fn each_thing_that_can_be_wrong_with_the_server_is_told() {
    use Grade::{Fail, Warn};
    says(|asked| asked.health.lag_ms = 6_000, "server", Warn, &["6.0 s behind"]);
    says(|asked| asked.health.problems = vec!["the disk is full".to_owned()], "server", Warn, &["the disk is full"]);
    says(|asked| asked.health.dropped.queue = 3, "lost", Warn, &["3 records", "queue was full"]);
    says(|asked| asked.health.disk = None, "disk", Warn, &["nothing is stored", "--store"]);
    let small = |asked: &mut Asked| asked.health.disk.as_mut().unwrap().retain_bytes = 300 << 30;
    says(small, "disk", Warn, &["300.0 GiB", "200.0 GiB", "--retain-bytes 171798691840"]);
    let scarce = |asked: &mut Asked| asked.health.disk.as_mut().unwrap().free_bytes = 9 << 30;
    says(scarce, "disk", Warn, &["9.0 GiB of 200.0 GiB are free"]);
    says(|asked| asked.health.version = "0.0.1".to_owned(), "version", Warn, &["the server has version 0.0.1"]);
    let ended = |of: &str, ends_at| CertificateJson { of: of.to_owned(), ends_at };
    let put_out = |asked: &mut Asked| asked.fleet.as_mut().unwrap().put_out = 2;
    says(put_out, "refused", Warn, &["2 connections were put out", "LimitNOFILE"]);
    let gone = ended("wire", Some(at(60)));
    says(
        |asked| asked.fleet.as_mut().unwrap().certificates = vec![gone],
        "certificate",
        Fail,
        &["ended at", "--tls-cert"],
    );
    let lost = ended("agents-authority", None);
    let unread = |asked: &mut Asked| asked.fleet.as_mut().unwrap().certificates = vec![lost];
    says(unread, "certificate", Fail, &["cannot be read", "--tls-client-ca"]);
    let starting = |asked: &mut Asked| {
        asked.fleet.as_mut().unwrap().jobs = vec![RanksOfJobJson { known_s: 20.0, ..job("train", 16, &[[8, 15]]) }];
    };
    assert!(of(starting).is_empty(), "its ranks come one after the other");
}

#[test]
fn an_old_server_is_named_and_its_clocks_are_told_all_the_same() {
    let mut asked = asked(fleet(Vec::new()));
    asked.fleet = None;
    let clock = |host: &str, offset_s| ClockJson { host: host.to_owned(), offset_s, bound_s: Some(0.001) };
    asked.health.clocks = ClocksJson { hosts: 9, off: 1, unknown: 0, told: vec![clock("h1", 2.5)] };
    let found = found(&asked);
    let told: Vec<_> = found.findings.iter().map(|one| (one.grade, one.check, one.hosts.len())).collect();
    assert_eq!(told, [(Grade::Fail, "version", 0), (Grade::Warn, "clock", 1)]);
    assert!(found.findings[0].found.contains("too old to tell of its hosts"), "{}", found.findings[0].found);
    assert!(text::text(&found).ends_with("no host is known\n"));
}

#[test]
fn names_from_the_wire_do_not_reach_the_terminal_as_they_are() {
    let evil = "h\u{1b}[2J";
    let mut one = host(evil, 0.0);
    (one.silent_s, one.agents) = (60.0, Vec::new());
    one.traced[0].job = evil.to_owned();
    let told = text::text(&found(&asked(fleet(vec![one, host("h1", 0.0)]))));
    assert!(!told.contains('\u{1b}') && told.contains("no agent is connected"), "{told:?}");
}

fn spool(records: u64, bytes: u64, dropped: u64) -> Option<SpoolJson> {
    Some(SpoolJson { records, bytes, dropped })
}

#[test]
fn a_host_whose_agent_ended_is_told_with_since_when_and_what_waited_there() {
    use Grade::{Fail, Warn};
    let ended = |host: &mut HostJson, seconds_ago: i64, spool| {
        host.agents.clear();
        let software = "mycroft 0.1.0".to_owned();
        host.last_agent = Some(LastAgentJson { heard_at: at(seconds_ago), software, wire_version: 4, spool });
    };
    let before_any_job = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.first_heard_at, host.last_heard_at, host.silent_s, host.clock) = (None, None, 0.0, None);
        host.traced.clear();
        ended(host, 3_600, spool(0, 0, 0));
    };
    let parts =
        ["has not been heard since 2024-12-31 23:00:00 UTC", "nothing of a job", "systemctl start mycroft-agent"];
    says(before_any_job, "agent", Warn, &parts);
    let under_a_job = |asked: &mut Asked| {
        let host = first_host(asked);
        host.silent_s = 61.0;
        ended(host, 60, spool(1_200, 3 << 20, 0));
    };
    let parts =
        ["since 2024-12-31 23:59:00 UTC", "with 8 ranks of train", "then 1200 records (3.0 MiB) waited in its spool"];
    says(under_a_job, "agent", Fail, &parts);
}

#[test]
fn an_agent_that_answers_is_missed_where_ranks_are_and_nowhere_else() {
    let idle = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.last_heard_at, host.clock, host.traced) = (None, None, Vec::new());
        host.agents[0].silent_s = Some(0.4);
    };
    assert!(of(idle).is_empty(), "no job runs there");
    let after_its_job = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.silent_s, host.traced, host.agents[0].silent_s) = (900.0, Vec::new(), Some(0.4));
    };
    assert!(of(after_its_job).is_empty(), "the job there is over");
    let under_a_job = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.silent_s, host.agents[0].silent_s) = (90.0, Some(0.4));
    };
    says(under_a_job, "agent", Grade::Fail, &["answers and has sent nothing of 8 ranks of train for 1 min"]);
    let hangs = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.silent_s, host.agents[0].silent_s) = (90.0, Some(80.0));
    };
    says(hangs, "agent", Grade::Fail, &["connected and has sent nothing for 1 min"]);
}

#[test]
fn what_waits_in_spools_or_was_dropped_there_is_told() {
    use Grade::Warn;
    let waits = |asked: &mut Asked| first_host(asked).agents[0].spool = spool(90_000, 12 << 20, 0);
    says(waits, "spool", Warn, &["90000 records (12.0 MiB) wait in its spool"]);
    let little = |asked: &mut Asked| first_host(asked).agents[0].spool = spool(90, 12 << 10, 0);
    assert!(of(little).is_empty(), "a moment's");
    let late = |asked: &mut Asked| {
        let host = first_host(asked);
        (host.behind_s, host.agents[0].spool) = (95.0, spool(90, 12 << 10, 0));
    };
    says(late, "spool", Warn, &["arrive 1 min late", "90 records (0.0 MiB) still do"]);
    let dropped = |asked: &mut Asked| first_host(asked).agents[0].spool = spool(0, 0, 44);
    says(dropped, "lost", Warn, &["dropped 44 records", "--spool-bytes"]);
}

fn refused(host: Option<&str>, reason: &str, seconds_ago: i64) -> RefusalJson {
    RefusalJson {
        host: host.map(str::to_owned),
        address: Some("10.0.0.7".to_owned()),
        reason: reason.to_owned(),
        text: "the token is missing or wrong".to_owned(),
        times: 12,
        first_at: at(seconds_ago + 30),
        last_at: at(seconds_ago),
    }
}

#[test]
fn agents_that_are_refused_are_named_with_what_lets_them_in() {
    use Grade::Warn;
    let refuse = |refusals: Vec<RefusalJson>| {
        move |asked: &mut Asked| {
            let fleet = asked.fleet.as_mut().expect("a fleet");
            (fleet.refused, fleet.refusals) = (24, refusals);
        }
    };
    let parts = ["the token is missing or wrong: h7 at 10.0.0.7 (12 times, last 2 s ago)", "--token-file"];
    says(refuse(vec![refused(Some("h7"), "token", 2)]), "refused", Warn, &parts);
    let many = (0..20).map(|nth| refused(Some(&format!("h{nth}")), "certificate", 2)).collect();
    says(refuse(many), "refused", Warn, &["h7 at", "and 12 more", "--tls-client-ca"]);
    says(refuse(vec![refused(None, "no-tls", 2)]), "refused", Warn, &["no name at 10.0.0.7"]);
    assert!(of(refuse(vec![refused(Some("h7"), "token", 4_000)])).is_empty(), "it has stopped");
    let evil = refused(Some("h\u{1b}[2J"), "token\u{1b}[2J", 2);
    let told =
        of(refuse(vec![RefusalJson { text: "\u{1b}[2J".to_owned(), address: Some("\u{1b}[2J".to_owned()), ..evil }]));
    assert!(told.len() == 1 && !told[0].2.contains('\u{1b}'), "{told:?}");
    let mut asked = asked(fleet(vec![host("h7", 0.0)]));
    asked.fleet.as_mut().expect("a fleet").refusals = vec![refused(Some("h7"), "token", 2)];
    assert_eq!(found(&asked).healthy, 1, "nobody vouches for a name");
}
