use hearken::infer::sampler::Sampling;

fn main() {
    let logits = [4.0, 3.2, 2.9, 2.0, 1.5, 0.2]; // mat floor sofa table roof moon
    for temperature in [0.5, 1.0, 2.0] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        println!("τ = {temperature}: {:?}", sampling.candidates(&logits, &[])[0]);
    }
    let top_p = Sampling { top_p: Some(0.9), seed: 1, ..Sampling::default() };
    let kept = top_p.candidates(&logits, &[]); // the likeliest first, summing to 1
    assert_eq!(kept.len(), 4);
    let drawn = top_p.choose(&logits, &[], 0); // at position 0 of a text
    assert!(kept.iter().any(|candidate| candidate.id == drawn.id));
}
