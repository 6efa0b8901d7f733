//! Every form of the kernels gives the bits of the portable form, and the portable form is right.

use proptest::prelude::*;

use super::super::kernels::{
    Attention, AttentionRoom, Kernels, LANES, Linear, Norm, PORTABLE, Quantised, STEP, STEP_BYTES,
};
use super::super::simd::available;
use super::synthetic::Random;

fn floats(random: &mut Random, n: usize, size: f32) -> Vec<f32> {
    (0..n).map(|_| random.float() * size).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A matrix of arbitrary weights, extremes included.
fn linear(random: &mut Random, outputs: usize, inputs: usize) -> Linear {
    let extremes = [-127, 127, 0];
    let packed: Vec<i8> = (0..outputs * inputs)
        .map(|_| match random.below(5) {
            at @ 0..3 => extremes[at],
            _ => i8::try_from(random.below(255)).unwrap_or(-100),
        })
        .collect();
    let mut sums = vec![0; outputs];
    for row in 0..outputs {
        sums[row] = (0..inputs).map(|k| i32::from(packed[place(row, k, inputs)])).sum();
    }
    let (scale, bias) = (floats(random, outputs, 0.01), floats(random, outputs, 1.0));
    Linear { inputs, packed, scale, sums, bias }
}

/// Where the kernels look for weight `k` of `row`.
fn place(row: usize, k: usize, inputs: usize) -> usize {
    row / LANES * LANES * inputs + k / STEP * STEP_BYTES + row % LANES * STEP + k % STEP
}

fn attend(kernels: Kernels, qkv: &[f32], width: usize, head: usize) -> Vec<f32> {
    let mut out = vec![9.0; qkv.len() / 3];
    let mut room = AttentionRoom::default();
    // A room that was used for something longer before.
    let longer = vec![7.0; 40 * 3 * 64];
    let used = &mut vec![0.0; 40 * 64];
    (kernels.attention)(&mut Attention { qkv: &longer, width: 64, head: 32, room: &mut room, out: used });
    (kernels.attention)(&mut Attention { qkv, width, head, room: &mut room, out: &mut out });
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 40 } else { 400 }))]

    #[test]
    fn every_form_gives_the_bits_of_the_portable_form(
        seed in 1_u64..,
        tokens in 1_usize..23,
        outputs in 1_usize..4,
        inputs in 1_usize..5,
        size in prop::sample::select(vec![1e-3_f32, 1.0, 40.0]),
    ) {
        let mut random = Random(seed);
        let (outputs, width) = (outputs * 32, inputs * 32);
        let weights = linear(&mut random, outputs, width);
        let x = floats(&mut random, tokens * width, size);
        let y = floats(&mut random, tokens * width, size);
        let norm = Norm { weight: floats(&mut random, width, 1.0), bias: floats(&mut random, width, 1.0), epsilon: 1e-12 };
        let qkv = floats(&mut random, tokens * 3 * width, size.min(4.0));
        let run = |kernels: Kernels| {
            let mut bytes = Quantised::default();
            (kernels.quantise)(&x, width, &mut bytes);
            let mut product = vec![0.0; tokens * outputs];
            (kernels.linear)(&weights, &bytes, &mut product);
            let mut bent = x.clone();
            (kernels.gelu)(&mut bent);
            let mut normed = x.clone();
            (kernels.add_norm)(&mut normed, &y, &norm);
            let attended = attend(kernels, &qkv, width, 16);
            (bytes.bytes, [bits(&bytes.scale), bits(&product), bits(&bent), bits(&normed), bits(&attended)])
        };
        let expected = run(PORTABLE);
        for form in available() {
            prop_assert_eq!(&run(form), &expected, "{}", form.name);
        }
    }

    #[test]
    fn every_form_is_exact_for_every_byte(seed in 1_u64.., tokens in 1_usize..10) {
        let mut random = Random(seed);
        let mut weights = linear(&mut random, 32, 64);
        weights.scale.fill(1.0);
        weights.bias.fill(0.0);
        let bytes: Vec<u8> = (0..tokens * 64).map(|_| random.next().to_le_bytes()[0]).collect();
        let input = Quantised { bytes: bytes.clone(), scale: vec![1.0; tokens] };
        for form in available() {
            let mut out = vec![0.0; tokens * 32];
            (form.linear)(&weights, &input, &mut out);
            for (at, x) in out.iter().enumerate() {
                let (token, row) = (at / 32, at % 32);
                let products = (0..64).map(|k| {
                    i64::from(weights.packed[place(row, k, 64)]) * (i64::from(bytes[token * 64 + k]) - 128)
                });
                let exact: i64 = products.sum();
                prop_assert_eq!(f64::from(*x), f64::from(i32::try_from(exact).unwrap()), "{}", form.name);
            }
        }
    }
}

#[test]
fn the_portable_form_is_among_the_available() {
    assert_eq!(available().last().unwrap().name, PORTABLE.name);
    let names: Vec<_> = available().iter().map(|form| form.name).collect();
    println!("forms of this processor: {names:?}");
}

#[test]
fn rounding_to_bytes_keeps_every_component_within_half_a_unit() {
    let mut bytes = Quantised::default();
    let x = floats(&mut Random(7), 3 * 64, 5.0);
    (PORTABLE.quantise)(&x, 64, &mut bytes);
    for ((x, byte), scale) in x.iter().zip(&bytes.bytes).zip(bytes.scale.iter().flat_map(|s| [s; 64])) {
        let back = (f32::from(*byte) - 128.0) * scale;
        assert!((x - back).abs() <= scale * 0.501, "{x} became {back}");
    }
    (PORTABLE.quantise)(&[0.0; 64], 64, &mut bytes);
    assert!(bytes.bytes.iter().all(|byte| *byte == 128));
}

#[test]
fn the_error_linear_unit_agrees_with_its_definition() {
    // x * (1 + erf(x / sqrt 2)) / 2, from a table of the normal distribution.
    let known = [
        (0.0, 0.0),
        (0.5, 0.345_731_23),
        (1.0, 0.841_344_8),
        (-1.0, -0.158_655_25),
        (2.0, 1.954_499_7),
        (-2.0, -0.045_500_264),
        (3.0, 2.995_950_3),
        (10.0, 10.0),
        (-10.0, 0.0),
        (-40.0, 0.0),
    ];
    for (x, y) in known {
        let mut values = [x];
        (PORTABLE.gelu)(&mut values);
        assert!((values[0] - y).abs() < 1e-6, "{x} became {}, not {y}", values[0]);
    }
}

#[test]
fn attention_is_the_softmax_of_the_products() {
    let (width, head, tokens) = (32, 16, 21);
    let qkv = floats(&mut Random(3), tokens * 3 * width, 2.0);
    let out = attend(PORTABLE, &qkv, width, head);
    let at = |token: usize, part: usize, d: usize| f64::from(qkv[token * 3 * width + part * width + d]);
    for query in 0..tokens {
        for d in 0..width {
            let first = d / head * head;
            let product =
                |t: usize| (first..first + head).map(|d| at(query, 0, d) * at(t, 1, d)).sum::<f64>();
            let weights: Vec<f64> = (0..tokens).map(|t| (product(t) / 4.0).exp()).collect();
            let value: f64 = weights.iter().enumerate().map(|(t, weight)| weight * at(t, 2, d)).sum();
            let expected = value / weights.iter().sum::<f64>();
            let found = f64::from(out[query * width + d]);
            assert!((found - expected).abs() < 1e-5, "token {query}, component {d}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_normed_token_has_mean_zero_and_variance_one() {
    let norm = Norm { weight: vec![1.0; 64], bias: vec![0.0; 64], epsilon: 1e-12 };
    let mut x = floats(&mut Random(5), 128, 3.0);
    let y = floats(&mut Random(6), 128, 3.0);
    (PORTABLE.add_norm)(&mut x, &y, &norm);
    for token in x.chunks(64) {
        let mean: f32 = token.iter().sum::<f32>() / 64.0;
        let variance: f32 = token.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / 64.0;
        assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4, "mean {mean}, variance {variance}");
    }
}
