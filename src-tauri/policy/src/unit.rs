//! Sizes and durations as people write them.

use std::time::Duration;

/// Reads `512MiB`, `8GiB`, `2GB` or plain bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads `90s`, `30m`, `4h`, `1h30m` or `2d`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds: u64 = 0;
    while !rest.is_empty() {
        let (number, tail) = split(rest)?;
        let unit = tail.chars().next()?;
        let factor = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(factor)?)?;
        rest = &tail[1..];
    }
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

/// A leading number and what follows it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// `1.5 GiB` style, for people.
pub(crate) fn show_size(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

/// `1h30m` style, as a policy writes it.
pub fn show_duration(d: Duration) -> String {
    let s = d.as_secs();
    let parts = [(s / 3_600, 'h'), (s / 60 % 60, 'm'), (s % 60, 's')];
    parts.iter().filter(|(n, _)| *n > 0).map(|(n, u)| format!("{n}{u}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_written() {
        assert_eq!(
            (size("8GiB"), size("2 GB"), size("17"), size("1kB")),
            (Some(8 << 30), Some(2_000_000_000), Some(17), Some(1_000))
        );
        assert_eq!([size("GiB"), size("-1"), size("1.5GiB"), size("1gib"), size("99999999999TiB"), size("")], [None; 6]);
        let d = |t| duration(t).map(|d| d.as_secs());
        assert_eq!((d("4h"), d("1h30m"), d("90s"), d("2d")), (Some(14_400), Some(5_400), Some(90), Some(172_800)));
        assert_eq!([d(""), d("4"), d("h"), d("4 hours"), d("-4h"), d("99999999999999999d")], [None; 6]);
        assert_eq!(show_size(8 << 30), "8 GiB");
        let shown = [4 * 3600, 5400, 90, 3601].map(|s| show_duration(Duration::from_secs(s)));
        assert_eq!(shown, ["4h", "1h30m", "1m30s", "1h1s"]);
    }
}
