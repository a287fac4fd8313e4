//! A headless Chromium for a test, told what to do by the DevTools protocol over two pipes.
//!
//! Owns: starting it, its messages, and its end. Never: reaches any address but the server's: it is told to ask no proxy and to fetch nothing
//! of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

/// The names under which it is installed.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

/// A page in a browser, which ends with it.
pub(crate) struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    sent: u64,
    session: String,
    /// Keeps what the browser writes.
    _profile: tempfile::TempDir,
}

impl Page {
    /// Opens an address.
    pub(crate) fn open(address: &str) -> Page {
        let is_there = |program: &&str| {
            Command::new(program).arg("--version").output().is_ok_and(|made| made.status.success())
        };
        let program =
            PROGRAMS.into_iter().find(is_there).expect("Chromium; the Debian package is named chromium");
        let profile = tempfile::tempdir().expect("a directory");
        // Its pipes are 3 and 4; nothing is read of the network but what the page asks for.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut browser = Command::new("sh")
            .args([
                "-c",
                script,
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args(["--remote-debugging-pipe", "--no-proxy-server", "--disable-background-networking"])
            .args(["--disable-component-update", "--no-first-run", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (to, from) = (browser.stdin.take().expect("a pipe"), browser.stdout.take().expect("a pipe"));
        let from = BufReader::new(from);
        let mut page = Page { browser, to, from, sent: 0, session: String::new(), _profile: profile };
        let made = page.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        page.session =
            page.call("Target.attachToTarget", &attach)["sessionId"].as_str().expect("a session").to_owned();
        page.call("Page.enable", &json!({}));
        page.call("Page.navigate", &json!({ "url": address }));
        page.until("document.readyState === 'complete'");
        page
    }

    /// Calls a method and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.to.write_all(message.to_string().as_bytes()).expect("sent");
        self.to.write_all(b"\0").expect("sent");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("read");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            // What has no number tells of an event.
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Returns the value of an expression; that of a promise is waited for.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until a condition of the page holds, which has to happen.
    pub(crate) fn until(&mut self, condition: &str) {
        let promise = format!(
            "new Promise((done) => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.value(&promise), true);
    }

    /// Returns true if a condition holds at the latest after so many refreshes of the page from now on.
    pub(crate) fn within(&mut self, refreshes: u32, condition: &str) -> bool {
        let promise = format!(
            "new Promise((done) => {{ const number = () => Number(document.body.dataset.refreshes); const last = number() + {refreshes};
             const look = () => ({condition}) ? done(true) : number() > last ? done(false) : setTimeout(look, 20); look(); }})"
        );
        self.value(&promise) == true
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            other => panic!("the code of {other} is not known here"),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            event["text"] = "\r".into();
        }
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", &event);
    }

    /// Types a text.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Makes the window so wide, of this scheme of colours.
    pub(crate) fn show(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Photographs the whole page.
    pub(crate) fn photograph(&mut self, path: &Path) {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", &whole);
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(picture["data"].as_str().expect("a picture"))
            .expect("base64");
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
