//! The longest of many byte strings that a text begins with.

use std::collections::VecDeque;

/// The id that no string has.
pub(super) const NO_ID: u32 = u32::MAX;

/// Strings by their bytes. Nodes are numbered breadth first, so that the children of a node are
/// neighbours, in the order of their bytes.
///
/// The files of a model hold less than 2^32 bytes, and every byte makes one node at most.
#[derive(Debug)]
pub(super) struct Trie {
    /// The first child of every node; one more for the end of the last node's children.
    first: Vec<u32>,
    /// The byte that leads to a node.
    bytes: Vec<u8>,
    /// What ends at a node, or [`NO_ID`].
    ids: Vec<u32>,
}

impl Trie {
    /// Every string at most once; empty ones are left out.
    pub(super) fn new<'a>(strings: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut sorted: Vec<(&[u8], u32)> =
            strings.map(|(text, id)| (text.as_bytes(), id)).collect();
        sorted.retain(|(text, _)| !text.is_empty());
        sorted.sort_unstable();
        let mut trie = Self {
            first: Vec::new(),
            bytes: vec![0],
            ids: vec![NO_ID],
        };
        let mut nodes = VecDeque::from([(sorted.as_slice(), 0)]);
        while let Some((mut below, depth)) = nodes.pop_front() {
            trie.first.push(trie.bytes.len() as u32);
            while let Some((text, id)) = below.first() {
                let Some(byte) = text.get(depth) else {
                    below = &below[1..];
                    continue;
                };
                let same = below.partition_point(|(other, _)| other[depth] == *byte);
                let ends = text.len() == depth + 1;
                trie.bytes.push(*byte);
                trie.ids.push(if ends { *id } else { NO_ID });
                nodes.push_back((&below[..same], depth + 1));
                below = &below[same..];
            }
        }
        trie.first.push(trie.bytes.len() as u32);
        trie
    }

    /// The length and the id of the longest string that `text` begins with.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let mut node = 0;
        let mut found = None;
        for (at, byte) in text.iter().enumerate() {
            let children = self.first[node] as usize..self.first[node + 1] as usize;
            let start = children.start;
            let Ok(child) = self.bytes[children].binary_search(byte) else {
                break;
            };
            node = start + child;
            if self.ids[node] != NO_ID {
                found = Some((at + 1, self.ids[node]));
            }
        }
        found
    }

    /// Whether any string begins with `byte`.
    pub(super) fn begins_with(&self, byte: u8) -> bool {
        let children = self.first[0] as usize..self.first[1] as usize;
        self.bytes[children].binary_search(&byte).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_string_wins() {
        let strings = ["a", "abc", "abcde", "b", "", "é", "ab\u{301}"];
        let trie = Trie::new(strings.iter().zip(0..).map(|(text, id)| (*text, id)));
        for (text, found) in [
            ("", None),
            ("a", Some((1, 0))),
            ("ab", Some((1, 0))),
            ("abcd", Some((3, 1))),
            ("abcdef", Some((5, 2))),
            ("ba", Some((1, 3))),
            ("c", None),
            ("éa", Some((2, 5))),
            ("ab\u{301}", Some((4, 6))),
        ] {
            assert_eq!(trie.longest(text.as_bytes()), found, "{text}");
        }
        assert!(trie.begins_with(b'a') && !trie.begins_with(b'c'));
        let empty = Trie::new(std::iter::empty());
        assert_eq!(empty.longest(b"a"), None);
        assert!(!empty.begins_with(b'a'));
    }

    #[test]
    fn it_finds_what_a_list_finds() {
        // Every string of up to three of two letters, in or out by a pattern.
        let all: Vec<String> = (0..3)
            .scan(vec![String::new()], |last, _| {
                *last = last
                    .iter()
                    .flat_map(|s| [format!("{s}x"), format!("{s}y")])
                    .collect();
                Some(last.clone())
            })
            .flatten()
            .collect();
        for mask in 0u32..1 << all.len() {
            let chosen: Vec<(&str, u32)> = (0u32..)
                .zip(&all)
                .filter(|(id, _)| mask >> id & 1 == 1)
                .map(|(id, text)| (text.as_str(), id))
                .collect();
            let trie = Trie::new(chosen.iter().copied());
            for text in all.iter().filter(|text| text.len() == 3) {
                let expected = chosen
                    .iter()
                    .filter(|(string, _)| text.starts_with(string))
                    .map(|(string, id)| (string.len(), *id))
                    .max();
                assert_eq!(trie.longest(text.as_bytes()), expected);
            }
        }
    }
}
