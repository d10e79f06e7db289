//! Checks on the media asked for that several modules share. Nothing is rounded or clamped.

use longhaul_registry::{MediaRequest, Problem};
use serde_json::{Value, json};
use std::fmt;

/// A shape: `W:H`, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aspect {
    /// Width.
    pub w: u32,
    /// Height.
    pub h: u32,
}

impl Aspect {
    /// Reads `W:H` as it is written, unreduced.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (w, h) = text.split_once(':')?;
        let side = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u32>().ok()).flatten().filter(|side| *side > 0)
        };
        Some(Self { w: side(w)?, h: side(h)? })
    }

    /// The same shape in lowest terms.
    #[must_use]
    pub fn reduced(self) -> Self {
        let divisor = gcd(self.w, self.h);
        Self { w: self.w / divisor, h: self.h / divisor }
    }

    /// Whether both are the same shape.
    #[must_use]
    pub fn same_shape(self, other: Self) -> bool {
        u64::from(self.w) * u64::from(other.h) == u64::from(self.h) * u64::from(other.w)
    }

    /// Whether it lies between `other` and `other` turned on its side.
    #[must_use]
    pub fn within(self, other: Self) -> bool {
        let long = u64::from(self.w.max(self.h)) * u64::from(other.w.min(other.h));
        long <= u64::from(self.w.min(self.h)) * u64::from(other.w.max(other.h))
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.w, self.h)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// The sizes that a model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Both sides are multiples of this.
    pub step: u32,
    /// Smallest side.
    pub min: u32,
    /// Largest side, where there is one.
    pub max: Option<u32>,
    /// Most pixels, where there is a cap.
    pub max_pixels: Option<u64>,
}

impl Grid {
    /// Whether a size is one of them.
    #[must_use]
    pub fn holds(&self, width: u32, height: u32) -> bool {
        let side =
            |side: u32| side >= self.min && self.max.is_none_or(|max| side <= max) && side.is_multiple_of(self.step);
        let pixels = u64::from(width) * u64::from(height);
        side(width) && side(height) && self.max_pixels.is_none_or(|max| pixels <= max)
    }

    /// The size of exactly this shape: the largest up to `pixels`, else the smallest there is.
    #[must_use]
    pub fn size_for(&self, aspect: Aspect, pixels: u64) -> Option<(u32, u32)> {
        let unit = aspect.reduced();
        let sizes = || {
            (1..=4096u32).map_while(|k| {
                let width = unit.w.checked_mul(self.step)?.checked_mul(k)?;
                Some((width, unit.h.checked_mul(self.step)?.checked_mul(k)?))
            })
        };
        let fits = |size: &(u32, u32)| self.holds(size.0, size.1);
        let small = |size: &(u32, u32)| u64::from(size.0) * u64::from(size.1) <= pixels;
        sizes().take_while(small).filter(fits).last().or_else(|| sizes().find(fits))
    }

    /// The rule, for a problem's `allowed`.
    #[must_use]
    pub fn allowed(&self) -> Value {
        let mut rule = json!({"multiple_of": self.step, "min": self.min});
        if let Some(max) = self.max {
            rule["max"] = json!(max);
        }
        if let Some(max) = self.max_pixels {
            rule["max_pixels"] = json!(max);
        }
        rule
    }
}

/// Reads `media.aspect`; an unreadable one is a problem.
pub fn aspect(media: &MediaRequest, problems: &mut Vec<Problem>) -> Option<Aspect> {
    let text = media.aspect.as_deref()?;
    let aspect = Aspect::parse(text);
    if aspect.is_none() {
        problems.push(
            Problem::new("media.aspect", "not_allowed", format!("`{text}` is not a shape; write it as W:H"))
                .allowed(json!(["W:H"])),
        );
    }
    aspect
}

/// `media.width` and `media.height` together; one alone is a problem.
pub fn size(media: &MediaRequest, problems: &mut Vec<Problem>) -> Option<(u32, u32)> {
    match (media.width, media.height) {
        (Some(width), Some(height)) => Some((width, height)),
        (None, None) => None,
        (width, _) => {
            let path = if width.is_some() { "media.height" } else { "media.width" };
            problems.push(Problem::new(path, "missing", "width and height go together; give both or an aspect"));
            None
        }
    }
}

/// A size and an aspect that contradict each other are a problem.
pub fn agree(size: Option<(u32, u32)>, aspect: Option<Aspect>, problems: &mut Vec<Problem>) {
    if let (Some((w, h)), Some(aspect)) = (size, aspect)
        && (w == 0 || h == 0 || !aspect.same_shape(Aspect { w, h }))
    {
        let message = format!("{w}x{h} is not {aspect}; give a size or an aspect, or make them agree");
        problems.push(Problem::new("media.aspect", "conflict", message));
    }
}

/// A vendor that makes one output a call refuses any other count.
pub fn one_output(media: &MediaRequest, vendor: &str, problems: &mut Vec<Problem>) {
    if let Some(count) = media.count.filter(|count| *count != 1) {
        let message = format!("{vendor} makes one output a job, not {count}; submit a batch of jobs instead");
        problems.push(Problem::new("media.count", "out_of_range", message).allowed(json!([1])));
    }
}

/// A seed above the vendor's range is refused with the range, never cut.
pub fn seed_up_to(media: &MediaRequest, max: u64, vendor: &str, problems: &mut Vec<Problem>) {
    if let Some(seed) = media.seed.filter(|seed| *seed > max) {
        let message = format!("{vendor} takes a seed of 0 to {max}, not {seed}");
        let allowed = json!({"min": 0, "max": max});
        problems.push(Problem::new("media.seed", "out_of_range", message).allowed(allowed));
    }
}

/// Every field of `media` that stands and is not in `taken` is a problem: the vendor has no such wish.
pub fn only(media: &MediaRequest, taken: &[&str], vendor: &str, problems: &mut Vec<Problem>) {
    let given = [
        ("format", media.format.is_some()),
        ("width", media.width.is_some()),
        ("height", media.height.is_some()),
        ("aspect", media.aspect.is_some()),
        ("duration_ms", media.duration_ms.is_some()),
        ("fps", media.fps.is_some()),
        ("sample_rate", media.sample_rate.is_some()),
        ("channels", media.channels.is_some()),
        ("count", media.count.is_some()),
        ("seed", media.seed.is_some()),
        ("voice", media.voice.is_some()),
        ("language", media.language.is_some()),
    ];
    for (field, given) in given {
        if given && !taken.contains(&field) {
            let message = format!("{vendor} cannot be asked for `{field}`; leave it out");
            problems.push(Problem::new(format!("media.{field}"), "not_supported", message).allowed(json!(taken)));
        }
    }
}

/// Milliseconds as whole seconds, or `None` where they are not whole.
#[must_use]
pub fn whole_seconds(milliseconds: u64) -> Option<u64> {
    milliseconds.is_multiple_of(1000).then_some(milliseconds / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_compared_exactly() {
        let parse = |text| Aspect::parse(text).unwrap();
        assert_eq!(parse("1920:1080").reduced(), Aspect { w: 16, h: 9 });
        for bad in ["", "16", "16:0", "16:9:1", "a:b", "-1:2", "+1:2", " 16:9", "99999999999:1"] {
            assert_eq!(Aspect::parse(bad), None, "{bad}");
        }
        assert!(parse("16:9").same_shape(parse("1536:864")));
        let widest = parse("21:9");
        for (shape, within) in
            [("21:9", true), ("9:21", true), ("7:3", true), ("1:1", true), ("22:9", false), ("1:3", false)]
        {
            assert_eq!(parse(shape).within(widest), within, "{shape}");
        }
    }

    #[test]
    fn a_size_of_a_shape_lies_on_the_grid_or_is_refused() {
        let grid = Grid { step: 16, min: 64, max: None, max_pixels: Some(4_194_304) };
        let size = |text| grid.size_for(Aspect::parse(text).unwrap(), 1 << 20);
        assert_eq!(size("1:1"), Some((1024, 1024)));
        assert_eq!(size("16:9"), Some((1280, 720)));
        assert_eq!(size("21:9"), Some((1456, 624)));
        assert_eq!(size("101:100"), Some((1616, 1600)));
        assert_eq!(size("999:1000"), None);
        assert!(grid.holds(64, 64) && grid.holds(2048, 2048));
        assert!(!grid.holds(2064, 2048) && !grid.holds(48, 64) && !grid.holds(1000, 1000));
    }
}
