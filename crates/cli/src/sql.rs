//! `atrapos sql`: a shell of SQL on a database that is being served.
//!
//! Owns: where statements and the data of a COPY end, and how rows look. Never: knows SQL beyond quotes and comments.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use atrapos_server::{Client, ClientError, Event};

use crate::args::SqlArgs;
use crate::error::CliError;
use crate::output;
use crate::serve::SERVER_DIRECTORY;

/// Runs `atrapos sql`.
pub(crate) fn sql(args: &SqlArgs) -> Result<(), CliError> {
    let directory = args.directory.join(SERVER_DIRECTORY);
    let mut client = Client::connect(&directory, &args.user).map_err(|error| match error {
        ClientError::NoServer(_) => CliError::bad_input(error),
        error => CliError::failed(error),
    })?;
    let (stdin, terminal) = (io::stdin(), io::stdin().is_terminal());
    let mut input = stdin.lock();
    if let Some(command) = &args.command {
        let succeeded = run(&mut client, command, &mut input)?;
        return if succeeded { Ok(()) } else { Err(CliError::failed("a statement failed")) };
    }
    let (mut text, mut succeeded) = (String::new(), true);
    loop {
        if terminal {
            let prompt = if text.is_empty() { "atrapos> " } else { "      -> " };
            output::print(prompt)?;
        }
        let before = text.len();
        let read = input.read_line(&mut text);
        let read = read.map_err(|error| CliError::failed(format!("the input cannot be read: {error}")))?;
        if read == 0 {
            break;
        }
        if before == 0 && matches!(text.trim(), "exit" | "quit" | "\\q") {
            return Ok(());
        }
        if is_complete(&text) {
            succeeded &= run(&mut client, &text, &mut CopyLines::of(&mut input))?;
            text.clear();
        }
    }
    if !text.trim().is_empty() {
        succeeded &= run(&mut client, &text, &mut io::empty())?;
    }
    // Whoever types sees each error; a script is told by the exit status.
    if succeeded || terminal { Ok(()) } else { Err(CliError::failed("a statement failed")) }
}

/// The lines behind a COPY FROM STDIN, up to one that is `\.`, which is none of them.
struct CopyLines<'i, I> {
    input: &'i mut I,
    line: Vec<u8>,
    /// The bytes of the line that were taken.
    taken: usize,
    ended: bool,
}

impl<'i, I: BufRead> CopyLines<'i, I> {
    fn of(input: &'i mut I) -> Self {
        CopyLines { input, line: Vec::new(), taken: 0, ended: false }
    }
}

impl<I: BufRead> Read for CopyLines<'_, I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.line.len() && !self.ended {
            self.taken = 0;
            self.line.clear();
            let read = self.input.read_until(b'\n', &mut self.line)?;
            self.ended = read == 0 || self.line.trim_ascii_end() == br"\.";
            if self.ended {
                self.line.clear();
            }
        }
        let bytes = into.len().min(self.line.len() - self.taken);
        into[..bytes].copy_from_slice(&self.line[self.taken..self.taken + bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

/// Runs statements and prints what comes of them; a COPY takes all of `source`. Returns false if one failed.
fn run(client: &mut Client, text: &str, source: &mut dyn Read) -> Result<bool, CliError> {
    let (mut table, mut out, mut errors) = (Table::default(), Vec::new(), Vec::new());
    client
        .query(text, source, &mut |event| match event {
            Event::Columns(names) => table.begin(&names),
            Event::Row(values) => table.push(&values),
            Event::Complete(tag) => {
                table.end(&mut out);
                out.extend_from_slice(tag.as_bytes());
                out.push(b'\n');
            }
            Event::Copied(data) => out.extend_from_slice(data),
            Event::Notice(notice) => output::complain(&notice),
            Event::Error(error) => errors.push(error),
        })
        .map_err(CliError::failed)?;
    let mut stdout = io::stdout().lock();
    // A reader that goes away is no error.
    let _ = stdout.write_all(&out).and_then(|()| stdout.flush());
    for error in &errors {
        output::complain(error);
    }
    Ok(errors.is_empty())
}

/// A result on its way to the screen.
#[derive(Debug, Default)]
struct Table {
    /// The names of the columns, then the rows.
    lines: Vec<Vec<String>>,
}

impl Table {
    fn begin(&mut self, names: &[&str]) {
        self.lines = vec![names.iter().map(|name| (*name).to_owned()).collect()];
    }

    fn push(&mut self, values: &[Option<&str>]) {
        self.lines.push(values.iter().map(|value| value.unwrap_or("NULL").replace('\n', "\\n")).collect());
    }

    /// Writes the table: each column as wide as its widest value.
    fn end(&mut self, out: &mut Vec<u8>) {
        let lines = std::mem::take(&mut self.lines);
        let Some(names) = lines.first() else { return };
        let widths: Vec<usize> = (0..names.len())
            .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
            .collect();
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<_> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            out.extend_from_slice(cells.join(" | ").trim_end().as_bytes());
            out.push(b'\n');
            if number == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
                out.extend_from_slice(rules.join("-+-").as_bytes());
                out.push(b'\n');
            }
        }
    }
}

/// Returns true if a text ends with a semicolon that ends a statement: one outside of quotes and comments.
fn is_complete(text: &str) -> bool {
    let (mut rest, mut complete) = (text, false);
    while let Some(letter) = rest.chars().next() {
        let skipped = match letter {
            '\'' | '"' => rest[1..].find(letter).map(|end| end + 2),
            '-' if rest.starts_with("--") => Some(rest.find('\n').map_or(rest.len(), |end| end + 1)),
            '/' if rest.starts_with("/*") => rest.find("*/").map(|end| end + 2),
            '$' => dollar_quoted(rest),
            ';' => {
                complete = true;
                Some(1)
            }
            letter => {
                complete &= letter.is_whitespace();
                Some(letter.len_utf8())
            }
        };
        // A quote or comment without an end is none of a complete statement.
        let Some(skipped) = skipped else { return false };
        complete &= !matches!(letter, '\'' | '"' | '$');
        rest = &rest[skipped..];
    }
    complete
}

/// Returns the length of a text in dollar quotes, or of a dollar that begins none; `None` if it has no end.
fn dollar_quoted(text: &str) -> Option<usize> {
    let name = text[1..].find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    match name {
        Some(end) if text[1 + end..].starts_with('$') => {
            let quote = &text[..end + 2];
            text[quote.len()..].find(quote).map(|at| at + 2 * quote.len())
        }
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_with_semicolons_that_are_theirs() {
        for text in
            ["select 1;", "select ';' ;\n", "a; -- b\n", "a; /* b; */ ", "select $$;$$;", "select $1;"]
        {
            assert!(is_complete(text), "{text}");
        }
        for text in ["", "select 1", "select ';", "a; b", "-- a;\n", "/* a; ", "select $x$;$y$;", "a; 'b'"] {
            assert!(!is_complete(text), "{text}");
        }
    }

    #[test]
    fn the_data_of_a_copy_ends_with_a_line_of_its_own() {
        let mut input = "1\tone\n\\.\\\n\\.\r\nselect 1;\n".as_bytes();
        let mut data = String::new();
        CopyLines::of(&mut input).read_to_string(&mut data).expect("text");
        assert_eq!(data, "1\tone\n\\.\\\n");
        assert_eq!(input, b"select 1;\n");
        data.clear();
        CopyLines::of(&mut &b"no end"[..]).read_to_string(&mut data).expect("text");
        assert_eq!(data, "no end");
    }

    #[test]
    fn columns_are_as_wide_as_their_values() {
        let (mut table, mut out) = (Table::default(), Vec::new());
        table.begin(&["id", "name"]);
        table.push(&[Some("100"), None]);
        table.push(&[Some("2"), Some("Grüße")]);
        table.end(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), "id  | name\n----+------\n100 | NULL\n2   | Grüße\n");
    }
}
