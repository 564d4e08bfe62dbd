//! What the keywords of one schema say together.

use crate::json::number::Decimal;
use crate::schema::choice::Choices;
use crate::schema::{
    Additional, ArrayRules, Bound, Combine, NumberRules, ObjectRules, Property, Schema,
    StringRules, types,
};

/// Keeps the tighter of two bounds.
pub(super) fn tighten(
    slot: &mut Option<Bound>,
    new: Option<Bound>,
    tighter: fn(&Decimal, &Decimal) -> bool,
) {
    let Some(new) = new else {
        return;
    };
    let replace = match slot {
        None => true,
        Some(old) => tighter(&new.value, &old.value) || (new.value == old.value && new.exclusive),
    };
    if replace {
        *slot = Some(new);
    }
}

/// What the keywords of one schema gather, before it is known which of it says anything.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) choices: Choices,
    pub(super) string: StringRules,
    pub(super) number: NumberRules,
    pub(super) array: ArrayRules,
    pub(super) combine: Combine,
    pub(super) properties: Vec<(String, Schema)>,
    pub(super) required: Vec<String>,
    pub(super) additional: Additional,
    pub(super) open: bool,
    pub(super) min_members: Option<u64>,
    pub(super) max_members: Option<u64>,
}

impl Parts {
    pub(super) fn finish(self, mut schema: Schema) -> Schema {
        schema.choice = self.choices.finish();
        let string = self.string;
        if string.min.is_some() || string.max.is_some() || string.pattern.is_some() {
            schema.string = Some(Box::new(string));
        }
        let number = self.number;
        if number.min.is_some() || number.max.is_some() || number.multiple.is_some() {
            schema.number = Some(Box::new(number));
        }
        let array = self.array;
        if array.unique
            || !array.prefix.is_empty()
            || array.items.is_some()
            || array.min.is_some()
            || array.max.is_some()
        {
            schema.array = Some(Box::new(array));
        }
        let combine = self.combine;
        if !(combine.all.is_empty() && combine.any.is_empty() && combine.one.is_empty())
            || combine.not.is_some()
            || combine.reference.is_some()
        {
            schema.combine = Some(Box::new(combine));
        }
        let additional = if self.open {
            Additional::Any
        } else {
            self.additional
        };
        let mut properties: Vec<Property> = self
            .properties
            .into_iter()
            .map(|(name, schema)| Property {
                required: self.required.contains(&name),
                name: name.into(),
                schema,
                default: None,
            })
            .collect();
        // A name that is required but not described follows the rule for all others.
        for name in self.required {
            if properties.iter().any(|property| *property.name == *name) {
                continue;
            }
            let schema = match &additional {
                Additional::Any => Schema::of_types(types::ANY),
                Additional::Refuse => Schema::of_types(0),
                Additional::Schema(schema) => schema.clone(),
            };
            properties.push(Property {
                name: name.into(),
                schema,
                required: true,
                default: None,
            });
        }
        if !properties.is_empty()
            || !matches!(additional, Additional::Any)
            || self.min_members.is_some()
            || self.max_members.is_some()
        {
            let rules = ObjectRules {
                properties,
                index: None,
                additional,
                min: self.min_members,
                max: self.max_members,
            };
            schema.object = Some(Box::new(rules.with_index()));
        }
        schema
    }
}
