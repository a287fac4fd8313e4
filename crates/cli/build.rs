//! Tells the program which commit it was built from, so that every result can say so: `unknown` when there is none.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A commit moves the branch; a checkout moves HEAD. Paths that are not there would make every build a fresh one.
    let directory = git(&["rev-parse", "--absolute-git-dir"]);
    let common = git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    for directory in [directory, common].into_iter().flatten() {
        for name in ["HEAD", "logs/HEAD", "packed-refs", "refs/heads"] {
            let path = Path::new(&directory).join(name);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let commit = git(&["rev-parse", "--verify", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=ATRAPOS_COMMIT={commit}");
}

/// What git answers, if there is a git, a repository, and an answer.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    let answer = answer.trim();
    (output.status.success() && !answer.is_empty()).then(|| answer.to_owned())
}
