use hearken::kernels::rope::Pairing;
use hearken::tensor::ops::rope::rope;
use hearken::tensor::rope_table::Scaling;
use hearken::tensor::{RopeTable, Var, rng::Rng};

fn main() {
    let table = RopeTable::new(8, 8, 10_000.0, Scaling::None, Pairing::Neighbours, 256);
    let mut rng = Rng::new(1);
    let (q, k) = (rng.normal([1, 1, 8], 1.0), rng.normal([1, 1, 8], 1.0)); // (B, T, D)
    let score = |m, n| {
        let q = rope(Var::constant(q.clone()), &table, 1, m);
        let k = rope(Var::constant(k.clone()), &table, 1, n);
        (&q * &k).sum().value().item()
    };
    assert!((score(5, 2) - score(205, 202)).abs() < 1e-4); // only m − n counts
    assert!((score(5, 2) - score(5, 3)).abs() > 1e-3);
}
