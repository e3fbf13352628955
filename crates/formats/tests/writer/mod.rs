//! Writes plain data as Python's pickler and `json.dumps` do, so that tests need no Python.
use std::collections::BTreeMap;

/// Plain data.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Data {
    None,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    List(Vec<Data>),
    Tuple(Vec<Data>),
    Dict(Vec<(&'static str, Data)>),
}

impl Data {
    pub(crate) fn text(text: &str) -> Data {
        Data::Text(text.to_owned())
    }
}

/// Items that Python's pickler puts into a list or dict at once.
const BATCH: usize = 1000;

struct Pickler {
    protocol: u8,
    out: Vec<u8>,
    memo: u32,
    texts: BTreeMap<String, u32>,
}

/// As `pickle.dumps(data, protocol)`; strings that are equal are one object.
pub(crate) fn pickle(data: &Data, protocol: u8) -> Vec<u8> {
    let mut pickler = Pickler { protocol, out: vec![0x80, protocol], memo: 0, texts: BTreeMap::new() };
    pickler.save(data);
    pickler.out.push(b'.');
    let Pickler { mut out, .. } = pickler;
    if protocol >= 4 {
        let frame = (out.len() - 2) as u64;
        out.splice(2..2, [&[0x95][..], &frame.to_le_bytes()].concat());
    }
    out
}

impl Pickler {
    fn memoize(&mut self) -> u32 {
        let number = self.memo;
        self.memo += 1;
        match (self.protocol >= 4, u8::try_from(number)) {
            (true, _) => self.out.push(0x94),
            (false, Ok(small)) => self.out.extend([b'q', small]),
            (false, Err(_)) => {
                self.out.push(b'r');
                self.out.extend(number.to_le_bytes());
            }
        }
        number
    }

    fn get(&mut self, number: u32) {
        match u8::try_from(number) {
            Ok(small) => self.out.extend([b'h', small]),
            Err(_) => {
                self.out.push(b'j');
                self.out.extend(number.to_le_bytes());
            }
        }
    }

    fn save(&mut self, data: &Data) {
        match data {
            Data::None => self.out.push(b'N'),
            Data::Bool(yes) => self.out.push(if *yes { 0x88 } else { 0x89 }),
            Data::Int(number) => self.int(*number),
            Data::Real(number) => {
                self.out.push(b'G');
                self.out.extend(number.to_be_bytes());
            }
            Data::Text(text) => self.text(text),
            Data::List(items) => {
                self.out.push(b']');
                self.memoize();
                for batch in items.chunks(BATCH) {
                    self.batch(batch.len(), b'a', b'e', |pickler| batch.iter().for_each(|item| pickler.save(item)));
                }
            }
            Data::Dict(pairs) => {
                self.out.push(b'}');
                self.memoize();
                for batch in pairs.chunks(BATCH) {
                    self.batch(batch.len(), b's', b'u', |pickler| {
                        for (key, value) in batch {
                            pickler.text(key);
                            pickler.save(value);
                        }
                    });
                }
            }
            Data::Tuple(items) => self.tuple(items),
        }
    }

    fn batch(&mut self, len: usize, one: u8, many: u8, items: impl Fn(&mut Pickler)) {
        if len > 1 {
            self.out.push(b'(');
        }
        items(self);
        self.out.push(if len > 1 { many } else { one });
    }

    fn tuple(&mut self, items: &[Data]) {
        match items.len() {
            0 => return self.out.push(b')'),
            len @ 1..=3 => {
                items.iter().for_each(|item| self.save(item));
                self.out.push(0x84 + len as u8);
            }
            _ => {
                self.out.push(b'(');
                items.iter().for_each(|item| self.save(item));
                self.out.push(b't');
            }
        }
        self.memoize();
    }

    fn int(&mut self, number: i64) {
        if let Ok(small) = u8::try_from(number) {
            self.out.extend([b'K', small]);
        } else if let Ok(small) = u16::try_from(number) {
            self.out.push(b'M');
            self.out.extend(small.to_le_bytes());
        } else if let Ok(small) = i32::try_from(number) {
            self.out.push(b'J');
            self.out.extend(small.to_le_bytes());
        } else {
            let mut bytes = number.to_le_bytes().to_vec();
            let sign = if number < 0 { 0xff } else { 0 };
            while bytes.len() > 1 && bytes[bytes.len() - 1] == sign && (bytes[bytes.len() - 2] >= 0x80) == (number < 0)
            {
                bytes.pop();
            }
            self.out.extend([0x8a, bytes.len() as u8]);
            self.out.extend(bytes);
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(&number) = self.texts.get(text) {
            return self.get(number);
        }
        match (self.protocol >= 4, u8::try_from(text.len())) {
            (true, Ok(len)) => self.out.extend([0x8c, len]),
            _ => {
                self.out.push(b'X');
                self.out.extend((text.len() as u32).to_le_bytes());
            }
        }
        self.out.extend(text.as_bytes());
        let number = self.memoize();
        self.texts.insert(text.to_owned(), number);
    }
}

/// As `json.dumps(data)`.
pub(crate) fn json(data: &Data) -> String {
    match data {
        Data::None => "null".to_owned(),
        Data::Bool(yes) => yes.to_string(),
        Data::Int(number) => number.to_string(),
        Data::Real(number) if number.is_nan() => "NaN".to_owned(),
        Data::Real(number) if number.is_infinite() => if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Data::Real(number) => format!("{number:?}"),
        Data::Text(text) => quoted(text),
        Data::List(items) | Data::Tuple(items) => {
            format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(", "))
        }
        Data::Dict(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", quoted(key), json(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for unit in text.encode_utf16() {
        match char::from_u32(u32::from(unit)) {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some(plain @ ' '..='~') => out.push(plain),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
    out
}
