//! What holds for every source of batches, and how it is tested.

use super::{Batch, Batches, Documents, Examples, IGNORED, InOrder};
use hearken_tensor::rng::Rng;

/// One row with everything that belongs to it, without padding: rows of batches that are padded
/// to different lengths can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) inputs: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    pub(crate) segments: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) source: Vec<u32>,
}

/// The rows of a batch. Fails if its parts do not fit together.
pub(crate) fn rows(batch: &Batch) -> Vec<Row> {
    let (count, length) = (batch.rows, batch.length);
    assert_eq!([batch.inputs.len(), batch.targets.len()], [count * length; 2]);
    if let Some(lengths) = &batch.lengths {
        assert_eq!(lengths.len(), count);
        assert!(lengths.iter().all(|&n| n <= length) && lengths.iter().any(|&n| n < length));
    }
    let part = |of: &[u32], row: usize| of[row * length..][..batch.length_of(row)].to_vec();
    let row = |row: usize| {
        let padding = batch.length_of(row)..length;
        let targets = &batch.targets[row * length..][..length];
        assert!(targets[padding.clone()].iter().all(|&target| target == IGNORED));
        let [mut segments, mut positions, mut source] = [const { Vec::new() }; 3];
        if let Some(packing) = &batch.packing {
            assert!(packing.segments[row * length..][padding].iter().all(|&number| number == 0));
            assert_eq!([packing.segments.len(), packing.positions.len()], [count * length; 2]);
            segments = part(&packing.segments, row);
            positions = part(&packing.positions, row);
        }
        if let Some(all) = &batch.source {
            assert_eq!((all.ids.len(), all.lengths.len()), (count * all.length, count));
            source = all.ids[row * all.length..][..all.lengths[row]].to_vec();
        }
        let (inputs, targets) = (part(&batch.inputs, row), part(&batch.targets, row));
        Row { inputs, targets, segments, positions, source }
    };
    (0..count).map(row).collect()
}

/// A batch is a function of (seed, step, row) and of nothing else, and its parts are its rows.
/// The source must be large enough that two batches are equal only by mistake.
pub(crate) fn assert_batches<B: Batches>(with_seed: impl Fn(u64) -> B) {
    let source = with_seed(1);
    let count = source.rows();
    for step in [0, 1, 3, 1000, 1 << 40] {
        let whole = source.batch(step);
        assert_eq!(whole.rows, count);
        assert!(whole.length <= source.length());
        assert_eq!(whole, with_seed(1).batch(step), "the same seed and step {step}");
        assert_ne!(rows(&whole), rows(&with_seed(2).batch(step)), "another seed, step {step}");
        assert_ne!(rows(&whole), rows(&source.batch(step + 1)), "a step after {step}");
        for parts in (1..=count).filter(|&parts| count.is_multiple_of(parts)) {
            // The last first: what was asked before must not matter.
            let mut all: Vec<Vec<Row>> = (0..parts)
                .rev()
                .map(|index| rows(&source.micro_batch(step, index, parts)))
                .collect();
            all.reverse();
            assert_eq!(all.concat(), rows(&whole), "{parts} parts of step {step}");
        }
        assert!(rows(&source.rows_of(step, 0..0)).is_empty());
        assert_eq!(rows(&source.rows_of(step, count - 1..count)), rows(&whole)[count - 1..]);
    }
}

/// Three epochs have the same rows, each row once, in three orders.
pub(crate) fn assert_epochs(source: &dyn Batches) {
    let count = source.epoch().unwrap() as usize;
    let steps = (3 * count).div_ceil(source.rows()) as u64;
    let all: Vec<Row> = (0..steps).flat_map(|step| rows(&source.batch(step))).collect();
    let epochs: Vec<Vec<Row>> = all.chunks_exact(count).take(3).map(<[Row]>::to_vec).collect();
    if count > 5 {
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2]);
    }
    let sorted = epochs.into_iter().map(|mut epoch| {
        epoch.sort();
        epoch
    });
    let sorted: Vec<Vec<Row>> = sorted.collect();
    assert!(sorted[0].windows(2).all(|pair| pair[0] != pair[1]), "a row is there twice");
    assert!(sorted[0] == sorted[1] && sorted[1] == sorted[2], "epochs have different rows");
}

/// Every example once and in order, in batches of any size, however many are skipped. Gives the
/// examples.
pub(crate) fn assert_in_order(examples: &dyn Examples) -> Vec<Row> {
    let count = examples.count();
    let all: Vec<usize> = (0..count).collect();
    let whole = examples.batch_of(&all);
    assert!(whole.length <= examples.longest());
    let want = rows(&whole);
    for size in [1, 2, 3, count, count + 1] {
        let batches: Vec<Batch> = InOrder::new(examples, size).collect();
        assert_eq!(batches.len(), InOrder::new(examples, size).batches());
        assert_eq!(batches.iter().flat_map(rows).collect::<Vec<_>>(), want, "{size} rows");
        for every in 1..batches.len() + 2 {
            let some = InOrder::new(examples, size).step_by(every);
            assert!(some.eq(batches.iter().step_by(every).cloned()), "every {every}");
        }
    }
    assert!(rows(&examples.batch_of(&[])).is_empty());
    want
}

/// `count` different documents of 1 to `longest` tokens.
pub(crate) fn documents(count: usize, longest: usize) -> Documents {
    let mut rng = Rng::new(count as u64);
    let mut tokens = 1..;
    let mut document = |_| tokens.by_ref().take(1 + rng.below(longest)).collect::<Vec<u32>>();
    (0..count).map(&mut document).collect()
}
