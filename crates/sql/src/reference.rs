//! The part of `docs/sql.md` that is made of the tables by which statements are bound, and the test that it is so.
//!
//! Owns: the form of its lines. `ATRAPOS_WRITE_REFERENCE=1 cargo test -p atrapos-sql reference` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::aggregate::Aggregate;
use crate::format::text_of;
use crate::functions::{ANY, DocumentRows, Function, all};
use crate::types::SqlType;

const BEGIN: &str = "<!-- made of the tables of the binder: begin -->\n";
const END: &str = "<!-- made of the tables of the binder: end -->\n";

fn name(ty: SqlType) -> &'static str {
    if ty == ANY { "any" } else { ty.name() }
}

/// An argument: its name if it has one, its type, and its value where it is left out.
fn shown(function: &Function, at: usize) -> String {
    let ty = function.arguments[at];
    let mut out = function.names.get(at).map_or(String::new(), |name| format!("{name} "));
    out.push_str(name(ty));
    if let Some(value) = function.default(at) {
        out.push_str(&format!(" = {}", text_of(value, ty)));
    }
    out
}

fn generated() -> String {
    let mut out = String::from(
        "\n### Types\n\n| type | name in `pg_type` | number | in tables | arrays |\n|---|---|---|---|---|\n",
    );
    for ty in SqlType::all().filter(|ty| ty.element().is_none() && *ty != SqlType::Unknown) {
        let stored = crate::schema::stored_type(ty, crate::types::Modifier::None).is_ok();
        let word = |is: bool| if is { "yes" } else { "" };
        let (shown, internal) = (ty.name(), ty.internal_name());
        let _ = writeln!(
            out,
            "| {shown} | {internal} | {} | {} | {} |",
            ty.oid(),
            word(stored),
            word(ty.array().is_some())
        );
    }
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for function in all() {
        let arguments: Vec<String> = (0..function.arguments.len()).map(|at| shown(function, at)).collect();
        let more = if function.is_variadic { ", .." } else { "" };
        let line = format!("({}{more}) {}", arguments.join(", "), name(function.result));
        by_name.entry(function.name).or_default().push(line);
    }
    assert!(Aggregate::NAMES.iter().all(|name| Aggregate::named(name).is_some()));
    let _ = writeln!(out, "\n### Aggregates\n\n{}.", Aggregate::NAMES.join(", "));
    let sets: Vec<&str> = DocumentRows::names()
        .chain(crate::bind::RETURN_ROWS.iter().copied().filter(|name| !name.starts_with('_')))
        .collect();
    let _ = writeln!(out, "\n### Functions that return rows\n\n{}.", sets.join(", "));
    out.push_str("\n### Functions\n\nArguments and result of each; operators of times, arrays and JSON are functions, too.\n\n| function | |\n|---|---|\n");
    for (function, forms) in by_name {
        let _ = writeln!(out, "| {function} | {} |", forms.join("; "));
    }
    out.push('\n');
    out
}

#[test]
fn the_page_has_the_types_and_functions_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let page = std::fs::read_to_string(&path).expect("docs/sql.md is read");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the mark of the beginning");
    let (middle, after) = rest.split_once(END).expect("the page has the mark of the end");
    let wanted = generated();
    if std::env::var_os("ATRAPOS_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}"))
            .expect("docs/sql.md is written");
        return;
    }
    assert!(
        middle == wanted,
        "docs/sql.md is not what the binder's tables say; `ATRAPOS_WRITE_REFERENCE=1 cargo test -p atrapos-sql reference` writes it"
    );
}
