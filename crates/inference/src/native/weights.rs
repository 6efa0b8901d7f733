//! From the 4-bit blocks of the file to what the kernels read.

use super::Error;
use super::image::{BLOCK, BLOCK_BYTES, Image};
use super::kernels::{LANES, Linear, STEP, STEP_BYTES, round};

/// Unpacks blocks to floats; `blocks` holds 18 bytes for every 32 places of `out`.
pub(super) fn unpack(blocks: &[u8], out: &mut [f32]) -> Result<(), Error> {
    for (block, out) in blocks.as_chunks::<BLOCK_BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let [scale_low, scale_high, nibbles @ ..] = block;
        let scale = half(u16::from_le_bytes([*scale_low, *scale_high]));
        if !scale.is_finite() {
            return Err(Error::Malformed("a weight is not a finite number"));
        }
        let (low, high) = out.split_at_mut(BLOCK / 2);
        for ((byte, low), high) in nibbles.iter().zip(low).zip(high) {
            *low = (f32::from(byte & 15) - 8.0) * scale;
            *high = (f32::from(byte >> 4) - 8.0) * scale;
        }
    }
    Ok(())
}

/// A 16-bit float.
fn half(bits: u16) -> f32 {
    let exponent = u32::from(bits >> 10 & 31);
    let fraction = u32::from(bits & 1023);
    let size = match exponent {
        // Too small for a leading one: the fraction counts in units of 2^-24.
        0 => f32::from(bits & 1023) / 16_777_216.0,
        31 => f32::from_bits(255 << 23 | fraction << 13),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Reads matrices that share their inputs and stacks their outputs, as 8-bit weights with a scale per
/// row. Each name stands for `name.w` and `name.b`; each has `outputs` rows of `inputs` weights.
pub(super) fn stacked(
    image: &Image,
    names: &[String],
    outputs: usize,
    inputs: usize,
) -> Result<Linear, Error> {
    let rows = outputs * names.len();
    let mut linear = Linear {
        inputs,
        packed: vec![0; rows * inputs],
        scale: Vec::with_capacity(rows),
        sums: Vec::with_capacity(rows),
        bias: Vec::with_capacity(rows),
    };
    let mut packed = linear.packed.chunks_exact_mut(inputs * LANES);
    let mut floats = vec![0.0; inputs];
    for name in names {
        let blocks = image.blocks(&format!("{name}.w"), outputs * inputs)?;
        linear.bias.extend(image.floats(&format!("{name}.b"), outputs)?);
        let row_bytes = inputs / BLOCK * BLOCK_BYTES;
        for group in blocks.chunks_exact(row_bytes * LANES) {
            let Some(place) = packed.next() else { break };
            for (lane, row) in group.chunks_exact(row_bytes).enumerate() {
                unpack(row, &mut floats)?;
                let highest = floats.iter().fold(0.0_f32, |highest, x| highest.max(x.abs()));
                let inverse = if highest > 0.0 { 127.0 / highest } else { 0.0 };
                linear.scale.push(highest / 127.0);
                let mut sum = 0;
                let steps = place.as_chunks_mut::<STEP_BYTES>().0;
                for (step, floats) in steps.iter_mut().zip(floats.as_chunks::<STEP>().0) {
                    let weights = floats.map(|x| round(x * inverse).cast_signed());
                    sum += weights.iter().map(|weight| i32::from(*weight)).sum::<i32>();
                    if let Some(place) = step.as_chunks_mut::<STEP>().0.get_mut(lane) {
                        *place = weights;
                    }
                }
                linear.sums.push(sum);
            }
        }
    }
    Ok(linear)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_are_read_exactly() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65_504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x8001, -5.960_464_5e-8),
            (0x3555, 0.333_251_95),
        ];
        for (bits, value) in cases {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }

    #[test]
    fn a_block_holds_the_first_half_in_the_low_nibbles() {
        let mut block = [0x88_u8; BLOCK_BYTES];
        block[0] = 0x00;
        block[1] = 0x3c; // Scale 1.
        block[2] = 0x9f; // Weight 0 is 15 - 8, weight 16 is 9 - 8.
        let mut out = [9.0; BLOCK];
        unpack(&block, &mut out).unwrap();
        assert_eq!((out[0], out[1], out[16], out[17]), (7.0, 0.0, 1.0, 0.0));
    }

    #[test]
    fn a_block_with_an_infinite_scale_is_refused() {
        let mut block = [0; BLOCK_BYTES];
        block[1] = 0x7c;
        assert!(unpack(&block, &mut [0.0; BLOCK]).is_err());
    }
}
