//! Exact arithmetic on number tokens.

use std::cmp::Ordering;

/// A decimal number as sign, digits and exponent: `digits × 10^exponent`, without zeros at either
/// end of the digits. Zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// Whether it is below zero.
    pub negative: bool,
    /// ASCII digits.
    pub digits: String,
    /// Power of ten of the last digit.
    pub exponent: i64,
}

impl Decimal {
    /// Reads a JSON number token.
    pub fn parse(token: &str) -> Self {
        let (negative, rest) = match token.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, token),
        };
        let (mantissa, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], parse_exponent(&rest[at + 1..])),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = String::with_capacity(whole.len() + fraction.len());
        digits.push_str(whole);
        digits.push_str(fraction);
        let mut exponent = exponent.saturating_sub(i64::try_from(fraction.len()).unwrap_or(0));
        let kept = digits.trim_end_matches('0').len();
        exponent = exponent.saturating_add(i64::try_from(digits.len() - kept).unwrap_or(0));
        digits.truncate(kept);
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }

    /// The plain integer token of the same value, when it is an integer of sensible length.
    pub fn to_integer(&self) -> Option<String> {
        if self.digits.is_empty() {
            return Some("0".to_owned());
        }
        let zeros = usize::try_from(self.exponent).ok()?;
        if self.digits.len().saturating_add(zeros) > super::MAX_DIGITS {
            return None;
        }
        let mut token = String::with_capacity(self.digits.len() + zeros + 1);
        if self.negative {
            token.push('-');
        }
        token.push_str(&self.digits);
        token.extend(std::iter::repeat_n('0', zeros));
        Some(token)
    }

    /// Whether it has no fraction.
    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    fn magnitude(&self) -> i64 {
        self.exponent
            .saturating_add(i64::try_from(self.digits.len()).unwrap_or(i64::MAX))
    }

    fn cmp_abs(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // The same place of the first digit: compare as strings, shorter ones end in zeros.
            (false, false) => self
                .magnitude()
                .cmp(&other.magnitude())
                .then_with(|| self.digits.as_bytes().cmp(other.digits.as_bytes())),
        }
    }

    /// Whether `self` is a whole multiple of `unit`, for units that are not zero.
    pub fn is_multiple_of(&self, unit: &Self) -> bool {
        if self.digits.is_empty() {
            return true;
        }
        // Bring both to the smaller exponent, then take the remainder digit by digit.
        let shift = self.exponent.saturating_sub(unit.exponent);
        let Ok(unit_digits) = unit.digits.parse::<u64>() else {
            return false;
        };
        let (unit_digits, zeros) = if shift >= 0 {
            (unit_digits, usize::try_from(shift).unwrap_or(usize::MAX))
        } else {
            // `unit` ends in zeros that `self` does not have, and self's last digit is not 0.
            let power = u32::try_from(-shift)
                .ok()
                .and_then(|n| 10u64.checked_pow(n));
            match power.and_then(|power| unit_digits.checked_mul(power)) {
                Some(scaled) => (scaled, 0),
                None => return false,
            }
        };
        if unit_digits == 0 {
            return false;
        }
        let unit_digits = u128::from(unit_digits);
        let tail = std::iter::repeat_n(0u128, zeros.min(5000));
        let digits = self.digits.bytes().map(|b| u128::from(b - b'0'));
        digits
            .chain(tail)
            .fold(0u128, |rest, digit| (rest * 10 + digit) % unit_digits)
            == 0
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.cmp_abs(other),
            (true, true) => other.cmp_abs(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

fn parse_exponent(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // Far beyond any use; what matters is that it neither wraps nor panics.
    let value = digits
        .parse::<i64>()
        .unwrap_or(i64::MAX / 4)
        .min(i64::MAX / 4);
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(token: &str) -> Option<String> {
        Decimal::parse(token).to_integer()
    }

    #[test]
    fn integers_written_as_floats_come_out_exact() {
        for (token, plain) in [
            ("5.0", Some("5")),
            ("-5.00", Some("-5")),
            ("1e2", Some("100")),
            ("1.5e1", Some("15")),
            ("-0.0", Some("0")),
            ("0e99", Some("0")),
            ("120", Some("120")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("5.5", None),
            ("1e-2", None),
        ] {
            assert_eq!(integer(token).as_deref(), plain, "{token}");
        }
    }

    #[test]
    fn order_is_exact_beyond_doubles() {
        let less = [
            ("-1e3", "-999.9"),
            ("-1", "0"),
            ("0", "1e-300"),
            ("9007199254740992", "9007199254740993"),
            ("9.99", "10"),
            ("12", "120"),
            ("0.1", "0.11"),
        ];
        for (low, high) in less {
            assert!(Decimal::parse(low) < Decimal::parse(high), "{low} < {high}");
            assert!(Decimal::parse(high) > Decimal::parse(low), "{high} > {low}");
        }
        assert_eq!(Decimal::parse("1.0"), Decimal::parse("10e-1"));
    }

    #[test]
    fn multiples_are_exact() {
        for (value, unit, is) in [
            ("0.3", "0.1", true),
            ("1e3", "7", false),
            ("14", "7", true),
            ("7.5", "5", false),
            ("10", "20", false),
            ("40", "20", true),
            ("0", "3", true),
            ("5", "0.5", true),
        ] {
            let multiple = Decimal::parse(value).is_multiple_of(&Decimal::parse(unit));
            assert_eq!(multiple, is, "{value} by {unit}");
        }
    }

    #[test]
    fn absurd_exponents_neither_wrap_nor_panic() {
        let huge = Decimal::parse("1e99999999999999999999");
        assert_eq!(huge.to_integer(), None);
        assert!(huge > Decimal::parse("1"));
        assert!(Decimal::parse("1e-99999999999999999999") > Decimal::parse("0"));
    }
}
