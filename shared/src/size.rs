//! Sizes in flags: `512KiB`, `256MiB`, `2GiB`.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number and KiB, MiB or GiB, as in 256MiB")]
pub struct NoSize;

/// In bytes, for `value_parser` of a flag. Nothing is `0`, whatever its unit.
pub fn parse(text: &str) -> Result<u64, NoSize> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| NoSize)?;
    let bytes: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" if number == 0 => 0,
        _ => return Err(NoSize),
    };
    number.checked_mul(bytes).ok_or(NoSize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [("512KiB", 512 << 10), ("256MiB", 256 << 20), ("2GiB", 2 << 30), ("0", 0)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_number_alone_is_no_size() {
        for text in ["", "MiB", "10", "-1MiB", "1.5GiB", "1MB", "10 MiB", "99999999999999GiB"] {
            assert_eq!(parse(text), Err(NoSize), "{text}");
        }
    }
}
