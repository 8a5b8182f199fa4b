//! Text as it is generated: whole characters only, and nothing of a stop string.
//!
//! A token may end in the middle of a character, and decoders may treat the first token of a text
//! differently; so a new token is decoded together with a few before it, and what is new in the
//! text is the difference. Text that could be the beginning of a stop string is held back until
//! it is known whether it is one.

/// Turns tokens into text to be shown.
pub struct TextStream<D> {
    decode: D,
    stops: Vec<String>,
    ids: Vec<u32>,
    /// Decoding starts here, and …
    start: usize,
    /// … up to here it has been turned into text.
    done: usize,
    held: String,
    stopped: bool,
}

impl<D: Fn(&[u32]) -> String> TextStream<D> {
    /// `decode` turns tokens into text; generation stops before any of `stops`.
    pub fn new(decode: D, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self {
            decode,
            stops,
            ids: Vec::new(),
            start: 0,
            done: 0,
            held: String::new(),
            stopped: false,
        }
    }

    /// Has a stop string come?
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the next token; gives the text that is now certain.
    pub fn push(&mut self, id: u32) -> String {
        if self.stopped {
            return String::new();
        }
        self.ids.push(id);
        let before = (self.decode)(&self.ids[self.start..self.done]);
        let with = (self.decode)(&self.ids[self.start..]);
        // A character that is not whole yet decodes to the replacement character.
        if with.len() > before.len() && !with.ends_with('\u{fffd}') {
            self.held.push_str(with.get(before.len()..).unwrap_or(""));
            self.start = self.done;
            self.done = self.ids.len();
        }
        self.release()
    }

    /// The rest, when no more tokens come.
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let before = (self.decode)(&self.ids[self.start..self.done]);
        let with = (self.decode)(&self.ids[self.start..]);
        self.held.push_str(with.get(before.len()..).unwrap_or(""));
        self.done = self.ids.len();
        let mut out = self.release();
        if !self.stopped {
            out.push_str(&std::mem::take(&mut self.held));
        }
        out
    }

    /// What of the held text cannot be part of a stop string.
    fn release(&mut self) -> String {
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let possible =
            |from: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[from..]));
        let keep = (0..self.held.len())
            .find(|&from| self.held.is_char_boundary(from) && possible(from))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are bytes.
    fn bytes(ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn pieces(text: &str, stops: &[&str]) -> (Vec<String>, bool) {
        let mut stream = TextStream::new(bytes, stops.iter().map(|s| (*s).to_owned()).collect());
        let mut out: Vec<String> = text.bytes().map(|b| stream.push(u32::from(b))).collect();
        out.push(stream.finish());
        (out, stream.stopped())
    }

    #[test]
    fn characters_come_whole() {
        let (out, _) = pieces("añ😀b", &[]);
        assert_eq!(out, ["a", "", "ñ", "", "", "", "😀", "b", ""]);
    }

    #[test]
    fn nothing_of_a_stop_string_is_shown() {
        let (out, stopped) = pieces("hello END more", &["END"]);
        assert!(stopped);
        assert_eq!(out.concat(), "hello ");
        let (out, stopped) = pieces("hello EN", &["END"]);
        assert!(!stopped);
        assert_eq!(out.concat(), "hello EN");
        assert_eq!(pieces("aab", &["ab"]).0.concat(), "a");
        assert_eq!(pieces("xyz", &["z", "yz"]).0.concat(), "x");
    }

    #[test]
    fn a_text_that_ends_inside_a_character_still_ends() {
        let mut stream = TextStream::new(bytes, Vec::new());
        assert_eq!(stream.push(0xf0), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
