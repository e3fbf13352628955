//! Folders of dumps and stacks as bundles.
use mycroft_formats::{Naming, Piece, assemble, read};
use mycroft_record::dump::Bundle;
use std::path::{Path, PathBuf};

/// Every file below `folder` that `wanted` likes, by its path relative to the folder.
pub(crate) fn folder(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Bundle {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        let entries = std::fs::read_dir(&next).unwrap_or_else(|error| panic!("reading {}: {error}", next.display()));
        for entry in entries {
            let path = entry.expect("an entry of a folder that was just opened").path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let naming = Naming::default();
    let pieces: Vec<Piece> = files
        .iter()
        .filter_map(|file| {
            let name = file.strip_prefix(folder).ok()?.to_str()?.to_owned();
            if !wanted(&name) {
                return None;
            }
            Some(read(&name, &std::fs::read(file).expect("a file that was just listed"), &naming))
        })
        .collect();
    let mut bundle = assemble(pieces).expect("no two files of one rank");
    bundle.notes.clear(); // what the reader says of files is its own business
    bundle
}

/// A bundle without the dump of a rank.
pub(crate) fn without(bundle: &Bundle, rank: mycroft_record::Rank) -> Bundle {
    let mut less = bundle.clone();
    less.dumps.retain(|dump| dump.rank != rank);
    less
}
