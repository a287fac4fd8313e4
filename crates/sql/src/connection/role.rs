//! The role that a connection's statements run as: the user's, or the one of `SET ROLE`.
//!
//! Owns: which one that is, and the look at what a statement needs. Never: changes a role.

use std::sync::Arc;

use super::Connection;
use crate::error::{SqlError, SqlState};
use crate::roles::{Need, Roles};
use crate::schema::Schema;

/// The value of the setting `role` for the user's own.
const NONE: &str = "none";

/// The role that statements run as.
#[derive(Clone, Debug)]
pub(super) struct CurrentRole {
    /// The version of the schema in which it was found.
    version: u64,
    id: u32,
    name: Arc<str>,
    is_superuser: bool,
}

/// Refuses a value of the setting `role` that the user may not choose.
pub(super) fn check_setting(roles: &Roles, user: u32, value: &str) -> Result<(), SqlError> {
    if value.eq_ignore_ascii_case(NONE) {
        return Ok(());
    }
    let role = roles.named(value).ok_or_else(|| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("role \"{value}\" does not exist"))
    })?;
    if roles.is_member(user, role.id) {
        return Ok(());
    }
    let why = format!("permission denied to set role \"{value}\"");
    Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, why))
}

impl Connection {
    /// Finds the role that statements run as, and tells the client whether it is a superuser.
    pub(super) fn find_role(&mut self) {
        let schema = self.schema();
        let chosen = self.settings.get("role").unwrap_or(NONE);
        let role = if chosen.eq_ignore_ascii_case(NONE) {
            schema.roles.roles.get(&self.user_role)
        } else {
            schema.roles.named(chosen)
        };
        // One that was dropped has the privileges of all, and no others.
        let (id, is_superuser) = role.map_or((u32::MAX, false), |role| (role.id, role.superuser));
        let name = match role {
            Some(role) if role.name != *self.user => Arc::from(&*role.name),
            _ => Arc::clone(&self.user),
        };
        self.settings.tell("is_superuser", if is_superuser { "on" } else { "off" });
        self.current = Some(CurrentRole { version: schema.version, id, name, is_superuser });
    }

    /// Finds the role again if the schema has another version than when it was found.
    pub(super) fn find_role_again(&mut self, version: u64) {
        if self.current.as_ref().is_none_or(|role| role.version != version) {
            self.find_role();
        }
    }

    /// The name and the number of the role that statements run as.
    pub(super) fn current_role(&self) -> (Arc<str>, u32) {
        let current = self.current.as_ref();
        current.map_or_else(|| (Arc::clone(&self.user), u32::MAX), |role| (Arc::clone(&role.name), role.id))
    }

    /// Refuses a statement that needs what the role does not have.
    pub(super) fn check_needs(&mut self, schema: &Schema, needs: &[Need]) -> Result<(), SqlError> {
        self.find_role_again(schema.version);
        match &self.current {
            Some(role) if role.is_superuser => {
                // The owners of views need what these read, superusers or not.
                let of_others = needs.iter().filter(|need| need.by.is_some());
                of_others.cloned().try_for_each(|need| schema.roles.check(role.id, &[need]))
            }
            Some(role) => schema.roles.check(role.id, needs),
            None => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the connection has no role")),
        }
    }
}
