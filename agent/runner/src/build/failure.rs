//! Why a build failed, in the few lines that a person needs.

/// As much as a mail or a page shows without scrolling for ever.
const EXCERPT_BYTES: usize = 4096;
/// After the first error the others mostly follow from it.
const ERRORS: usize = 8;
const CONTEXT_BEFORE: usize = 2;
const CONTEXT_AFTER: usize = 4;

const LINK: [&str; 7] = [
    "undefined reference to",
    "multiple definition of",
    "ld returned",
    "ld: ",
    "relocation truncated",
    "ERROR: modpost:",
    "vmlinux] Error",
];
const COMPILE: [&str; 6] = [
    ": error: ",
    ": fatal error: ",
    "Assembler messages",
    ": Error: ",
    "No rule to make target",
    "error[E",
];
const CONFIG: [&str; 5] = [
    "Kconfig:",
    "scripts/kconfig",
    "recursive dependency detected",
    "Configuration file",
    "syntax error",
];

/// `config`, `compile`, `link` or `other`.
pub fn class(output: &str) -> &'static str {
    let shows = |line: &str, patterns: &[&str]| patterns.iter().any(|p| line.contains(p));
    // A compiler's error is the cause even where a link error follows; the driver's words about ld look like one.
    if output.lines().any(|l| shows(l, &COMPILE) && !shows(l, &LINK)) {
        "compile"
    } else if output.lines().any(|l| shows(l, &LINK)) {
        "link"
    } else if output.lines().any(|l| shows(l, &CONFIG)) {
        "config"
    } else {
        "other"
    }
}

fn matters(line: &str) -> bool {
    COMPILE.iter().chain(&LINK).any(|p| line.contains(p))
        || line.contains("Error: ")
        || (line.starts_with("make") && line.contains("***"))
}

/// The first errors with their context, else the last lines.
pub fn excerpt(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let hits: Vec<usize> = (0..lines.len())
        .filter(|i| matters(lines[*i]))
        .take(ERRORS)
        .collect();
    let mut chosen = Vec::new();
    if hits.is_empty() {
        chosen.extend(lines.len().saturating_sub(30)..lines.len());
    }
    for hit in hits {
        let context = hit.saturating_sub(CONTEXT_BEFORE)..lines.len().min(hit + CONTEXT_AFTER + 1);
        chosen.extend(context.filter(|i| *i == hit || is_context(lines[*i])));
    }
    chosen.sort_unstable();
    chosen.dedup();
    let mut text = String::new();
    for i in chosen {
        if text.len() + lines[i].len() > EXCERPT_BYTES {
            text.push_str("[more was cut]\n");
            break;
        }
        text.push_str(lines[i]);
        text.push('\n');
    }
    text
}

/// kbuild's progress of other jobs is no context.
fn is_context(line: &str) -> bool {
    let progress = [
        "  CC ",
        "  AR ",
        "  LD ",
        "  AS ",
        "  HOSTCC ",
        "  GEN ",
        "  UPD ",
        "  CALL ",
        "  WRAP ",
    ];
    !progress.iter().any(|p| line.starts_with(p))
}
