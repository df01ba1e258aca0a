//! Rows in msgpack whose features are hashed: the keys `i`, `v` and `p` in any order, as arrays or bins.
//! `docs/reference/formats.md` has the format; `wire/row_general.py` is the reference.

use crate::flatten::{Limits, Rows};
use crate::value::{Left, Result};
use std::fmt::Write;

/// Adds the rows of one message.
pub fn add_rows(message: &[u8], limits: &Limits, out: &mut Rows) -> Result<()> {
    let mut reader = Reader { bytes: message, at: 0 };
    let (mut indices, mut values, mut pointers) = (None, None, None);
    let fields = reader.byte()?;
    if !(0x81..=0x83).contains(&fields) {
        return Err(Left);
    }
    for _ in 0..fields & 0x0f {
        let field = match reader.take(2)? {
            b"\xa1i" => &mut indices,
            b"\xa1v" => &mut values,
            b"\xa1p" => &mut pointers,
            _ => return Err(Left),
        };
        if field.is_some() {
            return Err(Left);
        }
        *field = Some(reader.field()?);
    }
    if reader.at != message.len() {
        return Err(Left);
    }
    let indices = indices.ok_or(Left)?;
    if indices.count as u64 > limits.nnz_max {
        return Err(Left);
    }
    add_names(&indices, limits, out)?;
    add_values(values, indices.count, out)?;
    add_lengths(pointers, indices.count, limits, out)
}

/// The elements of an array, or the bytes of a bin if it is packed.
struct Field<'a> {
    bytes: &'a [u8],
    count: usize,
    packed: bool,
}

fn add_names(field: &Field<'_>, limits: &Limits, out: &mut Rows) -> Result<()> {
    let mut digits = String::new();
    let mut put_number = |number: &dyn std::fmt::Display, out: &mut Rows| {
        digits.clear();
        write!(digits, "{number}").map_err(|_| Left)?;
        out.put_name(digits.as_bytes());
        Ok(())
    };
    if field.packed {
        return words(field.bytes)?.try_for_each(|number| put_number(&number, out));
    }
    let mut reader = Reader { bytes: field.bytes, at: 0 };
    for _ in 0..field.count {
        match reader.element()? {
            Element::Text(text) => {
                if text.len() as u64 > limits.string_bytes_max || std::str::from_utf8(text).is_err() {
                    return Err(Left);
                }
                out.put_name(text);
            }
            Element::Signed(number) => put_number(&number, out)?,
            Element::Unsigned(number) => put_number(&number, out)?,
            Element::Float(_) => return Err(Left),
        }
    }
    Ok(())
}

fn add_values(field: Option<Field<'_>>, nnz: usize, out: &mut Rows) -> Result<()> {
    let field = match field {
        Some(field) => field,
        None => {
            out.values.resize(out.hashes.len(), 1.0);
            return Ok(());
        }
    };
    if field.packed {
        if field.bytes.len() == 8 * nnz {
            out.values.extend(field.bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())));
        } else if field.bytes.len() == 4 * nnz {
            let singles = field.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default()));
            out.values.extend(singles.map(f64::from));
        } else {
            return Err(Left);
        }
        return Ok(());
    }
    if field.count != nnz {
        return Err(Left);
    }
    let mut reader = Reader { bytes: field.bytes, at: 0 };
    for _ in 0..nnz {
        out.values.push(match reader.element()? {
            Element::Signed(number) => number as f64,
            Element::Unsigned(number) => number as f64,
            Element::Float(number) => number,
            Element::Text(_) => return Err(Left),
        });
    }
    Ok(())
}

/// The features of each row, from the row pointers.
fn add_lengths(field: Option<Field<'_>>, nnz: usize, limits: &Limits, out: &mut Rows) -> Result<()> {
    let field = match field {
        Some(field) => field,
        None => {
            out.lengths.push(nnz as i64);
            return Ok(());
        }
    };
    let pointers: Vec<u64> = if field.packed {
        words(field.bytes)?.map(u64::from).collect()
    } else {
        let mut reader = Reader { bytes: field.bytes, at: 0 };
        (0..field.count).map(|_| reader.element()?.whole()).collect::<Result<_>>()?
    };
    let ends = (pointers.first().copied(), pointers.last().copied());
    let rows = (pointers.len() as u64).saturating_sub(1);
    if ends != (Some(0), Some(nnz as u64)) || rows > limits.rows_max {
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

impl Element<'_> {
    fn whole(&self) -> Result<u64> {
        match *self {
            Element::Unsigned(number) => Ok(number),
            Element::Signed(number) => u64::try_from(number).map_err(|_| Left),
            _ => Err(Left),
        }
    }
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

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A big-endian number of up to 8 bytes.
    fn number(&mut self, width: usize) -> Result<u64> {
        Ok(self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn size(&mut self, width: usize) -> Result<usize> {
        usize::try_from(self.number(width)?).map_err(|_| Left)
    }

    fn field(&mut self) -> Result<Field<'a>> {
        let kind = self.byte()?;
        if let 0xc4..=0xc6 = kind {
            let size = self.size(1 << (kind - 0xc4))?;
            let bytes = self.take(size)?;
            return Ok(Field { bytes, count: size / 4, packed: true });
        }
        let count = match kind {
            0x90..=0x9f => usize::from(kind & 0x0f),
            0xdc => self.size(2)?,
            0xdd => self.size(4)?,
            _ => return Err(Left),
        };
        let start = self.at;
        for _ in 0..count {
            self.element()?;
        }
        Ok(Field { bytes: &self.bytes[start..self.at], count, packed: false })
    }

    fn element(&mut self) -> Result<Element<'a>> {
        let kind = self.byte()?;
        Ok(match kind {
            0x00..=0x7f => Element::Unsigned(u64::from(kind)),
            0xe0..=0xff => Element::Signed(i64::from(kind as i8)),
            0xa0..=0xbf => Element::Text(self.take(usize::from(kind & 0x1f))?),
            0xd9 | 0xda | 0xdb => {
                let size = self.size(1 << (kind - 0xd9))?;
                Element::Text(self.take(size)?)
            }
            0xca => Element::Float(f64::from(f32::from_bits(self.number(4)? as u32))),
            0xcb => Element::Float(f64::from_bits(self.number(8)?)),
            0xcc..=0xcf => Element::Unsigned(self.number(1 << (kind - 0xcc))?),
            0xd0 => Element::Signed(i64::from(self.number(1)? as u8 as i8)),
            0xd1 => Element::Signed(i64::from(self.number(2)? as u16 as i16)),
            0xd2 => Element::Signed(i64::from(self.number(4)? as u32 as i32)),
            0xd3 => Element::Signed(self.number(8)? as i64),
            _ => return Err(Left),
        })
    }
}
