//! A pleasant picture derived from a few words: a sky, a sun or moon, and hills before it.
//!
//! Everything is a smooth function of the place, so any size can be painted and no size looks flat.

use ring::digest;

/// A picture that has not been drawn yet.
#[derive(Debug, Clone)]
pub(super) struct Painting {
    width: u32,
    height: u32,
    sky: [[f32; 3]; 2],
    sun: [f32; 3],
    sun_at: (f32, f32, f32),
    hills: [Hill; 3],
}

#[derive(Debug, Clone, Copy)]
struct Hill {
    colour: [f32; 3],
    base: f32,
    waves: [(f32, f32, f32); 3],
}

impl Painting {
    /// The picture that these words stand for; without any, a black one.
    pub(super) fn new(width: u32, height: u32, seed: Option<&str>) -> Self {
        let Some(seed) = seed else { return Self::black(width, height) };
        let mut dice = Dice::new(seed);
        let hue = dice.unit();
        let sky = [colour(hue, 0.55, 0.45 + 0.3 * dice.unit()), colour(hue + 0.08 + 0.1 * dice.unit(), 0.45, 0.95)];
        let sun = colour(hue + 0.45, 0.35, 1.0);
        let sun_at = (0.2 + 0.6 * dice.unit(), 0.18 + 0.25 * dice.unit(), 0.05 + 0.06 * dice.unit());
        let ground = hue + 0.3 + 0.3 * dice.unit();
        let mut hill = |depth: f32| Hill {
            colour: colour(ground, 0.25 + 0.3 * depth, 0.7 - 0.45 * depth),
            base: 0.55 + 0.16 * depth,
            waves: [
                (0.07, 2.0 + 3.0 * dice.unit(), 6.3 * dice.unit()),
                (0.03, 6.0 + 5.0 * dice.unit(), 6.3 * dice.unit()),
                (0.012, 15.0 + 9.0 * dice.unit(), 6.3 * dice.unit()),
            ],
        };
        let hills = [hill(0.0), hill(0.5), hill(1.0)];
        Self { width, height, sky, sun, sun_at, hills }
    }

    fn black(width: u32, height: u32) -> Self {
        let hill = Hill { colour: [0.0; 3], base: 2.0, waves: [(0.0, 0.0, 0.0); 3] };
        Self { width, height, sky: [[0.0; 3]; 2], sun: [0.0; 3], sun_at: (0.0, 0.0, 0.0), hills: [hill; 3] }
    }

    /// Width and height in pixels.
    pub(super) fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// The heights of the hills above one column, as fractions of the height from the top.
    fn ridges(&self, x: f32) -> [f32; 3] {
        self.hills.map(|hill| {
            hill.base - hill.waves.iter().map(|(size, rate, phase)| size * (rate * x + phase).sin()).sum::<f32>()
        })
    }

    fn at(&self, x: f32, y: f32, ridges: &[f32; 3]) -> [f32; 3] {
        for (hill, ridge) in self.hills.iter().zip(ridges).rev() {
            if y > *ridge {
                return mix(hill.colour, self.sky[1], 0.35 * (1.0 - (y - ridge)).clamp(0.0, 1.0).powi(6));
            }
        }
        let sky = mix(self.sky[0], self.sky[1], (y * 1.5).min(1.0));
        let wide = f64::from(self.width.max(1)) / f64::from(self.height.max(1));
        #[allow(clippy::cast_possible_truncation)]
        let wide = wide as f32;
        let (sx, sy, radius) = self.sun_at;
        let far = (((x - sx) * wide).powi(2) + (y - sy).powi(2)).sqrt();
        if far < radius { self.sun } else { mix(self.sun, sky, ((far - radius) * 3.5).clamp(0.0, 1.0).sqrt()) }
    }

    /// The colour of one place, both coordinates from 0 to 1.
    pub(super) fn colour_at(&self, x: f32, y: f32) -> [u8; 3] {
        bytes(self.at(x, y, &self.ridges(x)))
    }

    /// All pixels, row by row, as RGB.
    pub(super) fn rgb(&self) -> Vec<u8> {
        let columns: Vec<(f32, [f32; 3])> = (0..self.width)
            .map(|x| {
                let x = place(x, self.width);
                (x, self.ridges(x))
            })
            .collect();
        let mut out =
            Vec::with_capacity(usize::try_from(u64::from(self.width) * u64::from(self.height) * 3).unwrap_or(0));
        for row in 0..self.height {
            let y = place(row, self.height);
            for (x, ridges) in &columns {
                out.extend_from_slice(&bytes(self.at(*x, y, ridges)));
            }
        }
        out
    }
}

/// The middle of pixel `n` of `of`, from 0 to 1.
#[allow(clippy::cast_precision_loss)]
pub(super) fn place(n: u32, of: u32) -> f32 {
    (n as f32 + 0.5) / of.max(1) as f32
}

fn mix(a: [f32; 3], b: [f32; 3], t: f32) -> [f32; 3] {
    [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t]
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bytes(colour: [f32; 3]) -> [u8; 3] {
    colour.map(|part| (part.clamp(0.0, 1.0) * 255.0 + 0.5) as u8)
}

/// Hue, saturation and value to red, green and blue.
fn colour(hue: f32, saturation: f32, value: f32) -> [f32; 3] {
    let part = |n: f32| {
        let k = (n + hue.rem_euclid(1.0) * 6.0).rem_euclid(6.0);
        value - value * saturation * k.min(4.0 - k).clamp(0.0, 1.0)
    };
    [part(5.0), part(3.0), part(1.0)]
}

/// Numbers drawn from the hash of a text.
pub(super) struct Dice {
    seed: Vec<u8>,
    drawn: u32,
}

impl Dice {
    pub(super) fn new(seed: &str) -> Self {
        Self { seed: seed.as_bytes().to_vec(), drawn: 0 }
    }

    /// The next number, from 0 to 1.
    pub(super) fn unit(&mut self) -> f32 {
        let mut text = self.seed.clone();
        text.extend_from_slice(&self.drawn.to_be_bytes());
        self.drawn += 1;
        let hash = digest::digest(&digest::SHA256, &text);
        let two = hash.as_ref().first_chunk::<2>().copied().unwrap_or_default();
        f32::from(u16::from_be_bytes(two)) / f32::from(u16::MAX)
    }
}
