//! The encoder against a plain one in 64-bit floats that rounds nothing, on the synthetic model.

use super::super::image::Image;
use super::super::kernels::PORTABLE;
use super::super::simd::available;
use super::super::source::Source;
use super::super::weights::unpack;
use super::synthetic::{HEADS, HIDDEN, INNER, LAYERS, PIECES, POSITIONS, Random, file, open};
use crate::embed::{Embedder as _, Role};

struct Plain(Image);

impl Plain {
    fn floats(&self, name: &str, len: usize) -> Vec<f64> {
        self.0.floats(name, len).unwrap().into_iter().map(f64::from).collect()
    }

    fn packed(&self, name: &str, len: usize) -> Vec<f64> {
        let mut out = vec![0.0; len];
        unpack(&self.0.blocks(name, len).unwrap(), &mut out).unwrap();
        out.into_iter().map(f64::from).collect()
    }

    fn linear(&self, name: &str, x: &[Vec<f64>], outputs: usize) -> Vec<Vec<f64>> {
        let inputs = x[0].len();
        let weights = self.packed(&format!("{name}.w"), outputs * inputs);
        let bias = self.floats(&format!("{name}.b"), outputs);
        let row =
            |x: &[f64], r: usize| bias[r] + (0..inputs).map(|k| weights[r * inputs + k] * x[k]).sum::<f64>();
        x.iter().map(|x| (0..outputs).map(|r| row(x, r)).collect()).collect()
    }

    fn norm(&self, name: &str, x: &mut [Vec<f64>]) {
        let (weight, bias) =
            (self.floats(&format!("{name}.w"), HIDDEN), self.floats(&format!("{name}.b"), HIDDEN));
        for x in x {
            let mean = x.iter().sum::<f64>() / 32.0;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 32.0;
            for d in 0..HIDDEN {
                x[d] = (x[d] - mean) / (variance + 1e-12).sqrt() * weight[d] + bias[d];
            }
        }
    }

    /// The mean token vector.
    fn encode(&self, ids: &[u32]) -> Vec<f64> {
        let words = self.packed("emb.word", PIECES.len() * HIDDEN);
        let positions = self.floats("emb.pos", POSITIONS * HIDDEN);
        let types = self.floats("emb.type", 2 * HIDDEN);
        let embed = |(at, id): (usize, &u32)| -> Vec<f64> {
            (0..HIDDEN)
                .map(|d| words[*id as usize * HIDDEN + d] + positions[at * HIDDEN + d] + types[d])
                .collect()
        };
        let mut x: Vec<Vec<f64>> = ids.iter().enumerate().map(embed).collect();
        self.norm("emb.ln", &mut x);
        for layer in 0..LAYERS {
            let [q, k, v] = ["q", "k", "v"].map(|part| self.linear(&format!("l{layer}.{part}"), &x, HIDDEN));
            let mixed = attention(&q, &k, &v);
            add(&mut x, &self.linear(&format!("l{layer}.ao"), &mixed, HIDDEN));
            self.norm(&format!("l{layer}.aln"), &mut x);
            let mut wide = self.linear(&format!("l{layer}.fi"), &x, INNER);
            wide.iter_mut().flatten().for_each(|x| *x = gelu(*x));
            add(&mut x, &self.linear(&format!("l{layer}.fo"), &wide, HIDDEN));
            self.norm(&format!("l{layer}.oln"), &mut x);
        }
        (0..HIDDEN).map(|d| x.iter().map(|x| x[d]).sum::<f64>() / x.len() as f64).collect()
    }
}

fn attention(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let head = HIDDEN / HEADS;
    let one = |q: &Vec<f64>, d: usize| {
        let first = d / head * head;
        let product = |k: &Vec<f64>| (first..first + head).map(|d| q[d] * k[d]).sum::<f64>();
        let weights: Vec<f64> = k.iter().map(|k| (product(k) / 4.0).exp()).collect();
        weights.iter().zip(v).map(|(weight, v)| weight * v[d]).sum::<f64>() / weights.iter().sum::<f64>()
    };
    q.iter().map(|q| (0..HIDDEN).map(|d| one(q, d)).collect()).collect()
}

fn add(x: &mut [Vec<f64>], y: &[Vec<f64>]) {
    for (x, y) in x.iter_mut().flatten().zip(y.iter().flatten()) {
        *x += y;
    }
}

/// The error function by its series, exact enough for arguments of this size.
fn gelu(x: f64) -> f64 {
    let z = (x / std::f64::consts::SQRT_2).clamp(-4.0, 4.0);
    let (mut term, mut sum) = (z, z);
    for n in 1..90 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    x * 0.5 * (1.0 + sum * 2.0 / std::f64::consts::PI.sqrt())
}

#[test]
fn the_encoder_agrees_with_a_plain_one_that_rounds_nothing() {
    let plain = Plain(Image::read(Source::Memory(file())).unwrap());
    let model = open(file(), PORTABLE).unwrap();
    let mut random = Random(11);
    for n_tokens in [1, 2, 7, 15, 16] {
        let ids: Vec<u32> =
            (0..n_tokens).map(|_| u32::try_from(random.below(PIECES.len())).unwrap()).collect();
        let exact = plain.encode(&ids);
        let found = model.encoder.encode(&[&ids]).unwrap().remove(0);
        let product: f64 = exact.iter().zip(&found).map(|(a, b)| a * f64::from(*b)).sum();
        let lengths =
            exact.iter().map(|a| a * a).sum::<f64>() * found.iter().map(|b| f64::from(b * b)).sum::<f64>();
        let cosine = product / lengths.sqrt();
        assert!(cosine > 0.999, "{n_tokens} tokens: cosine {cosine}");
    }
}

#[test]
fn a_vector_does_not_depend_on_its_neighbours_nor_on_the_instructions() {
    let texts = ["ab c", "日本", "", "a b a b a b a b a b a b a b a b", "ab c"];
    let reference = open(file(), PORTABLE).unwrap();
    let alone: Vec<_> = texts.map(|text| reference.embed(Role::Query, &[text]).unwrap().remove(0)).to_vec();
    for form in available() {
        let together = open(file(), form).unwrap().embed(Role::Query, &texts).unwrap();
        assert_eq!(together, alone, "{}", form.name);
    }
    assert_ne!(reference.embed(Role::Passage, &texts[..1]).unwrap()[0], alone[0]);
}

#[test]
fn more_texts_than_a_batch_holds_come_back_in_order() {
    let model = open(file(), PORTABLE).unwrap();
    let texts: Vec<String> = (0..90).map(|n| "ab x ".repeat(n % 7)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = model.embed(Role::Passage, &texts).unwrap();
    assert_eq!(together.len(), 90);
    for (text, embedding) in texts.iter().zip(&together) {
        assert_eq!(&model.embed(Role::Passage, &[text]).unwrap()[0], embedding);
    }
    assert!(model.embed(Role::Passage, &[]).unwrap().is_empty());
}
