//! Packets of an interface of this host, as they pass, into curves.
use super::intake::{Intake, Left, Seen};
use super::text::time;
use crate::stop::Stop;
use crate::told;
use anyhow::Result;
use mycroft_agent::tap::{
    RING_BYTES, RING_BYTES_MAX, RING_BYTES_MIN, Stamp, Tap, TapConfig, TapCounts, TapGap, TapPacket, Traffic,
};
use mycroft_flow::Curves;
use mycroft_flow::limits::Grain;
use mycroft_formats::CapturedPacket;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Longest wait for packets before it is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// Most gaps that are told one by one to a person; JSON has all that are kept.
const GAPS_TOLD: usize = 8;

/// Which interface, and what of it.
#[derive(clap::Args, Debug)]
pub(super) struct TapArgs {
    /// Measure live: packets of this interface of the host, as they pass (needs CAP_NET_RAW; RDMA that bypasses the kernel shows
    /// only at a mirror port, or where the driver shows it).
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(super) interface: Option<String>,
    /// Which packets are taken from the interface.
    #[arg(long, value_enum, default_value_t = TrafficArg::Both, requires = "interface")]
    traffic: TrafficArg,
    /// Also packets for other hosts: the interface is at a mirror port.
    #[arg(long, requires = "interface")]
    promiscuous: bool,
    /// Whose times: those of the kernel, or those of the NIC where it was set up to make them (hwstamp_ctl -r 1).
    #[arg(long, value_enum, default_value_t = StampsArg::Software, requires = "interface")]
    stamps: StampsArg,
    /// Bytes of the ring that the kernel copies headers into, 256 KiB to 1 GiB: a packet takes 216.
    #[arg(long, value_name = "BYTES", default_value_t = RING_BYTES as u64, requires = "interface",
          value_parser = clap::value_parser!(u64).range(RING_BYTES_MIN as u64..=RING_BYTES_MAX as u64))]
    ring_bytes: u64,
}

/// Packets that the kernel lets through.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum TrafficArg {
    /// RoCEv2 and TCP.
    Both,
    /// UDP to port 4791.
    Roce,
    /// TCP.
    Tcp,
}

/// Whose clock times are of.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum StampsArg {
    /// The kernel's wall clock.
    Software,
    /// The NIC's clock.
    Hardware,
}

/// An interface that is measured, and what came of it.
pub(super) struct Live {
    tap: Tap,
    /// Name of the interface.
    pub(super) name: String,
    stamp: Stamp,
    /// By how much the packets' clock is ahead of this host's, nanoseconds; known from the first packet where it is the NIC's.
    ahead_ns: Option<i64>,
}

impl Live {
    /// Opens the interface and says so.
    pub(super) fn open(args: &TapArgs, name: &str) -> Result<Live> {
        let traffic = match args.traffic {
            TrafficArg::Both => Traffic::Both,
            TrafficArg::Roce => Traffic::Roce,
            TrafficArg::Tcp => Traffic::Tcp,
        };
        let (stamp, ahead_ns) = match args.stamps {
            StampsArg::Software => (Stamp::Software, Some(0)),
            StampsArg::Hardware => (Stamp::Hardware, None),
        };
        let ring_bytes = usize::try_from(args.ring_bytes).unwrap_or(RING_BYTES);
        let config = TapConfig { ring_bytes, traffic, is_promiscuous: args.promiscuous, stamp, ..TapConfig::new(name) };
        Ok(Live { tap: Tap::open(&config)?, name: name.to_owned(), stamp, ahead_ns })
    }

    /// Counts what is in the ring; waits for it, so long at most.
    pub(super) fn take(&mut self, wait: Duration, intake: &mut Intake) -> Result<()> {
        let Live { tap, stamp, ahead_ns, .. } = self;
        let (link, wanted) = (tap.link(), *stamp);
        Ok(tap.take(wait.min(LOOK), |packet| count(intake, packet, link, wanted, ahead_ns))?)
    }

    /// Counts what is still in the ring, and what was lost.
    pub(super) fn finish(&mut self, intake: &mut Intake) -> Result<()> {
        let Live { tap, stamp, ahead_ns, .. } = self;
        let (link, wanted) = (tap.link(), *stamp);
        tap.finish(|packet| count(intake, packet, link, wanted, ahead_ns))?;
        let counts = tap.counts();
        intake.leave(Left::Dropped, counts.drops + counts.left_behind);
        Ok(())
    }

    /// The time now by the packets' clock, nanoseconds; none before the first packet of a NIC's clock.
    pub(super) fn now_ns(&self) -> Option<u64> {
        self.ahead_ns.map(|ahead| told::now().0.saturating_add_signed(ahead))
    }

    /// What was counted.
    pub(super) fn counts(&self) -> TapCounts {
        self.tap.counts()
    }

    /// Where packets were lost.
    pub(super) fn gaps(&self) -> &[TapGap] {
        self.tap.gaps()
    }

    /// Whose times they are, in a word for programs.
    pub(super) fn stamps(&self) -> &'static str {
        match self.stamp {
            Stamp::Software => "software",
            Stamp::Hardware => "hardware",
        }
    }

    /// What there is to say beside the flows; times are since `begin_ns`.
    pub(super) fn text(&self, begin_ns: u64) -> String {
        let counts = self.counts();
        let mut text = match self.stamp {
            Stamp::Software => "times: software, by the kernel\n".to_owned(),
            Stamp::Hardware => format!("times: hardware, by the NIC, of {} packets\n", counts.hardware_stamps),
        };
        if self.stamp == Stamp::Hardware && counts.hardware_stamps == 0 {
            let name = &self.name;
            let _ = writeln!(text, "{name}: no packet had a time of the NIC; set it up (hwstamp_ctl -i {name} -r 1)");
        }
        let since = |ns: u64| time(ns.saturating_sub(begin_ns));
        for gap in self.gaps().iter().take(GAPS_TOLD) {
            let (from, until) = (since(gap.from_ns), since(gap.until_ns));
            let _ = writeln!(text, "gap: {} packets lost between {from} and {until}", gap.packets);
        }
        if let Some(more) = self.gaps().len().checked_sub(GAPS_TOLD).filter(|more| *more > 0) {
            let _ = writeln!(text, "and {more} more gaps");
        }
        if counts.freezes > 0 {
            let _ = writeln!(text, "the ring was full {} times; --ring-bytes makes it larger", counts.freezes);
        }
        if counts.downs > 0 {
            let _ = writeln!(text, "{}: went down {} times", self.name, counts.downs);
        }
        text
    }
}

/// Counts a packet. One whose time is of another clock than wanted is in no curve: clocks would be mixed.
fn count(intake: &mut Intake, packet: &TapPacket<'_>, link: u32, wanted: Stamp, ahead_ns: &mut Option<i64>) {
    if packet.stamp != wanted {
        intake.seen.packets += 1;
        return intake.leave(Left::Untimed, 1);
    }
    if ahead_ns.is_none() {
        let ahead = i128::from(packet.time_ns) - i128::from(told::now().0);
        *ahead_ns = i64::try_from(ahead).ok();
    }
    let TapPacket { time_ns, wire_bytes, bytes, .. } = *packet;
    intake.take(&CapturedPacket { time_ns, link, wire_bytes, bytes });
}

/// Measures until Ctrl-C, or for so many seconds.
pub(super) fn measure(args: &TapArgs, name: &str, seconds: Option<u32>, grain: Grain) -> Result<(Seen, Live)> {
    let stop = Stop::on_signals()?;
    let mut live = Live::open(args, name)?;
    match seconds {
        Some(seconds) => eprintln!("measuring {name} for {seconds} s; Ctrl-C ends before"),
        None => eprintln!("measuring {name}; Ctrl-C ends and shows the flows"),
    }
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let mut intake = Intake::new(grain, Curves::default());
    while !stop.asked() {
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break;
        }
        live.take(left, &mut intake)?;
    }
    live.finish(&mut intake)?;
    Ok((intake.finish(), live))
}
