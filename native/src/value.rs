//! What the readers of all formats make of a message, and what the flattening takes.

use std::borrow::Cow;

/// A decoded value. Texts without escapes are borrowed from the message.
#[derive(Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes, // which make no feature
    List(Vec<Value<'a>>),
    Object(Fields<'a>),
}

/// The fields of an object, sorted by name, no name twice.
pub type Fields<'a> = Vec<(Cow<'a, str>, Value<'a>)>;

/// This decoder does not take the message: the reference in Python reads it, and finds the words if it is bad.
#[derive(Debug, PartialEq, Clone, Copy)]
pub struct Left;

pub type Result<T> = std::result::Result<T, Left>;

/// The value as a number; booleans are 0 and 1, as in Python.
impl Value<'_> {
    pub fn number(&self) -> Option<f64> {
        match *self {
            Value::Bool(flag) => Some(f64::from(u8::from(flag))),
            Value::Int(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }
}

/// Sorts the fields as Python sorts texts. Takes no object that has a name twice.
pub fn sorted(mut fields: Fields<'_>) -> Result<Fields<'_>> {
    if !fields.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        fields.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        if fields.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Left);
        }
    }
    Ok(fields)
}
