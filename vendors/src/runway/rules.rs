//! What Runway's models take, and what a second costs: facts of the vendor's SDK (PyPI runwayml 5.24.0) and
//! price material. A model that is not listed here goes through with the checks that hold for all.

use crate::media::{self, Aspect};
use longhaul_registry::{JobRequest, Problem};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// Longest prompt of the listed models, in UTF-16 code units.
const PROMPT_UNITS: usize = 1000;

/// Ratios of gen4.5 and gen4_turbo from a picture, each with the shape it is known by.
const GEN4_RATIOS: [(&str, &str); 6] = [
    ("1280:720", "16:9"),
    ("720:1280", "9:16"),
    ("1104:832", "4:3"),
    ("832:1104", "3:4"),
    ("960:960", "1:1"),
    ("1584:672", "21:9"),
];

/// Ratios of veo3.1; the first of a shape is taken where only the shape is asked for.
const VEO_RATIOS: [(&str, &str); 4] =
    [("1280:720", "16:9"), ("720:1280", "9:16"), ("1080:1920", "9:16"), ("1920:1080", "16:9")];

/// Which seconds a model makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seconds {
    /// From, to, and what is sent where the job does not say.
    Range(u64, u64, u64),
    /// One of these; the vendor chooses where the job does not say.
    OneOf(&'static [u64]),
    /// Not known here.
    Open,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Ratios from words alone; empty where the model needs a picture.
    from_text: &'static [(&'static str, &'static str)],
    /// Ratios from a picture.
    from_image: &'static [(&'static str, &'static str)],
    /// Lengths.
    pub(super) seconds: Seconds,
    /// It takes a last frame.
    last_frame: bool,
    /// It takes a prompt of its own length limit.
    limited_prompt: bool,
    /// Words are needed although a picture is there.
    prompt_with_image: bool,
    /// Credits a second without and with sound.
    rate: Option<(u32, u32)>,
    /// It takes `outputFormat`.
    packs: bool,
    /// Options it reads under their own names; an open model may read any.
    options: &'static [&'static str],
    /// It is none of the listed.
    pub(super) open: bool,
}

impl Model {
    /// The rules of a model's name.
    pub(super) fn of(name: &str) -> Self {
        let (from_text, _) = GEN4_RATIOS.split_at(2);
        let gen4 = Self {
            from_text,
            from_image: &GEN4_RATIOS,
            seconds: Seconds::Range(2, 10, 5),
            last_frame: false,
            limited_prompt: true,
            prompt_with_image: true,
            rate: Some((12, 12)),
            packs: true,
            options: &["contentModeration", "outputFormat", "proresProfile"],
            open: false,
        };
        let veo = Self {
            from_text: &VEO_RATIOS,
            from_image: &VEO_RATIOS,
            seconds: Seconds::OneOf(&[4, 6, 8]),
            last_frame: true,
            prompt_with_image: false,
            rate: Some((20, 40)),
            packs: false,
            options: &["audio", "negativePrompt"],
            ..gen4
        };
        match name {
            "gen4.5" => gen4,
            "gen4_turbo" => Self {
                from_text: &[],
                prompt_with_image: false,
                rate: Some((5, 5)),
                packs: false,
                options: &["contentModeration"],
                ..gen4
            },
            "veo3.1" => veo,
            "veo3.1_fast" => Self { rate: Some((10, 15)), ..veo },
            _ => Self {
                from_text: &[],
                from_image: &[],
                seconds: Seconds::Open,
                last_frame: true,
                limited_prompt: false,
                prompt_with_image: false,
                rate: (name == "seedance2").then_some((36, 36)),
                packs: true,
                options: &[],
                open: true,
            },
        }
    }
}

/// Maps the pictures to `promptImage`: one address, or a list where a last frame stands in it.
pub(super) fn prompt_image(
    name: &str,
    model: &Model,
    request: &JobRequest,
    problems: &mut Vec<Problem>,
) -> Option<Value> {
    let mut first = None;
    let mut last = None;
    for (index, input) in request.inputs.iter().enumerate() {
        let path = format!("inputs[{index}]");
        if input.url.is_none() && input.artifact.is_none() {
            let message = "a picture is given as url or artifact";
            problems.push(Problem::new(path.clone(), "wrong_type", message).allowed(json!(["url", "artifact"])));
        }
        let place = match input.role.as_str() {
            "first_frame" | "reference" => &mut first,
            "last_frame" if model.last_frame => &mut last,
            role => {
                let roles = if model.last_frame {
                    vec!["first_frame", "last_frame", "reference"]
                } else {
                    vec!["first_frame", "reference"]
                };
                let message = format!("{name} has no use for an input of role `{role}`");
                problems.push(Problem::new(format!("{path}.role"), "not_allowed", message).allowed(json!(roles)));
                continue;
            }
        };
        if place.replace(index).is_some() {
            let message = format!("{name} takes one first and one last frame; this is another `{}`", input.role);
            problems
                .push(Problem::new(path, "out_of_range", message).allowed(json!({"first_frame": 1, "last_frame": 1})));
        }
    }
    let frame = |index: usize, position: &str| json!({"uri": crate::inputs::placeholder(index), "position": position});
    match (first, last) {
        (None, None) => None,
        (Some(first), None) => Some(crate::inputs::placeholder(first)),
        (first, Some(last)) => {
            let first = first.map(|first| frame(first, "first"));
            Some(Value::Array(first.into_iter().chain([frame(last, "last")]).collect()))
        }
    }
}

/// Maps width, height and aspect to `ratio`; `None` leaves the choice to the vendor.
pub(super) fn ratio(
    name: &str,
    model: &Model,
    from_image: bool,
    request: &JobRequest,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let size = media::size(&request.media, problems);
    let aspect = media::aspect(&request.media, problems);
    // A model's ratio may be known by a shape that its pixels meet only nearly, so listed models compare names.
    if model.open {
        media::agree(size, aspect, problems);
        return size.map(|(w, h)| format!("{w}:{h}")).or_else(|| aspect.map(|aspect| aspect.to_string()));
    }
    let ratios = if from_image { model.from_image } else { model.from_text };
    let Some((default, _)) = ratios.first() else {
        let message = format!("{name} makes a video of a picture only; give a first_frame");
        problems.push(Problem::new("inputs", "missing", message).allowed(json!(["first_frame"])));
        return None;
    };
    let unasked = request.media.width.is_none() && request.media.height.is_none() && request.media.aspect.is_none();
    if unasked {
        return Some((*default).to_owned());
    }
    let known_by = |known: &str, aspect: Aspect| Aspect::parse(known).is_some_and(|known| known.same_shape(aspect));
    let fits = |(ratio, known): &&(&str, &str)| {
        size.is_none_or(|(w, h)| *ratio == format!("{w}:{h}"))
            && aspect.is_none_or(|aspect| known_by(known, aspect) || known_by(ratio, aspect))
    };
    if let Some((ratio, _)) = ratios.iter().find(fits) {
        return (size.is_some() || aspect.is_some()).then(|| (*ratio).to_owned());
    }
    let (path, allowed) = if size.is_some() {
        ("media.width", ratios.iter().map(|(ratio, _)| ratio.replace(':', "x")).collect())
    } else {
        let mut shapes: Vec<String> = ratios.iter().map(|(_, known)| (*known).to_owned()).collect();
        shapes.sort_unstable();
        shapes.dedup();
        ("media.aspect", shapes)
    };
    let asked = size.map_or_else(|| request.media.aspect.clone().unwrap_or_default(), |(w, h)| format!("{w}x{h}"));
    let start = if from_image { "from a picture" } else { "from words" };
    let message = format!("{name} makes no {asked} {start}; choose one of the allowed");
    problems.push(Problem::new(path, "not_allowed", message).allowed(json!(allowed)));
    None
}

/// Maps `duration_ms` to whole seconds; `None` leaves the choice to the vendor.
pub(super) fn seconds(name: &str, model: &Model, request: &JobRequest, problems: &mut Vec<Problem>) -> Option<u64> {
    let Some(asked) = request.media.duration_ms else {
        return match model.seconds {
            Seconds::Range(_, _, unsaid) => Some(unsaid),
            Seconds::OneOf(_) | Seconds::Open => None,
        };
    };
    let whole = media::whole_seconds(asked).filter(|seconds| *seconds > 0);
    let (fits, allowed) = match model.seconds {
        Seconds::Range(from, to, _) => (
            whole.filter(|seconds| (from..=to).contains(seconds)),
            json!({"min": from * 1000, "max": to * 1000, "multiple_of": 1000}),
        ),
        Seconds::OneOf(list) => {
            let allowed: Vec<u64> = list.iter().map(|seconds| seconds * 1000).collect();
            (whole.filter(|seconds| list.contains(seconds)), json!(allowed))
        }
        Seconds::Open => (whole, json!({"multiple_of": 1000})),
    };
    if fits.is_none() {
        let message = format!("{name} makes no video of {asked} ms; whole seconds as in `allowed`");
        problems.push(Problem::new("media.duration_ms", "not_allowed", message).allowed(allowed));
    }
    fits
}

/// Checks the prompt: there where it must be, and not too long.
pub(super) fn prompt(name: &str, model: &Model, from_image: bool, request: &JobRequest, problems: &mut Vec<Problem>) {
    let needed = !from_image || model.prompt_with_image;
    if needed && request.instructions.trim().is_empty() {
        problems.push(Problem::new("instructions", "missing", format!("{name} needs words; say what to show")));
    }
    let units = request.instructions.encode_utf16().count();
    if model.limited_prompt && units > PROMPT_UNITS {
        let message = format!("{name} reads at most {PROMPT_UNITS} UTF-16 code units, not {units}; shorten the text");
        problems
            .push(Problem::new("instructions", "too_long", message).allowed(json!({"max_utf16_units": PROMPT_UNITS})));
    }
}

/// Checks the options that go to the vendor under their own names.
pub(super) fn options(name: &str, model: &Model, request: &JobRequest, problems: &mut Vec<Problem>) {
    const FROM_THE_JOB: [&str; 6] = ["promptText", "promptImage", "ratio", "duration", "seed", "position"];
    for option in request.vendor.keys().filter(|option| *option != "model") {
        let path = format!("vendor.{option}");
        if FROM_THE_JOB.contains(&option.as_str()) {
            let message = format!("`{option}` is set from the job itself; leave it out of `vendor`");
            problems.push(Problem::new(path, "conflict", message));
        } else if !model.open && !model.options.contains(&option.as_str()) {
            let message = format!("{name} does not read `{option}`");
            problems.push(Problem::new(path, "not_allowed", message).allowed(json!(model.options)));
        }
    }
    let chosen = request.vendor.get("outputFormat").and_then(Value::as_str);
    let prores =
        matches!((chosen, request.media.format.as_deref()), (Some("prores" | "hdr_prores"), _) | (None, Some("mov")));
    if request.vendor.contains_key("proresProfile") && !prores && !model.open {
        let message = "a ProRes profile goes with outputFormat prores or hdr_prores";
        problems.push(
            Problem::new("vendor.proresProfile", "conflict", message)
                .allowed(json!({"outputFormat": ["prores", "hdr_prores"]})),
        );
    }
}

/// The container that each `outputFormat` comes in; extra credits a second.
pub(super) const PACKING: [(&str, &str, u32); 12] = [
    ("mp4", "mp4", 0),
    ("prores", "mov", 5),
    ("png_sequence", "zip", 5),
    ("hdr10", "mp4", 20),
    ("hlg", "mp4", 20),
    ("sdr_rec709_10bit", "mp4", 20),
    ("hdr_pq_12bit_master", "mov", 20),
    ("hdr_prores", "mov", 20),
    ("hdr_png_sequence", "zip", 20),
    ("hdr_exr_sequence", "zip", 20),
    ("hdr_exr_acescg_sequence_1_3", "zip", 20),
    ("hdr_exr_acescg_sequence_2_0", "zip", 20),
];

/// Maps `media.format` and checks it against an `outputFormat` of the job's own; `None` is the vendor's mp4.
pub(super) fn packing(
    name: &str,
    model: &Model,
    request: &JobRequest,
    problems: &mut Vec<Problem>,
) -> Option<&'static str> {
    let chosen = request.vendor.get("outputFormat").and_then(Value::as_str);
    let format = request.media.format.as_deref();
    if model.open {
        // What an open model can pack is not known here: only the plain container is promised.
        let mov = format == Some("mov") && chosen == Some("mov");
        if format.is_some_and(|format| format != "mp4") && !mov {
            let message = format!("{name} is not known to make anything but mp4");
            problems.push(Problem::new("media.format", "not_allowed", message).allowed(json!(["mp4"])));
        }
        return None;
    }
    if !model.packs {
        if format.is_some_and(|format| format != "mp4") {
            let message = format!("{name} makes mp4 only");
            problems.push(Problem::new("media.format", "not_allowed", message).allowed(json!(["mp4"])));
        }
        return None;
    }
    let fits = |(word, container, _): &&(&str, &str, u32)| {
        chosen.is_none_or(|chosen| chosen == *word) && format.is_none_or(|format| format == *container)
    };
    if chosen.is_none() && matches!(format, None | Some("mp4")) {
        return None;
    }
    let found = PACKING.iter().find(fits);
    if found.is_none() {
        let known = chosen.is_none_or(|chosen| PACKING.iter().any(|(word, ..)| *word == chosen));
        let (path, code, allowed) = match (known, chosen) {
            (false, _) => ("vendor.outputFormat", "not_allowed", json!(PACKING.map(|(word, ..)| word))),
            (true, Some(chosen)) => {
                let containers =
                    PACKING.iter().filter(|(word, ..)| *word == chosen).map(|(_, container, _)| *container);
                ("media.format", "conflict", json!(containers.collect::<Vec<_>>()))
            }
            (true, None) => ("media.format", "not_allowed", json!(["mp4", "mov", "zip"])),
        };
        let message = format!("{name} cannot deliver that; choose one of the allowed");
        problems.push(Problem::new(path, code, message).allowed(allowed));
    }
    found.map(|(word, ..)| *word)
}

/// The most that a video may cost, in credits; `None` where no rate is known.
pub(super) fn estimate(
    model: &Model,
    seconds: Option<u64>,
    packing: Option<&str>,
    request: &JobRequest,
) -> Option<Decimal> {
    let (silent, with_sound) = model.rate?;
    let seconds = seconds.or(match model.seconds {
        Seconds::OneOf(list) => list.iter().copied().max(),
        Seconds::Range(..) | Seconds::Open => None,
    })?;
    let without = request.vendor.get("audio").and_then(Value::as_bool) == Some(false);
    let rate = if without { silent } else { with_sound };
    let extra = PACKING.iter().find(|(word, ..)| Some(*word) == packing).map_or(0, |(_, _, extra)| *extra);
    Some(Decimal::from(seconds) * Decimal::from(rate + extra))
}
