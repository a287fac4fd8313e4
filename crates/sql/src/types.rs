//! The types of values, with the numbers, names and sizes that PostgreSQL gives them.
//!
//! Owns: the list of types ([`SqlType`]), the modifiers of a column's type ([`Modifier`]), and the names by which statements
//! call them. Never: converts a value (`cast` does) or writes one (`format` does).

/// A type of values. Its modifiers, such as the length of a `varchar`, are beside it ([`Modifier`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SqlType {
    /// `boolean`.
    Bool,
    /// `bytea`.
    Bytea,
    /// `"char"`: one byte, of catalogs.
    Char,
    /// `name`: an identifier, of catalogs.
    Name,
    /// `bigint`.
    Int8,
    /// `smallint`.
    Int2,
    /// `int2vector`: numbers of columns, of catalogs.
    Int2Vector,
    /// `integer`.
    Int4,
    /// `regproc`: a function's number, shown as its name.
    Regproc,
    /// `text`.
    Text,
    /// `oid`: the number of an object of a catalog.
    Oid,
    /// `oidvector`: numbers of objects, of catalogs.
    OidVector,
    /// `json`, kept as it was written.
    Json,
    /// `pg_node_tree`: an expression, of catalogs.
    NodeTree,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// A literal whose type its context decides.
    Unknown,
    /// `character(n)`.
    Bpchar,
    /// `character varying`.
    Varchar,
    /// `date`.
    Date,
    /// `time without time zone`.
    Time,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`, kept as UTC.
    Timestamptz,
    /// `interval`.
    Interval,
    /// `numeric`: up to 38 digits.
    Numeric,
    /// `regclass`: a table's or index's number, shown as its name.
    Regclass,
    /// `regtype`: a type's number, shown as its name.
    Regtype,
    /// `regnamespace`: a schema's number, shown as its name.
    Regnamespace,
    /// `inet`: a host, and its network.
    Inet,
    /// `cidr`: a network.
    Cidr,
    /// `xid8`: the number of a transaction.
    Xid8,
    /// `uuid`.
    Uuid,
    /// `jsonb`, kept as it was written.
    Jsonb,
    /// `record`: several values as one, in results alone.
    Record,
    /// `void`: what a function without a result returns.
    Void,
    /// `boolean[]`.
    BoolArray,
    /// `"char"[]`.
    CharArray,
    /// `name[]`.
    NameArray,
    /// `smallint[]`.
    Int2Array,
    /// `integer[]`.
    Int4Array,
    /// `text[]`.
    TextArray,
    /// `bigint[]`.
    Int8Array,
    /// `double precision[]`.
    Float8Array,
    /// `oid[]`.
    OidArray,
    /// `character varying[]`.
    VarcharArray,
    /// `numeric[]`.
    NumericArray,
    /// `uuid[]`.
    UuidArray,
    /// `real[]`.
    Float4Array,
    /// `character[]`.
    BpcharArray,
    /// `bytea[]`.
    ByteaArray,
    /// `date[]`.
    DateArray,
    /// `time without time zone[]`.
    TimeArray,
    /// `timestamp without time zone[]`.
    TimestampArray,
    /// `timestamp with time zone[]`.
    TimestamptzArray,
    /// `interval[]`.
    IntervalArray,
    /// `json[]`.
    JsonArray,
    /// `jsonb[]`.
    JsonbArray,
    /// `cidr[]`.
    CidrArray,
    /// `inet[]`.
    InetArray,
    /// `aclitem[]`: privileges, of catalogs, as texts.
    AclItemArray,
}

/// A row of the table of types: the type, its OID, its size, its name in `pg_type`, its name in SQL.
type TypeRow = (SqlType, u32, i16, &'static str, &'static str);

/// All types.
const TYPES: [TypeRow; 60] = [
    (SqlType::Bool, 16, 1, "bool", "boolean"),
    (SqlType::Bytea, 17, -1, "bytea", "bytea"),
    (SqlType::Char, 18, 1, "char", "\"char\""),
    (SqlType::Name, 19, 64, "name", "name"),
    (SqlType::Int8, 20, 8, "int8", "bigint"),
    (SqlType::Int2, 21, 2, "int2", "smallint"),
    (SqlType::Int2Vector, 22, -1, "int2vector", "int2vector"),
    (SqlType::Int4, 23, 4, "int4", "integer"),
    (SqlType::Regproc, 24, 4, "regproc", "regproc"),
    (SqlType::Text, 25, -1, "text", "text"),
    (SqlType::Oid, 26, 4, "oid", "oid"),
    (SqlType::OidVector, 30, -1, "oidvector", "oidvector"),
    (SqlType::Json, 114, -1, "json", "json"),
    (SqlType::NodeTree, 194, -1, "pg_node_tree", "pg_node_tree"),
    (SqlType::Float4, 700, 4, "float4", "real"),
    (SqlType::Float8, 701, 8, "float8", "double precision"),
    (SqlType::Unknown, 705, -2, "unknown", "unknown"),
    (SqlType::Bpchar, 1042, -1, "bpchar", "character"),
    (SqlType::Varchar, 1043, -1, "varchar", "character varying"),
    (SqlType::Date, 1082, 4, "date", "date"),
    (SqlType::Time, 1083, 8, "time", "time without time zone"),
    (SqlType::Timestamp, 1114, 8, "timestamp", "timestamp without time zone"),
    (SqlType::Timestamptz, 1184, 8, "timestamptz", "timestamp with time zone"),
    (SqlType::Interval, 1186, 16, "interval", "interval"),
    (SqlType::Numeric, 1700, -1, "numeric", "numeric"),
    (SqlType::Regclass, 2205, 4, "regclass", "regclass"),
    (SqlType::Regtype, 2206, 4, "regtype", "regtype"),
    (SqlType::Regnamespace, 4089, 4, "regnamespace", "regnamespace"),
    (SqlType::Cidr, 650, -1, "cidr", "cidr"),
    (SqlType::Inet, 869, -1, "inet", "inet"),
    (SqlType::Xid8, 5069, 8, "xid8", "xid8"),
    (SqlType::Uuid, 2950, 16, "uuid", "uuid"),
    (SqlType::Jsonb, 3802, -1, "jsonb", "jsonb"),
    (SqlType::Record, 2249, -1, "record", "record"),
    (SqlType::Void, 2278, 4, "void", "void"),
    (SqlType::BoolArray, 1000, -1, "_bool", "boolean[]"),
    (SqlType::CharArray, 1002, -1, "_char", "\"char\"[]"),
    (SqlType::NameArray, 1003, -1, "_name", "name[]"),
    (SqlType::Int2Array, 1005, -1, "_int2", "smallint[]"),
    (SqlType::Int4Array, 1007, -1, "_int4", "integer[]"),
    (SqlType::TextArray, 1009, -1, "_text", "text[]"),
    (SqlType::Int8Array, 1016, -1, "_int8", "bigint[]"),
    (SqlType::Float8Array, 1022, -1, "_float8", "double precision[]"),
    (SqlType::OidArray, 1028, -1, "_oid", "oid[]"),
    (SqlType::VarcharArray, 1015, -1, "_varchar", "character varying[]"),
    (SqlType::NumericArray, 1231, -1, "_numeric", "numeric[]"),
    (SqlType::UuidArray, 2951, -1, "_uuid", "uuid[]"),
    (SqlType::Float4Array, 1021, -1, "_float4", "real[]"),
    (SqlType::BpcharArray, 1014, -1, "_bpchar", "character[]"),
    (SqlType::ByteaArray, 1001, -1, "_bytea", "bytea[]"),
    (SqlType::DateArray, 1182, -1, "_date", "date[]"),
    (SqlType::TimeArray, 1183, -1, "_time", "time without time zone[]"),
    (SqlType::TimestampArray, 1115, -1, "_timestamp", "timestamp without time zone[]"),
    (SqlType::TimestamptzArray, 1185, -1, "_timestamptz", "timestamp with time zone[]"),
    (SqlType::IntervalArray, 1187, -1, "_interval", "interval[]"),
    (SqlType::JsonArray, 199, -1, "_json", "json[]"),
    (SqlType::JsonbArray, 3807, -1, "_jsonb", "jsonb[]"),
    (SqlType::CidrArray, 651, -1, "_cidr", "cidr[]"),
    (SqlType::InetArray, 1041, -1, "_inet", "inet[]"),
    (SqlType::AclItemArray, 1034, -1, "_aclitem", "aclitem[]"),
];

/// Array types and the types of their elements.
const ARRAYS: [(SqlType, SqlType); 24] = [
    (SqlType::BoolArray, SqlType::Bool),
    (SqlType::CharArray, SqlType::Char),
    (SqlType::NameArray, SqlType::Name),
    (SqlType::Int2Array, SqlType::Int2),
    (SqlType::Int4Array, SqlType::Int4),
    (SqlType::TextArray, SqlType::Text),
    (SqlType::Int8Array, SqlType::Int8),
    (SqlType::Float8Array, SqlType::Float8),
    (SqlType::OidArray, SqlType::Oid),
    (SqlType::VarcharArray, SqlType::Varchar),
    (SqlType::NumericArray, SqlType::Numeric),
    (SqlType::UuidArray, SqlType::Uuid),
    (SqlType::Float4Array, SqlType::Float4),
    (SqlType::BpcharArray, SqlType::Bpchar),
    (SqlType::ByteaArray, SqlType::Bytea),
    (SqlType::DateArray, SqlType::Date),
    (SqlType::TimeArray, SqlType::Time),
    (SqlType::TimestampArray, SqlType::Timestamp),
    (SqlType::TimestamptzArray, SqlType::Timestamptz),
    (SqlType::IntervalArray, SqlType::Interval),
    (SqlType::JsonArray, SqlType::Json),
    (SqlType::JsonbArray, SqlType::Jsonb),
    (SqlType::CidrArray, SqlType::Cidr),
    (SqlType::InetArray, SqlType::Inet),
];

/// Words for types in statements that are neither their name in `pg_type` nor their name in SQL.
const SYNONYMS: [(&str, SqlType); 8] = [
    ("int", SqlType::Int4),
    ("decimal", SqlType::Numeric),
    ("dec", SqlType::Numeric),
    ("char varying", SqlType::Varchar),
    ("character", SqlType::Bpchar),
    ("float", SqlType::Float8),
    ("time", SqlType::Time),
    ("timestamp", SqlType::Timestamp),
];

impl SqlType {
    fn row(self) -> &'static TypeRow {
        // The table has every type: a test says so.
        TYPES.iter().find(|row| row.0 == self).unwrap_or(&TYPES[0])
    }

    /// All types there are.
    pub fn all() -> impl Iterator<Item = SqlType> {
        TYPES.iter().map(|row| row.0)
    }

    /// PostgreSQL's number of the type.
    #[must_use]
    pub fn oid(self) -> u32 {
        self.row().1
    }

    /// The type of a number; `None` if there is none here. The numbers of `aclitem[]`'s elements and of domains are none.
    #[must_use]
    pub fn from_oid(oid: u32) -> Option<SqlType> {
        TYPES.iter().find(|row| row.1 == oid).map(|row| row.0)
    }

    /// The size for a RowDescription: bytes, -1 if values have different sizes, -2 for a text that ends with zero.
    #[must_use]
    pub fn size(self) -> i16 {
        self.row().2
    }

    /// The name in `pg_type`.
    #[must_use]
    pub fn internal_name(self) -> &'static str {
        self.row().3
    }

    /// The name in SQL, as `format_type` shows it without modifiers.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().4
    }

    /// The type with a name, as a statement writes it in lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<SqlType> {
        let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
        let by_name = TYPES.iter().find(|row| row.3 == name || row.4 == name).map(|row| row.0);
        by_name.or_else(|| SYNONYMS.iter().find(|(word, _)| *word == name).map(|(_, ty)| *ty)).or_else(|| {
            let element = name.strip_suffix("[]")?;
            SqlType::from_name(element)?.array()
        })
    }

    /// The type of the elements, for an array.
    #[must_use]
    pub fn element(self) -> Option<SqlType> {
        match self {
            SqlType::Int2Vector => Some(SqlType::Int2),
            SqlType::OidVector => Some(SqlType::Oid),
            SqlType::AclItemArray => Some(SqlType::Text),
            _ => ARRAYS.iter().find(|(array, _)| *array == self).map(|(_, element)| *element),
        }
    }

    /// The type of arrays of this type, if there is one here.
    #[must_use]
    pub fn array(self) -> Option<SqlType> {
        ARRAYS.iter().find(|(_, element)| *element == self).map(|(array, _)| *array)
    }

    /// Returns true for the types of addresses, `inet` and `cidr`.
    #[must_use]
    pub fn is_network(self) -> bool {
        matches!(self, SqlType::Inet | SqlType::Cidr)
    }

    /// Returns true for the integer types of tables: `smallint`, `integer`, `bigint`.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, SqlType::Int2 | SqlType::Int4 | SqlType::Int8)
    }

    /// Returns true for numbers: integers, `numeric` and the types of floating-point numbers.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.is_integer() || matches!(self, SqlType::Numeric | SqlType::Float4 | SqlType::Float8)
    }

    /// Returns true for the numbers of objects: `oid` and the types that show such a number as a name.
    #[must_use]
    pub fn is_oid(self) -> bool {
        matches!(
            self,
            SqlType::Oid | SqlType::Regproc | SqlType::Regclass | SqlType::Regtype | SqlType::Regnamespace
        )
    }

    /// Returns true for types whose values are texts.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(
            self,
            SqlType::Text
                | SqlType::Varchar
                | SqlType::Bpchar
                | SqlType::Name
                | SqlType::Char
                | SqlType::Unknown
                | SqlType::NodeTree
        )
    }
}

impl std::fmt::Display for SqlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A modifier, which narrows a type down: the length of a text in characters, or the digits of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Modifier {
    /// Nothing.
    #[default]
    None,
    /// The number of characters of a `character varying(n)` (at most) or a `character(n)` (exactly).
    Length(u32),
    /// The digits of a `numeric(precision, scale)`: all, and those behind the point.
    Digits(u8, u8),
    /// The fields of a record of `_pg_expandarray`: an element, `x`, of this type, and its number, `n`.
    Expanded(SqlType),
    /// The fields of a record of `json_each`: the `key`, and the `value`, of this type.
    Member(SqlType),
}

impl Modifier {
    /// The number for `atttypmod` and a RowDescription: -1 for none.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Modifier::None | Modifier::Expanded(_) | Modifier::Member(_) => -1,
            Modifier::Length(length) => i32::try_from(length).unwrap_or(i32::MAX - 4) + 4,
            Modifier::Digits(precision, scale) => (i32::from(precision) << 16 | i32::from(scale)) + 4,
        }
    }

    /// The modifier of a type from its number.
    #[must_use]
    pub fn from_code(ty: SqlType, code: i64) -> Modifier {
        let Some(code) = code.checked_sub(4).and_then(|code| u32::try_from(code).ok()) else {
            return Modifier::None;
        };
        match ty {
            SqlType::Bpchar | SqlType::Varchar => Modifier::Length(code),
            SqlType::Numeric => Modifier::Digits((code >> 16) as u8, code as u8),
            _ => Modifier::None,
        }
    }
}

/// The name of a type with its modifier, as `format_type` shows it.
#[must_use]
pub fn format_type(ty: SqlType, modifier: Modifier) -> String {
    match modifier {
        Modifier::None | Modifier::Expanded(_) | Modifier::Member(_) => ty.name().to_owned(),
        Modifier::Length(length) => format!("{}({length})", ty.name()),
        Modifier::Digits(precision, scale) => format!("{}({precision},{scale})", ty.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_their_type() {
        for ty in SqlType::all() {
            assert_eq!(SqlType::from_oid(ty.oid()), Some(ty));
            assert_eq!(SqlType::from_name(ty.internal_name()), Some(ty));
            assert_eq!(SqlType::from_name(ty.name()), Some(ty), "{ty}");
        }
        assert_eq!(SqlType::Jsonb.oid(), 3802);
        assert_eq!(SqlType::from_name("int[]"), Some(SqlType::Int4Array));
        assert_eq!(SqlType::from_oid(1), None);
    }

    #[test]
    fn modifiers_have_the_codes_of_postgresql() {
        assert_eq!(Modifier::Length(84).code(), 88);
        assert_eq!(Modifier::Digits(10, 2).code(), 655_366);
        assert_eq!(Modifier::from_code(SqlType::Numeric, 655_366), Modifier::Digits(10, 2));
        assert_eq!(format_type(SqlType::Bpchar, Modifier::from_code(SqlType::Bpchar, 88)), "character(84)");
        assert_eq!(Modifier::from_code(SqlType::Int4, -1), Modifier::None);
    }
}
