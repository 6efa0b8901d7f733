//! The kernels with the vector instructions of the processor. The only file of the crate with `unsafe`.
//!
//! Two things need it: calling a function compiled for instructions that not every processor has, and
//! moving bytes between arrays and registers. Results are equal to the portable form bit by bit.

#![cfg_attr(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    expect(unsafe_code, reason = "vector instructions cannot be reached otherwise")
)]

use super::kernels::{self, Kernels};

/// The forms this processor can run, fastest first; the portable form is the last.
pub(super) fn available() -> Vec<Kernels> {
    #[cfg(target_arch = "x86_64")]
    let mut forms = x86::available();
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    let mut forms = arm::available();
    // Compilers turn the portable form into the instructions that every processor of the kind has.
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
    let mut forms = Vec::new();
    forms.push(kernels::PORTABLE);
    forms
}

/// Tokens side by side, so that weights in registers are used for several of them.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
#[macro_use]
mod tiles {
    use super::kernels::STEP;

    /// `T` tokens side by side: for each step, four bytes of each.
    pub(super) type Tile<const T: usize> = Vec<[[u8; STEP]; T]>;

    /// A tile out of `T` whole token vectors of `width` bytes.
    #[inline(always)]
    pub(super) fn tile<const T: usize>(tokens: &[u8], width: usize) -> Tile<T> {
        let mut tile = vec![[[0; STEP]; T]; width / STEP];
        for (t, token) in tokens.chunks_exact(width).enumerate() {
            for (places, step) in tile.iter_mut().zip(token.as_chunks::<STEP>().0) {
                if let Some(place) = places.get_mut(t) {
                    *place = *step;
                }
            }
        }
        tile
    }

    /// Cuts the tokens into tiles of the given sizes, largest first, and hands each to `$run::<T>` with
    /// its scales and outputs.
    macro_rules! each_tile {
        ($linear:expr, $input:expr, $out:expr, $run:ident, [$($size:literal),*]) => {{
            let (width, rows) = ($linear.inputs, $linear.outputs());
            let mut bytes = $input.bytes.as_slice();
            let mut scales = $input.scale.as_slice();
            let mut out: &mut [f32] = $out;
            $(
                while scales.len() >= $size {
                    let (tokens, rest) = bytes.split_at(width * $size);
                    let (scale, scales_rest) = scales.split_at($size);
                    let (now, out_rest) = std::mem::take(&mut out).split_at_mut(rows * $size);
                    $run::<$size>($linear, &tile(tokens, width), scale, now);
                    (bytes, scales, out) = (rest, scales_rest, out_rest);
                }
            )*
        }};
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_abs_epi8, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_sign_epi8,
        _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32,
        _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use super::super::kernels::{
        self, Attention, Kernels, LANES, Linear, Norm, Quantised, STEP_BYTES, finishes,
    };
    use super::tiles::{Tile, tile};

    /// The forms of this kind this processor can run, fastest first.
    pub(super) fn available() -> Vec<Kernels> {
        let mut forms = Vec::new();
        // INVARIANT: the functions of `vnni` and `avx2` are reachable only through the two constants
        // pushed here, that is, only after the processor was asked for the instructions they use.
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
        {
            forms.push(vnni::FORM);
        }
        if is_x86_feature_detected!("avx2") {
            forms.push(avx2::FORM);
        }
        forms
    }

    /// Compiles the float kernels and `linear` once more for the given instructions.
    macro_rules! form {
        ($module:ident, $name:literal, $features:literal, $linear:path) => {
            mod $module {
                use super::{Attention, Kernels, Linear, Norm, Quantised, kernels};

                pub(super) const FORM: Kernels =
                    Kernels { name: $name, linear, quantise, attention, gelu, add_norm };

                form!(@kernel $features, linear, $linear, (a: &Linear, b: &Quantised, c: &mut [f32]));
                form!(@kernel $features, quantise, kernels::quantise, (a: &[f32], b: usize, c: &mut Quantised));
                form!(@kernel $features, attention, kernels::attention, (a: &mut Attention<'_>));
                form!(@kernel $features, gelu, kernels::gelu, (a: &mut [f32]));
                form!(@kernel $features, add_norm, kernels::add_norm, (a: &mut [f32], b: &[f32], c: &Norm));
            }
        };
        (@kernel $features:literal, $name:ident, $body:path, ($($arg:ident: $type:ty),*)) => {
            fn $name($($arg: $type),*) {
                #[target_feature(enable = $features)]
                fn compiled($($arg: $type),*) {
                    $body($($arg),*);
                }
                // SAFETY: reachable only through FORM, which is handed out after the features were found.
                unsafe { compiled($($arg),*) }
            }
        };
    }

    form!(vnni, "avx512-vnni", "avx512f,avx512bw,avx512vl,avx512vnni", super::linear_vnni);
    form!(avx2, "avx2", "avx2", super::linear_avx2);

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn linear_vnni(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        each_tile!(linear, input, out, tile_vnni, [8, 4, 2, 1]);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn tile_vnni<const T: usize>(linear: &Linear, tile: &Tile<T>, scales: &[f32], out: &mut [f32]) {
        let rows = linear.outputs();
        let group_bytes = linear.inputs * LANES;
        let mut finish = finishes(linear);
        for (pair, weights) in linear.packed.chunks_exact(2 * group_bytes).enumerate() {
            let (left, right) = weights.split_at(group_bytes);
            let mut sums = [[_mm512_setzero_si512(); 2]; T];
            let steps = left.as_chunks::<STEP_BYTES>().0.iter().zip(right.as_chunks::<STEP_BYTES>().0);
            for ((left, right), tokens) in steps.zip(tile) {
                let (left, right) = (load512(left), load512(right));
                for (sum, token) in sums.iter_mut().zip(tokens) {
                    let token = _mm512_set1_epi32(i32::from_le_bytes(*token));
                    let [a, b] = *sum;
                    *sum = [_mm512_dpbusd_epi32(a, token, left), _mm512_dpbusd_epi32(b, token, right)];
                }
            }
            let (Some(first), Some(second)) = (finish.next(), finish.next()) else { return };
            for ((out, sum), &scale) in out.chunks_exact_mut(rows).zip(sums).zip(scales) {
                let places = out.as_chunks_mut::<LANES>().0.iter_mut().skip(2 * pair);
                for ((place, sum), finish) in places.zip(sum).zip([first, second]) {
                    *place = finish.apply(finish.without_offset(store512(sum)), scale);
                }
            }
        }
    }

    #[target_feature(enable = "avx2")]
    fn linear_avx2(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        each_tile!(linear, input, out, tile_avx2, [4, 2, 1]);
    }

    #[target_feature(enable = "avx2")]
    fn tile_avx2<const T: usize>(linear: &Linear, tile: &Tile<T>, scales: &[f32], out: &mut [f32]) {
        let rows = linear.outputs();
        let ones = _mm256_set1_epi16(1);
        let groups = linear.packed.chunks_exact(linear.inputs * LANES).zip(finishes(linear));
        for (at, (group, finish)) in groups.enumerate() {
            let mut sums = [[_mm256_setzero_si256(); 2]; T];
            for (weights, tokens) in group.as_chunks::<STEP_BYTES>().0.iter().zip(tile) {
                let weights = load256x2(weights);
                for (sums, token) in sums.iter_mut().zip(tokens) {
                    // Flipping the highest bit takes the offset of 128 away.
                    let token = _mm256_set1_epi32(i32::from_le_bytes(*token) ^ i32::from_ne_bytes([0x80; 4]));
                    let size = _mm256_abs_epi8(token);
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        // The sign goes to the weight, because one factor must be unsigned. Two products
                        // of at most 128 * 127 fit 16 bits.
                        let pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(weights, token));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            for ((out, sums), &scale) in out.chunks_exact_mut(rows).zip(sums).zip(scales) {
                if let Some(place) = out.as_chunks_mut::<LANES>().0.get_mut(at) {
                    *place = finish.apply(store256x2(sums), scale);
                }
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn load512(bytes: &[i8; STEP_BYTES]) -> __m512i {
        // SAFETY: the array has the 64 bytes of the register; no alignment is asked for.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn store512(register: __m512i) -> [i32; LANES] {
        let mut lanes = [0; LANES];
        // SAFETY: the array has the 64 bytes of the register; no alignment is asked for.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), register) };
        lanes
    }

    #[target_feature(enable = "avx")]
    fn load256x2(bytes: &[i8; STEP_BYTES]) -> [__m256i; 2] {
        let start = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: the array has the 64 bytes of two registers; no alignment is asked for.
        unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
    }

    #[target_feature(enable = "avx")]
    fn store256x2(registers: [__m256i; 2]) -> [i32; LANES] {
        let mut lanes = [0; LANES];
        let start = lanes.as_mut_ptr().cast::<__m256i>();
        let [low, high] = registers;
        // SAFETY: the array has the 64 bytes of two registers; no alignment is asked for.
        unsafe {
            _mm256_storeu_si256(start, low);
            _mm256_storeu_si256(start.add(1), high);
        }
        lanes
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm {
    use std::arch::aarch64::{
        int8x16_t, int16x8_t, int32x4_t, vdupq_n_s32, vget_high_s8, vget_low_s8, vld1q_s8, vmlal_s8,
        vmull_s8, vpadalq_s16, vpaddq_s32, vreinterpretq_s8_s32, vst1q_s32,
    };
    use std::arch::{asm, is_aarch64_feature_detected};

    use super::super::kernels::{Kernels, LANES, Linear, PORTABLE, Quantised, STEP, STEP_BYTES, finishes};
    use super::tiles::{Tile, tile};

    /// Registers for one step of one group of rows.
    const QUARTERS: usize = 4;

    /// The forms of this kind this processor can run, fastest first. Only the integer product has forms of
    /// its own: what compilers make of the portable float kernels uses NEON already.
    pub(super) fn available() -> Vec<Kernels> {
        let mut forms = Vec::new();
        // INVARIANT: the two functions below are reachable only through the forms pushed here, that is,
        // only after the processor was asked for the instructions they use.
        if is_aarch64_feature_detected!("neon") {
            if is_aarch64_feature_detected!("dotprod") {
                forms.push(Kernels { name: "neon-dotprod", linear: dotprod, ..PORTABLE });
            }
            forms.push(Kernels { name: "neon", linear: neon, ..PORTABLE });
        }
        forms
    }

    fn dotprod(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        // SAFETY: reachable only through a form that is handed out after the features were found.
        unsafe { linear_dotprod(linear, input, out) }
    }

    fn neon(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        // SAFETY: reachable only through a form that is handed out after the feature was found.
        unsafe { linear_neon(linear, input, out) }
    }

    #[target_feature(enable = "neon,dotprod")]
    fn linear_dotprod(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        each_tile!(linear, input, out, tile_dotprod, [4, 2, 1]);
    }

    #[target_feature(enable = "neon,dotprod")]
    fn tile_dotprod<const T: usize>(linear: &Linear, tile: &Tile<T>, scales: &[f32], out: &mut [f32]) {
        let rows = linear.outputs();
        let groups = linear.packed.chunks_exact(linear.inputs * LANES).zip(finishes(linear));
        for (at, (group, finish)) in groups.enumerate() {
            let mut sums = [[vdupq_n_s32(0); QUARTERS]; T];
            for (weights, tokens) in group.as_chunks::<STEP_BYTES>().0.iter().zip(tile) {
                let weights = load(weights);
                for (sums, token) in sums.iter_mut().zip(tokens) {
                    let token = spread(*token);
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = add_dots(*sum, weights, token);
                    }
                }
            }
            for ((out, sums), &scale) in out.chunks_exact_mut(rows).zip(sums).zip(scales) {
                if let Some(place) = out.as_chunks_mut::<LANES>().0.get_mut(at) {
                    *place = finish.apply(store(sums), scale);
                }
            }
        }
    }

    #[target_feature(enable = "neon")]
    fn linear_neon(linear: &Linear, input: &Quantised, out: &mut [f32]) {
        each_tile!(linear, input, out, tile_neon, [2, 1]);
    }

    #[target_feature(enable = "neon")]
    fn tile_neon<const T: usize>(linear: &Linear, tile: &Tile<T>, scales: &[f32], out: &mut [f32]) {
        let rows = linear.outputs();
        let groups = linear.packed.chunks_exact(linear.inputs * LANES).zip(finishes(linear));
        for (at, (group, finish)) in groups.enumerate() {
            // Two sums per row: of the first two and of the last two weights of every step.
            let mut sums = [[[vdupq_n_s32(0); 2]; QUARTERS]; T];
            // Widths are multiples of 32, so steps come in pairs.
            let steps = group.as_chunks::<STEP_BYTES>().0.as_chunks::<2>().0;
            for ([first, second], tokens) in steps.iter().zip(tile.as_chunks::<2>().0) {
                let (first, second) = (load(first), load(second));
                let [now, next] = tokens;
                for ((sums, now), next) in sums.iter_mut().zip(now).zip(next) {
                    let (now, next) = (spread(*now), spread(*next));
                    for ((sums, first), second) in sums.iter_mut().zip(first).zip(second) {
                        let [low, high] = products(first, now, second, next);
                        let [a, b] = *sums;
                        *sums = [vpadalq_s16(a, low), vpadalq_s16(b, high)];
                    }
                }
            }
            for ((out, sums), &scale) in out.chunks_exact_mut(rows).zip(sums).zip(scales) {
                if let Some(place) = out.as_chunks_mut::<LANES>().0.get_mut(at) {
                    *place = finish.apply(store(sums.map(|[low, high]| vpaddq_s32(low, high))), scale);
                }
            }
        }
    }

    /// Products of two steps added up, for the lower and the upper two rows of a register. Two products of
    /// at most 128 * 127 fit 16 bits.
    #[target_feature(enable = "neon")]
    fn products(first: int8x16_t, now: int8x16_t, second: int8x16_t, next: int8x16_t) -> [int16x8_t; 2] {
        let low = vmull_s8(vget_low_s8(first), vget_low_s8(now));
        let high = vmull_s8(vget_high_s8(first), vget_high_s8(now));
        let low = vmlal_s8(low, vget_low_s8(second), vget_low_s8(next));
        [low, vmlal_s8(high, vget_high_s8(second), vget_high_s8(next))]
    }

    /// Four times the four bytes of a token. Flipping the highest bit takes the offset of 128 away.
    #[target_feature(enable = "neon")]
    fn spread(token: [u8; STEP]) -> int8x16_t {
        vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(token) ^ i32::from_ne_bytes([0x80; 4])))
    }

    /// Adds to each of four sums four products. The compiler offers the instruction to nightly builds only.
    #[target_feature(enable = "neon,dotprod")]
    fn add_dots(mut sum: int32x4_t, weights: int8x16_t, token: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction reads and writes the three named registers only; the function has its
        // feature.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {weights:v}.16b, {token:v}.16b",
                sum = inout(vreg) sum, weights = in(vreg) weights, token = in(vreg) token,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }

    #[target_feature(enable = "neon")]
    fn load(bytes: &[i8; STEP_BYTES]) -> [int8x16_t; QUARTERS] {
        let start = bytes.as_ptr();
        // SAFETY: the array has the 64 bytes of four registers; no alignment is asked for.
        unsafe {
            [vld1q_s8(start), vld1q_s8(start.add(16)), vld1q_s8(start.add(32)), vld1q_s8(start.add(48))]
        }
    }

    #[target_feature(enable = "neon")]
    fn store(registers: [int32x4_t; QUARTERS]) -> [i32; LANES] {
        let mut lanes = [0; LANES];
        let start = lanes.as_mut_ptr();
        let [a, b, c, d] = registers;
        // SAFETY: the array has the 64 bytes of four registers; no alignment is asked for.
        unsafe {
            vst1q_s32(start, a);
            vst1q_s32(start.add(4), b);
            vst1q_s32(start.add(8), c);
            vst1q_s32(start.add(12), d);
        }
        lanes
    }
}
