//! BERT's normalisation, one character at a time.

use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use super::classes::{class_of_spacing, is_ideograph, is_nonspacing, is_other, may_decompose};

/// Which steps of the normalisation a vocabulary was made with, in their order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Drop NUL, U+FFFD and control characters; make white space a space.
    pub(super) clean: bool,
    /// Put spaces around ideographs.
    pub(super) space_ideographs: bool,
    /// Decompose, and drop nonspacing marks.
    pub(super) strip_accents: bool,
    /// Lowercase each character without its neighbours.
    pub(super) lowercase: bool,
}

impl Rules {
    /// What the models of BERT that know no case were made with.
    #[cfg(any(test, feature = "minilm"))]
    pub(super) const UNCASED: Self = Self {
        clean: true,
        space_ideographs: true,
        strip_accents: true,
        lowercase: true,
    };
}

/// Characters that wait for their order.
///
/// A decomposed text holds each run of combining marks in the order of their classes. Of the marks
/// that are kept few have a class at all, so nearly every character passes at once.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(u8, char)>);

impl Marks {
    /// Passes `c` on to `out`: what it becomes, in the order of the normal form.
    pub(super) fn push(&mut self, c: char, rules: Rules, out: &mut impl FnMut(char)) {
        if rules.clean && (matches!(c, '\0' | '\u{FFFD}') || is_dropped(c)) {
            return;
        }
        if rules.clean && c.is_whitespace() {
            return self.decompose(' ', rules, out);
        }
        if rules.space_ideographs && is_ideograph(c) {
            self.decompose(' ', rules, out);
            self.decompose(c, rules, out);
            return self.decompose(' ', rules, out);
        }
        self.decompose(c, rules, out);
    }

    /// Passes on what waits: the text has ended, or the next character is in its place.
    pub(super) fn flush(&mut self, rules: Rules, out: &mut impl FnMut(char)) {
        if self.0.is_empty() {
            return;
        }
        // Stable: marks of one class keep their order.
        self.0.sort_by_key(|(class, _)| *class);
        for (_, c) in self.0.drain(..) {
            lowercase(c, rules, out);
        }
    }

    fn decompose(&mut self, c: char, rules: Rules, out: &mut impl FnMut(char)) {
        if !rules.strip_accents {
            lowercase(c, rules, out);
        } else if may_decompose(c) {
            decompose_canonical(c, |part| self.order(part, rules, out));
        } else {
            self.order(c, rules, out);
        }
    }

    fn order(&mut self, c: char, rules: Rules, out: &mut impl FnMut(char)) {
        if is_nonspacing(c) {
            if canonical_combining_class(c) == 0 {
                self.flush(rules, out);
            }
            return;
        }
        match class_of_spacing(c) {
            0 => {
                self.flush(rules, out);
                lowercase(c, rules, out);
            }
            class => self.0.push((class, c)),
        }
    }
}

/// Control characters without those three that count as white space.
fn is_dropped(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r')
    } else {
        is_other(c)
    }
}

fn lowercase(c: char, rules: Rules, out: &mut impl FnMut(char)) {
    if rules.lowercase {
        c.to_lowercase().for_each(out);
    } else {
        out(c);
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::is_punctuation;
    use super::*;
    use crate::digest::Hasher;

    fn normal(text: &str, rules: Rules) -> String {
        let (mut marks, mut out) = (Marks::default(), String::new());
        for c in text.chars() {
            marks.push(c, rules, &mut |c| out.push(c));
        }
        marks.flush(rules, &mut |c| out.push(c));
        out
    }

    #[test]
    fn every_step_can_be_left_out() {
        let all = Rules::UNCASED;
        let text = "É\u{7}\u{3000}中ﬁ\u{AD}";
        assert_eq!(normal(text, all), "e  中 ﬁ");
        let kept = Rules {
            clean: false,
            ..all
        };
        assert_eq!(normal(text, kept), "e\u{7}\u{3000} 中 ﬁ\u{AD}");
        let joined = Rules {
            space_ideographs: false,
            ..all
        };
        assert_eq!(normal(text, joined), "e 中ﬁ");
        let accented = Rules {
            strip_accents: false,
            ..all
        };
        assert_eq!(normal(text, accented), "é  中 ﬁ");
        let cased = Rules {
            lowercase: false,
            ..all
        };
        assert_eq!(normal(text, cased), "E  中 ﬁ");
    }

    #[test]
    fn characters_are_lowercased_alone() {
        assert_eq!(normal("ΣΑΣ ẞ", Rules::UNCASED), "σασ ß");
        let accented = Rules {
            strip_accents: false,
            ..Rules::UNCASED
        };
        assert_eq!(normal("İ", accented), "i\u{307}");
        assert_eq!(normal("İ", Rules::UNCASED), "i");
    }

    #[test]
    fn kept_marks_take_the_order_of_the_normal_form() {
        // Balinese adeg adeg (class 9) and a Hangul tone mark (class 224), both spacing.
        let text = "a\u{302E}\u{301}\u{1B44}b";
        assert_eq!(normal(text, Rules::UNCASED), "a\u{1B44}\u{302E}b");
        // A nonspacing mark of class 0 ends the run, though it is dropped.
        let text = "a\u{302E}\u{34F}\u{1B44}b";
        assert_eq!(normal(text, Rules::UNCASED), "a\u{302E}\u{1B44}b");
    }

    /// The model reads tables of the Rust release and of a crate; another table may be another token.
    #[test]
    fn unicode_tables_are_those_of_this_algorithm() {
        let mut hasher = Hasher::new("unicode");
        for c in (0..=0x10_FFFF).filter_map(char::from_u32) {
            let text = normal(&format!("\u{302E}{c}\u{1B44}"), Rules::UNCASED);
            let cut = |c: char| u8::from(c.is_whitespace()) + 2 * u8::from(is_punctuation(c));
            let cuts: Vec<u8> = text.chars().map(cut).collect();
            hasher.part(text.as_bytes()).part(&cuts);
        }
        let golden = "3a205c4e6c0435f587f9fb40daede4da33e6445438ce26e581910a81c1cae85e";
        assert_eq!(hasher.finish().to_string(), golden);
    }

    /// What makes the sums of a token table safe: no text has more tokens than bytes.
    #[test]
    fn no_character_becomes_more_characters_than_it_has_bytes() {
        for strip_accents in [true, false] {
            let rules = Rules {
                strip_accents,
                ..Rules::UNCASED
            };
            for c in (0..=0x10_FFFF).filter_map(char::from_u32) {
                let text = normal(&c.to_string(), rules);
                let kept = text.chars().filter(|c| *c != ' ').count();
                assert!(kept <= c.len_utf8(), "{c:?}");
            }
        }
    }
}
