//! Plans of statements, and those that are kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlparser::ast;

use super::Connection;
use crate::bind::Binder;
use crate::error::SqlError;
use crate::plan::{OutputColumn, Plan, Work};
use crate::sink::Column;
use crate::types::SqlType;

/// The most plans that a connection keeps for texts of simple queries.
const MAX_PLANS: usize = 256;
/// The longest text whose plan is kept.
const MAX_CACHED_TEXT: usize = 8 << 10;

/// A plan with the types of its parameters.
#[derive(Clone, Debug)]
pub(super) struct CachedPlan {
    pub(super) plan: Arc<Plan>,
    pub(super) types: Arc<[SqlType]>,
    pub(super) columns: Option<Arc<[Column]>>,
    /// The version of the schema that it was made with.
    pub(super) version: u64,
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
    )
}

impl Connection {
    /// The plan that is kept for a text, if the schema is still the one it was made with.
    pub(super) fn cached(&self, text: &str) -> Option<CachedPlan> {
        if self.kind == super::Kind::Failed {
            return None;
        }
        let version = self.database.schema().version;
        self.plans.get(text).filter(|cached| cached.version == version).cloned()
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
            let schema = database.schema();
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
                if is_closed() && database.schema().version == schema.version {
                    changed.await;
                }
                continue;
            }
            let columns = plan.columns().map(|columns| columns.iter().map(OutputColumn::described).collect());
            let cached =
                CachedPlan { plan: Arc::new(plan), types: types.into(), columns, version: schema.version };
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
    let tables: Result<Vec<_>, SqlError> =
        truncate.table_names.iter().map(|target| binder.table(&target.name)).collect();
    Ok(Work::Truncate(tables?))
}
