//! Access lists: who has granted which privileges to whom, and what a GRANT or REVOKE makes of them.
//!
//! Owns: the rules of PostgreSQL for grantors, options to grant and what depends on them. Never: knows which object a list is of, or writes it.
//!
//! # Invariants
//! - The owner of an object has all options to grant, whatever the list says, and cannot lose them.
//! - Options to grant do not go round: whoever was granted one by others cannot grant it to them.
//! - A privilege that was granted by virtue of an option is there no longer than the option is.

use serde::{Deserialize, Serialize};

use super::{PUBLIC, Privileges, Roles};
use crate::error::{SqlError, SqlState};

/// The privileges that a role has granted to another one, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) grantee: u32,
    pub(crate) grantor: u32,
    pub(crate) privileges: Privileges,
    /// The privileges that the grantee may grant.
    pub(crate) options: Privileges,
}

impl Item {
    /// Privileges without an option to grant them.
    pub(crate) fn plain(grantee: u32, grantor: u32, privileges: Privileges) -> Item {
        Item { grantee, grantor, privileges, options: Privileges::default() }
    }

    fn is_empty(&self) -> bool {
        self.privileges.is_empty() && self.options.is_empty()
    }

    fn is_between(&self, other: &Item) -> bool {
        self.grantee == other.grantee && self.grantor == other.grantor
    }
}

/// The clauses of a GRANT or REVOKE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// False for a REVOKE.
    pub(crate) grants: bool,
    /// Set for WITH GRANT OPTION, and GRANT OPTION FOR.
    pub(crate) options: bool,
    /// Set for CASCADE.
    pub(crate) cascades: bool,
}

/// Gives the items of a list to a new owner, as grantee and as grantor; two between the same roles become one.
pub(super) fn give(items: &mut Vec<Item>, old: u32, new: u32) {
    let turned = |role: u32| if role == old { new } else { role };
    let mut given: Vec<Item> = Vec::new();
    for item in items.drain(..) {
        let item = Item { grantee: turned(item.grantee), grantor: turned(item.grantor), ..item };
        match given.iter_mut().find(|other| other.is_between(&item)) {
            Some(other) => {
                other.privileges = other.privileges.and(item.privileges);
                other.options = other.options.and(item.options);
            }
            None => given.push(item),
        }
    }
    *items = given;
}

impl Roles {
    /// The privileges that a role has by a list.
    pub(super) fn held(&self, id: u32, items: &[Item]) -> Privileges {
        let acting = self.acting(id);
        let held = items.iter().filter(|item| item.grantee == PUBLIC || acting.contains(&item.grantee));
        held.fold(Privileges::default(), |all, item| all.and(item.privileges))
    }

    /// The privileges that a role may grant by a list.
    pub(crate) fn options(&self, id: u32, owner: u32, items: &[Item]) -> Privileges {
        let acting = self.acting(id);
        if acting.contains(&owner) {
            return Privileges::ALL;
        }
        let held = items.iter().filter(|item| acting.contains(&item.grantee));
        held.fold(Privileges::default(), |all, item| all.and(item.options))
    }

    /// The role in whose name another one grants or revokes privileges, and which of these it may: the owner, or of the roles whose
    /// privileges it has the one that may most.
    pub(crate) fn grantor(
        &self,
        id: u32,
        owner: u32,
        items: &[Item],
        wanted: Privileges,
    ) -> (u32, Privileges) {
        if id == owner || self.is_superuser(id) {
            return (owner, wanted);
        }
        let others = self.acting(id).into_iter().filter(|other| *other != id);
        let mut best = (id, Privileges::default());
        for candidate in std::iter::once(id).chain(others) {
            let own = items.iter().filter(|item| item.grantee == candidate);
            let options = own.fold(Privileges::default(), |all, item| all.and(item.options)).only(wanted);
            let options = if candidate == owner { wanted } else { options };
            if options.len() > best.1.len() {
                best = (candidate, options);
            }
        }
        best
    }

    /// Grants privileges to roles, or revokes them, in the name of a grantor who may.
    pub(crate) fn change(
        &self,
        owner: u32,
        items: &mut Vec<Item>,
        (grantor, privileges): (u32, Privileges),
        grantees: &[u32],
        grant: Grant,
    ) -> Result<(), SqlError> {
        let (grants, has_option) = (grant.grants, grant.options);
        for grantee in grantees {
            if grants && has_option && *grantee == PUBLIC {
                return Err(refused("grant options can only be granted to roles"));
            }
            let none = Privileges::default();
            let change = Item {
                grantee: *grantee,
                grantor,
                privileges: if grants || !has_option { privileges } else { none },
                options: if !grants || has_option { privileges } else { none },
            };
            self.update(owner, items, change, grant)?;
        }
        Ok(())
    }

    fn update(&self, owner: u32, items: &mut Vec<Item>, change: Item, grant: Grant) -> Result<(), SqlError> {
        if grant.grants && !change.options.is_empty() {
            self.refuse_circle(owner, items, &change)?;
        }
        let at = items.iter().position(|item| item.is_between(&change)).unwrap_or_else(|| {
            items.push(Item::plain(change.grantee, change.grantor, Privileges::default()));
            items.len() - 1
        });
        let item = &mut items[at];
        let before = item.options;
        if grant.grants {
            item.privileges = item.privileges.and(change.privileges);
            item.options = item.options.and(change.options);
        } else {
            item.privileges = item.privileges.without(change.privileges);
            item.options = item.options.without(change.options);
        }
        let lost = before.without(item.options);
        if item.is_empty() {
            items.remove(at);
        }
        self.revoke_dependents(owner, items, change.grantee, lost, grant.cascades)
    }

    /// Revokes what a role has granted by options that it has lost, or refuses that they go.
    fn revoke_dependents(
        &self,
        owner: u32,
        items: &mut Vec<Item>,
        grantor: u32,
        lost: Privileges,
        cascades: bool,
    ) -> Result<(), SqlError> {
        if lost.is_empty() || grantor == owner {
            return Ok(());
        }
        let lost = lost.without(self.options(grantor, owner, items));
        let depends = |item: &&Item| item.grantor == grantor && item.privileges.has_any(lost);
        while let Some(dependent) = items.iter().find(depends) {
            if !cascades {
                let why = "dependent privileges exist";
                return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, why)
                    .hint("Use CASCADE to revoke them too."));
            }
            let change = Item { privileges: lost, options: lost, ..*dependent };
            self.update(owner, items, change, Grant { grants: false, options: false, cascades })?;
        }
        Ok(())
    }

    /// Refuses an option for somebody by whose option alone the grantor may grant it.
    fn refuse_circle(&self, owner: u32, items: &[Item], change: &Item) -> Result<(), SqlError> {
        if change.grantor == owner {
            return Ok(());
        }
        let mut left = items.to_vec();
        let may_grant = |item: &&Item| item.grantee == change.grantee && !item.options.is_empty();
        while let Some(item) = left.iter().find(may_grant).copied() {
            self.update(owner, &mut left, item, Grant { grants: false, options: false, cascades: true })?;
        }
        if self.options(change.grantor, owner, &left).has_all(change.options) {
            return Ok(());
        }
        Err(refused("grant options cannot be granted back to your own grantor"))
    }
}

fn refused(why: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_GRANT_OPERATION, why)
}
