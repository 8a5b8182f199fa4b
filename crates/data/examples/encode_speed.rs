//! How fast text becomes ids.
//!
//! ```text
//! cargo run --release -p hearken-data --example encode_speed -- text.txt [tokenizer.json …]
//! ```
//! Trains each kind on the first megabyte, then prints the median of five encodings of the whole
//! text in MB/s; tokenizers given by name are loaded and timed too.

use hearken_data::tokenizer::{Kind, Tokenizer, Training};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = std::fs::read_to_string(arguments.next().ok_or("give a text file")?)?;
    let start = &text[..text.floor_char_boundary(1 << 20)];
    for kind in Kind::ALL {
        let fallback = kind == Kind::Character;
        let training = Training { byte_fallback: fallback, ..Training::new(kind) };
        let since = Instant::now();
        let tokenizer = training.train_on_text(start)?;
        print!("{:10} trained in {:6.2} s, ", kind.name(), since.elapsed().as_secs_f64());
        time(&tokenizer, &text)?;
    }
    for path in arguments {
        print!("{path:10} ");
        time(&Tokenizer::load(Path::new(&path))?, &text)?;
    }
    Ok(())
}

fn time(tokenizer: &Tokenizer, text: &str) -> hearken_data::Result<()> {
    let mut seconds = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let since = Instant::now();
        ids = tokenizer.encode(text)?;
        seconds.push(since.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let since = Instant::now();
    tokenizer.decode(&ids)?;
    let decoding = since.elapsed().as_secs_f64();
    let speed = |seconds: f64| text.len() as f64 / 1e6 / seconds;
    println!("encodes {:7.1} MB/s, decodes {:6.1} MB/s", speed(seconds[2]), speed(decoding));
    Ok(())
}
