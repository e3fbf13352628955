//! `mycroft flow top`: rates of each flow now, each second.
mod board;
mod screen;

use super::intake::Left;
use super::lengths;
use super::live::{Live, TapArgs};
use super::read;
use crate::exit::EXIT_OK;
use anyhow::{Result, bail};
use board::{Board, TICK_NS};
use mycroft_flow::limits::Grain;
use mycroft_formats::CapturedPacket;
use screen::Screen;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two frames.
const TICK: Duration = Duration::from_nanos(TICK_NS);
/// Longest epoch, nanoseconds: curves are collected in chunks of 512, which must be shorter than a tick.
const EPOCH_NS_MAX: u64 = 1_000_000;

/// What is shown, and how.
#[derive(clap::Args, Debug)]
pub(super) struct TopArgs {
    /// A capture, pcap or pcapng, played in its own time; `-` reads standard input, as it comes.
    #[arg(value_name = "FILE.pcap", required_unless_present = "interface")]
    file: Option<PathBuf>,
    #[command(flatten)]
    tap: TapArgs,
    /// How much faster than it was a capture is played; 0: as fast as it can be read.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed, conflicts_with = "interface")]
    speed: f64,
    /// Print one frame as text and exit: of an interface after a second, of a capture at its end.
    #[arg(long)]
    once: bool,
    /// Most flows that are shown.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Length of an epoch, 1us to 1ms: a share of those with bytes is shown.
    #[arg(long, value_name = "TIME", default_value = "32us", value_parser = epoch)]
    epoch: Grain,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed >= 0.0);
    speed.ok_or_else(|| "give a number, such as 10, or 0".to_owned())
}

fn epoch(text: &str) -> Result<Grain, String> {
    let grain = lengths::grain(text)?;
    if grain.epoch_ns() > EPOCH_NS_MAX {
        Err("give a time from 1us to 1ms, such as 32us".to_owned())
    } else {
        Ok(grain)
    }
}

/// Shows the flows until `q`, Ctrl-C, or the end of a capture.
pub(super) fn top(args: &TopArgs) -> Result<u8> {
    match (&args.tap.interface, &args.file) {
        (Some(name), _) => of_interface(args, name),
        (None, Some(file)) => of_capture(args, file),
        (None, None) => bail!("give a capture, or --interface"),
    }
}

fn of_interface(args: &TopArgs, name: &str) -> Result<u8> {
    let mut live = Live::open(&args.tap, name)?;
    let mut board = Board::new(name, args.epoch);
    let mut screen = Screen::open(args.once, args.top)?;
    let mut next = Instant::now() + TICK;
    board.begin(live.now_ns());
    while !screen.is_over(Duration::ZERO)? {
        live.take(next.saturating_duration_since(Instant::now()), board.intake())?;
        if Instant::now() < next {
            continue;
        }
        board.lost(live.counts().drops, live.gaps().len());
        if let Some(now_ns) = live.now_ns() {
            board.tick(now_ns);
        }
        screen.show(&board)?;
        if args.once {
            break;
        }
        // After a machine that slept frames are not made up for.
        next = (next + TICK).max(Instant::now());
    }
    screen.close();
    Ok(EXIT_OK)
}

fn of_capture(args: &TopArgs, file: &Path) -> Result<u8> {
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let board = Board::new(&name, args.epoch);
    let screen = Screen::open(args.once, args.top)?;
    let mut play = Play { args, board, screen, next_ns: 0, shown_at: Instant::now(), over: None };
    let ended = read::packets(file, |packet| play.packet(packet))?;
    play.board.intake().leave(Left::Untimed, ended.untimed);
    play.board.lost(ended.dropped, 0);
    let Play { mut board, mut screen, over, .. } = play;
    let is_left = over.transpose()?.is_some();
    if !is_left {
        board.end();
        screen.show(&board)?;
        screen.keep()?;
    }
    screen.close();
    match ended.fault {
        Some(fault) if !is_left => bail!("{}: {fault}; what came before it is shown", file.display()),
        _ => Ok(EXIT_OK),
    }
}

/// A capture that is played.
struct Play<'a> {
    args: &'a TopArgs,
    board: Board,
    screen: Screen,
    /// Time in the capture of the next frame, nanoseconds; 0 before the first packet.
    next_ns: u64,
    /// When the last frame was shown.
    shown_at: Instant,
    /// Somebody left, or it could not be shown.
    over: Option<Result<()>>,
}

impl Play<'_> {
    /// Counts a packet, after the frames that come before it; false where no more are wanted.
    fn packet(&mut self, packet: &CapturedPacket<'_>) -> bool {
        if self.next_ns == 0 {
            self.board.begin(Some(packet.time_ns));
            self.next_ns = packet.time_ns + TICK_NS;
        }
        if packet.time_ns >= self.next_ns && !self.args.once {
            match self.frame() {
                Ok(true) => {}
                Ok(false) => self.over = Some(Ok(())),
                Err(error) => self.over = Some(Err(error)),
            }
        }
        if packet.time_ns >= self.next_ns {
            // A silence of more than a second has one frame.
            let seconds = (packet.time_ns - self.next_ns) / TICK_NS;
            if seconds > 0 || self.args.once {
                self.board.skip_to(self.next_ns + seconds * TICK_NS);
            }
            self.next_ns += (seconds + 1) * TICK_NS;
        }
        self.board.intake().take(packet);
        self.over.is_none()
    }

    /// Shows the second that ends; false where somebody left.
    fn frame(&mut self) -> Result<bool> {
        self.board.tick(self.next_ns);
        self.screen.show(&self.board)?;
        let pace = if self.args.speed > 0.0 { TICK.div_f64(self.args.speed.max(1e-6)) } else { Duration::ZERO };
        let until = self.shown_at + pace;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.screen.is_over(left)? {
                return Ok(false);
            }
            if left.is_zero() {
                break;
            }
        }
        self.shown_at = Instant::now();
        Ok(true)
    }
}
