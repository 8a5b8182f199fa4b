use super::*;
use hearken_data::labelled::{Place, Row};
use hearken_formats::{SpecialTokens, save};
use hearken_nn::config::{DecoderConfig, StackConfig};
use hearken_nn::models::Decoder;
use tempfile::TempDir;

/// A decoder that knows nothing, with the words of the embedded task or with bytes.
fn model(tokenizer: &Tokenizer, context: usize) -> (TempDir, OpenModel) {
    let folder = tempfile::tempdir().unwrap();
    let config = DecoderConfig {
        vocabulary: tokenizer.vocabulary_size(),
        ..DecoderConfig::new(context, StackConfig::new(2, 16, 4))
    };
    save(folder.path(), &Decoder::drawn(config, 3), &SpecialTokens::default()).unwrap();
    let open = OpenModel::open(Some(folder.path()), &mut |_| {}).unwrap();
    (folder, open)
}

fn asking(shots: &[usize]) -> Asking {
    Asking { shots: shots.to_vec(), questions: 40, template: None, seed: 1 }
}

fn characters() -> Tokenizer {
    Tokenizer::of_characters(&(' '..='~').chain(['\n']).collect::<Vec<_>>())
}

fn dataset(labels: &[&str]) -> Dataset {
    let row = |i: usize| Row {
        text: format!("text {i}"),
        second: labels.is_empty().then(|| format!("le texte {i}")),
        answer: if labels.is_empty() {
            Answer::Similar(None)
        } else {
            Answer::Class((i % labels.len()) as u32)
        },
        place: Place { file: 0, line: i as u64 },
    };
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    Dataset { rows: (0..60).map(row).collect(), labels, ..Dataset::default() }
}

#[test]
fn a_model_that_knows_nothing_guesses() {
    let tokenizer = shots::tokenizer();
    let (_folder, open) = model(&tokenizer, 64);
    let curve = of_shots(&open, &tokenizer, &asking(&[0, 4]), &mut |_| {}).unwrap();
    assert_eq!(curve.points.iter().map(|p| p.shots).collect::<Vec<_>>(), [0, 4]);
    // One label of eight; five standard deviations of 40 draws are 0.26.
    assert!(curve.points.iter().all(|p| p.accuracy < 0.4), "{curve:?}");
    assert!(curve.points[1].best.unwrap() > curve.points[0].best.unwrap());
    assert!(curve.chart().svg().contains("best possible"));
    let error = of_shots(&open, &tokenizer, &asking(&[40]), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("context of 64"), "{error}");
}

#[test]
fn continuations_score_the_sum_of_their_tokens() {
    let tokenizer = characters();
    let (_folder, open) = model(&tokenizer, 64);
    let labels = vec!["yes".to_owned(), "no".to_owned()];
    let prompter = Prompter::new(&open, &tokenizer, LABEL_TEMPLATE, labels).unwrap();
    let encode = |text: &str| tokenizer.encode(text).unwrap();
    let prompt = encode("is it so");
    let got = prompter.scores(&prompt, &[encode(" yes"), encode(" no")]);
    for (got, label) in got.iter().zip([" yes", " no"]) {
        let all = [prompt.clone(), encode(label)].concat();
        let (inputs, targets) = (&all[..all.len() - 1], &all[1..]);
        let losses = open.generates().unwrap().token_losses(&Tokens::new(inputs, 1), targets);
        let want: f64 =
            losses.data()[prompt.len() - 1..].iter().map(|loss| -f64::from(*loss)).sum();
        assert!((got - want).abs() < 1e-4, "{label}: {got}, expected {want}");
    }
    // Single tokens take one row for all.
    let one = prompter.scores(&prompt, &[encode("y"), encode("n")]);
    let alone = prompter.scores(&prompt, &[encode("n")]);
    assert!((one[1] - alone[0]).abs() < 1e-9);
}

#[test]
fn rows_of_the_user_are_asked() {
    let tokenizer = characters();
    let (_folder, open) = model(&tokenizer, 256);
    let curve = of_rows(&open, &tokenizer, &dataset(&["no", "yes"]), &asking(&[0, 2]), &mut |_| {})
        .unwrap();
    assert_eq!((curve.questions, curve.cut), (40, 0));
    assert!((0.5..0.7).contains(&curve.majority.unwrap()));
    let written = Asking { questions: 3, ..asking(&[1]) };
    let curve = of_rows(&open, &tokenizer, &dataset(&[]), &written, &mut |_| {}).unwrap();
    assert!(curve.majority.is_none() && curve.points[0].f1.is_some());
    // Texts are cut to their share of the context.
    let mut long = dataset(&["no", "yes"]);
    long.rows.iter_mut().for_each(|row| row.text = row.text.repeat(40));
    let curve = of_rows(&open, &tokenizer, &long, &written, &mut |_| {}).unwrap();
    assert_eq!(curve.cut, 3 * 2);
}

#[test]
fn examples_show_all_labels_in_turns() {
    let data = dataset(&["a", "b", "c"]);
    let lists = by_label(&data, &(0..60).collect::<Vec<_>>());
    let mut rng = Rng::new(1);
    for count in [0, 1, 3, 7] {
        let rows = draw(&lists, count, &mut rng);
        let mut counts = [0; 3];
        for row in &rows {
            counts[row % 3] += 1;
        }
        assert_eq!(rows.len(), count);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{counts:?}");
    }
    assert_eq!(draw(&lists, 100, &mut rng).len(), 60);
}

#[test]
fn bad_questions_are_refused() {
    let tokenizer = characters();
    let (_folder, open) = model(&tokenizer, 64);
    let data = dataset(&["no", "yes"]);
    for template in ["{text}", "{label} {text}", "", "{text} {text} {label}"] {
        let asking = Asking { template: Some(template.to_owned()), ..asking(&[1]) };
        let error = of_rows(&open, &tokenizer, &data, &asking, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("template"), "{template}: {error}");
    }
    for bad in [asking(&[]), asking(&[5000]), Asking { questions: 0, ..asking(&[1]) }] {
        assert!(of_rows(&open, &tokenizer, &data, &bad, &mut |_| {}).is_err());
    }
    let error = of_rows(&open, &tokenizer, &data, &asking(&[60]), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
}
