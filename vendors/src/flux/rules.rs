//! What FLUX's models take, and what they cost: facts of the vendor's OpenAPI and skill text.

use crate::media::{self, Aspect, Grid};
use longhaul_registry::{Input, JobRequest, Problem};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The widest shape; the tallest is the same on its side.
const WIDEST: Aspect = Aspect { w: 21, h: 9 };

/// FLUX.2 sizes: a 16 grid from 64, at most 4 MP.
const FLUX_2_SIZES: Grid = Grid { step: 16, min: 64, max: None, max_pixels: Some(4_194_304) };

/// FLUX 1.1 pro and dev sizes: a 32 grid from 256 to 1440.
const FLUX_1_SIZES: Grid = Grid { step: 32, min: 256, max: Some(1440), max_pixels: None };

/// The size that an aspect alone asks for: the largest of that shape up to so many pixels.
const ASPECT_PIXELS: u64 = 1_048_576;

/// How a model takes its shape, its pictures and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `flux-2-*`.
    Flux2,
    /// `flux-pro-1.1` and `flux-dev`: width and height, no pictures.
    Sized,
    /// `flux-pro-1.1-ultra`: `aspect_ratio`, one `image_prompt`.
    Ultra,
    /// `flux-kontext-*`: `aspect_ratio`, four pictures.
    Kontext,
    /// `flux-pro-1.0-fill*`: a picture and a mask.
    Fill,
    /// `flux-pro-1.0-expand`: a picture and margins.
    Expand,
    /// A model that this reading does not know: only what holds for all.
    Other,
}

impl Family {
    /// The family of a model's name.
    pub(super) fn of(model: &str) -> Self {
        match model {
            _ if model.starts_with("flux-2-") => Self::Flux2,
            "flux-pro-1.1" | "flux-dev" => Self::Sized,
            _ if model.starts_with("flux-pro-1.1-ultra") => Self::Ultra,
            _ if model.starts_with("flux-kontext-") => Self::Kontext,
            _ if model.starts_with("flux-pro-1.0-fill") => Self::Fill,
            _ if model.starts_with("flux-pro-1.0-expand") => Self::Expand,
            _ => Self::Other,
        }
    }

    fn sizes(self) -> Option<Grid> {
        match self {
            Self::Flux2 => Some(FLUX_2_SIZES),
            Self::Sized => Some(FLUX_1_SIZES),
            Self::Ultra | Self::Kontext | Self::Fill | Self::Expand | Self::Other => None,
        }
    }

    /// The highest `safety_tolerance`.
    fn tolerance(self) -> u64 {
        if self == Self::Flux2 { 5 } else { 6 }
    }

    /// How many `reference` pictures a model takes, and the fields they go into.
    fn pictures(self, model: &str) -> (usize, &'static str) {
        match self {
            Self::Flux2 if model.starts_with("flux-2-klein-9b") => (5, "input_image"),
            Self::Flux2 if model.starts_with("flux-2-klein") => (4, "input_image"),
            Self::Flux2 => (8, "input_image"),
            Self::Kontext => (4, "input_image"),
            Self::Ultra => (1, "image_prompt"),
            Self::Fill | Self::Expand => (1, "image"),
            Self::Sized => (0, "input_image"),
            Self::Other => (10, "input_image"),
        }
    }

    /// Whether a job must bring a picture, or words.
    pub(super) fn edits(self) -> bool {
        matches!(self, Self::Fill | Self::Expand)
    }
}

/// The fields that carry the shape, and the size where it is known beforehand.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) fields: Vec<(&'static str, Value)>,
    pub(super) size: Option<(u32, u32)>,
}

/// Maps width, height and aspect.
pub(super) fn shape(family: Family, model: &str, request: &JobRequest, problems: &mut Vec<Problem>) -> Shape {
    let size = media::size(&request.media, problems);
    let aspect = media::aspect(&request.media, problems);
    media::agree(size, aspect, problems);
    if let Some(aspect) = aspect.filter(|aspect| !aspect.within(WIDEST)) {
        let message = format!("{aspect} is outside 21:9 to 9:21");
        problems.push(Problem::new("media.aspect", "out_of_range", message).allowed(json!(["21:9 to 9:21"])));
        return Shape::default();
    }
    match (family, family.sizes()) {
        (_, Some(grid)) => sized(&grid, model, size, aspect, problems),
        (Family::Ultra | Family::Kontext, None) => {
            if request.media.width.is_some() || request.media.height.is_some() {
                let message = format!("{model} takes a shape and no size; give media.aspect");
                problems.push(
                    Problem::new("media.width", "not_supported", message).allowed(json!({"aspect": "21:9 to 9:21"})),
                );
            }
            Shape { fields: ratio(aspect), size: None }
        }
        (Family::Fill | Family::Expand, None) => {
            if size.is_some() || aspect.is_some() {
                let message = format!("{model} keeps the picture's own size; leave width, height and aspect out");
                problems.push(Problem::new("media", "not_supported", message));
            }
            Shape::default()
        }
        (_, None) => match size {
            Some((w, h)) => Shape { fields: vec![("width", json!(w)), ("height", json!(h))], size },
            None => Shape { fields: ratio(aspect), size: None },
        },
    }
}

fn ratio(aspect: Option<Aspect>) -> Vec<(&'static str, Value)> {
    aspect.map(|aspect| vec![("aspect_ratio", json!(aspect.to_string()))]).unwrap_or_default()
}

fn sized(
    grid: &Grid,
    model: &str,
    size: Option<(u32, u32)>,
    aspect: Option<Aspect>,
    problems: &mut Vec<Problem>,
) -> Shape {
    let size = match (size, aspect) {
        (Some((w, h)), _) if !grid.holds(w, h) => {
            let message = format!("{model} makes no {w}x{h}; its sizes follow the rule in `allowed`");
            let path = if one_side(grid, w) { "media.height" } else { "media.width" };
            problems.push(Problem::new(path, "not_allowed", message).allowed(grid.allowed()));
            None
        }
        (Some(size), _) => Some(size),
        (None, Some(aspect)) => {
            let size = grid.size_for(aspect, ASPECT_PIXELS);
            if size.is_none() {
                let message =
                    format!("{model} has no size of exactly {aspect}; its sizes follow the rule in `allowed`");
                problems.push(Problem::new("media.aspect", "not_allowed", message).allowed(grid.allowed()));
            }
            size
        }
        (None, None) => None,
    };
    let fields = size.map(|(w, h)| vec![("width", json!(w)), ("height", json!(h))]).unwrap_or_default();
    Shape { fields, size }
}

fn one_side(grid: &Grid, side: u32) -> bool {
    let square = Grid { max_pixels: None, ..*grid };
    square.holds(side, side)
}

/// Maps the inputs to the fields they go into: `input_image`, `input_image_2`, …, `image`, `mask`.
pub(super) fn pictures(
    family: Family,
    model: &str,
    inputs: &[Input],
    problems: &mut Vec<Problem>,
) -> Vec<(String, usize)> {
    let (most, field) = family.pictures(model);
    let mut fields: Vec<(String, usize)> = Vec::new();
    let mut count = 0;
    for (index, input) in inputs.iter().enumerate() {
        let path = format!("inputs[{index}]");
        if input.url.is_none() && input.artifact.is_none() {
            let message = "a picture is given as url or artifact";
            problems.push(Problem::new(path.clone(), "wrong_type", message).allowed(json!(["url", "artifact"])));
        }
        match input.role.as_str() {
            "reference" => {
                count += 1;
                let name = if count == 1 { field.to_owned() } else { format!("{field}_{count}") };
                fields.push((name, index));
            }
            "mask" if family == Family::Fill => fields.push(("mask".to_owned(), index)),
            role => {
                let roles = if family == Family::Fill { json!(["reference", "mask"]) } else { json!(["reference"]) };
                let message = format!("{model} has no use for an input of role `{role}`");
                problems.push(Problem::new(format!("{path}.role"), "not_allowed", message).allowed(roles));
            }
        }
    }
    if count > most {
        let message = format!("{model} takes at most {most} reference pictures, not {count}");
        problems.push(Problem::new("inputs", "out_of_range", message).allowed(json!({"reference": most})));
    }
    if fields.iter().filter(|(name, _)| name == "mask").count() > 1 {
        problems.push(Problem::new("inputs", "out_of_range", format!("{model} takes one mask")));
    }
    if family.edits() && count == 0 {
        problems.push(Problem::new("inputs", "missing", format!("{model} works on a picture; give one reference")));
    }
    fields
}

/// Options that only some models read; elsewhere the vendor would ignore them in silence.
struct Reserved {
    names: &'static [&'static str],
    whose: &'static str,
    takes: fn(Family, &str) -> bool,
}

const RESERVED: [Reserved; 5] = [
    Reserved {
        names: &["guidance", "steps", "prompt_upsampling"],
        whose: "flux-2-flex and the FLUX.1 models",
        takes: |family, model| family != Family::Flux2 || model.starts_with("flux-2-flex"),
    },
    Reserved {
        names: &["raw", "image_prompt_strength"],
        whose: "flux-pro-1.1-ultra",
        takes: |family, _| matches!(family, Family::Ultra | Family::Other),
    },
    Reserved {
        names: &["transparent_bg"],
        whose: "the FLUX.2 models",
        takes: |family, _| matches!(family, Family::Flux2 | Family::Other),
    },
    Reserved {
        names: &["disable_pup"],
        whose: "flux-2-pro and flux-2-max",
        takes: |family, model| {
            family == Family::Other || model.starts_with("flux-2-pro") || model.starts_with("flux-2-max")
        },
    },
    Reserved {
        names: &["top", "bottom", "left", "right"],
        whose: "flux-pro-1.0-expand",
        takes: |family, _| matches!(family, Family::Expand | Family::Other),
    },
];

/// Checks the options that go to the vendor under their own names.
pub(super) fn options(family: Family, model: &str, request: &JobRequest, problems: &mut Vec<Problem>) {
    for Reserved { names, whose, takes } in RESERVED {
        for name in names.iter().filter(|name| request.vendor.contains_key(**name)) {
            if !takes(family, model) {
                let message = format!("{model} does not read `{name}`; it belongs to: {whose}");
                problems.push(Problem::new(format!("vendor.{name}"), "not_allowed", message).allowed(json!([whose])));
            }
        }
    }
    let limit = family.tolerance();
    if let Some(given) = request.vendor.get("safety_tolerance")
        && given.as_u64().is_none_or(|given| given > limit)
    {
        let message = format!("{model} takes a safety_tolerance of 0 to {limit}, not {given}");
        let allowed = json!({"min": 0, "max": limit});
        problems.push(Problem::new("vendor.safety_tolerance", "out_of_range", message).allowed(allowed));
    }
    let alpha = request.vendor.get("transparent_bg").and_then(Value::as_bool) == Some(true);
    if alpha && !matches!(request.media.format.as_deref(), Some("png" | "webp")) {
        let message = "a transparent background needs png or webp";
        problems.push(Problem::new("media.format", "conflict", message).allowed(json!(["png", "webp"])));
    }
}

/// What a picture is likely to cost, in credits (a credit is a US cent): FLUX.2 the first megapixel, then
/// each further one and each one given; FLUX.1 a picture. `None` where the page states no price.
pub(super) fn estimate(model: &str, size: Option<(u32, u32)>, pictures: usize) -> Option<Decimal> {
    /// Beginning of the model's name, first megapixel, each further or given megapixel; in thousandths.
    const FLUX_2: [(&str, i64, i64); 5] = [
        ("flux-2-pro", 3000, 1500),
        ("flux-2-max", 7000, 3000),
        ("flux-2-flex", 5000, 5000),
        ("flux-2-klein-4b", 1400, 100),
        ("flux-2-klein-9b", 1500, 200),
    ];
    let per_picture = match model {
        "flux-pro-1.1" | "flux-kontext-pro" => Some(4),
        "flux-pro-1.1-ultra" => Some(6),
        "flux-kontext-max" => Some(8),
        "flux-pro-1.0-fill" => Some(5),
        _ => None,
    };
    if let Some(credits) = per_picture {
        return Some(Decimal::from(credits));
    }
    let (_, first, further) = FLUX_2.into_iter().find(|(beginning, ..)| model.starts_with(beginning))?;
    let pixels = size.map_or(1_000_000, |(w, h)| u64::from(w) * u64::from(h));
    let megapixels = Decimal::from(pixels) / Decimal::from(1_000_000);
    let above = (megapixels - Decimal::ONE).max(Decimal::ZERO);
    // A given picture's size is not known here: one megapixel each is taken.
    let credits = Decimal::new(first, 3) + (above + Decimal::from(pictures)) * Decimal::new(further, 3);
    Some(credits.normalize())
}
