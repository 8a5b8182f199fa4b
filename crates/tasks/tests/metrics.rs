//! Measures against scikit-learn, SciPy and values worked out by hand.

use hearken_tasks::metrics::{
    Confusion, EntityScore, TranslationScore, answer_scores, cosine, entities, mean_absolute_error,
    recall_at, root_mean_squared_error, several_scores, spearman,
};
use serde_json::Value;

fn fixtures() -> Value {
    serde_json::from_str(include_str!("fixtures/metrics.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn places(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect()
}

/// A few roundings of f64.
fn assert_near(got: f64, want: f64, what: &str) {
    assert!((got - want).abs() < 1e-12, "{what}: {got}, expected {want}");
}

#[test]
fn classes_as_scikit_learn_scores_them() {
    for case in fixtures()["classes"].as_array().unwrap() {
        let count = case["count"].as_u64().unwrap() as usize;
        let mut confusion = Confusion::new(count);
        for (right, said) in places(&case["right"]).into_iter().zip(places(&case["said"])) {
            confusion.add(right, said);
        }
        assert_near(confusion.accuracy(), case["accuracy"].as_f64().unwrap(), "accuracy");
        assert_near(confusion.macro_f1(), case["macro"].as_f64().unwrap(), "macro F1");
        for class in 0..count {
            let score = confusion.score(class);
            assert_near(score.precision, numbers(&case["precision"])[class], "precision");
            assert_near(score.recall, numbers(&case["recall"])[class], "recall");
            assert_near(score.f1, numbers(&case["f1"])[class], "F1");
            assert_eq!(score.count, places(&case["support"])[class]);
            let row: Vec<usize> = (0..count).map(|said| confusion.count(class, said)).collect();
            assert_eq!(row, places(&case["confusion"][class]));
        }
    }
    let none = Confusion::new(2);
    assert_eq!(
        (none.accuracy(), none.macro_f1(), none.majority(), none.total()),
        (0.0, 0.0, 0.0, 0)
    );
}

#[test]
fn several_labels_as_scikit_learn_scores_them() {
    for case in fixtures()["several"].as_array().unwrap() {
        let flags = |value: &Value| -> Vec<bool> {
            let rows = value.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
            rows.map(|flag| flag.as_bool().unwrap()).collect()
        };
        let count = case["count"].as_u64().unwrap() as usize;
        let (subset, mean, all) =
            several_scores(&flags(&case["right"]), &flags(&case["said"]), count);
        assert_near(subset, case["subset"].as_f64().unwrap(), "subset accuracy");
        assert_near(mean, case["macro"].as_f64().unwrap(), "macro F1");
        assert_near(all, case["micro"].as_f64().unwrap(), "micro F1");
    }
}

#[test]
fn numbers_as_scikit_learn_and_scipy_score_them() {
    for case in fixtures()["numbers"].as_array().unwrap() {
        let (said, right) = (numbers(&case["said"]), numbers(&case["right"]));
        assert_near(mean_absolute_error(&said, &right), case["mae"].as_f64().unwrap(), "MAE");
        assert_near(root_mean_squared_error(&said, &right), case["rmse"].as_f64().unwrap(), "RMSE");
        assert_near(spearman(&said, &right), case["spearman"].as_f64().unwrap(), "Spearman");
    }
    assert_near(spearman(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0]), -1.0, "the other way round");
    assert!(spearman(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
}

#[test]
fn entities_count_whole() {
    let find = |tags: &[&str]| {
        let found = entities(tags.iter().copied()).into_iter();
        found.map(|e| (e.words.start, e.words.end, e.kind)).collect::<Vec<_>>()
    };
    let of = |start, end, kind: &str| (start, end, kind.to_owned());
    assert_eq!(
        find(&["B-A", "I-A", "O", "B-B", "B-B", "I-A", "I-B"]),
        [of(0, 2, "A"), of(3, 4, "B"), of(4, 5, "B"), of(5, 6, "A"), of(6, 7, "B")]
    );
    assert_eq!(find(&["O", "I-A", "I-A", "O", "I-A"]), [of(1, 3, "A"), of(4, 5, "A")]);
    assert_eq!(find(&["noun", "noun", "verb"]), [of(0, 2, "noun"), of(2, 3, "verb")]);
    let mut score = EntityScore::default();
    let right = entities(["B-A", "I-A", "O", "B-B"]);
    // The first is cut short, the second right, a third made up.
    let said = entities(["B-A", "O", "B-B", "B-B"]);
    score.add(&right, &said);
    assert_near(score.f1(), 2.0 / 5.0, "one of two there and three said");
    let kinds: Vec<_> = score.kinds().collect();
    assert_eq!(kinds, [("A", 0.0, 1), ("B", 2.0 / 3.0, 1)]);
    score.add(&right, &right);
    assert_near(score.f1(), 2.0 * 3.0 / 9.0, "both sentences");
    assert_eq!(EntityScore::default().f1(), 0.0);
}

#[test]
fn answers_as_squad_compares_them() {
    let right = ["The Red Kite".to_owned(), "kite".to_owned()];
    assert_eq!(answer_scores("a red kite.", &right), (true, 1.0));
    assert_eq!(answer_scores("Kite!", &right), (true, 1.0));
    let (exact, overlap) = answer_scores("red kite there", &right);
    assert!(!exact);
    assert_near(overlap, 0.8, "two words of two and three");
    assert_eq!(answer_scores("owl", &right), (false, 0.0));
    assert_eq!(answer_scores("the", &["a".to_owned()]), (true, 1.0));
    assert_eq!(answer_scores("owl", &[]), (false, 0.0));
}

#[test]
fn recall_is_the_share_of_own_texts_among_the_nearest() {
    // The third query is nearest to the first text, then to its own.
    let queries = [1.0, 0.0, 0.0, 2.0, 1.0, 0.9];
    let texts = [5.0, 1.0, 0.0, 1.0, 0.6, 1.0];
    assert_near(recall_at(1, &queries, &texts, 2), 1.0, "all");
    let texts = [1.0, 0.9, 0.0, 1.0, 0.6, 1.0];
    assert_near(recall_at(1, &queries, &texts, 2), 2.0 / 3.0, "two of three");
    assert_near(recall_at(2, &queries, &texts, 2), 1.0, "within two");
    // Vectors that are all the same find only the first.
    assert_near(recall_at(1, &[1.0; 8], &[1.0; 8], 2), 0.25, "by order alone");
    assert_near(cosine(&[1.0, 1.0], &[2.0, 0.0]), 0.5_f64.sqrt(), "45 degrees");
    assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
}

#[test]
fn translations_as_sacrebleu_scores_them() {
    let fixtures: Value = serde_json::from_str(include_str!("fixtures/translation.json")).unwrap();
    let pairs: Vec<[&str; 2]> = (fixtures["pairs"].as_array().unwrap().iter())
        .map(|pair| [pair[0].as_str().unwrap(), pair[1].as_str().unwrap()])
        .collect();
    assert_eq!(pairs.len(), 1000);
    for corpus in fixtures["corpora"].as_array().unwrap() {
        let part = places(&corpus["part"]);
        let mut score = TranslationScore::default();
        pairs[part[0]..part[1]].iter().for_each(|[said, right]| score.add(said, right));
        for (at, name, got) in [(0, "bleu", score.bleu()), (1, "chrf", score.chrf())] {
            let what = format!("{name} of {part:?}");
            let want = corpus[name].as_f64().unwrap();
            // Logarithms and exponentials of two libraries, of numbers up to 100.
            assert!((got - want).abs() < 1e-10, "{what}: {got}, expected {want}");
            assert_eq!(format!("{got:.2}"), corpus["printed"][at].as_str().unwrap(), "{what}");
        }
    }
    for (own, theirs) in [TranslationScore::BLEU_SIGNATURE, TranslationScore::CHRF_SIGNATURE]
        .into_iter()
        .zip(fixtures["signatures"].as_array().unwrap())
    {
        let without_version = |text: &str| text.split("|version:").next().unwrap().to_owned();
        assert_eq!(without_version(own), without_version(theirs.as_str().unwrap()));
    }
    let none = TranslationScore::default();
    assert_eq!((none.exact_match(), none.bleu(), none.chrf()), (0.0, 0.0, 0.0));
    let mut two = TranslationScore::default();
    two.add("one", "one");
    two.add("one ", "one");
    assert_eq!((two.exact_match(), two.lines()), (0.5, 2));
}
