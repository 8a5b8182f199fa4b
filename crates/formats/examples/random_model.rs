//! Writes a model with random weights: something for other programs to load. Norms are not 1 and
//! biases not 0, so that one that is lost on the way shows.
//!
//! ```sh
//! cargo run --example random_model -- gpt2-small DIR
//! cargo run --example random_model -- configs/bench/small.toml DIR
//! ```

use hearken_formats::SpecialTokens;
use hearken_nn::{models, presets, scope::Weights};
use hearken_tensor::{Role, rng::Rng};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, directory] = arguments.as_slice() else {
        return Err("give a configuration (file or preset) and a directory".into());
    };
    let text = match presets::find(config) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(config)?,
    };
    let mut config = presets::model_of(&text, config)?;
    if config.vocabulary() == 0 {
        config.set_vocabulary(1000); // left to the tokenizer, and there is none here
    }
    config.validate()?;
    let model = models::build(&config, Weights::Drawn { seed: 1 });
    for (i, parameter) in model.parameters().iter().enumerate() {
        if parameter.role() == Role::Vector {
            let mut value = parameter.value();
            let noise = Rng::new(i as u64).normal(value.shape(), 0.1);
            value.data_mut().iter_mut().zip(noise.data()).for_each(|(x, noise)| *x += noise);
            parameter.set_value(value);
        }
    }
    let directory = Path::new(directory);
    let family = hearken_formats::save(directory, model.as_ref(), &SpecialTokens::default())?;
    println!("{family:?} in {}", directory.display());
    Ok(())
}
