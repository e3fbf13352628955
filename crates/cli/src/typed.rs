//! What clap says of something that was written wrong, in one line.

/// The message without usage, hints on help, and breaks of lines.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .collect();
    said.join(" ").trim_start_matches("error: ").to_owned()
}
