//! Watching workers: what takes too long or too much is ended and written down.

use crate::subjects::Subject;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a case may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time.
    pub time: Duration,
    /// Megabytes beyond those of the process before.
    pub megabytes: u64,
}

impl Limits {
    /// What is promised for the small files of the subjects: 2 s and 200 MB.
    pub const PROMISED: Self = Self { time: Duration::from_secs(2), megabytes: 200 };

    /// Ten times as much, for machines that are busy.
    pub fn wide() -> Self {
        Self { time: 10 * Self::PROMISED.time, megabytes: 10 * Self::PROMISED.megabytes }
    }
}

/// What was wrong with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The reader panicked, or the process died.
    Crash,
    /// It took more than the limit.
    Hang,
    /// It took more memory than the limit.
    Memory,
}

/// What became of the cases of a subject.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Cases read.
    pub cases: u64,
    /// Of which so many were accepted as good files.
    pub accepted: u64,
    /// The slowest, in milliseconds.
    pub slowest: u64,
    /// The most megabytes.
    pub most_megabytes: u64,
    /// Cases with faults.
    pub faults: Vec<(u64, Fault)>,
}

impl Figures {
    /// Writes a fault down; gives the case after it.
    fn fault(&mut self, case: u64, fault: Fault) -> u64 {
        self.cases += 1;
        self.faults.push((case, fault));
        case + 1
    }

    /// How many cases had this fault.
    pub fn count(&self, fault: Fault) -> usize {
        self.faults.iter().filter(|(_, other)| *other == fault).count()
    }
}

/// A worker that is ended when it is not needed any more.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads `cases` cases of a subject in processes of `program`.
pub fn run(
    program: &Path,
    subject: &Subject,
    seed: u64,
    cases: u64,
    limits: Limits,
) -> io::Result<Figures> {
    let mut figures = Figures::default();
    let mut next = 0;
    while next < cases {
        let mut worker = Worker(
            Command::new(program)
                .args(["worker", subject.name, &seed.to_string()])
                .args([next.to_string(), cases.to_string()])
                .env("HEARKEN_THREADS", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?,
        );
        let Some(out) = worker.0.stdout.take() else { return Err(io::Error::other("no pipe")) };
        let started = next;
        next = follow(&mut worker, out, limits, next, cases, &mut figures)?;
        if next == started && next < cases {
            return Err(io::Error::other(format!("{}: the worker cannot start", subject.name)));
        }
    }
    Ok(figures)
}

/// Follows one worker until it ends or is ended; gives the case to go on with.
fn follow(
    worker: &mut Worker,
    out: impl io::Read + Send + 'static,
    limits: Limits,
    mut next: u64,
    cases: u64,
    figures: &mut Figures,
) -> io::Result<u64> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut under_way: Option<Instant> = None;
    // Preparing the good files may take a while, too.
    let patience = limits.time + Duration::from_mins(1);
    let mut quiet_since = Instant::now();
    loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                quiet_since = Instant::now();
                let words: Vec<&str> = line.split(' ').collect();
                match words[..] {
                    ["begin", ..] => under_way = Some(Instant::now()),
                    ["end", _, outcome, time, memory] => {
                        under_way = None;
                        let [time, memory] =
                            [time, memory].map(|text| text.parse::<u64>().unwrap_or(u64::MAX));
                        let case = next;
                        next += 1;
                        if outcome == "panicked" {
                            figures.fault(case, Fault::Crash);
                        } else if u128::from(time) > limits.time.as_millis() {
                            figures.fault(case, Fault::Hang);
                        } else if memory > limits.megabytes {
                            figures.fault(case, Fault::Memory);
                        } else {
                            figures.cases += 1;
                            figures.accepted += u64::from(outcome == "ok");
                            figures.slowest = figures.slowest.max(time);
                            figures.most_megabytes = figures.most_megabytes.max(memory);
                        }
                    }
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if under_way.is_some_and(|since| since.elapsed() > limits.time) {
                    return Ok(figures.fault(next, Fault::Hang));
                }
                if resident_megabytes(worker.0.id()) > 10 * limits.megabytes {
                    return Ok(figures.fault(next, Fault::Memory)); // before it takes the machine's all
                }
                if under_way.is_none() && quiet_since.elapsed() > patience {
                    return Err(io::Error::other("the worker does nothing"));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _ = worker.0.wait();
                return Ok(if under_way.is_some() && next < cases {
                    figures.fault(next, Fault::Crash)
                } else {
                    next
                });
            }
        }
    }
}

fn resident_megabytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0) >> 10
}
