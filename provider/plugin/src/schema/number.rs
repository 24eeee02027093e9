//! Terraform's numbers.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number from Terraform: whole, binary fraction, or, if neither is exact, decimal digits.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    Whole(i64),
    Fraction(f64),
    /// A number that neither `i64` nor `f64` represents exactly.
    Decimal(String),
}

impl Number {
    /// The number, if it is whole and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Whole(whole) => Some(*whole),
            Self::Fraction(_) => None,
            Self::Decimal(digits) => digits.parse().ok(),
        }
    }
}

impl From<u64> for Number {
    fn from(whole: u64) -> Self {
        i64::try_from(whole).map_or_else(|_| Self::Decimal(whole.to_string()), Self::Whole)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Fraction(fraction) => fraction.fmt(f),
            Self::Decimal(digits) => f.write_str(digits),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(whole) => serializer.serialize_i64(*whole),
            Self::Fraction(fraction) => serializer.serialize_f64(*fraction),
            Self::Decimal(digits) => serializer.serialize_str(digits),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl de::Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Number, E> {
        Ok(Number::Whole(whole))
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Number, E> {
        Ok(whole.into())
    }

    fn visit_f64<E: de::Error>(self, fraction: f64) -> Result<Number, E> {
        Ok(Number::Fraction(fraction))
    }

    fn visit_str<E: de::Error>(self, digits: &str) -> Result<Number, E> {
        // A string must not be accepted as a number, so the digits are checked.
        match digits.parse::<f64>() {
            Ok(near) if near.is_finite() => Ok(Number::Decimal(digits.to_owned())),
            _ => Err(E::invalid_value(de::Unexpected::Str(digits), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Value;

    fn round_trip(number: &Number) -> Value<Number> {
        rmp_serde::from_slice(&rmp_serde::to_vec_named(number).unwrap()).unwrap()
    }

    #[test]
    fn all_number_kinds_round_trip() {
        for number in [
            Number::Whole(-3),
            Number::Whole(i64::MAX),
            Number::Fraction(1.5),
            Number::Fraction(1e20),
            Number::Decimal("0.1000000000000000000000000001".into()),
        ] {
            assert_eq!(round_trip(&number), Value::Value(number));
        }
    }

    #[test]
    fn number_beyond_i64_keeps_its_digits() {
        let value: Number = rmp_serde::from_slice(&rmp_serde::to_vec(&u64::MAX).unwrap()).unwrap();
        assert_eq!(value, Number::Decimal(u64::MAX.to_string()));
        assert_eq!(value.as_i64(), None);
    }

    #[test]
    fn string_is_not_a_number() {
        let text = rmp_serde::to_vec("three").unwrap();
        assert!(rmp_serde::from_slice::<Number>(&text).is_err());
    }
}
