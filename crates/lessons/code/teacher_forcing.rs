use hearken::nn::config::{DecoderConfig, StackConfig};
use hearken::nn::models::{Decoder, PredictsTokens, Tokens};

fn main() {
    let stack = StackConfig::new(1, 16, 2); // layers, width, heads
    let config = DecoderConfig { vocabulary: 6, context: 8, tied: true, stack };
    let model = Decoder::drawn(config, 1);
    let sentence = [0, 1, 2, 3, 4, 5]; // SOS Le chat s'est assis EOS
    let (inputs, targets) = (&sentence[..5], &sentence[1..]);
    let losses = model.token_losses(&Tokens::new(inputs, 1), targets); // all five at once
    println!("{:?}", losses.data());
    let first = model.token_losses(&Tokens::new(&inputs[..1], 1), &targets[..1]);
    assert!((losses.data()[0] - first.data()[0]).abs() < 1e-5); // as if nothing came after
}
