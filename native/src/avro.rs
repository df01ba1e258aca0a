//! Avro without a file header, by the writer's schema. Takes no logical types and no numbers above 64 bits.

use crate::plan::{get, items, text};
use crate::value::{sorted, Left, Result, Value};
use std::borrow::Cow;

/// A schema whose names are resolved, as `from_avro.py` describes it: the types have no cycles.
#[derive(Debug)]
pub enum Schema {
    Null,
    Boolean,
    Whole,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    Array(Box<Schema>),
    Map(Box<Schema>),
    Union(Vec<Schema>),
    Record(Vec<(String, Schema)>),
}

impl Schema {
    pub fn parse(described: &Value<'_>) -> Result<Schema> {
        if let Value::Text(name) = described {
            return Ok(match &**name {
                "null" => Schema::Null,
                "boolean" => Schema::Boolean,
                "int" | "long" => Schema::Whole,
                "float" => Schema::Float,
                "double" => Schema::Double,
                "bytes" => Schema::Bytes,
                "string" => Schema::Text,
                _ => return Err(Left),
            });
        }
        let part = |name| get(described, name);
        if let Some(Value::Int(size)) = part("fixed") {
            return Ok(Schema::Fixed(usize::try_from(*size).map_err(|_| Left)?));
        }
        if let Some(element) = part("array") {
            return Ok(Schema::Array(Box::new(Schema::parse(element)?)));
        }
        if let Some(value) = part("map") {
            return Ok(Schema::Map(Box::new(Schema::parse(value)?)));
        }
        if let Some(symbols) = part("enum") {
            return Ok(Schema::Enum(items(Some(symbols))?.iter().map(text).collect::<Result<_>>()?));
        }
        if let Some(branches) = part("union") {
            return Ok(Schema::Union(items(Some(branches))?.iter().map(Schema::parse).collect::<Result<_>>()?));
        }
        let fields = items(Some(part("record").ok_or(Left)?))?;
        fields.iter().map(Schema::field).collect::<Result<_>>().map(Schema::Record)
    }

    fn field(described: &Value<'_>) -> Result<(String, Schema)> {
        match items(Some(described))? {
            [name, kind] => Ok((text(name)?, Schema::parse(kind)?)),
            _ => Err(Left),
        }
    }
}

pub fn read_avro<'a>(schema: &'a Schema, message: &'a [u8]) -> Result<Value<'a>> {
    let mut reader = Reader { bytes: message, at: 0 };
    let value = reader.value(schema)?;
    if reader.at == message.len() {
        Ok(value)
    } else {
        Err(Left)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, schema: &'a Schema) -> Result<Value<'a>> {
        Ok(match schema {
            Schema::Null => Value::Null,
            Schema::Boolean => match self.take(1)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Left),
            },
            Schema::Whole => Value::Int(self.long()?),
            Schema::Float => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            Schema::Double => Value::Float(f64::from_le_bytes(self.array()?)),
            Schema::Bytes => {
                let size = self.size()?;
                self.take(size)?;
                Value::Bytes
            }
            Schema::Fixed(size) => {
                self.take(*size)?;
                Value::Bytes
            }
            Schema::Text => Value::Text(Cow::Borrowed(self.text()?)),
            Schema::Enum(symbols) => Value::Text(Cow::Borrowed(symbols.get(self.size()?).ok_or(Left)?)),
            Schema::Union(branches) => self.union(branches)?,
            Schema::Array(element) => Value::List(self.blocks(|reader| reader.value(element))?),
            Schema::Map(value) => {
                let pairs = self.blocks(|reader| Ok((Cow::Borrowed(reader.text()?), reader.value(value)?)))?;
                Value::Object(sorted(pairs)?)
            }
            Schema::Record(fields) => {
                let pair = |(name, kind): &'a (String, Schema)| Ok((Cow::Borrowed(&**name), self.value(kind)?));
                Value::Object(sorted(fields.iter().map(pair).collect::<Result<_>>()?)?)
            }
        })
    }

    fn union(&mut self, branches: &'a [Schema]) -> Result<Value<'a>> {
        let branch = self.size()?;
        self.value(branches.get(branch).ok_or(Left)?)
    }

    /// The elements of an array or a map, which come in counted blocks. No count is believed before its elements.
    fn blocks<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(found);
            }
            if count < 0 {
                count = count.checked_neg().ok_or(Left)?;
                self.long()?; // its size in bytes
            }
            for _ in 0..count {
                found.push(read(self)?);
            }
        }
    }

    fn text(&mut self) -> Result<&'a str> {
        let size = self.size()?;
        std::str::from_utf8(self.take(size)?).map_err(|_| Left)
    }

    fn size(&mut self) -> Result<usize> {
        usize::try_from(self.long()?).map_err(|_| Left)
    }

    /// A number in zigzag and groups of seven bits.
    fn long(&mut self) -> Result<i64> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err(Left)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Left)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(Left)?;
        let found = self.bytes.get(self.at..end).ok_or(Left)?;
        self.at = end;
        Ok(found)
    }
}
