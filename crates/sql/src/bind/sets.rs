//! Binding of functions that return rows, in FROM; those in the list of a SELECT have their place in `window`.
//!
//! Owns: which functions return rows, of what types, and the names of their columns. Never: calls one.

use sqlparser::ast;

use super::from::From;
use super::functions::{Arguments, no_function};
use super::{Binder, Scope, ScopeColumn, Typed, ident, object_name};
use crate::cast::Castability;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::functions::DocumentRows;
use crate::parse::ROWS_FROM;
use crate::plan::{Node, OutputColumn, Query, RowsFunction};
use crate::record;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// The call of a function in FROM.
#[derive(Clone, Copy)]
pub(super) struct RowsCall<'s> {
    pub(super) name: &'s ast::ObjectName,
    pub(super) arguments: &'s [ast::FunctionArg],
    /// Set if its rows have their numbers behind them (`WITH ORDINALITY`).
    pub(super) numbered: bool,
}

/// A function that returns rows, its arguments, and the type of its rows.
type BoundRows = (RowsFunction, Vec<Expr>, SqlType);

impl Binder<'_> {
    /// Binds a function in FROM. Its arguments may read the columns of the tables before it.
    pub(super) fn rows_function(
        &mut self,
        call: RowsCall<'_>,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let (_, function) = object_name(call.name)?;
        // Functions side by side have the name of the first one.
        let first = match call.arguments {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Function(first))), ..]
                if function == ROWS_FROM =>
            {
                object_name(&first.name)?.1
            }
            _ => function,
        };
        let known = alias.map_or(first, |alias| ident(&alias.name));
        let offset = columns.len();
        let bound = self.rows_of_call(call, known, alias, columns)?;
        if let [only] = &mut columns[offset..] {
            only.is_alone = true;
        }
        Ok(bound)
    }

    fn rows_of_call(
        &mut self,
        call: RowsCall<'_>,
        known: String,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        if !columns.is_empty() {
            let before = Scope { columns: columns.clone(), ..Scope::default() };
            let query = self.query_of_rows(call, &known, Some(before))?;
            let mut used = Vec::new();
            query.outer_columns(1, &mut used);
            if !used.is_empty() {
                let offset = columns.len();
                self.name_columns(query.columns.clone(), known, alias, columns)?;
                return Ok(From::Lateral { query, offset });
            }
        }
        let query = self.query_of_rows(call, &known, None)?;
        self.enter(query.root, query.columns, known, alias, columns)
    }

    /// Binds the call in a scope of its own, within that of the tables before it if they are given.
    fn query_of_rows(
        &mut self,
        call: RowsCall<'_>,
        known: &str,
        before: Option<Scope>,
    ) -> Result<Query, SqlError> {
        let scopes = self.scopes.len();
        self.scopes.extend(before);
        self.scopes.push(Scope::default());
        let query = self.query_of_call(call, known);
        self.scopes.truncate(scopes);
        let mut query = query?;
        if call.numbered {
            query.root = Node::Ordinality(Box::new(query.root));
            query.columns.push(column("ordinality", SqlType::Int8));
        }
        Ok(query)
    }

    fn query_of_call(&mut self, call: RowsCall<'_>, known: &str) -> Result<Query, SqlError> {
        let (_, name) = object_name(call.name)?;
        if name == ROWS_FROM {
            return self.functions_together(call.arguments, known);
        }
        let arguments = self.arguments(call.arguments, &name)?;
        if name == "pg_get_keywords" && arguments.values.is_empty() {
            return Ok(keywords());
        }
        if name == "unnest" && arguments.values.len() > 1 && arguments.names.is_empty() {
            return self.arrays_side_by_side(arguments);
        }
        if !returns_rows(&name) {
            // A function of one value is a table of one row.
            let typed = self.call_with(&name, arguments)?;
            let root = Node::Values(vec![vec![typed.expr]]);
            return Ok(Query { root, columns: vec![column(known, typed.ty)] });
        }
        let (rows, exprs, ty) = self.rows_call(&name, arguments)?;
        let root = Node::Rows(rows, exprs);
        let fields = record::fields(rows.modifier());
        if fields.is_empty() {
            return Ok(Query { root, columns: vec![column(rows.column_name().unwrap_or(known), ty)] });
        }
        let field = |at| Expr::Field(Box::new(Expr::Column(0)), at);
        let root = Node::Project(Box::new(root), (0..fields.len()).map(field).collect());
        Ok(Query { root, columns: fields.into_iter().map(|(name, ty)| column(name, ty)).collect() })
    }

    /// The rows of several functions side by side (ROWS FROM); NULL behind the end of those that have fewer.
    fn functions_together(&mut self, calls: &[ast::FunctionArg], known: &str) -> Result<Query, SqlError> {
        let (mut functions, mut exprs, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for call in calls {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Function(function))) = call
            else {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{call} in ROWS FROM is no call")));
            };
            let ast::FunctionArguments::List(list) = &function.args else {
                return Err(SqlError::unsupported(format!("{call} in ROWS FROM")));
            };
            if has_clauses(function, list) {
                return Err(SqlError::unsupported(format!("{call} in ROWS FROM")));
            }
            let (_, name) = object_name(&function.name)?;
            let arguments = self.arguments(&list.args, &name)?;
            if name == "unnest" && arguments.values.len() > 1 && arguments.names.is_empty() {
                let first = functions.len();
                self.unnested(arguments, &mut functions, &mut columns)?;
                exprs.extend((first..functions.len()).map(Expr::Column));
                continue;
            }
            let at = Expr::Column(functions.len());
            if !returns_rows(&name) {
                // A function of one value is a list of one.
                let typed = self.call_with(&name, arguments)?;
                functions.push((RowsFunction::Unnest, vec![Expr::Array(vec![typed.expr])]));
                exprs.push(at);
                columns.push(column(if calls.len() == 1 { known } else { &name }, typed.ty));
                continue;
            }
            let (rows, arguments, ty) = self.rows_call(&name, arguments)?;
            functions.push((rows, arguments));
            let fields = record::fields(rows.modifier());
            if fields.is_empty() {
                exprs.push(at);
                let own = if calls.len() == 1 { known } else { &name };
                columns.push(column(rows.column_name().unwrap_or(own), ty));
                continue;
            }
            exprs.extend((0..fields.len()).map(|field| Expr::Field(Box::new(at.clone()), field)));
            columns.extend(fields.into_iter().map(|(name, ty)| column(name, ty)));
        }
        let input = Box::new(Node::Values(vec![Vec::new()]));
        let root = Node::Project(Box::new(Node::ProjectSet { input, functions }), exprs);
        Ok(Query { root, columns })
    }

    /// The elements of several arrays, each in a column; NULL behind the end of those that are shorter.
    fn arrays_side_by_side(&mut self, arrays: Arguments) -> Result<Query, SqlError> {
        let (mut functions, mut columns) = (Vec::new(), Vec::new());
        self.unnested(arrays, &mut functions, &mut columns)?;
        let input = Box::new(Node::Values(vec![Vec::new()]));
        Ok(Query { root: Node::ProjectSet { input, functions }, columns })
    }

    /// Adds the function of each of several arrays that has its elements as rows, and its column.
    fn unnested(
        &mut self,
        arrays: Arguments,
        functions: &mut Vec<(RowsFunction, Vec<Expr>)>,
        columns: &mut Vec<OutputColumn>,
    ) -> Result<(), SqlError> {
        for array in arrays.values {
            let one = Arguments { values: vec![array], names: Vec::new() };
            let (function, exprs, ty) = self.rows_call("unnest", one)?;
            functions.push((function, exprs));
            columns.push(column("unnest", ty));
        }
        Ok(())
    }

    /// Binds the call of a function that returns rows.
    pub(super) fn rows_call(&mut self, name: &str, arguments: Arguments) -> Result<BoundRows, SqlError> {
        let types = arguments.types();
        if let Some(function) = DocumentRows::named(name) {
            return self.document_rows(function, name, arguments);
        }
        if !arguments.names.is_empty() {
            return Err(no_function(name, &types));
        }
        let mut bound = arguments.values;
        let is_moment =
            |ty: &SqlType| matches!(ty, SqlType::Timestamp | SqlType::Timestamptz | SqlType::Date);
        match name {
            "generate_series" if types.len() == 3 && types[..2].iter().any(is_moment) => {
                let has_zone = !types[..2].contains(&SqlType::Timestamp);
                let ty = if has_zone { SqlType::Timestamptz } else { SqlType::Timestamp };
                let mut exprs = Vec::new();
                for (argument, wanted) in bound.into_iter().zip([ty, ty, SqlType::Interval]) {
                    exprs.push(self.coerce(argument, wanted, Castability::Implicit)?.expr);
                }
                Ok((RowsFunction::GenerateSeries, exprs, ty))
            }
            "generate_series" if matches!(types.len(), 2 | 3) => {
                let (exprs, ty) = self.unify_all(bound, "generate_series")?;
                let ty = if ty == SqlType::Text { SqlType::Int4 } else { ty };
                if !ty.is_integer() {
                    return Err(SqlError::unsupported(format!("generate_series of {ty}")));
                }
                Ok((RowsFunction::GenerateSeries, exprs, ty))
            }
            "unnest" if types.len() == 1 && types[0].element().is_some() => {
                let array = bound.remove(0);
                Ok((RowsFunction::Unnest, vec![array.expr], types[0].element().unwrap_or(SqlType::Text)))
            }
            "string_to_table" | "regexp_split_to_table" => {
                let array = self.call(&name.replace("_table", "_array"), bound)?;
                Ok((RowsFunction::Unnest, vec![array.expr], SqlType::Text))
            }
            "regexp_matches" => {
                let found = self.call(name, bound)?;
                Ok((RowsFunction::Unnest, vec![found.expr], SqlType::TextArray))
            }
            "_pg_expandarray" if types.len() == 1 && types[0].element().is_some() => {
                let element = types[0].element().unwrap_or(SqlType::Text);
                Ok((RowsFunction::ExpandArray(element), vec![bound.remove(0).expr], SqlType::Record))
            }
            "generate_subscripts" if types.len() == 2 && types[0].element().is_some() => {
                let dimension = bound.remove(1);
                let dimension = self.coerce(dimension, SqlType::Int4, Castability::Assignment)?;
                let array = bound.remove(0);
                Ok((RowsFunction::GenerateSubscripts, vec![array.expr, dimension.expr], SqlType::Int4))
            }
            _ => Err(no_function(name, &types)),
        }
    }

    /// Binds the call of a function that returns parts of a document, its only argument, which is called `from_json`.
    fn document_rows(
        &mut self,
        function: DocumentRows,
        name: &str,
        arguments: Arguments,
    ) -> Result<BoundRows, SqlError> {
        let types = arguments.types();
        let is_its_name = |name: &String| name == "from_json" && function.names_its_argument();
        let takes = |ty: SqlType| ty == SqlType::Unknown || ty == function.argument();
        let document: Option<[Typed; 1]> = arguments.values.try_into().ok();
        match document {
            Some([document]) if takes(document.ty) && arguments.names.iter().all(is_its_name) => {
                let document = self.coerce(document, function.argument(), Castability::Implicit)?;
                Ok((RowsFunction::Document(function), vec![document.expr], function.result()))
            }
            _ => Err(no_function(name, &types)),
        }
    }
}

/// Returns true if there is more in a call than the function and its arguments.
fn has_clauses(function: &ast::Function, list: &ast::FunctionArgumentList) -> bool {
    function.over.is_some()
        || function.filter.is_some()
        || function.null_treatment.is_some()
        || !function.within_group.is_empty()
        || !matches!(function.parameters, ast::FunctionArguments::None)
        || list.duplicate_treatment.is_some()
        || !list.clauses.is_empty()
}

fn column(name: &str, ty: SqlType) -> OutputColumn {
    OutputColumn { name: name.to_owned(), ty, modifier: Modifier::None, origin: (0, 0) }
}

/// The words of the grammar, as `pg_get_keywords` returns them.
fn keywords() -> Query {
    use sqlparser::keywords::{
        ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS,
    };
    let columns = [
        ("word", SqlType::Text),
        ("catcode", SqlType::Char),
        ("barelabel", SqlType::Bool),
        ("catdesc", SqlType::Text),
        ("baredesc", SqlType::Text),
    ];
    let row = |(word, keyword): (&&str, &sqlparser::keywords::Keyword)| {
        let is_label = !RESERVED_FOR_COLUMN_ALIAS.contains(keyword);
        let is_reserved = !is_label && RESERVED_FOR_TABLE_ALIAS.contains(keyword);
        let (code, kind) = if is_reserved { ("R", "reserved") } else { ("U", "unreserved") };
        let label = if is_label { "can be bare label" } else { "requires AS" };
        let values = [
            Value::from(word.to_lowercase()),
            Value::text(code),
            Value::Bool(is_label),
            Value::text(kind),
            Value::text(label),
        ];
        values.map(Expr::Const).into()
    };
    let root = Node::Values(ALL_KEYWORDS.iter().zip(ALL_KEYWORDS_INDEX).map(row).collect());
    Query { root, columns: columns.into_iter().map(|(name, ty)| column(name, ty)).collect() }
}

/// The functions that return rows, but for those of documents.
pub(crate) const RETURN_ROWS: [&str; 7] = [
    "generate_series",
    "generate_subscripts",
    "unnest",
    "string_to_table",
    "regexp_matches",
    "regexp_split_to_table",
    "_pg_expandarray",
];

/// Returns true for the name of a function that returns rows.
pub(super) fn returns_rows(name: &str) -> bool {
    RETURN_ROWS.contains(&name) || DocumentRows::named(name).is_some()
}
