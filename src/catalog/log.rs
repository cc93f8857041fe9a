//! The head of the log: the newest slot, found by listing names.
//!
//! Invariants: a finished look is at least the head at its start; a body is believed only if it is
//! the one that was listed, because a delayed create can re-make a slot that was deleted long ago.
//!
//! Local files read a whole directory for a list. There slots below the floor are deleted in ascending order,
//! so a slot whose predecessor was never deleted was not either, and two names tell what a list would.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::live::LivePins;
use super::slot::SlotBody;
use crate::digest::Digest;
use crate::env::Env;
use crate::store::{ListedSlot, SlotBytes, Store, layout};
use crate::{Error, Result, limits};

/// Looks that end on a slot which vanished or changed before one gives up: each needs thousands of
/// commits in between, so more than a few mean a store that does not list what it holds.
const LOOK_ATTEMPTS: u32 = 16;

/// Looks that insist on the e_tag of the listing before the slower rule without e_tags is used.
const E_TAG_ATTEMPTS: u32 = 3;

/// A catalog snapshot: one slot and its body.
#[derive(Debug)]
pub struct Head {
    /// Catalog version; 0 before the first commit.
    pub version: u64,
    /// The store's e_tag of the slot.
    pub e_tag: Option<String>,
    /// Digest of the body; `None` before the first commit.
    pub digest: Option<Digest>,
    /// Everything that is visible.
    pub body: SlotBody,
}

impl Head {
    fn empty() -> Self {
        Self {
            version: 0,
            e_tag: None,
            digest: None,
            body: SlotBody::empty(),
        }
    }

    fn decode(version: u64, slot: &SlotBytes) -> Result<Self> {
        let (body, digest) = SlotBody::decode(version, &slot.bytes)?;
        Ok(Self {
            version,
            e_tag: slot.e_tag.clone(),
            digest: Some(digest),
            body,
        })
    }
}

/// The catalog of one root.
#[derive(Debug)]
pub struct Catalog {
    store: Arc<Store>,
    env: Env,
    newest: Mutex<Option<Arc<Head>>>,
    pub(super) probed: OnceCell<()>,
    pub(super) live: LivePins,
}

impl Catalog {
    /// A catalog that knows nothing yet; no store call.
    pub fn new(store: Arc<Store>, env: Env) -> Arc<Self> {
        let (newest, live) = (Mutex::default(), LivePins::default());
        Arc::new(Self {
            store,
            env,
            newest,
            probed: OnceCell::new(),
            live,
        })
    }

    /// The objects of this root.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The host's services.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The newest head that this process has validated.
    pub fn cached(&self) -> Option<Arc<Head>> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The newest known head, or one look when none is known.
    pub async fn known(&self) -> Result<Arc<Head>> {
        match self.cached() {
            Some(head) => Ok(head),
            None => self.look().await,
        }
    }

    pub(super) fn remember(&self, head: Arc<Head>) -> Arc<Head> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        match newest.as_ref() {
            Some(known) if known.version > head.version => Arc::clone(known),
            _ => Arc::clone(newest.insert(head)),
        }
    }

    /// The head: at least as new as the head was when this call began.
    ///
    /// # Errors
    /// `Corrupt` for a store without a newest slot that can be read, and for one whose log lost or
    /// exchanged what this process has seen of it; the store's own.
    pub async fn look(&self) -> Result<Arc<Head>> {
        for attempt in 0..LOOK_ATTEMPTS {
            let cached = self.cached();
            if let Some(known) = &cached
                && self.is_newest(known).await?
            {
                return Ok(Arc::clone(known));
            }
            let before = cached.as_ref().map_or(0, |h| h.version);
            let listed = self.list_head(before).await?;
            let Some(listed) = listed.filter(|slot| slot.version >= before) else {
                if before == 0 {
                    return Ok(self.remember(Arc::new(Head::empty())));
                }
                continue;
            };
            if let Some(known) = &cached
                && known.version == listed.version
                && (known.e_tag.is_none() || listed.e_tag.is_none() || known.e_tag == listed.e_tag)
            {
                return Ok(Arc::clone(known));
            }
            let Some(slot) = self.store.read_slot(listed.version).await? else {
                continue;
            };
            let same = listed.e_tag.is_some() && listed.e_tag == slot.e_tag;
            if same
                || (attempt >= E_TAG_ATTEMPTS || listed.e_tag.is_none() || slot.e_tag.is_none())
                    && self.is_live(listed.version).await?
            {
                let head = Head::decode(listed.version, &slot)?;
                check_follows(cached.as_deref(), &head)?;
                return Ok(self.remember(Arc::new(head)));
            }
        }
        let known = self.cached().map_or(0, |head| head.version);
        Err(Error::corrupt(
            "catalog",
            self.store.display(),
            format!("a readable newest slot, {known} or later"),
            format!("none in {LOOK_ATTEMPTS} listings"),
        ))
    }

    /// Whether a validated head is known to be the newest without a list. The next slot is asked for first: it
    /// was free at a moment at which none after the head's own had been deleted.
    async fn is_newest(&self, head: &Head) -> Result<bool> {
        if self.store.has_atomic_list() || self.store.slot(head.version + 1).await?.is_some() {
            return Ok(false);
        }
        self.is_kept(head).await
    }

    /// Whether the slot of a validated head is known never to have been deleted up to now, and so none after
    /// it. What is re-made in its place has another e_tag.
    pub(super) async fn is_kept(&self, head: &Head) -> Result<bool> {
        if self.store.has_atomic_list() || head.e_tag.is_none() {
            return Ok(false);
        }
        let slot = self.store.slot(head.version).await?;
        Ok(slot.is_some_and(|slot| slot.e_tag == head.e_tag))
    }

    /// The slot with the largest number, `None` in an empty store.
    pub(super) async fn list_head(&self, cached: u64) -> Result<Option<ListedSlot>> {
        let mut found = match cached {
            0 => self.discover().await?,
            // The offset is exclusive, so the cached slot itself is listed.
            _ => match self
                .store
                .last_slot_after(&layout::slot_key(cached - 1))
                .await?
            {
                Some(slot) => Some(slot),
                None => self.discover().await?,
            },
        };
        // Without an atomic LIST a later directory may have been filled while earlier ones were read.
        while !self.store.has_atomic_list()
            && let Some(slot) = &found
        {
            let later = self
                .store
                .last_slot_after(&layout::slot_key(slot.version))
                .await?;
            match later {
                Some(later) => found = Some(later),
                None => break,
            }
        }
        Ok(found)
    }

    /// Cold: the directories, then the ordinary LIST from the last one on. An empty directory was
    /// left by a creator that died between making the directory and the slot.
    async fn discover(&self) -> Result<Option<ListedSlot>> {
        let directories = self.store.slot_directories().await?;
        for directory in directories.iter().rev() {
            let offset = layout::slot_directory(directory * limits::SLOTS_PER_DIRECTORY);
            if let Some(slot) = self.store.last_slot_after(&offset).await? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// One LIST: whether a slot is not below the floor of the head at this moment. To be asked after
    /// the answer about the slot arrived, never before.
    pub(super) async fn is_live(&self, version: u64) -> Result<bool> {
        let head = self
            .list_head(version)
            .await?
            .map_or(version, |slot| slot.version);
        Ok(is_live_under(version, head))
    }
}

/// That `head` is the known one or its child, where it is no later one: a store that was put back to an
/// older state has gone on in another way.
fn check_follows(known: Option<&Head>, head: &Head) -> Result<()> {
    let (at, expected, found) = match known {
        Some(known) if known.version == head.version => (known.version, known.digest, head.digest),
        Some(known) if known.version + 1 == head.version => {
            (known.version, known.digest, head.body.parent)
        }
        _ => return Ok(()),
    };
    if expected == found {
        return Ok(());
    }
    let text = |digest: Option<Digest>| digest.map_or("none".to_owned(), |d| d.to_string());
    let key = layout::slot_key(at);
    Err(Error::corrupt(
        "catalog slot",
        key,
        text(expected),
        text(found),
    ))
}

/// The floor rule: a format constant, stored in the body and computed nowhere else.
pub(super) fn floor_of(version: u64) -> u64 {
    version.saturating_sub(limits::FLOOR_SPAN).max(1)
}

/// Whether a slot is at or above the floor of `head`.
pub(super) fn is_live_under(version: u64, head: u64) -> bool {
    version >= floor_of(head)
}
