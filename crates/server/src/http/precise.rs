//! What the document says about single fields beyond their type: which characters, which words, which null. The
//! parsers decide; this says the same in the language of schemas, and schemathesis holds the two together.

use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayItems, KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, SchemaType,
    Type,
};
use utoipa::openapi::{Components, RefOr};

/// Not blank, and no control character but tab and line breaks.
const TEXT: &str = "^[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]*$";
/// Names that people choose.
const NAME: &str = "^[a-z0-9][a-z0-9._-]{0,63}$";
/// Ids of the caller's own, as they may stand in the ledger.
const TOKEN: &str = "^[A-Za-z0-9_:.-]{1,128}$";
const CURSOR: &str = "^[A-Za-z0-9_.-]{1,256}$";
const IDEMPOTENCY_KEY: &str = "^[!-~]{1,128}$";
/// From 1970 on.
const TIME: &str = "^(19[7-9][0-9]|[2-9][0-9]{3})-";
const INDEX: &str = "^(0|[1-9][0-9]{0,18})$";
/// The closed list of kinds, with commas between.
const KINDS: &str =
    "^(feedback|user_fact|project_state|reference)(,(feedback|user_fact|project_state|reference))*$";

/// The pattern of an id with this prefix: 128 bits in base32 have one spelling.
fn id(prefix: &str) -> String {
    format!("^{prefix}_[a-z2-7]{{25}}[aeimquy4]$")
}

/// The pattern of a field, by its name in bodies, queries and addresses.
fn pattern(field: &str) -> Option<String> {
    match field {
        "conversation" => Some(id("con")),
        "question" | "text" => Some(TEXT.to_owned()),
        "name" | "label" | "group" | "Merkwelt-Purpose" => Some(NAME.to_owned()),
        "Merkwelt-Run" | "Merkwelt-Call" => Some(TOKEN.to_owned()),
        "Idempotency-Key" => Some(IDEMPOTENCY_KEY.to_owned()),
        "cursor" => Some(CURSOR.to_owned()),
        "kind" => Some(KINDS.to_owned()),
        "index" => Some(INDEX.to_owned()),
        _ => None,
    }
}

/// Makes the schemas of bodies precise.
pub(super) fn bodies(components: &mut Components) {
    let bodies = components.schemas.iter_mut().filter(|(name, _)| name.ends_with("Body"));
    for (_, schema) in bodies {
        if let RefOr::T(schema) = schema {
            body(schema);
        }
    }
}

fn body(schema: &mut Schema) {
    if let Schema::Object(object) = schema {
        fields(object);
    } else if let Schema::OneOf(choice) = schema {
        for item in &mut choice.items {
            let RefOr::T(Schema::Object(object)) = item else { continue };
            if !object.properties.is_empty() {
                // A choice with a second member would be two choices.
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
            fields(object);
        }
    }
}

fn fields(object: &mut Object) {
    for (name, property) in &mut object.properties {
        let RefOr::T(property) = property else { continue };
        if let Schema::Object(field) = property {
            text(name, field);
            if let Some(words) = &mut field.enum_values
                && !object.required.contains(name)
                && field.schema_type == SchemaType::Type(Type::String)
            {
                // What may be absent may be null.
                field.schema_type = SchemaType::Array(vec![Type::String, Type::Null]);
                words.push(Value::Null);
            }
        } else if let Schema::Array(list) = property
            && name == "kinds"
        {
            list.items = ArrayItems::RefOrSchema(Box::new(ranked()));
        }
    }
}

/// The kinds that a search ranks.
fn ranked() -> RefOr<Schema> {
    let words = ["user_fact", "project_state", "reference"];
    Schema::from(ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()).into()
}

fn text(name: &str, field: &mut Object) {
    if field.enum_values.is_some() {
        return;
    }
    let is_time = field.format == Some(SchemaFormat::KnownFormat(KnownFormat::DateTime));
    let precise = if is_time { Some(TIME.to_owned()) } else { pattern(name) };
    field.pattern = precise.or(field.pattern.take());
}

/// Makes the parameters of an operation precise; `path` says what its id is one of.
pub(super) fn parameters(path: &str, operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            self::parameter(path, parameter);
        }
    }
}

/// Makes one parameter precise.
pub(super) fn parameter(path: &str, parameter: &mut Parameter) {
    let Some(RefOr::T(Schema::Object(field))) = &mut parameter.schema else { return };
    if field.schema_type != SchemaType::Type(Type::String) {
        return;
    }
    text(&parameter.name, field);
    if parameter.parameter_in == ParameterIn::Path && parameter.name == "id" {
        let prefix = match path.split('/').nth(2) {
            Some("memories") => "mem",
            Some("packs") => "pac",
            Some("conversations") => "con",
            Some("keys") => "key",
            _ => return,
        };
        field.pattern = Some(id(prefix));
    }
}
