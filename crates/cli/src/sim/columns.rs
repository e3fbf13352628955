//! Tables as text.

/// A table with columns padded to their widest cell.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let mut out = line(head.to_vec());
    out.push_str(&line(
        widths.iter().map(|width| &"----------------------------------------"[..(*width).min(40)]).collect(),
    ));
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}
