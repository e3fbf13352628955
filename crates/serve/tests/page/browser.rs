//! A headless Chromium, driven by its DevTools protocol over a pair of pipes: no port, no other program.
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Names under which distributions install it.
const PROGRAMS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Longest wait for an answer: a cold start on two busy cores takes seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The browser on the PATH; `None`, with a message, where there is none (`cargo xtask web` installs it).
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| PROGRAMS.iter().map(move |name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: no Chromium on the PATH; `cargo xtask web` installs it");
    }
    found
}

/// One browser with one tab.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    last_id: u64,
    /// Everything the page did that a page without errors does not: requests to others, console errors, exceptions.
    pub(crate) complaints: Vec<String>,
    /// What it may ask for: itself, or all of its server.
    own: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts `program` and opens `file`, which may ask for nothing, in a window of the given size.
    pub(crate) fn open(program: &Path, file: &Path, width: u32, height: u32) -> Browser {
        Browser::open_url(program, &format!("file://{}", file.display()), width, height)
    }

    /// The same with an address, whose page may ask for what is below it.
    pub(crate) fn open_url(program: &Path, url: &str, width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-extensions"])
            .args(["--hide-scrollbars=false", "--force-color-profile=srgb", "--remote-debugging-pipe"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let to = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).expect("DevTools speaks JSON");
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let (session, complaints, own) = (String::new(), Vec::new(), url.to_owned());
        let mut browser = Browser { child, to, from, session, last_id: 0, complaints, own, _profile: profile };
        browser.attach(width, height);
        browser.call("Page.navigate", json!({ "url": url }));
        browser.until("globalThis.mycroft");
        browser
    }

    fn attach(&mut self, width: u32, height: u32) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        self.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Calls a DevTools method and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": &params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).expect("JSON");
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        // What the page tells meanwhile is no answer.
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(left).unwrap_or_else(|e| panic!("{method} {params}: no answer: {e}"));
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Keeps what a self-contained page without errors would not cause.
    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let bad = match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let itself = url.starts_with(&self.own);
                !itself && !url.starts_with("data:") && url != "about:blank"
            }
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => params["type"] == "error" || params["type"] == "warning",
            "Log.entryAdded" => params["entry"]["level"] == "error" || params["entry"]["level"] == "warning",
            _ => false,
        };
        if bad {
            self.complaints.push(event.to_string());
        }
    }

    /// Value of an expression in the page; promises are waited for.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let look = format!("const look = () => ({expression}) ? done(1) : setTimeout(look, 5); look();");
        self.eval(&format!("new Promise((done) => {{ {look} }})"));
    }

    /// Presses and releases a key, with modifiers (1 Alt, 2 Control, 8 Shift).
    pub(crate) fn key(&mut self, key: &str, modifiers: u32) {
        let code = if key.len() == 1 { key.to_uppercase().bytes().map(u32::from).sum() } else { 0 };
        let mut down = json!({ "type": "keyDown", "key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code });
        if key.len() == 1 && modifiers & 2 == 0 {
            down["text"] = json!(key);
        }
        if key == "Enter" {
            down["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "modifiers": modifiers }));
    }

    /// A mouse event: `mouseMoved`, `mousePressed`, `mouseReleased`.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let pressed = if kind == "mouseMoved" { "none" } else { "left" };
        let params = json!({ "type": kind, "x": x, "y": y, "button": pressed, "buttons": 1, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// The whole page as PNG.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "clip": clip }));
        write_base64(file, &shot["data"]);
    }

    /// The page as printed, PDF.
    pub(crate) fn print(&mut self, file: &Path) {
        let printed = self.call("Page.printToPDF", json!({ "printBackground": true }));
        write_base64(file, &printed["data"]);
    }
}

fn write_base64(file: &Path, data: &Value) {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(data.as_str().expect("data")).expect("base64");
    std::fs::write(file, bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asks first, so that its helpers end with it; a panic may have left it without an ear.
        self.session.clear();
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        while self.from.recv_timeout(Duration::from_secs(5)).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
