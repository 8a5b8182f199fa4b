//! Exercises for encoders, made of stories: each has an answer that the text decides, so that the
//! best possible result is known.
//!
//! - **Labels.** Was nobody asked, was somebody asked in vain, or was the animal that saw the thing
//!   among those that were asked? The last two differ only in whether two words are the same, so no
//!   single word tells. The three are equally frequent.
//! - **Entities.** Who, what and where: `Mia the fox`, `red kite`, `river`, and the helper. An
//!   animal is the helper, a part of the hero, or neither, as its sentence says.
//! - **Questions**, answered by a part of the story.
//! - **Paraphrases.** The same events told in another way, with what a reader can know from both:
//!   hero, animal, colour, thing, helper and place.

use super::grammar::{self, Mention};
use super::{key, words};
use crate::labelled::{Answer, Dataset, Place, Row};
use hearken_tensor::rng::Rng;
use std::collections::BTreeSet;
use std::ops::Range;

const TRAINING_SITE: u64 = 0x6578_6572_6369_7365; // "exercise"
const VALIDATION_SITE: u64 = 0x6578_616d_0000_0000; // "exam"

const LABELS: [&str; 3] = ["asked-in-vain", "asked-nobody", "asked-the-finder"];
const TAGS: [&str; 7] = ["B-HELPER", "B-WHAT", "B-WHERE", "B-WHO", "I-WHAT", "I-WHO", "O"];

/// Something to learn from stories, beside telling them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exercise {
    /// Label a story.
    Labels,
    /// Find who, what and where.
    Entities,
    /// Answer a question by a part of the story.
    Questions,
    /// Find the story that says the same.
    Paraphrases,
    /// Guess hidden words; see [`MaskedBound`](super::MaskedBound).
    Masks,
}

impl Exercise {
    /// The names of its labels or tags, sorted; empty if it has none.
    pub fn labels(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Labels => &LABELS,
            Self::Entities => &TAGS,
            Self::Questions | Self::Paraphrases | Self::Masks => &[],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The row of a training step.
    pub fn row(self, seed: u64, step: u64, row: u64) -> Row {
        self.draw(&mut Rng::new(key(key(seed, step, TRAINING_SITE), row, 0)))
    }

    /// Rows that are held out, drawn from other numbers than those of training.
    pub fn held_out(self, rows: usize, seed: u64) -> Dataset {
        let draw = |row| self.draw(&mut Rng::new(key(key(seed, 0, VALIDATION_SITE), row, 0)));
        let rows = (0..rows as u64).map(draw).collect();
        Dataset { rows, labels: self.labels(), ..Dataset::default() }
    }

    fn draw(self, rng: &mut Rng) -> Row {
        match self {
            Self::Labels => labelled(rng),
            Self::Entities => tagged(&Story::draw(rng)),
            Self::Questions => questioned(Story::draw(rng), rng),
            Self::Paraphrases => paraphrased(Story::draw(rng), rng),
            Self::Masks => row(Story::draw(rng).text, None, Answer::Similar(None)),
        }
    }
}

fn row(text: String, second: Option<String>, answer: Answer) -> Row {
    Row { text, second, answer, place: Place { file: 0, line: 0 } }
}

/// A story and what it tells.
struct Story {
    text: String,
    mentions: Vec<Mention>,
}

impl Story {
    fn draw(rng: &mut Rng) -> Self {
        let (sample, mentions) = grammar::sample_mentioning(&words::story(), words::SLOTS, rng);
        Self { text: sample.text.trim_end().to_owned(), mentions }
    }

    /// The mentions of what is in a slot, by name.
    fn named(&self, slot: usize) -> impl Iterator<Item = &Mention> {
        self.mentions.iter().filter(move |mention| mention.slot == slot && !mention.agrees)
    }

    fn first(&self, slot: usize) -> &Mention {
        self.named(slot).next().expect("every story fills these slots")
    }

    fn word(&self, slot: usize) -> &str {
        &self.text[self.first(slot).place.clone()]
    }

    /// Those that were asked, where they are first named.
    fn asked(&self) -> Vec<&Mention> {
        // Each is named twice: asked, and then answering.
        self.named(words::ASKED).step_by(2).collect()
    }
}

fn labelled(rng: &mut Rng) -> Row {
    let wanted = rng.below(LABELS.len());
    loop {
        let story = Story::draw(rng);
        let asked = story.asked();
        let helper = story.first(words::HELPER).option;
        let helps = asked.iter().any(|asked| asked.option == helper);
        let label = if helps { 2 } else { usize::from(asked.is_empty()) };
        if label == wanted {
            return row(story.text, None, Answer::Class(label as u32));
        }
    }
}

fn tagged(story: &Story) -> Row {
    let tag = |name: &str| TAGS.iter().position(|tag| *tag == name).expect("listed above") as u32;
    // What is named, from its first byte to its last, and how it is tagged.
    let mut named: Vec<(Range<usize>, [u32; 2])> = Vec::new();
    let who = [tag("B-WHO"), tag("I-WHO")];
    let what = [tag("B-WHAT"), tag("I-WHAT")];
    for hero in story.named(words::HERO) {
        named.push((hero.place.clone(), who));
    }
    if let Some((first, _)) = named.first_mut() {
        first.end = story.first(words::ANIMAL).place.end; // Mia the fox
    }
    for (colour, thing) in story.named(words::COLOUR).zip(story.named(words::THING)) {
        named.push((colour.place.start..thing.place.end, what));
    }
    named.extend(story.named(words::PLACE).map(|place| (place.place.clone(), [tag("B-WHERE"); 2])));
    let helper = story.named(words::HELPER);
    named.extend(helper.map(|helper| (helper.place.clone(), [tag("B-HELPER"); 2])));
    let outside = tag("O");
    let words = super::words_of(&story.text).map(|word| {
        let start = word.as_ptr() as usize - story.text.as_ptr() as usize;
        let inside = named.iter().find(|(place, _)| place.contains(&start));
        let tag = inside.map_or(
            outside,
            |(place, [begin, inside])| {
                if place.start == start { *begin } else { *inside }
            },
        );
        (start..start + word.len(), tag)
    });
    let answer = Answer::Tags(words.collect());
    row(story.text.clone(), None, answer)
}

/// What may be asked, and where the answer is.
const QUESTIONS: &[&str] = &[
    "Who lost something?",
    "What did {hero} lose?",
    "Where was the {thing}?",
    "Who saw the {thing}?",
    "Which animal is {hero}?",
    "Who was asked first?",
    "Who was asked last?",
];

fn questioned(story: Story, rng: &mut Rng) -> Row {
    let asked = story.asked();
    // Nobody was asked in some stories.
    let number = rng.below(if asked.is_empty() { 5 } else { QUESTIONS.len() });
    let place = match number {
        0 => story.first(words::HERO).place.clone(),
        1 => story.first(words::COLOUR).place.start..story.first(words::THING).place.end,
        2 => story.first(words::PLACE).place.clone(),
        3 => story.first(words::HELPER).place.clone(),
        4 => story.first(words::ANIMAL).place.clone(),
        5 => asked.first().expect("somebody was asked").place.clone(),
        _ => asked.last().expect("somebody was asked").place.clone(),
    };
    let question = fill(QUESTIONS[number], &story);
    let answers = vec![story.text[place.clone()].to_owned()];
    row(story.text, Some(question), Answer::Span(place, answers))
}

/// Other ways to tell a story.
const TELLINGS: &[&str] = &[
    "At the {place}, the {helper} had noticed the {colour} {thing} of {hero} the {animal}, and so \
     {he} got {it} back.",
    "{hero} the {animal} has {his} {colour} {thing} again, because the {helper} spotted {it} near \
     the {place}.",
    "Thanks to the {helper}, a {animal} called {hero} went to the {place} and came home with {his} \
     {thing}, all {colour}.",
];

fn paraphrased(story: Story, rng: &mut Rng) -> Row {
    let telling = fill(TELLINGS[rng.below(TELLINGS.len())], &story);
    row(story.text, Some(telling), Answer::Similar(None))
}

/// Puts the words of a story into a text with names in braces.
fn fill(template: &str, story: &Story) -> String {
    let hero = story.first(words::HERO).option;
    let thing = story.first(words::THING).option;
    let he = words::SHE[hero].to_lowercase();
    let names = [
        ("{hero}", story.word(words::HERO)),
        ("{animal}", story.word(words::ANIMAL)),
        ("{colour}", story.word(words::COLOUR)),
        ("{thing}", story.word(words::THING)),
        ("{helper}", story.word(words::HELPER)),
        ("{place}", story.word(words::PLACE)),
        ("{he}", &he),
        ("{his}", words::HER[hero]),
        ("{it}", words::IT[thing]),
    ];
    names.iter().fold(template.to_owned(), |text, (name, word)| text.replace(name, word))
}

/// Every piece of text that exercises add to stories.
pub(super) fn fragments(add: &mut dyn FnMut(&str)) {
    for template in QUESTIONS.iter().chain(TELLINGS) {
        let mut rest = *template;
        while let Some((before, after)) = rest.split_once('{') {
            add(before);
            rest = after.split_once('}').map_or("", |(_, after)| after);
        }
        add(rest);
    }
    for she in words::SHE {
        add(&she.to_lowercase());
    }
}

/// The best possible recall@1 of a search for the second texts of paraphrases by their stories:
/// where k second texts tell the same events, one of them is found by chance alone, 1/k.
pub fn ceiling_of_recall(pairs: &[Row]) -> f64 {
    let told: BTreeSet<Vec<&str>> = pairs.iter().map(|pair| events(&pair.text)).collect();
    told.len() as f64 / pairs.len().max(1) as f64 // Σ over groups of k · 1/k
}

/// What a story has in common with its paraphrase.
fn events(story: &str) -> Vec<&str> {
    let words: Vec<&str> = super::words_of(story).collect();
    let helper = words.iter().position(|word| *word == "saw").unwrap_or_default();
    // Mia the fox lost her red kite … The owl saw it … at the river.
    let places = [0, 2, 5, 6, helper.saturating_sub(1), words.len().saturating_sub(2)];
    places.iter().filter_map(|place| words.get(*place).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::IGNORED;
    use crate::stories::word_tokenizer;
    use crate::tokenizer::Special;

    #[test]
    fn labels_are_what_the_stories_say_and_equally_frequent() {
        let data = Exercise::Labels.held_out(600, 1);
        let mut counts = [0; 3];
        for row in &data.rows {
            let words: Vec<&str> = super::super::words_of(&row.text).collect();
            let helper = words[words.iter().position(|word| *word == "saw").unwrap() - 1];
            let asked: Vec<&str> =
                words.windows(3).filter(|w| w[0] == "asked").map(|w| w[2]).collect();
            let label = match (asked.is_empty(), asked.contains(&helper)) {
                (true, _) => "asked-nobody",
                (_, true) => "asked-the-finder",
                _ => "asked-in-vain",
            };
            let Answer::Class(class) = row.answer else { panic!("{row:?}") };
            assert_eq!(data.labels[class as usize], label, "{}", row.text);
            counts[class as usize] += 1;
        }
        // 200 of each are expected; five standard deviations are 58.
        assert!(counts.iter().all(|count| (142..=258).contains(count)), "{counts:?}");
    }

    #[test]
    fn entities_are_whole_and_in_their_places() {
        for row in Exercise::Entities.held_out(100, 2).rows {
            let Answer::Tags(words) = &row.answer else { panic!("{row:?}") };
            let named = |tag: &str| {
                let end = |name: &str| TAGS.iter().position(|t| *t == name).unwrap() as u32;
                let (begin, inside) = (end(&format!("B-{tag}")), format!("I-{tag}"));
                let mut found: Vec<String> = Vec::new();
                for (place, tag) in words {
                    let word = &row.text[place.clone()];
                    if *tag == begin {
                        found.push(word.to_owned());
                    } else if TAGS[*tag as usize] == inside {
                        let last = found.last_mut().unwrap();
                        *last = format!("{last} {word}");
                    }
                }
                found
            };
            let (who, what) = (named("WHO"), named("WHAT"));
            assert!(who[0].starts_with(&format!("{} the ", who[1])) && who.len() == 2, "{who:?}");
            assert!(what.len() == 2 && what[0] == what[1] && what[0].split(' ').count() == 2);
            let place = named("WHERE");
            assert!(place.len() == 2 && place[0] == place[1], "{place:?}");
            assert!(row.text.contains(&format!("The {} saw ", named("HELPER")[0])), "{}", row.text);
        }
    }

    #[test]
    fn questions_are_answered_by_their_story() {
        let rows = Exercise::Questions.held_out(300, 3).rows;
        for row in &rows {
            let Answer::Span(place, answers) = &row.answer else { panic!("{row:?}") };
            assert_eq!(&row.text[place.clone()], answers[0]);
            let question = row.second.as_deref().unwrap();
            let told = match question {
                "Who lost something?" => row.text.starts_with(&answers[0]),
                "Who was asked first?" => {
                    row.text.find(&format!("asked the {},", answers[0]))
                        == row.text.find("asked the ")
                }
                "Who was asked last?" => {
                    row.text.rfind(&format!("asked the {},", answers[0]))
                        == row.text.rfind("asked the ")
                }
                _ if question.starts_with("Where") => {
                    row.text.ends_with(&format!("at the {}.", answers[0]))
                }
                _ if question.starts_with("What did") => answers[0].split(' ').count() == 2,
                _ if question.starts_with("Who saw") => {
                    row.text.contains(&format!("The {} saw", answers[0]))
                }
                _ => row.text.contains(&format!(" the {} ", answers[0])),
            };
            assert!(told, "{question} {} {answers:?}", row.text);
        }
        let different: BTreeSet<&str> =
            rows.iter().filter_map(|row| row.second.as_deref()?.split(' ').next()).collect();
        assert_eq!(different.len(), 4, "{different:?}");
    }

    #[test]
    fn paraphrases_name_the_events_and_the_ceiling_counts_equal_ones() {
        let rows = Exercise::Paraphrases.held_out(200, 4).rows;
        for row in &rows {
            let second = row.second.as_deref().unwrap();
            assert!(!second.contains('{'), "{second}");
            let words: Vec<&str> = super::super::words_of(second).collect();
            let events = events(&row.text);
            assert_eq!(events.len(), 6);
            assert!(events.iter().all(|event| words.contains(event)), "{events:?} {second}");
        }
        assert_eq!(ceiling_of_recall(&rows), 1.0);
        let twice = [&rows[..2], &rows[..1]].concat();
        assert_eq!(ceiling_of_recall(&twice), 2.0 / 3.0);
    }

    #[test]
    fn rows_depend_on_seed_step_and_number_alone_and_have_known_words() {
        let tokenizer = word_tokenizer();
        let unknown = tokenizer.special(Special::Unk).unwrap_or(IGNORED);
        let all = [
            Exercise::Labels,
            Exercise::Entities,
            Exercise::Questions,
            Exercise::Paraphrases,
            Exercise::Masks,
        ];
        for exercise in all {
            let row = exercise.row(1, 2, 3);
            assert_eq!(row, exercise.row(1, 2, 3));
            for other in [exercise.row(2, 2, 3), exercise.row(1, 3, 3), exercise.row(1, 2, 4)] {
                assert_ne!(row, other);
            }
            for row in exercise.held_out(50, 1).rows {
                for text in [Some(&row.text), row.second.as_ref()].into_iter().flatten() {
                    let ids = tokenizer.encode(text).unwrap();
                    assert!(!ids.contains(&unknown), "{text}");
                    let words: Vec<&str> = super::super::words_of(text).collect();
                    assert_eq!(words.len(), ids.len(), "{text}");
                }
            }
        }
    }
}
