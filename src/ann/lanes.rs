//! Sums over a fixed number of lanes in a fixed order.
//!
//! A sum is a function of its two vectors alone: no fused multiply-add, 16 lanes whatever the width of
//! the machine's registers, folded pair by pair. Components beyond the last whole block go to the first
//! lanes, so that padding with zeros changes no bit but the sign of a zero. The functions are inlined
//! into a caller that [`pulp::Arch::dispatch`] compiles for the instructions of this machine.

/// Sums that run side by side.
pub(super) const LANES: usize = 16;

type Lanes = [f32; LANES];

/// The inner product of `a` and `b`.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| x * y)
}

/// [`dot`] of `a` and `b`, and of `b` with itself.
#[inline(always)]
pub(super) fn dot_and_square(a: &[f32], b: &[f32]) -> (f32, f32) {
    let [mut dot, mut square] = [[0f32; LANES]; 2];
    let (blocks_a, rest_a) = a.as_chunks::<LANES>();
    let (blocks_b, rest_b) = b.as_chunks::<LANES>();
    for (x, y) in blocks_a.iter().zip(blocks_b) {
        add(&mut dot, x, y, |x, y| x * y);
        add(&mut square, y, y, |x, y| x * y);
    }
    for (lane, (x, y)) in rest_a.iter().zip(rest_b).enumerate() {
        dot[lane] += x * y;
        square[lane] += y * y;
    }
    (fold(dot), fold(square))
}

/// The squared Euclidean distance of `a` and `b`.
#[inline(always)]
pub(super) fn square_distance(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| (x - y) * (x - y))
}

#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (blocks_a, rest_a) = a.as_chunks::<LANES>();
    let (blocks_b, rest_b) = b.as_chunks::<LANES>();
    for (x, y) in blocks_a.iter().zip(blocks_b) {
        add(&mut lanes, x, y, &term);
    }
    for (lane, (x, y)) in rest_a.iter().zip(rest_b).enumerate() {
        lanes[lane] += term(*x, *y);
    }
    fold(lanes)
}

/// [`dot`] of `a` with four rows: their loads overlap, the bits are those of one at a time.
#[inline(always)]
pub(super) fn dot4(a: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
    sum4(a, rows, |x, y| x * y, dot)
}

/// [`square_distance`] of `a` from four rows.
#[inline(always)]
pub(super) fn square_distance4(a: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
    sum4(a, rows, |x, y| (x - y) * (x - y), square_distance)
}

#[inline(always)]
fn sum4(
    a: &[f32],
    rows: [&[f32]; 4],
    term: impl Fn(f32, f32) -> f32,
    one: impl Fn(&[f32], &[f32]) -> f32,
) -> [f32; 4] {
    let (blocks, rest) = a.as_chunks::<LANES>();
    let [b, c, d, e] = rows.map(|row| row.as_chunks::<LANES>().0);
    let count = blocks.len();
    let short = [b, c, d, e].iter().any(|row| row.len() != count);
    if !rest.is_empty() || short {
        return rows.map(|row| one(a, row));
    }
    let (b, c, d, e) = (&b[..count], &c[..count], &d[..count], &e[..count]);
    let [mut s, mut t, mut u, mut v] = [[0f32; LANES]; 4];
    for block in 0..count {
        let x = &blocks[block];
        add(&mut s, x, &b[block], &term);
        add(&mut t, x, &c[block], &term);
        add(&mut u, x, &d[block], &term);
        add(&mut v, x, &e[block], &term);
    }
    [fold(s), fold(t), fold(u), fold(v)]
}

#[inline(always)]
fn add(lanes: &mut Lanes, x: &Lanes, y: &Lanes, term: impl Fn(f32, f32) -> f32) {
    for lane in 0..LANES {
        lanes[lane] += term(x[lane], y[lane]);
    }
}

/// The lanes, pair by pair.
#[inline(always)]
fn fold(mut lanes: Lanes) -> f32 {
    // Once in memory the lanes are side by side, whatever pairs are added: without it the compiler splits
    // registers in the loop before by the pairs of the fold.
    std::hint::black_box(&mut lanes);
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

/// Inner product of `a` and `b` and their squares in double precision, for vectors whose squares leave
/// the range of f32.
#[cold]
pub(super) fn wide_sums(a: &[f32], b: &[f32]) -> [f64; 3] {
    let mut sums = [0f64; 3];
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        sums[0] += x * y;
        sums[1] += x * x;
        sums[2] += y * y;
    }
    sums
}

/// The squared Euclidean distance in double precision.
#[cold]
pub(super) fn wide_square_distance(a: &[f32], b: &[f32]) -> f64 {
    let terms = a.iter().zip(b).map(|(x, y)| f64::from(*x) - f64::from(*y));
    terms.map(|difference| difference * difference).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(width: usize, seed: usize) -> Vec<f32> {
        let value = |i: usize| (((i + seed) * 7919) % 1013) as f32 / 500.0 - 1.0;
        (0..width).map(value).collect()
    }

    #[test]
    fn four_rows_at_once_and_padding_change_no_bit() {
        for width in [1usize, 3, 15, 16, 17, 37, 48, 64] {
            let a = vector(width, 5);
            let rows: Vec<_> = (0..4).map(|row| vector(width, 100 * row + 1)).collect();
            let four: [&[f32]; 4] = std::array::from_fn(|row| rows[row].as_slice());
            let pad = |v: &[f32]| {
                let mut padded = v.to_vec();
                padded.resize(width.next_multiple_of(LANES), 0.0);
                padded
            };
            let (dots, squares) = (dot4(&a, four), square_distance4(&a, four));
            for row in 0..4 {
                let (padded_a, padded) = (pad(&a), pad(&rows[row]));
                let dot_bits = dot(&a, &rows[row]).to_bits();
                let square_bits = square_distance(&a, &rows[row]).to_bits();
                assert_eq!(dots[row].to_bits(), dot_bits);
                assert_eq!(dot(&padded_a, &padded).to_bits(), dot_bits);
                assert_eq!(squares[row].to_bits(), square_bits);
                assert_eq!(square_distance(&padded_a, &padded).to_bits(), square_bits);
            }
        }
    }
}
