//! Numbers with units, for readers.

use std::time::Duration;

/// Three digits that matter, fewer for whole numbers, in the unit that fits.
pub(crate) fn duration(duration: Duration) -> String {
    micros(duration.as_secs_f64() * 1e6)
}

pub(crate) fn micros(micros: f64) -> String {
    match micros {
        m if m < 1e3 => three(m, "µs"),
        m if m < 1e6 => three(m / 1e3, "ms"),
        m => three(m / 1e6, "s"),
    }
}

pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value.abs() < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    three(value, unit)
}

/// With a mark between thousands, as `12,345`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn three(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == v.trunc() => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_in_the_unit_that_fits() {
        assert_eq!(micros(0.0), "0 µs");
        assert_eq!(micros(999.0), "999 µs");
        assert_eq!(micros(1_234.0), "1.23 ms");
        assert_eq!(duration(Duration::from_millis(45_678)), "45.7 s");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1_000.0), "0.98 KiB");
        assert_eq!(bytes(20.0 * 1024.0 * 1024.0), "20 MiB");
        assert_eq!(bytes(-2500.0), "-2.44 KiB");
    }

    #[test]
    fn thousands_are_marked() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
    }
}
