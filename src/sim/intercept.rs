//! Every call of the store trait, passed on through [`FaultStore`].

use std::fmt;
use std::future::Future;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result, UploadPart,
};

use super::call::Op;
use super::fault::{Fault, FaultStore, Started};

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.base.store())
    }
}

impl FaultStore {
    /// A call that is done at once or not at all and cannot land later.
    async fn plain<T>(
        &self,
        op: Op,
        key: &str,
        bytes: u64,
        effect: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let started = self.begin(op, key, bytes).await?;
        started.finish(effect.await).await
    }

    /// A list as one step: what it shows is the state at the moment of the call.
    fn list_call(
        &self,
        op: Op,
        key: String,
        list: impl FnOnce(&dyn ObjectStore) -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let handle = self.clone();
        let listed = async move {
            let started = handle.begin(op, &key, 0).await?;
            let listed: Result<Vec<_>> = list(&*handle.base.store()).try_collect().await;
            let mut entries = started.finish(listed).await?;
            let cut = shorten(&started, entries.len());
            entries.truncate(cut);
            let tail = (started.fault() == Some(Fault::ShortRead)).then(|| Err(started.error()));
            Ok::<_, Error>(stream::iter(entries.into_iter().map(Ok).chain(tail)))
        };
        stream::once(listed).try_flatten().boxed()
    }
}

/// How much of `whole` a read delivers.
fn shorten(started: &Started, whole: usize) -> usize {
    match started.fault() {
        Some(Fault::ShortRead | Fault::Truncated) => whole / 2,
        _ => whole,
    }
}

/// A read's answer, cut short where that is the fault.
async fn shorten_read(started: &Started, answer: GetResult) -> Result<GetResult> {
    if !matches!(started.fault(), Some(Fault::ShortRead | Fault::Truncated)) {
        return Ok(answer);
    }
    let (meta, range, attributes) = (
        answer.meta.clone(),
        answer.range.clone(),
        answer.attributes.clone(),
    );
    let mut bytes = answer.bytes().await?;
    bytes.truncate(shorten(started, bytes.len()));
    let tail = (started.fault() == Some(Fault::ShortRead)).then(|| Err(started.error()));
    let items = std::iter::once(Ok(bytes)).chain(tail);
    Ok(GetResult {
        payload: GetResultPayload::Stream(stream::iter(items.collect::<Vec<_>>()).boxed()),
        meta,
        range,
        attributes,
    })
}

fn key_of(prefix: Option<&Path>) -> String {
    prefix.map(ToString::to_string).unwrap_or_default()
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.put(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let store = self.base.store();
        let begun = store.put_multipart_opts(location, opts);
        let upload = self
            .plain(Op::UploadBegin, location.as_ref(), 0, begun)
            .await?;
        Ok(Box::new(FaultUpload {
            handle: self.clone(),
            key: location.to_string(),
            upload,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let op = match (options.head, options.range.is_some()) {
            (true, _) => Op::Head,
            (false, true) => Op::GetRange,
            (false, false) => Op::Get,
        };
        let started = self.begin(op, location.as_ref(), 0).await?;
        let answer = self.base.store().get_opts(location, options).await;
        if let (Ok(answer), false) = (&answer, op == Op::Head) {
            started.note_bytes(answer.range.end - answer.range.start);
        }
        let answer = started.finish(answer).await?;
        shorten_read(&started, answer).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let started = self.begin(Op::GetRanges, location.as_ref(), 0).await?;
        let answer = self.base.store().get_ranges(location, ranges).await;
        if let Ok(parts) = &answer {
            started.note_bytes(parts.iter().map(|p| p.len() as u64).sum());
        }
        let mut parts = started.finish(answer).await?;
        match started.fault() {
            Some(Fault::ShortRead) => Err(started.error()),
            _ => {
                for part in &mut parts {
                    part.truncate(shorten(&started, part.len()));
                }
                Ok(parts)
            }
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let handle = self.clone();
        // One call each, so that a crash can fall between any two.
        locations
            .then(move |location| {
                let handle = handle.clone();
                async move { handle.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let owned = prefix.cloned();
        self.list_call(Op::List, key_of(prefix), move |store| {
            store.list(owned.as_ref())
        })
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (owned, offset) = (prefix.cloned(), offset.clone());
        self.list_call(Op::ListOffset, key_of(prefix), move |store| {
            store.list_with_offset(owned.as_ref(), &offset)
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let started = self.begin(Op::ListLevel, &key_of(prefix), 0).await?;
        let answer = self.base.store().list_with_delimiter(prefix).await;
        let mut listed = started.finish(answer).await?;
        if started.fault() == Some(Fault::ShortRead) {
            return Err(started.error());
        }
        let objects = shorten(&started, listed.objects.len());
        listed.objects.truncate(objects);
        let prefixes = shorten(&started, listed.common_prefixes.len());
        listed.common_prefixes.truncate(prefixes);
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let op = match options.mode {
            CopyMode::Overwrite => Op::Copy,
            CopyMode::Create => Op::CopyCreate,
        };
        let store = self.base.store();
        let copied = store.copy_opts(from, to, options);
        self.plain(op, to.as_ref(), 0, copied).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let store = self.base.store();
        let renamed = store.rename_opts(from, to, options);
        self.plain(Op::Rename, to.as_ref(), 0, renamed).await
    }
}

/// An upload whose every step is a call.
#[derive(Debug)]
struct FaultUpload {
    handle: FaultStore,
    key: String,
    upload: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (handle, key) = (self.handle.clone(), self.key.clone());
        let bytes = data.content_length() as u64;
        let part = self.upload.put_part(data);
        Box::pin(async move { handle.plain(Op::UploadPart, &key, bytes, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.upload.complete();
        (self.handle)
            .plain(Op::UploadComplete, &self.key, 0, done)
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        let done = self.upload.abort();
        (self.handle)
            .plain(Op::UploadAbort, &self.key, 0, done)
            .await
    }
}
