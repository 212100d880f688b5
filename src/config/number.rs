//! Mooncake's number syntax: C's `strtoul` with base 0.

/// What `strtoul` with base 0 makes of `text` on a 64-bit Linux, where only the end of the text
/// may end the number and the result must fit 32 bits.
///
/// Leading blanks, one sign, then `0x` hexadecimal, `0` octal or decimal. A minus sign negates
/// modulo 2^64, so that `-1` is out of range and `-18446744073709551615` is 1. The `0b` prefix
/// of C23, which depends on the age of the C library, is not a number.
pub(super) fn parse_number(text: &str) -> Option<u32> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    // `from_str_radix` would take one more sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    u32::try_from(if negative { magnitude.wrapping_neg() } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn numbers_follow_strtoul_with_base_zero() {
        let cases: &[(&str, Option<u32>)] = &[
            ("0", Some(0)),
            ("00", Some(0)),
            ("1", Some(1)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("18446744073709551615", None),
            ("18446744073709551616", None),
            ("99999999999999999999999999", None),
            // hexadecimal
            ("0x10", Some(16)),
            ("0X10", Some(16)),
            ("0xfF", Some(255)),
            ("0xffffffff", Some(u32::MAX)),
            ("0x100000000", None),
            ("0x", None),
            ("0xg", None),
            ("x10", None),
            ("0x0x10", None),
            ("0x-1", None),
            ("0x+1", None),
            ("0x 1", None),
            // octal
            ("010", Some(8)),
            ("0777", Some(511)),
            ("037777777777", Some(u32::MAX)),
            ("040000000000", None),
            ("08", None),
            ("019", None),
            // blanks and signs
            (" 7", Some(7)),
            ("\t\n\x0b\x0c\r 7", Some(7)),
            ("\u{a0}7", None),
            ("+7", Some(7)),
            ("  +0x1F", Some(31)),
            ("+-7", None),
            ("--7", None),
            ("++7", None),
            ("+ 7", None),
            ("- 7", None),
            ("-0", Some(0)),
            ("-1", None),
            ("-4294967295", None),
            ("-18446744069414584321", Some(u32::MAX)),
            ("-18446744069414584320", None),
            ("-18446744073709551615", Some(1)),
            ("-0xffffffffffffffff", Some(1)),
            ("-18446744073709551616", None),
            // no number, or more than one
            ("", None),
            (" ", None),
            ("+", None),
            ("-", None),
            ("7 ", None),
            ("7\n", None),
            ("7x", None),
            ("7k", None),
            ("1 2", None),
            ("1_000", None),
            ("1,000", None),
            ("1e3", None),
            ("1.0", None),
            ("0b1", None),
            ("0o7", None),
            ("auto", None),
            ("\u{fffd}", None),
            ("7\u{fffd}", None),
            ("\u{0667}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_number(text), *expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_agree_with_the_c_library() {
        // Pieces that meet every branch of the syntax; `0b` is left out because C libraries differ.
        let pieces = ["", " ", "\t", "+", "-", "0", "0x", "0X", "7", "8", "f", "g", "4294967295"];
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    for d in pieces {
                        let text = format!("{a}{b}{c}{d}");
                        assert_eq!(parse_number(&text), c_number(&text), "{text:?}");
                    }
                }
            }
        }
    }

    /// The same rule spelled with the C library's own function.
    fn c_number(text: &str) -> Option<u32> {
        let text = std::ffi::CString::new(text).expect("no NUL in the pieces");
        let mut end = std::ptr::null_mut();
        // SAFETY: `text` is NUL-terminated and outlives the call, `end` is a valid out pointer, and
        // errno belongs to this thread.
        let (parsed, error) = unsafe {
            *libc::__errno_location() = 0;
            let parsed = libc::strtoul(text.as_ptr(), &mut end, 0);
            (parsed, *libc::__errno_location())
        };
        // SAFETY: strtoul leaves `end` inside `text` or at its terminator.
        let rest = unsafe { *end };
        let converted = !std::ptr::eq(end, text.as_ptr());
        (error == 0 && converted && rest == 0).then_some(parsed).and_then(|n| u32::try_from(n).ok())
    }
}
