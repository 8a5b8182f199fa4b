//! What the peers in Rust share: the shape from the arguments, random tokens, and the one line of
//! JSON that `benches/peers/train` reads.

use std::time::Instant;

/// Sizes of the model and of a step. The legend is Hearken's: C = width, H = heads, T = context,
/// B = batch, V = vocabulary, L = layers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub context: usize,
    pub batch: usize,
    pub vocab: usize,
    pub steps: usize,
}

impl Shape {
    /// Reads `--layers N --width N --heads N --context N --batch N --vocab N --steps N [--json]`.
    /// The output is JSON with and without `--json`.
    pub fn from_arguments() -> Self {
        let mut shape = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--json" => continue,
                "--layers" => &mut shape.layers,
                "--width" => &mut shape.width,
                "--heads" => &mut shape.heads,
                "--context" => &mut shape.context,
                "--batch" => &mut shape.batch,
                "--vocab" => &mut shape.vocab,
                "--steps" => &mut shape.steps,
                _ => stop(&format!("there is no argument {word}")),
            };
            let number = words.next().and_then(|text| text.parse().ok());
            *place = number.unwrap_or_else(|| stop(&format!("{word} needs a whole number")));
        }
        let Self { layers, width, heads, context, batch, vocab, steps } = shape;
        if [layers, width, heads, context, batch, vocab, steps].contains(&0) || width % heads != 0 {
            stop("every size must be given and above 0, and heads must divide the width");
        }
        shape
    }

    /// B × T random tokens, other ones for another `seed`.
    pub fn random_tokens(&self, seed: u64) -> Vec<u32> {
        let mut state = seed;
        let mut draw = || {
            // Knuth's linear congruential generator (MMIX); its high bits are random enough here.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % self.vocab as u64) as u32
        };
        (0..self.batch * self.context).map(|_| draw()).collect()
    }

    /// Runs two steps to warm up and then those to be timed; `step` gives its loss.
    pub fn measure(&self, mut step: impl FnMut() -> f32) {
        let loss_first = step();
        step();
        let (mut milliseconds, mut loss_last) = (Vec::new(), f32::NAN);
        for _ in 0..self.steps {
            let start = Instant::now();
            loss_last = step();
            milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
        }
        milliseconds.sort_by(f64::total_cmp);
        let (below, above) = ((self.steps - 1) / 2, self.steps / 2);
        println!(
            "{{\"ms_per_step\": {}, \"ms_min\": {}, \"peak_rss_bytes\": {}, \
             \"loss_first\": {loss_first}, \"loss_last\": {loss_last}}}",
            f64::midpoint(milliseconds[below], milliseconds[above]),
            milliseconds[0],
            peak_resident_bytes()
        );
    }
}

/// The most memory that this process ever had in RAM; 0 where the system does not tell.
fn peak_resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0_usize) * 1024
}

fn stop(message: &str) -> ! {
    eprintln!("error: {message}");
    std::process::exit(2);
}
