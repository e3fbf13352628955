//! What the built library exports and how it is linked, read from its ELF file.
mod driver;

use std::collections::BTreeSet;

/// Section type of the dynamic symbol table.
const SHT_DYNSYM: u32 = 11;
/// Section type of the dynamic table.
const SHT_DYNAMIC: u32 = 6;
/// Dynamic tag of the second flag word.
const DT_FLAGS_1: u64 = 0x6fff_fffb;
/// Never unload.
const DF_1_NODELETE: u64 = 8;

struct Elf(Vec<u8>);

impl Elf {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.0[at..at + bytes]);
        u64::from_le_bytes(word)
    }

    /// Type, file offset, size and link of each section.
    fn sections(&self) -> Vec<(u32, usize, usize, usize)> {
        let (table, size, count) = (self.number(40, 8) as usize, self.number(58, 2) as usize, self.number(60, 2));
        let section = |i: u64| {
            let at = table + i as usize * size;
            let number = |offset, bytes| self.number(at + offset, bytes) as usize;
            (number(4, 4) as u32, number(24, 8), number(32, 8), number(40, 4))
        };
        (0..count).map(section).collect()
    }

    fn exported(&self) -> BTreeSet<String> {
        let sections = self.sections();
        let &(_, symbols, size, link) = sections.iter().find(|section| section.0 == SHT_DYNSYM).expect("has symbols");
        let names = sections[link].1;
        let defined = |at: &usize| self.number(at + 6, 2) != 0 && self.0[at + 4] >> 4 != 0;
        let name = |at: usize| {
            let start = names + self.number(at, 4) as usize;
            let length = self.0[start..].iter().position(|&byte| byte == 0).expect("terminated");
            String::from_utf8(self.0[start..start + length].to_vec()).expect("ASCII")
        };
        (symbols..symbols + size).step_by(24).filter(defined).map(name).collect()
    }

    fn flags_1(&self) -> u64 {
        let sections = self.sections();
        let &(_, at, size, _) = sections.iter().find(|section| section.0 == SHT_DYNAMIC).expect("is dynamic");
        let mut entries = (at..at + size).step_by(16).map(|at| (self.number(at, 8), self.number(at + 8, 8)));
        entries.find(|&(tag, _)| tag == DT_FLAGS_1).map_or(0, |(_, value)| value)
    }
}

#[test]
fn exports_the_tables_and_its_own_functions_and_is_never_unloaded() {
    let elf = Elf(std::fs::read(driver::plugin_path()).expect("the plugin can be read"));
    let expected: BTreeSet<String> = (1..=7)
        .map(|abi| format!("ncclProfiler_v{abi}"))
        .chain(["mycroft_step".to_owned(), "mycroft_tracing".to_owned()])
        .collect();
    assert_eq!(elf.exported(), expected);
    assert_ne!(elf.flags_1() & DF_1_NODELETE, 0, "linked with -z nodelete");
}
