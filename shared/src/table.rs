//! Tables for terminals.

use std::borrow::Cow;
use std::fmt::Write;

/// Lines up all columns but the last.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    columns_shown(rows, String::as_str, |cell| cell.as_str().into())
}

/// The same for cells whose `text` is shown with something that takes no room, such as colour.
pub fn columns_shown<C, const N: usize>(
    rows: &[[C; N]],
    text: impl Fn(&C) -> &str,
    shown: impl Fn(&C) -> Cow<'_, str>,
) -> String {
    let width_of = |cell: &C| text(cell).chars().count();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| width_of(&row[column])).max().unwrap_or(0)
    });
    let mut lines = String::new();
    for row in rows {
        let start = lines.len();
        for (cell, width) in row.iter().zip(widths) {
            let padding = width.saturating_sub(width_of(cell)) + 2;
            // Writing to a string does not fail.
            let _ = write!(lines, "{}{:padding$}", shown(cell), "");
        }
        lines.truncate(start + lines[start..].trim_end().len());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_but_the_last_line_up() {
        let rows = [["NODE", "STATE"], ["é", "no"], ["edge-a", ""]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "NODE    STATE\né       no\nedge-a\n");
        assert_eq!(columns::<2>(&[]), "");
    }

    #[test]
    fn what_takes_no_room_is_not_counted() {
        let rows = [["a", "b"], ["ab", "c"]];
        let lines = columns_shown(&rows, |cell| cell, |cell| format!("<{cell}>").into());
        assert_eq!(lines, "<a>   <b>\n<ab>  <c>\n");
    }
}
