use heliograph_shared::table::columns_shown;
use std::borrow::Cow;

/// Rows for people. All columns but the last are lined up.
#[derive(Clone, Debug)]
pub(crate) struct TextTable<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// How urgent the content of a cell is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Doubtful,
    Bad,
}

impl<const N: usize> TextTable<N> {
    pub(crate) fn new(head: [&'static str; N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn render(&self, colour: bool) -> String {
        let head = self.head.map(|title| Cell { text: title.to_owned(), tone: Tone::Plain });
        let rows = [vec![head], self.rows.clone()].concat();
        columns_shown(&rows, |cell| &cell.text, |cell| cell.tone.paint(&cell.text, colour))
    }
}

impl Cell {
    pub(crate) fn good(self) -> Self {
        Self { tone: Tone::Good, ..self }
    }

    pub(crate) fn doubtful(self) -> Self {
        Self { tone: Tone::Doubtful, ..self }
    }

    pub(crate) fn bad(self) -> Self {
        Self { tone: Tone::Bad, ..self }
    }

    /// `bad` where that is so, else as it is.
    pub(crate) fn bad_if(self, is_bad: bool) -> Self {
        if is_bad { self.bad() } else { self }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(value: T) -> Self {
        let text = value.to_string();
        let text = if text.is_empty() { "-".to_owned() } else { one_line(&text).into_owned() };
        Self { text, tone: Tone::Plain }
    }
}

/// `-` where there is nothing.
pub(crate) fn cell<T: ToString>(value: Option<T>) -> Cell {
    value.map_or_else(String::new, |value| value.to_string()).into()
}

impl Tone {
    fn paint(self, text: &str, colour: bool) -> Cow<'_, str> {
        let code = match self {
            Self::Good => 32,
            Self::Doubtful => 33,
            Self::Bad => 31,
            Self::Plain => return text.into(),
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m").into() } else { text.into() }
    }
}

/// Escapes foreign text, which must neither look like another line nor control the terminal.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colour() {
        let mut table = TextTable::new(["NODE", "STATE", "WHERE"]);
        table.push(["edge-a".into(), Cell::from("synced").good(), "a".into()]);
        table.push(["é".into(), Cell::from("no").bad(), cell(None::<u8>)]);
        let plain = "\
NODE    STATE   WHERE
edge-a  synced  a
é       no      -
";
        assert_eq!(table.render(false), plain);
        let coloured = table.render(true);
        assert!(coloured.contains("\x1b[32msynced\x1b[0m  a\n"), "{coloured:?}");
        let stripped = ["\x1b[32m", "\x1b[31m", "\x1b[0m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain, "colour takes no room");
    }

    #[test]
    fn what_a_proxy_calls_itself_stays_on_its_line() {
        let mut table = TextTable::new(["NODE"]);
        table.push(["a\nb\x1b[2J".into()]);
        assert_eq!(table.render(true), "NODE\na\\nb\\u{1b}[2J\n");
    }
}
