//! Seeded random draws: the same on every machine.

/// xorshift64* (Vigna 2016), started through splitmix64 so that neighbouring seeds are unrelated.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let x = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Dice((z ^ (z >> 31)) | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `0..below`; 0 where `below` is 0.
    pub fn below(&mut self, below: usize) -> usize {
        ((self.unit() * below as f64) as usize).min(below.saturating_sub(1))
    }

    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(u)) * libm::cos(2.0 * std::f64::consts::PI * v)
    }

    /// Student's t with three degrees of freedom.
    pub fn t3(&mut self) -> f64 {
        let chi2: f64 = (0..3).map(|_| self.normal()).map(|z| z * z).sum();
        self.normal() / libm::sqrt((chi2 / 3.0).max(1e-12))
    }
}
