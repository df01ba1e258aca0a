//! Rows in msgpack: the keys `i`, `v` and `p` in any order, as arrays or bins. Features are columns, or names to hash.
//! `docs/reference/formats.md` has the format; `wire/rows/read_any.py` is the reference.

use crate::flatten::{Limits, Rows};
use crate::value::{Left, Result};
use std::fmt::Write;

/// Adds the rows of one message.
pub fn add_rows(message: &[u8], limits: &Limits, out: &mut Rows) -> Result<()> {
    let mut reader = Reader { bytes: message, at: 0 };
    let (mut nnz, mut values, mut pointers) = (None, None, None);
    let fields = reader.byte()?;
    if !(0x81..=0x83).contains(&fields) {
        return Err(Left);
    }
    for _ in 0..fields & 0x0f {
        match reader.take(2)? {
            b"\xa1i" if nnz.is_none() => nnz = Some(add_features(&mut reader, limits, out)?),
            b"\xa1v" if values.is_none() => values = Some(add_values(&mut reader, limits, out)?),
            b"\xa1p" if pointers.is_none() => pointers = Some(read_pointers(&mut reader, limits)?),
            _ => return Err(Left),
        }
    }
    if reader.at != message.len() {
        return Err(Left);
    }
    let nnz = nnz.ok_or(Left)?;
    match values {
        None => out.values.resize(out.hashes.len(), 1.0),
        Some(Values::Packed(bytes)) => add_packed(bytes, nnz, out)?,
        Some(Values::Added(count)) if count == nnz => (),
        Some(Values::Added(_)) => return Err(Left),
    }
    match pointers {
        None => out.lengths.push(nnz as i64),
        Some(pointers) => add_lengths(&pointers, nnz, out)?,
    }
    Ok(())
}

/// What stands in a field: an array of this many elements, or bytes.
enum Field<'a> {
    Array(usize),
    Bin(&'a [u8]),
}

/// Adds columns or names, and returns how many.
fn add_features(reader: &mut Reader<'_>, limits: &Limits, out: &mut Rows) -> Result<usize> {
    let field = reader.field()?;
    let count = match field {
        Field::Array(count) => count,
        Field::Bin(bytes) => bytes.len() / 4,
    };
    if count as u64 > limits.nnz_max {
        return Err(Left);
    }
    match field {
        Field::Bin(bytes) if out.columns_end > 0 => add_packed_columns(bytes, out)?,
        Field::Bin(bytes) => {
            let mut digits = Digits::default();
            words(bytes)?.try_for_each(|number| digits.put(&number, out))?;
        }
        Field::Array(_) if out.columns_end > 0 => add_columns(reader, count, out)?,
        Field::Array(_) => add_names(reader, count, limits, out)?,
    }
    Ok(count)
}

fn add_packed_columns(bytes: &[u8], out: &mut Rows) -> Result<()> {
    let (before, end) = (out.hashes.len(), out.columns_end);
    out.hashes.extend(words(bytes)?.map(|column| column as i32));
    if out.hashes[before..].iter().all(|column| u64::from(*column as u32) < end) { Ok(()) } else { Err(Left) }
}

fn add_columns(reader: &mut Reader<'_>, count: usize, out: &mut Rows) -> Result<()> {
    for _ in 0..count {
        let column = reader.whole()?;
        if column >= out.columns_end {
            return Err(Left);
        }
        out.hashes.push(column as i32); // the end is at most 2^31
    }
    Ok(())
}

fn add_names(reader: &mut Reader<'_>, count: usize, limits: &Limits, out: &mut Rows) -> Result<()> {
    let mut digits = Digits::default();
    for _ in 0..count {
        match reader.element()? {
            Element::Text(text) => {
                if text.len() as u64 > limits.string_bytes_max || std::str::from_utf8(text).is_err() {
                    return Err(Left);
                }
                out.put_name(text);
            }
            Element::Signed(number) => digits.put(&number, out)?,
            Element::Unsigned(number) => digits.put(&number, out)?,
            Element::Float(_) => return Err(Left),
        }
    }
    Ok(())
}

/// Numbers as names.
#[derive(Default)]
struct Digits(String);

impl Digits {
    fn put(&mut self, number: &dyn std::fmt::Display, out: &mut Rows) -> Result<()> {
        self.0.clear();
        write!(self.0, "{number}").map_err(|_| Left)?;
        out.put_name(self.0.as_bytes());
        Ok(())
    }
}

/// The values of a message: added already, or packed in a width that the number of features decides.
enum Values<'a> {
    Added(usize),
    Packed(&'a [u8]),
}

fn add_values<'a>(reader: &mut Reader<'a>, limits: &Limits, out: &mut Rows) -> Result<Values<'a>> {
    let count = match reader.field()? {
        Field::Bin(bytes) => return Ok(Values::Packed(bytes)),
        Field::Array(count) => count,
    };
    if count as u64 > limits.nnz_max {
        return Err(Left);
    }
    for _ in 0..count {
        out.values.push(match reader.element()? {
            Element::Signed(number) => number as f64,
            Element::Unsigned(number) => number as f64,
            Element::Float(number) => number,
            Element::Text(_) => return Err(Left),
        });
    }
    Ok(Values::Added(count))
}

fn add_packed(bytes: &[u8], nnz: usize, out: &mut Rows) -> Result<()> {
    if bytes.len() == 8 * nnz {
        out.values.extend(bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())));
    } else if bytes.len() == 4 * nnz {
        let singles = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default()));
        out.values.extend(singles.map(f64::from));
    } else {
        return Err(Left);
    }
    Ok(())
}

fn read_pointers(reader: &mut Reader<'_>, limits: &Limits) -> Result<Vec<u64>> {
    let most = limits.rows_max.saturating_add(1);
    match reader.field()? {
        Field::Bin(bytes) if bytes.len() as u64 / 4 <= most => Ok(words(bytes)?.map(u64::from).collect()),
        Field::Array(count) if count as u64 <= most => (0..count).map(|_| reader.whole()).collect(),
        _ => Err(Left),
    }
}

/// The features of each row, from the row pointers.
fn add_lengths(pointers: &[u64], nnz: usize, out: &mut Rows) -> Result<()> {
    if (pointers.first().copied(), pointers.last().copied()) != (Some(0), Some(nnz as u64)) {
        return Err(Left);
    }
    for pair in pointers.windows(2) {
        out.lengths.push(pair[1].checked_sub(pair[0]).ok_or(Left)? as i64);
    }
    Ok(())
}

/// Packed 32-bit integers.
fn words(bytes: &[u8]) -> Result<impl Iterator<Item = u32> + '_> {
    if bytes.len() % 4 != 0 {
        return Err(Left);
    }
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])))
}

enum Element<'a> {
    Text(&'a [u8]),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(Left)?;
        let found = self.bytes.get(self.at..end).ok_or(Left)?;
        self.at = end;
        Ok(found)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Left)
    }

    fn byte(&mut self) -> Result<u8> {
        let [byte] = self.bytes()?;
        Ok(byte)
    }

    /// An unsigned number, of which the kind says in how many bytes it stands: 1, 2, 4 or 8.
    fn number(&mut self, kind: u8) -> Result<u64> {
        Ok(match kind & 3 {
            0 => u64::from(self.byte()?),
            1 => u64::from(u16::from_be_bytes(self.bytes()?)),
            2 => u64::from(u32::from_be_bytes(self.bytes()?)),
            _ => u64::from_be_bytes(self.bytes()?),
        })
    }

    fn size(&mut self, kind: u8) -> Result<usize> {
        usize::try_from(self.number(kind)?).map_err(|_| Left)
    }

    fn field(&mut self) -> Result<Field<'a>> {
        let kind = self.byte()?;
        Ok(match kind {
            0x90..=0x9f => Field::Array(usize::from(kind & 0x0f)),
            0xdc | 0xdd => Field::Array(self.size(kind - 0xdb)?),
            0xc4..=0xc6 => {
                let size = self.size(kind - 0xc4)?;
                Field::Bin(self.take(size)?)
            }
            _ => return Err(Left),
        })
    }

    /// A number that is not negative.
    fn whole(&mut self) -> Result<u64> {
        match self.element()? {
            Element::Unsigned(number) => Ok(number),
            Element::Signed(number) => u64::try_from(number).map_err(|_| Left),
            _ => Err(Left),
        }
    }

    #[inline]
    fn element(&mut self) -> Result<Element<'a>> {
        let kind = self.byte()?;
        Ok(match kind {
            0x00..=0x7f => Element::Unsigned(u64::from(kind)),
            0xe0..=0xff => Element::Signed(i64::from(kind as i8)),
            0xa0..=0xbf => Element::Text(self.take(usize::from(kind & 0x1f))?),
            0xd9..=0xdb => {
                let size = self.size(kind - 0xd9)?;
                Element::Text(self.take(size)?)
            }
            0xca => Element::Float(f64::from(f32::from_be_bytes(self.bytes()?))),
            0xcb => Element::Float(f64::from_be_bytes(self.bytes()?)),
            0xcc..=0xcf => Element::Unsigned(self.number(kind - 0xcc)?),
            0xd0 => Element::Signed(i64::from(i8::from_be_bytes(self.bytes()?))),
            0xd1 => Element::Signed(i64::from(i16::from_be_bytes(self.bytes()?))),
            0xd2 => Element::Signed(i64::from(i32::from_be_bytes(self.bytes()?))),
            0xd3 => Element::Signed(i64::from_be_bytes(self.bytes()?)),
            _ => return Err(Left),
        })
    }
}
