//! Where `mycroft flow top` draws: the terminal, or lines of text where standard output is none.
use super::board::Board;
use crate::keys::draw_keys;
use crate::stop::Stop;
use crate::told::print;
use anyhow::{Context, Result};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::io::IsTerminal;
use std::time::Duration;

/// Longest sleep before it is looked whether somebody asked to end.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of a screen that are no flow: the head, headings, how many more there are, keys.
const OTHER_LINES: u16 = 4;

/// The terminal or standard output.
pub(super) struct Screen {
    terminal: Option<ratatui::DefaultTerminal>,
    stop: Stop,
    flows_max: usize,
    is_first: bool,
}

impl Screen {
    /// Takes the terminal, unless standard output is none or one frame is wanted.
    pub(super) fn open(once: bool, flows_max: u32) -> Result<Screen> {
        let stop = Stop::on_signals()?;
        let is_plain = once || !std::io::stdout().is_terminal();
        let terminal = (!is_plain).then(ratatui::try_init).transpose().context("cannot open the terminal")?;
        Ok(Screen { terminal, stop, flows_max: usize::try_from(flows_max).unwrap_or(usize::MAX), is_first: true })
    }

    /// Draws a frame.
    pub(super) fn show(&mut self, board: &Board) -> Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(|frame| draw(frame, board, self.flows_max))?;
            return Ok(());
        }
        let between = if std::mem::take(&mut self.is_first) { "" } else { "\n" };
        Ok(print(&format!("{between}{}\n", board.lines(self.flows_max).join("\n")))?)
    }

    /// Whether somebody asked to end; waits for that, so long at most.
    pub(super) fn is_over(&mut self, wait: Duration) -> Result<bool> {
        let wait = wait.min(LOOK);
        if self.terminal.is_none() {
            if !wait.is_zero() && !self.stop.asked() {
                std::thread::sleep(wait);
            }
            return Ok(self.stop.asked());
        }
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
        {
            return Ok(ends(key) || self.stop.asked());
        }
        Ok(self.stop.asked())
    }

    /// The last frame stays until somebody asks to end, where there is a terminal.
    pub(super) fn keep(&mut self) -> Result<()> {
        while self.terminal.is_some() && !self.is_over(LOOK)? {}
        Ok(())
    }

    /// Gives the terminal back.
    pub(super) fn close(self) {}
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            ratatui::restore();
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

fn draw(frame: &mut Frame<'_>, board: &Board, flows_max: usize) {
    let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let room = usize::from(frame.area().height.saturating_sub(OTHER_LINES));
    let style = |place| match place {
        0 => Style::new().add_modifier(Modifier::BOLD),
        1 => Style::new().add_modifier(Modifier::REVERSED),
        _ => Style::new(),
    };
    let lines = board.lines(flows_max.min(room)).into_iter().enumerate();
    let lines: Vec<Line<'_>> = lines.map(|(place, line)| Line::styled(line, style(place))).collect();
    frame.render_widget(Paragraph::new(lines), body);
    draw_keys(
        frame,
        foot,
        " q quit   rates of payload, of the last second and since the flow began   busy: epochs with bytes ",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_flow::limits::Grain;
    use mycroft_formats::CapturedPacket;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(board: &Board, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, board, 32)).expect("drawn");
        let cells = terminal.backend().buffer().content().chunks(usize::from(width));
        cells.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()).collect()
    }

    #[test]
    fn a_frame_fits_a_terminal_of_any_size() {
        let mut board = Board::new("lo", Grain::default());
        board.begin(Some(1));
        for port in 0..20u8 {
            let mut bytes = vec![0xee; 12];
            bytes.extend([8, 0, 0x45, 0, 0, 140, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            bytes.extend([0, port, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
            board.intake().take(&CapturedPacket { time_ns: 2, link: 1, wire_bytes: 154, bytes: &bytes });
        }
        board.tick(1_000_000_000);
        let wide = drawn(&board, 140, 30);
        assert!(wide[2].contains("10.0.0.1:0 -> 10.0.0.2:80 tcp"), "{wide:#?}");
        assert!(wide[21].contains("10.0.0.1:19 ->") && wide[29].starts_with(" q quit"), "{wide:#?}");
        let small = drawn(&board, 40, 8);
        assert!(small[5].contains("Mb/s") && small[6].starts_with("and 16 more"), "{small:#?}");
        assert!(small[7].starts_with(" q quit"), "{small:#?}");
        drawn(&board, 1, 1);
    }

    #[test]
    fn keys_that_leave() {
        let press = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE) && press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE) && !press(KeyCode::Enter, KeyModifiers::NONE));
    }
}
