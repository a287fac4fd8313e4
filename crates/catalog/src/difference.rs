//! Differences of stored definitions from those that a program declares, in one sentence.
//!
//! Owns the list of what has to agree: whatever decides the bytes of keys and rows, and whatever a transaction may rely
//! on. Properties that a declaration by types cannot express are not compared: where families are cut, defaults, the
//! names of parts of keys that it leaves unnamed, the order in which columns of the key stand among the others, and
//! whether an index is on columns or computed.

use atrapos_storage::ColumnType;

use crate::check::describe;
use crate::definition::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, OnDelete, PrimaryKey, TableDef, TreeDef,
    is_placeholder,
};
use crate::key::KeyField;

impl Definitions {
    /// The first difference between what is stored (`self`) and what a program declares of the whole database, or nothing if they
    /// agree. Which tables are read-only is for the program to say ([`complete`](Definitions::complete)).
    #[must_use]
    pub fn difference(&self, declared: &Definitions) -> Option<String> {
        let live = |tree: &&TreeDef| **tree != TreeDef::Dropped;
        if let Some(tree) = self.trees.iter().filter(live).find(|tree| declared.find(tree.name()).is_none()) {
            let (what, name) = (tree.noun(), tree.name());
            return Some(format!("{what} `{name}` is in the database but is not declared"));
        }
        if let Some(tree) = declared.trees.iter().filter(live).find(|tree| self.find(tree.name()).is_none()) {
            let (what, name) = (tree.noun(), tree.name());
            return Some(format!("{what} `{name}` is declared but is not in the database"));
        }
        for (number, declared_tree) in declared.trees.iter().enumerate() {
            let stored = self.trees.get(number).map_or("", TreeDef::name);
            let name = declared_tree.name();
            if stored != name {
                return Some(format!(
                    "number {number} of the tables is `{stored}` in the database but `{name}` in the declaration: declare them in the \
                     same order"
                ));
            }
            // Who declares everything decides what is read-only.
            let difference = self.tree_difference(number as u16, declared, number as u16);
            if let Some(difference) = difference.or_else(|| self.family_difference(number, declared_tree)) {
                return Some(difference);
            }
        }
        self.foreign_key_difference(declared)
    }

    /// The first difference between the table or index of a number here and that of a number there, or nothing if they agree. With which
    /// others it is cut makes no difference to what a type is for.
    #[must_use]
    pub fn difference_of(&self, stored: u16, declarations: &Definitions, declared: u16) -> Option<String> {
        self.tree_difference(stored, declarations, declared).or_else(|| {
            let (table, declared) = (self.table(stored)?, declarations.table(declared)?);
            (table.read_only != declared.read_only).then(|| {
                let word = |table: &TableDef| if table.read_only { "read-only" } else { "not read-only" };
                let (name, stored, declared) = (&table.name, word(table), word(declared));
                format!(
                    "table `{name}` is {stored} in the database but is declared {declared} (to change that, open the database with a \
                     schema once)"
                )
            })
        })
    }

    fn tree_difference(&self, stored: u16, declarations: &Definitions, declared: u16) -> Option<String> {
        let (Some(tree), Some(declared_tree)) =
            (self.trees.get(usize::from(stored)), declarations.trees.get(usize::from(declared)))
        else {
            return Some(format!("there is no table number {stored} or {declared}"));
        };
        let (what, name) = (tree.noun(), tree.name());
        if what != declared_tree.noun() {
            let other = declared_tree.noun();
            return Some(format!("`{name}` is of kind {what} in the database but is declared as {other}"));
        }
        if let (TreeDef::Index(index), TreeDef::Index(declared_index)) = (tree, declared_tree) {
            let (of, declared_of) = (self.name_of(index.of), declarations.name_of(declared_index.of));
            if of != declared_of {
                return Some(format!(
                    "index `{name}` is an index of `{of}` in the database but is declared as one of `{declared_of}`"
                ));
            }
            if let Some(difference) = unique_difference(index, declared_index) {
                return Some(difference);
            }
        }
        let (key, declared_key) = (self.key_fields(stored), declarations.key_fields(declared));
        if !keys_agree(&key, &declared_key) {
            let (stored, declared) = (describe(&key), describe(&declared_key));
            return Some(format!(
                "the key of {what} `{name}` is ({stored}) in the database but is declared as ({declared})"
            ));
        }
        match (tree, declared_tree) {
            (TreeDef::Table(table), TreeDef::Table(declared)) => table_difference(table, declared),
            _ => None,
        }
    }

    fn family_difference(&self, number: usize, declared: &TreeDef) -> Option<String> {
        let tree = self.trees.get(number)?;
        (tree.family() != declared.family()).then(|| {
            let (what, name, stored, declared) = (tree.noun(), tree.name(), tree.family(), declared.family());
            format!("{what} `{name}` is in family `{stored}` in the database but is declared in family `{declared}`")
        })
    }

    fn foreign_key_difference(&self, declared: &Definitions) -> Option<String> {
        // Numbers agree by now, so a reference can be compared as it stands; names are for the reader only.
        let of = |key: &ForeignKeyDef| (key.child, key.parent, key.through);
        let read = |key: &ForeignKeyDef| {
            let through =
                key.through.map_or(String::new(), |index| format!(" through `{}`", self.name_of(index)));
            let (child, parent) = (self.name_of(key.child), self.name_of(key.parent));
            format!("the foreign key from `{child}` to `{parent}`{through}")
        };
        for (place, stored) in self.foreign_keys.iter().enumerate() {
            let Some(declared) =
                declared.foreign_keys.get(place).filter(|declared| of(declared) == of(stored))
            else {
                return Some(format!(
                    "{} is in the database but is not declared in that place",
                    read(stored)
                ));
            };
            let word = |key: &ForeignKeyDef| match (key.enforced, key.on_delete) {
                (false, _) => "not enforced",
                (true, OnDelete::Restrict) => "enforced",
                (true, OnDelete::Cascade) => "enforced, deletions cascading,",
            };
            if word(stored) != word(declared) {
                let (key, stored, declared) = (read(stored), word(stored), word(declared));
                return Some(format!("{key} is {stored} in the database but is declared as {declared}"));
            }
        }
        declared
            .foreign_keys
            .get(self.foreign_keys.len())
            .map(|key| format!("{} is declared but is not in the database", read(key)))
    }

    /// Takes over from declarations that agree what was not known here: names of parts of keys, parts that were opaque, and which
    /// tables are read-only.
    pub fn complete(&mut self, declared: &Definitions) {
        for (stored, declared) in self.trees.iter_mut().zip(&declared.trees) {
            match (stored, declared) {
                (TreeDef::Table(stored), TreeDef::Table(declared)) => {
                    stored.read_only = declared.read_only;
                    complete_table(stored, declared);
                }
                (TreeDef::Index(stored), TreeDef::Index(declared)) => complete_index(stored, declared),
                _ => {}
            }
        }
    }
}

fn complete_table(stored: &mut TableDef, declared: &TableDef) {
    if stored.columns.iter().any(|column| column.ty == ColumnType::Opaque) {
        // The parts of the key that it stands for are as many as the declaration says, and all columns after them shift.
        let row: Vec<ColumnDef> = stored.row_columns().cloned().collect();
        let key = declared.columns.iter().enumerate().filter(|(place, _)| declared.is_in_key(*place));
        if row.iter().eq(declared.row_columns()) && key.clone().count() == declared.key_fields().len() {
            stored.columns.clone_from(&declared.columns);
            stored.key.clone_from(&declared.key);
        }
        return;
    }
    let names: Vec<String> = declared.key_names().into_iter().map(str::to_owned).collect();
    let PrimaryKey::Columns(key) = &stored.key else { return };
    for (key, name) in key.iter().zip(names) {
        let is_free = stored.columns.iter().all(|column| column.name != name);
        if let Some(column) = stored.columns.get_mut(usize::from(key.column))
            && is_placeholder(&column.name)
            && is_free
        {
            column.name = name;
        }
    }
}

fn complete_index(stored: &mut IndexDef, declared: &IndexDef) {
    let is_opaque =
        |part: &IndexPart| matches!(part, IndexPart::Computed { part, .. } if part.ty == ColumnType::Opaque);
    if stored.parts.iter().any(is_opaque) {
        stored.parts.clone_from(&declared.parts);
        return;
    }
    for (part, declared) in stored.parts.iter_mut().zip(&declared.parts) {
        if let (IndexPart::Computed { name, .. }, IndexPart::Computed { name: declared, .. }) =
            (part, declared)
            && !is_placeholder(declared)
        {
            name.clone_from(declared);
        }
    }
}

fn unique_difference(stored: &IndexDef, declared: &IndexDef) -> Option<String> {
    let word = |index: &IndexDef| if index.unique { "unique" } else { "not unique" };
    (stored.unique != declared.unique).then(|| {
        let (name, stored, declared) = (&stored.name, word(stored), word(declared));
        format!("index `{name}` is {stored} in the database but is declared {declared}")
    })
}

/// Returns whether keys have the same parts. Parts that follow an opaque one on either side are not known.
fn keys_agree(stored: &[KeyField], declared: &[KeyField]) -> bool {
    let is_opaque = |field: &KeyField| field.part.ty == ColumnType::Opaque;
    for (stored, declared) in stored.iter().zip(declared) {
        if is_opaque(stored) || is_opaque(declared) {
            return true;
        }
        if stored != declared {
            return false;
        }
    }
    stored.len() == declared.len()
}

fn table_difference(stored: &TableDef, declared: &TableDef) -> Option<String> {
    let table = &stored.name;
    for (place, (stored, declared)) in stored.key_names().into_iter().zip(declared.key_names()).enumerate() {
        if stored != declared && !is_placeholder(stored) && !is_placeholder(declared) {
            return Some(format!(
                "part {place} of the key of table `{table}` is `{stored}` in the database but is declared as `{declared}`"
            ));
        }
    }
    let declared_columns: Vec<&ColumnDef> = declared.row_columns().collect();
    for (place, column) in stored.row_columns().enumerate() {
        let Some(declared) = declared_columns.get(place) else {
            let column = &column.name;
            return Some(format!(
                "column `{column}` of table `{table}` is in the database but is not declared"
            ));
        };
        if column.name != declared.name {
            let (stored, declared) = (&column.name, &declared.name);
            return Some(format!(
                "column {place} of table `{table}` is `{stored}` in the database but is declared as `{declared}`"
            ));
        }
        let word = |column: &ColumnDef| {
            if column.nullable { format!("{} or NULL", column.ty) } else { column.ty.to_string() }
        };
        if word(column) != word(declared) {
            let (column, stored, declared) = (&column.name, word(column), word(declared));
            return Some(format!(
                "column `{column}` of table `{table}` is {stored} in the database but is declared as {declared}"
            ));
        }
    }
    declared_columns.get(stored.row_columns().count()).map(|column| {
        let column = &column.name;
        format!("column `{column}` of table `{table}` is declared but is not in the database")
    })
}
