//! The command line: verbs of the protocol, one call each.

use crate::root::{Root, check_hex, check_name};
use crate::trouble::Unable;
use crate::{cancel, content, follow, journey, metadata, micro, probe, start, trees, worker};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: perfbisect-agent --root DIR VERB

  probe                       what this machine is and which orders it holds
  start                       an order on stdin; detaches
  follow ID [--from N]        the order's lines, until its report
  cancel ID                   stops an order and cleans up
  resume                      at every boot: ends a journey, or goes on with it
  erase ID                    forgets an ended order
  have                        names on stdin; those that are here
  put-file SHA256             a file's bytes on stdin
  get-file SHA256             a file's bytes on stdout
  put-tree TREE               a pack on stdin

perfbisect-agent micro NAME [--loops N]   a built-in micro benchmark
perfbisect-agent metadata DIR [--threads N] [--operations N]   a built-in load of file creations, appends, deletions
perfbisect-agent --version
";

pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let Ok(words) = arguments
        .into_iter()
        .map(OsString::into_string)
        .collect::<Result<Vec<String>, _>>()
    else {
        eprintln!("perfbisect-agent: arguments are not UTF-8");
        return ExitCode::FAILURE;
    };
    match run(&words) {
        Ok(code) => code,
        Err(Unable::Refused(refusal)) => {
            let _ = print(&refusal);
            ExitCode::from(2)
        }
        Err(Unable::Broken(what)) => {
            eprintln!("perfbisect-agent: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Whether stdout was taken or not, the call itself was carried out.
fn print(value: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&text)?;
    out.flush()
}

fn say(value: impl Serialize) -> Result<ExitCode, Unable> {
    print(&value).map_err(|e| Unable::Broken(format!("cannot write the answer: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

fn run(words: &[String]) -> Result<ExitCode, Unable> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--version"] => {
            println!(
                "perfbisect-agent {} protocol {}",
                env!("CARGO_PKG_VERSION"),
                protocol::VERSION
            );
            Ok(ExitCode::SUCCESS)
        }
        ["--help"] => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        ["micro", name, ref rest @ ..] => micro::main(name, rest),
        ["metadata", folder, ref rest @ ..] => metadata::main(folder, rest),
        ["--root", dir, ref verb @ ..] => {
            let root = Root::open(&PathBuf::from(dir))?;
            perform(&root, verb)
        }
        _ => Err(Unable::Broken(format!("not understood\n{USAGE}"))),
    }
}

fn perform(root: &Root, verb: &[&str]) -> Result<ExitCode, Unable> {
    match *verb {
        ["probe"] => say(probe::probe(root)?),
        ["start"] => say(start::start(root, std::io::stdin().lock())?),
        ["follow", id] => follow::follow(root, order_id(id)?, 0),
        ["follow", id, "--from", n] => {
            let from = n
                .parse()
                .map_err(|_| Unable::Broken(format!("--from {n:?} is not a number")))?;
            follow::follow(root, order_id(id)?, from)
        }
        ["cancel", id] => say(cancel::cancel(root, order_id(id)?)?),
        ["erase", id] => {
            cancel::erase(root, order_id(id)?)?;
            Ok(ExitCode::SUCCESS)
        }
        ["resume"] => journey::resume(root),
        ["have"] => say(content::have(root, std::io::stdin().lock())?),
        ["put-file", name] => {
            check_hex("SHA-256", name, &[64])?;
            say(content::put(root, name, std::io::stdin().lock())?)
        }
        ["get-file", name] => {
            check_hex("SHA-256", name, &[64])?;
            content::get(root, name, std::io::stdout().lock())
        }
        ["put-tree", tree] => {
            check_hex("tree", tree, &[40, 64])?;
            say(trees::put(root, tree)?)
        }
        ["work", id] => worker::main(root, order_id(id)?),
        _ => Err(Unable::Broken(format!("not understood\n{USAGE}"))),
    }
}

fn order_id(id: &str) -> Result<&str, Unable> {
    check_name("order id", id)?;
    Ok(id)
}
