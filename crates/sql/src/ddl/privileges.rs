//! GRANT and REVOKE of privileges, and the owners of tables, views and sequences.
//!
//! Owns: who may grant, and the rows in which accesses are kept. An access is written before what it is of is made, and removed when that is
//! gone: one that a crash has left is written over by whoever takes the name. Never: decides whether a statement may run (`roles` does).

use sqlparser::ast;

use super::{Change, Done};
use crate::bind::{object_name, procedure_name};
use crate::error::{Severity, SqlError, SqlState};
use crate::load::SCHEMA_ACCESS;
use crate::roles::{Access, Object, Privileges, SUPERUSER, denied};
use crate::schema::{ForeignMeta, no_relation};

impl Change<'_> {
    /// Refuses a change of a table, view, index or sequence to whoever does not own it.
    pub(super) fn require_owner(&self, name: &str) -> Result<(), SqlError> {
        let schema = self.db.schema();
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
        let roles = &self.db.schema().roles;
        let parents = keys.iter().map(|key| &key.parent).filter(|parent| *parent != table);
        parents
            .into_iter()
            .try_for_each(|parent| roles.require(self.role, Object::Table, parent, Privileges::REFERENCES))
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

    pub(super) fn grant(&self, grant: &ast::Grant) -> Result<Done, SqlError> {
        let refused = [
            (grant.with_grant_option, "WITH GRANT OPTION"),
            (grant.as_grantor.is_some() || grant.granted_by.is_some(), "GRANTED BY"),
            (grant.current_grants.is_some(), "a clause of GRANT"),
        ];
        if let Some((_, what)) = refused.iter().find(|(is_there, _)| *is_there) {
            return Err(SqlError::unsupported(what));
        }
        self.change_privileges(&grant.privileges, grant.objects.as_ref(), &grant.grantees, true)
    }

    pub(super) fn revoke(&self, revoke: &ast::Revoke) -> Result<Done, SqlError> {
        if revoke.grant_option_for {
            return Err(SqlError::unsupported("GRANT OPTION FOR, as nobody has one"));
        }
        if revoke.granted_by.is_some() {
            return Err(SqlError::unsupported("GRANTED BY"));
        }
        self.change_privileges(&revoke.privileges, revoke.objects.as_ref(), &revoke.grantees, false)
    }

    fn change_privileges(
        &self,
        privileges: &ast::Privileges,
        objects: Option<&ast::GrantObjects>,
        grantees: &[ast::Grantee],
        grants: bool,
    ) -> Result<Done, SqlError> {
        let mut done = Done::tag(if grants { "GRANT" } else { "REVOKE" });
        let schema = self.db.schema();
        let grantees: Result<Vec<u32>, SqlError> =
            grantees.iter().map(|grantee| self.grantee(&schema.roles, grantee)).collect();
        let (grantees, objects) = (grantees?, self.objects(objects)?);
        for (object, name) in objects {
            let wanted = wanted(privileges, object)?;
            let (row, mut access) = match object {
                Object::Schema => (SCHEMA_ACCESS.to_owned(), schema.roles.schema.clone()),
                _ => (format!("access:{name}"), schema.roles.access(&name)),
            };
            if !schema.roles.acts_as(self.role, access.owner) {
                if schema.roles.privileges(self.role, object, &name).is_empty() {
                    return Err(denied(object, &name));
                }
                let what = if grants { "were granted" } else { "could be revoked" };
                let why = format!("no privileges {what} for \"{name}\"");
                done.notices
                    .push(SqlError::new(SqlState::PRIVILEGE_NOT_GRANTED, why).severity(Severity::Warning));
                continue;
            }
            for grantee in &grantees {
                access.change(object, *grantee, wanted, grants);
            }
            self.write_access(row, Some(&access))?;
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

/// The privileges that a GRANT names, of a kind of objects.
fn wanted(privileges: &ast::Privileges, object: Object) -> Result<Privileges, SqlError> {
    let actions = match privileges {
        ast::Privileges::All { .. } => return Ok(object.all()),
        ast::Privileges::Actions(actions) => actions,
    };
    let mut wanted = Privileges::default();
    for action in actions {
        if let ast::Action::Select { columns: Some(_) }
        | ast::Action::Insert { columns: Some(_) }
        | ast::Action::Update { columns: Some(_) }
        | ast::Action::References { columns: Some(_) } = action
        {
            return Err(SqlError::unsupported("privileges of columns"));
        }
        let name = action.to_string();
        let known = Privileges::named(&name).filter(|known| object.all().has_all(*known));
        wanted = wanted.and(known.ok_or_else(|| {
            let why = format!("invalid privilege type {name} for {}", object.noun());
            SqlError::new(SqlState::INVALID_GRANT_OPERATION, why)
        })?);
    }
    Ok(wanted)
}
