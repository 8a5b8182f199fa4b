//! One process that reads cases, and tells what each of them took.
//!
//! A line says that a case begins, another how it ended. If the second is missing, the process died
//! in it.

use crate::dice::Dice;
use crate::mutate::mutate;
use crate::subjects::Subject;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

/// Reads the cases of a range, and writes a line before and after each.
pub fn run(
    subject: &Subject,
    seed: u64,
    cases: std::ops::Range<u64>,
    out: &mut impl Write,
) -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let (good, work) = (directory.path().join("good"), directory.path().join("work"));
    fs::create_dir(&good)?;
    (subject.prepare)(&good).map_err(io::Error::other)?;
    let bytes = fs::read(good.join(subject.target))?;
    for case in cases {
        let changed = mutate(&bytes, subject.form, &mut Dice::new(seed, case));
        copy(&good, &work)?;
        fs::write(work.join(subject.target), changed)?;
        writeln!(out, "begin {case}")?;
        out.flush()?;
        writeln!(out, "end {case} {}", read(subject, &work))?;
        out.flush()?;
        fs::remove_dir_all(&work)?;
    }
    Ok(())
}

/// Reads the directory, and tells how it went: `ok` or `refused` or `panicked`, milliseconds, and
/// megabytes beyond those before.
pub fn read(subject: &Subject, work: &Path) -> String {
    let before = resident("VmRSS:");
    // 5 starts the high-water mark anew (proc_pid_clear_refs(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let outcome = match catch_unwind(AssertUnwindSafe(|| (subject.read)(work))) {
        Ok(Ok(())) => "ok",
        Ok(Err(_)) => "refused",
        Err(_) => "panicked",
    };
    let milliseconds = start.elapsed().as_millis();
    let peak = resident("VmHWM:").saturating_sub(before) >> 10;
    format!("{outcome} {milliseconds} {peak}")
}

/// Kilobytes in a line of this process's status; 0 where the system does not tell.
fn resident(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_symlink() {
            #[cfg(unix)]
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
