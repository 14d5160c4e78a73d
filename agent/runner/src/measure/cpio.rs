//! The guest's file system: a cpio archive (`newc`) with the agent as `/init`, its errand and the workload's files.

use crate::trouble::{Because, Trouble};
use object::elf::{PT_INTERP, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const CHARACTER_DEVICE: u32 = 0o020600;

/// An archive under construction.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// With the folders above it.
    pub fn directory(&mut self, name: &str) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.directory(above);
        }
        if self.directories.insert(name.to_string()) {
            self.entry(name, DIRECTORY, (0, 0), b"");
        }
    }

    pub fn program(&mut self, name: &str, content: &[u8]) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.directory(above);
        }
        self.entry(name, PROGRAM, (0, 0), content);
    }

    pub fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE, (major, minor), b"");
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, (0, 0), b"");
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }
}

/// The agent's own file without symbols and debugging data: a guest's kernel would copy them for nothing.
pub fn init_program(path: &Path) -> Result<Vec<u8>, Trouble> {
    let mut content = std::fs::read(path).because(|| "cannot read the agent's own file".into())?;
    let end = {
        let file = ElfFile64::<object::Endianness>::parse(&*content)
            .because(|| "the agent's own file is no 64-bit ELF file".into())?;
        let endian = file.endian();
        let headers = file.elf_program_headers();
        if headers.iter().any(|h| h.p_type(endian) == PT_INTERP) {
            let what = "this agent is not linked statically, so it cannot be a guest's init; install one built with \
                        -C target-feature=+crt-static";
            return Err(Trouble(what.into()));
        }
        let table = file.elf_header().e_phoff(endian) + 64 * headers.len() as u64;
        let loaded = headers.iter().filter(|h| h.p_type(endian) == PT_LOAD);
        loaded
            .map(|h| h.p_offset(endian) + h.p_filesz(endian))
            .fold(table, u64::max) as usize
    };
    content.truncate(end);
    // No section table any more: its place, its number of entries and the names' index.
    for field in [0x28..0x30, 0x3c..0x40] {
        content[field].fill(0);
    }
    Ok(content)
}
