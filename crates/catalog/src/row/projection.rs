//! Rows made of columns of other rows.
//!
//! Owns: which bytes of a row go where in a row of fewer columns. Never: looks at what the bytes of a column mean.

use atrapos_storage::{push_variable, take_variable};

use super::{Place, RowLayout, Slot};
use crate::definition::TableDef;
use crate::value::ValueError;

/// Makes the rows of one table out of those of another one, which has all their columns: those that they do not have are in the key.
#[derive(Clone, Debug)]
pub struct RowProjection {
    from: RowLayout,
    to: RowLayout,
    /// For each column of the new rows its number among those of the old ones, ascending.
    columns: Vec<usize>,
    /// For each old column of variable size whether the new rows have it.
    keeps: Vec<bool>,
}

impl RowProjection {
    /// Creates the projection of the rows of a table whose key is hidden to those of one with the same columns, of which some are
    /// the key. Returns `None` if a column has another type in it.
    #[must_use]
    pub fn new(from: &TableDef, to: &TableDef) -> Option<RowProjection> {
        let types = |table: &TableDef| table.columns.iter().map(|column| column.ty).collect::<Vec<_>>();
        let is_whole = from.row_columns().count() == from.columns.len();
        if !is_whole || types(from) != types(to) {
            return None;
        }
        let columns: Vec<usize> = (0..to.columns.len()).filter(|column| !to.is_in_key(*column)).collect();
        let (from, to) = (RowLayout::of_table(from), RowLayout::of_table(to));
        let keeps = |(column, slot): (usize, &Slot)| {
            matches!(slot.place, Place::Variable(_)).then(|| columns.contains(&column))
        };
        let keeps = from.slots.iter().enumerate().filter_map(keeps).collect();
        Some(RowProjection { from, to, columns, keeps })
    }

    /// Appends to `out` the new row that `row` becomes.
    ///
    /// # Errors
    /// When a column is NULL that may not be so in the new row, or `row` is no row of the old columns; `out` is then as it was.
    pub fn project(&self, row: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let start = out.len();
        let done = self.project_from(row, start, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn project_from(&self, row: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), ValueError> {
        let at = self.from.variable_at();
        let (fixed, mut variable) = row.split_at_checked(at).ok_or(ValueError::OtherLength)?;
        out.resize(start + self.to.variable_at(), 0);
        let new = &mut out[start..];
        for (column, slot) in self.columns.iter().zip(&self.to.slots) {
            let old = &self.from.slots[*column];
            if self.from.is_null(fixed, old) {
                let bit = slot.null_bit.ok_or(ValueError::Null)?;
                new[self.to.fixed_bytes + bit / 8] |= 1 << (bit % 8);
            }
            if let (Place::Fixed(from), Place::Fixed(to), Some(width)) =
                (old.place, slot.place, slot.ty.width())
            {
                new[to..to + width].copy_from_slice(&fixed[from..from + width]);
            }
        }
        for keeps in &self.keeps {
            let bytes = take_variable(&mut variable).ok_or(ValueError::OtherLength)?;
            if *keeps {
                push_variable(bytes, out);
            }
        }
        if variable.is_empty() { Ok(()) } else { Err(ValueError::OtherLength) }
    }
}

#[cfg(test)]
mod tests {
    use atrapos_storage::ColumnType;
    use proptest::prelude::*;

    use super::*;
    use crate::definition::{ColumnDef, KeyColumn, PrimaryKey};
    use crate::value::Value;

    fn table(columns: &[(ColumnType, bool)], key: &[u16]) -> TableDef {
        let column = |(at, (ty, nullable)): (usize, &(ColumnType, bool))| ColumnDef {
            nullable: *nullable && !key.contains(&(at as u16)),
            ..ColumnDef::new(format!("c{at}"), *ty)
        };
        let key = match key {
            [] => PrimaryKey::Hidden,
            key => PrimaryKey::Columns(key.iter().map(|at| KeyColumn::ascending(*at)).collect()),
        };
        let columns = columns.iter().enumerate().map(column).collect();
        let (name, family) = ("t".to_owned(), "t".to_owned());
        TableDef { name, columns, key, family, read_only: false, splits: Vec::new() }
    }

    fn column() -> impl Strategy<Value = (ColumnType, bool, Value)> {
        let typed = prop_oneof![
            any::<i32>().prop_map(|number| (ColumnType::Signed(4), Value::Signed(number.into()))),
            any::<u8>().prop_map(|number| (ColumnType::Unsigned(1), Value::Unsigned(number.into()))),
            "[a-z]{0,200}".prop_map(|text| (ColumnType::String, Value::Text(text))),
            any::<bool>().prop_map(|is| (ColumnType::Bool, Value::Bool(is))),
        ];
        (typed, any::<bool>(), any::<bool>()).prop_map(|((ty, value), nullable, is_null)| {
            (ty, nullable, if nullable && is_null { Value::Null } else { value })
        })
    }

    proptest! {
        #[test]
        fn a_projected_row_has_the_values_of_its_columns(
            columns in prop::collection::vec(column(), 1..12),
            key in prop::collection::btree_set(0_u16..12, 0..4),
        ) {
            let types: Vec<_> = columns.iter().map(|(ty, nullable, _)| (*ty, *nullable)).collect();
            let key: Vec<u16> = key.into_iter().filter(|at| usize::from(*at) < columns.len()).collect();
            let (from, to) = (table(&types, &[]), table(&types, &key));
            let values: Vec<Value> = columns.into_iter().map(|(_, _, value)| value).collect();
            let (mut row, mut projected) = (Vec::new(), vec![7]);
            RowLayout::of_table(&from).encode(&values, &mut row).unwrap();
            let projection = RowProjection::new(&from, &to).unwrap();
            projection.project(&row, &mut projected).unwrap();
            let wanted: Vec<Value> =
                values.into_iter().enumerate().filter(|(at, _)| !to.is_in_key(*at)).map(|(_, value)| value).collect();
            prop_assert_eq!(RowLayout::of_table(&to).decode(&projected[1..]).unwrap(), wanted);
            row.push(0);
            prop_assert_eq!(projection.project(&row, &mut projected), Err(ValueError::OtherLength));
        }
    }

    #[test]
    fn null_does_not_go_where_it_may_not() {
        let columns = [(ColumnType::Signed(4), false), (ColumnType::String, true)];
        let (from, mut to) = (table(&columns, &[]), table(&columns, &[0]));
        to.columns[1].nullable = false;
        let (mut row, mut out) = (Vec::new(), Vec::new());
        RowLayout::of_table(&from).encode(&[Value::Signed(1), Value::Null], &mut row).unwrap();
        let projection = RowProjection::new(&from, &to).unwrap();
        assert_eq!(projection.project(&row, &mut out), Err(ValueError::Null));
        assert!(out.is_empty());
        to.columns[1].ty = ColumnType::VarBytes;
        assert!(RowProjection::new(&from, &to).is_none(), "another type");
    }
}
