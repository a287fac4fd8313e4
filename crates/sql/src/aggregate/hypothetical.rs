//! Aggregates that say where a row would be among those of its group if it were there.

use crate::plan::{SortKey, compare_keys};
use crate::types::SqlType;
use crate::value::Value;

/// An aggregate of a row that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hypothetical {
    /// Its number, with gaps behind rows that are equal.
    Rank,
    /// Its number, without gaps.
    DenseRank,
    /// The part of the other rows that are before it.
    PercentRank,
    /// The part of all rows, itself included, that are not behind it.
    CumeDist,
}

impl Hypothetical {
    /// The aggregate of a name, which is that of a window function, too.
    pub(crate) fn named(name: &str) -> Option<Hypothetical> {
        Some(match name {
            "rank" => Hypothetical::Rank,
            "dense_rank" => Hypothetical::DenseRank,
            "percent_rank" => Hypothetical::PercentRank,
            "cume_dist" => Hypothetical::CumeDist,
            _ => return None,
        })
    }

    pub(crate) fn result(self) -> SqlType {
        match self {
            Hypothetical::Rank | Hypothetical::DenseRank => SqlType::Int8,
            Hypothetical::PercentRank | Hypothetical::CumeDist => SqlType::Float8,
        }
    }

    /// The result for rows: in their order, with their keys and the keys of the one that is not there.
    pub(super) fn finish(self, order: &[SortKey], rows: &[(Vec<Value>, Vec<Value>)]) -> Value {
        let is_before = |(keys, own): &&(Vec<Value>, Vec<Value>)| compare_keys(order, keys, own).is_lt();
        let is_not_behind = |(keys, own): &&(Vec<Value>, Vec<Value>)| compare_keys(order, keys, own).is_le();
        let before = rows.iter().take_while(is_before).count();
        match self {
            Hypothetical::Rank => Value::Int(before as i64 + 1),
            Hypothetical::DenseRank => {
                let are_peers = |one: &(Vec<Value>, _), next: &(Vec<Value>, _)| one.0 == next.0;
                Value::Int(rows[..before].chunk_by(are_peers).count() as i64 + 1)
            }
            Hypothetical::PercentRank if rows.is_empty() => Value::Float(0.0),
            Hypothetical::PercentRank => Value::Float(before as f64 / rows.len() as f64),
            Hypothetical::CumeDist => {
                let through = rows.iter().take_while(is_not_behind).count();
                Value::Float((through + 1) as f64 / (rows.len() + 1) as f64)
            }
        }
    }
}
