//! The processes around a test: the browser's driver, and the page.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A process that ends with the test.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the driver on a free port, and gives its address.
pub fn driver() -> Result<(Process, String)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let child = Command::new("chromedriver")
        .arg(format!("--port={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let process = Process(child);
    for _ in 0..100 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok((process, format!("http://127.0.0.1:{port}")));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Err("chromedriver does not answer".into())
}

/// Runs a command of hearken, and gives what it printed.
pub fn hearken(binary: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("hearken {}: {error}", arguments.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Starts the page, and gives its address.
pub fn page(binary: &Path, arguments: &[&str]) -> Result<(Process, String)> {
    let mut child = Command::new(binary)
        .args(["explain", "--page"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take();
    let process = Process(child);
    let mut address = String::new();
    BufReader::new(stdout.ok_or("no output")?).read_line(&mut address)?;
    if address.trim().is_empty() {
        return Err("the page did not start".into());
    }
    Ok((process, address.trim().to_owned()))
}
