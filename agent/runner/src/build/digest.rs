//! Which kernels are the same binary: a digest over what is loaded, blind to what every build changes.
//!
//! Masked are the release string (unique for every kernel by design), notes (the build id, also the one within the
//! embedded vDSO), and the line numbers in the bug table, which a comment shifts. All else counts: addresses, contents,
//! and for modules, whose sections are not linked yet, their relocations.

use super::config;
use crate::trouble::{Because, Trouble};
use object::elf::SHF_ALLOC;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionFlags, SectionKind};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;

/// Owner and type of a GNU build-id note with 20 bytes, little-endian.
const BUILD_ID_NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
const BUILD_ID_BYTES: usize = 20;

pub fn of(vmlinux: &[u8], modules: &[PathBuf], release: &str, config: &str) -> Result<String, Trouble> {
    let bugs = BugTable::of(config);
    let mut hash = Sha256::new();
    add(&mut hash, "vmlinux", vmlinux, release, bugs.as_ref())?;
    for module in modules {
        let content = fs::read(module).because(|| format!("cannot read {}", module.display()))?;
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        add(&mut hash, &name, &content, release, bugs.as_ref())?;
    }
    Ok(crate::sha::hex(&hash.finalize()))
}

/// `struct bug_entry`, by configuration.
struct BugTable {
    entry: usize,
    line: usize,
}

impl BugTable {
    fn of(config: &str) -> Option<BugTable> {
        let options = config::options(config);
        let on = |name| options.get(name) == Some(&"y");
        if !on("CONFIG_DEBUG_BUGVERBOSE") {
            return None;
        }
        if on("CONFIG_GENERIC_BUG_RELATIVE_POINTERS") {
            // s32 address, s32 file, u16 line, u16 flags; newer kernels may put an s32 format after the address.
            let entry = if on("CONFIG_HAVE_ARCH_BUG_FORMAT") { 16 } else { 12 };
            return Some(BugTable {
                entry,
                line: entry - 4,
            });
        }
        None
    }
}

fn add(
    hash: &mut Sha256,
    name: &str,
    content: &[u8],
    release: &str,
    bugs: Option<&BugTable>,
) -> Result<(), Trouble> {
    let file = object::File::parse(content).because(|| format!("{name} is no ELF file"))?;
    let linked = file.kind() != object::ObjectKind::Relocatable;
    hash.update(format!("file {name}\n"));
    let mut sections: Vec<_> = file
        .sections()
        .filter(
            |s| matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(SHF_ALLOC) != 0),
        )
        .collect();
    sections.sort_by_key(|s| (s.address(), s.index().0));
    for section in sections {
        let title = section
            .name()
            .because(|| format!("a section of {name} has no name"))?;
        hash.update(format!(
            "section {title} {:x} {:x}\n",
            section.address(),
            section.size()
        ));
        // Notes are masked; sections without content have nothing but their size.
        if matches!(
            section.kind(),
            SectionKind::Note | SectionKind::UninitializedData | SectionKind::UninitializedTls
        ) || title.starts_with(".note")
        {
            continue;
        }
        let mut data = section
            .data()
            .because(|| format!("{title} of {name} cannot be read"))?
            .to_vec();
        mask_all(&mut data, release.as_bytes(), 0, release.len());
        mask_all(&mut data, BUILD_ID_NOTE, BUILD_ID_NOTE.len(), BUILD_ID_BYTES);
        if let Some(BugTable { entry, line }) = bugs
            && title == "__bug_table"
        {
            for bug in data.chunks_exact_mut(*entry) {
                bug[*line..line + 2].fill(0);
            }
        }
        hash.update(&data);
        if !linked {
            add_relocations(hash, &file, &section);
        }
    }
    Ok(())
}

/// To what a module's section will point once it is loaded.
fn add_relocations<'d>(hash: &mut Sha256, file: &object::File<'d>, section: &object::Section<'d, '_>) {
    for (offset, relocation) in section.relocations() {
        let target = match relocation.target() {
            RelocationTarget::Symbol(index) => file.symbol_by_index(index).map_or_else(
                |_| format!("{index:?}"),
                |s| {
                    format!(
                        "{} {:?} {:x}",
                        s.name().unwrap_or_default(),
                        s.section_index(),
                        s.address()
                    )
                },
            ),
            other => format!("{other:?}"),
        };
        hash.update(format!(
            "{offset:x} {:?} {target} {:x}\n",
            relocation.flags(),
            relocation.addend()
        ));
    }
}

/// Blanks `length` bytes, `skip` bytes after the start of every occurrence of `pattern`.
fn mask_all(data: &mut [u8], pattern: &[u8], skip: usize, length: usize) {
    let Some(first) = pattern.first() else { return };
    let mut from = 0;
    while let Some(found) = data[from..].iter().position(|b| b == first) {
        let at = from + found;
        from = at + 1;
        if data[at..].starts_with(pattern) {
            let end = (at + skip + length).min(data.len());
            data[(at + skip).min(end)..end].fill(0);
            from = end;
        }
    }
}
