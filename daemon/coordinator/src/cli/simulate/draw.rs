//! Random draws that any implementation gets the same: splitmix64, folded over integers.

pub fn sm(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub fn fold(seed: u64, values: &[u64]) -> u64 {
    values.iter().fold(sm(seed), |h, v| sm(h ^ v))
}

pub fn unif(h: u64) -> f64 {
    (h >> 11) as f64 / (1u64 << 53) as f64
}

pub fn normal(h: u64) -> f64 {
    let u1 = ((sm(h ^ 1) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let u2 = (sm(h ^ 2) >> 11) as f64 / (1u64 << 53) as f64;
    (-2.0 * u1.ln()).sqrt() * (2.0 * std::f64::consts::PI * u2).cos()
}

pub const RUN: u64 = 1;
pub const BOOT_MODE: u64 = 2;
pub const OUTLIER: u64 = 3;
pub const FLAKE: u64 = 4;
pub const BUILD: u64 = 5;
pub const GRAPH: u64 = 6;
