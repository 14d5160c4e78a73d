//! What lies on a device that nobody has open: a plain file system may be written over, since that is what a scratch
//! device is for; a part of something larger may not, because its other parts would be lost with it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// (offset, bytes, whose).
const AT_THE_START: [(u64, &[u8], &str); 12] = [
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT, 4096-byte sectors)"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md 1.1)"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md 1.2)"),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
    ),
];
const RAID: &[u8] = b"\xfc\x4e\x2b\xa9";
const SECTOR_BYTES: u64 = 512;

pub fn of_somebody(file: &mut File, bytes: u64) -> io::Result<Option<&'static str>> {
    for (at, magic, whose) in AT_THE_START {
        if has(file, bytes, at, magic)? {
            return Ok(Some(whose));
        }
    }
    // md 0.90 and 1.0 keep theirs at the end, at these places.
    let old = (bytes & !0xffff).checked_sub(0x1_0000);
    let new = (bytes / SECTOR_BYTES)
        .checked_sub(16)
        .map(|s| (s & !7) * SECTOR_BYTES);
    for at in [old, new].into_iter().flatten() {
        if has(file, bytes, at, RAID)? {
            return Ok(Some("a member of a RAID (md 0.90 or 1.0)"));
        }
    }
    // The copy of a table whose first one was lost.
    if let Some(last) = bytes.checked_sub(SECTOR_BYTES)
        && has(file, bytes, last, b"EFI PART")?
    {
        return Ok(Some("the copy of a partition table (GPT)"));
    }
    Ok(None)
}

fn has(file: &mut File, bytes: u64, at: u64, magic: &[u8]) -> io::Result<bool> {
    if at + magic.len() as u64 > bytes {
        return Ok(false);
    }
    let mut there = vec![0; magic.len()];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut there)?;
    Ok(there == magic)
}
