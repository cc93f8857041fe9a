//! Ids for nodes without a key and edges without an id.

use twox_hash::XxHash3_128;
use ulid::Ulid;

/// ULIDs that count up from one unique id: the ids of a load are sorted in the order of its records
/// and differ little from each other.
#[derive(Debug, Clone)]
pub struct MintedIds(u128);

impl MintedIds {
    /// Begins after `unique`, an id of [`crate::env::Ids`]. One that is no ULID is hashed.
    pub fn after(unique: &str) -> Self {
        Self(match Ulid::from_string(unique) {
            Ok(id) => id.0,
            // Below the half of all ids: counting up does not reach the end.
            Err(_) => XxHash3_128::oneshot(unique.as_bytes()) >> 1,
        })
    }

    /// The next id.
    pub fn mint(&mut self) -> String {
        self.0 = self.0.wrapping_add(1);
        Ulid(self.0).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    #[test]
    fn ids_count_up_and_are_repeatable() {
        let unique = Env::system().ids.unique();
        let mut ids = MintedIds::after(&unique);
        let some: Vec<String> = (0..100).map(|_| ids.mint()).collect();
        assert!(unique < some[0]);
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(some.iter().all(|id| id.len() == 26));
        let mut again = MintedIds::after(&unique);
        assert_eq!(again.mint(), some[0]);
        // What is no ULID has a place of its own.
        let (mut a, mut b) = (MintedIds::after("S1N1"), MintedIds::after("S1N2"));
        assert_ne!(a.mint()[..20], b.mint()[..20]);
    }
}
