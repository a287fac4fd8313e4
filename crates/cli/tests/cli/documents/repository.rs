//! What there is: files, directories, and the items that source files define.
//!
//! Owns: the search for them. Never: parses Rust; a keyword before a name is a definition.

use std::path::{Path, PathBuf};

/// The repository this crate is in.
pub(super) struct Repository {
    root: PathBuf,
    /// Source files by their paths from the root, with their text.
    sources: Vec<(PathBuf, String)>,
}

/// Keywords after which a name is that of a new item.
const KEYWORDS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "macro_rules!"];

impl Repository {
    pub(super) fn read() -> Repository {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().expect("the crate is in the repository");
        let directories = ["crates", "examples", "compare/src"];
        let sources = directories.iter().flat_map(|directory| read_all(&root, Path::new(directory), "rs"));
        Repository { sources: sources.collect(), root }
    }

    /// The documents that are checked: paths from the root, and texts.
    pub(super) fn documents(&self) -> Vec<(String, String)> {
        let at_root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from);
        let at_root = at_root.into_iter().filter_map(|path| {
            let text = std::fs::read_to_string(self.root.join(&path)).ok()?;
            Some((path, text))
        });
        let all = at_root.chain(read_all(&self.root, Path::new("docs"), "md"));
        all.map(|(path, text)| (path.display().to_string(), text)).collect()
    }

    /// Where a path leads that a document names, from the root. `before` is what it named before.
    pub(super) fn find(&self, document: &str, path: &str, before: &[PathBuf]) -> Option<PathBuf> {
        let beside = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let mut starts = vec![PathBuf::new(), PathBuf::from("crates"), beside(Path::new(document))];
        starts.extend(before.iter().rev().flat_map(|path| [path.clone(), beside(path)]));
        starts.into_iter().map(|start| start.join(path)).find(|path| self.root.join(path).exists())
    }

    /// Whether the file, or one below the directory, defines an item: `item`, or `Type::item`.
    pub(super) fn defines(&self, path: &Path, item: &str) -> bool {
        let mut parts = item.rsplit("::");
        let name = parts.next().unwrap_or(item);
        let of = parts.next().filter(|of| of.starts_with(|c: char| c.is_ascii_uppercase()));
        let below = |source: &Path| source.starts_with(path);
        self.sources.iter().filter(|(source, _)| below(source)).any(|(_, text)| match of {
            Some(of) => owns(text, of) && (is_defined(text, name) || is_variant(text, name)),
            None => is_defined(text, name),
        })
    }
}

/// All files with an extension below a directory, in order.
fn read_all(root: &Path, directory: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| directory.join(entry.file_name())).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if root.join(&path).is_dir() {
            found.extend(read_all(root, &path, extension));
        } else if path.extension().is_some_and(|of| of == extension) {
            found.extend(std::fs::read_to_string(root.join(&path)).ok().map(|text| (path, text)));
        }
    }
    found
}

/// Every place where a name is a word of its own: what is before it, and what is behind it, in the line.
fn places<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(move |line| line.match_indices(name).map(move |(at, _)| line.split_at(at))).filter_map(
        move |(before, rest)| {
            let behind = &rest[name.len()..];
            (!before.ends_with(is_word) && !behind.starts_with(is_word)).then_some((before, behind))
        },
    )
}

/// Whether a name is that of a new item somewhere.
fn is_defined(text: &str, name: &str) -> bool {
    places(text, name)
        .any(|(before, _)| before.split_whitespace().next_back().is_some_and(|word| KEYWORDS.contains(&word)))
}

/// Whether a name stands at the beginning of a line as a variant of an enumeration does.
fn is_variant(text: &str, name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_uppercase());
    let is_end =
        |behind: &str| behind.is_empty() || [",", " {", "(", " ="].iter().any(|end| behind.starts_with(end));
    begins && places(text, name).any(|(before, behind)| before.trim().is_empty() && is_end(behind))
}

/// Whether a type is declared or implemented somewhere.
fn owns(text: &str, name: &str) -> bool {
    is_defined(text, name) || places(text, name).any(|(before, _)| before.trim_start().starts_with("impl"))
}
