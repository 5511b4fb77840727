//! JSON into the values that templates see. Owns the one pass over a subtree; key order is kept and the last of
//! a repeated key wins, as in Python's `json`; must refuse a number that Python would write otherwise.

use crate::decline::Decline;
use minijinja::value::Value;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// What a number's refusal is recognized by.
const NUMBER: &str = "a number of unknown form";

struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Reader).map(Json)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    /// From 2^63 on an integer, which Python would keep, comes as a float too, and so does -0, which is 0 there.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let is_minus_zero = value == 0.0 && value.is_sign_negative();
        if value.abs() < 9.3e18 && !is_minus_zero { Ok(Value::from(value)) } else { Err(E::custom(NUMBER)) }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Json(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, Json(value))) = entries.next_entry::<String, Json>()? {
            map.push((Value::from(key), value));
        }
        Ok(map.into_iter().collect())
    }
}

/// The value of a subtree of a body that has passed `peek`.
pub(crate) fn value(json: &[u8]) -> Result<Value, Decline> {
    serde_json::from_slice::<Json>(json).map(|json| json.0).map_err(|fault| {
        if fault.to_string().starts_with(NUMBER) { Decline::Number } else { Decline::LoneSurrogate }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_the_last_of_a_name_wins() {
        let read = value(br#"{"b": 1, "a": [true, null, -2, 0.5], "b": "x"}"#).expect("JSON");
        let keys: Vec<String> = read.try_iter().expect("a map").map(|key| key.to_string()).collect();
        assert_eq!(keys, ["b", "a"]);
        assert_eq!(read.get_attr("b").expect("a member").as_str(), Some("x"));
    }

    #[test]
    fn what_python_would_write_otherwise_is_refused() {
        assert_eq!(value(b"100000000000000000000").err(), Some(Decline::Number));
        assert_eq!(value(b"[1e20]").err(), Some(Decline::Number));
        assert_eq!(value(b"-0").err(), Some(Decline::Number));
        assert_eq!(value(br#""\ud800""#).err(), Some(Decline::LoneSurrogate));
        assert_eq!(value(b"18446744073709551615").expect("u64").to_string(), "18446744073709551615");
    }
}
