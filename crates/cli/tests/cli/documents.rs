//! What the documents name exists: every path, every link, every function.
//!
//! Owns: which documents are checked, and the exceptions. What counts as a name is decided in `names`, whether it exists in
//! `repository`.
//!
//! Checked are `README.md`, `ARCHITECTURE.md`, `CONTRIBUTING.md` and everything below `docs`; the changelog tells of the past and
//! may name what is gone. Of text in backticks outside code blocks, this must exist:
//!
//! - *Paths*: one word of letters, digits and `_-./` that has a directory or an extension of [`names::EXTENSIONS`]; of a command
//!   that begins with a directory (`scripts/test --quick`), its first word. They begin at the root of the repository, in `crates`, in
//!   the document's own directory, or in or beside a path named before in the same paragraph or row of a table. The text of a link
//!   may be any part of its target.
//! - *Items of a file*: a name directly before a path in parentheses, or after a comma (`Type::function`, `path`), or in
//!   parentheses directly behind one. The file, or one below the directory, must define it; of `Type::function`, it must also
//!   declare or implement `Type`.
//! - *Items of any file*: `Type::item` without a path. Some source file must define it so. Decisions are exempt: they tell what
//!   things were called when it was decided.
//!
//! Besides, targets of relative links must exist.

mod names;
mod repository;

use std::path::{Path, PathBuf};

use self::names::{Name, Named, names_in};
use self::repository::Repository;

/// What need not exist, by document: each with its reason. Keep it short.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("CONTRIBUTING.md", "clippy.toml", "every crate has one of its own"),
    ("docs/wal-format.md", "wal/", "a directory of a database, not of the repository"),
];

/// Complains of everything that a document names and that does not exist.
fn check(repository: &Repository, document: &str, text: &str) -> Vec<String> {
    let (mut complaints, mut before) = (Vec::new(), (0, Vec::<PathBuf>::new()));
    for Named { line, block, name } in names_in(text) {
        if before.0 != block {
            before = (block, Vec::new());
        }
        let find = |path: &str| repository.find(document, path, &before.1);
        let complaint = match &name {
            Name::Path(path) => match find(path) {
                Some(found) => {
                    before.1.push(found);
                    None
                }
                None => Some((path, "there is no such file or directory".to_owned())),
            },
            // A path that is not there is complained of once, as a path.
            Name::ItemOf { item, path } => find(path)
                .filter(|found| !repository.defines(found, item))
                .map(|found| (item, format!("nothing in {} is called so", found.display()))),
            Name::Item(_) if document.starts_with("docs/decisions/") => None,
            Name::Item(item) => (!repository.defines(Path::new("crates"), item))
                .then(|| (item, "no source file defines it".to_owned())),
            Name::Link(path) => find(path).is_none().then(|| (path, "the link leads nowhere".to_owned())),
        };
        let excepted = |what: &str| EXCEPTIONS.iter().any(|(of, named, _)| *of == document && *named == what);
        if let Some((what, why)) = complaint.filter(|(what, _)| !excepted(what)) {
            complaints.push(format!("{document}:{line}: `{what}`: {why}"));
        }
    }
    complaints
}

#[test]
fn what_the_documents_name_exists() {
    let repository = Repository::read();
    let documents = repository.documents();
    assert!(documents.len() > 10, "the documents are found: {documents:?}");
    let complaints: Vec<String> =
        documents.iter().flat_map(|(document, text)| check(&repository, document, text)).collect();
    assert!(
        complaints.is_empty(),
        "documents name what is not there; correct them (or, with a reason, EXCEPTIONS in {}):\n{}",
        file!(),
        complaints.join("\n")
    );
}

#[test]
fn exceptions_are_needed_and_have_reasons() {
    let documents = Repository::read().documents();
    for (document, named, reason) in EXCEPTIONS {
        let text = documents.iter().find(|(name, _)| name == document).map(|(_, text)| text.as_str());
        assert!(
            text.is_some_and(|text| text.contains(&format!("`{named}`"))),
            "{document} has no `{named}` any more"
        );
        assert!(reason.split_whitespace().count() > 3, "{document}: `{named}` is excepted for a reason");
    }
}

#[test]
fn a_wrong_name_is_noticed_with_its_document_and_line() {
    let repository = Repository::read();
    let complaints = |document: &str, text: &str| check(&repository, document, text);
    for (text, what) in [
        ("It is in `crates/cli/src/nothing.rs`.", "`crates/cli/src/nothing.rs`"),
        ("It is in `crates/nothing`.", "`crates/nothing`"),
        ("Read `NOTHING.md`.", "`NOTHING.md`"),
        ("Run `scripts/nothing --quick`.", "`scripts/nothing`"),
        ("`crates/cli/src/main.rs`, `nothing.rs`", "`nothing.rs`"),
        ("| `crates/cli/src/main.rs` |\n| `args.rs` |", "`args.rs`"),
        ("`nothing` (`crates/cli/src/main.rs`)", "`nothing`"),
        ("(`CliError::nothing`, `crates/cli/src/error.rs`)", "`CliError::nothing`"),
        ("`Nobody::failed`\n(`crates/cli/src/error.rs`)", "`Nobody::failed`"),
        ("`crates/cli/src/error.rs` (`nothing`)", "`nothing`"),
        ("Call `Database::no_such_thing`.", "`Database::no_such_thing`"),
        ("See [there](docs/nothing.md).", "`docs/nothing.md`"),
    ] {
        let found = complaints("README.md", &format!("# Title\n\n{text}\n"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("README.md:3: ") || found[0].starts_with("README.md:4: "), "{found:?}");
        assert!(found[0].contains(what), "{found:?}");
    }
    assert_eq!(complaints("docs/decisions/0001-x.md", "`Database::no_such_thing`"), [""; 0]);
}

#[test]
fn right_names_are_no_matter() {
    let repository = Repository::read();
    for text in [
        "`crates/cli/src/error.rs`, `main.rs`, `explain/text.rs`, `dot.rs`; `cli/src/args.rs`, `scripts/test --quick`, `crates/`",
        "`main` (`crates/cli/src/main.rs`), (`CliError::failed`, `crates/cli/src/error.rs`)",
        "`CliError::bad_input` (`crates/cli/src`) and `crates/cli/src/error.rs` (`CliError`)",
        "`Database::open`, `Durability::Relaxed`, `Table::READ_ONLY`, `atrapos::Database`",
        "`x` is `a/b/` when `cargo run` says `1/2`? No: a fence.\n```\n`a/b.rs`\n```",
        "[`here.md`](README.md#title), [there](https://example.com/nothing.md)",
    ] {
        let found = check(&repository, "README.md", text);
        let expected = if text.contains("fence") { 2 } else { 0 };
        assert_eq!(found.len(), expected, "{text}: {found:?}");
    }
}
