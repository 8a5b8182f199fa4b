//! That 1 to 4 threads give the same bits says something only if the threads share the work: every
//! op has a case that is large enough.
//!
//! One test in a file of its own, since it counts what the whole process does.

use hearken_kernels::threads::{shared_regions, with_threads};
use hearken_tensor::ops;

/// Operations that compute nothing: they read the same numbers in another shape.
const NOTHING_TO_SHARE: [&str; 1] = ["reshape"];

#[test]
fn every_op_has_a_case_that_threads_share() {
    let mut alone: Vec<&str> = Vec::new();
    for &op in ops::NAMES.iter().filter(|op| !NOTHING_TO_SHARE.contains(op)) {
        let before = shared_regions();
        for case in ops::registry().iter().filter(|case| case.op == op) {
            let _ = with_threads(2, || case.run(None));
        }
        if shared_regions() == before {
            alone.push(op);
        }
    }
    assert!(alone.is_empty(), "all cases of {alone:?} are computed by one thread");
}
