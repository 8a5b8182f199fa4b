//! What this machine is, and how fast it can be.

mod container;

use hearken::kernels::{isa, peak, threads};
use serde::Serialize;
use std::path::Path;

/// The processor and how the kernels use it.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// What the processor calls itself.
    pub(crate) cpu: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The features that matter to the kernels.
    pub(crate) features: Vec<&'static str>,
    /// The instruction set chosen.
    pub(crate) simd: &'static str,
    /// The threads chosen.
    pub(crate) threads: usize,
}

impl Machine {
    pub(crate) fn of_this_process() -> Self {
        Self {
            cpu: cpu_name(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            features: features(),
            simd: isa::current().name(),
            threads: threads::count(),
        }
    }
}

/// The most that the hardware gives, measured: what timings are held against.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Peak {
    /// The most that products of matrices could reach, 10⁹ floating-point operations per second of f32:
    /// multiply-adds out of registers, or AMX tiles where they are in use.
    pub(crate) gflops: f64,
    /// Multiply-adds out of registers.
    pub(crate) fma_gflops: f64,
    /// Reading memory far larger than the caches, 10⁹ bytes per second.
    pub(crate) read_gb_per_second: f64,
}

impl Peak {
    /// Measures on so many threads, in about half a second.
    pub(crate) fn measure(threads: usize) -> Self {
        threads::with_threads(threads, || {
            let fma_gflops = peak::fma_gflops();
            Self {
                gflops: peak::tile_gflops().unwrap_or(fma_gflops),
                fma_gflops,
                read_gb_per_second: peak::read_gb_per_second(),
            }
        })
    }

    /// [`Peak::gflops`] alone, on all threads, in about a tenth of a second.
    pub(crate) fn measure_gflops() -> f64 {
        peak::product_gflops()
    }
}

/// The most memory that this process ever had in RAM, in bytes, where the system tells.
pub(crate) fn peak_resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kilobytes(&status, "VmHWM:").map(|kb| kb * 1024)
}

/// Starts [`peak_resident_bytes`] anew, where the system can.
pub(crate) fn reset_peak_resident() {
    // 5 resets the high-water mark (proc_pid_clear_refs(5)). Where it is missing or forbidden,
    // the mark stays what it was: an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that can be had without swapping, where the system tells: of the machine, or of the container
/// that this process is in, whichever are fewer.
pub(crate) fn available_bytes() -> Option<usize> {
    let info = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = info.and_then(|info| kilobytes(&info, "MemAvailable:")).map(|kb| kb * 1024);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(container::free_bytes(&groups, Path::new("/sys/fs/cgroup"))).min()
}

/// The number in a line such as `VmHWM:    1234 kB`.
fn kilobytes(text: &str, key: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line[key.len()..].trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(target_arch = "x86_64")]
fn cpu_name() -> String {
    use std::arch::x86_64::__cpuid;
    // Leaves 0x80000002 to 4 hold 48 bytes of ASCII, padded with zeros; leaf 0x80000000 says
    // whether they are there.
    if __cpuid(0x8000_0000).eax < 0x8000_0004 {
        return "unknown x86-64 processor".to_owned();
    }
    let bytes: Vec<u8> = (0x8000_0002..=0x8000_0004)
        .map(__cpuid)
        .flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx])
        .flat_map(u32::to_le_bytes)
        .take_while(|&byte| byte != 0)
        .collect();
    // Some are padded with spaces inside.
    String::from_utf8_lossy(&bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        ["model name", "Model", "uarch"].contains(&key.trim()).then(|| value.trim().to_owned())
    });
    named.unwrap_or_else(|| format!("unknown {} processor", std::env::consts::ARCH))
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt),*) => {
            [$(($name, is_x86_feature_detected!($name))),*]
        };
    }
    let all = present!(
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512vnni",
        "avx512bf16"
    );
    let amx = [("amx", isa::Isa::Amx.available())];
    all.into_iter().chain(amx).filter_map(|(name, present)| present.then_some(name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new() // the kernels use none of them there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_are_read_from_their_line() {
        let text = "Name:\thearken\nVmHWM:\t    1234 kB\nThreads:\t1\n";
        assert_eq!(kilobytes(text, "VmHWM:"), Some(1234));
        assert_eq!(kilobytes(text, "VmSwap:"), None);
        assert_eq!(kilobytes(text, "Name:"), None);
    }

    #[test]
    fn the_processor_has_a_name() {
        assert!(!cpu_name().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn resident_memory_is_more_than_nothing() {
        assert!(peak_resident_bytes().unwrap() > 100_000);
        assert!(available_bytes().unwrap() > 100_000);
    }
}
