//! Prints stories of the embedded language, and the floor that no model can beat.
//!
//! ```text
//! cargo run -p hearken-data --example stories -- 1 1000
//! ```

use hearken_data::stories;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut next = |default| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (seed, characters) = (next(1), next(1000));
    print!("{}", stories::text(seed, characters as usize));
    let floor = stories::floor();
    eprintln!(
        "floor: {:.4} nats per character ({:.4} nats and {:.2} characters per story, at most {})",
        floor.nats_per_character(),
        floor.nats_per_story,
        floor.characters_per_story,
        stories::longest(),
    );
}
