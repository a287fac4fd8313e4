//! The files of the dashboard, which are part of the program: nothing is fetched from elsewhere.
//!
//! Owns: their paths and types. Never: knows what they show.

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Returns the type and the text of the file at a path.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/" => (HTML, include_str!("../dashboard/index.html")),
        "/dashboard.css" => (CSS, include_str!("../dashboard/dashboard.css")),
        "/dashboard.js" => (SCRIPT, include_str!("../dashboard/dashboard.js")),
        "/page.js" => (SCRIPT, include_str!("../dashboard/page.js")),
        "/charts.js" => (SCRIPT, include_str!("../dashboard/charts.js")),
        "/machine.js" => (SCRIPT, include_str!("../dashboard/machine.js")),
        "/partitions.js" => (SCRIPT, include_str!("../dashboard/partitions.js")),
        "/decisions.js" => (SCRIPT, include_str!("../dashboard/decisions.js")),
        "/locks.js" => (SCRIPT, include_str!("../dashboard/locks.js")),
        _ => return None,
    })
}
