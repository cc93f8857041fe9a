//! Key names, relative to the root. Names of users never occur in a key.
//!
//! ```text
//! catalog/{version / 1024:017}/{version:020}.json     one slot per commit, created once
//! data/{begin:020}-{unique}/{n:06}.{kind}             immutable objects staged by one transaction
//! data/{begin:020}-{unique}/{n:06}.pack@{at}          metadata that begins at a byte of such an object
//! ```

use crate::{ident::TxnId, limits};

/// Prefix of all slots.
pub const CATALOG: &str = "catalog";
/// Prefix of all staged objects.
pub const DATA: &str = "data";

/// The directory of a slot.
pub fn slot_directory(version: u64) -> String {
    format!("{CATALOG}/{:017}", version / limits::SLOTS_PER_DIRECTORY)
}

/// The key of a slot.
pub fn slot_key(version: u64) -> String {
    format!("{}/{version:020}.json", slot_directory(version))
}

fn digits(text: &str, width: usize) -> Option<u64> {
    (text.len() == width && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// The number of a catalog directory named `catalog/{n:017}`.
pub fn parse_slot_directory(key: &str) -> Option<u64> {
    digits(key.strip_prefix(CATALOG)?.strip_prefix('/')?, 17)
}

/// The version of a slot key; `None` for anything that a commit did not write.
pub fn parse_slot(key: &str) -> Option<u64> {
    let (directory, file) = key.rsplit_once('/')?;
    let version = digits(file.strip_suffix(".json")?, 20)?;
    (parse_slot_directory(directory)? == version / limits::SLOTS_PER_DIRECTORY).then_some(version)
}

/// The key of the `n`-th object of a transaction. `kind` is a file extension.
pub fn object_key(txn: &TxnId, n: u32, kind: &str) -> String {
    format!("{DATA}/{txn}/{n:06}.{kind}")
}

/// The key of what begins at byte `at` of a pack.
pub fn part_key(pack: &str, at: u64) -> String {
    format!("{pack}@{at}")
}

/// The object behind a key, and the byte where what the key names begins if it is part of a pack.
pub fn split_part(key: &str) -> (&str, Option<u64>) {
    let part = key.rsplit_once('@');
    part.and_then(|(pack, at)| Some((pack, at.parse().ok()?)))
        .map_or((key, None), |(pack, at)| (pack, Some(at)))
}

/// Transaction and number of the object behind a key.
pub fn parse_object(key: &str) -> Option<(TxnId, u32)> {
    let (txn, file) = key.strip_prefix(DATA)?.strip_prefix('/')?.split_once('/')?;
    let (n, _kind) = file.split_once('.')?;
    Some((TxnId::parse(txn).ok()?, u32::try_from(digits(n, 6)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_numbers_and_parse_back() {
        for version in [0, 1, 1023, 1024, u64::MAX] {
            assert_eq!(parse_slot(&slot_key(version)), Some(version));
        }
        assert!(slot_key(1023) < slot_key(1024) && slot_key(9) < slot_key(10));
        let wrong_directory = slot_key(5).replace("00000000000000000/", "00000000000000001/");
        assert_eq!(parse_slot(&wrong_directory), None);
        let txn = TxnId::new(3, "A1").unwrap();
        assert_eq!(
            parse_object(&object_key(&txn, 7, "parquet")),
            Some((txn, 7))
        );
        assert_eq!(parse_object("data/x/000001.json"), None);
        let pack = object_key(&TxnId::new(3, "A1").unwrap(), 7, "pack");
        let part = part_key(&pack, 512);
        assert_eq!(split_part(&part), (pack.as_str(), Some(512)));
        assert_eq!(parse_object(&part), parse_object(&pack));
        for whole in [pack.clone(), format!("{pack}@x"), format!("{pack}@")] {
            assert_eq!(split_part(&whole), (whole.as_str(), None));
        }
    }
}
