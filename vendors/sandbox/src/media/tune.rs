//! Something that sounds a little like speech: syllables of changing pitch, with pauses between words.

use super::paint::Dice;

/// Syllables before the tune repeats.
const SYLLABLES: usize = 32;
/// Length of a syllable in milliseconds.
const SYLLABLE_MS: f64 = 190.0;

/// A tune; none is silence.
#[derive(Debug, Clone)]
pub(super) struct Tune {
    /// Pitch in Hz and loudness from 0 to 1 of each syllable.
    syllables: Vec<(f32, f32)>,
}

impl Tune {
    /// The tune that these words stand for.
    pub(super) fn new(seed: Option<&str>) -> Self {
        let Some(seed) = seed else { return Self { syllables: Vec::new() } };
        let mut dice = Dice::new(seed);
        let voice = 120.0 + 110.0 * dice.unit();
        let syllable = |n: usize| {
            let pause = n % 4 == 3 && dice.unit() > 0.4;
            let pitch = voice * (0.85 + 0.4 * dice.unit());
            (pitch, if pause { 0.0 } else { 0.6 + 0.4 * dice.unit() })
        };
        Self { syllables: (0..SYLLABLES).map(syllable).collect() }
    }

    /// Pitch and loudness at a time in milliseconds.
    pub(super) fn at(&self, ms: f64) -> (f32, f32) {
        let along = ms / SYLLABLE_MS;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (number, within) = (along as usize % SYLLABLES, along.fract() as f32);
        let Some((pitch, loud)) = self.syllables.get(number) else { return (0.0, 0.0) };
        // Quick rise, slow fall.
        let shape = (within / 0.15).min(1.0) * ((1.0 - within) / 0.5).min(1.0);
        (pitch * (1.05 - 0.1 * within), loud * shape)
    }
}
