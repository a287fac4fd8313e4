//! The questions that psql asks the catalogs for `\d`, `\dt` and the like, in its forms.

use crate::support::{Client, check, database};

/// Two tables, one of which refers to the other.
fn related() -> (std::sync::Arc<atrapos_sql::SqlDatabase>, Client) {
    let database = database(2);
    let mut client = Client::new(&database);
    client.run("CREATE TABLE parent(id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE)");
    client.run(
        "CREATE TABLE child(id bigserial PRIMARY KEY, parent int NOT NULL REFERENCES parent(id), \
         amount numeric(10,2) DEFAULT 0 CHECK (amount >= 0), at timestamptz DEFAULT now())",
    );
    client.run("CREATE INDEX child_parent ON child(parent)");
    (database, client)
}

#[test]
fn the_catalogs_describe_tables_as_psql_asks() {
    let (_database, mut client) = related();
    let oid = client.rows("SELECT 'child'::regclass::oid");
    let lines =
        |client: &mut Client, query: &str| client.rows(&query.replace("$OID", &oid)).replace('\n', " / ");
    let columns = lines(
        &mut client,
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
        (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
         WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull, \
        (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t \
         WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation, \
        a.attidentity, a.attgenerated FROM pg_catalog.pg_attribute a \
        WHERE a.attrelid = '$OID' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    );
    assert_eq!(
        columns,
        "id|bigint|nextval('child_id_seq'::regclass)|t|NULL|| / parent|integer|NULL|t|NULL|| / \
         amount|numeric(10,2)|0|f|NULL|| / at|timestamp with time zone|now()|f|NULL||"
    );
    let indexes = lines(
        &mut client,
        "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisvalid, \
        pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), pg_catalog.pg_get_constraintdef(con.oid, true), contype \
        FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i \
        LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x')) \
        WHERE c.oid = '$OID' AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname",
    );
    assert_eq!(
        indexes,
        "child_pkey|t|t|t|CREATE UNIQUE INDEX child_pkey ON public.child USING btree (id)|PRIMARY KEY (id)|p / \
         child_parent|f|f|t|CREATE INDEX child_parent ON public.child USING btree (parent)|NULL|NULL"
    );
    let constraints = lines(
        &mut client,
        "SELECT r.conname, pg_catalog.pg_get_constraintdef(r.oid, true) \
        FROM pg_catalog.pg_constraint r WHERE r.conrelid = '$OID' AND r.contype IN ('c', 'f') ORDER BY 1",
    );
    assert_eq!(
        constraints,
        "child_amount_check|CHECK ((amount >= 0)) / child_parent_fkey|FOREIGN KEY (parent) REFERENCES parent(id)"
    );
}

#[test]
fn the_catalogs_list_what_there_is() {
    let (_database, mut client) = related();
    check(
        &mut client,
        &[
            (
                "SELECT n.nspname as \"Schema\", c.relname as \"Name\", CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' \
             WHEN 'S' THEN 'sequence' END as \"Type\", pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\" \
             FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam WHERE c.relkind IN ('r','p','S','') \
             AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' AND n.nspname <> 'information_schema' \
             AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2",
                "public|child|table|ann / public|child_id_seq|sequence|ann / public|parent|table|ann",
            ),
            (
                "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(child)$' COLLATE pg_catalog.default",
                "child",
            ),
            (
                "SELECT column_name, data_type, is_nullable, character_maximum_length FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name = 'parent' ORDER BY ordinal_position",
                "id|integer|NO|NULL / name|character varying|NO|20",
            ),
            (
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
                "child / parent",
            ),
            ("SELECT typname, typarray::regtype FROM pg_type WHERE oid = 23", "int4|integer[]"),
            ("SELECT datname, pg_encoding_to_char(encoding) FROM pg_database", "postgres|UTF8"),
            ("SELECT usename FROM pg_stat_activity WHERE pid = pg_backend_pid()", "ann"),
            ("SELECT setting FROM pg_settings WHERE name = 'server_version_num'", "170000"),
            ("SELECT proname FROM pg_proc WHERE proname = 'lower'", "lower"),
        ],
    );
}
