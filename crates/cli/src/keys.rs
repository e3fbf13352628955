//! What the live views in the terminal share.
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::Paragraph;

/// The last line: what the keys do.
pub(crate) fn draw_keys(frame: &mut Frame<'_>, area: Rect, keys: &str) {
    frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(Modifier::DIM)), area);
}
