//! What choosing costs on a range like a whole kernel's: `cargo run --release -p bisect --example masses -- 250000`.
//!
//! With `--script` it prints the same history for `git fast-import` instead, so that git can be timed on it.

use bisect::segments::{Dag, Segments, sampled};
use bisect::simulate::{Dice, Shape};
use std::io::{BufWriter, Write};
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let commits = args.iter().find_map(|a| a.parse().ok()).unwrap_or(250_000);
    let shape = Shape::kernel_like(commits, 0, &mut Dice::new(3));
    if args.iter().any(|a| a == "--script") {
        return script(&shape);
    }
    let merges = shape.parents.iter().filter(|p| p.len() > 1).count();
    println!("{commits} commits, {merges} merges");
    let dag = Dag::new(shape.parents.iter().map(|p| p.iter().copied()));
    let ones = vec![1.0; dag.len()];
    let mut dice = Dice::new(4);
    let uneven: Vec<f64> = ones.iter().map(|_| dice.unit()).collect();
    let segments = timed("contracted", || Segments::new(&dag));
    let exact = timed("exact, equal weights", || segments.masses(&ones));
    timed("exact, any weights", || segments.masses(&uneven));
    let estimate = timed("256 samples", || sampled(&dag, &ones));
    let off = exact.iter().zip(&estimate).map(|(a, b)| (a - b).abs());
    println!(
        "samples are off by up to {:.2} %",
        100.0 * off.fold(0.0, f64::max) / commits as f64
    );
    Ok(())
}

fn timed<T>(what: &str, work: impl Fn() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    println!("{what}: {:.1} ms", 1000.0 * begun.elapsed().as_secs_f64());
    done
}

fn script(shape: &Shape) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (number, own) in shape.parents.iter().enumerate() {
        let seconds = 1_700_000_000 + number;
        writeln!(out, "commit refs/heads/main\nmark :{}", number + 1)?;
        writeln!(out, "committer Lab <lab@example.org> {seconds} +0000\ndata 0")?;
        for (place, parent) in own.iter().enumerate() {
            let word = if place == 0 { "from" } else { "merge" };
            writeln!(out, "{word} :{}", parent + 1)?;
        }
        if number == shape.good as usize {
            writeln!(out, "reset refs/heads/good\nfrom :{}\n", number + 1)?;
        }
    }
    writeln!(out, "reset refs/heads/bad\nfrom :{}\n", shape.bad + 1)?;
    out.flush()
}
