use crate::corpus::{Corpus, assert_ok, spec};
use longhaul_registry::{ImageSpec, MediaSpec};

fn image(spec: &MediaSpec) -> (u32, u32, bool, Option<u32>, Option<bool>) {
    assert_eq!(spec.video, None);
    let image = spec.image.as_ref().unwrap();
    (image.width.unwrap(), image.height.unwrap(), image.animated.unwrap(), image.frames, image.alpha)
}

#[test]
fn stills() {
    let corpus = Corpus::new();
    let source = "-f lavfi -i testsrc=s=321x181 -frames:v 1";
    for (name, args, mime, container, alpha) in [
        ("a.png", "-pix_fmt rgb24", "image/png", "png", false),
        ("b.png", "-pix_fmt rgba", "image/png", "png", true),
        ("c.jpg", "", "image/jpeg", "jpeg", false),
        ("d.gif", "", "image/gif", "gif", false),
        ("e.webp", "-c:v libwebp -pix_fmt yuv420p", "image/webp", "webp", false),
        ("f.webp", "-c:v libwebp -lossless 1 -pix_fmt bgra", "image/webp", "webp", true),
        ("g.avif", "-c:v libaom-av1 -still-picture 1 -cpu-used 8", "image/avif", "avif", false),
    ] {
        let path = corpus.make(name, &format!("{source} {args}"));
        let found = spec(&path);
        assert_ok(&found);
        assert_eq!((found.mime.as_str(), found.container.as_str()), (mime, container), "{name}");
        let (width, height, animated, frames, found_alpha) = image(&found);
        assert_eq!((width, height, animated, frames), (321, 181, false, None), "{name}");
        if name != "d.gif" && name != "f.webp" {
            assert_eq!(found_alpha, Some(alpha), "{name}");
        }
        assert_eq!((found.duration_ms, found.bitrate_bps), (None, None));
        for keep in [5, 9] {
            let cut = spec(&corpus.cut(&format!("cut-{name}"), &path, |len| len * keep / 10));
            assert_eq!(cut.complete, Some(false), "{name} at {keep}/10: {cut:#?}");
            assert_eq!(cut.container, container, "{name}");
        }
    }
}

#[test]
fn animations_count_frames_and_time() {
    let corpus = Corpus::new();
    // Twenty frames at ten a second: two seconds.
    let source = "-f lavfi -i testsrc=s=160x90:r=10:d=2";
    for (name, args, mime, container) in [
        ("a.gif", "", "image/gif", "gif"),
        ("b.webp", "-c:v libwebp -loop 0", "image/webp", "webp"),
        ("c.png", "-f apng -plays 0", "image/apng", "apng"),
    ] {
        let path = corpus.make(name, &format!("{source} {args}"));
        let found = spec(&path);
        assert_ok(&found);
        assert_eq!((found.mime.as_str(), found.container.as_str()), (mime, container));
        let (width, height, animated, frames, _) = image(&found);
        assert_eq!((width, height, animated, frames), (160, 90, true, Some(20)), "{name}");
        assert_eq!(found.duration_ms, Some(2000), "{name}");
        let cut = spec(&corpus.cut(&format!("cut-{name}"), &path, |len| len / 2));
        assert_eq!((cut.complete, cut.probe.status.as_str()), (Some(false), "partial"), "{name}");
    }
}

/// A JPEG with an EXIF segment of one entry, orientation, put in after the start.
fn with_orientation(jpeg: &[u8], value: u8) -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    tiff.extend([value, 0, 0, 0, 0, 0, 0, 0]);
    let mut out = jpeg[..2].to_vec();
    out.extend([0xFF, 0xE1]);
    out.extend(u16::try_from(tiff.len() + 8).unwrap().to_be_bytes());
    out.extend(b"Exif\0\0");
    out.extend(tiff);
    out.extend(&jpeg[2..]);
    out
}

#[test]
fn a_jpegs_orientation_is_told_and_its_size_is_the_stored_one() {
    let corpus = Corpus::new();
    let plain = corpus.make("a.jpg", "-f lavfi -i testsrc=s=320x180 -frames:v 1");
    assert_eq!(spec(&plain).image.unwrap().orientation, None);
    let bytes = std::fs::read(&plain).unwrap();
    for value in 1..=8 {
        let found = spec(&corpus.write("turned.jpg", &with_orientation(&bytes, value)));
        assert_ok(&found);
        let image = found.image.unwrap();
        assert_eq!((image.orientation, image.width, image.height), (Some(value), Some(320), Some(180)));
    }
    let image = spec(&corpus.write("wrong.jpg", &with_orientation(&bytes, 9))).image.unwrap();
    assert_eq!((image.orientation, image.width), (None, Some(320)));
    // A thumbnail's end marker inside a segment is not the picture's.
    let mut fooled = with_orientation(&bytes, 1);
    fooled[20..22].copy_from_slice(&[0xFF, 0xD9]);
    let cut = spec(&corpus.write("fooled.jpg", &fooled[..fooled.len() / 2]));
    assert_eq!(cut.complete, Some(false));
}

#[test]
fn svg_is_measured_and_its_entities_never_expanded() {
    let corpus = Corpus::new();
    let case = |name: &str, text: &str| spec(&corpus.write(name, text.as_bytes()));
    let found = case(
        "a.svg",
        r#"<?xml version="1.0"?><!-- made by hand --><svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 640 360"><script>1</script></svg>"#,
    );
    assert_ok(&found);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("image/svg+xml", "svg"));
    assert_eq!(
        found.image,
        Some(ImageSpec { width: Some(640), height: Some(360), animated: Some(false), ..ImageSpec::default() })
    );
    let bomb = r#"<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><svg width="1" height="1"><text>&b;</text></svg>"#;
    let found = case("bomb.svg", bomb);
    assert_eq!((found.container.as_str(), found.probe.status.as_str()), ("svg", "partial"));
    assert_eq!(found.image, None);
    let deep = format!("<svg width='1' height='1'>{}", "<g>".repeat(200_000));
    assert_eq!(case("deep.svg", &deep).probe.status, "limits");
    let found = case("cut.svg", r#"<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><g>"#);
    assert_eq!((found.complete, found.probe.status.as_str()), (Some(false), "partial"));
}

#[test]
fn other_images_are_measured_or_named() {
    let corpus = Corpus::new();
    let path = corpus.make("a.bmp", "-f lavfi -i testsrc=s=64x48 -frames:v 1");
    let found = spec(&path);
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("image/bmp", "unknown"));
    let image = found.image.unwrap();
    assert_eq!((image.width, image.height), (Some(64), Some(48)));
    let path = corpus.make("a.tiff", "-f lavfi -i testsrc=s=64x48 -frames:v 1");
    assert_eq!(spec(&path).mime, "image/tiff");
}
