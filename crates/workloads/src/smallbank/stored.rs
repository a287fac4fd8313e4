//! The transactions of SmallBank by their names. The home of each is that of the (first) customer's name.

use super::procedures;
use super::schema::{Name, Tables};

atrapos::stored_procedures! {
    /// `Balance`. See [`balance`](procedures::balance).
    pub Balance("smallbank.balance", "balance") { name: Name } -> Option<i64>;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.name).reading();
    run: |own, tx, tables| procedures::balance(tx, *tables, own.name);

    /// `DepositChecking`. See [`deposit_checking`](procedures::deposit_checking).
    pub DepositChecking("smallbank.deposit-checking", "deposit-checking") { name: Name, amount: i64 } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.name);
    run: |own, tx, tables| procedures::deposit_checking(tx, *tables, own.name, own.amount);

    /// `TransactSavings`. See [`transact_savings`](procedures::transact_savings).
    pub TransactSavings("smallbank.transact-savings", "transact-savings") { name: Name, amount: i64 } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.name);
    run: |own, tx, tables| procedures::transact_savings(tx, *tables, own.name, own.amount);

    /// `Amalgamate`. See [`amalgamate`](procedures::amalgamate).
    pub Amalgamate("smallbank.amalgamate", "amalgamate") { names: (Name, Name) } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.names.0);
    run: |own, tx, tables| procedures::amalgamate(tx, *tables, own.names);

    /// `WriteCheck`. See [`write_check`](procedures::write_check).
    pub WriteCheck("smallbank.write-check", "write-check") { name: Name, amount: i64 } -> Option<i64>;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.name);
    run: |own, tx, tables| procedures::write_check(tx, *tables, own.name, own.amount);

    /// `SendPayment`. See [`send_payment`](procedures::send_payment).
    pub SendPayment("smallbank.send-payment", "send-payment") { names: (Name, Name), amount: i64 } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.account.at(&own.names.0);
    run: |own, tx, tables| procedures::send_payment(tx, *tables, own.names, own.amount);
}
