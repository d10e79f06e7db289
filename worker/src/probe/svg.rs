//! SVG: an untrusted text. Its size is read, its DTD refused, its script never run.

use super::input::{Outcome, Source, broken};
use longhaul_registry::{ImageSpec, MediaSpec};
use roxmltree::{Document, Error, ParsingOptions};

/// The largest SVG that is parsed.
const SVG_MAX: u64 = 8 << 20;
/// Elements and texts of one SVG.
const NODES_MAX: u32 = 500_000;
/// Elements nested in each other. Parsers recurse into them.
const DEPTH_MAX: usize = 256;

/// Fills in the spec of an SVG file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let bytes = source.span(0, source.len(), SVG_MAX, "the SVG")?;
    let Ok(text) = std::str::from_utf8(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes)) else {
        return broken("it is not UTF-8");
    };
    if too_deep(text) {
        return super::input::limits(format!("elements are nested more than {DEPTH_MAX} deep"));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = match Document::parse_with_options(text, options) {
        Ok(document) => document,
        Err(Error::DtdDetected) => return broken("it has a document type definition, which is never expanded"),
        Err(error) => {
            spec.complete = matches!(error, Error::UnexpectedEndOfStream | Error::UnclosedRootNode).then_some(false);
            return broken(format!("the XML cannot be read: {error}"));
        }
    };
    spec.complete = Some(true);
    let root = document.root_element();
    let (width, height) = size(root.attribute("width"), root.attribute("height"), root.attribute("viewBox"));
    spec.image = Some(ImageSpec { width, height, animated: Some(false), ..ImageSpec::default() });
    Ok(())
}

/// Counts open elements in one pass, before a parser recurses into them.
fn too_deep(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut depth, mut opening) = (0usize, false);
    for (at, byte) in bytes.iter().enumerate() {
        match (byte, bytes.get(at + 1)) {
            (b'<', Some(b'/')) => depth = depth.saturating_sub(1),
            (b'<', Some(b'!' | b'?')) => {}
            (b'<', _) => {
                depth += 1;
                opening = true;
            }
            (b'/', Some(b'>')) if opening => depth = depth.saturating_sub(1),
            (b'>', _) => opening = false,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// Width and height in CSS pixels, to the nearest: absolute sizes first, a missing one by the view box's
/// ratio, the view box itself where there is none.
fn size(width: Option<&str>, height: Option<&str>, view_box: Option<&str>) -> (Option<u32>, Option<u32>) {
    let view: Vec<f64> =
        view_box.unwrap_or_default().split([' ', ',', '\t', '\n', '\r']).filter_map(|part| part.parse().ok()).collect();
    let view = match view.as_slice() {
        [_, _, width, height] if *width > 0.0 && *height > 0.0 => Some((*width, *height)),
        _ => None,
    };
    let (width, height) = (width.and_then(pixels), height.and_then(pixels));
    let (width, height) = match (width, height, view) {
        (Some(width), Some(height), _) => (Some(width), Some(height)),
        (Some(width), None, Some((across, down))) => (Some(width), Some(width * down / across)),
        (None, Some(height), Some((across, down))) => (Some(height * across / down), Some(height)),
        (None, None, Some((across, down))) => (Some(across), Some(down)),
        other => (other.0, other.1),
    };
    (width.and_then(whole), height.and_then(whole))
}

/// A length in CSS pixels; relative ones are none.
fn pixels(text: &str) -> Option<f64> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E' || c == '%').unwrap_or(text.len());
    // "em" and "ex" begin with the letter of an exponent.
    let at = ["em", "ex"].iter().find(|unit| text.ends_with(**unit)).map_or(at, |unit| text.len() - unit.len());
    let (number, unit) = text.split_at_checked(at)?;
    let value: f64 = number.trim().parse().ok()?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "px" => 1.0,
        "pt" => 96.0 / 72.0,
        "pc" => 16.0,
        "in" => 96.0,
        "cm" => 96.0 / 2.54,
        "mm" => 96.0 / 25.4,
        "q" => 96.0 / 101.6,
        _ => return None,
    };
    (value > 0.0 && value.is_finite()).then_some(value * factor)
}

fn whole(value: f64) -> Option<u32> {
    let value = value.round();
    (1.0..=f64::from(u32::MAX)).contains(&value).then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_rules_of_css() {
        let case = |width, height, view| size(width, height, view);
        assert_eq!(case(Some("640"), Some("360"), None), (Some(640), Some(360)));
        assert_eq!(case(Some("10cm"), Some("2in"), None), (Some(378), Some(192)));
        assert_eq!(case(Some("72pt"), Some("25.4mm"), None), (Some(96), Some(96)));
        assert_eq!(case(Some("100%"), Some("100%"), Some("0 0 300 150")), (Some(300), Some(150)));
        assert_eq!(case(Some("600"), None, Some("0 0 300 150")), (Some(600), Some(300)));
        assert_eq!(case(None, Some("50"), Some("0,0,300,150")), (Some(100), Some(50)));
        assert_eq!(case(Some("2em"), Some("1e2px"), Some("0 0 4 2")), (Some(200), Some(100)));
        assert_eq!(case(None, None, Some("0 0 -5 2")), (None, None));
        assert_eq!(case(None, None, None), (None, None));
    }
}
