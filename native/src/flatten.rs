//! Records to named features, as `wire/flatten.py` makes them: the same names and values in the same order.

use crate::murmur::murmur3;
use crate::plan::{get, Kind, Options, Plan, Rule, Rules};
use crate::value::{Fields, Left, Result, Value};
use std::fmt::Write;

const DEPTH_MAX: usize = 64;
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0; // 2^53

/// The most that one message may hold.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Limits {
    pub message_bytes_max: u64,
    pub nnz_max: u64,
    pub rows_max: u64,
    pub string_bytes_max: u64,
}

/// The rows of a batch: of each message, of each row, of each feature.
#[derive(Default)]
pub struct Rows {
    pub rows_of_message: Vec<i64>, // LEFT where the message is not taken
    pub lengths: Vec<i64>,
    pub hashes: Vec<i32>, // the columns themselves where features are numbers
    pub values: Vec<f64>,
    pub name_ends: Vec<u64>, // in `names`; empty unless names are kept
    pub names: Vec<u8>,
    pub keep_names: bool,
    pub seed: u32,
    pub columns_end: u64, // 0 where features are names
}

pub const LEFT: i64 = -1;

impl Rows {
    /// Appends a feature's name; its value follows.
    pub fn put_name(&mut self, name: &[u8]) {
        self.hashes.push(murmur3(name, self.seed) as i32);
        if self.keep_names {
            self.names.extend_from_slice(name);
            self.name_ends.push(self.names.len() as u64);
        }
    }

    /// Appends a feature whose name is the parts one after the other.
    pub fn put(&mut self, parts: &[&[u8]], value: f64) {
        if !self.keep_names {
            self.names.clear();
        }
        let start = self.names.len();
        for part in parts {
            self.names.extend_from_slice(part);
        }
        self.hashes.push(murmur3(&self.names[start..], self.seed) as i32);
        self.values.push(value);
        if self.keep_names {
            self.name_ends.push(self.names.len() as u64);
        }
    }

    pub fn entries(&self) -> usize {
        self.values.len()
    }

    /// Adds one message by `add`; what a message that is left has appended is taken back.
    pub fn message(&mut self, add: impl FnOnce(&mut Rows) -> Result<()>) {
        let (rows, entries, bytes) = (self.lengths.len(), self.entries(), self.names.len());
        let taken = add(self).is_ok();
        if !taken {
            self.lengths.truncate(rows);
            self.hashes.truncate(entries);
            self.values.truncate(entries);
            if self.keep_names {
                self.name_ends.truncate(entries);
                self.names.truncate(bytes);
            }
        }
        self.rows_of_message.push(if taken { (self.lengths.len() - rows) as i64 } else { LEFT });
    }
}

/// Flattens records by the rules of a plan.
pub struct Flattener<'p> {
    plan: &'p Plan,
    rules: Rules<'p>,
    limits: Limits,
    path: String,
    digits: String,
}

impl<'p> Flattener<'p> {
    pub fn new(plan: &'p Plan, limits: Limits) -> Self {
        Flattener { plan, rules: Rules::new(plan), limits, path: String::new(), digits: String::new() }
    }

    /// The records of a decoded message as rows.
    pub fn add(&mut self, message: &Value<'_>, out: &mut Rows) -> Result<()> {
        let (rows, entries) = (out.lengths.len(), out.entries());
        match message {
            Value::List(items) => items.iter().try_for_each(|item| self.add_part(item, out))?,
            item => self.add_part(item, out)?,
        }
        let rows = out.lengths.len() - rows;
        let entries = out.entries() - entries;
        let fits = rows as u64 <= self.limits.rows_max && entries as u64 <= self.limits.nnz_max;
        if fits { Ok(()) } else { Err(Left) }
    }

    /// The records that `input.path` leads to.
    fn add_part(&mut self, item: &Value<'_>, out: &mut Rows) -> Result<()> {
        let mut part = item;
        for step in &self.plan.steps {
            if matches!(part, Value::Null) {
                return Ok(());
            }
            part = get(part, step).ok_or(Left)?;
        }
        match part {
            Value::Null => Ok(()),
            Value::List(records) => records.iter().try_for_each(|record| self.add_record(record, out)),
            record => self.add_record(record, out),
        }
    }

    fn add_record(&mut self, record: &Value<'_>, out: &mut Rows) -> Result<()> {
        let before = out.entries();
        self.path.clear();
        match record {
            Value::Object(fields) => self.add_fields(fields, 1, out)?,
            _ => return Err(Left),
        }
        out.lengths.push((out.entries() - before) as i64);
        Ok(())
    }

    /// `self.path` is what stands before the names of these fields.
    fn add_fields(&mut self, fields: &Fields<'_>, depth: usize, out: &mut Rows) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Left);
        }
        let prefix = self.path.len();
        for (name, value) in fields {
            if matches!(value, Value::Null) {
                continue;
            }
            self.path.push_str(name);
            if self.path.len() as u64 > self.limits.string_bytes_max {
                return Err(Left);
            }
            let rule = self.rules.of(&self.path);
            if !rule.pruned {
                self.add_value(&rule, value, depth, out)?;
            }
            self.path.truncate(prefix);
        }
        Ok(())
    }

    fn add_value(&mut self, rule: &Rule, value: &Value<'_>, depth: usize, out: &mut Rows) -> Result<()> {
        match value {
            Value::Object(_) if rule.options.indices.is_some() => self.add_sparse(rule, value, out),
            Value::Object(fields) => self.add_below(fields, depth, out),
            Value::List(items) => self.add_list(rule, items, depth, out),
            Value::Bytes => Ok(()),
            _ if !rule.wanted => Ok(()),
            Value::Text(text) => self.add_text(&rule.options, text, out),
            number if rule.options.kind == Kind::Categorical => self.add_category(number, out),
            number => {
                let number = rule.options.transformed(number.number().ok_or(Left)?);
                self.put_number(number, out);
                Ok(())
            }
        }
    }

    fn add_below(&mut self, fields: &Fields<'_>, depth: usize, out: &mut Rows) -> Result<()> {
        let end = self.path.len();
        self.path.push('.');
        self.add_fields(fields, depth + 1, out)?;
        self.path.truncate(end);
        Ok(())
    }

    fn put_number(&mut self, number: f64, out: &mut Rows) {
        if number != 0.0 {
            out.put(&[self.path.as_bytes()], number);
        }
    }

    fn add_text(&mut self, options: &Options, text: &str, out: &mut Rows) -> Result<()> {
        if options.kind != Kind::Text {
            out.put(&[self.path.as_bytes(), b"=", text.as_bytes()], 1.0);
            return Ok(());
        }
        if !text.is_ascii() {
            return Err(Left); // what a word is, and its small letters, depend on the version of Unicode
        }
        let small = text.to_ascii_lowercase();
        for word in small.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
            out.put(&[self.path.as_bytes(), b":", word.as_bytes()], 1.0);
        }
        Ok(())
    }

    fn add_category(&mut self, number: &Value<'_>, out: &mut Rows) -> Result<()> {
        self.digits.clear();
        match *number {
            Value::Bool(flag) => self.digits.push_str(if flag { "true" } else { "false" }),
            Value::Int(number) => write!(self.digits, "{number}").map_err(|_| Left)?,
            Value::Float(number) if number.fract() == 0.0 && number.abs() < WHOLE_MAX => {
                write!(self.digits, "{}", number as i64).map_err(|_| Left)?;
            }
            _ => return Err(Left), // Python's shortest text of a float
        }
        out.put(&[self.path.as_bytes(), b"=", self.digits.as_bytes()], 1.0);
        Ok(())
    }

    fn add_list(&mut self, rule: &Rule, items: &[Value<'_>], depth: usize, out: &mut Rows) -> Result<()> {
        let kind = rule.options.kind;
        for (place, item) in items.iter().enumerate() {
            match item {
                Value::Null | Value::Bytes => {}
                Value::Object(fields) if kind == Kind::Each => self.add_below(fields, depth, out)?,
                _ if !rule.wanted => {}
                Value::Text(text) if kind != Kind::Vector => self.add_text(&rule.options, text, out)?,
                Value::Text(_) | Value::List(_) | Value::Object(_) => return Err(Left),
                number if kind == Kind::Vector => {
                    let number = rule.options.transformed(number.number().ok_or(Left)?);
                    self.put_element(&place.to_string(), number, out);
                }
                number if kind == Kind::Categorical => self.add_category(number, out)?,
                _ => return Err(Left),
            }
        }
        Ok(())
    }

    /// A ready sparse vector: `path[index]` for each of its indices.
    fn add_sparse(&mut self, rule: &Rule, record: &Value<'_>, out: &mut Rows) -> Result<()> {
        let part = |name: &Option<String>| name.as_ref().and_then(|name| get(record, name));
        let indices = match part(&rule.options.indices) {
            None | Some(Value::Null) => return Ok(()),
            Some(_) if !rule.wanted => return Ok(()),
            Some(Value::List(indices)) => indices,
            Some(_) => return Err(Left),
        };
        let values = match part(&rule.options.values) {
            None | Some(Value::Null) => None,
            Some(Value::List(values)) if values.len() == indices.len() => Some(values),
            Some(_) => return Err(Left),
        };
        for (place, index) in indices.iter().enumerate() {
            let number = values.map_or(Some(1.0), |values| values[place].number()).ok_or(Left)?;
            let number = rule.options.transformed(number);
            match index {
                Value::Int(index) => self.put_element(&index.to_string(), number, out),
                Value::Text(index) => self.put_element(index, number, out),
                _ => return Err(Left),
            }
        }
        Ok(())
    }

    fn put_element(&mut self, index: &str, number: f64, out: &mut Rows) {
        if number != 0.0 {
            out.put(&[self.path.as_bytes(), b"[", index.as_bytes(), b"]"], number);
        }
    }
}

