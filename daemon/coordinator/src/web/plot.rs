//! The plot of every sample by commit, drawn on the server as SVG: no script, readable without one.
//!
//! Along x the commits in history order, up y the metric; bands are the levels of the ends, marks are boots, their
//! shape and colour the verdict; crosses on the axis are kernels without numbers; the strip below is where the
//! planner believes the change to be. Colour comes from the style sheet by class, so both themes fit.

use super::levels::{Boot, KernelLevels};
use super::reading::LevelRead;
use super::say;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is drawn for one machine.
pub struct Plot<'a> {
    pub title: String,
    pub unit: &'a str,
    pub metric: &'a str,
    /// How many commits lie along x, and where the ends are among them.
    pub commits: usize,
    pub good_at: usize,
    pub bad_at: usize,
    pub columns: Vec<Column<'a>>,
    pub good: Option<LevelRead>,
    pub bad: Option<LevelRead>,
    /// Position and probability.
    pub suspects: Vec<(usize, f64)>,
    /// Positions of the first bad commits, once they are known.
    pub culprits: Vec<usize>,
}

/// One kernel at its commit's place.
pub struct Column<'a> {
    pub position: usize,
    pub name: String,
    pub subject: String,
    pub verdict: String,
    pub levels: &'a KernelLevels,
}

/// Pixels of a variant: the wide one for screens, the narrow one for phones.
#[derive(Clone, Copy)]
pub struct Size {
    pub id: &'static str,
    pub width: f64,
    pub height: f64,
    pub ticks_x: usize,
}

pub const WIDE: Size = Size {
    id: "wide",
    width: 1040.0,
    height: 380.0,
    ticks_x: 12,
};
pub const NARROW: Size = Size {
    id: "narrow",
    width: 370.0,
    height: 320.0,
    ticks_x: 4,
};

const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 16.0;
/// Below the plot: crosses, axis labels, and the strip of probabilities.
const BELOW: f64 = 92.0;
const STRIP: f64 = 34.0;

/// Two boots have an interval, but one of 9 standard deviations: it would hide everything else.
const INTERVAL_BOOTS: usize = 3;

struct Frame {
    size: Size,
    low: f64,
    high: f64,
    commits: usize,
}

impl Frame {
    fn x(&self, position: usize) -> f64 {
        let span = (self.commits.max(2) - 1) as f64;
        let inner = self.size.width - LEFT - RIGHT - 20.0;
        LEFT + 10.0 + inner * position as f64 / span
    }
    fn y(&self, value: f64) -> f64 {
        let inner = self.floor() - TOP;
        self.floor() - inner * (value - self.low) / (self.high - self.low)
    }
    fn floor(&self) -> f64 {
        self.size.height - BELOW
    }
    fn right(&self) -> f64 {
        self.size.width - RIGHT
    }
    /// How wide a commit's own column is, for spreading its boots.
    fn slot(&self) -> f64 {
        (self.size.width - LEFT - RIGHT) / self.commits.max(1) as f64
    }
}

pub fn svg(plot: &Plot, size: Size, key: usize) -> String {
    let (low, high) = bounds(plot);
    let frame = Frame {
        size,
        low,
        high,
        commits: plot.commits,
    };
    let mut out = String::new();
    let (w, h) = (size.width, size.height);
    let name = format!("plot-{key}-{}", size.id);
    let _ = write!(
        out,
        r#"<svg class="plot {}" viewBox="0 0 {w} {h}" role="img" aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{}</title><desc id="{name}-d">{}</desc>"#,
        size.id,
        escape(&plot.title),
        escape(&description(plot)),
    );
    grid(&mut out, &frame);
    band(&mut out, &frame, plot.good, "good");
    band(&mut out, &frame, plot.bad, "bad");
    for position in &plot.culprits {
        let x = frame.x(*position);
        let _ = write!(
            out,
            r#"<line class="culprit" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{:.1}"/>"#,
            h - STRIP + 4.0
        );
    }
    axis(&mut out, &frame, plot);
    for column in &plot.columns {
        draw(&mut out, &frame, column, plot.unit);
    }
    strip(&mut out, &frame, plot);
    out.push_str("</svg>");
    out
}

/// From the lowest to the highest thing drawn, with a little air.
fn bounds(plot: &Plot) -> (f64, f64) {
    let mut all = Vec::new();
    for column in &plot.columns {
        all.extend(
            column
                .levels
                .boots
                .iter()
                .flat_map(|b| b.runs.iter().map(|r| r.value)),
        );
    }
    for level in plot.good.iter().chain(&plot.bad) {
        all.extend([level.level, level.low, level.high]);
    }
    all.retain(|v| v.is_finite());
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match high - low {
        span if span.is_finite() && span > 0.0 => (low - span * 0.06, high + span * 0.06),
        _ if low.is_finite() => (low - low.abs().max(1.0) * 0.05, low + low.abs().max(1.0) * 0.05),
        _ => (0.0, 1.0),
    }
}

fn grid(out: &mut String, frame: &Frame) {
    let step = nice_step((frame.high - frame.low) / 5.0);
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let mut value = (frame.low / step).ceil() * step;
    // At most ten lines: the step is at least a tenth of the span.
    for _ in 0..10 {
        if value > frame.high {
            break;
        }
        let y = frame.y(value);
        let text = if value.abs() >= 1e6 {
            say::number(value)
        } else {
            format!("{value:.decimals$}").replace('-', "−")
        };
        let _ = write!(
            out,
            r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#,
            frame.right(),
            LEFT - 8.0,
            y + 4.0
        );
        value += step;
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

fn band(out: &mut String, frame: &Frame, level: Option<LevelRead>, tone: &str) {
    let Some(level) = level else { return };
    let (top, bottom, middle) = (frame.y(level.high), frame.y(level.low), frame.y(level.level));
    let _ = write!(
        out,
        r#"<g class="band {tone}"><title>{tone} end: {}, 95 % interval {} to {}</title><rect x="{LEFT}" y="{top:.1}" width="{:.1}" height="{:.1}"/><line x1="{LEFT}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}"/></g>"#,
        say::number(level.level),
        say::number(level.low),
        say::number(level.high),
        frame.right() - LEFT,
        (bottom - top).max(1.0),
        frame.right(),
    );
    // Each end's own samples lie at its own side of the plot: its name goes to the other one.
    let (x, anchor) = match tone {
        "good" => (frame.right() - 4.0, "end"),
        _ => (LEFT + 5.0, "start"),
    };
    let y = middle - 5.0;
    let _ = write!(
        out,
        r#"<text class="band-name {tone}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{tone}</text>"#
    );
}

fn axis(out: &mut String, frame: &Frame, plot: &Plot) {
    let floor = frame.floor();
    let _ = write!(
        out,
        r#"<line class="axis" x1="{LEFT}" y1="{floor:.1}" x2="{:.1}" y2="{floor:.1}"/>"#,
        frame.right()
    );
    let last = frame.commits.saturating_sub(1);
    let step = nice_step((last.max(1) as f64 / frame.size.ticks_x as f64).max(1.0)) as usize;
    let mut label = |x: f64, anchor: &str, text: &str| {
        let y = floor + 34.0;
        let _ = write!(
            out,
            r#"<text class="tick" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    };
    for (place, name) in [(plot.good_at, "good"), (plot.bad_at, "bad")] {
        match place {
            0 => label(LEFT, "start", name),
            _ if place == last => label(frame.right(), "end", name),
            _ => label(frame.x(place), "middle", name),
        }
    }
    // A number keeps clear of the names of the ends.
    let clear = 34.0;
    let free = |p: &usize| {
        [plot.good_at, plot.bad_at]
            .iter()
            .all(|end| (frame.x(*p) - frame.x(*end)).abs() > clear)
    };
    for place in (step..last).step_by(step.max(1)).filter(free) {
        label(frame.x(place), "middle", &place.to_string());
    }
}

fn draw(out: &mut String, frame: &Frame, column: &Column, unit: &str) {
    let x = frame.x(column.position);
    let head = format!(
        "{}{}",
        column.name,
        if column.subject.is_empty() {
            "".into()
        } else {
            format!(" {}", column.subject)
        }
    );
    let tone = tone(&column.verdict);
    let _ = write!(out, r#"<g class="kernel {tone}">"#);
    let boots = &column.levels.boots;
    let reach = (frame.slot() * 0.42).clamp(0.0, 9.0);
    for (i, boot) in boots.iter().enumerate() {
        let spread = if boots.len() > 1 {
            i as f64 / (boots.len() - 1) as f64 * 2.0 - 1.0
        } else {
            0.0
        };
        one_boot(out, frame, x + spread * reach, boot, &head, unit, tone);
    }
    if let Some(level) = column.levels.level().filter(|_| boots.len() >= INTERVAL_BOOTS) {
        let y = frame.y(level.level);
        let (top, bottom) = (
            frame.y(level.high).max(TOP - 8.0),
            frame.y(level.low).min(frame.floor()),
        );
        let half = reach.max(4.0) + 3.0;
        let _ = write!(
            out,
            r#"<g class="mean"><title>{}: mean of {} {} {unit}, 95 % interval {} to {}</title><line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{bottom:.1}"/><line class="level" x1="{:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/></g>"#,
            escape(&head),
            say::count(boots.len() as i64, "boot", "boots"),
            say::number(level.level),
            say::number(level.low),
            say::number(level.high),
            x - half,
            x + half,
            unit = escape(unit),
        );
    }
    if let Some(skip) = column.levels.skips.first().filter(|_| boots.is_empty()) {
        let y = frame.floor() + 10.0;
        let why = super::reading::outcome_words(&skip.word);
        let detail = if skip.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", skip.detail)
        };
        let _ = write!(
            out,
            r#"<g class="skip"><title>{}: {why}{}</title><rect class="catch" x="{:.1}" y="{:.1}" width="14" height="14"/><path d="M{:.1} {:.1}l8 8m0-8l-8 8"/></g>"#,
            escape(&head),
            escape(&detail),
            x - 7.0,
            y - 7.0,
            x - 4.0,
            y - 4.0,
        );
    }
    out.push_str("</g>");
}

fn one_boot(out: &mut String, frame: &Frame, x: f64, boot: &Boot, head: &str, unit: &str, tone: &str) {
    let runs: Vec<String> = boot.runs.iter().map(|r| r.said()).collect();
    let _ = write!(
        out,
        r#"<g class="boot"><title>{}, boot {}: {} {} (runs {})</title>"#,
        escape(head),
        boot.replicate + 1,
        say::number(boot.mean),
        escape(unit),
        runs.join(", ")
    );
    for run in boot.runs.iter().filter(|_| boot.runs.len() > 1) {
        let _ = write!(
            out,
            r#"<circle class="run" cx="{x:.1}" cy="{:.1}" r="1.3"/>"#,
            frame.y(run.value)
        );
    }
    let y = frame.y(boot.mean);
    // Shape says it as well as colour: for eyes that do not tell the colours apart, and for paper.
    let _ = match tone {
        "bad" => write!(
            out,
            r#"<path class="mark" d="M{x:.1} {:.1}l4 4-4 4-4-4z"/>"#,
            y - 4.0
        ),
        "good" => write!(out, r#"<circle class="mark" cx="{x:.1}" cy="{y:.1}" r="3.2"/>"#),
        _ => write!(
            out,
            r#"<circle class="mark open" cx="{x:.1}" cy="{y:.1}" r="3"/>"#
        ),
    };
    out.push_str("</g>");
}

fn strip(out: &mut String, frame: &Frame, plot: &Plot) {
    let base = frame.size.height - 6.0;
    let top = frame.size.height - STRIP;
    let tallest = plot.suspects.iter().map(|(_, p)| *p).fold(0.0, f64::max);
    let _ = write!(
        out,
        r#"<line class="axis" x1="{LEFT}" y1="{base:.1}" x2="{:.1}" y2="{base:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">suspects</text>"#,
        frame.right(),
        LEFT - 8.0,
        base
    );
    if tallest <= 0.0 {
        return;
    }
    let width = (frame.slot() * 0.8).clamp(2.0, 14.0);
    for (position, p) in &plot.suspects {
        let height = ((base - top) * p / tallest).max(1.0);
        let _ = write!(
            out,
            r#"<rect class="suspect" x="{:.1}" y="{:.1}" width="{width:.1}" height="{height:.1}"><title>commit {position}: {}</title></rect>"#,
            frame.x(*position) - width / 2.0,
            base - height,
            say::share(*p)
        );
    }
}

fn tone(verdict: &str) -> &str {
    match verdict {
        "good" | "bad" | "skip" => verdict,
        _ => "open",
    }
}

/// What somebody who does not see the picture is told; the table below it has every number.
fn description(plot: &Plot) -> String {
    let boots: usize = plot.columns.iter().map(|c| c.levels.boots.len()).sum();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for column in &plot.columns {
        *counts.entry(tone(&column.verdict)).or_default() += 1;
    }
    let kernels: Vec<String> = counts.iter().map(|(tone, n)| format!("{n} {tone}")).collect();
    let level = |name: &str, level: Option<LevelRead>| {
        level
            .map(|l| format!(" {name} level {} {}.", say::number(l.level), plot.unit))
            .unwrap_or_default()
    };
    format!(
        "{} of {} along {} commits: {boots} boots; kernels: {}.{}{} The table that follows has the numbers.",
        plot.metric,
        plot.columns.len(),
        plot.commits,
        if kernels.is_empty() {
            "none yet".into()
        } else {
            kernels.join(", ")
        },
        level("Good", plot.good),
        level("Bad", plot.bad),
    )
}

pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
