//! Catalogs of what there is none of here: they have the columns that clients ask for, and no rows.

use super::Catalog;
use crate::expr::{Env, Row};
use crate::types::SqlType::{
    self, Bool, Char, Int2, Int2Vector, Int4, Name, NodeTree, Oid, OidArray, Regproc, Text, TextArray,
};

fn none(_: &Env) -> Vec<Row> {
    Vec::new()
}

const fn empty(name: &'static str, oid: u32, columns: &'static [(&'static str, SqlType)]) -> Catalog {
    Catalog { schema: "pg_catalog", name, oid, columns, rows: none }
}

pub(super) static CATALOGS: &[Catalog] = &[
    empty(
        "pg_inherits",
        2611,
        &[("inhrelid", Oid), ("inhparent", Oid), ("inhseqno", Int4), ("inhdetachpending", Bool)],
    ),
    empty(
        "pg_partitioned_table",
        3350,
        &[
            ("partrelid", Oid),
            ("partstrat", Char),
            ("partnatts", Int2),
            ("partdefid", Oid),
            ("partattrs", Int2Vector),
        ],
    ),
    empty("pg_shdescription", 2396, &[("objoid", Oid), ("classoid", Oid), ("description", Text)]),
    empty(
        "pg_trigger",
        2620,
        &[
            ("oid", Oid),
            ("tgrelid", Oid),
            ("tgparentid", Oid),
            ("tgname", Name),
            ("tgfoid", Oid),
            ("tgtype", Int2),
            ("tgenabled", Char),
            ("tgisinternal", Bool),
            ("tgconstraint", Oid),
            ("tgdeferrable", Bool),
            ("tginitdeferred", Bool),
            ("tgconstrrelid", Oid),
        ],
    ),
    empty(
        "pg_rewrite",
        2618,
        &[
            ("oid", Oid),
            ("rulename", Name),
            ("ev_class", Oid),
            ("ev_type", Char),
            ("ev_enabled", Char),
            ("is_instead", Bool),
        ],
    ),
    empty(
        "pg_policy",
        3256,
        &[
            ("oid", Oid),
            ("polname", Name),
            ("polrelid", Oid),
            ("polcmd", Char),
            ("polpermissive", Bool),
            ("polroles", OidArray),
            ("polqual", NodeTree),
            ("polwithcheck", NodeTree),
        ],
    ),
    empty(
        "pg_statistic_ext",
        3381,
        &[
            ("oid", Oid),
            ("stxrelid", Oid),
            ("stxname", Name),
            ("stxnamespace", Oid),
            ("stxowner", Oid),
            ("stxstattarget", Int4),
            ("stxkeys", Int2Vector),
            ("stxkind", SqlType::CharArray),
            ("stxexprs", NodeTree),
        ],
    ),
    empty(
        "pg_publication",
        6104,
        &[("oid", Oid), ("pubname", Name), ("pubowner", Oid), ("puballtables", Bool)],
    ),
    empty(
        "pg_publication_rel",
        6106,
        &[("oid", Oid), ("prpubid", Oid), ("prrelid", Oid), ("prqual", NodeTree), ("prattrs", Int2Vector)],
    ),
    empty("pg_publication_namespace", 6237, &[("oid", Oid), ("pnpubid", Oid), ("pnnspid", Oid)]),
    empty("pg_foreign_table", 3118, &[("ftrelid", Oid), ("ftserver", Oid), ("ftoptions", TextArray)]),
    empty(
        "pg_foreign_server",
        1417,
        &[("oid", Oid), ("srvname", Name), ("srvowner", Oid), ("srvfdw", Oid), ("srvoptions", TextArray)],
    ),
    empty(
        "pg_enum",
        3501,
        &[("oid", Oid), ("enumtypid", Oid), ("enumsortorder", SqlType::Float4), ("enumlabel", Name)],
    ),
    empty("pg_range", 3541, &[("rngtypid", Oid), ("rngsubtype", Oid), ("rngmultitypid", Oid)]),
    empty(
        "pg_extension",
        3079,
        &[("oid", Oid), ("extname", Name), ("extowner", Oid), ("extnamespace", Oid), ("extversion", Text)],
    ),
    empty("pg_matviews", 12_201, &[("schemaname", Name), ("matviewname", Name), ("matviewowner", Name)]),
    empty("pg_aggregate", 2600, &[("aggfnoid", Regproc), ("aggkind", Char)]),
    empty(
        "pg_cast",
        2605,
        &[
            ("oid", Oid),
            ("castsource", Oid),
            ("casttarget", Oid),
            ("castfunc", Oid),
            ("castcontext", Char),
            ("castmethod", Char),
        ],
    ),
    empty(
        "pg_operator",
        2617,
        &[("oid", Oid), ("oprname", Name), ("oprleft", Oid), ("oprright", Oid), ("oprresult", Oid)],
    ),
    empty(
        "pg_opclass",
        2616,
        &[
            ("oid", Oid),
            ("opcmethod", Oid),
            ("opcname", Name),
            ("opcnamespace", Oid),
            ("opcintype", Oid),
            ("opcdefault", Bool),
        ],
    ),
    empty("pg_language", 2612, &[("oid", Oid), ("lanname", Name)]),
];
