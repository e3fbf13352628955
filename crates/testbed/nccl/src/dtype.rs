//! Arithmetic on byte buffers: what the streaming multiprocessors do to elements.
//!
//! Buffers need no alignment. Small floats are widened to `f32` for each single operation and rounded to nearest
//! even, as the GPU's intrinsics do; eight-bit floats saturate instead of overflowing.

use crate::abi::{DType, RedOp};

/// `acc[i] = acc[i] (op) other[i]` for all elements; the slices must have the same length.
/// `Avg` adds here: floats are scaled before ([`scale_input`]), integers divided after ([`divide_output`]).
pub fn reduce_into(acc: &mut [u8], other: &[u8], dtype: DType, op: RedOp) {
    assert_eq!(acc.len(), other.len(), "reduction of buffers of different length");
    match dtype {
        DType::I8 => ints!(acc, other, i8, op),
        DType::U8 => ints!(acc, other, u8, op),
        DType::I32 => ints!(acc, other, i32, op),
        DType::U32 => ints!(acc, other, u32, op),
        DType::I64 => ints!(acc, other, i64, op),
        DType::U64 => ints!(acc, other, u64, op),
        DType::F32 => floats!(acc, other, f32, op),
        DType::F64 => floats!(acc, other, f64, op),
        DType::F16 => small(acc, other, op, f32_from_f16, f16_from_f32),
        DType::Bf16 => small(acc, other, op, f32_from_bf16, bf16_from_f32),
        DType::F8e4m3 => tiny(acc, other, op, f32_from_e4m3, e4m3_from_f32),
        DType::F8e5m2 => tiny(acc, other, op, f32_from_e5m2, e5m2_from_f32),
    }
}

macro_rules! zip {
    ($acc:ident, $other:ident, $t:ty, $f:expr) => {{
        const N: usize = size_of::<$t>();
        for (a, b) in $acc.chunks_exact_mut(N).zip($other.chunks_exact(N)) {
            let (mut x, mut y) = ([0u8; N], [0u8; N]);
            x.copy_from_slice(a);
            y.copy_from_slice(b);
            let f: fn($t, $t) -> $t = $f;
            a.copy_from_slice(&f(<$t>::from_ne_bytes(x), <$t>::from_ne_bytes(y)).to_ne_bytes());
        }
    }};
}
macro_rules! ints {
    ($acc:ident, $other:ident, $t:ty, $op:ident) => {
        match $op {
            RedOp::Sum | RedOp::Avg => zip!($acc, $other, $t, |a, b| a.wrapping_add(b)),
            RedOp::Prod => zip!($acc, $other, $t, |a, b| a.wrapping_mul(b)),
            RedOp::Max => zip!($acc, $other, $t, |a, b| a.max(b)),
            RedOp::Min => zip!($acc, $other, $t, |a, b| a.min(b)),
        }
    };
}
macro_rules! floats {
    ($acc:ident, $other:ident, $t:ty, $op:ident) => {
        match $op {
            RedOp::Sum | RedOp::Avg => zip!($acc, $other, $t, |a, b| a + b),
            RedOp::Prod => zip!($acc, $other, $t, |a, b| a * b),
            RedOp::Max => zip!($acc, $other, $t, |a, b| a.max(b)),
            RedOp::Min => zip!($acc, $other, $t, |a, b| a.min(b)),
        }
    };
}
use {floats, ints, zip};

fn apply(op: RedOp, a: f32, b: f32) -> f32 {
    match op {
        RedOp::Sum | RedOp::Avg => a + b,
        RedOp::Prod => a * b,
        RedOp::Max => a.max(b),
        RedOp::Min => a.min(b),
    }
}

fn small(acc: &mut [u8], other: &[u8], op: RedOp, widen: fn(u16) -> f32, narrow: fn(f32) -> u16) {
    for (a, b) in acc.chunks_exact_mut(2).zip(other.chunks_exact(2)) {
        let x = widen(u16::from_ne_bytes([a[0], a[1]]));
        let y = widen(u16::from_ne_bytes([b[0], b[1]]));
        a.copy_from_slice(&narrow(apply(op, x, y)).to_ne_bytes());
    }
}

fn tiny(acc: &mut [u8], other: &[u8], op: RedOp, widen: fn(u8) -> f32, narrow: fn(f32) -> u8) {
    for (a, b) in acc.iter_mut().zip(other) {
        *a = narrow(apply(op, widen(*a), widen(*b)));
    }
}

/// Multiplies every float by `1 / ranks`: how `Avg` avoids overflow in small floats. Integers stay as they are.
pub fn scale_input(buf: &mut [u8], dtype: DType, ranks: usize) {
    let factor = 1.0 / ranks as f32;
    match dtype {
        DType::F32 => map4(buf, |b| (f32::from_ne_bytes(b) * factor).to_ne_bytes()),
        DType::F64 => map8(buf, |b| (f64::from_ne_bytes(b) / ranks as f64).to_ne_bytes()),
        DType::F16 => map2(buf, |v| f16_from_f32(f32_from_f16(v) * factor)),
        DType::Bf16 => map2(buf, |v| bf16_from_f32(f32_from_bf16(v) * factor)),
        DType::F8e4m3 => buf.iter_mut().for_each(|v| *v = e4m3_from_f32(f32_from_e4m3(*v) * factor)),
        DType::F8e5m2 => buf.iter_mut().for_each(|v| *v = e5m2_from_f32(f32_from_e5m2(*v) * factor)),
        _ => {}
    }
}

/// Divides every integer by `ranks`, towards zero: the end of an integer `Avg`. Floats stay as they are.
pub fn divide_output(buf: &mut [u8], dtype: DType, ranks: usize) {
    let n = ranks.max(1) as u64;
    match dtype {
        DType::I8 => buf.iter_mut().for_each(|v| *v = (i64::from(*v as i8) / n as i64) as i8 as u8),
        DType::U8 => buf.iter_mut().for_each(|v| *v = (u64::from(*v) / n) as u8),
        DType::I32 => map4(buf, |b| ((i64::from(i32::from_ne_bytes(b)) / n as i64) as i32).to_ne_bytes()),
        DType::U32 => map4(buf, |b| ((u64::from(u32::from_ne_bytes(b)) / n) as u32).to_ne_bytes()),
        DType::I64 => map8(buf, |b| (i64::from_ne_bytes(b) / n as i64).to_ne_bytes()),
        DType::U64 => map8(buf, |b| (u64::from_ne_bytes(b) / n).to_ne_bytes()),
        _ => {}
    }
}

fn map2(buf: &mut [u8], f: impl Fn(u16) -> u16) {
    for c in buf.chunks_exact_mut(2) {
        c.copy_from_slice(&f(u16::from_ne_bytes([c[0], c[1]])).to_ne_bytes());
    }
}

fn map4(buf: &mut [u8], f: impl Fn([u8; 4]) -> [u8; 4]) {
    for c in buf.chunks_exact_mut(4) {
        c.copy_from_slice(&f([c[0], c[1], c[2], c[3]]));
    }
}

fn map8(buf: &mut [u8], f: impl Fn([u8; 8]) -> [u8; 8]) {
    for c in buf.chunks_exact_mut(8) {
        c.copy_from_slice(&f([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]));
    }
}

/// Widens a bfloat16.
pub fn f32_from_bf16(v: u16) -> f32 {
    f32::from_bits(u32::from(v) << 16)
}

/// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
pub fn bf16_from_f32(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return ((bits >> 16) | 0x40) as u16;
    }
    ((bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16) as u16
}

/// Widens an IEEE half.
pub fn f32_from_f16(v: u16) -> f32 {
    let (sign, exp, man) = (u32::from(v >> 15) << 31, (v >> 10) & 0x1f, u32::from(v & 0x3ff));
    match exp {
        0 => f32::from_bits(sign | (man as f32 * 2f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (man << 13)),
        _ => f32::from_bits(sign | ((u32::from(exp) + 112) << 23) | (man << 13)),
    }
}

/// Rounds to the nearest IEEE half, ties to even; too large becomes infinity.
pub fn f16_from_f32(v: f32) -> u16 {
    let sign = ((v.to_bits() >> 16) & 0x8000) as u16;
    if v.is_nan() {
        return sign | 0x7e00;
    }
    match round_small(v.abs(), 10, -14) {
        code if code >= 0x7c00 => sign | 0x7c00,
        code => sign | code as u16,
    }
}

/// Magnitude code of a small float with `man` mantissa bits whose least normal exponent is `emin`: exponent and
/// mantissa side by side, rounded to nearest even, not limited above.
fn round_small(abs: f32, man: i32, emin: i32) -> u32 {
    if abs == 0.0 {
        return 0;
    }
    if abs.is_infinite() {
        return u32::MAX;
    }
    let x = f64::from(abs);
    let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(emin);
    let units = (x / 2f64.powi(exponent - man)).round_ties_even() as u32;
    // `units` carries the hidden bit when normal, so adding (exponent - emin) << man gives the code, and a mantissa
    // that rounds up to the next power of two moves the exponent by itself.
    (((exponent - emin) as u32) << man) + units
}

/// Widens an e4m3 float (no infinity, 0x7f is NaN).
pub fn f32_from_e4m3(v: u8) -> f32 {
    let sign = if v & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exp, man) = (i32::from((v >> 3) & 0xf), f32::from(v & 7));
    match (exp, v & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * man * 2f32.powi(-9),
        _ => sign * (8.0 + man) * 2f32.powi(exp - 10),
    }
}

/// Rounds to the nearest e4m3 float, saturating at 448.
pub fn e4m3_from_f32(v: f32) -> u8 {
    if v.is_nan() {
        return 0x7f;
    }
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    sign | round_small(v.abs(), 3, -6).min(0x7e) as u8
}

/// Widens an e5m2 float.
pub fn f32_from_e5m2(v: u8) -> f32 {
    f32_from_f16(u16::from(v) << 8)
}

/// Rounds to the nearest e5m2 float, saturating at 57344.
pub fn e5m2_from_f32(v: f32) -> u8 {
    if v.is_nan() {
        return 0x7f;
    }
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    sign | round_small(v.abs(), 2, -14).min(0x7b) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_survive_a_round_trip() {
        for v in 0..=u16::MAX {
            let f = f32_from_f16(v);
            if !f.is_nan() {
                assert_eq!(f16_from_f32(f), v, "half {v:#x}");
            }
            let b = f32_from_bf16(v);
            if !b.is_nan() {
                assert_eq!(bf16_from_f32(b), v, "bfloat {v:#x}");
            }
        }
        for v in 0..=u8::MAX {
            let f = f32_from_e4m3(v);
            if !f.is_nan() {
                assert_eq!(e4m3_from_f32(f), v, "e4m3 {v:#x}");
            }
            let g = f32_from_e5m2(v);
            if g.is_finite() {
                assert_eq!(e5m2_from_f32(g), v, "e5m2 {v:#x}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        assert_eq!(f16_from_f32(1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(f16_from_f32(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
        assert_eq!(f16_from_f32(65520.0), 0x7c00);
        assert_eq!(e4m3_from_f32(1e9), 0x7e);
        assert_eq!(e5m2_from_f32(-1e9), 0xfb);
    }

    #[test]
    fn integer_average_goes_towards_zero() {
        let mut v = (-7i32).to_ne_bytes().to_vec();
        divide_output(&mut v, DType::I32, 2);
        assert_eq!(v, (-3i32).to_ne_bytes());
    }
}
