//! Objects of the configuration language, with each attribute declared once.

use grit_plugin::{
    Problems,
    schema::{AttributePath, Value},
};

use super::text::check_set;
use crate::explain::values;

/// An object that [`object!`] declares.
pub(crate) trait Object {
    /// The names of the attributes that the object declares itself, in their order.
    const NAMES: &'static [&'static str];

    /// Rejects invalid values: first those of each attribute, in the order of the declaration. Accepts unknown values.
    fn check_at(&self, path: &AttributePath, problems: &mut Problems);

    /// [`check_at`](Self::check_at) of the whole block.
    fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        self.check_at(&AttributePath::root(), &mut problems);
        problems.or(())
    }
}

/// Declares an object: a struct with one field for each attribute, `attributes()` for the schema, and [`Object`].
///
/// An attribute is `name: type = constructor => description, check;`. The constructor is one of [`schema`](grit_plugin::schema), such as `text`. The check
/// is optional: it gets the value, the path and the problems. More parts:
///
/// - Parameters after the name of the struct are texts for the descriptions, which the caller of `attributes` passes.
/// - A field without a constructor is not an attribute (`#[serde(skip)]`).
/// - `..field: type;` adds all attributes of another object.
/// - `check: function;` after the struct is a check of the whole object, after those of its attributes.
macro_rules! object {
    // Of a field that has a constructor.
    (@name $field:ident $constructor:expr) => { stringify!($field) };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(($($parameter:ident),+))? {
            $(
                $(#[$field_meta:meta])*
                $field_vis:vis $field:ident: $type:ty $(= $constructor:expr => $description:expr $(, $check:expr)?)?;
            )*
            $(..$other_vis:vis $other:ident: $other_type:ident $(($($argument:expr),+))?;)*
        }
        $(check: $check_all:expr;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
            $(#[serde(flatten)] $other_vis $other: $other_type,)*
        }

        impl $name {
            pub(crate) fn attributes($($($parameter: &str),+)?) -> grit_plugin::schema::Attributes {
                let attributes = [$($(
                    (stringify!($field).to_owned(), $constructor(AsRef::<str>::as_ref(&$description))),
                )?)*];
                attributes.into_iter()$(.chain($other_type::attributes($($($argument),+)?)))*.collect()
            }
        }

        impl $crate::config::object::Object for $name {
            const NAMES: &'static [&'static str] =
                &[$($($crate::config::object::object!(@name $field $constructor),)?)*];

            fn check_at(&self, path: &grit_plugin::schema::AttributePath, problems: &mut grit_plugin::Problems) {
                let _unused = (path, &problems);
                $($($($check(&self.$field, &path.clone().attribute(stringify!($field)), problems);)?)?)*
                $($crate::config::object::Object::check_at(&self.$other, path, problems);)*
                $($check_all(self, path, problems);)?
            }
        }
    };
}
pub(crate) use object;

/// Checks the attributes of an object. Accepts null and unknown.
pub(crate) fn check_object<T: Object>(value: &Value<T>, path: &AttributePath, problems: &mut Problems) {
    if let Value::Value(object) = value {
        object.check_at(path, problems);
    }
}

/// Checks the attributes of a required object. Accepts unknown.
pub(crate) fn check_required<T: Object>(value: &Value<T>, path: &AttributePath, problems: &mut Problems) {
    check_set(value, path, problems);
    check_object(value, path, problems);
}

/// Rejects elements that are null. Accepts null and unknown.
pub(crate) fn check_elements<T>(list: &Value<Vec<Value<T>>>, path: &AttributePath, problems: &mut Problems) {
    for (index, element) in (0i64..).zip(list.iter().flatten()) {
        if element.is_null() {
            problems.add(values::null_element(path.clone().index(index)));
        }
    }
}
