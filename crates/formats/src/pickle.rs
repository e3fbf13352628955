//! Pickle protocols 2 to 5, data only: no class is looked up, nothing is called.
use crate::budget::number_of;
use crate::builder::Builder;
use crate::fault::Fault;
use crate::value::{EMPTY, Value};

/// Marks that may be open at once: a dump nests 5 deep (dump, entries, entry, frames, frame).
pub(crate) const DEPTH_MAX: usize = 64;

/// How far a memo number may be ahead of the numbers given so far: every writer numbers in order, one that skips some
/// costs 8 bytes for each.
pub(crate) const MEMO_GAP_MAX: usize = 1 << 10;

/// Highest protocol.
const PROTOCOL_MAX: u8 = 5;

/// The largest integer: longer ones (hashes) are no number that a dump uses.
const INTEGER_BYTES_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Mark {
    stack: u32,
    wides: u32,
}

struct Machine<'a, 'b> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    marks: Vec<Mark>,
    memo: Vec<Option<Value>>,
    builder: &'b mut Builder<'a>,
}

/// Reads one pickle; returns its value and where it ended.
pub(crate) fn read<'a>(bytes: &'a [u8], builder: &mut Builder<'a>) -> Result<(Value, usize), Fault> {
    let (stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine { bytes, at: 0, stack, marks, memo, builder };
    let root = machine.run()?;
    Ok((root, machine.at))
}

/// The fields of the outermost dict that are whole where a pickle is cut short; `None` for a pickle that is whole, or of
/// no use for another reason.
pub(crate) fn read_head<'a>(bytes: &'a [u8], builder: &mut Builder<'a>) -> Option<Value> {
    let (stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine { bytes, at: 0, stack, marks, memo, builder };
    machine.run().err().filter(Fault::is_cut_short)?;
    let first = machine.marks.first()?.stack as usize;
    let end = machine.marks.get(1).map_or(machine.stack.len(), |mark| mark.stack as usize);
    let fields = machine.stack.get(first..end)?;
    let whole = fields.len() - fields.len() % 2;
    machine.builder.pool.seq(&fields[..whole]).ok().map(Value::Pairs)
}

impl<'a> Machine<'a, '_> {
    fn run(&mut self) -> Result<Value, Fault> {
        loop {
            let start = self.at;
            let opcode = self.byte()?;
            self.builder.pool.budget.at = start;
            // Two of five operations: a branch of its own is better predicted than one more arm.
            if opcode == b'h' {
                let number = self.byte()?;
                self.get(start, usize::from(number))?;
                continue;
            }
            match opcode {
                b'K' => {
                    let number = self.byte()?;
                    self.push(Value::Int(i32::from(number)))?;
                }
                b'M' => {
                    let number = u16::from_le_bytes(self.array()?);
                    self.push(Value::Int(i32::from(number)))?;
                }
                b'J' => {
                    let number = i32::from_le_bytes(self.array()?);
                    self.push(Value::Int(number))?;
                }
                b'X' => {
                    let len = u32::from_le_bytes(self.array()?) as usize;
                    self.string(len)?;
                }
                b'q' => {
                    let number = self.byte()?;
                    self.put(start, usize::from(number))?;
                }
                b'j' => {
                    let number = u32::from_le_bytes(self.array()?);
                    self.get(start, number as usize)?;
                }
                b'r' => {
                    let number = u32::from_le_bytes(self.array()?);
                    self.put(start, number as usize)?;
                }
                b'(' => self.mark(start)?,
                b'N' => self.push(Value::None)?,
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                b']' | 0x8f => self.push(Value::NewList)?,
                b'}' => self.push(Value::NewDict)?,
                b'u' => self.set_items(start)?,
                b'e' | 0x90 => self.append_items(start)?,
                0x8a => self.long1()?,
                b'G' => {
                    let number = f64::from_be_bytes(self.array()?);
                    let value = self.builder.pool.real(number)?;
                    self.push(value)?;
                }
                b'.' => return self.stop(start),
                _ => self.rare(start, opcode)?,
            }
        }
    }

    /// The operations that a dump has few of.
    fn rare(&mut self, start: usize, opcode: u8) -> Result<(), Fault> {
        match opcode {
            0x80 => match self.byte()? {
                2..=PROTOCOL_MAX => Ok(()),
                other => Err(Fault::new(start, format!("pickle protocol {other}, known are 2 to {PROTOCOL_MAX}"))),
            },
            0x95 => self.skip(8),
            0x8c => {
                let len = usize::from(self.byte()?);
                self.string(len)
            }
            0x8d => {
                let len = u64::from_le_bytes(self.array()?);
                self.string(usize::try_from(len).unwrap_or(usize::MAX))
            }
            0x94 => self.put(start, self.memo.len()),
            b')' => self.push(Value::Seq(EMPTY)),
            0x85..=0x87 => self.tuple(start, usize::from(opcode - 0x84)),
            b't' | 0x91 => {
                let mark = self.close(start)?;
                let seq = self.builder.pool.seq(&self.stack[mark.stack as usize..])?;
                self.cut(mark);
                self.push(Value::Seq(seq))
            }
            b'a' => self.append(start),
            b's' => self.set_item(start),
            0x8b => {
                let len = u32::from_le_bytes(self.array()?);
                self.long(len as usize)
            }
            b'C' | b'U' => {
                let len = usize::from(self.byte()?);
                self.blob(len)
            }
            b'B' | b'T' => {
                let len = u32::from_le_bytes(self.array()?);
                self.blob(len as usize)
            }
            0x8e | 0x96 => {
                let len = u64::from_le_bytes(self.array()?);
                self.blob(usize::try_from(len).unwrap_or(usize::MAX))
            }
            b'0' => self.pop(start).map(|_| ()),
            b'1' => {
                let mark = self.close(start)?;
                self.cut(mark);
                Ok(())
            }
            b'2' => {
                let top = self.pop(start)?;
                self.push(top)?;
                self.push(top)
            }
            _ => Err(refused(start, opcode)),
        }
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let Some(&byte) = self.bytes.get(self.at) else { return Err(self.cut_short(1)) };
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some(&array) = self.bytes[self.at..].first_chunk::<N>() else { return Err(self.cut_short(N)) };
        self.at += N;
        Ok(array)
    }

    fn skip(&mut self, len: usize) -> Result<(), Fault> {
        if len > self.bytes.len() - self.at {
            return Err(self.cut_short(len));
        }
        self.at += len;
        Ok(())
    }

    #[cold]
    fn cut_short(&self, needed: usize) -> Fault {
        let left = self.bytes.len() - self.at;
        Fault::cut_short(self.at, format!("the pickle ends here, in the middle: {needed} bytes needed, {left} left"))
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Fault> {
        self.builder.pool.budget.push(&mut self.stack, value)
    }

    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |mark| mark.stack as usize)
    }

    fn pop(&mut self, start: usize) -> Result<Value, Fault> {
        if self.stack.len() <= self.floor() {
            return Err(underflow(start));
        }
        self.stack.pop().ok_or_else(|| underflow(start))
    }

    fn mark(&mut self, start: usize) -> Result<(), Fault> {
        if self.marks.len() >= DEPTH_MAX {
            return Err(Fault::new(start, format!("more than {DEPTH_MAX} levels: no dump is that deep")));
        }
        self.marks.push(Mark { stack: number_of(self.stack.len()), wides: self.builder.pool.wide_mark() });
        Ok(())
    }

    #[inline]
    fn close(&mut self, start: usize) -> Result<Mark, Fault> {
        self.marks.pop().ok_or_else(|| Fault::new(start, "the end of a list that never began"))
    }

    #[inline]
    fn cut(&mut self, mark: Mark) {
        self.stack.truncate(mark.stack as usize);
        self.builder.pool.cut_wides(mark.wides);
    }

    /// The container below a closed mark.
    #[inline]
    fn below(&self, start: usize, mark: Mark) -> Result<usize, Fault> {
        let below = mark.stack as usize;
        if below <= self.floor() {
            return Err(underflow(start));
        }
        Ok(below - 1)
    }

    #[inline]
    fn get(&mut self, start: usize, number: usize) -> Result<(), Fault> {
        match self.memo.get(number) {
            Some(&Some(value)) => self.push(value),
            _ => Err(Fault::new(start, format!("memo {number} is used before it is written"))),
        }
    }

    #[inline]
    fn put(&mut self, start: usize, number: usize) -> Result<(), Fault> {
        if self.stack.len() <= self.floor() {
            return Err(underflow(start));
        }
        let top = self.stack.len() - 1;
        let value = self.builder.pool.shared(self.stack[top])?;
        self.stack[top] = value;
        if number == self.memo.len() {
            return self.builder.pool.budget.push(&mut self.memo, Some(value));
        }
        if number > self.memo.len() + MEMO_GAP_MAX {
            return Err(Fault::new(
                start,
                format!("memo {number} right after {}: writers number in order", self.memo.len()),
            ));
        }
        if number > self.memo.len() {
            let more = number + 1 - self.memo.len();
            self.builder.pool.budget.room(&mut self.memo, more)?;
            self.memo.resize(number + 1, None);
        }
        self.memo[number] = Some(value);
        Ok(())
    }

    fn string(&mut self, len: usize) -> Result<(), Fault> {
        let start = self.at;
        self.skip(len)?;
        let value = self.builder.pool.string(start, len)?;
        self.push(value)
    }

    fn blob(&mut self, len: usize) -> Result<(), Fault> {
        self.skip(len)?;
        self.push(Value::Blob)
    }

    fn long1(&mut self) -> Result<(), Fault> {
        let len = usize::from(self.byte()?);
        self.long(len)
    }

    fn long(&mut self, len: usize) -> Result<(), Fault> {
        let start = self.at;
        self.skip(len)?;
        let value = match &self.bytes[start..start + len] {
            [] => Value::Int(0),
            bytes if len <= INTEGER_BYTES_MAX => {
                let negative = bytes[len - 1] >= 0x80;
                let mut word = [if negative { 0xff } else { 0 }; INTEGER_BYTES_MAX];
                word[..len].copy_from_slice(bytes);
                self.builder.pool.integer(i64::from_le_bytes(word))?
            }
            _ => Value::Blob,
        };
        self.push(value)
    }

    fn tuple(&mut self, start: usize, len: usize) -> Result<(), Fault> {
        if self.stack.len() < self.floor() + len {
            return Err(underflow(start));
        }
        let first = self.stack.len() - len;
        let seq = self.builder.pool.seq(&self.stack[first..])?;
        self.stack.truncate(first);
        self.push(Value::Seq(seq))
    }

    #[inline]
    fn append_items(&mut self, start: usize) -> Result<(), Fault> {
        let mark = self.close(start)?;
        let below = self.below(start, mark)?;
        let items = &self.stack[mark.stack as usize..];
        match self.stack[below] {
            Value::NewList => {
                let seq = self.builder.pool.seq(items)?;
                self.stack[below] = Value::Seq(seq);
            }
            Value::List(slot) => self.builder.pool.extend(slot, items)?,
            _ => return Err(Fault::new(start, "items for something that is no open list")),
        }
        self.cut(mark);
        Ok(())
    }

    fn append(&mut self, start: usize) -> Result<(), Fault> {
        let item = self.pop(start)?;
        let list = self.pop(start)?;
        let list = match list {
            Value::NewList => Value::Seq(self.builder.pool.seq(&[item])?),
            Value::List(slot) => {
                self.builder.pool.extend(slot, &[item])?;
                list
            }
            _ => return Err(Fault::new(start, "an item for something that is no open list")),
        };
        self.push(list)
    }

    #[inline]
    fn set_items(&mut self, start: usize) -> Result<(), Fault> {
        let mark = self.close(start)?;
        let below = self.below(start, mark)?;
        let pairs = &self.stack[mark.stack as usize..];
        if !pairs.len().is_multiple_of(2) {
            return Err(Fault::new(start, "a key without a value"));
        }
        self.stack[below] = self.builder.dict(self.stack[below], pairs)?;
        self.cut(mark);
        Ok(())
    }

    fn set_item(&mut self, start: usize) -> Result<(), Fault> {
        let value = self.pop(start)?;
        let key = self.pop(start)?;
        let dict = self.pop(start)?;
        let dict = self.builder.dict(dict, &[key, value])?;
        self.push(dict)
    }

    fn stop(&mut self, start: usize) -> Result<Value, Fault> {
        let root = self.pop(start)?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(Fault::new(start, "the pickle ends with something left open"));
        }
        Ok(root)
    }
}

#[cold]
fn underflow(start: usize) -> Fault {
    Fault::new(start, "an operation without its operand")
}

/// Why an operation is refused.
#[cold]
fn refused(start: usize, opcode: u8) -> Fault {
    let (name, why) = match opcode {
        b'c' => ("GLOBAL", CODE),
        0x93 => ("STACK_GLOBAL", CODE),
        b'R' => ("REDUCE", CODE),
        b'b' => ("BUILD", CODE),
        b'i' => ("INST", CODE),
        b'o' => ("OBJ", CODE),
        0x81 => ("NEWOBJ", CODE),
        0x92 => ("NEWOBJ_EX", CODE),
        0x82 => ("EXT1", CODE),
        0x83 => ("EXT2", CODE),
        0x84 => ("EXT4", CODE),
        b'P' => ("PERSID", CODE),
        b'Q' => ("BINPERSID", CODE),
        0x97 => ("NEXT_BUFFER", OUTSIDE),
        0x98 => ("READONLY_BUFFER", OUTSIDE),
        b'I' => ("INT", TEXT),
        b'L' => ("LONG", TEXT),
        b'F' => ("FLOAT", TEXT),
        b'V' => ("UNICODE", TEXT),
        b'S' => ("STRING", TEXT),
        b'p' => ("PUT", TEXT),
        b'g' => ("GET", TEXT),
        b'd' => ("DICT", TEXT),
        b'l' => ("LIST", TEXT),
        _ => return Fault::new(start, format!("0x{opcode:02x} is no pickle opcode")),
    };
    Fault::new(start, format!("pickle opcode {name} (0x{opcode:02x}) {why}"))
}

/// Opcodes that look up or call something.
const CODE: &str = "would run code; a dump holds data only, so this file is refused";
/// Opcodes that need data from elsewhere.
const OUTSIDE: &str = "needs data that is not in the file";
/// Opcodes of protocols 0 and 1.
const TEXT: &str = "belongs to protocol 0, which no recorder writes";
