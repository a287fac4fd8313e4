//! Roles, and what they may do with tables, views, sequences and the schema.
//!
//! Owns: what is kept of a role and of the access to an object, the snapshot of both, and the rules by which a role has a privilege. Never:
//! changes a role (`ddl` does), or proves who a client is (the server does).
//!
//! # Invariants
//! - There is a role of the number [`SUPERUSER`], which is one and stays one.
//! - Whoever may do nothing is told so with 42501 before a statement has touched a row; a statement that a superuser runs is not looked at.
//! - Membership has no cycles.
//!
//! A plan lists what it needs ([`Need`]), and each execution looks at it, as PostgreSQL does: a privilege that is revoked ends what prepared
//! statements may do.

mod grants;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{SqlError, SqlState};
use crate::schema::Schema;

pub(crate) use self::grants::{Grant, Item};

/// The number of the role that a database begins with.
pub(crate) const SUPERUSER: u32 = 10;
/// The number that stands for all roles, `PUBLIC`.
pub(crate) const PUBLIC: u32 = 0;
/// The number of the first role that is created.
pub(crate) const FIRST_ROLE: u32 = 16_384;

/// A role, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) superuser: bool,
    /// Set if it has the privileges of the roles that it is a member of.
    pub(crate) inherit: bool,
    pub(crate) create_role: bool,
    pub(crate) create_db: bool,
    pub(crate) login: bool,
    /// The verifier of its password.
    pub(crate) password: Option<String>,
    /// The roles that it is a member of.
    pub(crate) member_of: BTreeSet<u32>,
    /// Those of them that it may make others members of.
    #[serde(default)]
    pub(crate) admin_of: BTreeSet<u32>,
    /// The roles that have made it a member of them; where one is missing, it was the role that the database began with.
    #[serde(default)]
    pub(crate) grantors: BTreeMap<u32, u32>,
}

impl Role {
    /// A role that may nothing yet.
    pub(crate) fn new(id: u32, name: &str) -> Role {
        Role {
            id,
            name: name.to_owned(),
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            password: None,
            member_of: BTreeSet::new(),
            admin_of: BTreeSet::new(),
            grantors: BTreeMap::new(),
        }
    }

    /// Becomes a member of another role, with the admin option if it is an `admin`; returns true if that is new.
    pub(crate) fn join(&mut self, group: u32, grantor: u32, admin: bool) -> bool {
        let is_member = self.member_of.insert(group);
        let is_admin = admin && self.admin_of.insert(group);
        if is_member || is_admin {
            self.grantors.insert(group, grantor);
        }
        is_member || is_admin
    }

    /// Is a member of another role no more; returns true if it was.
    pub(crate) fn leave(&mut self, group: u32) -> bool {
        self.admin_of.remove(&group);
        self.grantors.remove(&group);
        self.member_of.remove(&group)
    }

    /// The role that has made it a member of another one.
    pub(crate) fn grantor_of(&self, group: u32) -> u32 {
        self.grantors.get(&group).copied().unwrap_or(SUPERUSER)
    }

    /// A role that may everything, and log in.
    pub(crate) fn superuser(id: u32, name: &str) -> Role {
        Role { superuser: true, create_role: true, create_db: true, login: true, ..Role::new(id, name) }
    }
}

/// A kind of objects that privileges are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Table,
    View,
    Sequence,
    Schema,
    /// A stored procedure. What it accesses is granted with it.
    Procedure,
    /// A catalog that tells of passwords: no privilege of it can be granted.
    Secret,
}

impl Object {
    /// The word for one of the kind.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Object::Table | Object::Secret => "table",
            Object::View => "view",
            Object::Sequence => "sequence",
            Object::Schema => "schema",
            Object::Procedure => "procedure",
        }
    }

    /// All privileges that there are of the kind.
    pub(crate) fn all(self) -> Privileges {
        match self {
            Object::Table | Object::View => Privileges(0x7f),
            Object::Sequence => Privileges::SELECT.and(Privileges::UPDATE).and(Privileges::USAGE),
            Object::Schema => Privileges::USAGE.and(Privileges::CREATE),
            Object::Procedure => Privileges::EXECUTE,
            Object::Secret => Privileges(0),
        }
    }
}

/// A set of privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Privileges(u16);

impl Privileges {
    pub(crate) const INSERT: Privileges = Privileges(1);
    pub(crate) const SELECT: Privileges = Privileges(1 << 1);
    pub(crate) const UPDATE: Privileges = Privileges(1 << 2);
    pub(crate) const DELETE: Privileges = Privileges(1 << 3);
    pub(crate) const TRUNCATE: Privileges = Privileges(1 << 4);
    pub(crate) const REFERENCES: Privileges = Privileges(1 << 5);
    pub(crate) const TRIGGER: Privileges = Privileges(1 << 6);
    pub(crate) const EXECUTE: Privileges = Privileges(1 << 7);
    pub(crate) const USAGE: Privileges = Privileges(1 << 8);
    pub(crate) const CREATE: Privileges = Privileges(1 << 9);

    /// Each privilege with its letter in access lists and its name, in the order of the letters.
    pub(crate) const NAMES: [(Privileges, char, &'static str); 10] = [
        (Privileges::INSERT, 'a', "INSERT"),
        (Privileges::SELECT, 'r', "SELECT"),
        (Privileges::UPDATE, 'w', "UPDATE"),
        (Privileges::DELETE, 'd', "DELETE"),
        (Privileges::TRUNCATE, 'D', "TRUNCATE"),
        (Privileges::REFERENCES, 'x', "REFERENCES"),
        (Privileges::TRIGGER, 't', "TRIGGER"),
        (Privileges::EXECUTE, 'X', "EXECUTE"),
        (Privileges::USAGE, 'U', "USAGE"),
        (Privileges::CREATE, 'C', "CREATE"),
    ];

    /// The privileges that there are of columns.
    pub(crate) const OF_COLUMNS: Privileges =
        Privileges::INSERT.and(Privileges::SELECT).and(Privileges::UPDATE).and(Privileges::REFERENCES);
    /// All privileges that there are.
    const ALL: Privileges = Privileges((1 << Privileges::NAMES.len()) - 1);

    pub(crate) const fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }

    /// Those that are in both sets.
    pub(crate) fn only(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }

    fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn has_all(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn has_any(self, other: Privileges) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The letters of the privileges in access lists, those that may be granted with a star behind.
    fn letters(self, options: Privileges) -> String {
        let held = Privileges::NAMES.iter().filter(|(privilege, _, _)| self.has_any(*privilege));
        let shown = |(privilege, letter, _): &(Privileges, char, &str)| {
            [Some(*letter), options.has_any(*privilege).then_some('*')]
        };
        held.flat_map(shown).flatten().collect()
    }

    /// The privilege of a name.
    pub(crate) fn named(name: &str) -> Option<Privileges> {
        let known = Privileges::NAMES.iter().find(|(_, _, known)| known.eq_ignore_ascii_case(name));
        known.map(|(privilege, _, _)| *privilege)
    }
}

/// The access to an object, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "KeptAccess")]
pub(crate) struct Access {
    pub(crate) owner: u32,
    /// The privileges of roles, in the order in which they were granted; none as long as nothing was granted or revoked: the owner has all
    /// then.
    pub(crate) granted: Option<Vec<Item>>,
    /// The privileges of columns, by their names.
    pub(crate) columns: BTreeMap<String, Vec<Item>>,
}

/// An access as a row has it.
#[derive(Deserialize)]
struct KeptAccess {
    owner: u32,
    granted: Option<Vec<KeptItem>>,
    #[serde(default)]
    columns: BTreeMap<String, Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KeptItem {
    Item(Item),
    /// A role and its privileges, which the owner had granted: of databases of before there were other grantors.
    OfOwner(u32, Privileges),
}

impl From<KeptAccess> for Access {
    fn from(kept: KeptAccess) -> Access {
        let item = |item: KeptItem| match item {
            KeptItem::Item(item) => item,
            KeptItem::OfOwner(grantee, privileges) => Item::plain(grantee, kept.owner, privileges),
        };
        let granted = kept.granted.map(|items| items.into_iter().map(item).collect());
        Access { owner: kept.owner, granted, columns: kept.columns }
    }
}

impl Access {
    pub(crate) fn of(owner: u32) -> Access {
        Access { owner, granted: None, columns: BTreeMap::new() }
    }

    /// The privileges of roles, those of an owner who was granted nothing included.
    pub(crate) fn items(&self, object: Object) -> Vec<Item> {
        let own = || vec![Item::plain(self.owner, self.owner, object.all())];
        self.granted.clone().unwrap_or_else(own)
    }

    /// The privileges of a column that were granted as such.
    pub(crate) fn items_of(&self, column: &str) -> &[Item] {
        self.columns.get(column).map_or(&[], Vec::as_slice)
    }

    /// Returns true if a role has granted or was granted something.
    pub(crate) fn concerns(&self, role: u32) -> bool {
        let items = self.granted.iter().flatten().chain(self.columns.values().flatten());
        items.into_iter().any(|item| item.grantee == role || item.grantor == role)
    }

    /// Gives the object to another role, with the privileges that the owner has.
    pub(crate) fn give_to(&mut self, owner: u32) {
        let old = std::mem::replace(&mut self.owner, owner);
        for items in self.granted.iter_mut().chain(self.columns.values_mut()) {
            grants::give(items, old, owner);
        }
    }
}

/// A privilege that a plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) object: Object,
    pub(crate) name: String,
    pub(crate) privileges: Privileges,
    /// The columns that it needs them of, where privileges of columns will do. A privilege that is needed of no column will do for any one.
    pub(crate) columns: BTreeMap<String, Privileges>,
    /// The role that needs it, if it is not the one that runs the statement: the owner of a view.
    pub(crate) by: Option<u32>,
}

impl Need {
    /// A need of whoever runs the statement.
    pub(crate) fn new(object: Object, name: &str, privileges: Privileges) -> Need {
        Need { object, name: name.to_owned(), privileges, columns: BTreeMap::new(), by: None }
    }

    /// Adds the need of privileges of a column.
    pub(crate) fn add_column(&mut self, column: &str, privileges: Privileges) {
        self.privileges = self.privileges.and(privileges);
        match self.columns.get_mut(column) {
            Some(needed) => *needed = needed.and(privileges),
            None => drop(self.columns.insert(column.to_owned(), privileges)),
        }
    }
}

/// All roles and accesses at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    pub(crate) roles: BTreeMap<u32, Role>,
    /// Accesses of tables, views, sequences and procedures by their names; those that are missing are the first role's.
    pub(crate) relations: BTreeMap<String, Access>,
    /// The access to the schema `public`.
    pub(crate) schema: Access,
}

impl Default for Roles {
    fn default() -> Roles {
        Roles { roles: BTreeMap::new(), relations: BTreeMap::new(), schema: Roles::initial_schema() }
    }
}

impl Roles {
    /// The access to `public` as a database begins: all may use it, and its owner make tables in it.
    pub(crate) fn initial_schema() -> Access {
        let item = |grantee, privileges| Item::plain(grantee, SUPERUSER, privileges);
        let granted = vec![item(SUPERUSER, Object::Schema.all()), item(PUBLIC, Privileges::USAGE)];
        Access { granted: Some(granted), ..Access::of(SUPERUSER) }
    }

    /// The role of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&Role> {
        self.roles.values().find(|role| role.name == name)
    }

    /// The role of a name that has to be there.
    pub(crate) fn existing(&self, name: &str) -> Result<&Role, SqlError> {
        self.named(name).ok_or_else(|| no_role(name))
    }

    /// The name of a role, as `pg_get_userbyid` has it.
    pub(crate) fn name_of(&self, id: u32) -> String {
        self.roles.get(&id).map_or_else(|| format!("unknown (OID={id})"), |role| role.name.clone())
    }

    pub(crate) fn is_superuser(&self, id: u32) -> bool {
        self.roles.get(&id).is_some_and(|role| role.superuser)
    }

    /// The access to a table, view or sequence.
    pub(crate) fn access(&self, name: &str) -> Access {
        self.relations.get(name).cloned().unwrap_or_else(|| Access::of(SUPERUSER))
    }

    /// The owner of a table, view or sequence.
    pub(crate) fn owner_of(&self, name: &str) -> u32 {
        self.relations.get(name).map_or(SUPERUSER, |access| access.owner)
    }

    /// The roles whose privileges a role has, itself included.
    pub(crate) fn acting(&self, id: u32) -> BTreeSet<u32> {
        self.reached(id, |role| role.inherit)
    }

    /// The roles that a role is a member of, directly or not, itself included.
    pub(crate) fn memberships(&self, id: u32) -> BTreeSet<u32> {
        self.reached(id, |_| true)
    }

    fn reached(&self, id: u32, passes: impl Fn(&Role) -> bool) -> BTreeSet<u32> {
        let mut reached = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(next) = open.pop() {
            let Some(role) = self.roles.get(&next).filter(|role| passes(role)) else { continue };
            open.extend(role.member_of.iter().filter(|of| reached.insert(**of)));
        }
        reached
    }

    /// Returns true if a role may act as another one without asking for it.
    pub(crate) fn acts_as(&self, id: u32, other: u32) -> bool {
        self.is_superuser(id) || self.acting(id).contains(&other)
    }

    /// Returns true if a role may become another one by `SET ROLE`.
    pub(crate) fn is_member(&self, id: u32, other: u32) -> bool {
        self.is_superuser(id) || self.memberships(id).contains(&other)
    }

    /// Returns true if a role may make others members of another one, by itself or as a member of one that may.
    pub(crate) fn is_admin_of(&self, id: u32, other: u32) -> bool {
        let may = |role: &u32| self.roles.get(role).is_some_and(|role| role.admin_of.contains(&other));
        self.is_superuser(id) || self.memberships(id).iter().any(may)
    }

    /// The privileges that a role has of an object.
    pub(crate) fn privileges(&self, id: u32, object: Object, name: &str) -> Privileges {
        if self.is_superuser(id) {
            return object.all();
        }
        let access = match object {
            Object::Schema => self.schema.clone(),
            Object::Secret => return Privileges::default(),
            _ => self.access(name),
        };
        self.held(id, &access.items(object))
    }

    /// The privileges that a role has of a column as such, beside those that it has of the table.
    pub(crate) fn column_privileges(&self, id: u32, table: &str, column: &str) -> Privileges {
        let items = self.relations.get(table).map_or(&[][..], |access| access.items_of(column));
        self.held(id, items)
    }

    /// The privileges that a role has of some column as such.
    pub(crate) fn any_column_privileges(&self, id: u32, table: &str) -> Privileges {
        let columns = self.relations.get(table).into_iter().flat_map(|access| access.columns.values());
        columns.fold(Privileges::default(), |all, items| all.and(self.held(id, items)))
    }

    /// Refuses what a role may not do.
    pub(crate) fn require(
        &self,
        id: u32,
        object: Object,
        name: &str,
        needed: Privileges,
    ) -> Result<(), SqlError> {
        if self.is_superuser(id)
            || (object != Object::Secret && self.privileges(id, object, name).has_all(needed))
        {
            return Ok(());
        }
        Err(denied(object, name))
    }

    /// Refuses a plan that needs what a role does not have.
    pub(crate) fn check(&self, id: u32, needs: &[Need]) -> Result<(), SqlError> {
        if needs.iter().any(|need| need.object != Object::Secret) {
            self.require(id, Object::Schema, "public", Privileges::USAGE)?;
        }
        needs.iter().try_for_each(|need| self.require_need(need.by.unwrap_or(id), need))
    }

    fn require_need(&self, id: u32, need: &Need) -> Result<(), SqlError> {
        let Need { object, name, privileges, .. } = need;
        let missing = match self.require(id, *object, name, *privileges) {
            Ok(()) => return Ok(()),
            Err(denied) => (privileges.without(self.privileges(id, *object, name)), denied),
        };
        let (missing, denied) = missing;
        let has_columns = self.relations.get(name).is_some_and(|access| !access.columns.is_empty());
        if !has_columns || *object == Object::Secret || !Privileges::OF_COLUMNS.has_all(missing) {
            return Err(denied);
        }
        let needed = need.columns.values().fold(Privileges::default(), |all, needed| all.and(*needed));
        let of_any = missing.without(needed);
        let has_each = need.columns.iter().all(|(column, needed)| {
            let needed = needed.only(missing);
            needed.is_empty() || self.column_privileges(id, name, column).has_all(needed)
        });
        if has_each && self.any_column_privileges(id, name).has_all(of_any) { Ok(()) } else { Err(denied) }
    }

    /// Refuses a change of an object to whoever is not its owner, or a member of it.
    pub(crate) fn require_owner(&self, id: u32, object: &str, name: &str) -> Result<(), SqlError> {
        if self.acts_as(id, self.owner_of(name)) {
            return Ok(());
        }
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {object} {name}")))
    }

    /// An access list as PostgreSQL shows it, an item for each two roles.
    pub(crate) fn shown(&self, items: &[Item]) -> Vec<String> {
        let shown = |id: u32| if id == PUBLIC { String::new() } else { quoted(&self.name_of(id)) };
        let item = |item: &Item| {
            let letters = item.privileges.letters(item.options);
            format!("{}={letters}/{}", shown(item.grantee), shown(item.grantor))
        };
        items.iter().map(item).collect()
    }
}

/// A name in an access list: in quotes unless it has letters, digits and underscores alone.
fn quoted(name: &str) -> String {
    if name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

impl Schema {
    /// The kind of the table, view or sequence of a name.
    pub(crate) fn object(&self, name: &str) -> Option<Object> {
        if self.tables.contains_key(name) {
            Some(Object::Table)
        } else if self.views.contains_key(name) {
            Some(Object::View)
        } else {
            self.sequences.contains_key(name).then_some(Object::Sequence)
        }
    }
}

/// The error for a role that does not exist.
#[cold]
pub(crate) fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

/// The error for a privilege that is missing.
#[cold]
pub(crate) fn denied(object: Object, name: &str) -> SqlError {
    let noun = object.noun();
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {noun} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> Roles {
        let mut roles = Roles::default();
        roles.roles.insert(SUPERUSER, Role::superuser(SUPERUSER, "ann"));
        for (id, name, member_of) in [(1, "reader", None), (2, "bob", Some(1)), (3, "eve", Some(2))] {
            let mut role = Role::new(id, name);
            role.member_of.extend(member_of);
            roles.roles.insert(id, role);
        }
        roles
    }

    #[test]
    fn privileges_come_from_roles_owners_and_all() {
        let mut roles = roles();
        let mut access = Access::of(SUPERUSER);
        let held = |roles: &Roles, id| roles.privileges(id, Object::Table, "t");
        let change = |roles: &Roles, access: &mut Access, role: u32, privileges, grants| {
            let mut items = access.items(Object::Table);
            let grant = Grant { grants, options: false, cascades: false };
            roles.change(SUPERUSER, &mut items, (SUPERUSER, privileges), &[role], grant).expect("it may");
            access.granted = Some(items);
        };
        let shown = |roles: &Roles, access: &Access| roles.shown(&access.items(Object::Table));
        assert!(held(&roles, 3).is_empty());
        change(&roles, &mut access, 1, Privileges::SELECT, true);
        change(&roles, &mut access, PUBLIC, Privileges::INSERT, true);
        roles.relations.insert("t".to_owned(), access.clone());
        assert_eq!(held(&roles, 3), Privileges::SELECT.and(Privileges::INSERT));
        assert_eq!(shown(&roles, &access), ["ann=arwdDxt/ann", "reader=r/ann", "=a/ann"]);
        // Who does not inherit has to become the other role first.
        roles.roles.get_mut(&2).expect("bob").inherit = false;
        assert_eq!(held(&roles, 3), Privileges::INSERT);
        assert!(roles.is_member(3, 1) && !roles.acts_as(3, 1));
        change(&roles, &mut access, PUBLIC, Privileges::INSERT, false);
        access.give_to(3);
        assert_eq!(shown(&roles, &access), ["eve=arwdDxt/eve", "reader=r/eve"]);
        roles.relations.insert("t".to_owned(), access);
        assert_eq!(held(&roles, 3), Object::Table.all());
        assert!(
            roles.require_owner(2, "table", "t").is_err() && roles.require_owner(3, "table", "t").is_ok()
        );
    }

    #[test]
    fn accesses_of_before_were_granted_by_their_owners() {
        let access: Access =
            serde_json::from_str(r#"{"owner":7,"granted":[[7,127],[0,2]]}"#).expect("it is read");
        assert_eq!(
            access.granted,
            Some(vec![Item::plain(7, 7, Privileges(127)), Item::plain(PUBLIC, 7, Privileges::SELECT)])
        );
        let text = serde_json::to_string(&access).expect("it is written");
        assert_eq!(serde_json::from_str::<Access>(&text).expect("it is read again"), access);
    }

    #[test]
    fn columns_do_where_the_table_is_missing() {
        let mut roles = roles();
        let of_column = vec![Item::plain(3, SUPERUSER, Privileges::SELECT)];
        let columns = BTreeMap::from([("a".to_owned(), of_column)]);
        roles.relations.insert("t".to_owned(), Access { columns, ..Access::of(SUPERUSER) });
        let mut need = Need::new(Object::Table, "t", Privileges::SELECT);
        let may = |roles: &Roles, need: &Need| roles.check(3, std::slice::from_ref(need)).is_ok();
        // A statement that reads no column, as count(*), needs some column.
        assert!(may(&roles, &need));
        need.add_column("a", Privileges::SELECT);
        assert!(may(&roles, &need));
        need.add_column("b", Privileges::SELECT);
        assert!(!may(&roles, &need));
        assert!(!may(&roles, &Need::new(Object::Table, "t", Privileges::DELETE)));
        assert!(roles.check(2, &[Need::new(Object::Table, "t", Privileges::SELECT)]).is_err());
    }

    #[test]
    fn what_is_secret_is_for_superusers() {
        let roles = roles();
        let need = Need::new(Object::Secret, "pg_authid", Privileges::SELECT);
        assert!(roles.check(SUPERUSER, std::slice::from_ref(&need)).is_ok());
        assert_eq!(roles.check(2, &[need]).expect_err("denied").code, SqlState::INSUFFICIENT_PRIVILEGE);
    }
}
