//! CREATE, ALTER and DROP ROLE, and who is a member of which.
//!
//! Owns: who may change which role, and what of a role's options there is. Never: sees a password but to have a verifier made of it.

use std::collections::BTreeMap;

use sqlparser::ast;

use super::{Change, Done, Undo};
use crate::bind::{ident, object_name};
use crate::error::{Severity, SqlError, SqlState};
use crate::roles::{Object, PUBLIC, Role, Roles, SUPERUSER, no_role};

/// The most bytes of a role's name.
const MOST_NAME_BYTES: usize = 63;

fn refused(why: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, why)
}

impl Change<'_> {
    /// The role that runs the statement.
    fn own_role(&self, roles: &Roles) -> Role {
        roles.roles.get(&self.role).cloned().unwrap_or_else(|| Role::new(self.role, ""))
    }

    /// The role that a name in a statement means.
    pub(super) fn role_named(&self, roles: &Roles, name: &ast::Ident) -> Result<u32, SqlError> {
        let word = ident(name);
        if name.quote_style.is_none() {
            match &word[..] {
                "current_user" | "current_role" => return Ok(self.role),
                "session_user" => return Ok(self.session_role),
                "public" => return Ok(PUBLIC),
                _ => {}
            }
        }
        roles.existing(&word).map(|role| role.id)
    }

    pub(super) fn grantee(&self, roles: &Roles, grantee: &ast::Grantee) -> Result<u32, SqlError> {
        match (&grantee.grantee_type, &grantee.name) {
            (ast::GranteesType::Public, _) => Ok(PUBLIC),
            (
                ast::GranteesType::None | ast::GranteesType::Role | ast::GranteesType::Group,
                Some(ast::GranteeName::ObjectName(name)),
            ) => match &name.0[..] {
                [part] => match part.as_ident() {
                    Some(name) => self.role_named(roles, name),
                    None => Err(SqlError::unsupported(format!("the role {name}"))),
                },
                _ => Err(SqlError::unsupported(format!("the role {name}"))),
            },
            _ => Err(SqlError::unsupported(format!("the role {grantee}"))),
        }
    }

    pub(super) fn create_role(&self, create: &ast::CreateRole) -> Result<Done, SqlError> {
        let schema = self.db.schema();
        let own = self.own_role(&schema.roles);
        if !own.superuser && !own.create_role {
            return Err(refused("permission denied to create role"));
        }
        let [name] = &create.names[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "CREATE ROLE makes one role at a time"));
        };
        let (_, name) = object_name(name)?;
        refuse_name(&schema.roles, &name)?;
        let mut role = Role::new(self.db.next_role(), &name);
        let mut done = Done::tag("CREATE ROLE");
        let options = [
            create.login.map(ast::RoleOption::Login),
            create.inherit.map(ast::RoleOption::Inherit),
            create.bypassrls.map(ast::RoleOption::BypassRLS),
            create.create_db.map(ast::RoleOption::CreateDB),
            create.create_role.map(ast::RoleOption::CreateRole),
            create.superuser.map(ast::RoleOption::SuperUser),
            create.replication.map(ast::RoleOption::Replication),
            create.password.clone().map(ast::RoleOption::Password),
            create.connection_limit.clone().map(ast::RoleOption::ConnectionLimit),
            create.valid_until.clone().map(ast::RoleOption::ValidUntil),
        ];
        for option in options.iter().flatten() {
            self.set_option(&mut role, &own, option, &mut done)?;
        }
        for group in create.in_role.iter().chain(&create.in_group) {
            role.join(self.group(&schema.roles, group)?, self.role, false);
        }
        self.db.kept().write_role(self.db.database(), &role)?;
        let mut members = BTreeMap::new();
        let plain = create.role.iter().chain(&create.user).map(|name| (name, false));
        for (name, admin) in plain.chain(create.admin.iter().map(|name| (name, true))) {
            let member = self.role_named(&schema.roles, name)?;
            let member = schema.roles.roles.get(&member).ok_or_else(|| no_role("public"))?;
            members.entry(member.id).or_insert_with(|| member.clone()).join(role.id, self.role, admin);
        }
        for member in members.values() {
            self.db.kept().write_role(self.db.database(), member)?;
        }
        self.db.reload()?;
        done.undo = Some(Undo::Role(name));
        Ok(done)
    }

    /// Sets an option of a role, as `own` may.
    fn set_option(
        &self,
        role: &mut Role,
        own: &Role,
        option: &ast::RoleOption,
        done: &mut Done,
    ) -> Result<(), SqlError> {
        match option {
            ast::RoleOption::Login(login) => role.login = *login,
            ast::RoleOption::Inherit(inherit) => role.inherit = *inherit,
            ast::RoleOption::CreateDB(create) => role.create_db = *create,
            ast::RoleOption::CreateRole(create) => role.create_role = *create,
            ast::RoleOption::SuperUser(superuser) if own.superuser || !*superuser => {
                if role.id == SUPERUSER && !*superuser {
                    return Err(SqlError::unsupported(
                        "NOSUPERUSER of the role that the database began with",
                    ));
                }
                role.superuser = *superuser;
            }
            ast::RoleOption::SuperUser(_) => return Err(refused("must be superuser to create superusers")),
            ast::RoleOption::Password(ast::Password::NullPassword) => role.password = None,
            ast::RoleOption::Password(ast::Password::Password(password)) => {
                role.password = self.verifier(password, done)?;
            }
            ast::RoleOption::BypassRLS(false) | ast::RoleOption::Replication(false) => {}
            ast::RoleOption::ConnectionLimit(limit) if limit.to_string() == "-1" => {}
            ast::RoleOption::ValidUntil(until) if until.to_string() == "'infinity'" => {}
            ast::RoleOption::BypassRLS(_) => {
                return Err(SqlError::unsupported("BYPASSRLS, as no table has policies"));
            }
            ast::RoleOption::Replication(_) => return Err(SqlError::unsupported("REPLICATION")),
            ast::RoleOption::ConnectionLimit(_) => {
                return Err(SqlError::unsupported("CONNECTION LIMIT of a role"));
            }
            ast::RoleOption::ValidUntil(_) => return Err(SqlError::unsupported("VALID UNTIL of a role")),
        }
        Ok(())
    }

    /// The verifier of a password that a statement has.
    fn verifier(&self, password: &ast::Expr, done: &mut Done) -> Result<Option<String>, SqlError> {
        let ast::Expr::Value(value) = password else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a password is a literal"));
        };
        let Some(text) = value.value.clone().into_string() else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a password is a literal string"));
        };
        if text.is_empty() {
            let why = "empty string is not a valid password, clearing password";
            done.notices.push(SqlError::new(SqlState::SUCCESSFUL_COMPLETION, why).severity(Severity::Notice));
            return Ok(None);
        }
        let Some(make) = self.db.options().password_verifier else {
            return Err(SqlError::unsupported("a password where no client logs in by one"));
        };
        make(&text).map(Some).map_err(|why| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, why))
    }

    /// Refuses a change of a role to who may not.
    fn refuse_change(&self, roles: &Roles, role: &Role) -> Result<Role, SqlError> {
        let own = self.own_role(roles);
        if role.superuser && !own.superuser {
            return Err(refused("must be superuser to alter superuser roles or change superuser attribute"));
        }
        Ok(own)
    }

    pub(super) fn alter_role(
        &self,
        name: &ast::Ident,
        operation: &ast::AlterRoleOperation,
    ) -> Result<Done, SqlError> {
        let schema = self.db.schema();
        let id = self.role_named(&schema.roles, name)?;
        let mut role = schema.roles.roles.get(&id).cloned().ok_or_else(|| no_role(&ident(name)))?;
        let own = self.refuse_change(&schema.roles, &role)?;
        let may = own.superuser || own.create_role;
        let mut done = Done::tag("ALTER ROLE");
        match operation {
            ast::AlterRoleOperation::RenameRole { role_name } => {
                if !may {
                    return Err(refused("permission denied to rename role"));
                }
                if role.id == self.session_role {
                    return Err(SqlError::unsupported("a rename of the user of the session"));
                }
                let new = ident(role_name);
                refuse_name(&schema.roles, &new)?;
                role.name = new;
            }
            ast::AlterRoleOperation::WithOptions { options } => {
                let is_own_password = role.id == self.role
                    && options.iter().all(|option| matches!(option, ast::RoleOption::Password(_)));
                if !may && !is_own_password {
                    return Err(refused("permission denied"));
                }
                for option in options {
                    self.set_option(&mut role, &own, option, &mut done)?;
                }
            }
            ast::AlterRoleOperation::Set { .. } | ast::AlterRoleOperation::Reset { .. } => {
                return Err(SqlError::unsupported("a setting of a role")
                    .hint("Clients can ask for settings when they connect (options=-c name=value)."));
            }
            other => return Err(SqlError::unsupported(format!("ALTER ROLE {other}"))),
        }
        self.db.kept().write_role(self.db.database(), &role)?;
        self.db.reload()?;
        Ok(done)
    }

    pub(super) fn drop_roles(&self, names: &[ast::ObjectName], if_exists: bool) -> Result<Done, SqlError> {
        let mut done = Done::tag("DROP ROLE");
        for name in names {
            let (_, name) = object_name(name)?;
            let schema = self.db.schema();
            let own = self.own_role(&schema.roles);
            if !own.superuser && !own.create_role {
                return Err(refused("permission denied to drop role"));
            }
            match schema.roles.named(&name) {
                Some(role) => self.drop_role(&schema.roles, role)?,
                None if if_exists => {
                    let why = format!("role \"{name}\" does not exist, skipping");
                    let notice = SqlError::new(SqlState::SUCCESSFUL_COMPLETION, why);
                    done.notices.push(notice.severity(Severity::Notice));
                }
                None => return Err(no_role(&name)),
            }
        }
        Ok(done)
    }

    pub(super) fn drop_role(&self, roles: &Roles, role: &Role) -> Result<(), SqlError> {
        self.refuse_change(roles, role).map_err(|_| refused("must be superuser to drop superusers"))?;
        if role.id == self.role || role.id == self.session_role {
            let which = if role.id == self.role { "current" } else { "session" };
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, format!("{which} user cannot be dropped")));
        }
        let needed = |what: String| {
            SqlError::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("role \"{}\" cannot be dropped because some objects depend on it", role.name),
            )
            .detail(what)
        };
        if role.id == SUPERUSER {
            return Err(needed("the database began with it".to_owned()));
        }
        let schema = self.db.schema();
        let accesses = roles.relations.iter().map(|(name, access)| {
            let noun = schema.object(name).map_or("relation", Object::noun);
            (format!("{noun} {name}"), access)
        });
        let public = std::iter::once(("schema public".to_owned(), &roles.schema));
        for (what, access) in accesses.chain(public) {
            if access.owner == role.id {
                return Err(needed(format!("owner of {what}")));
            }
            if access.concerns(role.id) {
                return Err(needed(format!("privileges for {what}")));
            }
        }
        for member in roles.roles.values().filter(|member| member.member_of.contains(&role.id)) {
            let mut member = member.clone();
            member.leave(role.id);
            self.db.kept().write_role(self.db.database(), &member)?;
        }
        self.db.kept().write(self.db.database(), format!("role:{}", role.id), None)?;
        self.db.reload()
    }

    /// A role that others may be made members of by who runs the statement.
    fn group(&self, roles: &Roles, name: &ast::Ident) -> Result<u32, SqlError> {
        let id = roles.existing(&ident(name))?.id;
        let own = self.own_role(roles);
        if own.superuser {
            return Ok(id);
        }
        if roles.is_superuser(id) {
            return Err(refused("must be superuser to grant or revoke membership in superuser roles"));
        }
        if own.create_role || roles.is_admin_of(self.role, id) {
            return Ok(id);
        }
        Err(refused(format!("must have admin option on role \"{}\"", ident(name))))
    }

    /// `GRANT` of memberships.
    pub(super) fn grant_roles(&self, grant: &ast::GrantRole) -> Result<Done, SqlError> {
        let mut admin = false;
        for option in &grant.options {
            match (&ident(&option.name)[..], &option.value) {
                ("admin", ast::RoleGrantOptionValue::Option | ast::RoleGrantOptionValue::True) => {
                    admin = true;
                }
                _ => return Err(SqlError::unsupported(format!("the option {option} of a membership"))),
            }
        }
        let kind = if admin { Membership::GrantAdmin } else { Membership::Grant };
        self.change_members((&grant.roles, &grant.grantees), kind, grant.granted_by.as_ref())
    }

    /// `REVOKE` of memberships. Nothing depends on one, so CASCADE and RESTRICT are the same.
    pub(super) fn revoke_roles(&self, revoke: &ast::RevokeRole) -> Result<Done, SqlError> {
        let kind = match revoke.option_for.as_ref().map(ident).as_deref() {
            None => Membership::Revoke,
            Some("admin") => Membership::RevokeAdmin,
            Some(other) => {
                return Err(SqlError::unsupported(format!("the option {other} of a membership")));
            }
        };
        self.change_members((&revoke.roles, &revoke.grantees), kind, revoke.granted_by.as_ref())
    }

    fn change_members(
        &self,
        (groups, grantees): (&[ast::Ident], &[ast::Grantee]),
        kind: Membership,
        granted_by: Option<&ast::Ident>,
    ) -> Result<Done, SqlError> {
        let mut done = Done::tag(if kind.grants() { "GRANT ROLE" } else { "REVOKE ROLE" });
        for group in groups {
            for grantee in grantees {
                let schema = self.db.schema();
                let roles = &schema.roles;
                let id = self.group(roles, group)?;
                let grantor = self.membership_grantor(roles, granted_by, kind)?;
                let member = self.grantee(roles, grantee)?;
                let mut member = roles.roles.get(&member).cloned().ok_or_else(|| no_role("public"))?;
                let (name, group) = (member.name.clone(), roles.name_of(id));
                if kind.grants() && roles.memberships(id).contains(&member.id) {
                    return Err(SqlError::new(
                        SqlState::INVALID_GRANT_OPERATION,
                        format!("role \"{group}\" is a member of role \"{name}\""),
                    ));
                }
                if kind.change(&mut member, id, grantor) {
                    self.db.kept().write_role(self.db.database(), &member)?;
                    self.db.reload()?;
                    continue;
                }
                let (why, code, severity) = if kind.grants() {
                    let why = format!("role \"{name}\" is already a member of role \"{group}\"");
                    (why, SqlState::SUCCESSFUL_COMPLETION, Severity::Notice)
                } else {
                    let why = format!("role \"{name}\" is not a member of role \"{group}\"");
                    (why, SqlState::WARNING, Severity::Warning)
                };
                done.notices.push(SqlError::new(code, why).severity(severity));
            }
        }
        Ok(done)
    }

    /// The role that counts as the one that grants a membership.
    fn membership_grantor(
        &self,
        roles: &Roles,
        granted_by: Option<&ast::Ident>,
        kind: Membership,
    ) -> Result<u32, SqlError> {
        let Some(name) = granted_by else { return Ok(self.role) };
        let grantor = self.role_named(roles, name)?;
        if kind.grants() && grantor != self.role && !roles.is_superuser(self.role) {
            return Err(refused("must be superuser to set grantor"));
        }
        Ok(grantor)
    }
}

/// A change of memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Grant,
    GrantAdmin,
    Revoke,
    RevokeAdmin,
}

impl Membership {
    fn grants(self) -> bool {
        matches!(self, Membership::Grant | Membership::GrantAdmin)
    }

    /// Changes a member; returns false if it is one already, or is none.
    fn change(self, member: &mut Role, group: u32, grantor: u32) -> bool {
        match self {
            Membership::Grant => member.join(group, grantor, false),
            Membership::GrantAdmin => member.join(group, grantor, true),
            Membership::Revoke => member.leave(group),
            Membership::RevokeAdmin => {
                member.admin_of.remove(&group);
                member.member_of.contains(&group)
            }
        }
    }
}

/// Refuses a name for a new role.
fn refuse_name(roles: &Roles, name: &str) -> Result<(), SqlError> {
    if roles.named(name).is_some() {
        let why = format!("role \"{name}\" already exists");
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, why));
    }
    if matches!(name, "public" | "none") || name.starts_with("pg_") {
        return Err(SqlError::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")));
    }
    if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "the name of a role has 1 to 63 bytes and no control characters",
        ));
    }
    Ok(())
}
