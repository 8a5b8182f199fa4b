//! The words of the stories and the order in which they are told.

use super::grammar::{Options, Part, Slot};

const HEROES: Options = &[
    ("Ada", 3),
    ("Ben", 3),
    ("Cleo", 2),
    ("Dan", 2),
    ("Eva", 3),
    ("Finn", 2),
    ("Gus", 1),
    ("Hana", 2),
    ("Ivy", 2),
    ("Jack", 2),
    ("Kim", 1),
    ("Leo", 3),
    ("Mia", 4),
    ("Noah", 2),
    ("Olga", 1),
    ("Paul", 1),
];
pub(super) const HER: &[&str] = &[
    "her", "his", "her", "his", "her", "his", "his", "her", "her", "his", "her", "his", "her",
    "his", "her", "his",
];
pub(super) const SHE: &[&str] = &[
    "She", "He", "She", "He", "She", "He", "He", "She", "She", "He", "She", "He", "She", "He",
    "She", "He",
];
const ANIMALS: Options = &[
    ("bear", 2),
    ("cat", 3),
    ("duck", 2),
    ("fox", 3),
    ("goat", 1),
    ("hare", 2),
    ("mouse", 2),
    ("owl", 2),
    ("pig", 1),
    ("seal", 1),
    ("toad", 1),
    ("wolf", 2),
];
const WENT: &[&str] = &[
    "trotted", "crept", "waddled", "ran", "skipped", "leapt", "scurried", "flew", "rolled", "slid",
    "hopped", "raced",
];
const LOST: Options = &[("lost", 4), ("missed", 2), ("left", 2), ("forgot", 1), ("hid", 1)];
const COLOURS: Options = &[
    ("blue", 3),
    ("green", 2),
    ("orange", 1),
    ("pink", 1),
    ("red", 3),
    ("silver", 1),
    ("white", 2),
    ("yellow", 2),
];
const THINGS: Options = &[
    ("ball", 3),
    ("drum", 2),
    ("flute", 1),
    ("hat", 2),
    ("kite", 3),
    ("lamp", 1),
    ("map", 2),
    ("ring", 2),
    ("boots", 2),
    ("gloves", 1),
    ("jewels", 1),
    ("nuts", 2),
    ("skates", 1),
    ("tools", 1),
];
pub(super) const IT: &[&str] = &[
    "it", "it", "it", "it", "it", "it", "it", "it", "them", "them", "them", "them", "them", "them",
];
const EXCUSES: Options =
    &[("was asleep", 3), ("laughed", 2), ("said no", 2), ("ran away", 1), ("had no time", 2)];
const PLACES: Options = &[
    ("bridge", 2),
    ("castle", 1),
    ("dam", 1),
    ("farm", 3),
    ("gate", 3),
    ("house", 2),
    ("lake", 2),
    ("mill", 1),
    ("pond", 2),
    ("river", 3),
    ("tower", 1),
    ("well", 1),
];

/// How many slots a story uses.
pub(super) const SLOTS: usize = 8;
pub(super) const HERO: Slot = 0;
pub(super) const ANIMAL: Slot = 1;
pub(super) const COLOUR: Slot = 2;
pub(super) const THING: Slot = 3;
pub(super) const ASKED: Slot = 4;
pub(super) const HELPER: Slot = 5;
pub(super) const PLACE: Slot = 6;
/// Chosen and not needed again.
const SAID: Slot = 7;

/// A story, up to and including the line end.
pub(super) fn story() -> Vec<Part> {
    use Part::Text;
    let say = |slot, options| Part::Say { slot, options };
    let choose = |slot, options| Part::Choose { slot, options };
    let agree = |slot, words| Part::Agree { slot, words };
    let other_animal = |slot| Part::ChooseOther { slot, not: ANIMAL, options: ANIMALS };
    let asking = vec![
        agree(HERO, SHE),
        Text(" asked the "),
        other_animal(ASKED),
        Text(", but the "),
        say(ASKED, ANIMALS),
        Text(" "),
        choose(SAID, EXCUSES),
        Text(". "),
    ];
    vec![
        choose(HERO, HEROES),
        Text(" the "),
        choose(ANIMAL, ANIMALS),
        Text(" "),
        choose(SAID, LOST),
        Text(" "),
        agree(HERO, HER),
        Text(" "),
        choose(COLOUR, COLOURS),
        Text(" "),
        choose(THING, THINGS),
        Text(". "),
        Part::Repeat { again: (2, 5), most: 2, parts: asking },
        Text("The "),
        other_animal(HELPER),
        Text(" saw "),
        agree(THING, IT),
        Text(" at the "),
        choose(PLACE, PLACES),
        Text(". So "),
        say(HERO, HEROES),
        Text(" "),
        agree(ANIMAL, WENT),
        Text(" off and found "),
        agree(HERO, HER),
        Text(" "),
        say(COLOUR, COLOURS),
        Text(" "),
        say(THING, THINGS),
        Text(" at the "),
        say(PLACE, PLACES),
        Text(".\n"),
    ]
}
