//! The ranks of a job, wherever they are: on this machine, or on the hosts of a server's agents.
use super::line::{self, Line};
use crate::api::ServerArgs;
use anyhow::Result;
use mycroft_record::text::printable;
use mycroft_ring::gate::hold::{Gates, Held, HeldHosts, HoldError, Hosts, Order, Terms};
use mycroft_ring::gate::plan::View;
use mycroft_ring::gate::task::Answer;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The gates of a job.
pub(super) enum Job {
    /// Of this machine, in these directories.
    Here(Gates, Vec<PathBuf>),
    /// Of the hosts of agents.
    There(Box<Hosts<Line>>),
}

/// A job that is held.
pub(super) enum HeldJob<'a> {
    /// By this process.
    Here(Held<'a>),
    /// By agents.
    There(HeldHosts<'a, Line>),
}

impl Job {
    /// Finds them in the segments of these directories.
    pub(super) fn here(job: &str, directories: Vec<PathBuf>) -> Result<Job> {
        Ok(Job::Here(Gates::open_all(&directories, job)?, directories))
    }

    /// Finds them on the hosts of the agents of this server.
    pub(super) fn there(job: &str, server: &ServerArgs, token: Option<&str>) -> Result<Job> {
        Ok(Job::There(Box::new(line::open(job, server, token.map(str::to_owned))?)))
    }

    /// Their global ranks, in one order.
    pub(super) fn ranks(&self) -> Vec<u32> {
        match self {
            Job::Here(gates, _) => gates.ranks().map(|who| who.rank).collect(),
            Job::There(hosts) => hosts.ranks().map(|who| who.rank).collect(),
        }
    }

    /// Name of each one's host, in the same order.
    pub(super) fn hosts(&self) -> Vec<String> {
        match self {
            Job::There(hosts) => hosts.hosts().map(|(name, _)| name.to_owned()).collect(),
            Job::Here(gates, directories) => {
                let host = |(name, directory): (&str, usize)| {
                    let folder = directories.get(directory).and_then(|path| path.file_name());
                    match folder {
                        Some(folder) if directories.len() > 1 => printable(&folder.to_string_lossy()).into_owned(),
                        _ => printable(name).into_owned(),
                    }
                };
                gates.hosts().map(host).collect()
            }
        }
    }

    /// What each shows, in the same order.
    pub(super) fn shown(&self) -> Result<Vec<View>> {
        match self {
            Job::Here(gates, _) => Ok(gates.shown()?),
            Job::There(hosts) => Ok(hosts.shown()),
        }
    }

    /// Holds all.
    pub(super) fn hold(&mut self, terms: Terms) -> Result<HeldJob<'_>, HoldError> {
        Ok(match self {
            Job::Here(gates, _) => HeldJob::Here(gates.hold(terms)?),
            Job::There(hosts) => HeldJob::There(hosts.hold(terms)?),
        })
    }
}

impl HeldJob<'_> {
    /// How many are held.
    pub(super) fn count(&self) -> usize {
        match self {
            HeldJob::Here(held) => held.places().len(),
            HeldJob::There(held) => held.places().len(),
        }
    }

    /// Keeps them where they are.
    pub(super) fn keep(&mut self, time: Duration) -> Result<(), HoldError> {
        match self {
            HeldJob::Here(held) => held.keep(time),
            HeldJob::There(held) => held.keep(time),
        }
    }

    /// Orders tests, and gives what was answered.
    pub(super) fn run(&mut self, orders: &[Order], within: Duration) -> Result<BTreeMap<usize, Answer>, HoldError> {
        match self {
            HeldJob::Here(held) => held.run(orders, within),
            HeldJob::There(held) => held.run(orders, within),
        }
    }
}
