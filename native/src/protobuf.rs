//! Protobuf by its descriptors. Takes messages in which no field that is not repeated stands twice, no groups, and no
//! field whose type has a meaning of its own (timestamps and their like).

use crate::plan::{get, items, text};
use crate::value::{sorted, Left, Result, Value};
use std::borrow::Cow;
use std::collections::HashMap;

const DEPTH_MAX: usize = 64;

/// The messages of a schema, as `from_protobuf.py` describes them; the first one is that of the records.
#[derive(Debug)]
pub struct Schema {
    messages: Vec<Vec<Field>>, // the fields sorted by their numbers
}

#[derive(Debug)]
struct Field {
    number: u64,
    name: String,
    kind: Kind,
    repeated: bool,
    implicit: bool, // without presence: a zero is no value
    oneof: Option<i64>,
}

#[derive(Debug)]
enum Kind {
    Double,
    Float,
    Int64,
    Unsigned64,
    Int32,
    Unsigned32,
    Zigzag32,
    Zigzag64,
    Fixed64,
    SignedFixed64,
    Fixed32,
    SignedFixed32,
    Bool,
    Text,
    Bytes,
    Enum(HashMap<i32, String>),
    OpenEnum(HashMap<i32, String>),
    Message(usize),
    Map(usize),
    Unknown,
}

const VARINT: u64 = 0;
const WIDE: u64 = 1;
const SIZED: u64 = 2;
const NARROW: u64 = 5;

impl Schema {
    pub fn parse(described: &Value<'_>) -> Result<Schema> {
        let messages = items(Some(described))?;
        let fields = |message| items(Some(message))?.iter().map(Field::parse).collect::<Result<Vec<_>>>();
        let mut schema = Schema { messages: messages.iter().map(fields).collect::<Result<_>>()? };
        let count = schema.messages.len();
        for message in &mut schema.messages {
            message.sort_by_key(|field| field.number);
            let leads_nowhere = |field: &Field| matches!(field.kind, Kind::Message(at) | Kind::Map(at) if at >= count);
            if message.iter().any(leads_nowhere) {
                return Err(Left);
            }
        }
        if count > 0 {
            Ok(schema)
        } else {
            Err(Left)
        }
    }
}

impl Field {
    fn parse(described: &Value<'_>) -> Result<Field> {
        let flag = |name| matches!(get(described, name), Some(Value::Bool(true)));
        let number = match get(described, "number") {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| Left)?,
            _ => return Err(Left),
        };
        Ok(Field {
            number,
            name: text(get(described, "name").ok_or(Left)?)?,
            kind: Kind::parse(described)?,
            repeated: flag("repeated"),
            implicit: flag("implicit"),
            oneof: match get(described, "oneof") {
                Some(Value::Int(oneof)) => Some(*oneof),
                _ => None,
            },
        })
    }
}

impl Kind {
    fn parse(described: &Value<'_>) -> Result<Kind> {
        let to = || match get(described, "to") {
            Some(Value::Int(at)) => usize::try_from(*at).map_err(|_| Left),
            _ => Err(Left),
        };
        Ok(match &*text(get(described, "kind").ok_or(Left)?)? {
            "double" => Kind::Double,
            "float" => Kind::Float,
            "int64" => Kind::Int64,
            "uint64" => Kind::Unsigned64,
            "int32" => Kind::Int32,
            "uint32" => Kind::Unsigned32,
            "sint32" => Kind::Zigzag32,
            "sint64" => Kind::Zigzag64,
            "fixed64" => Kind::Fixed64,
            "sfixed64" => Kind::SignedFixed64,
            "fixed32" => Kind::Fixed32,
            "sfixed32" => Kind::SignedFixed32,
            "bool" => Kind::Bool,
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "enum" => Kind::Enum(symbols(described)?),
            "open enum" => Kind::OpenEnum(symbols(described)?),
            "message" => Kind::Message(to()?),
            "map" => Kind::Map(to()?),
            _ => Kind::Unknown,
        })
    }

    /// Whether the value is the one that a field without presence has when it is not in the message.
    fn is_zero(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Kind::Enum(symbols) | Kind::OpenEnum(symbols), Value::Text(name)) => {
                symbols.get(&0).map_or(false, |zero| zero == name)
            }
            (_, Value::Text(text)) => text.is_empty(),
            (_, Value::Float(number)) => number.to_bits() == 0,
            (_, value) => value.number() == Some(0.0),
        }
    }

    /// How a value that stands alone is written.
    fn wire(&self) -> Option<u64> {
        match self {
            Kind::Double | Kind::Fixed64 | Kind::SignedFixed64 => Some(WIDE),
            Kind::Float | Kind::Fixed32 | Kind::SignedFixed32 => Some(NARROW),
            Kind::Text | Kind::Bytes | Kind::Message(_) | Kind::Map(_) => Some(SIZED),
            Kind::Unknown => None,
            _ => Some(VARINT),
        }
    }
}

fn symbols(described: &Value<'_>) -> Result<HashMap<i32, String>> {
    let pairs = items(get(described, "symbols"))?.iter().map(|pair| match items(Some(pair))? {
        [Value::Int(number), name] => Ok((i32::try_from(*number).map_err(|_| Left)?, text(name)?)),
        _ => Err(Left),
    });
    pairs.collect()
}

pub fn read_protobuf<'a>(schema: &'a Schema, message: &'a [u8]) -> Result<Value<'a>> {
    read_message(schema, &schema.messages[0], message, 0)
}

fn read_message<'a>(schema: &'a Schema, fields: &'a [Field], message: &'a [u8], depth: usize) -> Result<Value<'a>> {
    if depth > DEPTH_MAX {
        return Err(Left);
    }
    let mut found = Found { fields, values: fields.iter().map(|_| None).collect() };
    let mut reader = Reader { schema, bytes: message, at: 0, depth };
    while reader.at < message.len() {
        let key = reader.short()?;
        if key >> 3 == 0 {
            return Err(Left);
        }
        match fields.binary_search_by_key(&(key >> 3), |field| field.number) {
            Ok(place) => reader.field(key & 7, place, &mut found)?,
            Err(_) => reader.skip(key & 7)?,
        }
    }
    found.object()
}

/// The fields of a message as they are read: none, a value, or the values of a repeated one.
struct Found<'a> {
    fields: &'a [Field],
    values: Vec<Option<Value<'a>>>,
}

impl<'a> Found<'a> {
    fn put(&mut self, place: usize, value: Value<'a>) -> Result<()> {
        let field = &self.fields[place];
        if matches!(field.kind, Kind::Map(_)) {
            if let Value::Object(entry) = value {
                match self.values[place].get_or_insert_with(|| Value::Object(Vec::new())) {
                    Value::Object(entries) => entries.extend(entry),
                    _ => return Err(Left),
                }
            }
        } else if field.repeated {
            match self.values[place].get_or_insert_with(|| Value::List(Vec::new())) {
                Value::List(items) => items.push(value),
                _ => return Err(Left),
            }
        } else if self.values[place].is_some() || self.has_other_of(field.oneof, place) {
            return Err(Left);
        } else {
            self.values[place] = Some(value);
        }
        Ok(())
    }

    fn has_other_of(&self, oneof: Option<i64>, place: usize) -> bool {
        let other = |at: usize| at != place && self.fields[at].oneof == oneof && self.values[at].is_some();
        oneof.is_some() && (0..self.fields.len()).any(other)
    }

    fn object(self) -> Result<Value<'a>> {
        let mut pairs = Vec::with_capacity(self.fields.len());
        for (field, value) in self.fields.iter().zip(self.values) {
            match value {
                None => {}
                Some(Value::Object(entries)) if matches!(field.kind, Kind::Map(_)) => {
                    pairs.push((Cow::Borrowed(&*field.name), Value::Object(sorted(entries)?)));
                }
                Some(value) if field.implicit && field.kind.is_zero(&value) => {}
                Some(value) => pairs.push((Cow::Borrowed(&*field.name), value)),
            }
        }
        sorted(pairs).map(Value::Object)
    }
}

struct Reader<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn field(&mut self, wire: u64, place: usize, found: &mut Found<'a>) -> Result<()> {
        let fields = found.fields;
        let field = &fields[place];
        let alone = field.kind.wire().ok_or(Left)?;
        if wire == alone {
            let value = self.value(&field.kind)?;
            return found.put(place, value);
        }
        if !(field.repeated && wire == SIZED) {
            return Err(Left);
        }
        let end = self.end()?;
        while self.at < end {
            let value = self.value(&field.kind)?;
            found.put(place, value)?;
        }
        if self.at == end {
            Ok(())
        } else {
            Err(Left)
        }
    }

    fn value(&mut self, kind: &'a Kind) -> Result<Value<'a>> {
        Ok(match kind {
            Kind::Double => Value::Float(f64::from_bits(self.wide()?)),
            Kind::Float => Value::Float(f64::from(f32::from_bits(self.narrow()?))),
            Kind::Int64 => Value::Int(self.varint()? as i64),
            Kind::Unsigned64 => Value::Int(i64::try_from(self.varint()?).map_err(|_| Left)?),
            Kind::Int32 => Value::Int(i64::from(self.varint()? as i32)),
            Kind::Unsigned32 => Value::Int(i64::from(self.varint()? as u32)),
            Kind::Zigzag32 => {
                let number = self.varint()? as u32;
                Value::Int(i64::from((number >> 1) as i32 ^ -((number & 1) as i32)))
            }
            Kind::Zigzag64 => {
                let number = self.varint()?;
                Value::Int((number >> 1) as i64 ^ -((number & 1) as i64))
            }
            Kind::Fixed64 => Value::Int(i64::try_from(self.wide()?).map_err(|_| Left)?),
            Kind::SignedFixed64 => Value::Int(self.wide()? as i64),
            Kind::Fixed32 => Value::Int(i64::from(self.narrow()?)),
            Kind::SignedFixed32 => Value::Int(i64::from(self.narrow()? as i32)),
            Kind::Bool => Value::Bool(self.varint()? != 0),
            Kind::Text => Value::Text(Cow::Borrowed(std::str::from_utf8(self.sized()?).map_err(|_| Left)?)),
            Kind::Bytes => {
                self.sized()?;
                Value::Bytes
            }
            Kind::Enum(symbols) => {
                let number = self.varint()? as i32;
                Value::Text(Cow::Borrowed(symbols.get(&number).ok_or(Left)?))
            }
            Kind::OpenEnum(symbols) => {
                let number = self.varint()? as i32;
                let name = symbols.get(&number).map(|name| Cow::Borrowed(&**name));
                Value::Text(name.unwrap_or_else(|| Cow::Owned(number.to_string())))
            }
            Kind::Message(to) => read_message(self.schema, &self.schema.messages[*to], self.sized()?, self.depth + 1)?,
            Kind::Map(to) => self.entry(&self.schema.messages[*to])?,
            Kind::Unknown => return Err(Left),
        })
    }

    /// An entry of a map, as an object of one field.
    fn entry(&mut self, fields: &'a [Field]) -> Result<Value<'a>> {
        let bytes = self.sized()?;
        let mut entry = Reader { schema: self.schema, bytes, at: 0, depth: self.depth + 1 };
        let (mut key, mut value) = (None, None);
        while entry.at < bytes.len() {
            let (slot, field) = match (entry.short()?, fields) {
                (head, [field, _]) if Some(head) == field.kind.wire().map(|wire| 8 + wire) => (&mut key, field),
                (head, [_, field]) if Some(head) == field.kind.wire().map(|wire| 16 + wire) => (&mut value, field),
                _ => return Err(Left),
            };
            if slot.replace(entry.value(&field.kind)?).is_some() {
                return Err(Left);
            }
        }
        let name = match key.ok_or(Left)? {
            Value::Text(name) => name,
            Value::Int(number) => Cow::Owned(number.to_string()),
            _ => return Err(Left),
        };
        Ok(Value::Object(vec![(name, value.ok_or(Left)?)]))
    }

    fn skip(&mut self, wire: u64) -> Result<()> {
        match wire {
            VARINT => self.varint().map(drop),
            WIDE => self.wide().map(drop),
            SIZED => self.sized().map(drop),
            NARROW => self.narrow().map(drop),
            _ => Err(Left),
        }
    }

    fn end(&mut self) -> Result<usize> {
        let size = usize::try_from(self.short()?).map_err(|_| Left)?;
        let end = self.at.checked_add(size).ok_or(Left)?;
        if end <= self.bytes.len() {
            Ok(end)
        } else {
            Err(Left)
        }
    }

    fn sized(&mut self) -> Result<&'a [u8]> {
        let end = self.end()?;
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn wide(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn narrow(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = self.at.checked_add(N).ok_or(Left)?;
        let found = self.bytes.get(self.at..end).ok_or(Left)?;
        self.at = end;
        found.try_into().map_err(|_| Left)
    }

    /// A head or a size: at most 32 bits in 5 bytes. The library refuses longer ones, of unknown fields too.
    fn short(&mut self) -> Result<u64> {
        let from = self.at;
        let number = self.varint()?;
        if number > u64::from(u32::MAX) || self.at - from > 5 {
            return Err(Left);
        }
        Ok(number)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.array::<1>()?[0];
            if shift == 63 && byte > 1 {
                return Err(Left);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Left)
    }
}
