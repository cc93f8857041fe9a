//! Building an inverted file.

use super::super::frame::Frame;
use super::super::index::Shape;
use super::super::recall::{Gate, RecallPoint, count_near};
use super::super::scratch::Scratch;
use super::super::vectors::Vectors;
use super::kmeans::{Centroids, assign, train};
use super::probe::nearest_lists;
use super::{Codes, Ivf, Probe, halves};
use crate::{Error, Result};

/// Lists at most.
const MAX_LISTS: u32 = 1 << 16;

/// Parameters of the builder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IvfParams {
    /// Number of lists, at most 65,536; the square root of the number of present rows without it.
    pub lists: Option<u32>,
    /// Keeps each vector as one signed byte a component beside its position. A search scans the bytes and
    /// measures the best rows exactly.
    pub codes: bool,
}

/// Builds the inverted file of the present rows of `vectors`: k-means (Lloyd's algorithm) on a sample of
/// rows, by matrix products, the same for the same vectors on one machine.
///
/// `progress` is told (steps done, steps in all). `None` if there is no row or if scanning half of the
/// lists finds less than 0.95 of the 10 nearest rows. Fails with [`Error::Cancelled`] when `cancel` says
/// so.
pub fn build(
    vectors: &Vectors,
    params: IvfParams,
    cancel: &dyn Fn() -> bool,
    progress: &dyn Fn(u64, u64),
) -> Result<Option<Ivf>> {
    let present = vectors.present();
    if present.is_empty() {
        return Ok(None);
    }
    let rows: Vec<u32> = present.iter().collect();
    let lists = params.lists.unwrap_or((rows.len() as f64).sqrt() as u32);
    let lists = lists.clamp(1, MAX_LISTS).min(rows.len() as u32) as usize;
    let step = |done: u64, all: u64| {
        progress(done, all);
        if cancel() {
            return Err(Error::Cancelled {
                operation: "building a vector index",
            });
        }
        Ok(())
    };
    let frame = Frame::of(vectors);
    let mut centroids = train(vectors, &frame, &rows, lists, &step)?;
    if centroids.data.iter().any(|x| !x.is_finite()) {
        return Ok(None);
    }
    centroids.halves = halves(&centroids.data, frame.width());
    let assigned = assign(vectors, &frame, &rows, &centroids, &mut |done, all| {
        step(done as u64, all as u64)
    })?;
    let (offsets, ordered) = invert(&rows, &assigned, lists);
    let codes = params.codes.then(|| Codes::of(vectors, &frame, &ordered));
    let Centroids { data, halves } = centroids;
    let mut ivf = Ivf {
        shape: Shape::of(vectors),
        frame,
        centroids: data,
        halves,
        offsets,
        rows: ordered,
        codes,
        probes: 1,
        curve: Vec::new(),
    };
    let Some((probes, curve)) = choose(&ivf, vectors) else {
        tracing::warn!("an inverted file misses its recall; the fragment is searched exactly");
        return Ok(None);
    };
    (ivf.probes, ivf.curve) = (probes, curve);
    Ok(Some(ivf))
}

/// The default number of probes and the curve.
///
/// A scan of lists finds the rows in them, so that ranking lists is enough to tell; codes may lose some
/// more, which is measured at the number that is chosen.
fn choose(ivf: &Ivf, vectors: &Vectors) -> Option<(u32, Vec<RecallPoint>)> {
    let mut list_of = vec![0; vectors.rows() as usize];
    for list in 0..ivf.lists() as u32 {
        for row in &ivf.rows[ivf.list(list)] {
            list_of[*row as usize] = list;
        }
    }
    let gate = Gate::new(vectors);
    let efforts = efforts(ivf.lists());
    let (probes, mut curve) = gate.choose(vectors.metric(), efforts, |query, truth, probes| {
        let near = nearest_lists(ivf, query, probes as usize);
        let found = |hit: &&(f32, u32)| near.contains(&list_of[hit.1 as usize]);
        truth.iter().filter(found).count()
    })?;
    if ivf.codes.is_none() {
        return Some((probes, curve));
    }
    let mut scratch = Scratch::default();
    let measured = gate.choose(
        vectors.metric(),
        std::iter::once(probes),
        |query, truth, probes| {
            Probe::new(ivf, vectors, query, truth.len(), probes as usize).run(&mut scratch);
            count_near(&scratch.nearest(truth.len()), truth)
        },
    );
    let point = measured?.1.pop()?;
    curve.retain(|other| other.effort < probes);
    curve.push(point);
    Some((probes, curve))
}

/// Numbers of lists that are measured: by a quarter more, up to half of all.
fn efforts(lists: usize) -> impl Iterator<Item = u32> {
    let most = (lists as u32).div_ceil(2);
    let next =
        move |probes: &u32| (*probes < most).then(|| (probes + probes.div_ceil(4)).min(most));
    std::iter::successors(Some(1), next)
}

/// Offsets of the lists and their rows, ascending in each.
fn invert(rows: &[u32], assigned: &[u32], lists: usize) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0u32; lists + 1];
    for list in assigned {
        offsets[*list as usize + 1] += 1;
    }
    for list in 0..lists {
        offsets[list + 1] += offsets[list];
    }
    let (mut next, mut ordered) = (offsets.clone(), vec![0; rows.len()]);
    for (row, list) in rows.iter().zip(assigned) {
        let at = &mut next[*list as usize];
        ordered[*at as usize] = *row;
        *at += 1;
    }
    (offsets, ordered)
}
