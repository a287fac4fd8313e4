//! Statements compared with PostgreSQL: the names and types of their columns, their rows, tags and SQLSTATEs.
//!
//! `tests/postgresql` has the statements, the answers that `scripts/record-postgresql` got of PostgreSQL 15 for them, and the statements
//! that are answered otherwise here, with the reasons. One of these that comes to be answered as there has to be taken off the list.

use crate::support::{Client, Kept, database};

const STATEMENTS: &str = include_str!("../postgresql/statements.sql");
const ANSWERS: &str = include_str!("../postgresql/answers.txt");
const DIFFERENCES: &str = include_str!("../postgresql/differences.txt");

/// The lines of a text that are neither empty nor comments.
fn lines(text: &'static str) -> Vec<&'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).collect()
}

/// The recorded answers: the lines of the description and those of the answer.
fn recorded() -> Vec<(Vec<String>, Vec<String>)> {
    let mut all: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    let mut is_described = false;
    for line in ANSWERS.lines() {
        let number = line.strip_prefix("> ").and_then(|number| number.parse::<usize>().ok());
        if number == Some(all.len() + 1) {
            all.push(Default::default());
            is_described = false;
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        match line {
            "~" => is_described = true,
            line if is_described => last.1.push(line.to_owned()),
            line => last.0.push(line.to_owned()),
        }
    }
    all
}

fn state(line: &str) -> String {
    // The client writes the severity and the state alone.
    line.split(": ").next().unwrap_or(line).replace("ERROR ", "ERROR:  ")
}

/// The answer of this crate, in the form of the recorded answers.
fn answered(client: &mut Client, statement: &str) -> (Vec<String>, Vec<String>) {
    let described = pollster::block_on(async {
        let described = match client.connection.parse("", statement, &[]).await {
            Ok(()) => client.connection.describe_statement(""),
            Err(error) => Err(error),
        };
        let _ = client.connection.sync(&mut Kept::default()).await;
        described
    });
    let described = match described {
        Ok(described) => described
            .columns
            .iter()
            .flatten()
            .map(|column| format!("{}|{}", column.name, atrapos_sql::format_type(column.ty, column.modifier)))
            .collect(),
        Err(error) => vec![format!("ERROR:  {}", error.code.0)],
    };
    let mut kept = Kept::default();
    let text = client.answer_into(statement, &mut kept);
    let is_said = |(at, line): &(usize, &str)| {
        let is_tag = ["SELECT ", "FETCH ", "SHOW"].iter().any(|tag| line.starts_with(tag));
        let is_header = *at == 0 && line.starts_with('[');
        !(is_tag || is_header || line.starts_with("NOTICE: ") || line.starts_with("WARNING: "))
    };
    let rows = text.lines().enumerate().filter(is_said);
    let rows = rows
        .map(|(_, line)| line)
        .map(|line| if line.starts_with("ERROR ") { state(line) } else { line.to_owned() });
    (described, rows.collect())
}

#[test]
fn answers_are_those_of_postgresql() {
    let (statements, recorded, listed) = (lines(STATEMENTS), recorded(), lines(DIFFERENCES));
    assert_eq!(statements.len(), recorded.len(), "scripts/record-postgresql writes the answers");
    assert!(statements.len() >= 300);
    let unknown: Vec<_> = listed.iter().filter(|line| !statements.contains(line)).collect();
    assert!(unknown.is_empty(), "differences.txt lists what is no statement: {unknown:#?}");
    let database = database(2);
    let mut client = Client::new(&database);
    let (mut failed, mut same) = (String::new(), 0);
    for (statement, wanted) in statements.iter().zip(recorded) {
        let mut got = answered(&mut client, statement);
        // Constants are folded before a statement is described here, and when it is run there: the error is the same.
        if got.0 == got.1 && got.1 == wanted.1 && got.1.iter().any(|line| line.starts_with("ERROR:")) {
            got.0.clone_from(&wanted.0);
        }
        let is_listed = listed.contains(statement);
        same += usize::from(got == wanted);
        if (got == wanted) == is_listed {
            failed += &format!("{statement}\n    PostgreSQL: {wanted:?}\n    here:       {got:?}\n");
        }
    }
    assert!(
        failed.is_empty(),
        "{same} of {} answers are the same; not so, or so though listed:\n{failed}",
        statements.len()
    );
}
