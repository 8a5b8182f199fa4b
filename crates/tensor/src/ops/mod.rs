//! Every operation, one file each.
//!
//! A file is always in this order: what it computes, the derivation with numbered terms, what it
//! saves; the forward; the backward right beneath it; a naive f64 reference; the cases that check
//! it. To add an operation, write its file and its name in the list below: that makes it a
//! module, and its `cases()` join [`registry`], which the tests, the PyTorch fixtures and
//! `hearken doctor` all run over. A file without `cases()` does not compile.

use crate::gradcheck::Case;

macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// The cases of every operation.
        pub fn registry() -> Vec<Case> {
            let mut cases = Vec::new();
            $(cases.extend($name::cases());)*
            cases
        }

        /// The names of all operations.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

ops! {
    activations,
    add,
    additive_scores,
    attention,
    binary_cross_entropy,
    combine,
    concat,
    conv1d,
    cross_entropy,
    dropout,
    embedding,
    feed_forward,
    gated,
    gru,
    head_cross_entropy,
    layer_norm,
    linear,
    linear_attention,
    lsh_attention,
    lstm,
    matmul,
    mean,
    mse,
    mul,
    random_features,
    rms_norm,
    rnn,
    reshape,
    rope,
    router_loss,
    routing,
    scale,
    scores,
    slice,
    softmax,
    sub,
    transpose,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_cases_under_its_own_name() {
        let cases = registry();
        for name in NAMES {
            assert!(cases.iter().any(|case| case.op == *name), "{name} has no case");
        }
        for case in &cases {
            assert!(NAMES.contains(&case.op), "{} is not the name of a file", case.op);
            assert!(!case.torch.is_empty(), "{} has no PyTorch expression", case.id());
        }
        let mut ids: Vec<String> = cases.iter().map(Case::id).collect();
        ids.sort();
        let all = ids.len();
        ids.dedup();
        assert_eq!(all, ids.len(), "two cases share an id");
    }
}
