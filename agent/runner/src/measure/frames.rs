//! How guest and agent talk over a console that the kernel prints to as well: framed lines under a marker that only
//! this boot knows, each with its length and checksum. Noise can spoil a frame, never change it; small messages are
//! said twice.

use crate::bench::News;
use protocol::{BenchmarkFailed, Phase, Proof, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Text of one frame: a line of some 700 characters, so that a printk in between costs little.
const PART_BYTES: usize = 500;

/// All messages together up to so many bytes are said again at the end.
pub const REPEAT_BYTES: usize = 16 << 10;

/// A message of more parts than this is not a message (4 MiB of output and its JSON fit).
const PARTS_LIMIT: usize = 1 << 16;

/// What the guest's init is to do; `/perfbisect.json` in the initramfs.
#[derive(Serialize, Deserialize)]
pub struct Errand {
    pub marker: String,
    pub bench: protocol::Bench,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Said {
    Hello {
        proof: Proof,
        banner: String,
    },
    Phase(Phase, u32),
    Log(String),
    RunBegins,
    Run(Run),
    End {
        seconds: BTreeMap<String, f64>,
        proof: Proof,
        environment: BTreeMap<String, String>,
    },
    BenchmarkFailed {
        failed: BenchmarkFailed,
        proof: Proof,
    },
    /// The guest's init could not do its work.
    Trouble(String),
}

impl From<News> for Said {
    fn from(news: News) -> Said {
        match news {
            News::Phase(phase, limit_s) => Said::Phase(phase, limit_s),
            News::Log(text) => Said::Log(text),
            News::RunBegins => Said::RunBegins,
            News::Run(run) => Said::Run(run),
        }
    }
}

/// One message as lines ready for the console.
pub fn encode(marker: &str, number: u32, said: &Said) -> String {
    let payload = serde_json::to_vec(said).unwrap_or_default();
    let parts: Vec<&[u8]> = payload.chunks(PART_BYTES).collect();
    let mut lines = String::new();
    for (i, part) in parts.iter().enumerate() {
        let text = base64(part);
        let head = format!("{number}.{i}.{}.{}", parts.len(), text.len());
        let check = crc32(format!("{head}.{text}").as_bytes());
        lines.push_str(&format!("\n~{marker}.{head}.{check:08x}.{text}\n"));
    }
    lines
}

/// Takes the console's bytes apart: messages in their order, and all other text.
pub struct Receiver {
    start: String,
    line: Vec<u8>,
    /// Message number to its parts.
    partial: BTreeMap<u32, Vec<Option<Vec<u8>>>>,
    next: u32,
}

impl Receiver {
    pub fn new(marker: &str) -> Receiver {
        Receiver {
            start: format!("~{marker}."),
            line: Vec::new(),
            partial: BTreeMap::new(),
            next: 0,
        }
    }

    /// Gives back the console text without the frames; whole lines, and the last one too where it cannot be a frame.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.line_done(line, &mut text);
            }
        }
        if !self.line.contains(&b'~') {
            text.append(&mut self.line);
        }
        text
    }

    fn line_done(&mut self, line: Vec<u8>, text: &mut Vec<u8>) {
        let start = self.start.as_bytes();
        match line.windows(start.len()).position(|w| w == start) {
            None => text.extend(line),
            Some(at) => {
                self.frame(&String::from_utf8_lossy(&line[at + start.len()..]));
                text.extend(&line[..at]);
                // The line feed before a frame is the frame's own.
                if at == 0 && text.ends_with(b"\n") {
                    text.pop();
                    if text.ends_with(b"\r") {
                        text.pop();
                    }
                    text.push(b'\n');
                }
            }
        }
    }

    /// A spoiled frame is dropped: its repetition, or the silence in its place, tells.
    fn frame(&mut self, frame: &str) -> Option<()> {
        let mut fields = frame.splitn(6, '.');
        let number: u32 = fields.next()?.parse().ok()?;
        let part: usize = fields.next()?.parse().ok()?;
        let parts: usize = fields.next()?.parse().ok()?;
        let length: usize = fields.next()?.parse().ok()?;
        let check = u32::from_str_radix(fields.next()?, 16).ok()?;
        let text = fields.next()?.get(..length)?;
        let head = format!("{number}.{part}.{parts}.{length}");
        if crc32(format!("{head}.{text}").as_bytes()) != check || part >= parts || parts > PARTS_LIMIT {
            return None;
        }
        if number < self.next {
            return None;
        }
        let content = unbase64(text)?;
        let slots = self.partial.entry(number).or_insert_with(|| vec![None; parts]);
        *slots.get_mut(part)? = Some(content);
        Some(())
    }

    /// The next message in order, once it is whole.
    pub fn message(&mut self) -> Option<Said> {
        let parts = self.partial.get(&self.next)?;
        let whole: Option<Vec<&Vec<u8>>> = parts.iter().map(Option::as_ref).collect();
        let payload = whole?.into_iter().flatten().copied().collect::<Vec<u8>>();
        self.partial.remove(&self.next);
        self.next += 1;
        serde_json::from_slice(&payload).ok()
    }

    /// Whether something came that cannot be given out, because a frame before it was spoiled.
    pub fn has_gap(&self) -> bool {
        !self.partial.is_empty()
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for i in 0..4 {
            match i <= group.len() {
                true => text.push(ALPHABET[(word >> (18 - 6 * i) & 63) as usize] as char),
                false => text.push('='),
            }
        }
    }
    text
}

pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let digits: Vec<u8> = group.iter().copied().take_while(|c| *c != b'=').collect();
        if group.len() != 4 || digits.len() < 2 {
            return None;
        }
        let mut word = 0u32;
        for digit in &digits {
            word = word << 6 | ALPHABET.iter().position(|c| c == digit)? as u32;
        }
        word <<= 6 * (4 - digits.len());
        bytes.extend(word.to_be_bytes()[1..].iter().take(digits.len() - 1));
    }
    Some(bytes)
}

/// CRC-32 as in Ethernet and zip, bit by bit: the texts are short.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| {
            c >> 1 ^ (0xedb8_8320 & (c & 1).wrapping_neg())
        })
    })
}
