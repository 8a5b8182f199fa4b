//! The programs that lessons show are compiled and run here, to the letter.

macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            include!(concat!("../../lessons/code/", stringify!($name), ".rs"));

            #[test]
            fn runs() {
                main();
            }
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

programs! {
    descent, flow, two_variables, matrix_form, perceptron,
    softmax, overflow,
    cosine, dimensions, lookup, three_matrices,
    tiny_attention, chat, root_d, masks, heads,
    sinusoids, rotation, alibi,
    residuals, norms, bend, one_by_one, tying,
    teacher_forcing, recurrence, bahdanau, momentum, adam, decay, schedules, clipping,
    online_softmax, linear_attention, counting,
    sampling,
    bpe, perplexity, modalities, label_smoothing, calibration,
    identities,
}

#[test]
fn every_file_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../lessons/code");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let mut names = NAMES.to_vec();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn programs_are_short() {
    for lesson in hearken::lessons::course() {
        let lines = lesson.code.lines().count();
        assert!((6..=24).contains(&lines), "{}: {lines} lines", lesson.name);
        assert!(lesson.code.contains("assert"), "{} checks nothing", lesson.name);
    }
}
