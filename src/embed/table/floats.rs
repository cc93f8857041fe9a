//! Numbers of other widths as f32, which holds all of them exactly.

/// IEEE 754 binary16.
pub(super) fn of_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1F);
    let fraction = f32::from(bits & 0x3FF);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// The upper half of an f32.
pub(super) fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x0001, 2f32.powi(-24)),
            (0x03FF, 1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x3C00, 1.0),
            (0x3C01, 1.000_976_6),
            (0xC000, -2.0),
            (0x7BFF, 65_504.0),
            (0x7C00, f32::INFINITY),
            (0xFC00, f32::NEG_INFINITY),
        ] {
            assert_eq!(of_f16(bits), value, "{bits:x}");
        }
        assert!(of_f16(0x8000).is_sign_negative());
        assert!(of_f16(0x7E00).is_nan() && of_f16(0xFC01).is_nan());
        // They grow with their bits, and each is another one.
        let finite = (0..0x7C00).map(of_f16);
        assert!(finite.clone().zip(finite.skip(1)).all(|(a, b)| a < b));
    }

    #[test]
    fn brain_floats_are_exact() {
        assert_eq!(of_bf16(0x3F80), 1.0);
        assert_eq!(of_bf16(0xC049), -3.140_625);
        assert!(of_bf16(0x7FC0).is_nan());
    }
}
