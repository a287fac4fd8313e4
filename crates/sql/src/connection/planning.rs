//! Plans of statements, and those that are kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlparser::ast;

use super::Connection;
use crate::bind::Binder;
use crate::counts::Count;
use crate::error::SqlError;
use crate::exec::Profile;
use crate::lift::{Lifted, Literal, lift};
use crate::plan::{OutputColumn, Plan, Work};
use crate::roles::{Object, Privileges};
use crate::sink::Column;
use crate::types::SqlType;
use crate::value::Value;

/// The most plans that a connection keeps for texts of simple queries.
const MAX_PLANS: usize = 256;
/// The longest text whose plan is kept.
pub(super) const MAX_CACHED_TEXT: usize = 8 << 10;

/// A plan with the types of its parameters.
#[derive(Clone, Debug)]
pub(super) struct CachedPlan {
    pub(super) plan: Arc<Plan>,
    pub(super) types: Arc<[SqlType]>,
    pub(super) columns: Option<Arc<[Column]>>,
    /// The version of the schema that it was made with.
    pub(super) version: u64,
    /// The place in which its executions are counted.
    pub(super) count: Option<Arc<Count>>,
    /// The place for measures of its parts, if it is run to be explained.
    pub(super) profile: Option<Arc<Profile>>,
}

/// Returns true for a statement that becomes a plan.
pub(super) fn is_planned(statement: &ast::Statement) -> bool {
    matches!(
        statement,
        ast::Statement::Query(_)
            | ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Truncate(_)
            | ast::Statement::Call(_)
    )
}

impl Connection {
    /// The plan that is kept for a text, if the schema is still the one it was made with.
    pub(super) fn cached(&self, text: &str) -> Option<CachedPlan> {
        if self.kind == super::Kind::Failed {
            return None;
        }
        let version = self.schema_version();
        self.plans.get(text).filter(|cached| cached.version == version).cloned()
    }

    /// The plan of a statement whose literals are lifted, with their values; `None` if it has to be planned as it is.
    pub(super) async fn lifted(
        &mut self,
        text: &str,
    ) -> Option<Result<(CachedPlan, Arc<[Value]>), SqlError>> {
        if self.kind == super::Kind::Failed {
            return None;
        }
        let lifted = lift(text)?;
        let version = self.schema_version();
        let known = self.lifted.get(&lifted.key);
        let planned = match known {
            Some(None) => return None,
            Some(Some(planned)) if planned.version == version => planned.clone(),
            _ => {
                let planned = Box::pin(self.plan_lifted(&lifted)).await;
                if self.lifted.len() >= MAX_PLANS {
                    self.lifted.clear();
                }
                self.lifted.insert(lifted.key, planned.clone());
                planned?
            }
        };
        let values = lifted.literals.iter().zip(planned.types.iter());
        let values: Result<Arc<[Value]>, SqlError> = values.map(|(literal, ty)| literal.value(*ty)).collect();
        Some(values.map(|values| (planned, values)))
    }

    /// Plans a statement with lifted literals; `None` if that is not possible, or a parameter would be an object's number.
    async fn plan_lifted(&mut self, lifted: &Lifted) -> Option<CachedPlan> {
        let statements = crate::parse::statements(&lifted.text).ok()?;
        let [statement] = &statements[..] else { return None };
        if !is_planned(statement) {
            return None;
        }
        let types: Vec<Option<SqlType>> = lifted.literals.iter().map(Literal::ty).collect();
        let planned = self.plan(statement, &lifted.text, &types, false).await.ok()?;
        let is_same = planned.types.len() == types.len() && !planned.types.iter().any(|ty| ty.is_oid());
        is_same.then_some(planned)
    }

    /// Forgets the plans that are kept by the texts of their statements.
    pub(super) fn forget_plans(&mut self) {
        self.known.clear();
        self.plans.clear();
        self.lifted.clear();
    }

    /// Plans a statement; waits while a table that it uses is being replaced.
    pub(super) async fn plan(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        types: &[Option<SqlType>],
        keeps: bool,
    ) -> Result<CachedPlan, SqlError> {
        loop {
            let database = Arc::clone(&self.database);
            let schema = self.schema();
            let mut binder = Binder::new(&schema, text, types);
            let (plan, types) = match statement {
                ast::Statement::Truncate(truncate) => {
                    let work = truncated(&mut binder, truncate)?;
                    binder.finish(work)
                }
                statement => binder.plan(statement)?,
            };
            let is_closed = || plan.tables.iter().any(|table| table.is_closed.load(Ordering::SeqCst));
            if is_closed() {
                let mut changed = std::pin::pin!(database.changed());
                // What changes after this is told of, what changed before is seen.
                changed.as_mut().enable();
                if is_closed() && self.schema_version() == schema.version {
                    changed.await;
                }
                continue;
            }
            let columns = plan.columns().map(|columns| columns.iter().map(OutputColumn::described).collect());
            let count = database.counts().place(text.trim().trim_end_matches(';'));
            let (plan, types, version) = (Arc::new(plan), types.into(), schema.version);
            let cached = CachedPlan { plan, types, columns, version, count, profile: None };
            if keeps && text.len() <= MAX_CACHED_TEXT {
                if self.plans.len() >= MAX_PLANS {
                    self.plans.clear();
                }
                self.plans.insert(text.to_owned(), cached.clone());
            }
            return Ok(cached);
        }
    }
}

fn truncated(binder: &mut Binder<'_>, truncate: &ast::Truncate) -> Result<Work, SqlError> {
    if truncate.partitions.is_some() || truncate.on_cluster.is_some() {
        return Err(SqlError::unsupported("a clause of TRUNCATE"));
    }
    if truncate.identity == Some(ast::TruncateIdentityOption::Restart) {
        return Err(SqlError::unsupported("TRUNCATE .. RESTART IDENTITY"));
    }
    if truncate.cascade == Some(ast::CascadeOption::Cascade) {
        return Err(SqlError::unsupported("TRUNCATE .. CASCADE"));
    }
    let mut tables = Vec::new();
    for target in &truncate.table_names {
        let table = binder.table(&target.name)?;
        binder.needs(Object::Table, &table.name, Privileges::TRUNCATE);
        tables.push(table);
    }
    Ok(Work::Truncate(tables))
}
