//! JSON from outside, read strictly (I-15): bounded depth, no key twice, no unknown field, and every
//! refusal names the field by its path. The refusals are made here from our own field names and closed
//! lists only; what was sent is never part of them (R-110), which is why the stock messages are not used.

use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use super::problem::{Code, FieldError, Problem};

/// The deepest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 32;

/// Reads a body. It is public because it is the first to touch the bytes of a stranger: the fuzzer starts here.
///
/// # Errors
/// Problems `malformed_json`, `too_deep` or `invalid`.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if is_too_deep(bytes) {
        return Err(Problem::of(Code::TOO_DEEP));
    }
    let tree: Tree = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
    read(tree.0).map_err(|error| error.or_at("body").into())
}

/// Reads a tree whose strings came from a query: the same strictness, the same refusals.
///
/// # Errors
/// [`FieldError`].
pub(super) fn read<T: DeserializeOwned>(tree: Value) -> Result<T, FieldError> {
    T::deserialize(Node(tree)).map_err(|refusal| FieldError::new(refusal.path, refusal.reason))
}

fn malformed(error: &serde_json::Error) -> Problem {
    // A tree accepts every value, so a complaint about data can only be that of a doubled key.
    let why = if error.is_data() { "an object names the same key twice" } else { "not JSON" };
    let (line, column) = (error.line(), error.column());
    Problem::detailed(Code::MALFORMED_JSON, format!("{why}, at line {line} column {column}"))
}

/// Whether arrays and objects nest too deeply, found without recursion.
fn is_too_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// Any JSON value without doubled keys.
struct Tree(Value);

impl<'de> de::Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Tree(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Tree(value))) = access.next_entry::<String, Tree>()? {
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("doubled key"));
            }
        }
        Ok(Value::Object(map))
    }
}

/// Why a tree is not the wanted shape, and where.
#[derive(Debug)]
struct Refusal {
    path: String,
    reason: String,
}

impl Refusal {
    fn here(reason: String) -> Self {
        Self { path: String::new(), reason }
    }

    fn within(self, outer: &str) -> Self {
        let FieldError { field, detail } = FieldError::new(self.path, self.reason).within(outer);
        Self { path: field, reason: detail }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self::here(reason.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::here(format!("must be {}", in_words(&expected.to_string())))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::here(format!("must be {}", in_words(&expected.to_string())))
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Self::here(format!("must be {}", in_words(&expected.to_string())))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::here(format!("must be one of {}", expected.join(", ")))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::here(format!("has an unknown field; the fields are {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: field.to_owned(), reason: "is missing".to_owned() }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self { path: field.to_owned(), reason: "is given twice".to_owned() }
    }
}

/// What the deriving code expects, without names of types of this program.
fn in_words(expected: &str) -> &str {
    match expected {
        "u16" | "u32" | "u64" => "a whole number in range",
        "a boolean" | "a string" | "a sequence" | "a map" => expected,
        _ if expected.starts_with("struct") => "an object",
        _ => "of another form",
    }
}

/// A tree as serde sees it.
struct Node(Value);

impl<'de> Deserializer<'de> for Node {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(value) => match (value.as_u64(), value.as_i64(), value.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, value) => visitor.visit_f64(value.unwrap_or(f64::NAN)),
            },
            Value::String(value) => visitor.visit_string(value),
            Value::Array(values) => visitor.visit_seq(Elements { values: values.into_iter(), index: 0 }),
            Value::Object(map) => visitor.visit_map(Fields { entries: map.into_iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        // The deriving code would take the values of an array for the fields, one after the other.
        if self.0.is_array() {
            return Err(Refusal::here("must be an object".to_owned()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let choice = match self.0 {
            Value::String(variant) => Some(Choice { variant, value: None }),
            Value::Object(map) if map.len() == 1 => {
                map.into_iter().next().map(|(variant, value)| Choice { variant, value: Some(value) })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        };
        visitor.visit_enum(choice.ok_or_else(|| Refusal::unknown_variant("", variants))?)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Elements {
    values: std::vec::IntoIter<Value>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Elements {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refusal> {
        let Some(value) = self.values.next() else { return Ok(None) };
        let at = format!("[{}]", self.index);
        self.index += 1;
        seed.deserialize(Node(value)).map(Some).map_err(|refusal| refusal.within(&at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}

struct Fields {
    entries: serde_json::map::IntoIter,
    current: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        // A refused key is not one of ours, so it does not become part of the path.
        let found = seed.deserialize(key.as_str().into_deserializer())?;
        self.current = Some((key, value));
        Ok(Some(found))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        // INVARIANT: R-110, the key is one of our field names: the seed above has accepted it, and free
        // maps hold values of any form, which are never refused.
        let (key, value) = self.current.take().unwrap_or_default();
        seed.deserialize(Node(value)).map_err(|refusal| refusal.within(&key))
    }
}

struct Choice {
    variant: String,
    value: Option<Value>,
}

impl<'de> EnumAccess<'de> for Choice {
    type Error = Refusal;
    type Variant = Chosen;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Chosen), Refusal> {
        let found = seed.deserialize(self.variant.as_str().into_deserializer())?;
        Ok((found, Chosen { variant: self.variant, value: self.value }))
    }
}

struct Chosen {
    variant: String,
    value: Option<Value>,
}

impl<'de> VariantAccess<'de> for Chosen {
    type Error = Refusal;

    fn unit_variant(self) -> Result<(), Refusal> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(Refusal::here("must be a string".to_owned())),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refusal> {
        let value = self.value.ok_or_else(|| Refusal::here("must be an object".to_owned()))?;
        seed.deserialize(Node(value)).map_err(|refusal| refusal.within(&self.variant))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::here("must be a string".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::here("must be a string".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        n: u16,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Choose {
        Plain,
        Named(String),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
        choice: Option<Choose>,
        free: Option<Map<String, Value>>,
    }

    fn refused(json: &str) -> (String, String) {
        let tree: Tree = serde_json::from_str(json).unwrap();
        let error = read::<Outer>(tree.0).unwrap_err();
        (error.field, error.detail)
    }

    #[test]
    fn what_fits_is_read() {
        let read: Outer =
            parse(br#"{"list":[{"n":1}],"choice":{"named":"x"},"free":{"a":[1.5,null]}}"#).unwrap();
        assert_eq!(read.list, [Inner { n: 1 }]);
        assert_eq!(read.choice, Some(Choose::Named("x".to_owned())));
        let read: Outer = parse(br#"{"list":[],"choice":"plain","free":null}"#).unwrap();
        assert_eq!(read.choice, Some(Choose::Plain));
    }

    #[test]
    fn a_refusal_names_the_field_by_its_path() {
        assert_eq!(refused(r#"{"list":[{"n":1},{"n":-1}]}"#).0, "list[1].n");
        assert_eq!(refused(r#"{"list":[{"n":1},{}]}"#), ("list[1].n".into(), "is missing".into()));
        assert_eq!(refused(r#"{"list":3}"#), ("list".into(), "must be a sequence".into()));
        assert_eq!(
            refused(r#"{"list":[{"n":"SECRET"}]}"#),
            ("list[0].n".into(), "must be a whole number in range".into())
        );
        assert_eq!(refused(r#"{"list":[],"choice":{"named":1}}"#).0, "choice.named");
    }

    #[test]
    fn an_array_is_no_object_although_its_values_would_fit_the_fields() {
        let at = |field: &str| (field.to_owned(), "must be an object".to_owned());
        assert_eq!(refused(r#"[[], null, null]"#), at(""));
        assert_eq!(refused("[]"), at(""));
        assert_eq!(refused(r#"{"list":[{"n":1},[1]]}"#), at("list[1]"));
    }

    #[test]
    fn r_110_a_refusal_never_repeats_what_was_sent() {
        for json in [
            r#"{"SECRET":1}"#,
            r#"{"list":[{"n":1,"SECRET":2}]}"#,
            r#"{"list":"SECRET"}"#,
            r#"{"list":[],"choice":"SECRET"}"#,
            r#"{"list":[],"choice":{"SECRET":1}}"#,
            r#"{"list":[],"choice":{"plain":"SECRET"}}"#,
            r#"{"list":[],"free":["SECRET"]}"#,
            r#"["SECRET"]"#,
        ] {
            let (field, reason) = refused(json);
            assert!(!field.contains("SECRET") && !reason.contains("SECRET"), "{field}: {reason}");
        }
    }

    #[test]
    fn doubled_keys_and_deep_nesting_are_refused() {
        let code = |bytes: &[u8]| parse::<Outer>(bytes).unwrap_err().code();
        assert_eq!(code(br#"{"list":[],"list":[]}"#), Code::MALFORMED_JSON);
        assert_eq!(code(br#"{"list":[],"free":{"a":{"b":1,"b":2}}}"#), Code::MALFORMED_JSON);
        assert_eq!(code(b"{\"list\":[\xff]}"), Code::MALFORMED_JSON);
        assert_eq!(parse::<Outer>(b"{\"nobody\":1}").unwrap_err(), {
            let detail = "has an unknown field; the fields are list, choice, free";
            FieldError::new("body", detail).into()
        });
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(code(deep.as_bytes()), Code::TOO_DEEP);
        let quoted = format!(r#"{{"list":[],"free":{{"a":"{}"}}}}"#, "[\\\"".repeat(100));
        assert!(parse::<Outer>(quoted.as_bytes()).is_ok());
    }
}
