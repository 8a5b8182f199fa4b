use hearken::data::tokenizer::{Kind, Training};

fn main() {
    let text = "the cat sat on the mat";
    let mut training = Training::new(Kind::Bpe);
    training.vocabulary = Some(256 + 1 + 3); // bytes, an end of text, three merges
    let tokenizer = training.train_on_text(text).unwrap();
    let ids = tokenizer.encode(text).unwrap();
    let tokens: Vec<String> = ids.iter().filter_map(|id| tokenizer.token(*id)).collect();
    println!("{}", tokens.join("|"));
    assert_eq!(ids.len(), 15); // of 22 characters
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
}
