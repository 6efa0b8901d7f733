//! The strict JSON reader behind [`crate::canonical`]: one pass over UTF-8 text, no recovery, the first
//! irregularity ends it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::canonical::{DEPTH_MAX, Error, Integer, Reason, Value};

/// Reads one document from the start of a text.
pub(crate) struct Reader<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    /// The only value of the text.
    pub(crate) fn document(mut self) -> Result<Value, Error> {
        let value = self.value(0)?;
        self.space();
        if self.peek().is_some() { self.refuse(Reason::TrailingBytes) } else { Ok(value) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        self.space();
        match self.peek() {
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'{' | b'[') if depth >= DEPTH_MAX => self.refuse(Reason::TooDeep),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.list(depth + 1),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            Some(b't') => self.literal("true").map(|()| Value::Bool(true)),
            Some(b'f') => self.literal("false").map(|()| Value::Bool(false)),
            Some(b'n') if self.rest().starts_with(b"null") => self.refuse(Reason::Null),
            Some(_) => self.refuse(Reason::Unexpected),
            None => self.refuse(Reason::EndsEarly),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Error> {
        let mut members = BTreeMap::new();
        self.offset += 1;
        self.space();
        if self.skip(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek().is_some_and(|byte| byte != b'"') {
                return self.refuse(Reason::Unexpected);
            }
            let start = self.offset;
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            let value = self.value(depth)?;
            match members.entry(key) {
                Entry::Vacant(slot) => slot.insert(value),
                Entry::Occupied(_) => return Err(Error { reason: Reason::DuplicateKey, offset: start }),
            };
            self.space();
            if self.skip(b'}') {
                return Ok(Value::Object(members));
            }
            self.expect(b',')?;
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Error> {
        let mut items = Vec::new();
        self.offset += 1;
        self.space();
        if self.skip(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.space();
            if self.skip(b']') {
                return Ok(Value::List(items));
            }
            self.expect(b',')?;
        }
    }

    fn integer(&mut self) -> Result<Value, Error> {
        let start = self.offset;
        let negative = self.skip(b'-');
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.rest().get(..digits).unwrap_or_default();
        let mut magnitude: i64 = 0;
        let mut fits = true;
        for digit in text {
            let next = magnitude.checked_mul(10).and_then(|m| m.checked_add(i64::from(digit - b'0')));
            fits &= next.is_some();
            magnitude = next.unwrap_or(0);
        }
        self.offset += digits;
        let refused = |reason| Err(Error { reason, offset: start });
        if matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return refused(Reason::NotInteger);
        }
        match text {
            [] => refused(Reason::Unexpected),
            [b'0', _, ..] => refused(Reason::NotInteger),
            [b'0'] if negative => refused(Reason::NotInteger),
            _ => match Integer::new(if negative { -magnitude } else { magnitude }) {
                Some(value) if fits => Ok(Value::Int(value)),
                _ => refused(Reason::IntegerTooLarge),
            },
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let plain = self
                .rest()
                .iter()
                .take_while(|byte| **byte >= 0x20 && **byte < 0x80 && **byte != b'"' && **byte != b'\\')
                .count();
            out.push_str(self.text.get(self.offset..self.offset + plain).unwrap_or_default());
            self.offset += plain;
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(0x00..0x20) => return self.refuse(Reason::ControlCharacter),
                Some(_) => out.push(self.character()?),
                None => return self.refuse(Reason::EndsEarly),
            }
        }
    }

    /// One character written as itself, beyond ASCII.
    fn character(&mut self) -> Result<char, Error> {
        let Some(character) = self.text.get(self.offset..).and_then(|rest| rest.chars().next()) else {
            return self.refuse(Reason::EndsEarly);
        };
        if is_noncharacter(u32::from(character)) {
            return self.refuse(Reason::Noncharacter);
        }
        self.offset += character.len_utf8();
        Ok(character)
    }

    fn escape(&mut self) -> Result<char, Error> {
        let start = self.offset;
        self.offset += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) => return self.refuse(Reason::Unexpected),
            None => return self.refuse(Reason::EndsEarly),
        };
        self.offset += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, Error> {
        self.offset += 1;
        let first = self.four_digits()?;
        let code = match first {
            0xd800..0xdc00 if self.rest().starts_with(b"\\u") => {
                self.offset += 2;
                match self.four_digits()? {
                    second @ 0xdc00..0xe000 => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(Error { reason: Reason::LoneSurrogate, offset: start }),
                }
            }
            other => other,
        };
        if is_noncharacter(code) {
            return Err(Error { reason: Reason::Noncharacter, offset: start });
        }
        char::from_u32(code).ok_or(Error { reason: Reason::LoneSurrogate, offset: start })
    }

    fn four_digits(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = match self.peek() {
                Some(byte) => char::from(byte).to_digit(16),
                None => return self.refuse(Reason::EndsEarly),
            };
            match digit {
                Some(digit) => code = code * 16 + digit,
                None => return self.refuse(Reason::Unexpected),
            }
            self.offset += 1;
        }
        Ok(code)
    }

    fn literal(&mut self, word: &str) -> Result<(), Error> {
        if self.rest().starts_with(word.as_bytes()) {
            self.offset += word.len();
            Ok(())
        } else {
            self.refuse(Reason::Unexpected)
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        match self.peek() {
            Some(found) if found == byte => {
                self.offset += 1;
                Ok(())
            }
            Some(_) => self.refuse(Reason::Unexpected),
            None => self.refuse(Reason::EndsEarly),
        }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.offset += usize::from(found);
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.offset..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    const fn refuse<T>(&self, reason: Reason) -> Result<T, Error> {
        Err(Error { reason, offset: self.offset })
    }
}

/// U+FDD0 to U+FDEF and the last two code points of every plane.
const fn is_noncharacter(code: u32) -> bool {
    matches!(code, 0xfdd0..=0xfdef) || code & 0xfffe == 0xfffe
}
