//! Dotted paths to a place in a file: `cadence.factor`, `prices[0].usd`, `model_silence_s."gen4.5"`.

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A key of a table.
    Key(String),
    /// A place in a list, from 0.
    Index(usize),
}

/// `base.key`, the key in quotes where it is no bare word.
pub(crate) fn join(base: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if bare { key.to_owned() } else { serde_json::Value::from(key).to_string() };
    if base.is_empty() { key } else { format!("{base}.{key}") }
}

/// `base[index]`.
pub(crate) fn item(base: &str, index: usize) -> String {
    format!("{base}[{index}]")
}

/// Reads a path back. What is not readable as one ends it.
pub(crate) fn split(path: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some((index, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            let Ok(index) = index.parse() else { break };
            segments.push(Segment::Index(index));
            rest = after;
        } else if rest.starts_with('"') {
            let mut read = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let Some(Ok(key)) = read.next() else { break };
            rest = rest.get(read.byte_offset()..).unwrap_or_default();
            segments.push(Segment::Key(key));
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            if key.is_empty() {
                break;
            }
            segments.push(Segment::Key(key.to_owned()));
            rest = after;
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_back_as_they_were_written() {
        let path = join(&item(&join("", "prices"), 2), "usd");
        assert_eq!(path, "prices[2].usd");
        let key = |text: &str| Segment::Key(text.to_owned());
        assert_eq!(split(&path), [key("prices"), Segment::Index(2), key("usd")]);
        let path = join(&join("model_silence_s", "gen4.5 \"x\""), "y");
        assert_eq!(split(&path), [key("model_silence_s"), key("gen4.5 \"x\""), key("y")]);
        assert_eq!(split("a.b["), [key("a"), key("b")]);
    }
}
