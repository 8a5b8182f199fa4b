//! How much memory loading takes: writes a random model shaped like GPT-2, loads it in a process of
//! its own for each storage, and prints the most anonymous memory against what the weights take.
//!
//! ```sh
//! cargo run --release -p hearken-formats --example load_memory
//! ```
//!
//! Linux only: it reads `/proc/self/status`.

use hearken_formats::{SpecialTokens, load_as, save};
use hearken_nn::config::{BiasConfig, DecoderConfig, StackConfig};
use hearken_nn::models::Decoder;
use hearken_tensor::{Role, Storage};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, directory] = arguments.as_slice() {
        return match command.as_str() {
            "write" => write(Path::new(directory)),
            "f32" => measure(Path::new(directory), Storage::F32),
            _ => measure(Path::new(directory), Storage::Bf16),
        };
    }
    let directory = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    for command in ["write", "f32", "bf16"] {
        let status = Command::new(&own).arg(command).arg(directory.path()).status()?;
        if !status.success() {
            return Err(format!("{command} failed").into());
        }
    }
    Ok(())
}

/// 7 layers of GPT-2 small with a vocabulary of 257: 50 million parameters, 201 MB.
fn write(directory: &Path) -> Result<(), Box<dyn Error>> {
    let stack = StackConfig { bias: BiasConfig::ALL, ..StackConfig::new(7, 768, 12) };
    let config = DecoderConfig { vocabulary: 257, context: 1024, tied: true, stack };
    let model = Decoder::drawn(config, 1);
    let before = anonymous()?;
    let (family, peak) = peak_of(|| save(directory, &model, &SpecialTokens::default()));
    let more = peak.saturating_sub(before);
    println!("saved as {:?}: {} MB more than the model itself", family?, more >> 20);
    Ok(())
}

fn measure(directory: &Path, storage: Storage) -> Result<(), Box<dyn Error>> {
    let before = anonymous()?;
    let start = Instant::now();
    let (loaded, peak) = peak_of(|| load_as(directory, storage));
    let (loaded, seconds) = (loaded?, start.elapsed().as_secs_f64());
    let size = |role| if storage == Storage::F32 || role == Role::Vector { 4 } else { 2 };
    let parameters = loaded.model.parameters();
    let weights: usize = parameters.iter().map(|p| p.shape().len() * size(p.role())).sum();
    let taken = peak.saturating_sub(before);
    println!(
        "{storage:?}: weights {:.1} MB, at most {:.1} MB taken, {:.2} times, {seconds:.2} s",
        weights as f64 / 1e6,
        taken as f64 / 1e6,
        taken as f64 / weights as f64
    );
    Ok(())
}

/// The most anonymous memory while `f` runs, as a second thread sees it every millisecond and this
/// one at the end.
fn peak_of<T: Send>(f: impl FnOnce() -> T) -> (T, usize) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(anonymous().unwrap_or(0));
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let result = f();
        let last = anonymous().unwrap_or(0);
        done.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap_or(0).max(last))
    })
}

/// Bytes of anonymous memory that this process has now.
fn anonymous() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.ok_or("no RssAnon in /proc/self/status")?.parse::<usize>()? << 10)
}
