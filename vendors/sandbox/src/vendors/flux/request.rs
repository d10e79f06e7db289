//! What each FLUX model accepts, and what it costs.

use axum::response::Response;
use serde_json::{Map, Value};

use crate::media::Kind;
use crate::vendors::fields::Fields;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `width` and `height` up to four megapixels, reference images.
    Two,
    /// `width` and `height` from 256 to 1440 in steps of 32.
    Grid,
    /// `aspect_ratio`.
    Ratio,
    /// `image` and `mask`.
    Fill,
    /// `image` and how far to expand it.
    Expand,
}

/// One model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    name: &'static str,
    shape: Shape,
    /// Credits of the first megapixel, or of the image, in thousandths.
    first: i64,
    /// Credits of each further megapixel, in thousandths.
    per_mp: i64,
    /// Reference images taken.
    references: usize,
    /// Highest `safety_tolerance`.
    tolerance: i64,
}

const fn model(name: &'static str, shape: Shape, first: i64, per_mp: i64, references: usize) -> Model {
    let tolerance = match shape {
        Shape::Two => 5,
        Shape::Grid | Shape::Ratio | Shape::Fill | Shape::Expand => 6,
    };
    Model { name, shape, first, per_mp, references, tolerance }
}

const MODELS: [Model; 15] = [
    model("flux-2-pro", Shape::Two, 3000, 1500, 8),
    model("flux-2-pro-preview", Shape::Two, 3000, 1500, 8),
    model("flux-2-max", Shape::Two, 7000, 3000, 8),
    model("flux-2-flex", Shape::Two, 5000, 5000, 8),
    model("flux-2-klein-4b", Shape::Two, 1400, 100, 4),
    model("flux-2-klein-9b", Shape::Two, 1500, 200, 5),
    model("flux-2-klein-9b-preview", Shape::Two, 1500, 200, 5),
    model("flux-pro-1.1", Shape::Grid, 4000, 0, 0),
    model("flux-dev", Shape::Grid, 2500, 0, 0),
    model("flux-pro-1.1-ultra", Shape::Ratio, 6000, 0, 0),
    model("flux-kontext-pro", Shape::Ratio, 4000, 0, 4),
    model("flux-kontext-max", Shape::Ratio, 8000, 0, 4),
    model("flux-pro-1.0-fill", Shape::Fill, 5000, 0, 0),
    model("flux-pro-1.0-expand", Shape::Expand, 5000, 0, 0),
    model("flux-pro-1.0-fill-finetuned", Shape::Fill, 5000, 0, 0),
];

const REFERENCES: [&str; 8] = [
    "input_image",
    "input_image_2",
    "input_image_3",
    "input_image_4",
    "input_image_5",
    "input_image_6",
    "input_image_7",
    "input_image_8",
];

/// The model of a path.
pub(super) fn find(name: &str) -> Option<Model> {
    MODELS.into_iter().find(|model| model.name == name)
}

/// A request that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) prompt: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) kind: Kind,
    pub(super) seed: Option<i64>,
    pub(super) webhook: Option<String>,
    pub(super) references: usize,
}

impl Model {
    /// Reads the body as strictly as the vendor does.
    pub(super) fn read(self, map: &Map<String, Value>) -> Result<Asked, Box<Response>> {
        let mut fields = Fields::new("body", map);
        let prompt = match self.shape {
            Shape::Fill | Shape::Expand => fields.text("prompt").unwrap_or_default(),
            Shape::Two | Shape::Grid | Shape::Ratio => fields.required_text("prompt"),
        }
        .to_owned();
        let seed = fields.integer("seed", i64::MIN, i64::MAX);
        fields.integer("safety_tolerance", 0, self.tolerance);
        let format = fields.choice("output_format", &["jpeg", "png", "webp"]);
        let webhook = fields.text("webhook_url").map(str::to_owned);
        if webhook.as_ref().is_some_and(|url| url.len() > 2083 || !url.starts_with("http")) {
            fields.refuse("webhook_url", "Input should be a URL of at most 2083 characters");
        }
        fields.text("webhook_secret");
        let (width, height) = match self.shape {
            // A published client sends a ratio beside the sizes to every model; where sizes rule it counts for nothing.
            Shape::Two | Shape::Grid if fields.text("aspect_ratio").is_some_and(|text| ratio_size(text).is_none()) => {
                fields.refuse("aspect_ratio", "aspect ratio should be between 21:9 and 9:21");
                (1024, 1024)
            }
            Shape::Two => self.two(&mut fields),
            Shape::Grid => grid(&mut fields),
            Shape::Ratio => self.ratio(&mut fields),
            Shape::Fill | Shape::Expand => edit(&mut fields, self.shape == Shape::Expand),
        };
        let mut references = 0;
        for name in REFERENCES.into_iter().take(self.references) {
            references += usize::from(fields.text(name).is_some());
        }
        fields.finish()?;
        let default = if self.name.starts_with("flux-kontext") { Kind::Png } else { Kind::Jpeg };
        let kind = match format {
            Some("png") => Kind::Png,
            Some("webp") => Kind::Webp,
            Some(_) => Kind::Jpeg,
            None => default,
        };
        Ok(Asked { prompt, width, height, kind, seed, webhook, references })
    }

    fn two(self, fields: &mut Fields<'_>) -> (u32, u32) {
        let width = side(fields, "width", 64, 1024);
        let height = side(fields, "height", 64, 1024);
        if u64::from(width) * u64::from(height) > 4_194_304 {
            fields.refuse("width", "width * height should be at most 4194304");
        }
        if !width.is_multiple_of(16) || !height.is_multiple_of(16) {
            fields.refuse("width", "width and height should be multiples of 16");
        }
        match self.name {
            "flux-2-flex" => {
                fields.flag("prompt_upsampling");
                fields.number("guidance", 1.5, 10.0);
                fields.integer("steps", 1, 50);
            }
            "flux-2-pro" | "flux-2-pro-preview" | "flux-2-max" => {
                fields.flag("disable_pup");
            }
            _ => {}
        }
        fields.flag("transparent_bg");
        (width, height)
    }

    fn ratio(self, fields: &mut Fields<'_>) -> (u32, u32) {
        let square = (1024, 1024);
        let size = match fields.text("aspect_ratio").map(|text| (text, ratio_size(text))) {
            None => square,
            Some((_, Some(size))) => size,
            Some(_) => {
                fields.refuse("aspect_ratio", "aspect ratio should be between 21:9 and 9:21");
                square
            }
        };
        fields.flag("prompt_upsampling");
        if self.name.ends_with("ultra") {
            fields.flag("raw");
            fields.text("image_prompt");
            fields.number("image_prompt_strength", 0.0, 1.0);
        }
        size
    }

    /// Megapixels out and in, in hundredths, and the price in tenths of a credit.
    pub(super) fn price(self, asked: &Asked) -> (i64, i64, i64) {
        let pixels = i64::from(asked.width) * i64::from(asked.height);
        let out = (pixels + 5_000) / 10_000;
        let input = i64::try_from(asked.references).unwrap_or(0) * 100;
        let thousandths = self.first + ((out - 100).max(0) + input) * self.per_mp / 100;
        (out, input, (thousandths + 50) / 100)
    }
}

/// One side in pixels; 0 and absent both leave it to the model.
fn side(fields: &mut Fields<'_>, name: &'static str, least: i64, own: u32) -> u32 {
    let asked = fields.integer(name, 0, 1_000_000).unwrap_or(0);
    if asked == 0 {
        return own;
    }
    if asked < least {
        fields.refuse(name, &format!("Input should be greater than or equal to {least}"));
    }
    u32::try_from(asked).unwrap_or(own)
}

fn grid(fields: &mut Fields<'_>) -> (u32, u32) {
    let mut one = |name, own: u32| {
        let side = fields.integer(name, 256, 1440).unwrap_or(i64::from(own));
        if side % 32 != 0 {
            fields.refuse(name, "Input should be a multiple of 32");
        }
        u32::try_from(side).unwrap_or(own)
    };
    let size = (one("width", 1024), one("height", 768));
    fields.flag("prompt_upsampling");
    fields.text("image_prompt");
    size
}

fn edit(fields: &mut Fields<'_>, expand: bool) -> (u32, u32) {
    fields.required_text("image");
    fields.integer("steps", 15, 50);
    fields.flag("prompt_upsampling");
    fields.number("guidance", 1.5, 100.0);
    if !expand {
        fields.text("mask");
        fields.text("finetune_id");
        fields.number("finetune_strength", 0.0, 2.0);
        return (1024, 1024);
    }
    let mut far = |name| u32::try_from(fields.integer(name, 0, 2048).unwrap_or(0)).unwrap_or(0);
    let (up, down, left, right) = (far("top"), far("bottom"), far("left"), far("right"));
    let even = |n: u32| n + n % 2;
    (even(1024 + left + right), even(1024 + up + down))
}

/// About one megapixel of a ratio, on the grid of 16.
fn ratio_size(text: &str) -> Option<(u32, u32)> {
    let (wide, high) = text.split_once(':')?;
    let (wide, high): (u32, u32) = (wide.parse().ok()?, high.parse().ok()?);
    if wide == 0 || high == 0 || wide > 1000 || high > 1000 || wide * 9 > high * 21 || high * 9 > wide * 21 {
        return None;
    }
    let side = |a: u32, b: u32| -> u32 {
        let ideal = (1_048_576.0 * f64::from(a) / f64::from(b)).sqrt();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let steps = (ideal / 16.0).round() as u32;
        steps * 16
    };
    Some((side(wide, high), side(high, wide)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(model: &str, body: Value) -> Result<Asked, Box<Response>> {
        find(model).unwrap().read(body.as_object().unwrap())
    }

    #[test]
    fn the_worked_example_costs_what_it_says() {
        let body =
            json!({"prompt": "brass telescope", "width": 1536, "height": 864, "seed": 7, "output_format": "png"});
        let asked = asked("flux-2-pro", body).unwrap();
        assert_eq!((asked.width, asked.height, asked.kind, asked.seed), (1536, 864, Kind::Png, Some(7)));
        // "cost": 3.5, "output_mp": 1.33, "input_mp": 0.0
        assert_eq!(find("flux-2-pro").unwrap().price(&asked), (133, 0, 35));
    }

    #[test]
    fn what_a_model_cannot_make_is_refused() {
        let wrong = [
            ("flux-2-pro", json!({"width": 512})),
            ("flux-2-pro", json!({"prompt": "x", "width": 4096, "height": 2048})),
            ("flux-2-pro", json!({"prompt": "x", "width": 48, "height": 64})),
            ("flux-2-pro", json!({"prompt": "x", "safety_tolerance": 6})),
            ("flux-2-pro", json!({"prompt": "x", "steps": 20})),
            ("flux-2-pro", json!({"prompt": "x", "output_format": "gif"})),
            ("flux-2-klein-4b", json!({"prompt": "x", "input_image_5": "https://example.com/a.png"})),
            ("flux-pro-1.1", json!({"prompt": "x", "width": 1450, "height": 768})),
            ("flux-pro-1.1", json!({"prompt": "x", "width": 272, "height": 768})),
            ("flux-pro-1.1-ultra", json!({"prompt": "x", "aspect_ratio": "22:9"})),
            ("flux-pro-1.1-ultra", json!({"prompt": "x", "width": 1024})),
        ];
        for (model, body) in wrong {
            assert_eq!(asked(model, body.clone()).unwrap_err().status(), 422, "{model} {body}");
        }
        assert!(find("flux-kontext").is_none(), "a path that the vendor's spec does not have");
    }

    #[test]
    fn ratios_end_at_21_to_9() {
        assert_eq!(ratio_size("1:1"), Some((1024, 1024)));
        assert!(ratio_size("21:9").is_some() && ratio_size("9:21").is_some());
        assert_eq!(ratio_size("22:9"), None);
        assert_eq!(ratio_size("0:1"), None);
    }
}
