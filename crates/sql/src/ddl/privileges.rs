//! GRANT and REVOKE of privileges, of columns as well, and the owners of tables, views and sequences.
//!
//! Owns: who may grant, and the rows in which accesses are kept. An access is written before what it is of is made, and removed when that is
//! gone: one that a crash has left is written over by whoever takes the name. Never: decides whether a statement may run (`roles` does).

use std::collections::BTreeMap;

use sqlparser::ast;

use super::{Change, Done};
use crate::bind::{ident, object_name, procedure_name};
use crate::error::{Severity, SqlError, SqlState};
use crate::load::SCHEMA_ACCESS;
use crate::roles::{Access, Grant, Need, Object, Privileges, SUPERUSER, denied};
use crate::schema::{ForeignMeta, Schema, no_relation};

impl Change<'_> {
    /// Refuses a change of a table, view, index or sequence to whoever does not own it.
    pub(super) fn require_owner(&self, name: &str) -> Result<(), SqlError> {
        let schema = self.db.schema();
        self.db.refuse_loading(schema.index(name).map_or(name, |(table, _)| &table.name))?;
        match (schema.object(name), schema.index(name)) {
            (Some(object), _) => schema.roles.require_owner(self.role, object.noun(), name),
            (None, Some((table, _)))
                if schema.roles.acts_as(self.role, schema.roles.owner_of(&table.name)) =>
            {
                Ok(())
            }
            (None, Some(_)) => {
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of index {name}")))
            }
            // That it is not there is told elsewhere.
            (None, None) => Ok(()),
        }
    }

    /// Refuses to make something in the schema.
    pub(super) fn require_create(&self) -> Result<(), SqlError> {
        self.db.schema().roles.require(self.role, Object::Schema, "public", Privileges::CREATE)
    }

    /// Refuses foreign keys to tables that the role may not refer to.
    pub(super) fn require_references(&self, table: &str, keys: &[ForeignMeta]) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let parents = keys.iter().map(|key| &key.parent).filter(|parent| *parent != table);
        let mut needs = Vec::new();
        for parent in parents {
            self.db.refuse_loading(parent)?;
            let mut need = Need::new(Object::Table, parent, Privileges::REFERENCES);
            let parent = schema.tables.get(parent);
            for (column, _) in
                parent.and_then(|table| table.cluster_key()).into_iter().flat_map(|key| &key.columns)
            {
                let name = parent.map_or("", |table| &table.columns[*column].name);
                need.add_column(name, Privileges::REFERENCES);
            }
            needs.push(need);
        }
        schema.roles.check(self.role, &needs)
    }

    fn write_access(&self, row: String, access: Option<&Access>) -> Result<(), SqlError> {
        let body = access.map(serde_json::to_string).transpose().map_err(|error| {
            SqlError::new(SqlState::INTERNAL_ERROR, format!("an access cannot be written: {error}"))
        })?;
        self.db.kept().write(self.db.database(), row, body)
    }

    /// Makes the role that runs the statement the owner of what it is about to make.
    pub(super) fn own(&self, name: &str) -> Result<(), SqlError> {
        if self.role == SUPERUSER && !self.db.schema().roles.relations.contains_key(name) {
            return Ok(());
        }
        self.write_access(format!("access:{name}"), Some(&Access::of(self.role)))
    }

    /// Forgets the access to what is no more.
    pub(super) fn disown(&self, name: &str) -> Result<(), SqlError> {
        if self.db.schema().roles.relations.contains_key(name) {
            self.write_access(format!("access:{name}"), None)?;
        }
        Ok(())
    }

    /// Keeps the access to a table under the name that it gets.
    pub(super) fn rename_access(&self, new: &str, old: &str) -> Result<(), SqlError> {
        match self.db.schema().roles.relations.get(old) {
            Some(access) => self.write_access(format!("access:{new}"), Some(access)),
            None => self.disown(new),
        }
    }

    /// Gives a table, with its sequences, to another role.
    pub(super) fn change_owner(&self, name: &str, owner: &ast::Owner) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let owner = match owner {
            ast::Owner::Ident(name) => self.role_named(&schema.roles, name)?,
            ast::Owner::CurrentRole | ast::Owner::CurrentUser => self.role,
            ast::Owner::SessionUser => self.session_role,
        };
        if !schema.roles.is_member(self.role, owner) {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be member of role \"{}\"", schema.roles.name_of(owner)),
            ));
        }
        if !schema.roles.is_superuser(self.role) {
            schema.roles.require(owner, Object::Schema, "public", Privileges::CREATE)?;
        }
        let table = schema.tables.get(name);
        let sequences = table
            .iter()
            .flat_map(|table| &table.meta.columns)
            .filter_map(|column| column.sequence.as_deref());
        for name in std::iter::once(name).chain(sequences) {
            let mut access = schema.roles.access(name);
            access.give_to(owner);
            self.write_access(format!("access:{name}"), Some(&access))?;
        }
        self.db.reload()
    }

    /// Keeps the privileges of a column under the name that it gets, or forgets them.
    pub(super) fn change_column_access(
        &self,
        table: &str,
        old: &str,
        new: Option<String>,
    ) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let Some(access) =
            schema.roles.relations.get(table).filter(|access| access.columns.contains_key(old))
        else {
            return Ok(());
        };
        let mut access = access.clone();
        if let (Some(items), Some(new)) = (access.columns.remove(old), new) {
            access.columns.insert(new, items);
        }
        self.write_access(format!("access:{table}"), Some(&access))
    }

    pub(super) fn grant(&self, grant: &ast::Grant) -> Result<Done, SqlError> {
        if grant.as_grantor.is_some() || grant.current_grants.is_some() {
            return Err(SqlError::unsupported("a clause of GRANT"));
        }
        self.check_grantor(grant.granted_by.as_ref())?;
        let how = Grant { grants: true, options: grant.with_grant_option, cascades: false };
        self.change_privileges(&grant.privileges, grant.objects.as_ref(), &grant.grantees, how)
    }

    pub(super) fn revoke(&self, revoke: &ast::Revoke) -> Result<Done, SqlError> {
        self.check_grantor(revoke.granted_by.as_ref())?;
        let cascades = matches!(revoke.cascade, Some(ast::CascadeOption::Cascade));
        let how = Grant { grants: false, options: revoke.grant_option_for, cascades };
        self.change_privileges(&revoke.privileges, revoke.objects.as_ref(), &revoke.grantees, how)
    }

    /// Refuses another grantor than the role that runs the statement, as PostgreSQL does.
    fn check_grantor(&self, grantor: Option<&ast::Ident>) -> Result<(), SqlError> {
        match grantor {
            Some(name) if self.role_named(&self.db.schema().roles, name)? != self.role => {
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "grantor must be current user"))
            }
            _ => Ok(()),
        }
    }

    fn change_privileges(
        &self,
        privileges: &ast::Privileges,
        objects: Option<&ast::GrantObjects>,
        grantees: &[ast::Grantee],
        how: Grant,
    ) -> Result<Done, SqlError> {
        let mut done = Done::tag(if how.grants { "GRANT" } else { "REVOKE" });
        let schema = self.db.schema();
        let grantees: Result<Vec<u32>, SqlError> =
            grantees.iter().map(|grantee| self.grantee(&schema.roles, grantee)).collect();
        let (grantees, objects) = (grantees?, self.objects(objects)?);
        for (object, name) in objects {
            let wanted = wanted(privileges, object)?;
            let (row, access) = match object {
                Object::Schema => (SCHEMA_ACCESS.to_owned(), schema.roles.schema.clone()),
                _ => (format!("access:{name}"), schema.roles.access(&name)),
            };
            let mut changing = Changing {
                schema: &schema,
                role: self.role,
                object,
                name: &name,
                how,
                notices: Vec::new(),
                access,
            };
            changing.change(&wanted, &grantees)?;
            done.notices.append(&mut changing.notices);
            self.write_access(row, Some(&changing.access))?;
        }
        self.db.reload()?;
        Ok(done)
    }

    /// The objects that a GRANT names.
    fn objects(&self, objects: Option<&ast::GrantObjects>) -> Result<Vec<(Object, String)>, SqlError> {
        use ast::GrantObjects::{AllSequencesInSchema, AllTablesInSchema, Schemas, Sequences, Tables};
        let schema = self.db.schema();
        let all = |names: &[ast::ObjectName]| {
            names.iter().try_for_each(|name| match object_name(name)? {
                (None, name) if name == "public" => Ok(()),
                (_, name) => Err(no_schema(&name)),
            })
        };
        match objects {
            Some(Tables(names) | Sequences(names)) => names
                .iter()
                .map(|name| {
                    let (_, name) = object_name(name)?;
                    let object = schema.object(&name).ok_or_else(|| no_relation(&name))?;
                    if matches!(objects, Some(Sequences(_))) && object != Object::Sequence {
                        let why = format!("\"{name}\" is not a sequence");
                        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, why));
                    }
                    Ok((object, name))
                })
                .collect(),
            Some(Schemas(names)) => {
                all(names)?;
                Ok(vec![(Object::Schema, "public".to_owned())])
            }
            Some(AllTablesInSchema { schemas }) => {
                all(schemas)?;
                let views = schema.views.keys().map(|name| (Object::View, name.clone()));
                Ok(schema.tables.keys().map(|name| (Object::Table, name.clone())).chain(views).collect())
            }
            Some(AllSequencesInSchema { schemas }) => {
                all(schemas)?;
                Ok(schema.sequences.keys().map(|name| (Object::Sequence, name.clone())).collect())
            }
            Some(ast::GrantObjects::Procedures(names) | ast::GrantObjects::Routines(names)) => names
                .iter()
                .map(|procedure| {
                    let name = procedure_name(&procedure.name)?;
                    Ok((Object::Procedure, schema.procedures.find(&name)?.access_name()))
                })
                .collect(),
            Some(ast::GrantObjects::Databases(_)) => Err(SqlError::unsupported(
                "privileges of a database: whoever can log in may use the one that there is",
            )),
            Some(other) => Err(SqlError::unsupported(format!("privileges of {other}"))),
            None => Err(SqlError::unsupported("privileges of nothing")),
        }
    }
}

fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState("3F000"), format!("schema \"{name}\" does not exist"))
}

/// The privileges that a GRANT names, of an object and of its columns.
#[derive(Debug, Default)]
struct Wanted {
    whole: Privileges,
    columns: Vec<(String, Privileges)>,
    /// Set for ALL: what the grantor may not grant of it is left out without a warning.
    is_all: bool,
}

/// The privileges that a GRANT names, of a kind of objects.
fn wanted(privileges: &ast::Privileges, object: Object) -> Result<Wanted, SqlError> {
    let actions = match privileges {
        ast::Privileges::All { .. } => {
            return Ok(Wanted { whole: object.all(), is_all: true, ..Wanted::default() });
        }
        ast::Privileges::Actions(actions) => actions,
    };
    let mut wanted = Wanted::default();
    for action in actions {
        let (name, columns) = match action {
            ast::Action::Select { columns } => ("SELECT".to_owned(), columns),
            ast::Action::Insert { columns } => ("INSERT".to_owned(), columns),
            ast::Action::Update { columns } => ("UPDATE".to_owned(), columns),
            ast::Action::References { columns } => ("REFERENCES".to_owned(), columns),
            other => (other.to_string(), &None),
        };
        let known = Privileges::named(&name).filter(|known| object.all().has_all(*known));
        let privilege =
            known.ok_or_else(|| invalid(format!("invalid privilege type {name} for {}", object.noun())))?;
        match columns {
            None => wanted.whole = wanted.whole.and(privilege),
            Some(_) if !matches!(object, Object::Table | Object::View) => {
                return Err(invalid("column privileges are only valid for relations".to_owned()));
            }
            Some(columns) => wanted.columns.extend(columns.iter().map(|column| (ident(column), privilege))),
        }
    }
    Ok(wanted)
}

fn invalid(why: String) -> SqlError {
    SqlError::new(SqlState::INVALID_GRANT_OPERATION, why)
}

/// A change of the access to one object.
struct Changing<'a> {
    schema: &'a Schema,
    /// The role that runs the statement.
    role: u32,
    object: Object,
    name: &'a str,
    how: Grant,
    notices: Vec<SqlError>,
    access: Access,
}

impl Changing<'_> {
    fn change(&mut self, wanted: &Wanted, grantees: &[u32]) -> Result<(), SqlError> {
        let (roles, owner) = (&self.schema.roles, self.access.owner);
        let mut of_columns: BTreeMap<String, Privileges> = BTreeMap::new();
        for (column, privilege) in &wanted.columns {
            self.check_column(column)?;
            let all = of_columns.entry(column.clone()).or_default();
            *all = all.and(*privilege);
        }
        if !wanted.whole.is_empty() {
            let mut items = self.access.items(self.object);
            let (grantor, options) = roles.grantor(self.role, owner, &items, wanted.whole);
            let allowed = self.allowed(None, wanted.whole, options, wanted.is_all)?;
            roles.change(owner, &mut items, (grantor, allowed), grantees, self.how)?;
            self.access.granted = Some(items);
            // A privilege of the table that is revoked is revoked of its columns as well.
            let revoked = allowed.only(Privileges::OF_COLUMNS);
            if !self.how.grants && !revoked.is_empty() {
                for column in self.access.columns.keys() {
                    let all = of_columns.entry(column.clone()).or_default();
                    *all = all.and(revoked);
                }
            }
        }
        of_columns
            .iter()
            .try_for_each(|(column, privileges)| self.change_column(column, *privileges, grantees))
    }

    fn change_column(&mut self, column: &str, wanted: Privileges, grantees: &[u32]) -> Result<(), SqlError> {
        let (roles, owner) = (&self.schema.roles, self.access.owner);
        let mut items = self.access.items_of(column).to_vec();
        // Whoever may grant a privilege of the table may grant it of a column.
        let both = [&self.access.items(self.object)[..], &items].concat();
        let (grantor, options) = roles.grantor(self.role, owner, &both, wanted);
        let allowed = self.allowed(Some(column), wanted, options, false)?;
        roles.change(owner, &mut items, (grantor, allowed), grantees, self.how)?;
        if items.is_empty() {
            self.access.columns.remove(column);
        } else {
            self.access.columns.insert(column.to_owned(), items);
        }
        Ok(())
    }

    /// Refuses a column that is not there.
    fn check_column(&self, column: &str) -> Result<(), SqlError> {
        let is_there = match self.object {
            Object::Table => {
                self.schema.tables.get(self.name).is_some_and(|table| table.column(column).is_some())
            }
            _ => self
                .schema
                .views
                .get(self.name)
                .is_some_and(|view| view.columns.iter().any(|known| known.name == column)),
        };
        if is_there {
            return Ok(());
        }
        let why = format!("column \"{column}\" of relation \"{}\" does not exist", self.name);
        Err(SqlError::new(SqlState::UNDEFINED_COLUMN, why))
    }

    /// The privileges among those wanted that the role may grant; warns of the others, and refuses who has no privilege at all.
    fn allowed(
        &mut self,
        column: Option<&str>,
        wanted: Privileges,
        options: Privileges,
        is_all: bool,
    ) -> Result<Privileges, SqlError> {
        let what = match column {
            None => format!("\"{}\"", self.name),
            Some(column) => format!("column \"{column}\" of relation \"{}\"", self.name),
        };
        if options.is_empty() && !self.has_any(column) {
            return Err(match column {
                None => denied(self.object, self.name),
                Some(_) => {
                    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {what}"))
                }
            });
        }
        let share = match options {
            options if options.is_empty() => "no",
            options if !is_all && !options.has_all(wanted) => "not all",
            _ => return Ok(options),
        };
        let (done, code) = if self.how.grants {
            ("were granted", SqlState::PRIVILEGE_NOT_GRANTED)
        } else {
            ("could be revoked", SqlState::PRIVILEGE_NOT_REVOKED)
        };
        let why = format!("{share} privileges {done} for {what}");
        self.notices.push(SqlError::new(code, why).severity(Severity::Warning));
        Ok(options)
    }

    /// Returns true if the role has any privilege of the object, or of a column.
    fn has_any(&self, column: Option<&str>) -> bool {
        let roles = &self.schema.roles;
        let of_column = column.map(|column| roles.column_privileges(self.role, self.name, column));
        let held = roles.privileges(self.role, self.object, self.name);
        !held.is_empty() || of_column.is_some_and(|held| !held.is_empty())
    }
}
