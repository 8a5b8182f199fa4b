//! Less memory, less arithmetic, and how to count both.

use crate::lesson::lesson;
use crate::maths::{chart, cost, difference, digits, list, numbers, row, softmax};
use crate::{Lesson, Sheet};
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{
    BiasConfig, Combine, DecoderConfig, ModelConfig, PositionConfig, StackConfig,
};
use hearken_nn::presets;
use hearken_show::number;
use hearken_tasks::rehearsal;
use hearken_tensor::ops::attention::{Attend, attention};
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(online_softmax, "online-softmax", "Softmax in tiles",
        "How FlashAttention needs no T×T matrix: a running maximum, a running sum, by hand",
        "attention in a model" => "models.md"),
    lesson!(linear_attention, "linear-attention", "Linear attention: move the brackets",
        "(φ(Q)φ(K)ᵀ)V = φ(Q)(φ(K)ᵀV), what it saves, and from which length on",
        "what a model costs" => "plan.md"),
    lesson!(counting, "counting", "Counting a model",
        "Parameters, operations and cache of GPT-2 and GPT-3; MHA, GQA and MQA",
        "what a model costs" => "plan.md"),
];

fn online_softmax(s: &mut Sheet) {
    let scores = [1.0f32, 3.0, 2.0, 5.0, 0.0, 4.0];
    let values = [2.0f64, -1.0, 0.5, 1.0, 3.0, -2.0];
    s.step("The problem");
    s.text("Softmax needs the sum over a whole row before the first weight is known. For T tokens that is a \
            matrix of T×T numbers. But the sum can be kept as you go, if you can repair what you did before a \
            larger score came. So keep three numbers: m, the largest score so far; l, the sum of e^(s − m); \
            and o, the sum of e^(s − m)·v. When m grows to m′, multiply l and o by e^(m − m′): that turns \
            every e^(s − m) in them into e^(s − m′).");
    s.formula("for each tile:   m′ = max(m, max tile)\n                 l ← l·e^(m − m′) + Σ e^(s − m′)\n                 o ← o·e^(m − m′) + Σ e^(s − m′)·v\n                 m ← m′\nat the end:      o/l");
    s.show("scores", &scores[..]);
    s.show("values", &values[..]);

    s.step("Three tiles of two, by hand");
    s.text("Before the first tile m is −∞ and nothing is summed, so there is nothing to repair: the factor is \
            e^(−∞) = 0.");
    let (mut m, mut l, mut o) = (f64::NEG_INFINITY, 0.0f64, 0.0f64);
    let mut rows = Vec::new();
    for (tile, (z, v)) in scores.chunks(2).zip(values.chunks(2)).enumerate() {
        let top = z.iter().fold(m, |m, z| m.max(f64::from(*z)));
        let repair = (m - top).exp();
        l = l * repair + z.iter().map(|z| (f64::from(*z) - top).exp()).sum::<f64>();
        o = o * repair + z.iter().zip(v).map(|(z, v)| (f64::from(*z) - top).exp() * v).sum::<f64>();
        m = top;
        rows.push([
            (tile + 1).to_string(),
            digits(m),
            digits(repair),
            digits(l),
            digits(o),
            digits(o / l),
        ]);
    }
    s.table(&["tile", "m", "repair e^(m − m′)", "l", "o", "o/l so far"], rows);
    s.show("result", o / l);

    s.step("All at once, to compare");
    let whole: f64 = softmax(&scores, 1.0).iter().zip(values).map(|(w, v)| w * v).sum();
    s.show("softmax(scores)·values", whole);
    s.show("difference", (o / l - whole).abs());

    s.step("The tiled kernel, on 300 tokens");
    let mut rng = Rng::new(3);
    let (t, d) = (300, 16);
    let (q, k, v) = (rng.normal([t, d], 1.0), rng.normal([t, d], 1.0), rng.normal([t, d], 1.0));
    let one = |x: &Tensor| Var::constant(x.clone().reshape([1, t, d]));
    let tiled = attention(&one(&q), &one(&k), &one(&v), &[], &Attend::new(1));
    let [q, k, v] = [q, k, v].map(Var::constant);
    let plain = matmul(&hearken_tensor::ops::softmax::softmax(matmul_transposed(&q, &k), 0.25), &v);
    s.show(
        "largest difference to the plain way",
        difference(tiled.value().data(), plain.value().data()),
    );
    s.show("numbers in the matrix that it never holds", t * t);
    s.text("The forward pass computes nothing twice. Only the backward pass, which would need the weights \
            again, computes them anew from the scores and one saved number per row, m + ln l.");

    s.ask("The largest score comes in the very last tile. What happens to the work before it?");
    let late: f64 = softmax(&[0.0, 0.0, 9.0], 1.0)[2];
    s.answer(
        "It is thrown away and done again",
        false,
        "Nothing is done again: a factor repairs l and o.",
    );
    s.answer(
        "It is multiplied by e^(m − m′)",
        late > 0.99,
        "One factor for all that was summed so far. If the new \
             score is much larger, the factor is nearly 0, as it should be.",
    );
    s.answer(
        "It stays, and the result is slightly wrong",
        false,
        "The result is exact up to rounding.",
    );
    s.wrong(
        "0.12",
        "FlashAttention recomputes instead of storing.",
        "only its backward pass does; the forward computes each score once.",
    );
}

/// elu(x) + 1, which is positive.
fn feature(x: &Var) -> Var {
    let mut value = x.value().clone();
    value.data_mut().iter_mut().for_each(|x| *x = if *x > 0.0 { *x + 1.0 } else { x.exp() });
    Var::constant(value)
}

fn linear_attention(s: &mut Sheet) {
    s.step("Another likeness");
    s.text("Softmax attention weighs values by e^(q·k). Take φ(q)·φ(k) instead, with a feature map φ that is \
            never negative, here elu + 1. Then the whole is a product of three matrices, and brackets may move.");
    s.formula("(φ(Q)·φ(K)ᵀ)·V = φ(Q)·(φ(K)ᵀ·V)        divided by  φ(Q)·(φ(K)ᵀ·1)");
    let (n, d) = (64, 8);
    let mut rng = Rng::new(5);
    let mut draw = || Var::constant(rng.normal([n, d], 1.0));
    let (q, k, v) = (feature(&draw()), feature(&draw()), draw());
    let left = matmul(&matmul_transposed(&q, &k), &v);
    let right = matmul(&q, &matmul(&transpose(&k, 0, 1), &v));
    let size = left.value().data().iter().fold(0.0f32, |m, x| m.max(x.abs()));
    s.show(
        "largest difference of the two ways, relative",
        difference(left.value().data(), right.value().data()) / f64::from(size),
    );

    s.step("It must be divided");
    let ones = Var::constant(Tensor::full([n, 1], 1.0));
    let sums = numbers(&matmul(&q, &matmul(&transpose(&k, 0, 1), &ones)));
    s.text("Without the division the weights of a row sum to anything:");
    s.show("sums of the first four rows", &sums[..4]);
    let normalised: f64 =
        numbers(&matmul_transposed(&q, &k))[..n].iter().map(|w| w / sums[0]).sum();
    s.show("sum of the first row after dividing", normalised);

    s.step("From which length on?");
    s.formula("softmax: 2·n²·d multiplications        linear: 2·n·d²        equal at n = d");
    let d = 64.0f64;
    let (quadratic, linear) = (|n: f64| 2.0 * n * n * d, |n: f64| 2.0 * n * d * d);
    let lengths = [16.0, 64.0, 256.0, 1024.0, 4096.0];
    s.table(
        &["n", "softmax", "linear", "ratio"],
        lengths.map(|n| {
            [digits(n), digits(quadratic(n)), digits(linear(n)), digits(quadratic(n) / linear(n))]
        }),
    );
    let points = |f: &dyn Fn(f64) -> f64| lengths.iter().map(|n| (*n, f(*n))).collect();
    let mut curve = chart(
        "multiplications for a head of width 64",
        "length n",
        "multiplications",
        vec![("softmax", points(&quadratic)), ("linear", points(&linear))],
    );
    (curve.logarithmic, curve.doublings) = (true, true);
    s.chart(curve);
    s.show("ratio at n = 64", quadratic(64.0) / linear(64.0));
    s.text("d is the width of a head, not of the model: every head has its own d×d matrix.");

    s.step("What is lost");
    let exact: Vec<f64> = softmax(&[0.0, 1.0, 2.0, 4.0], 1.0);
    let phi = |x: f32| numbers(&feature(&row(&[x])))[0];
    let raw: Vec<f64> = [0.0f32, 1.0, 2.0, 4.0].iter().map(|x| phi(*x) * phi(1.0)).collect();
    let total: f64 = raw.iter().sum();
    s.text("A query 1 and keys 0, 1, 2, 4 in one dimension. Softmax picks the last; the linear weights are \
            nearly flat.");
    s.show("softmax", &exact);
    s.show("linear", raw.iter().map(|w| w / total).collect::<Vec<_>>());

    s.ask("A model has width 768 and 12 heads. Linear attention saves multiplications from which length on?");
    let breaks = |n: f64| (quadratic(n) - linear(n)).abs() < 1e-9;
    for (n, because) in [
        (64.0, "Per head both cost the same at n = D = 768/12."),
        (768.0, "That would be so with a single head of width 768."),
        (12.0, "The number of heads multiplies both sides alike."),
    ] {
        s.answer(digits(n), breaks(n), because);
    }
    s.wrong(
        "0.14",
        "it reduces the cost when d < n, d the model's width.",
        "the break-even is n = D, the width of a head.",
    );
    s.wrong(
        "0.6",
        "φ(q)·φ(k) approximates softmax(q·k).",
        "it approximates e^(q·k); the division makes the softmax.",
    );
    s.wrong(
        "3.35",
        "φ(Q)(φ(K)ᵀV), without dividing.",
        format!("the rows of weights then sum to {}.", list(&sums[..2])),
    );
}

/// A GPT of so many layers, this width and so many heads.
fn gpt([layers, width, heads]: [usize; 3], context: usize, kv_heads: Option<usize>) -> ModelConfig {
    let position = PositionConfig::Learned { combine: Combine::Add };
    let sizes = StackConfig::new(layers, width, heads);
    let stack = StackConfig { bias: BiasConfig::ALL, position, kv_heads, ..sizes };
    DecoderConfig { vocabulary: 50_257, context, tied: true, stack }.into()
}

/// Bytes that it keeps for 1,024 tokens when it writes.
fn cache(model: &ModelConfig, kind: CacheKind) -> u64 {
    let bytes = rehearsal::cache_bytes(model, 1024, kind).expect("a small model");
    bytes.expect("a model that writes")
}

fn counting(s: &mut Sheet) {
    let config = presets::model_of(presets::find("gpt2-small").expect("a preset"), "gpt2-small")
        .expect("a valid preset");
    let plan = cost(&config, 1024);
    s.step("Parameters of GPT-2");
    s.formula(
        "a block: 4C² of attention, 8C² of feed-forward\nbeside them: V·C and T·C of the tables",
    );
    s.table(
        &["part", "parameters", "share"],
        plan.parts.iter().map(|part| {
            [
                part.name.clone(),
                digits(part.parameters as f64),
                number::percent(part.parameters as f64 / plan.parameters() as f64, 1),
            ]
        }),
    );
    s.show("all", plan.parameters());

    s.step("GPT-3's table");
    let large = cost(&gpt([96, 12_288, 96], 2048, None), 2048);
    s.show("parameters: 96 layers, width 12,288", large.parameters());
    let forward = 2.0 * 175e9 * 2048.0;
    s.text(format!("A forward pass over 2,048 tokens takes about 2·N·T operations, {}: tera, not giga. The planner, \
            which counts scores too, says {}.", number::operations(forward), number::operations(2048.0 * large.forward.all())));
    s.keep("GPT-3 forward, TFLOP", forward / 1e12);
    s.show("training 110 million parameters on 10 billion tokens: 6·N·D", 6.0 * 110e6 * 10e9);

    s.step("Operations per token");
    s.table(
        &["length", "forward per token", "training per token"],
        [128usize, 1024, 8192].map(|n| {
            let cost = cost(&gpt([12, 768, 12], n, None), n);
            [
                digits(n as f64),
                number::operations(cost.forward.all()),
                number::operations(cost.training.all()),
            ]
        }),
    );
    s.text("Training is three forward passes: each product has two gradients. What grows with the length are \
            the scores.");
    s.keep("training / forward", plan.training.all() / plan.forward.all());

    s.step("Attention weights, if they were stored");
    s.formula("H·T²·4 bytes per layer");
    let bytes = 8 * 1024 * 1024 * 4usize;
    s.show("8 heads, 1,024 tokens, one layer", bytes);
    s.show("12 layers, in MB", 12.0 * bytes as f64 / 1e6);

    s.step("The cache of generation");
    s.formula("2·L·K·D numbers per token        K: key/value heads");
    let mut rows = Vec::new();
    for (name, kv) in [("MHA, K = 12", 12usize), ("GQA, K = 4", 4), ("MQA, K = 1", 1)] {
        let model = gpt([12, 768, 12], 1024, Some(kv));
        let cache = |kind| cache(&model, kind);
        s.keep(format!("cache of {name}"), cache(CacheKind::F32));
        rows.push([
            name.to_owned(),
            digits(cache(CacheKind::F32) as f64),
            digits(cache(CacheKind::F16) as f64),
            digits(cache(CacheKind::Int8) as f64),
            digits(cost(&model, 1024).parameters() as f64),
        ]);
    }
    s.table(&["GPT-2, 1,024 tokens", "f32 bytes", "f16", "int8", "parameters"], rows);

    s.ask("GQA with 4 of 12 key/value heads makes the cache how many times smaller?");
    let bytes = |kv_heads| cache(&gpt([12, 768, 12], 1024, kv_heads), CacheKind::F32) as f64;
    let ratio = bytes(None) / bytes(Some(4));
    for (claim, because) in [
        (3.0, "It holds keys and values of 4 heads instead of 12."),
        (4.0, "H/K is 12/4. Four heads remain; they are not four times fewer."),
        (12.0, "That is multi-query attention, with one."),
    ] {
        s.answer(digits(claim), (ratio - claim).abs() < 1e-9, because);
    }
    s.wrong(
        "3.36",
        "a GPT-3 forward pass over 2,048 tokens is about 700 GFLOP.",
        format!("{}, a thousand times more.", number::operations(forward)),
    );
    s.wrong("3.37", "110M parameters and 10B tokens need 1e20 FLOP.", "6·N·D = 6.6e18.");
    s.wrong("4.24", "backward costs about as much as forward.", "twice as much.");
    s.wrong(
        "0.5",
        "the cache holds so many parameters.",
        "they are stored activations, one set per layer.",
    );
}
