//! JSON by RFC 8259. Takes less than msgspec does (no repeated names, no integers above 18 digits, less nesting), and
//! makes the same of what it takes.

use crate::value::{sorted, Left, Result, Value};
use std::borrow::Cow;

const DEPTH_MAX: usize = 80;
const DIGITS_MAX: usize = 18;

pub fn read_json(message: &[u8]) -> Result<Value<'_>> {
    let text = std::str::from_utf8(message).map_err(|_| Left)?;
    let mut parser = Parser { text, bytes: message, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at == message.len() {
        Ok(value)
    } else {
        Err(Left)
    }
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no white space; it is consumed.
    fn next(&mut self) -> Result<u8> {
        self.skip_space();
        let byte = self.peek().ok_or(Left)?;
        self.at += 1;
        Ok(byte)
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>> {
        if depth > DEPTH_MAX {
            return Err(Left);
        }
        match self.next()? {
            b'"' => self.string().map(Value::Text),
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b't' => self.word("rue", Value::Bool(true)),
            b'f' => self.word("alse", Value::Bool(false)),
            b'n' => self.word("ull", Value::Null),
            b'-' | b'0'..=b'9' => {
                self.at -= 1;
                self.number()
            }
            _ => Err(Left),
        }
    }

    fn word(&mut self, rest: &str, value: Value<'a>) -> Result<Value<'a>> {
        if !self.bytes[self.at..].starts_with(rest.as_bytes()) {
            return Err(Left);
        }
        self.at += rest.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Value<'a>> {
        let mut fields = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            if self.next()? != b'"' {
                return Err(Left);
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return Err(Left);
            }
            if fields.capacity() == 0 {
                fields.reserve(16);
            }
            fields.push((name, self.value(depth + 1)?));
            match self.next()? {
                b',' => {}
                b'}' => return sorted(fields).map(Value::Object),
                _ => return Err(Left),
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            match self.next()? {
                b',' => {}
                b']' => return Ok(Value::List(items)),
                _ => return Err(Left),
            }
        }
    }

    /// After the opening quote.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        let start = self.at;
        loop {
            match self.peek().ok_or(Left)? {
                b'"' => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(text));
                }
                b'\\' => return self.escaped(start).map(Cow::Owned),
                0..=0x1f => return Err(Left),
                _ => self.at += 1,
            }
        }
    }

    /// A text that has escapes, the first of them here.
    fn escaped(&mut self, start: usize) -> Result<String> {
        let mut found = String::from(&self.text[start..self.at]);
        loop {
            let plain = self.at;
            while !matches!(self.peek().ok_or(Left)?, b'"' | b'\\' | 0..=0x1f) {
                self.at += 1;
            }
            found.push_str(&self.text[plain..self.at]);
            self.at += 1;
            match self.bytes[self.at - 1] {
                b'"' => return Ok(found),
                b'\\' => found.push(self.escape()?),
                _ => return Err(Left),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let kind = self.peek().ok_or(Left)?;
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => kind as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hexadecimal()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first).ok_or(Left); // none of a second half alone
                }
                if !self.bytes[self.at..].starts_with(b"\\u") {
                    return Err(Left);
                }
                self.at += 2;
                let second = self.hexadecimal()?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err(Left);
                }
                char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(Left)?
            }
            _ => return Err(Left),
        })
    }

    fn hexadecimal(&mut self) -> Result<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(Left)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, digit| Some(number << 4 | (*digit as char).to_digit(16)?)).ok_or(Left)
    }

    fn number(&mut self) -> Result<Value<'a>> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let first = self.at;
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.bytes[first] == b'0') {
            return Err(Left);
        }
        let integer_end = self.at;
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(Left);
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(Left);
            }
        }
        if self.at > integer_end {
            let number: f64 = self.text[start..self.at].parse().map_err(|_| Left)?;
            return if number.is_finite() { Ok(Value::Float(number)) } else { Err(Left) };
        }
        if whole > DIGITS_MAX {
            return Err(Left);
        }
        let size = self.bytes[first..self.at].iter().fold(0, |sum, digit| 10 * sum + i64::from(digit - b'0'));
        Ok(Value::Int(if negative { -size } else { size }))
    }

    /// How many digits were passed.
    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }
}
