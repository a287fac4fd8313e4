// pgjdbc: types in text and binary, batches, generated keys, cursors, COPY, errors, cancelling, threads, and what it tells about tables.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.JDBCType;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

public final class Pgjdbc {
    interface Work {
        void run() throws Exception;
    }

    static void check(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + " is not " + expected);
        }
    }

    static PSQLException failure(String state, Work work) throws Exception {
        try {
            work.run();
        } catch (PSQLException error) {
            check(error.getSQLState(), state);
            return error;
        }
        throw new AssertionError("no error " + state);
    }

    static Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        for (int at = 0; at < options.length; at += 2) {
            properties.setProperty(options[at], options[at + 1]);
        }
        String host = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
        return DriverManager.getConnection("jdbc:postgresql://" + host + "/" + System.getenv("PGDATABASE"), properties);
    }

    static void execute(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String text : statements) {
                statement.execute(text);
            }
        }
    }

    /** The rows of a result: the columns named, joined by bars. */
    static List<String> rows(ResultSet result, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        try (result) {
            while (result.next()) {
                List<String> row = new ArrayList<>();
                for (String column : columns) {
                    row.add(result.getString(column));
                }
                rows.add(String.join("|", row));
            }
        }
        return rows;
    }

    static long one(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(query)) {
            check(result.next(), true);
            return result.getLong(1);
        }
    }

    static void types(Connection connection) throws Exception {
        execute(connection, "drop table if exists jx",
            "create table jx (id int primary key, t text, n numeric, b bytea, yes boolean, at timestamptz, day date, list int[], u uuid, j jsonb, d double precision)");
        OffsetDateTime moment = OffsetDateTime.parse("2001-02-03T04:05:06.789Z");
        UUID uuid = UUID.fromString("12345678-1234-5678-1234-567812345678");
        // After five executions the driver names the statement, and has values sent in binary.
        try (PreparedStatement insert = connection.prepareStatement("insert into jx values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?::jsonb, ?)");
             PreparedStatement select = connection.prepareStatement("select * from jx where id = ?")) {
            for (int id = 1; id <= 12; id++) {
                insert.setInt(1, id);
                insert.setString(2, "Grüße " + id);
                insert.setBigDecimal(3, new BigDecimal("-12.50"));
                insert.setBytes(4, new byte[] {0, -1});
                insert.setBoolean(5, true);
                insert.setObject(6, moment);
                insert.setObject(7, LocalDate.of(1999, 12, 31));
                insert.setArray(8, connection.createArrayOf("int4", new Integer[] {1, null, id}));
                insert.setObject(9, uuid);
                insert.setString(10, "{\"a\": 1}");
                insert.setDouble(11, 0.1);
                check(insert.executeUpdate(), 1);
                select.setInt(1, id);
                try (ResultSet row = select.executeQuery()) {
                    check(row.next(), true);
                    check(row.getString("t"), "Grüße " + id);
                    check(row.getBigDecimal("n"), new BigDecimal("-12.50"));
                    check(Arrays.toString(row.getBytes("b")), "[0, -1]");
                    check(row.getBoolean("yes"), true);
                    check(row.getObject("at", OffsetDateTime.class).toInstant(), moment.toInstant());
                    check(row.getObject("day", LocalDate.class), LocalDate.of(1999, 12, 31));
                    check(Arrays.toString((Integer[]) row.getArray("list").getArray()), "[1, null, " + id + "]");
                    check(row.getObject("u"), uuid);
                    check(row.getString("j"), "{\"a\": 1}");
                    check(row.getDouble("d"), 0.1);
                    check(row.next(), false);
                }
            }
        }
    }

    /** The types of parameters and columns, without an execution. */
    static void descriptions(Connection connection) throws Exception {
        try (PreparedStatement statement = connection.prepareStatement("select id, list from jx where at < ? and id = ?")) {
            ParameterMetaData parameters = statement.getParameterMetaData();
            check(parameters.getParameterCount(), 2);
            check(parameters.getParameterTypeName(1), "timestamptz");
            ResultSetMetaData columns = statement.getMetaData();
            check(columns.getColumnCount(), 2);
            check(columns.getColumnTypeName(2), "_int4");
        }
    }

    static void writes(Connection connection) throws Exception {
        execute(connection, "drop table if exists jy",
            "create table jy (id int generated always as identity primary key, name text not null, constraint jy_name unique (name))");
        String insert = "insert into jy (name) values (?)";
        try (PreparedStatement statement = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 100; i++) {
                statement.setString(1, "name " + i);
                statement.addBatch();
            }
            int[] counts = statement.executeBatch();
            check(counts.length, 100);
            check(Arrays.stream(counts).allMatch(count -> count == 1), true);
            check(rows(statement.getGeneratedKeys(), "id").size(), 100);
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("insert into jy (name) values ('kept')");
            var savepoint = connection.setSavepoint("before");
            PSQLException error = failure("23505", () -> statement.executeUpdate("insert into jy (name) values ('name 7')"));
            check(error.getServerErrorMessage().getConstraint(), "jy_name");
            check(error.getServerErrorMessage().getTable(), "jy");
            failure("25P02", () -> statement.executeQuery("select 1"));
            connection.rollback(savepoint);
            connection.commit();
            // With a fetch size, rows come through a portal, some at a time.
            statement.setFetchSize(7);
            check(rows(statement.executeQuery("select id from jy order by id"), "id").size(), 101);
            connection.rollback();
        }
        connection.setAutoCommit(true);
        try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
             ResultSet row = statement.executeQuery("select id, name from jy where name = 'kept'")) {
            check(row.next(), true);
            row.updateString("name", "changed");
            row.updateRow();
        }
        check(one(connection, "select count(*) from jy where name = 'changed'"), 1L);
        var copies = connection.unwrap(PGConnection.class).getCopyAPI();
        check(copies.copyIn("copy jy (name) from stdin with (format csv)", new StringReader("\"one, two\"\nthree\n")), 2L);
        StringWriter out = new StringWriter();
        copies.copyOut("copy (select name from jy order by id desc limit 2) to stdout", out);
        check(out.toString(), "three\none, two\n");
    }

    static void sessions(Connection connection) throws Exception {
        check(connection.getTransactionIsolation(), Connection.TRANSACTION_SERIALIZABLE);
        connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        check(connection.isValid(5), true);
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            failure("57014", () -> statement.executeQuery("select count(*) from generate_series(1, 1000000000)"));
        }
        execute(connection, "drop table if exists jz", "create table jz (id int primary key, n int)", "insert into jz values (1, 0)");
        ExecutorService threads = Executors.newFixedThreadPool(4);
        Callable<Integer> work = () -> {
            try (Connection own = connect("reWriteBatchedInserts", "true");
                 PreparedStatement update = own.prepareStatement("update jz set n = n + 1 where id = 1");
                 PreparedStatement insert = own.prepareStatement("insert into jz values (?, ?)")) {
                int first = 1000 * (int) (1 + one(own, "select pg_backend_pid()") % 1_000_000);
                for (int i = 0; i < 50; i++) {
                    check(update.executeUpdate(), 1);
                    insert.setInt(1, first + i);
                    insert.setInt(2, i);
                    insert.addBatch();
                }
                return insert.executeBatch().length;
            }
        };
        try {
            for (Future<Integer> done : threads.invokeAll(List.of(work, work, work, work))) {
                check(done.get(), 50);
            }
        } finally {
            threads.shutdown();
        }
        check(one(connection, "select n from jz where id = 1"), 200L);
        check(one(connection, "select count(*) from jz"), 201L);
    }

    static void tables(Connection connection) throws Exception {
        execute(connection, "drop view if exists jview", "drop table if exists jchild", "drop table if exists jparent",
            "create table jparent (b int, a varchar(10), note numeric(10, 2) default 0 not null, primary key (a, b))",
            "create table jchild (id serial primary key, pa varchar(10), pb int, t text, constraint jchild_parent foreign key (pa, pb) references jparent (a, b) on delete cascade)",
            "create unique index jchild_t on jchild (t, pb)", "comment on table jparent is 'those above'",
            "comment on column jparent.note is 'in euros'", "create view jview as select id, t from jchild");
        DatabaseMetaData data = connection.getMetaData();
        check(data.getDatabaseProductName(), "PostgreSQL");
        check(data.getSQLKeywords().isEmpty(), false);
        check(data.getMaxColumnNameLength() >= 63, true);
        check(rows(data.getTables(null, "public", "j_a%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE", "REMARKS"),
            List.of("jparent|TABLE|those above"));
        check(rows(data.getTables(null, null, "jview", null), "TABLE_SCHEM", "TABLE_TYPE"), List.of("public|VIEW"));
        check(rows(data.getColumns(null, "public", "jparent", "%"), "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "COLUMN_DEF", "REMARKS"),
            List.of("b|int4|10|0|0|null|null", "a|varchar|10|0|0|null|null", "note|numeric|10|2|0|0|in euros"));
        check(rows(data.getColumns(null, null, "jchild", "id"), "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN", "ORDINAL_POSITION"), List.of("YES|NO|1"));
        check(rows(data.getPrimaryKeys(null, "public", "jparent"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"),
            List.of("a|1|jparent_pkey", "b|2|jparent_pkey"));
        String[] index = {"INDEX_NAME", "NON_UNIQUE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC"};
        check(rows(data.getIndexInfo(null, "public", "jchild", false, false), index),
            List.of("jchild_pkey|f|1|id|A", "jchild_t|f|1|t|A", "jchild_t|f|2|pb|A"));
        String[] key = {"PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME", "FKCOLUMN_NAME", "KEY_SEQ", "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME", "DEFERRABILITY"};
        List<String> keys = List.of("jparent|a|jchild|pa|1|3|0|jchild_parent|jparent_pkey|7", "jparent|b|jchild|pb|2|3|0|jchild_parent|jparent_pkey|7");
        check(rows(data.getImportedKeys(null, null, "jchild"), key), keys);
        check(rows(data.getExportedKeys(null, null, "jparent"), key), keys);
        check(rows(data.getCrossReference(null, null, "jparent", null, null, "jchild"), key), keys);
        check(rows(data.getBestRowIdentifier(null, null, "jparent", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"), List.of("b", "a"));
        check(rows(data.getVersionColumns(null, null, "jparent"), "COLUMN_NAME").isEmpty(), false);
        check(rows(data.getSchemas(), "TABLE_SCHEM").containsAll(List.of("information_schema", "pg_catalog", "public")), true);
        check(rows(data.getCatalogs(), "TABLE_CAT").contains(System.getenv("PGDATABASE")), true);
        check(rows(data.getTableTypes(), "TABLE_TYPE").contains("TABLE"), true);
        check(rows(data.getTypeInfo(), "TYPE_NAME", "DATA_TYPE").contains("int4|" + JDBCType.INTEGER.getVendorTypeNumber()), true);
        check(rows(data.getTablePrivileges(null, null, "jparent"), "PRIVILEGE").contains("SELECT"), true);
        check(rows(data.getColumnPrivileges(null, null, "jparent", "a"), "PRIVILEGE").contains("UPDATE"), true);
        check(rows(data.getFunctions(null, null, "upper"), "FUNCTION_NAME").contains("upper"), true);
        check(rows(data.getFunctionColumns(null, null, "upper", null), "COLUMN_NAME").isEmpty(), false);
        check(rows(data.getProcedures(null, "public", "nothing"), "PROCEDURE_NAME"), List.of());
        check(rows(data.getProcedureColumns(null, "public", "nothing", null), "COLUMN_NAME"), List.of());
        check(rows(data.getUDTs(null, "public", "nothing", null), "TYPE_NAME"), List.of());
        check(rows(data.getClientInfoProperties(), "NAME").contains("ApplicationName"), true);
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery("select id, t as other, 1 + 1 as sum from jchild")) {
            ResultSetMetaData columns = result.getMetaData();
            check(columns.getTableName(1), "jchild");
            check(columns.isAutoIncrement(1), true);
            check(columns.isNullable(1), ResultSetMetaData.columnNoNulls);
            check(columns.isNullable(2), ResultSetMetaData.columnNullable);
            check(columns.getColumnLabel(2), "other");
            check(columns.isNullable(3), ResultSetMetaData.columnNullableUnknown);
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            types(connection);
            descriptions(connection);
            writes(connection);
            sessions(connection);
            tables(connection);
        }
        try (Connection simple = connect("preferQueryMode", "simple")) {
            types(simple);
        }
    }
}
