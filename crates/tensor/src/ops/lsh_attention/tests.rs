use super::*;

#[test]
fn is_proven() {
    crate::gradcheck::assert_all(&cases());
}

#[test]
fn equal_vectors_fall_into_one_bucket_and_padding_comes_last() {
    let row = [1.0, -2.0, 0.5, 3.0];
    let mut data = Vec::new();
    for t in 0..10 {
        data.extend(row.map(|x| if t % 2 == 0 { x } else { -x }));
    }
    let x = Tensor::new([1, 10, 4], &data);
    let directions = Rng::new(1).normal([3, 4], 1.0);
    let mut segments = [1; 10];
    segments[0] = 0;
    let order = Order::by_hash(&x, 1, &directions, 1, Some(&segments));
    let (first, second): (Vec<u32>, Vec<u32>) = (vec![2, 4, 6, 8], vec![1, 3, 5, 7, 9]);
    let either = [[&first[..], &second].concat(), [&second[..], &first].concat()];
    assert!(either.iter().any(|want| order.places[..9] == want[..]), "{:?}", order.places);
    assert_eq!(order.places[9], 0);
    for (token, slot) in order.slots.iter().enumerate() {
        assert_eq!(order.places[*slot as usize] as usize, token);
    }
}

#[test]
fn one_chunk_is_attention_without_itself() {
    let [q, k, v] = [1, 2, 3].map(|seed| Var::constant(Rng::new(seed).normal([1, 6, 4], 1.0)));
    let order = Order::by_hash(q.value(), 1, &Rng::new(9).normal([2, 4], 1.0), 2, None);
    let attend = LshAttend { chunk: 6, causal: true, scale: 0.5, segments: None };
    let out = lsh_attention(&q, &k, &v, &order, &attend);
    // The first token sees itself alone.
    assert_eq!(out.value().data()[..4], v.value().data()[..4]);
    assert_eq!(out.value().data()[4..8], v.value().data()[..4]);
}
