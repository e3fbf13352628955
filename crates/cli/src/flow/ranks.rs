//! Between which ranks flows go, from lists of queue pairs that processes of a job wrote (`docs/formats/pairs.md`).
use super::text;
use anyhow::{Context, Result, bail};
use mycroft_flow::{Curve, Ports, WireFlow};
use mycroft_ring::{PAIRS_SUFFIX, PairsOf, QueuePair};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Bytes of a list at most: the tracer writes 2 MiB at most.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// A process of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) job: String,
    pub(super) host: String,
    pub(super) rank: Option<u32>,
}

/// Whose queue pairs are whose, as far as lists were given.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    processes: Vec<Process>,
    /// By address and number of the other end: the process, and its own end.
    sent_to: BTreeMap<(IpAddr, u32), Vec<(usize, QueuePair)>>,
}

/// Both ends of a flow, as far as they are known.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Ends<'a> {
    pub(super) sender: Option<&'a Process>,
    pub(super) receiver: Option<&'a Process>,
}

impl Ranks {
    /// Reads lists, or all lists of folders.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Ranks> {
        let mut ranks = Ranks::default();
        for path in paths {
            let lists = if path.is_dir() { lists_in(path)? } else { vec![path.clone()] };
            if lists.is_empty() {
                bail!(
                    "{}: no list of queue pairs (*{PAIRS_SUFFIX}) in it; is LD_PRELOAD set for the job?",
                    path.display()
                );
            }
            for list in lists {
                ranks.add(&list)?;
            }
        }
        Ok(ranks)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let bytes = fs::metadata(path).with_context(|| format!("{}: cannot be read", path.display()))?.len();
        if bytes > LIST_BYTES_MAX {
            bail!("{}: no list of queue pairs: {bytes} bytes", path.display());
        }
        let text = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let Some((of, pairs)) = PairsOf::parse(&text) else { bail!("{}: no list of queue pairs", path.display()) };
        let process = self.processes.len();
        self.processes.push(Process { job: of.job.to_owned(), host: of.host.to_owned(), rank: of.rank });
        for pair in pairs {
            self.sent_to.entry((pair.address, pair.remote)).or_default().push((process, pair));
        }
        Ok(())
    }

    /// Both ends of a flow that was seen until a time in nanoseconds. Numbers are given anew when queue pairs go, so of several it is
    /// the latest that was connected until then.
    pub(super) fn ends(&self, key: &WireFlow, until_ns: u64) -> Ends<'_> {
        let Ports::QueuePair(number) = key.ports else { return Ends::default() };
        let latest = |found: &mut dyn Iterator<Item = &(usize, QueuePair)>| {
            found.filter(|(_, pair)| pair.at_ns <= until_ns).max_by_key(|(_, pair)| pair.at_ns).copied()
        };
        let of = |address: IpAddr, number: u32| self.sent_to.get(&(address, number)).into_iter().flatten();
        // The sender's line names the receiver's end, and the receiver's line the sender's.
        let sender = latest(&mut of(key.destination, number));
        let receiver = match sender {
            Some((_, pair)) => latest(&mut of(key.source, pair.local).filter(|(_, other)| other.local == number)),
            None => {
                let from_there = self.sent_to.range((key.source, 0)..=(key.source, u32::MAX));
                latest(&mut from_there.flat_map(|(_, all)| all).filter(|(_, pair)| pair.local == number))
            }
        };
        let process = |(process, _): (usize, QueuePair)| self.processes.get(process);
        Ends { sender: sender.and_then(process), receiver: receiver.and_then(process) }
    }

    /// A flow's name, with the ranks that are known: `10.0.0.1 -> 10.0.0.2 qp 0x000012, rank 3 -> 5`.
    pub(super) fn name(&self, key: &WireFlow, curve: &Curve) -> String {
        let mut name = text::name(key);
        let ends = self.ends(key, curve.exchange.last_ns);
        let rank = |process: Option<&Process>| {
            process.and_then(|process| process.rank).map_or_else(|| "?".to_owned(), |rank| rank.to_string())
        };
        if ends != Ends::default() {
            let _ = write!(name, ", rank {} -> {}", rank(ends.sender), rank(ends.receiver));
        }
        name
    }

    /// An address with the rank that sends from it, where it is one and known.
    pub(super) fn sender(&self, address: IpAddr, flows: &[(&WireFlow, &Curve)]) -> String {
        let of_address = flows.iter().filter(|(key, _)| key.source == address);
        let ranks: BTreeSet<Option<u32>> = of_address
            .map(|(key, curve)| self.ends(key, curve.exchange.last_ns).sender.and_then(|process| process.rank))
            .collect();
        match ranks.first() {
            Some(Some(rank)) if ranks.len() == 1 => format!("{address} (rank {rank})"),
            _ => address.to_string(),
        }
    }
}

fn lists_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}: cannot be read", folder.display()))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok::<_, std::io::Error>(entry?.path())).collect();
    let mut paths = paths.with_context(|| format!("{}: cannot be read", folder.display()))?;
    paths.retain(|path| path.to_string_lossy().ends_with(PAIRS_SUFFIX));
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: &str, to: &str, number: u32) -> WireFlow {
        let address = |text: &str| text.parse().expect("an address");
        WireFlow { source: address(from), destination: address(to), ports: Ports::QueuePair(number) }
    }

    fn list(folder: &Path, name: &str, rank: u32, lines: &str) {
        let of = PairsOf { job: "j", host: "h", rank: Some(rank) };
        fs::write(folder.join(format!("{name}{PAIRS_SUFFIX}")), format!("{of}{lines}")).expect("written");
    }

    #[test]
    fn both_ends_are_found_by_numbers_and_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        // Ranks 3 and 5 between hosts 1 and 2; rank 6 has the same numbers on host 4; rank 8 had number 0x20 before.
        list(folder.path(), "a", 3, "0x000010 0x000020 10.0.0.2 100\n");
        list(folder.path(), "b", 5, "0x000020 0x000010 10.0.0.1 101\n");
        list(folder.path(), "c", 6, "0x000020 0x000010 10.0.0.7 100\n0x000001 0x000002 fd00::1 100\n");
        list(folder.path(), "d", 8, "0x000090 0x000020 10.0.0.2 50\n");
        let ranks = Ranks::read(&[folder.path().to_owned()]).expect("read");
        let told = |key: &WireFlow, until| {
            let Ends { sender, receiver } = ranks.ends(key, until);
            (sender.and_then(|it| it.rank), receiver.and_then(|it| it.rank))
        };
        assert_eq!(told(&flow("10.0.0.1", "10.0.0.2", 0x20), 200), (Some(3), Some(5)));
        assert_eq!(told(&flow("10.0.0.2", "10.0.0.1", 0x10), 200), (Some(5), Some(3)));
        assert_eq!(told(&flow("10.0.0.1", "10.0.0.2", 0x20), 60), (Some(8), None), "before the number was given anew");
        assert_eq!(told(&flow("fd00::9", "fd00::1", 2), 200), (Some(6), None));
        assert_eq!(told(&flow("10.0.0.1", "10.0.0.2", 0x21), 200), (None, None));
        // Of a list of the receiver alone.
        let receiver = Ranks::read(&[folder.path().join(format!("b{PAIRS_SUFFIX}"))]).expect("read");
        let ends = receiver.ends(&flow("10.0.0.1", "10.0.0.2", 0x20), 200);
        assert_eq!((ends.sender, ends.receiver.and_then(|it| it.rank)), (None, Some(5)));
    }

    #[test]
    fn what_is_no_list_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |path: &Path| Ranks::read(&[path.to_owned()]).expect_err("nothing there").to_string();
        assert!(of(folder.path()).contains("LD_PRELOAD"));
        let file = folder.path().join("file");
        fs::write(&file, "something else").expect("written");
        assert!(of(&file).ends_with("no list of queue pairs"));
        assert!(of(&folder.path().join("missing")).ends_with("cannot be read"));
    }
}
