// Command clients runs statements by pgx: types, batches, COPY, transactions, errors, a pool.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(holds bool, what string) {
	if !holds {
		must(errors.New(what + " is not as it should be"))
	}
}

func code(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return fmt.Sprint(err)
}

func types(ctx context.Context, conn *pgx.Conn) {
	_, err := conn.Exec(ctx, "drop table if exists gx")
	must(err)
	_, err = conn.Exec(ctx, "create table gx (id int primary key, t text, n numeric, b bytea, yes boolean, at timestamptz, list int[], j jsonb)")
	must(err)
	var number pgtype.Numeric
	must(number.Scan("12.50"))
	moment := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	_, err = conn.Exec(ctx, "insert into gx values ($1, $2, $3, $4, $5, $6, $7, $8)",
		1, "Grüße", number, []byte{0, 255}, true, moment, []int32{1, 2}, map[string]int{"a": 1})
	must(err)
	var text string
	var back pgtype.Numeric
	var data []byte
	var yes bool
	var at time.Time
	var list []int32
	var document map[string]int
	row := conn.QueryRow(ctx, "select t, n, b, yes, at, list, j from gx where id = $1", 1)
	must(row.Scan(&text, &back, &data, &yes, &at, &list, &document))
	shown, err := back.Value()
	must(err)
	check(text == "Grüße" && shown == "12.50" && bytes.Equal(data, []byte{0, 255}) && yes, "a value")
	check(at.Equal(moment) && len(list) == 2 && list[1] == 2 && document["a"] == 1, "a moment, array or document")
}

func rows(ctx context.Context, conn *pgx.Conn) {
	source := make([][]any, 0, 1000)
	for id := 2; id <= 1001; id++ {
		source = append(source, []any{int32(id), fmt.Sprint("row ", id)})
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"gx"}, []string{"id", "t"}, pgx.CopyFromRows(source))
	must(err)
	check(count == 1000, "the count of COPY")
	batch := &pgx.Batch{}
	for id := 2; id <= 101; id++ {
		batch.Queue("update gx set n = $2 where id = $1", id, id)
	}
	batch.Queue("select sum(n)::bigint from gx where id between 2 and 101")
	results := conn.SendBatch(ctx, batch)
	for id := 2; id <= 101; id++ {
		tag, err := results.Exec()
		must(err)
		check(tag.RowsAffected() == 1, "an update of the batch")
	}
	var sum int64
	must(results.QueryRow().Scan(&sum))
	must(results.Close())
	check(sum == 5150, "the sum of the batch")
}

func transactions(ctx context.Context, conn *pgx.Conn) {
	tx, err := conn.Begin(ctx)
	must(err)
	inner, err := tx.Begin(ctx)
	must(err)
	_, err = inner.Exec(ctx, "insert into gx (id) values (1)")
	check(code(err) == "23505", "the code of a second row")
	must(inner.Rollback(ctx))
	_, err = tx.Exec(ctx, "insert into gx (id) values (5000)")
	must(err)
	must(tx.Rollback(ctx))
	var count int
	must(conn.QueryRow(ctx, "select count(*) from gx").Scan(&count))
	check(count == 1001, "the count after a roll-back")
	limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = conn.Exec(limited, "select count(*) from generate_series(1, 100000000)")
	check(err != nil, "a statement that takes too long")
}

func pool(ctx context.Context) {
	pool, err := pgxpool.New(ctx, "")
	must(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "update gx set n = 0 where id = 1")
	must(err)
	var all sync.WaitGroup
	for range 100 {
		all.Add(1)
		go func() {
			defer all.Done()
			_, err := pool.Exec(ctx, "update gx set n = n + 1 where id = $1", 1)
			must(err)
		}()
	}
	all.Wait()
	var n int
	must(pool.QueryRow(ctx, "select n::int from gx where id = 1").Scan(&n))
	check(n == 100, "the count of the pool")
	_, err = pool.Exec(ctx, "drop table gx")
	must(err)
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "")
	must(err)
	types(ctx, conn)
	rows(ctx, conn)
	transactions(ctx, conn)
	_ = conn.Close(ctx)
	pool(ctx)
}
