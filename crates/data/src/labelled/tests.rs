use super::*;

mod translations;

/// What reading one file gives.
fn read_file(name: &str, content: impl AsRef<[u8]>, ask: Ask, fields: &Fields) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, content).unwrap();
    read(&[file], ask, fields, None)
}

fn classes(name: &str, content: impl AsRef<[u8]>) -> Result<Dataset> {
    read_file(name, content, Ask::Classes, &Fields::default())
}

/// The message without the folder, and the hint, which must be there.
fn fault(result: Result<Dataset>) -> String {
    let error = result.unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    let message = error.message();
    match message.rfind('/') {
        Some(at) if message.starts_with('/') => message[at + 1..].to_owned(),
        _ => message.to_owned(),
    }
}

fn texts(data: &Dataset) -> Vec<&str> {
    data.rows.iter().map(|row| row.text.as_str()).collect()
}

#[test]
fn json_lines_and_tables_say_the_same() {
    let json = "{\"text\": \"a, b\", \"label\": \"x\", \"extra\": [[{}]]}\n\n\
                {\"label\": \"y\", \"text\": \"say \\\"hi\\\"\\nagain\"}\n";
    let csv = "\u{feff}label,text\r\nx,\"a, b\"\r\n\r\ny,\"say \"\"hi\"\"\nagain\"";
    let tsv = "text\tid\tlabel\na, b\t1\tx\n\"say \"\"hi\"\"\nagain\"\t2\ty\n";
    for (name, content) in [("a.jsonl", json), ("a.csv", csv), ("a.tsv", tsv)] {
        let data = classes(name, content).unwrap();
        assert_eq!(texts(&data), ["a, b", "say \"hi\"\nagain"], "{name}");
        assert_eq!(data.labels, ["x", "y"]);
        let answers: Vec<&Answer> = data.rows.iter().map(|row| &row.answer).collect();
        assert_eq!(answers, [&Answer::Class(0), &Answer::Class(1)]);
    }
    let lines = |name, content| {
        classes(name, content).unwrap().rows.iter().map(|row| row.place.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("a.jsonl", json), [1, 3]);
    assert_eq!(lines("a.csv", csv), [2, 4]);
}

#[test]
fn labels_are_sorted_numbers_by_value() {
    let data = classes("a.csv", "text,label\na,10\nb,9\nc,-1\nd,10\n").unwrap();
    assert_eq!(
        (data.labels.clone(), data.counts()),
        (["-1", "9", "10"].map(String::from).into(), vec![1, 1, 2])
    );
    let data = classes("a.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":false}");
    assert_eq!(data.unwrap().labels, ["1", "false"]);
}

#[test]
fn bad_rows_are_named_with_their_line() {
    for (name, content, expected) in [
        (
            "a.jsonl",
            "{\"text\":\"a\",\"label\":\"x\"}\n{\"text\":\"b\"}",
            "a.jsonl, line 2: the field \"label\" is missing",
        ),
        (
            "a.jsonl",
            "\n{\"text\":\"b\",\"label\":null}",
            "a.jsonl, line 2: the field \"label\" is null",
        ),
        (
            "a.jsonl",
            "{\"text\":\"b\",\"label\":[\"x\"]}",
            "a.jsonl, line 1: the field \"label\" is a list, expected one label",
        ),
        (
            "a.jsonl",
            "{\"text\":\"b\",\"label\":{}}",
            "a.jsonl, line 1: the field \"label\" is not a label",
        ),
        (
            "a.jsonl",
            "{\"text\":[1,2],\"label\":1}",
            "a.jsonl, line 1: the field \"text\" is not a text",
        ),
        (
            "a.jsonl",
            "[1]",
            "a.jsonl, line 1: not a JSON object (invalid type: sequence, expected a JSON object at line 1 column 0)",
        ),
        (
            "a.jsonl",
            "{\"text\":",
            "a.jsonl, line 1: not JSON (EOF while parsing a value at line 1 column 8)",
        ),
        ("a.csv", "text,label\na,x\nb,\n", "a.csv, line 3: the label is empty"),
        ("a.csv", "text,label\n  ,x\n", "a.csv, line 2: the field \"text\" is empty"),
        (
            "a.csv",
            "text,label\na,x,y\n",
            "a.csv, line 2: 3 fields, expected 2 as in the first line",
        ),
        (
            "a.csv",
            "text,label\n\"a\nb,x\nc,y\n",
            "a.csv, line 2: a quoted field that begins here is not closed",
        ),
        ("a.csv", "text,label\n\"a\nb\"c,x\n", "a.csv, line 2: \"c,x\" after a quoted field"),
        ("a.csv", "text,text\na,x\n", "a.csv, line 1: two columns are called \"text\""),
        ("a.csv", "review,label\na,x\n", "a.csv, line 2: the field \"text\" is missing"),
    ] {
        assert_eq!(fault(classes(name, content)), expected);
    }
    assert_eq!(
        fault(classes("a.csv", b"text,label\na,x\nb\xff,y\n")),
        "a.csv, line 3: not UTF-8 text, from byte 1 of the line on"
    );
    assert_eq!(
        fault(classes("a.csv", b"text,label\n\"a\n\n\xff\",y\n")),
        "a.csv, line 4: not UTF-8 text, from byte 0 of the line on"
    );
    assert_eq!(
        fault(classes("a.csv", "text,label\na,x\nb,x\n")),
        "every row has the same label, \"x\""
    );
    assert!(fault(classes("a.csv", "")).contains("is empty"));
    assert!(fault(classes("a.txt", "a x")).contains("is not labelled data"));
    let hint = classes("a.csv", "review,label\na,x\n").unwrap_err();
    assert!(hint.hint().unwrap().contains("this row has: label, review"), "{hint}");
}

#[test]
fn a_folder_per_class() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (class, name, text) in
        [("good", "1.txt", "fine\n"), ("good", "2.txt", "nice"), ("bad", "1.txt", "ugh")]
    {
        fs::create_dir_all(root.join(class)).unwrap();
        fs::write(root.join(class).join(name), text).unwrap();
    }
    let read = |ask| read(&[root.to_owned()], ask, &Fields::default(), None);
    let data = read(Ask::Classes).unwrap();
    assert_eq!(texts(&data), ["ugh", "fine\n", "nice"]);
    assert_eq!(
        (data.labels.clone(), data.counts()),
        (["bad", "good"].map(String::from).into(), vec![1, 2])
    );
    assert!(read(Ask::Tags).unwrap_err().message().contains("is a directory"));
    fs::create_dir(root.join("empty")).unwrap();
    let error = read(Ask::Classes).unwrap_err();
    assert!(error.message().starts_with("the class empty has no texts: "), "{error}");
    fs::remove_dir(root.join("empty")).unwrap();
    fs::write(root.join("good/3.txt"), b"caf\xe9").unwrap();
    let error = read(Ask::Classes).unwrap_err();
    assert!(
        error.message().contains("good/3.txt, line 1: ")
            && error.message().contains("not UTF-8 text"),
        "{error}"
    );
    fs::write(root.join("notes.txt"), "x").unwrap();
    assert!(read(Ask::Classes).unwrap_err().message().contains("lies beside"));
}

#[test]
fn several_labels_numbers_and_second_texts() {
    let fields = Fields { second: Some("b".into()), ..Fields::default() };
    let json = "{\"text\":\"s\",\"b\":\"t\",\"label\":[\"y\",\"x\",\"y\"]}\n{\"text\":\"u\",\"b\":\"v\",\"label\":[]}";
    let data = read_file("a.jsonl", json, Ask::Several, &fields).unwrap();
    assert_eq!(data.rows[0].answer, Answer::Several(vec![0, 1]));
    assert_eq!(
        (data.rows[1].answer.clone(), data.rows[1].second.as_deref()),
        (Answer::Several(vec![]), Some("v"))
    );
    let data = read_file("a.csv", "text,b,label\ns,t,y; x\n", Ask::Several, &fields).unwrap();
    assert_eq!(
        (data.labels.clone(), data.rows[0].answer.clone()),
        (["x", "y"].map(String::from).into(), Answer::Several(vec![0, 1]))
    );
    let numbers = |content| read_file("a.csv", content, Ask::Numbers, &Fields::default());
    let data = numbers("text,label\na,1.5;2\nb,-1;0\n").unwrap();
    assert_eq!(data.rows[0].answer, Answer::Numbers(vec![1.5, 2.0]));
    assert!(data.labels.is_empty());
    assert_eq!(
        fault(numbers("text,label\na,1\nb,1;2\n")),
        "a.csv, line 3: 2 numbers, expected 1 as in the first row"
    );
    for bad in ["x", "nan", "inf", "", "1e99"] {
        let content = format!("text,label\na,{bad}\n");
        let fault = fault(read_file("a.csv", content, Ask::Numbers, &Fields::default()));
        assert_eq!(fault, "a.csv, line 2: the field \"label\" is not a number");
    }
    let pairs = read_file("a.tsv", "text\tb\tlabel\ns\tt\t4.5\n", Ask::Pairs, &fields).unwrap();
    assert_eq!(pairs.rows[0].answer, Answer::Similar(Some(4.5)));
    let pairs = read_file("a.csv", "text,second\ns,t\n", Ask::Pairs, &Fields::default()).unwrap();
    assert_eq!(
        (pairs.rows[0].answer.clone(), pairs.rows[0].second.as_deref()),
        (Answer::Similar(None), Some("t"))
    );
}

#[test]
fn texts_without_a_partner_are_pairs_with_themselves() {
    let pairs = |name, content| read_file(name, content, Ask::Pairs, &Fields::default());
    for (name, content) in
        [("a.txt", "one\n\ntwo\n"), ("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}")]
    {
        let data = pairs(name, content).unwrap();
        assert_eq!(texts(&data), ["one", "two"]);
        assert!(data.rows.iter().all(|row| row.second.is_none()));
    }
    assert_eq!(
        fault(pairs("a.jsonl", "{\"text\":\"one\",\"label\":1}")),
        "a.jsonl, line 1: a similarity without a second text"
    );
    let named = Fields { second: Some("b".into()), ..Fields::default() };
    let missing = fault(read_file("a.csv", "text\na\n", Ask::Pairs, &named));
    assert_eq!(missing, "a.csv, line 2: the field \"b\" is missing");
}

#[test]
fn tags_from_lists_and_columns() {
    let json = "{\"tokens\":[\"Mia\",\"ran\"],\"tags\":[\"B-WHO\",\"O\"]}";
    let columns = "-DOCSTART- -X- O\n\nMia NNP B-WHO\nran VB O\n\n\n";
    for (name, content) in
        [("a.jsonl", json), ("a.conll", columns), ("a.txt", "Mia\tB-WHO\nran\tO")]
    {
        let data = read_file(name, content, Ask::Tags, &Fields::default()).unwrap();
        assert_eq!(
            (texts(&data), data.labels.clone()),
            (vec!["Mia ran"], ["B-WHO", "O"].map(String::from).into())
        );
        assert_eq!(data.rows[0].answer, Answer::Tags(vec![(0..3, 0), (4..7, 1)]));
    }
    let tags = |name, content| fault(read_file(name, content, Ask::Tags, &Fields::default()));
    assert_eq!(tags("a.txt", "Mia O\n\nran\n"), "a.txt, line 3: \"ran\" has no tag");
    assert_eq!(
        tags("a.jsonl", "{\"tokens\":[\"a\"],\"tags\":[]}"),
        "a.jsonl, line 1: 1 tokens with 0 tags"
    );
    assert_eq!(
        tags("a.jsonl", "{\"tokens\":[\"a\", \" \"],\"tags\":[\"O\",\"O\"]}"),
        "a.jsonl, line 1: an empty token"
    );
}

#[test]
fn answers_are_found_in_their_context() {
    let spans = |row: &str| read_file("a.jsonl", row, Ask::Spans, &Fields::default());
    let data =
        spans("{\"question\":\"q\",\"context\":\"é the cat the cat\",\"answer\":\"the cat\"}")
            .unwrap();
    assert_eq!(data.rows[0].answer, Answer::Span(3..10, vec!["the cat".into()]));
    assert_eq!(
        (data.rows[0].text.as_str(), data.rows[0].second.as_deref()),
        ("é the cat the cat", Some("q"))
    );
    // The start counts characters.
    let data = spans("{\"question\":\"q\",\"context\":\"é the cat the cat\",\"answer\":[\"the cat\",\"cat\"],\"start\":10}").unwrap();
    assert_eq!(data.rows[0].answer, Answer::Span(11..18, vec!["the cat".into(), "cat".into()]));
    for (row, expected) in [
        (
            "{\"question\":\"q\",\"context\":\"abc\",\"answer\":\"d\"}",
            "the answer \"d\" does not stand in the context, or not there",
        ),
        (
            "{\"question\":\"q\",\"context\":\"abc\",\"answer\":\"b\",\"start\":2}",
            "the answer \"b\" does not stand in the context, or not there",
        ),
        (
            "{\"question\":\"q\",\"context\":\"abc\",\"answer\":\"b\",\"start\":-1}",
            "the start is not a number of characters",
        ),
        ("{\"question\":\"q\",\"context\":\"abc\",\"answer\":[]}", "the answer is empty"),
        ("{\"context\":\"abc\",\"answer\":\"a\"}", "the field \"question\" is missing"),
    ] {
        assert_eq!(fault(spans(row)), format!("a.jsonl, line 1: {expected}"));
    }
}

#[test]
fn known_labels_are_kept_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "text,label\na,y\nb,y\n").unwrap();
    let known = ["z", "y", "x"].map(String::from);
    let data =
        read(std::slice::from_ref(&file), Ask::Classes, &Fields::default(), Some(&known)).unwrap();
    assert_eq!((data.labels, data.rows[0].answer.clone()), (known.to_vec(), Answer::Class(1)));
    fs::write(&file, "text,label\na,y\nb,q\n").unwrap();
    let error = read(&[file], Ask::Classes, &Fields::default(), Some(&known)).unwrap_err();
    assert!(
        error.message().ends_with("a.csv, line 3: the label \"q\" is not one of the model's"),
        "{error}"
    );
    assert_eq!(error.hint(), Some("expected one of: z, y, x"));
}

#[test]
fn splits_are_stratified_seeded_and_independent_of_the_order() {
    let row =
        |i: usize| format!("text {i},{}\n", if i.is_multiple_of(5) { "rare" } else { "usual" });
    let content = |order: &mut dyn Iterator<Item = usize>| {
        "text,label\n".to_owned() + &order.map(row).collect::<String>()
    };
    let data = classes("a.csv", content(&mut (0..200))).unwrap();
    let split = data.split(0.1, 7);
    assert_eq!((split.train.len(), split.validation.len()), (180, 20));
    let rare = |rows: &[usize]| rows.iter().filter(|i| i.is_multiple_of(5)).count();
    assert_eq!((rare(&split.train), rare(&split.validation)), (36, 4));
    let mut all = [split.train.clone(), split.validation.clone()].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..200));
    assert_eq!(split, data.split(0.1, 7));
    assert_ne!(split, data.split(0.1, 8));
    let backwards = classes("a.csv", content(&mut (0..200).rev())).unwrap();
    let held = |data: &Dataset, split: &Split| {
        let mut texts: Vec<String> =
            split.validation.iter().map(|&i| data.rows[i].text.clone()).collect();
        texts.sort();
        texts
    };
    assert_eq!(held(&data, &split), held(&backwards, &backwards.split(0.1, 7)));
    let weights = data.class_weights(&split.train);
    assert_eq!(weights, [2.5, 0.625]); // 180 / (2 · 36) and 180 / (2 · 144)
    // One row of every class is learned from, whatever the share.
    let few = classes("a.csv", "text,label\na,x\nb,y\nc,y\n").unwrap();
    assert_eq!(few.split(0.99, 1).train.len(), 2);
    assert_eq!(few.class_weights(&[1, 2]), [0.0, 1.0]);
}
