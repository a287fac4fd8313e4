//! The functions by which PostgreSQL reads and writes values of a type, as `pg_type` and `pg_proc` name them: drivers tell arrays by them.
//!
//! Owns: their names and numbers. Never: converts anything (`format` does), and no statement can call one.

use crate::types::SqlType;

/// The purpose of such a function: to read or write texts, or the binary format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    Input,
    Output,
    Receive,
    Send,
}

impl Conversion {
    pub(crate) const ALL: [Conversion; 4] =
        [Conversion::Input, Conversion::Output, Conversion::Receive, Conversion::Send];

    fn suffix(self) -> &'static str {
        match self {
            Conversion::Input => "in",
            Conversion::Output => "out",
            Conversion::Receive => "recv",
            Conversion::Send => "send",
        }
    }
}

/// The number of the first function of a type that is no array.
const FIRST_OID: u32 = 8_000;
/// The numbers of the functions of arrays, those of PostgreSQL.
const ARRAY_OIDS: [u32; 4] = [750, 751, 2400, 2401];

/// Returns true for arrays whose type has no functions of its own.
pub(crate) fn is_plain_array(ty: SqlType) -> bool {
    ty.element().is_some() && !matches!(ty, SqlType::Int2Vector | SqlType::OidVector)
}

/// The number of a type's function.
pub(crate) fn oid_of(ty: SqlType, conversion: Conversion) -> u32 {
    if is_plain_array(ty) {
        return ARRAY_OIDS[conversion as usize];
    }
    let place = SqlType::all().position(|other| other == ty).unwrap_or(0);
    FIRST_OID + 4 * place as u32 + conversion as u32
}

/// The name of a type's function.
pub(crate) fn name_of(ty: SqlType, conversion: Conversion) -> String {
    let name = if is_plain_array(ty) { "array" } else { ty.internal_name() };
    let has_line = is_plain_array(ty)
        || matches!(
            ty,
            SqlType::Json
                | SqlType::Jsonb
                | SqlType::NodeTree
                | SqlType::Date
                | SqlType::Time
                | SqlType::Timestamp
                | SqlType::Timestamptz
                | SqlType::Interval
                | SqlType::Numeric
                | SqlType::Uuid
                | SqlType::Inet
                | SqlType::Cidr
                | SqlType::Record
                | SqlType::Void
        );
    format!("{name}{}{}", if has_line { "_" } else { "" }, conversion.suffix())
}

/// All functions, each once: with a type that has it.
pub(crate) fn all() -> impl Iterator<Item = (SqlType, Conversion)> {
    let is_first = |ty: &SqlType| !is_plain_array(*ty) || *ty == SqlType::BoolArray;
    SqlType::all().filter(is_first).flat_map(|ty| Conversion::ALL.map(|conversion| (ty, conversion)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_types_have_the_names_of_postgresql_and_numbers_of_their_own() {
        assert_eq!(name_of(SqlType::Int4, Conversion::Input), "int4in");
        assert_eq!(name_of(SqlType::TextArray, Conversion::Receive), "array_recv");
        assert_eq!(name_of(SqlType::Timestamptz, Conversion::Send), "timestamptz_send");
        assert_eq!(oid_of(SqlType::UuidArray, Conversion::Input), 750);
        let mut names: Vec<String> = all().map(|(ty, conversion)| name_of(ty, conversion)).collect();
        let mut oids: Vec<u32> = all().map(|(ty, conversion)| oid_of(ty, conversion)).collect();
        assert!(
            names.iter().zip(&oids).all(|(name, oid)| super::super::name_of(*oid).as_ref() == Some(name))
        );
        assert!(names.iter().zip(&oids).all(|(name, oid)| super::super::oid_of(name) == Some(*oid)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!((names.len(), oids.len()), (count, count));
        assert!(oids.iter().all(|oid| *oid < super::super::FIRST_OID));
    }
}
