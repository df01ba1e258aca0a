//! `input.features` and `input.path`, as `FeatureMap` in Python has them: the rule of each path.

use crate::json::read_json;
use crate::value::{Left, Result, Value};
use std::collections::HashMap;
use std::rc::Rc;

const RULES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Kind {
    #[default]
    Default,
    Ignore,
    Categorical,
    Text,
    Vector,
    Each,
}

#[derive(Debug, Clone, Default)]
pub struct Options {
    pub kind: Kind,
    pub clip: Option<(f64, f64)>,
    pub log1p: bool,
    pub scale: Option<f64>,
    pub indices: Option<String>,
    pub values: Option<String>,
}

impl Options {
    /// Clipped, then sign(x) log(1 + |x|), then scaled.
    pub fn transformed(&self, mut number: f64) -> f64 {
        if !number.is_finite() {
            return number;
        }
        if let Some((low, high)) = self.clip {
            number = if low > number { low } else { number };
            number = if high < number { high } else { number };
        }
        if self.log1p {
            number = number.abs().ln_1p().copysign(number);
        }
        self.scale.map_or(number, |scale| number * scale)
    }
}

/// What holds for one path. `pruned`: nothing at or below it; `wanted`: whether a value here is included.
#[derive(Debug, Clone)]
pub struct Rule {
    pub options: Options,
    pub pruned: bool,
    pub wanted: bool,
}

/// The settings, compiled once.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    fields: Vec<(String, Options)>,
}

impl Plan {
    /// From the JSON text that `wire/compiled.py` writes.
    pub fn parse(description: &[u8]) -> Result<Plan> {
        let described = read_json(description)?;
        let mut plan = Plan {
            steps: texts(get(&described, "path"))?,
            include: texts(get(&described, "include"))?,
            exclude: texts(get(&described, "exclude"))?,
            fields: Vec::new(),
        };
        for field in items(get(&described, "fields"))? {
            match items(Some(field))? {
                [name, options] => plan.fields.push((text(name)?, options_of(options)?)),
                _ => return Err(Left),
            }
        }
        Ok(plan)
    }

    fn is_default(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty() && self.fields.is_empty()
    }

    fn resolved(&self, path: &str) -> Rule {
        let found = self.fields.iter().find(|(pattern, _)| matches(pattern, path));
        let options = found.map(|(_, options)| options.clone()).unwrap_or_default();
        let pruned = options.kind == Kind::Ignore || self.exclude.iter().any(|pattern| covers(pattern, path));
        let wanted = self.include.is_empty() || self.include.iter().any(|pattern| covers(pattern, path));
        Rule { options, pruned, wanted }
    }
}

/// Rules by path, remembered for one batch: paths come from messages, so there may be any number of them.
pub struct Rules<'p> {
    plan: &'p Plan,
    known: HashMap<String, Rc<Rule>>,
    default: Option<Rc<Rule>>,
}

impl<'p> Rules<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        let plain = Rule { options: Options::default(), pruned: false, wanted: true };
        Rules { plan, known: HashMap::new(), default: plan.is_default().then(|| Rc::new(plain)) }
    }

    pub fn of(&mut self, path: &str) -> Rc<Rule> {
        if let Some(rule) = self.default.as_ref().or_else(|| self.known.get(path)) {
            return Rc::clone(rule);
        }
        let rule = Rc::new(self.plan.resolved(path));
        if self.known.len() < RULES_MAX {
            self.known.insert(path.to_owned(), Rc::clone(&rule));
        }
        rule
    }
}

/// Whether the pattern matches the path or something that it lies under.
fn covers(pattern: &str, path: &str) -> bool {
    matches(pattern, path) || matches(&format!("{pattern}.*"), path)
}

/// Whether the whole text matches; `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, tried)) = star {
            star = Some((at, tried + 1));
            p = at + 1;
            t = tried + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

// -- the description -------------------------------------------------------------------------------------

fn options_of(given: &Value<'_>) -> Result<Options> {
    let fields = match given {
        Value::Object(fields) => fields,
        _ => return Err(Left),
    };
    let mut found = Options::default();
    for (name, value) in fields {
        match &**name {
            "ignore" => found.kind = Kind::Ignore,
            "categorical" => found.kind = Kind::Categorical,
            "text" => found.kind = Kind::Text,
            "vector" => found.kind = Kind::Vector,
            "each" => found.kind = Kind::Each,
            "log1p" => found.log1p = true,
            "scale" => found.scale = Some(value.number().ok_or(Left)?),
            "clip" => match items(Some(value))? {
                [low, high] => found.clip = Some((low.number().ok_or(Left)?, high.number().ok_or(Left)?)),
                _ => return Err(Left),
            },
            "indices" => found.indices = Some(text(value)?),
            "values" => found.values = Some(text(value)?),
            _ => return Err(Left),
        }
    }
    Ok(found)
}

pub fn get<'v, 'a>(value: &'v Value<'a>, name: &str) -> Option<&'v Value<'a>> {
    match value {
        Value::Object(fields) => {
            let place = fields.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
            Some(&fields[place].1)
        }
        _ => None,
    }
}

pub fn items<'v, 'a>(value: Option<&'v Value<'a>>) -> Result<&'v [Value<'a>]> {
    match value {
        None => Ok(&[]),
        Some(Value::List(items)) => Ok(items),
        _ => Err(Left),
    }
}

fn texts(value: Option<&Value<'_>>) -> Result<Vec<String>> {
    items(value)?.iter().map(text).collect()
}

pub fn text(value: &Value<'_>) -> Result<String> {
    match value {
        Value::Text(text) => Ok(text.to_string()),
        _ => Err(Left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_dots_included() {
        for (pattern, path, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*c", "a.b.c", true),
            ("a*c", "a.b.cd", false),
            ("*.id", "user.id", true),
            ("*a*b", "xaybzb", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        assert!(covers("geo", "geo.lat"));
        assert!(!covers("geo", "geox"));
    }
}
