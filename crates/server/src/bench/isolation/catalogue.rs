//! What can be asked: the operations of the served document of the API, and bodies made from its schemas. An
//! operation that is added to the document is attacked from then on without a change here.

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

use crate::bench::dice::Dice;

/// One operation.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<String>,
    /// Its schema, with references resolved.
    pub(super) body: Option<Value>,
    pub(super) public: bool,
}

impl Operation {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// What kind of id its address takes: the collection before the first parameter.
    pub(super) fn collection(&self) -> Option<&str> {
        let (before, _) = self.path.split_once("/{")?;
        before.rsplit('/').next()
    }
}

/// The operations of a document.
pub(super) fn operations(document: &Value) -> anyhow::Result<Vec<Operation>> {
    let paths = document.get("paths").and_then(Value::as_object).context("the document has no paths")?;
    let mut found = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().into_iter().flatten() {
            if !["get", "put", "post", "delete", "patch", "head"].contains(&method.as_str()) {
                continue;
            }
            let parameters = operation.get("parameters").and_then(Value::as_array);
            let in_query = |p: &&Value| p.get("in").and_then(Value::as_str) == Some("query");
            let name = |p: &Value| p.get("name").and_then(Value::as_str).map(ToOwned::to_owned);
            let parameters: Vec<Value> =
                parameters.into_iter().flatten().map(|p| resolved(document, p, 0)).collect();
            let schema = operation.pointer("/requestBody/content/application~1json/schema");
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                query: parameters.iter().filter(in_query).filter_map(name).collect(),
                body: schema.map(|schema| resolved(document, schema, 0)),
                public: !path.starts_with("/v1/"),
            });
        }
    }
    ensure!(found.len() > 4, "the document of the API has only {} operations", found.len());
    Ok(found)
}

/// A schema with its references put in, down to a depth.
fn resolved(document: &Value, schema: &Value, depth: usize) -> Value {
    const DEPTH_MAX: usize = 12;
    if depth > DEPTH_MAX {
        return json!({});
    }
    if let Some(place) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(place.trim_start_matches('#'));
        return target.map_or_else(|| json!({}), |target| resolved(document, target, depth + 1));
    }
    match schema {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), resolved(document, value, depth + 1))).collect()
        }
        Value::Array(list) => list.iter().map(|value| resolved(document, value, depth + 1)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// What stands in a field of a body, by its name; `None` leaves it to its schema.
pub(super) type Fill<'a> = &'a mut dyn FnMut(&str, &mut Dice) -> Option<Value>;

/// A body that the schema allows.
pub(super) fn compose(schema: &Value, name: &str, dice: &mut Dice, fill: Fill<'_>) -> Value {
    if let Some(value) = fill(name, dice) {
        return value;
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema.get(choice).and_then(Value::as_array) {
            let option = dice.pick(options).cloned().unwrap_or_default();
            return compose(&option, name, dice, fill);
        }
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return dice.pick(values).cloned().unwrap_or_default();
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        return object(schema, properties, dice, fill);
    }
    let has = |wanted: &str| match schema.get("type") {
        Some(Value::String(given)) => given == wanted,
        Some(Value::Array(given)) => given.iter().any(|given| given == wanted),
        _ => false,
    };
    if has("string") {
        return match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => json!("2099-01-01T00:00:00Z"),
            _ => schema.get("example").cloned().unwrap_or_else(|| json!("probe")),
        };
    }
    if has("integer") || has("number") {
        return schema.get("minimum").cloned().unwrap_or_else(|| json!(1));
    }
    if has("boolean") {
        return json!(dice.chance(50));
    }
    if has("array") {
        let items = schema.get("items").cloned().unwrap_or_default();
        return json!([compose(&items, name, dice, fill)]);
    }
    if has("object") { json!({}) } else { Value::Null }
}

fn object(schema: &Value, properties: &Map<String, Value>, dice: &mut Dice, fill: Fill<'_>) -> Value {
    let required = schema.get("required").and_then(Value::as_array);
    let mut map = Map::new();
    for (name, property) in properties {
        let needed = required.is_some_and(|names| names.iter().any(|n| n == name.as_str()));
        if needed || dice.chance(20) {
            let value = compose(property, name, dice, fill);
            map.insert(name.clone(), value);
        }
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_document_is_known_and_gets_a_body_with_its_required_fields() {
        let document: Value = serde_json::from_str(&crate::http::openapi_json()).unwrap();
        let all = operations(&document).unwrap();
        let names: Vec<_> = all.iter().map(Operation::name).collect();
        for (method, path, _) in crate::http::routes::ROUTES {
            assert!(names.contains(&format!("{method} {path}")), "{method} {path}");
        }
        let recall = all.iter().find(|o| o.path == "/v1/recall").unwrap();
        let mut dice = Dice::seeded(1, 1);
        let body = compose(recall.body.as_ref().unwrap(), "", &mut dice, &mut |name, _| {
            (name == "question").then(|| json!("What?"))
        });
        assert_eq!(body["question"], "What?");
        let read = all.iter().find(|o| o.name() == "GET /v1/memories/{id}").unwrap();
        assert_eq!((read.collection(), read.public), (Some("memories"), false));
    }
}
