//! Attributes with whole numbers.

use std::ops::RangeInclusive;

use grit_plugin::{
    Problems,
    schema::{AttributePath, Number, Value},
};

use crate::explain::values;

/// The number of an attribute; `None` if it is null, or invalid, which [`check_whole`] rejects.
pub(crate) fn whole<T: TryFrom<i64>>(value: &Value<Number>) -> Option<T> {
    T::try_from(value.as_ref_option()?.as_i64()?).ok()
}

/// Rejects a number that is not whole, or not in the range. Accepts null and unknown.
pub(crate) fn check_whole(
    range: RangeInclusive<i64>,
) -> impl Fn(&Value<Number>, &AttributePath, &mut Problems) {
    move |value, path, problems| {
        if let Value::Value(number) = value
            && !number.as_i64().is_some_and(|whole| range.contains(&whole))
        {
            problems.add(values::number(path.clone(), number, &range));
        }
    }
}

#[cfg(test)]
mod tests {
    use grit_plugin::Problem;

    use super::*;

    fn errors(number: Number) -> Vec<String> {
        let mut problems = Problems::default();
        check_whole(1..=10)(&Value::Value(number), &AttributePath::new("n"), &mut problems);
        problems.iter().map(Problem::detail).collect()
    }

    #[test]
    fn whole_numbers_in_range_are_accepted() {
        for number in [Number::Whole(1), Number::Whole(10), Number::Decimal("7".into())] {
            assert_eq!(errors(number), [""; 0]);
        }
        assert_eq!(whole::<u32>(&Value::Value(Number::Whole(7))), Some(7));
        assert_eq!(whole::<u32>(&Value::Null), None);
    }

    #[test]
    fn fraction_or_out_of_range_error_names_value() {
        for (number, text) in [
            (Number::Fraction(1.5), "1.5"),
            (Number::Whole(0), "0"),
            (Number::Whole(-3), "-3"),
            (Number::Decimal("1e30".into()), "1e30"),
            (Number::Decimal("99999999999999999999".into()), "99999999999999999999"),
        ] {
            let wanted =
                format!("`n` is {text}; it must be a whole number from 1 to 10.\n\nCode: invalid_config");
            assert_eq!(errors(number), [wanted]);
        }
    }
}
