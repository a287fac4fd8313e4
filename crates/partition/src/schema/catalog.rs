//! The catalog: all that the engine knows of the trees of a database, for accesses to them.
//!
//! Owns: what follows from definitions, and from the types of a program, for the access of rows: the trees, the
//! dependents of a write, the references between tables. Never: changes. A data definition statement makes another
//! catalog ([`Catalog::changed`]); only the types of the program are learned by all of them ([`Code`]).
//!
//! Invariants: a tree has the same number here and in the definitions; families are numbered in the order of their first trees,
//! none is without one.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use atrapos_catalog::{Definitions, ForeignKeyDef, KeyCodec, TableDef, TreeDef};
use atrapos_storage::{KeyBuf, Row};

use super::declare::{Declared, Schema, SchemaError, Splits, index_definition, table_definition};
use super::extract::{ParentKeyOf, ReferenceShape, extract_of, extract_of_columns};
use super::meta::{
    ChildMeta, Code, Dependency, IndexMeta, ParentMeta, Phase, TableMeta, TreeKind, key_bytes,
};
use super::{CatalogTag, Index, IndexRef, Table, TableId, TableRef};
use crate::abort::{Abort, AbortReason};
use crate::dynamic::Layouts;
use crate::routing::Scheme;

/// The family of a tree that was dropped.
pub const NO_FAMILY: usize = usize::MAX;

/// The checked schema of an open database: immutable, shared by all workers.
pub struct Catalog {
    /// Identifies the database among those of the process.
    pub tag: CatalogTag,
    /// The definitions, as data; a table has the same number here and in `tables`.
    pub definitions: Definitions,
    /// The positions of columns in keys and rows, by number of the tree.
    pub(crate) layouts: Layouts,
    /// The description of each tree, by number.
    pub tables: Vec<TableMeta>,
    /// Families of trees, by name, with their declared cuts for a new database.
    pub families: Vec<(&'static str, Option<Splits>)>,
    /// The references between tables.
    pub dependencies: Vec<Dependency>,
}

/// The expected size of an entry of an index besides its key, in bytes.
pub(super) const ENTRY_BYTES: usize = 16;

impl Catalog {
    /// Creates the catalog of a new database with a declared schema.
    pub fn new(schema: Schema) -> Result<Catalog, SchemaError> {
        Catalog::of_stored(schema, &Definitions::default())
    }

    /// Creates the catalog of an existing database that is opened with a declared schema. The caller checks the
    /// differences between the two.
    pub fn of_stored(schema: Schema, stored: &Definitions) -> Result<Catalog, SchemaError> {
        let (splits, shared) = (schema.splits.clone(), schema.shared.clone());
        let Declared { definitions, mut codes, references } = schema.into_declared()?.renumbered(stored);
        definitions.check().map_err(|error| SchemaError(error.to_string()))?;
        mark_shared(&shared, &definitions, &mut codes)?;
        let mut catalog =
            Catalog::assemble(CatalogTag::new(), definitions, codes, references, &BTreeMap::new());
        for (family, splits) in splits {
            let Some(entry) = catalog.families.iter_mut().find(|(name, _)| *name == family) else {
                return Err(SchemaError(format!(
                    "partition boundaries are given for family '{family}', to which no table or index belongs"
                )));
            };
            entry.1 = Some(splits);
        }
        Ok(catalog)
    }

    /// Creates the catalog of a database that is opened without declaring its schema.
    pub fn stored(definitions: &Definitions) -> Catalog {
        let codes = definitions.trees.iter().map(|_| Code::default()).collect();
        let references = definitions.foreign_keys.iter().map(|_| None).collect();
        Catalog::assemble(CatalogTag::new(), definitions.clone(), codes, references, &BTreeMap::new())
    }

    /// Creates the catalog of the same database with other definitions, which are consistent. Trees that stay keep
    /// their declared types. Trees that are not ready are listed in `phases`.
    pub fn changed(&self, definitions: Definitions, phases: &BTreeMap<TableId, Phase>) -> Catalog {
        let code = |(at, tree): (usize, &TreeDef)| match (tree, self.definitions.trees.get(at)) {
            (TreeDef::Dropped, _) => Code::default(),
            // A table with another column has a number of its own. Its rows have no type of the program's, but it is used as before.
            (tree, None | Some(TreeDef::Dropped)) => {
                Code { is_shared: self.shares(tree.name()), ..Code::default() }
            }
            // The type of an index was declared for the rows that its table had before.
            (TreeDef::Index(index), Some(TreeDef::Index(before))) if index.of != before.of => Code::default(),
            _ => self.tables[at].code.clone(),
        };
        let codes = definitions.trees.iter().enumerate().map(code).collect();
        let reference = |key: &ForeignKeyDef| {
            let parents = &self.tables.get(usize::from(key.child))?.parents;
            let place =
                self.definitions.foreign_keys.iter().filter(|old| old.enforced && old.child == key.child);
            let place =
                place.into_iter().position(|old| (old.parent, old.through) == (key.parent, key.through))?;
            let known = Arc::clone(&parents.get(place)?.key);
            matches!(*known, ParentKeyOf::Code(_)).then_some(known)
        };
        let references = definitions.foreign_keys.iter().map(reference).collect();
        Catalog::assemble(self.tag, definitions, codes, references, phases)
    }

    /// Returns true if there is a shared table of this name.
    fn shares(&self, name: &str) -> bool {
        self.definitions.find(name).is_some_and(|number| self.tables[usize::from(number)].is_shared)
    }

    /// Assembles a catalog from definitions and code.
    fn assemble(
        tag: CatalogTag,
        definitions: Definitions,
        codes: Vec<Code>,
        references: Vec<Option<Arc<ParentKeyOf>>>,
        phases: &BTreeMap<TableId, Phase>,
    ) -> Catalog {
        let mut catalog = Catalog {
            tag,
            layouts: Layouts::of(&definitions),
            definitions: Definitions::default(),
            tables: Vec::new(),
            families: Vec::new(),
            dependencies: Vec::new(),
        };
        for (number, (tree, code)) in (0..).zip(definitions.trees.iter().zip(codes)) {
            let (kind, expected) = match tree {
                TreeDef::Table(table) => (TreeKind::Rows, expected_row_bytes(table)),
                TreeDef::Index(index) => {
                    (TreeKind::Entries { of: TableId(index.of), unique: index.unique }, ENTRY_BYTES)
                }
                TreeDef::Dropped => (TreeKind::Dropped, 0),
            };
            let expected = if code.expected_row_bytes > 0 { code.expected_row_bytes } else { expected };
            let family = catalog.family(tree);
            catalog.tables.push(TableMeta {
                name: interned(tree.name()),
                kind,
                is_shared: code.is_shared,
                phase: phases.get(&TableId(number)).copied().unwrap_or_default(),
                family,
                expected_row_bytes: expected,
                code,
                indexes: Vec::new(),
                parents: Vec::new(),
                children: Vec::new(),
                has_dependents: false,
            });
        }
        catalog.definitions = definitions;
        catalog.link_indexes();
        for (place, known) in references.into_iter().enumerate() {
            catalog.link_foreign_key(place, known);
        }
        catalog
    }

    /// Returns the number of a tree's family; its first tree determines the cuts for a new database.
    fn family(&mut self, tree: &TreeDef) -> usize {
        if *tree == TreeDef::Dropped {
            return NO_FAMILY;
        }
        let known = self.families.iter().position(|(known, _)| *known == tree.family());
        known.unwrap_or_else(|| {
            let cuts: Vec<KeyBuf> = tree.splits().iter().map(|cut| KeyBuf::from_slice(cut)).collect();
            self.families.push((interned(tree.family()), (!cuts.is_empty()).then_some(Splits::At(cuts))));
            self.families.len() - 1
        })
    }

    fn link_indexes(&mut self) {
        for at in 0..self.tables.len() {
            let TreeKind::Entries { of, unique } = self.tables[at].kind else { continue };
            let (Some(index), Some(table)) =
                (self.definitions.index(at as u16), self.definitions.table(of.0))
            else {
                continue;
            };
            self.tables[at].is_shared = self.tables[of.at()].is_shared;
            let code = &self.tables[at].code;
            if let Some(extract) = extract_of_columns(index, table) {
                code.extract.learn(|| extract);
            }
            let codec = KeyCodec::of_index(index, table);
            let may_be_null = codec.fields().iter().any(|field| field.part.nullable);
            let meta = IndexMeta {
                id: TableId(at as u16),
                unique,
                extract: code.extract.clone(),
                key_bytes: Arc::clone(&code.key_bytes),
                with_nulls: (unique && may_be_null).then_some(codec),
            };
            if self.tables[at].phase != Phase::Announced {
                self.tables[of.at()].indexes.push(meta);
                self.tables[of.at()].has_dependents = true;
            }
        }
    }

    /// Adds a foreign key and, if it is enforced, its entries for both tables.
    fn link_foreign_key(&mut self, place: usize, known: Option<Arc<ParentKeyOf>>) {
        let key = self.definitions.foreign_keys[place];
        let (child, parent, through) = (TableId(key.child), TableId(key.parent), key.through.map(TableId));
        self.dependencies.push(Dependency { child, parent, enforced: key.enforced, through });
        if !key.enforced {
            return;
        }
        let found_by = through.unwrap_or(child);
        let fields = |table: TableId| self.definitions.key_fields(table.0);
        let shape = ReferenceShape::new(fields(parent), fields(found_by));
        let index = through.map(|index| self.tables[index.at()].code.extract.clone());
        let key_of = known
            .unwrap_or_else(|| Arc::new(ParentKeyOf::Beginning { through: index, shape: shape.clone() }));
        let (child, parent_table) = (child.at(), parent.at());
        self.tables[child].parents.push(ParentMeta { parent, key: key_of });
        self.tables[child].has_dependents = true;
        let on_delete = key.on_delete;
        self.tables[parent_table].children.push(ChildMeta { through: found_by, on_delete, shape });
        self.tables[parent_table].has_dependents = true;
    }

    /// Returns the definitions to be stored, with the cuts that families have in `scheme`.
    pub fn describe(&self, scheme: &Scheme) -> Definitions {
        let mut definitions = self.definitions.clone();
        for (at, tree) in (0..).map(TableId).zip(&mut definitions.trees) {
            let family = scheme.family(at);
            let lower = |index| family.lower(index).map(<[u8]>::to_vec);
            let cuts = (1..family.partitions()).filter_map(lower).collect();
            match tree {
                TreeDef::Table(table) => table.splits = cuts,
                TreeDef::Index(index) => index.splits = cuts,
                TreeDef::Dropped => {}
            }
        }
        definitions
    }

    /// The handle of table `T`.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        let id = self.find(TypeId::of::<T>(), "table", T::NAME, || {
            let trees = vec![TreeDef::Table(table_definition::<T>())];
            Definitions { trees, foreign_keys: Vec::new() }
        })?;
        Ok(TableRef { id, tag: self.tag, marker: PhantomData })
    }

    /// The handle of index `I`.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        let id = self.find(TypeId::of::<I>(), "index", I::NAME, || {
            let trees = vec![
                TreeDef::Index(index_definition::<I>(1)),
                TreeDef::Table(table_definition::<I::Table>()),
            ];
            Definitions { trees, foreign_keys: Vec::new() }
        })?;
        let meta = &self.tables[id.at()];
        if let TreeKind::Entries { .. } = meta.kind {
            // The table must have the type whose rows the key function reads.
            self.table::<I::Table>()?;
            meta.code.extract.learn(extract_of::<I>);
            if let Ok(known) = key_bytes(I::NAME, I::KEY_FROM, <I::Table as Table>::Row::COLUMNS)
                && let Some(ranges) = known.into_inner()
            {
                meta.code.key_bytes.get_or_init(|| ranges);
            }
        }
        Ok(IndexRef { id, tag: self.tag, marker: PhantomData })
    }

    /// Looks up the table or index of a type. `declared` is the declaration of the type, beginning with the kind that
    /// is looked for.
    fn find(
        &self,
        type_id: TypeId,
        what: &str,
        name: &str,
        declared: impl Fn() -> Definitions,
    ) -> Result<TableId, SchemaError> {
        let known = |table: &TableMeta| table.code.type_id.get() == Some(&type_id);
        if let Some(at) = self.tables.iter().position(known) {
            return Ok(TableId(at as u16));
        }
        // In a database opened without its schema, the first type that is used for a table and fits it becomes the
        // table's type.
        let is_free =
            |table: &TableMeta| table.kind != TreeKind::Dropped && table.code.type_id.get().is_none();
        let unknown = self.tables.iter().position(|table| table.name == name && is_free(table));
        let Some(at) = unknown else {
            return Err(SchemaError(format!(
                "this database has no {what} '{name}' of that type; declare it in the schema it is opened with"
            )));
        };
        if let Some(difference) = self.definitions.difference_of(at as u16, &declared(), 0) {
            return Err(SchemaError(format!(
                "{what} '{name}' of this database is not of the type that was asked for: {difference}; use the type it was created with"
            )));
        }
        match self.tables[at].code.type_id.get_or_init(|| type_id) == &type_id {
            true => Ok(TableId(at as u16)),
            false => self.find(type_id, what, name, declared),
        }
    }

    /// The numbers of the trees that exist.
    pub fn live(&self) -> impl Iterator<Item = (TableId, &TableMeta)> {
        (0..).map(TableId).zip(&self.tables).filter(|(_, meta)| meta.kind != TreeKind::Dropped)
    }
}

/// Creates the abort for a handle that belongs to another database.
#[cold]
pub fn unknown_table(id: TableId) -> Abort {
    Abort::explained(
        AbortReason::UnknownTable,
        format!(
            "the procedure uses a handle (number {}) of a table or index of another database; take handles from the database it runs on",
            id.0
        ),
    )
}

/// Marks the tables that are declared as shared.
fn mark_shared(shared: &[&str], definitions: &Definitions, codes: &mut [Code]) -> Result<(), SchemaError> {
    for name in shared {
        let is_it = |tree: &TreeDef| matches!(tree, TreeDef::Table(table) if table.name == *name);
        let Some(at) = definitions.trees.iter().position(is_it) else {
            return Err(SchemaError(format!(
                "'{name}' is declared as shared, but the schema has no such table; name one of its tables (indexes follow theirs)"
            )));
        };
        codes[at].is_shared = true;
    }
    Ok(())
}

/// Interns a name for the life of the process; each is kept once.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// The expected size of a row of a table, in bytes, with an assumed size for columns of variable size.
fn expected_row_bytes(table: &TableDef) -> usize {
    table.row_columns().map(|column| column.ty.width().unwrap_or(16)).sum()
}
