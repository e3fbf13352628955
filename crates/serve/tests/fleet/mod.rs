//! Servers of one bus and one database, in this process and in others.
#![allow(dead_code, reason = "each test binary uses some of it")]
use crate::database;
use crate::feeder::Feeder;
use mycroft_bus::BusSecurity;
use mycroft_bus::kafka::KafkaTopic;
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_serve::{BookedCase, BusSource, ServeConfig, Server, ServerHandle};
use mycroft_store::meta::MetaPlace;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Says to this program that it is a server: brokers, folder, database.
pub(crate) const ROLE: &str = "MYCROFT_TEST_BUS_SERVER";

pub(crate) fn config(brokers: &str, dir: &Path, meta: MetaPlace) -> ServeConfig {
    let topic = KafkaTopic::new(&brokers.parse().expect("an address"), &BusSecurity::default()).expect("settings");
    let http = SocketAddr::from(([127, 0, 0, 1], 0));
    let (store_dir, bus) = (Some(dir.join("store")), Some(BusSource(Arc::new(topic))));
    ServeConfig { http, store_dir, meta, bus, ..ServeConfig::default() }
}

pub(crate) fn start(brokers: &MockBrokers, dir: &Path, meta: MetaPlace) -> ServerHandle {
    Server::start(config(&brokers.address().to_string(), dir, meta)).expect("the server starts")
}

/// The program of [`child`], which serves until its input ends.
pub(crate) fn serve_if_told() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [brokers, dir, url] = role.split('|').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).finish();
    tracing::subscriber::with_default(subscriber, || {
        let meta = MetaPlace::Postgres(database::at(url.to_owned()));
        let server = Server::start(config(brokers, Path::new(dir), meta)).expect("the server starts");
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("a pipe");
        server.stop();
    });
}

/// A server in a process of its own, ended with this one.
pub(crate) fn child(brokers: &MockBrokers, dir: &Path, database: &database::Server) -> Child {
    let role = format!("{}|{}|{}", brokers.address(), dir.display(), database.url());
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", "a_server_of_its_own", "--nocapture"]).env(ROLE, role);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    // Then the tables are there, of whoever started first.
    while database.sql("SELECT to_regclass('mycroft_cases') IS NOT NULL") != "t" {
        assert!(begun.elapsed() < PATIENCE, "it does not start");
    }
    child
}

pub(crate) fn signal(child: &Child, signal: &str) {
    let told = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
    assert!(told.success());
}

/// Feeds until it is so.
pub(crate) fn until(what: &str, feeder: &mut Feeder, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        feeder.feed();
    }
}

pub(crate) fn holder(database: &database::Server) -> String {
    database.sql("SELECT holder FROM mycroft_leases WHERE job LIKE 'bus % partition 0' AND until > now()")
}

pub(crate) fn rows(database: &database::Server) -> String {
    database.sql("SELECT string_agg(id || ' ' || job || ' ' || state, ', ' ORDER BY id) FROM mycroft_cases")
}

pub(crate) fn case_of<'a>(job: &'a str) -> impl Fn(&BookedCase) -> bool + 'a {
    move |case| &*case.job == job && case.is_settled()
}
