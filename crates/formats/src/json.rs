//! JSON into the same values as pickle, without recursion; `NaN` and `Infinity` as Python writes them.
use crate::budget::number_of;
use crate::builder::Builder;
use crate::fault::Fault;
use crate::pickle::DEPTH_MAX;
use crate::value::Value;

/// An open list or dict.
#[derive(Clone, Copy, Debug)]
struct Open {
    is_dict: bool,
    /// Where its items begin on the stack.
    first: u32,
    wides: u32,
}

struct Parser<'a, 'b> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    open: Vec<Open>,
    builder: &'b mut Builder<'a>,
}

/// Reads one JSON text; it must be all there is.
pub(crate) fn read<'a>(bytes: &'a [u8], builder: &mut Builder<'a>) -> Result<Value, Fault> {
    let mut parser = Parser { bytes, at: 0, stack: Vec::new(), open: Vec::new(), builder };
    let root = parser.run()?;
    parser.space();
    match parser.at == bytes.len() {
        true => Ok(root),
        false => Err(Fault::new(parser.at, "something follows the end of the JSON")),
    }
}

impl<'a> Parser<'a, '_> {
    fn run(&mut self) -> Result<Value, Fault> {
        loop {
            // Here a value begins (or an empty list or dict ends).
            self.space();
            self.builder.pool.budget.at = self.at;
            let value = match self.peek()? {
                b'{' => {
                    self.open(true)?;
                    if !self.closes(b'}') {
                        self.key()?;
                        continue;
                    }
                    self.close()?
                }
                b'[' => {
                    self.open(false)?;
                    if !self.closes(b']') {
                        continue;
                    }
                    self.close()?
                }
                _ => self.scalar()?,
            };
            if let Some(root) = self.ended(value)? {
                return Ok(root);
            }
        }
    }

    /// Puts a finished value where it belongs and moves to where the next begins; the root when all is closed.
    fn ended(&mut self, value: Value) -> Result<Option<Value>, Fault> {
        let mut value = value;
        loop {
            let Some(open) = self.open.last().copied() else { return Ok(Some(value)) };
            self.builder.pool.budget.push(&mut self.stack, value)?;
            self.space();
            match (self.peek()?, open.is_dict) {
                (b',', true) => {
                    self.at += 1;
                    self.key()?;
                    return Ok(None);
                }
                (b',', false) => {
                    self.at += 1;
                    return Ok(None);
                }
                (b'}', true) | (b']', false) => {
                    self.at += 1;
                    value = self.close()?;
                }
                _ => return Err(self.unexpected(if open.is_dict { "`,` or `}`" } else { "`,` or `]`" })),
            }
        }
    }

    fn open(&mut self, is_dict: bool) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MAX {
            return Err(Fault::new(self.at, format!("more than {DEPTH_MAX} levels: no dump is that deep")));
        }
        self.at += 1;
        self.open.push(Open { is_dict, first: number_of(self.stack.len()), wides: self.builder.pool.wide_mark() });
        Ok(())
    }

    /// Whether the list or dict that was just opened ends at once.
    fn closes(&mut self, end: u8) -> bool {
        self.space();
        let closes = self.bytes.get(self.at) == Some(&end);
        self.at += usize::from(closes);
        closes
    }

    fn close(&mut self) -> Result<Value, Fault> {
        let Some(open) = self.open.pop() else { return Err(self.unexpected("a value")) };
        let items = &self.stack[open.first as usize..];
        let value = match open.is_dict {
            true => self.builder.dict(Value::NewDict, items)?,
            false => Value::Seq(self.builder.pool.seq(items)?),
        };
        self.stack.truncate(open.first as usize);
        self.builder.pool.cut_wides(open.wides);
        Ok(value)
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), Fault> {
        self.space();
        if self.peek()? != b'"' {
            return Err(self.unexpected("a key in quotes"));
        }
        let key = self.string()?;
        self.builder.pool.budget.push(&mut self.stack, key)?;
        self.space();
        if self.peek()? != b':' {
            return Err(self.unexpected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Result<Value, Fault> {
        const WORDS: &[(&str, Value)] =
            &[("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::None)];
        const REALS: &[(&str, f64)] =
            &[("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];
        match self.peek()? {
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' if !self.bytes[self.at..].starts_with(b"-I") => return self.number(),
            _ => {}
        }
        for (word, value) in WORDS {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(*value);
            }
        }
        for (word, real) in REALS {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return self.builder.pool.real(*real);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len());
        self.at += len;
        let text = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        if let Ok(number) = text.parse::<i64>() {
            return self.builder.pool.integer(number);
        }
        match text.parse::<f64>() {
            Ok(number) => self.builder.pool.real(number),
            Err(_) => Err(Fault::new(start, "what looks like a number is none")),
        }
    }

    fn string(&mut self) -> Result<Value, Fault> {
        let start = self.at + 1;
        let rest = &self.bytes[start..];
        let Some(len) = rest.iter().position(|&byte| byte == b'"' || byte == b'\\') else {
            return Err(Fault::new(
                self.bytes.len(),
                format!("the JSON ends here, in a string that began at byte {start}"),
            ));
        };
        if rest[len] == b'"' {
            self.at = start + len + 1;
            return self.builder.pool.string(start, len);
        }
        self.escaped_string(start, len)
    }

    /// A string with escapes; `plain` bytes of it are read already.
    fn escaped_string(&mut self, start: usize, plain: usize) -> Result<Value, Fault> {
        let end = self.end_of_string(start + plain)?;
        let len = end - start;
        // Unescaped it is never longer.
        self.builder.pool.budget.charge(len)?;
        let mut text = Vec::with_capacity(len);
        self.at = start;
        while self.at < end {
            let byte = self.bytes[self.at];
            self.at += 1;
            if byte == b'\\' { self.escape(&mut text)? } else { text.push(byte) }
        }
        self.at = end + 1;
        let value = self.builder.pool.unescaped(&text)?;
        self.builder.pool.budget.release(len);
        Ok(value)
    }

    fn end_of_string(&self, from: usize) -> Result<usize, Fault> {
        let mut at = from;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => return Ok(at),
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    return Err(Fault::new(self.bytes.len(), "the JSON ends here, in a string"));
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Fault> {
        let kind = self.peek()?;
        self.at += 1;
        text.push(match kind {
            b'"' | b'\\' | b'/' => kind,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.hex4()?;
                if (0xd800..0xdc00).contains(&code) && self.bytes[self.at..].starts_with(b"\\u") {
                    let back = self.at;
                    self.at += 2;
                    let low = self.hex4()?;
                    match (0xdc00..0xe000).contains(&low) {
                        true => code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00),
                        false => self.at = back,
                    }
                }
                let character = char::from_u32(code).unwrap_or('?');
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(Fault::new(self.at - 1, "an escape that JSON does not have")),
        });
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(code) = code.and_then(|text| u32::from_str_radix(text, 16).ok()) else {
            return Err(Fault::new(self.at, "four hexadecimal digits expected"));
        };
        self.at += 4;
        Ok(code)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, Fault> {
        match self.bytes.get(self.at) {
            Some(&byte) => Ok(byte),
            None => Err(Fault::new(self.at, "the JSON ends here, in the middle")),
        }
    }

    #[cold]
    fn unexpected(&self, expected: &str) -> Fault {
        Fault::new(self.at, format!("{expected} expected"))
    }
}
