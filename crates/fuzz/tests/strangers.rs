//! Damaged files are refused, quickly and in little memory.

use hearken_fuzz::past;
use hearken_fuzz::subjects;
use hearken_fuzz::supervise::{self, Limits};
use std::path::Path;
use std::time::{Duration, Instant};

/// Cases of each subject; `scripts/fuzz` runs a hundred times as many.
const CASES: u64 = 120;

#[test]
fn damaged_files_neither_crash_nor_hang_nor_take_all_memory() {
    let program = Path::new(env!("CARGO_BIN_EXE_hearken-fuzz"));
    for subject in subjects::all() {
        let figures = supervise::run(program, &subject, 7, CASES, Limits::wide()).unwrap();
        assert_eq!(figures.cases, CASES, "{}", subject.name);
        assert!(figures.faults.is_empty(), "{}: {:?}", subject.name, figures.faults);
    }
}

#[test]
fn what_once_did_harm_is_refused() {
    for past in past::ALL {
        let subject = past.subject().unwrap_or_else(|| panic!("no subject for: {}", past.name));
        let directory = tempfile::tempdir().unwrap();
        past.prepare(&subject, directory.path()).unwrap();
        let start = Instant::now();
        let Err(error) = (subject.read)(directory.path()) else {
            panic!("accepted: {}", past.name)
        };
        assert!(error.hint().is_some(), "{}: no hint: {error}", past.name);
        assert!(start.elapsed() < Duration::from_secs(20), "{}: too slow", past.name);
    }
}
