//! Every lesson says what is true. Expected values come from the mission's table, from closed forms
//! computed here in f64, or from a bound with its reason.

use hearken_lessons::{Sheet, find};
use std::f64::consts::{LN_2, PI};

fn run(name: &str) -> Sheet {
    find(name).unwrap_or_else(|| panic!("no lesson {name}")).run()
}

#[track_caller]
fn close(sheet: &Sheet, name: &str, want: &[f64], tolerance: f64) {
    let got = sheet.numbers(name);
    assert_eq!(got.len(), want.len(), "{name}: {got:?}, expected {want:?}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= tolerance, "{name}: {got:?}, expected {want:?}");
    }
}

#[track_caller]
fn below(sheet: &Sheet, name: &str, most: f64) {
    let got = sheet.number(name);
    assert!(got.abs() <= most, "{name}: {got}, expected at most {most}");
}

fn softmax(z: &[f64]) -> Vec<f64> {
    let sum: f64 = z.iter().map(|z| z.exp()).sum();
    z.iter().map(|z| z.exp() / sum).collect()
}

#[test]
fn descent() {
    let s = run("descent");
    close(&s, "f′(3)", &[6.0], 0.0);
    close(&s, "x₁₀", &[0.3221], 5e-5);
    close(&s, "f(x₁₀)", &[0.1038], 5e-5);
    let factor = |lr: f64| 3.0 * (1.0 - 2.0 * lr).powi(10);
    close(&s, "x₁₀ by α", &[0.01, 0.1, 0.5, 1.0, 1.1].map(factor), 1e-4);
}

#[test]
fn flow() {
    let s = run("flow");
    close(&s, "x(1), exact", &[3.0 * (-2f64).exp()], 1e-12);
    close(&s, "error(α = 0.025) / error(α = 0.0125)", &[2.0], 0.05);
    close(&s, "walk with 0.75", &[3.0, -1.5, 0.75], 1e-6);
}

#[test]
fn two_variables() {
    let s = run("two-variables");
    close(&s, "∇f at (3, −1)", &[6.0, -2.0], 0.0);
    close(&s, "bowl, α = 0.09", &[3.0 * 0.82f64.powi(20), 0.82f64.powi(20)], 1e-5);
    close(&s, "valley, α = 0.09", &[3.0 * 0.82f64.powi(20), 0.8f64.powi(20)], 1e-5);
    close(&s, "valley, α = 0.11", &[3.0 * 0.78f64.powi(20), 1.2f64.powi(20)], 1e-2);
}

#[test]
fn matrix_form() {
    let s = run("matrix-form");
    // Ŷ − Y = [−1.5, −0.5, 0, −1], so Xᵀ(Ŷ − Y)/2 = [−1.75, −1.75].
    close(&s, "Ŷ − Y with W = [0.5, −0.5], b = 0", &[-1.5, -0.5, 0.0, -1.0], 1e-6);
    close(&s, "∂L/∂W", &[-1.75, -1.75], 1e-6);
    below(&s, "largest difference", 1e-6);
    close(&s, "W at the end", &[1.0, 0.0], 1e-4);
}

#[test]
fn perceptron() {
    let s = run("perceptron");
    let a = [0.6f64, 0.7, -0.2, 0.1, 0.3, 0.9].map(f64::tanh);
    close(&s, "A₁", &a, 1e-6);
    below(&s, "largest difference", 1e-6);
    let by_differences = s.number("∂L/∂W₁ [0, 0] by differences, h = 0.01");
    assert!((by_differences - s.number("∂L/∂W₁ [0, 0]")).abs() < 1e-4);
}

#[test]
fn softmax_lesson() {
    let s = run("softmax");
    let p = [0.5050, 0.0835, 0.0375, 0.3741];
    close(&s, "softmax", &p, 5e-5);
    close(&s, "softmax of scores + 5", &p, 5e-5);
    close(&s, "−ln 0.9", &[0.1054], 5e-5);
    close(&s, "−ln 0.01", &[4.6052], 5e-5);
    close(&s, "∂L/∂z", &[0.5050, 0.0835, 0.0375, 0.3741 - 1.0], 5e-5);
    below(&s, "largest difference", 1e-6);
}

#[test]
fn overflow() {
    let s = run("overflow");
    assert!(s.numbers("as written, for [1000, 999, 990]").iter().all(|x| x.is_nan()));
    close(&s, "Hearken's softmax", &softmax(&[10.0, 9.0, 0.0]), 1e-6);
    close(&s, "losses at ±10⁴", &[0.0, 20_000.0, LN_2, (1f64.exp() + 1.0).ln()], 1e-3);
    close(&s, "10,000 and 9,999 in bfloat16", &[9984.0, 9984.0], 0.0);
    close(&s, "10,000 and 9,999 in half float", &[10_000.0, 10_000.0], 0.0);
    assert_eq!(s.number("10⁶ in half float"), f64::INFINITY);
}

#[test]
fn cosine() {
    let s = run("cosine");
    close(&s, "u·v", &[0.64], 1e-6);
    close(&s, "cosine", &[0.9785], 5e-5);
    close(&s, "distance", &[0.1732], 5e-5);
    close(&s, "cosine of cat and 2·cat", &[1.0], 1e-6);
    let (a, b) = (s.number("distance² of the unit vectors"), s.number("2 − 2·cosine"));
    assert!((a - b).abs() < 1e-6, "{a} {b}");
}

#[test]
fn dimensions() {
    let s = run("dimensions");
    let deviations = s.numbers("deviation of cosine");
    for (d, got) in [10.0f64, 100.0, 1000.0].iter().zip(&deviations[1..]) {
        // Of 400 pairs, a deviation is off by its own 1/√800, 3.5 %; four of them.
        assert!((got * d.sqrt() - 1.0).abs() < 0.15, "{d}: {got}");
    }
    let spreads = s.numbers("relative spread of distance");
    assert!((spreads[3] - 1.0 / 2000f64.sqrt()).abs() < 0.004, "{spreads:?}");
    assert!(s.number("in deviations") > 5.0);
}

#[test]
fn lookup() {
    let s = run("lookup");
    close(&s, "library", &[0.212, 0.472, 0.316], 5e-4);
    close(&s, "students", &[0.345, 0.147, 0.180, 0.328], 5e-4);
    close(&s, "τ = 0.01", &[0.0, 1.0, 0.0], 1e-6);
    close(&s, "τ = 10", &softmax(&[0.01, 0.09, 0.05]), 1e-6);
    assert!(s.numbers("weights of ct")[0] > 0.9 && s.numbers("weights of catt")[0] > 0.9);
}

#[test]
fn three_matrices() {
    let s = run("three-matrices");
    close(&s, "XXᵀ", &[1.0, 0.8, 0.0, 0.8, 1.0, 0.6, 0.0, 0.6, 1.0], 1e-6);
    below(&s, "XXᵀ − (XXᵀ)ᵀ, largest", 0.0);
    // K = X·W_Kᵀ = [[0, 0.2], [0.6, 0.16], [1, 0]].
    close(&s, "QKᵀ", &[0.0, 0.6, 1.0, 0.12, 0.576, 0.8, 0.2, 0.16, 0.0], 1e-6);
    close(&s, "QKᵀ − (QKᵀ)ᵀ, largest", &[0.8], 1e-6);
}

#[test]
fn tiny_attention() {
    let s = run("tiny-attention");
    close(&s, "QKᵀ", &[1.0, 2.0, 1.0, 1.0], 1e-6);
    close(&s, "A", &[0.3595, 0.6405, 0.5, 0.5], 5e-5);
    close(&s, "O = AV", &[1.3595, 0.6405, 0.3595, 1.5, 0.5, 0.5], 5e-5);
    close(&s, "G_V", &[0.3595, 0.5, 0.3595, 0.6405, 0.5, 0.6405], 5e-5);
    close(&s, "G_A", &[3.0, 1.0, 0.0, 1.0], 1e-6);
    close(&s, "G_S", &[0.4605, -0.4605, -0.25, 0.25], 5e-5);
    close(&s, "G_Q", &[0.0, 0.2659, -0.2659, 0.0, -0.1443, 0.1443], 5e-5);
    close(&s, "G_K", &[0.2659, -0.1443, 0.1216, -0.2659, 0.1443, -0.1216], 5e-5);
    below(&s, "largest difference of O, G_Q and G_K", 1e-6);
}

#[test]
fn chat() {
    let s = run("chat");
    close(&s, "scores", &[0.30, 0.96, 0.10, 0.0, 0.30, 0.20], 1e-6);
    close(&s, "weights", &[0.1637, 0.2277, 0.1481, 0.1409, 0.1637, 0.1557], 6e-5);
    let output = "output: animal, action, object, definite";
    close(&s, output, &[0.2213, 0.1333, 0.2334, 0.5756], 6e-5);
    close(&s, "parts of definiteness", &[0.131, 0.159, 0.044, 0.0, 0.147, 0.093], 6e-4);
    let action = "weights of the query [0.1, 0.9, 0.1, 0.1]";
    close(&s, action, &[0.1548, 0.1572, 0.2310, 0.1473, 0.1548, 0.1548], 6e-5);
}

#[test]
fn root_d() {
    let s = run("root-d");
    // Products of normal numbers: the variance of 128² dependent samples is off by some 10 %.
    assert!(s.numbers("variance / D").iter().all(|v| (v - 1.0).abs() < 0.25));
    let (raw, scaled) = (s.numbers("entropy without scaling"), s.numbers("entropy with scaling"));
    assert!(raw[4] < 0.5 && scaled[4] > 3.4, "{raw:?} {scaled:?}");
    assert!(s.numbers("slope without scaling")[4] < 0.2);
    close(&s, "variance with μ = 3, σ = 1, D = 1 (formula: 19)", &[19.0], 3.0);
}

#[test]
fn masks() {
    let s = run("masks");
    let two = softmax(&[2.0, 1.0]);
    close(&s, "scores + [0, 0, −∞]", &[two[0], two[1], 0.0], 1e-6);
    close(&s, "softmax(scores·mask)", &softmax(&[2.0, 1.0, 0.0]), 1e-6);
    let all = softmax(&[2.0, 1.0, 3.0]);
    close(&s, "their sum", &[all[0] + all[1]], 1e-6);
    close(&s, "bias added after scaling", &softmax(&[0.0, -8.0]), 1e-6);
    close(&s, "the same, divided by √64", &softmax(&[0.0, -1.0]), 1e-6);
    close(&s, "four keys hidden with −10⁹", &[0.25; 4], 0.0);
    below(&s, "largest output of a row that sees nothing", 0.0);
}

#[test]
fn heads() {
    let s = run("heads");
    close(&s, "shape of Q by heads", &[12.0, 4.0, 64.0], 0.0);
    close(&s, "shape of scores", &[12.0, 4.0, 4.0], 0.0);
    close(&s, "shape of the result", &[4.0, 768.0], 0.0);
    close(&s, "parameters of twelve heads and of one", &[1_769_472.0; 2], 0.0);
    below(&s, "largest difference", 1e-5);
    close(&s, "smallest and largest sum of a row of weights", &[1.0, 1.0], 1e-5);
}

#[test]
fn sinusoids() {
    let s = run("sinusoids");
    below(&s, "attention(swapped) − swapped(attention), largest", 1e-6);
    assert!(s.number("the same with a causal mask") > 0.1);
    below(&s, "PE(p)·T₅ − PE(p + 5), largest over 50 positions", 1e-6);
    let want: f64 = (0..4).map(|i| (7.0 * 10_000f64.powf(-f64::from(i) / 4.0)).cos()).sum();
    close(&s, "PE(3)·PE(10), PE(20)·PE(27), PE(50)·PE(57)", &[want; 3], 1e-5);
}

#[test]
fn rotation() {
    let s = run("rotation");
    let name = "scores for (m, n) = (5, 2), (45, 42), (205, 202)";
    let scores = s.numbers(name);
    assert!(scores.iter().all(|x| (x - scores[0]).abs() < 1e-4), "{scores:?}");
    assert!((s.number("score for (5, 3)") - scores[0]).abs() > 1e-3);
    let norms = s.numbers("‖q‖ and ‖q turned by 100 positions‖");
    assert!((norms[0] - norms[1]).abs() < 1e-5);
    close(&s, "the last pair, if the model's width 768 were used by mistake", &[0.475], 5e-4);
    assert!((s.numbers("θ of the first, the 16th and the last pair")[2] - 1.33e-4).abs() < 1e-6);
    close(&s, "NTK: factor of the slowest pair", &[4.0], 1e-6);
    close(&s, "NTK: what the base is multiplied by, 4^(64/62)", &[4.183], 5e-4);
}

#[test]
fn alibi() {
    let s = run("alibi");
    close(&s, "slopes of 8 heads", &[1, 2, 3, 4, 5, 6, 7, 8].map(|h| 0.5f64.powi(h)), 1e-7);
    close(&s, "weight(1 back)/weight(0 back) of head 1", &[(-0.5f64).exp()], 1e-6);
    let reach = s.numbers("mean distance looked at by heads 1, 4 and 8");
    // Without an end a head of slope m reaches 1/(e^m − 1) tokens back.
    assert!((reach[0] - 1.0 / (0.5f64.exp() - 1.0)).abs() < 0.01, "{reach:?}");
    assert!(reach[1] > 4.0 && reach[2] > 7.0);
}

#[test]
fn residuals() {
    let s = run("residuals");
    let errors = s.numbers("errors");
    assert!((errors[5] / errors[6] - 2.0).abs() < 0.1, "{errors:?}");
    below(&s, "norm of the gradient at the input, 50 layers, plain", 1e-4);
    assert!(s.number("the same with residual connections") > 0.5);
    below(&s, "gradient of x + F(x), F(x) = −x", 0.0);
}

#[test]
fn norms() {
    let s = run("norms");
    below(&s, "change under LayerNorm", 0.0);
    assert!(s.number("change under BatchNorm") > 0.1);
    close(&s, "factor of LayerNorm", &[1.0 / (1e-6f64 + 1e-5).sqrt()], 0.1); // 301.5
    close(&s, "1/(σ + ε)", &[990.1], 0.1);
    let first = &s.numbers("LayerNorm: each row has mean 0 and variance 1")[..3];
    let deviation = (14f64 / 3.0).sqrt(); // of 1, 2, 6
    for (got, x) in first.iter().zip([1.0, 2.0, 6.0]) {
        assert!((got - (x - 3.0) / deviation).abs() < 1e-4, "{first:?}");
    }
}

#[test]
fn gelu() {
    let s = run("gelu");
    close(
        &s,
        "GELU(−3), GELU(−1), GELU(0), GELU(1), GELU(3)",
        &[-0.00405, -0.15866, 0.0, 0.84134, 2.99595],
        1e-5,
    );
    close(&s, "Φ(−3), Φ(−1), Φ(1), Φ(3)", &[0.00135, 0.15866, 0.84134, 0.99865], 1e-5);
    let steepest = s.numbers("steepest point of GELU and its slope");
    assert!((steepest[0] - 2f64.sqrt()).abs() < 0.05 && (steepest[1] - 1.129).abs() < 1e-3);
    let off = s.number("difference");
    assert!(off > 1e-4 && off < 1e-3, "{off}");
}

#[test]
fn feed_forward() {
    let s = run("feed-forward");
    below(&s, "FFN − two 1×1 convolutions, largest difference", 1e-5);
    below(&s, "change of the other outputs", 1e-6);
    below(&s, "difference", 1e-6);
    close(&s, "GPT-2's layer without biases", &[4_718_592.0], 0.0);
    let name = "feed-forward layers of GPT-2, counted by the planner, per layer";
    close(&s, name, &[4_722_432.0], 0.0);
    close(&s, "their share of all parameters", &[0.4554], 1e-3);
}

#[test]
fn tying() {
    let s = run("tying");
    below(&s, "tied − (both parts added), largest", 1e-6);
    close(&s, "V·C of GPT-2", &[38_597_376.0], 0.0);
    let looked_up = s.numbers("part from looking up: only rows of tokens that occur");
    assert_eq!(looked_up[2..4], [0.0, 0.0]);
    assert!(looked_up[0] != 0.0);
    let head = s.numbers("part from the head: every row");
    assert!(head.iter().all(|x| *x != 0.0));
}

#[test]
fn teacher_forcing() {
    let s = run("teacher-forcing");
    below(&s, "largest difference of the logits", 1e-5);
    assert_eq!(s.numbers("the five losses").len(), 5);
    close(&s, "written", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.0);
    let losses = s.numbers("first and last loss");
    assert!((losses[0] - 6f64.ln()).abs() < 0.3 && losses[1] < 0.05, "{losses:?}");
}

#[test]
fn recurrence() {
    let s = run("recurrence");
    let (by_hand, auto) = (s.number("product of the six slopes"), s.number("∂h₆/∂h₀ by autograd"));
    assert!((by_hand - auto).abs() < 1e-5, "{by_hand} {auto}");
    close(
        &s,
        "∂h₂₀/∂h₀ for w = 0.5, 0.9, 1.1",
        &[0.5f64.powi(20), 0.9f64.powi(20), 1.1f64.powi(20)],
        1e-4,
    );
    close(&s, "Π (1 − 1/t²), t = 2 … 10,000", &[0.50005], 1e-6);
    let (sum, auto) = (s.number("their sum"), s.number("∂h₆/∂w by autograd"));
    assert!((sum - auto).abs() < 1e-5, "{sum} {auto}");
}

#[test]
fn bahdanau() {
    let s = run("bahdanau");
    close(&s, "words", &[12.0], 0.0);
    close(&s, "words read correctly from the fixed vector", &[1.0], 0.0);
    close(&s, "words read correctly with attention", &[12.0], 0.0);
    let gain = 10.0 * (2.0 * 1f64.tanh() - 2f64.tanh());
    close(&s, "weight on the right word", &[gain.exp() / (gain.exp() + 11.0)], 1e-4);
}

#[test]
fn momentum() {
    let s = run("momentum");
    let name = "size of step 60: plain, summed, averaged";
    let full = 1.0 - 0.9f64.powi(60);
    close(&s, name, &[0.1, full, 0.1 * full], 1e-4);
    let steps = s.numbers("steps until the distance is below 0.01: plain, β = 0.8");
    assert!(steps[1] < 0.6 * steps[0], "{steps:?}");
}

#[test]
fn adam() {
    let s = run("adam");
    below(&s, "largest difference", 1e-5);
    close(&s, "first step for g = 0.001, 1 and 1,000", &[0.1; 3], 1e-4);
    close(&s, "0.1/√0.001", &[3.1623], 1e-4);
    close(&s, "after 100 steps of 7", &[-10.0], 1e-2);
    below(&s, "after 100 steps of 7, −7, 7, …", 0.5);
}

#[test]
fn weight_decay() {
    let s = run("weight-decay");
    close(&s, "AdamW", &[0.7408], 0.02);
    let l2 = s.number("Adam + L2");
    assert!((0.95..1.0).contains(&l2), "{l2}");
}

#[test]
fn schedules() {
    let s = run("schedules");
    close(&s, "peak for C = 512, w = 4,000", &[6.99e-4], 5e-7);
    below(&s, "largest difference at t = 1, 100, 4,000, 20,000", 1e-12);
    close(&s, "cosine at 550", &[0.55], 1e-9);
    close(&s, "factor of the first step here", &[1.0 / 101.0], 1e-12);
    close(&s, "the bare formula at 1,900 of 1,000 steps", &[0.5 * (1.0 + (2.0 * PI).cos())], 1e-12);
    close(&s, "Hearken's cosine there (floor 0.1)", &[0.1], 1e-12);
}

#[test]
fn clipping() {
    let s = run("clipping");
    close(&s, "‖g‖ of [30, 0] and [0, −40] together", &[50.0], 1e-6);
    close(&s, "factor for c = 5", &[0.1], 1e-12);
    close(&s, "clipped", &[3.0, 0.0, 0.0, -4.0], 1e-6);
    close(&s, "parameters after the step", &[-3.0, 4.0], 1e-6);
    assert!(s.number("c/(c + 10⁻⁶) for c = 5") < 1.0);
    close(&s, "Hearken's factor at the limit", &[1.0], 0.0);
}

#[test]
fn online_softmax() {
    let s = run("online-softmax");
    let w = softmax(&[1.0, 3.0, 2.0, 5.0, 0.0, 4.0]);
    let want: f64 = w.iter().zip([2.0, -1.0, 0.5, 1.0, 3.0, -2.0]).map(|(w, v)| w * v).sum();
    close(&s, "result", &[want], 1e-12);
    below(&s, "difference", 1e-6);
    below(&s, "largest difference to the plain way", 1e-5);
}

#[test]
fn linear_attention() {
    let s = run("linear-attention");
    below(&s, "largest difference of the two ways, relative", 1e-5);
    assert!(s.numbers("sums of the first four rows").iter().all(|sum| *sum > 10.0));
    close(&s, "sum of the first row after dividing", &[1.0], 1e-5);
    close(&s, "ratio at n = 64", &[1.0], 0.0);
}

#[test]
fn counting() {
    let s = run("counting");
    close(&s, "all", &[124_439_808.0], 0.0);
    close(&s, "parameters: 96 layers, width 12,288", &[174_604_259_328.0], 0.0);
    close(&s, "GPT-3 forward, TFLOP", &[716.8], 0.01);
    close(&s, "training 110 million parameters on 10 billion tokens: 6·N·D", &[6.6e18], 1e4);
    close(&s, "8 heads, 1,024 tokens, one layer", &[33_554_432.0], 0.0);
    close(&s, "12 layers, in MB", &[402.7], 0.05);
    close(&s, "cache of MHA, K = 12", &[75_497_472.0], 0.0);
    close(&s, "cache of GQA, K = 4", &[75_497_472.0 / 3.0], 0.0);
    close(&s, "cache of MQA, K = 1", &[75_497_472.0 / 12.0], 0.0);
    close(&s, "training / forward", &[3.0], 1e-9);
}

#[test]
fn sampling() {
    let s = run("sampling");
    let logits = [4.0, 3.2, 2.9, 2.0, 1.5, 0.2, -1.0, -2.0];
    let p = softmax(&logits);
    close(&s, "p", &p, 1e-6);
    let best = |t: f64| softmax(&logits.map(|z| z / t))[0];
    close(&s, "best at τ = 0.5, 1, 2", &[best(0.5), best(1.0), best(2.0)], 1e-6);
    close(&s, "words kept", &[4.0], 0.0);
    let top: f64 = p[..3].iter().sum();
    let k3 = s.numbers("top-k, k = 3");
    assert!((k3[0] - p[0] / top).abs() < 1e-6 && k3[3..] == [0.0; 5]);
    let (drawn, expected) = (s.numbers("drawn"), s.numbers("top-p, p = 0.9"));
    // A share of a thousand draws has a deviation of at most 0.016.
    assert!(drawn.iter().zip(expected).all(|(d, e)| (d - e).abs() < 0.064), "{drawn:?}");
}

#[test]
fn bpe() {
    let s = run("bpe");
    close(&s, "tokens before and after", &[22.0, 15.0], 0.0);
    close(&s, "tokens", &[15.0], 0.0);
    close(&s, "tokens of é, which was never seen", &[2.0], 0.0);
}

#[test]
fn perplexity() {
    let s = run("perplexity");
    close(&s, "e^loss of 8 equal logits", &[8.0], 1e-4);
    let both = s.numbers("perplexity by characters and by pairs");
    assert!((both[1] / both[0].powi(2) - 1.0).abs() < 1e-6, "{both:?}");
    assert!(s.number("nats per character") < s.number("our model above"));
}

#[test]
fn modalities() {
    let s = run("modalities");
    close(&s, "shape of the patches", &[196.0, 768.0], 0.0);
    close(&s, "first numbers of patches 0, 1 and 14", &[0.0, 48.0, 16.0 * 672.0], 0.0);
    below(&s, "node 3 changes: change of nodes 0 and 1", 0.0);
    assert!(s.number("and of node 2, its neighbour") > 0.01);
    below(&s, "difference", 1e-6);
    close(&s, "frames", &[98.0], 0.0);
    below(&s, "largest difference of the two", 1e-9);
}

#[test]
fn label_smoothing() {
    let s = run("label-smoothing");
    close(&s, "by the formula", &[1.3769], 5e-5);
    close(&s, "by the operation, at the best logits", &[1.3769], 1e-3);
    close(&s, "best margin with α = 0.1", &[91f64.ln()], 0.02);
    let error = |name: &str| s.numbers(name)[2];
    assert!(error("300 samples, α = 0.1") < 0.7 * error("300 samples, α = 0"));
    assert!(error("3000 samples, α = 0.3") > 1.5 * error("3000 samples, α = 0"));
    for samples in [300, 3000] {
        let confidence = |alpha: &str| s.numbers(&format!("{samples} samples, α = {alpha}"))[1];
        assert!(confidence("0") > confidence("0.1") && confidence("0.1") > confidence("0.3"));
    }
}

#[test]
fn calibration() {
    let s = run("calibration");
    let (before, after) = (s.number("ECE"), s.number("ECE after"));
    assert!(before > 0.05 && after < before / 2.0, "{before} before, {after} after");
    let mass = s.numbers("ECE with bins of equal mass, before and after");
    assert!(mass[1] < mass[0] / 2.0, "{mass:?}");
    assert!(s.number("T") > 1.2);
    assert_eq!(s.number("accuracy"), s.number("accuracy after"));
}

#[test]
fn identities() {
    let s = run("identities");
    // AB = [[2, −1], [1, 10.5]]
    close(&s, "tr(AB)", &[12.5], 1e-6);
    close(&s, "vec(Aᵀ)·vec(B)", &[12.5], 1e-6);
    close(&s, "tr(BA), the same", &[12.5], 1e-6);
    below(&s, "difference by columns", 1e-5);
    below(&s, "difference by rows", 1e-5);
    assert!(s.number("the formula for columns, used with rows: difference") > 1.0);
    below(&s, "difference to autograd", 1e-5);
}
