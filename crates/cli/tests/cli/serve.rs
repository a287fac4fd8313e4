//! `atrapos serve` and `atrapos sql`.

use crate::support::refused;

#[cfg(not(feature = "server"))]
#[test]
fn without_the_server_its_feature_is_named() {
    for command in ["serve", "sql"] {
        let complaint = refused(&[command, "somewhere"]);
        assert!(complaint.contains("--features server"), "{complaint}");
    }
}

#[cfg(feature = "server")]
mod kills;

#[cfg(feature = "server")]
mod with_the_server {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Child, ChildStdout, Command, Stdio};

    use super::refused;
    use crate::support::{interrupt, run, stderr, stdout};

    /// A server, and the lines by which it says that it is there.
    ///
    /// It ends with its test, whatever that comes to: its standard input ends then, or it is killed.
    pub(super) struct Served {
        child: Child,
        out: BufReader<ChildStdout>,
        greeting: String,
    }

    impl Drop for Served {
        fn drop(&mut self) {
            // One that has ended needs not be killed.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    impl Served {
        pub(super) fn start(directory: &Path) -> Served {
            Served::start_with(directory, &[])
        }

        fn start_with(directory: &Path, more: &[&str]) -> Served {
            let mut child = Command::new(env!("CARGO_BIN_EXE_atrapos"))
                .args(["serve", directory.to_str().expect("UTF-8")])
                .args(["--listen", "127.0.0.1:0", "--workers", "2", "--no-pin", "--until-eof"])
                .args(more)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            let out = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut served = Served { child, out, greeting: String::new() };
            while !served.greeting.contains("a shell without a password") {
                let read = served.out.read_line(&mut served.greeting).expect("a line");
                assert_ne!(read, 0, "it said {}", served.greeting);
            }
            served
        }

        /// Asks it to end, and returns what it said since.
        fn end(mut self) -> String {
            interrupt(&self.child);
            let mut rest = String::new();
            self.out.read_to_string(&mut rest).expect("text");
            assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{rest}");
            rest
        }
    }

    #[test]
    fn a_password_is_shown_once_and_the_owner_needs_none() {
        let parent = tempfile::tempdir().expect("a directory");
        // Deeper than the path of a socket may be long.
        let directory = parent.path().join("deep".repeat(30)).join("db");
        std::fs::create_dir(directory.parent().expect("a parent")).expect("made");
        let text = directory.to_str().expect("UTF-8");
        let served = Served::start(&directory);
        assert!(served.greeting.contains("user=atrapos dbname=atrapos"), "{}", served.greeting);
        for (path, others) in [("server", 0o077), ("", 0o007)] {
            let about = std::fs::metadata(directory.join(path)).expect("it is there");
            assert_eq!(about.permissions().mode() & others, 0, "{path}");
        }
        let shell = run(&["sql", text, "--command", "no statement at all"]);
        assert_eq!(shell.status.code(), Some(1));
        assert!(stderr(&shell).starts_with("ERROR: "), "{}", stderr(&shell));
        let second = refused(&["serve", text, "--listen", "127.0.0.1:0", "--no-pin"]);
        assert!(second.contains("is open in process"), "{second}");
        let said = served.end();
        assert!(
            said.contains("password of atrapos, shown this once: ") && said.ends_with("ended\n"),
            "{said}"
        );
        let again = Served::start(&directory);
        let said = again.end();
        assert!(!said.contains("password of"), "{said}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the file is an input, not a result")]
    fn a_configuration_file_has_what_the_command_line_does_not() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("db");
        let text = directory.to_str().expect("UTF-8");
        let file = parent.path().join("atrapos.toml");
        let config = file.to_str().expect("UTF-8");
        let entries =
            "database = \"filed\"\nuser = \"ann\"\nlisten = [\"127.0.0.1:1\"]\nset = [\"lock_timeout=3s\"]\n";
        std::fs::write(&file, entries).expect("written");
        let served = Served::start_with(&directory, &["--config", config, "--user", "bob"]);
        assert!(served.greeting.contains("user=bob dbname=filed"), "{}", served.greeting);
        assert!(!served.greeting.contains("port=1 "), "{}", served.greeting);
        let shown = run(&["sql", text, "--user", "bob", "--command", "SHOW lock_timeout"]);
        assert!(stdout(&shown).contains("3s"), "{} {}", stdout(&shown), stderr(&shown));
        served.end();
        for (entries, named) in [
            ("colour = 1", "--colour"),
            ("workers = \"many\"", "many"),
            ("set = [\"statement_timeout=soon\"]", "statement_timeout=soon"),
            ("static = true\ninterval = 2.0", "with --static it does not"),
            ("control = [\"colour=1\"]", "--control takes interval"),
            ("control = [\"imbalance=red\"]", "--control imbalance takes a number"),
            ("http = \"127.0.0.1:0\"\nhttp-token-file = \"/nowhere\"", "/nowhere"),
        ] {
            std::fs::write(&file, entries).expect("written");
            let complaint =
                refused(&["serve", text, "--no-pin", "--listen", "127.0.0.1:0", "--config", config]);
            assert!(complaint.contains(named), "{complaint}");
        }
    }

    #[test]
    fn a_served_database_may_be_watched() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("db");
        let served = Served::start(&directory);
        let shown = run(&["watch", directory.to_str().expect("UTF-8"), "--json"]);
        assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
        let snapshot: serde_json::Value = serde_json::from_str(&stdout(&shown)).expect("JSON");
        assert_eq!(snapshot["program"], "serve");
        served.end();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the file is an input, not a result")]
    fn a_token_for_the_dashboard_is_shown_unless_one_was_chosen() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("db");
        let file = parent.path().join("token");
        let (text, token) = (directory.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
        let served = Served::start_with(&directory, &["--http", "127.0.0.1:0"]);
        assert!(served.greeting.contains("dashboard: http://127.0.0.1:"), "{}", served.greeting);
        assert!(served.greeting.contains("token of the dashboard, for this start: "), "{}", served.greeting);
        served.end();
        std::fs::write(&file, "chosen\n").expect("written");
        let chosen = ["--http", "127.0.0.1:0", "--http-token-file", token];
        let served = Served::start_with(&directory, &chosen);
        assert!(
            !served.greeting.contains("token") && !served.greeting.contains("chosen"),
            "{}",
            served.greeting
        );
        served.end();
        for (entry, named) in [("", "is empty"), ("two words", "spaces")] {
            std::fs::write(&file, entry).expect("written");
            let start = [&["serve", text, "--no-pin", "--listen", "127.0.0.1:0"][..], &chosen].concat();
            let complaint = refused(&start);
            assert!(complaint.contains(named), "{complaint}");
        }
    }

    /// Runs the shell on a database with an input; returns what it says, and its exit code.
    fn shell(directory: &Path, more: &[&str], input: &str) -> (String, Option<i32>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_atrapos"))
            .args(["sql", directory.to_str().expect("UTF-8")])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        (stdout(&output) + &stderr(&output), output.status.code())
    }

    #[test]
    fn the_shell_sends_what_a_copy_asks_for() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("db");
        let served = Served::start(&directory);
        let script = "create table t (id int primary key, name text);\ncopy t from stdin;\n1\tone\n2\ttwo\n\\.\n\
                      select count(*) from t;\n";
        let (said, code) = shell(&directory, &[], script);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("CREATE TABLE\nCOPY 2\ncount\n-----\n2\n"), "{said}");
        let command = ["--command", "copy t from stdin with (format csv)"];
        let (said, code) = shell(&directory, &command, "3,\"three, or more\"\n4,four");
        assert_eq!((said.as_str(), code), ("COPY 2\n", Some(0)));
        let (said, code) = shell(&directory, &command, "5,five\n4,again\n");
        assert!(code == Some(1) && said.contains("ERROR: duplicate key"), "{said}");
        let (said, _) = shell(&directory, &["--command", "copy t to stdout"], "");
        assert_eq!(said, "1\tone\n2\ttwo\n3\tthree, or more\n4\tfour\nCOPY 4\n");
        served.end();
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("db");
        let text = directory.to_str().expect("UTF-8");
        let complaint = refused(&["sql", text]);
        assert!(complaint.contains("no server listens"), "{complaint}");
        let complaint = refused(&["serve", text, "--no-pin", "--auth", "trust", "--listen", "0.0.0.0:0"]);
        assert!(complaint.contains("0.0.0.0:0") && complaint.contains("--auth scram"), "{complaint}");
        let complaint = refused(&["serve", text, "--no-pin", "--password-file", "/nowhere"]);
        assert!(complaint.contains("/nowhere"), "{complaint}");
        let (certificate, key) = ("/nowhere/certificate", "/nowhere/key");
        let complaint = refused(&[
            "serve",
            text,
            "--no-pin",
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
            "--listen",
            "127.0.0.1:0",
        ]);
        assert!(complaint.contains(certificate), "{complaint}");
    }
}
