//! Whether speech is long enough for its script: a recording that stopped in the middle plays fine and says so
//! nowhere.

use longhaul_registry::{JobRequest, Task};

/// Letters a second beyond which nobody speaks. Read English runs at 14 to 17, hurried at 20.
const LETTERS_PER_SECOND: u64 = 25;
/// Scripts below this many letters are too short to judge by.
const SCRIPT_MIN: u64 = 100;

/// Whether `total_ms` of sound cannot hold the job's script; then how many letters there were.
#[must_use]
pub fn too_short_for_script(request: &JobRequest, total_ms: u64) -> Option<u64> {
    if request.task != Task::Speech {
        return None;
    }
    let script = request.inputs.iter().filter(|input| input.role == "script").filter_map(|input| input.text.as_deref());
    let letters: u64 = script.map(letters).sum();
    let hundredths = speed(request);
    let least_ms = letters * 1000 * 100 / (LETTERS_PER_SECOND * hundredths);
    (letters >= SCRIPT_MIN && total_ms < least_ms).then_some(letters)
}

/// How fast the job asked for, in hundredths; slower than usual counts as usual.
fn speed(request: &JobRequest) -> u64 {
    let asked = ["speed", "speaking_rate", "rate"].iter().find_map(|name| request.vendor.get(*name)?.as_f64());
    asked.filter(|speed| (1.0..=10.0).contains(speed)).map_or(100, |speed| (speed * 100.0) as u64)
}

/// The letters that are spoken: no markup, no stage directions, a run of blanks as one, and three for each
/// character of scripts that write a syllable in one.
fn letters(text: &str) -> u64 {
    let (mut count, mut tag, mut blank) = (0, None, true);
    for c in text.chars() {
        match (tag, c) {
            (Some(end), c) if c == end => tag = None,
            (Some(_), _) => {}
            (None, '<') => tag = Some('>'),
            (None, '[') => tag = Some(']'),
            (None, c) if c.is_whitespace() => {
                count += u64::from(!blank);
                blank = true;
            }
            (None, c) => {
                blank = false;
                count += if matches!(c, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}') {
                    3
                } else {
                    1
                };
            }
        }
    }
    // A bracket that never closes was no markup.
    if tag.is_some() { text.chars().count() as u64 } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_registry::Input;

    fn request(text: &str) -> JobRequest {
        let mut request: JobRequest =
            serde_json::from_value(serde_json::json!({"connector": "voice", "task": "speech"})).unwrap();
        request.inputs.push(Input { role: "script".to_owned(), text: Some(text.to_owned()), ..Input::default() });
        request
    }

    fn plain(letters: usize) -> String {
        "the quick brown fox jumps over it. ".repeat(letters / 35 + 1).chars().take(letters).collect()
    }

    #[test]
    fn twenty_and_forty_seconds_of_twelve_hundred_letters_are_cut_and_eighty_are_not() {
        let request = request(&plain(1200));
        assert!(too_short_for_script(&request, 20_000).is_some());
        assert!(too_short_for_script(&request, 40_000).is_some());
        assert!(too_short_for_script(&request, 60_000).is_none());
        assert!(too_short_for_script(&request, 81_000).is_none());
    }

    #[test]
    fn short_scripts_other_tasks_and_asked_speed_are_allowed_for() {
        assert_eq!(too_short_for_script(&request("Good morning."), 1), None);
        let mut other = request(&plain(1200));
        other.task = Task::Sound;
        assert_eq!(too_short_for_script(&other, 1000), None);
        let mut fast = request(&plain(1200));
        fast.vendor.insert("speed".to_owned(), 4.0.into());
        assert_eq!(too_short_for_script(&fast, 20_000), None);
        assert!(too_short_for_script(&fast, 8_000).is_some());
    }

    #[test]
    fn markup_is_silent_and_han_characters_take_longer() {
        let marked = format!("<speak>{}</speak>", "<break time=\"1s\"/>".repeat(100) + &plain(200));
        assert_eq!(letters(&marked), letters(&plain(200)));
        assert_eq!(letters("今日は"), 9);
        assert_eq!(letters("a  b\n\nc"), 5);
        assert_eq!(letters("1 < 2"), 5);
        // 200 Mandarin characters take about 40 s to read.
        assert!(too_short_for_script(&request(&"好".repeat(200)), 15_000).is_some());
        assert_eq!(too_short_for_script(&request(&"好".repeat(200)), 40_000), None);
    }
}
