//! `GET /api/v1/fleet` of a whole server: hosts, agents that are connected, certificates, whom it is told to.
use super::*;
use crate::api::FleetJson;
use mycroft_record::{ProcessInfo, ProcessKey};
use mycroft_wire::{Client, ClientConfig, Endpoint, TlsIdentity};

const TOKEN: &str = "a-token-of-sufficient-length";

fn traced(job: &str, host: &str, rank: u32) -> Batch {
    let at = HostTime(NEW_YEAR);
    let info = ProcessInfo {
        attached_at: at,
        world_size: 16,
        local_rank: rank,
        gpu: 0,
        profiler_abi: 5,
        nccl_version: 22_809,
        kernel_events: true,
    };
    let process = Some(ProcessKey { rank: Rank(rank), pid: 1, nonce: 1 });
    let source = Source { job: job.into(), host: host.into(), process };
    Batch { source, collected_at: at, records: vec![Record::Process(info)] }
}

fn fleet(world: &World, token: &str) -> Option<FleetJson> {
    let answer = get(world.server.http_addr(), "/api/v1/fleet", &[&format!("Authorization: Bearer {token}")]);
    (answer.status == 200).then(|| serde_json::from_str(&answer.body).expect("a fleet"))
}

/// Until the answer satisfies `wanted`.
fn until(world: &World, mut wanted: impl FnMut(&FleetJson) -> bool) -> FleetJson {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = fleet(world, TOKEN).expect("an answer");
        if wanted(&told) {
            return told;
        }
        assert!(Instant::now() < deadline, "it stayed {told:?}");
    }
}

#[test]
fn every_host_is_told_with_the_agent_that_is_connected() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2031, 5, 6);
    let identity = TlsIdentity { cert_pem: dir.path().join("cert.pem"), key_pem: dir.path().join("key.pem") };
    std::fs::write(&identity.cert_pem, params.self_signed(&key).expect("signed").pem()).expect("written");
    std::fs::write(&identity.key_pem, key.serialize_pem()).expect("written");
    let tls = Some(mycroft_wire::TlsServer { identity, client_ca_pem: None, client_crl_pem: None });
    let socket = Endpoint::Unix(dir.path().join("wire.sock"));
    let wire = vec![socket.clone()];
    let world = World::start(ServeConfig { wire, tls, token: Some(TOKEN.to_owned()), ..quick() });
    assert!(world.server.ingest(traced("train", "h0", 3)) && world.server.ingest(traced("other", "h1", 0)));
    let config = ClientConfig { host: "h2".to_owned(), token: Some(TOKEN.to_owned()), ..ClientConfig::default() };
    let mut agent = Client::connect(&socket, &config).expect("it is let in");
    let told = until(&world, |fleet| fleet.hosts.len() == 3);
    let names: Vec<_> = told.hosts.iter().map(|host| (&*host.host, host.agents.len(), host.traced.len())).collect();
    assert_eq!(names, [("h0", 0, 1), ("h1", 0, 1), ("h2", 1, 0)]);
    let said = &told.hosts[2].agents[0];
    assert_eq!(said.software, format!("mycroft {}", told.version));
    assert_eq!(said.wire_version, told.wire_versions[1]);
    assert!(told.hosts[2].last_heard_at.is_none() && told.hosts[0].last_heard_at.is_some());
    let ranks: Vec<_> = told.jobs.iter().map(|job| (&*job.job, job.ranks, job.missing)).collect();
    assert_eq!(ranks, [("other", 1, 15), ("train", 1, 15)]);
    let ends: Vec<_> =
        told.certificates.iter().map(|one| (&*one.of, one.ends_at.as_ref().map(|at| &*at.text))).collect();
    assert_eq!(ends, [("wire", Some("2031-05-06T00:00:00.000000000Z"))]);
    // A stranger counts as refused, and is told nothing.
    let stranger = ClientConfig { token: Some("another-token-of-that-length".to_owned()), ..config.clone() };
    assert!(Client::connect(&socket, &stranger).is_err());
    let told = until(&world, |fleet| fleet.refusals.len() == 1);
    let refused = &told.refusals[0];
    assert_eq!((refused.host.as_deref(), &*refused.reason, refused.times), (Some("h2"), "token", 1));
    assert!(told.refused == 1 && refused.address.is_none(), "{refused:?}");
    let text = serde_json::to_string(&told).expect("it has a JSON form");
    assert!(!text.contains("-that-length") && !text.contains(TOKEN), "{text}");
    assert!(fleet(&world, "another-token-of-that-length").is_none());
    // The other agent of that name has gone on, and says of its spool what it has there.
    let spooled = mycroft_wire::Spooled { records: 12, bytes: 3_400, dropped: 5 };
    agent.say_spooled(spooled);
    let spool = Some(crate::api::SpoolJson { records: 12, bytes: 3_400, dropped: 5 });
    let told = until(&world, |fleet| {
        agent.poll().expect("it is connected");
        fleet.hosts[2].agents[0].spool == spool
    });
    assert!(told.hosts[2].last_agent.is_none() && told.hosts[2].agents[0].silent_s.is_some_and(|silent| silent < 20.0));
    drop(agent);
    let told = until(&world, |fleet| fleet.hosts[2].agents.is_empty());
    let gone = told.hosts[2].last_agent.as_ref().expect("nothing of a job came from it, and it is remembered");
    assert_eq!((&gone.software, gone.spool), (&format!("mycroft {}", told.version), spool));
    // Whoever is let in under the name that was refused has mended it.
    let _agent = Client::connect(&socket, &config).expect("it is let in");
    until(&world, |fleet| fleet.refusals.is_empty() && fleet.hosts[2].last_agent.is_none());
    let few = get(world.server.http_addr(), "/api/v1/fleet?limit=1", &[&format!("Authorization: Bearer {TOKEN}")]);
    let few: FleetJson = serde_json::from_str(&few.body).expect("a fleet");
    assert_eq!((few.hosts.len(), few.more), (1, 2));
}

#[test]
fn the_documented_fleet_can_be_read_and_what_it_does_not_know_is_passed_over() {
    let document = include_str!("../../../../docs/formats/api.md");
    let (_, rest) = document.split_once("<!-- example: fleet -->\n```json\n").expect("the example is marked");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let read: FleetJson = serde_json::from_str(example).expect("the example is a fleet");
    let written = serde_json::to_string_pretty(&read).expect("it has a JSON form");
    assert_eq!(example.trim(), written, "docs/formats/api.md shows another shape");
    let newer =
        example.replacen('{', "{\"of_a_newer_server\": [1], ", 1).replacen("\"offset_s\"", "\"x\": 1, \"offset_s\"", 1);
    assert_eq!(serde_json::from_str::<FleetJson>(&newer).expect("it is read"), read);
}
