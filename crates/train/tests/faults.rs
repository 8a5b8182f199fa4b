//! A disk that fails, and a process that dies, at every single operation: nothing that was saved is
//! lost, and the run goes on to the same bits.

#[allow(dead_code, reason = "other tests use more of it")]
mod common;

use common::{Network, bits, config, setup};
use hearken_store::disk::faults::{self, Fault};
use hearken_train::{Error, Kind, Precision, Summary, TrainConfig, checkpoint, train};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use tempfile::TempDir;

/// A directory, in memory if possible: it is forced to disk hundreds of times.
fn tempdir() -> std::io::Result<TempDir> {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new())
}

/// Seven steps with two checkpoints, the first of which is removed for the second.
fn short() -> TrainConfig {
    TrainConfig {
        steps: 7,
        checkpoint_every: 3,
        evaluate_every: 0,
        observe_every: 0,
        sample_every: 5,
        keep: 1,
        precision: Precision::F32,
        schedule: hearken_train::ScheduleConfig::Cosine { warmup: 1, floor: 0.1 },
        ..config()
    }
}

fn run(path: &Path) -> Result<(Summary, Vec<u32>), Error> {
    let mut network = Network { dropout: 0.1, ..Network::new() };
    let summary = train(&mut network, &short(), setup(path))?;
    Ok((summary, bits(&network)))
}

/// Held by a test that starts processes or locks directories: a process that is just being started
/// holds the locks of this one for a moment.
static ALONE: Mutex<()> = Mutex::new(());

/// The bits that an undisturbed run comes to.
fn undisturbed() -> Vec<u32> {
    run(tempdir().unwrap().path()).unwrap().1
}

/// Every checkpoint that has its name is whole.
fn assert_sound(path: &Path) {
    for entry in std::fs::read_dir(path.join("checkpoints")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("step-") {
            checkpoint::verify(&entry.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn an_error_at_any_operation_loses_nothing() {
    let _alone = ALONE.lock();
    let want = undisturbed();
    let kinds = [
        Fault::Once(ErrorKind::Other), // EIO has no kind of its own
        Fault::Lasting(ErrorKind::StorageFull),
        Fault::Lasting(ErrorKind::ReadOnlyFilesystem),
        Fault::Once(ErrorKind::PermissionDenied),
    ];
    for fault in kinds {
        let mut failed = 0;
        for at in 0.. {
            let directory = tempdir().unwrap();
            let path = directory.path().join("run");
            let (result, reached) = faults::with(at, fault, || run(&path));
            if !reached {
                break;
            }
            assert_sound(&path);
            match result {
                // What can be made again, such as a report, ends no run.
                Ok((_, bits)) => assert_eq!(bits, want, "{fault:?} at {at}"),
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error.kind(), Kind::Io(_)), "{fault:?} at {at}: {error}");
                }
            }
            let (_, again) = run(&path).unwrap_or_else(|e| panic!("{fault:?} at {at}: {e}"));
            assert_eq!(again, want, "{fault:?} at {at}");
        }
        assert!(failed > 30, "{fault:?}: only {failed} operations failed");
    }
}

/// Set for the process that is to die, to the operation and the directory.
const DEATH: &str = "HEARKEN_TEST_DEATH";

/// The process that dies; by itself this does nothing.
#[test]
fn the_process_that_dies() {
    let Ok(told) = std::env::var(DEATH) else { return };
    let (at, path) = told.split_once(' ').unwrap();
    let (_, reached) =
        faults::with(at.parse().unwrap(), Fault::Death, || run(Path::new(path)).unwrap());
    assert!(!reached);
}

#[test]
fn death_at_any_operation_loses_nothing() {
    let _alone = ALONE.lock();
    let want = undisturbed();
    let mut deaths = 0;
    for at in 0.. {
        let directory = tempdir().unwrap();
        let path = directory.path().join("run");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_dies", "--quiet"])
            .env(DEATH, format!("{at} {}", path.display()))
            .output()
            .unwrap();
        if child.status.success() {
            break; // it had no such operation
        }
        deaths += 1;
        assert_sound(&path);
        let (_, again) = run(&path).unwrap_or_else(|e| panic!("at {at}: {e}"));
        assert_eq!(again, want, "at {at}");
        let left = |directory: &Path| {
            let names = std::fs::read_dir(directory).unwrap().flatten();
            let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
            names
                .filter(|n| n.contains(".tmp-") || n.starts_with(".unfinished"))
                .collect::<Vec<_>>()
        };
        assert_eq!(left(&path), [""; 0], "at {at}");
        assert_eq!(left(&path.join("checkpoints")), [""; 0], "at {at}");
    }
    assert!(deaths > 60, "only {deaths} operations");
}
