//! What a document names: paths and items in backticks, and targets of links.
//!
//! Owns: how text is read. Never: knows what exists.

/// Extensions by which a word without a directory is known to be a file.
pub(super) const EXTENSIONS: [&str; 5] = ["rs", "md", "toml", "sh", "svg"];

/// Something that has to exist, and where it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Counted from 1.
    pub(super) line: usize,
    /// Which paragraph, or row of a table.
    pub(super) block: usize,
    pub(super) name: Name,
}

/// Something that has to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A file or directory, maybe beside the one that was named before in the same block.
    Path(String),
    /// An item that is in the file or directory with this path.
    ItemOf { item: String, path: String },
    /// An item `Type::item` that is somewhere.
    Item(String),
    /// The target of a link.
    Link(String),
}

/// Text in backticks or the target of a link, and what is between it and the next one.
struct Piece<'a> {
    line: usize,
    text: &'a str,
    after: String,
    is_link: bool,
}

/// Everything that a document names, in its order.
pub(super) fn names_in(text: &str) -> Vec<Named> {
    let named = |(block, lines): (usize, &Vec<(usize, &str)>)| {
        names_of(&pieces(lines)).into_iter().map(move |(line, name)| Named { line, block, name })
    };
    blocks(text).iter().enumerate().flat_map(named).collect()
}

/// Lines that belong together: paragraphs, and rows of tables. Code blocks are left out.
fn blocks(text: &str) -> Vec<Vec<(usize, &str)>> {
    let (mut blocks, mut in_fence, mut after_blank) = (vec![Vec::new()], false, true);
    for (number, line) in (1..).zip(text.lines()) {
        let is_fence = line.trim_start().starts_with("```");
        let is_code = after_blank && line.starts_with("    ");
        if is_fence {
            in_fence = !in_fence;
        }
        if is_fence || in_fence || is_code || line.trim().is_empty() {
            blocks.push(Vec::new());
            after_blank = !is_fence;
            continue;
        }
        if line.starts_with('|') {
            blocks.push(Vec::new());
        }
        after_blank = false;
        blocks.last_mut().expect("there is always one").push((number, line));
    }
    blocks
}

/// The pieces of a block in their order.
fn pieces<'a>(block: &[(usize, &'a str)]) -> Vec<Piece<'a>> {
    let mut found: Vec<Piece<'a>> = Vec::new();
    let between = |found: &mut Vec<Piece<'a>>, text: &str| {
        if let Some(last) = found.last_mut() {
            last.after.push_str(text);
        }
    };
    for &(line, text) in block {
        let mut rest = text;
        while let Some(at) = rest.find(['`', '(']) {
            let is_link = rest[..at].ends_with(']') && rest[at..].starts_with('(');
            let close = if is_link { ')' } else { '`' };
            let body = &rest[at + 1..];
            let end = if is_link || rest[at..].starts_with('`') { body.find(close) } else { None };
            let Some(end) = end else {
                between(&mut found, &rest[..=at]);
                rest = body;
                continue;
            };
            between(&mut found, &rest[..at]);
            found.push(Piece { line, text: &body[..end], after: String::new(), is_link });
            rest = &body[end + 1..];
        }
        between(&mut found, rest);
        between(&mut found, " ");
    }
    found
}

fn names_of(pieces: &[Piece<'_>]) -> Vec<(usize, Name)> {
    let mut names = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let (next, last) = (pieces.get(at + 1), at.checked_sub(1).map(|last| &pieces[last]));
        let is_link_text = piece.after == "]" && next.is_some_and(|next| next.is_link);
        let name = if piece.is_link {
            link_target(piece.text).map(Name::Link)
        } else if let Some(path) = path(piece.text) {
            // What a link is called need not be where it leads.
            (!is_link_text).then_some(Name::Path(path))
        } else {
            item(piece.text).and_then(|item| name_of_item(item, piece, next, last))
        };
        names.extend(name.map(|name| (piece.line, name)));
    }
    names
}

/// What the name of an item refers to, between the pieces before and behind it.
fn name_of_item(
    item: String,
    piece: &Piece<'_>,
    next: Option<&Piece<'_>>,
    last: Option<&Piece<'_>>,
) -> Option<Name> {
    let path_of = |piece: &Piece<'_>| if piece.is_link { None } else { path(piece.text) };
    let is_qualified = item.contains("::") || item.starts_with(|first: char| first.is_ascii_uppercase());
    let behind = match piece.after.trim() {
        "(" => next.and_then(path_of),
        "," if is_qualified => next.and_then(path_of),
        _ => None,
    };
    let before = last.filter(|last| last.after.trim() == "(").and_then(path_of);
    match behind.or(before) {
        Some(path) => Some(Name::ItemOf { item, path }),
        None => is_type_item(&item).then_some(Name::Item(item)),
    }
}

/// The path in a piece of text, if it is one.
fn path(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    if word != text && !word.contains('/') {
        return None;
    }
    let is_path_char = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let has_name = word.contains(|c: char| c.is_ascii_alphanumeric());
    let is_file = word
        .rsplit_once('.')
        .is_some_and(|(stem, extension)| !stem.is_empty() && EXTENSIONS.contains(&extension));
    (has_name && word.chars().all(is_path_char) && (is_file || word.contains('/'))).then(|| word.to_owned())
}

/// The file or directory of the repository that a link leads to.
fn link_target(target: &str) -> Option<String> {
    let path = target.split('#').next()?;
    (!path.is_empty() && !path.contains(':')).then(|| path.to_owned())
}

/// The name of an item in a piece of text, without parameters.
fn item(text: &str) -> Option<String> {
    let name = text.split(['(', '<']).next()?.trim_end_matches("::");
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    name.split("::").all(is_word).then(|| name.to_owned())
}

/// Whether a name is one of a type and something in it, or of a type in a module.
fn is_type_item(item: &str) -> bool {
    let is_foreign = ["std::", "core::", "alloc::"].iter().any(|root| item.starts_with(root));
    let has_type = item.split("::").any(|part| part.starts_with(|c: char| c.is_ascii_uppercase()));
    item.contains("::") && has_type && !is_foreign
}
