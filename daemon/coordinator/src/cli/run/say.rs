//! What a run tells people: how it begins, how it ended, and the exit code of that.

use super::session::{End, Session, short};
use crate::cli::display::{Tint, duration};
use crate::cli::show;
use crate::plan_json::conclusion_to_json;
use bisect::{Conclusion, History, Status};
use serde_json::json;

pub const NAMED: u8 = 0;
pub const NO_LOSS: u8 = 3;
pub const NOT_NAMED: u8 = 4;
pub const STOPPED: u8 = 5;
/// As shells say it of a program that was ended by Ctrl-C.
pub const INTERRUPTED: u8 = 130;

pub fn begin(session: &mut Session, history: &History) {
    let (old, new) = session.state.settings.terms.clone();
    let end = |commit| format!("{} {}", short(commit), session.local.subject(commit));
    let lines = [
        format!("{old:<6} {}", end(history.good())),
        format!("{new:<6} {}", end(history.bad())),
        format!("{} commits between them", history.candidates()),
    ];
    for line in lines {
        session.display.line(&line);
    }
    if !session.state.observations.is_empty() {
        let kept = session.state.observations.len();
        session
            .display
            .line(&format!("{kept} measurements are kept from before"));
    }
}

pub fn exit_code(end: &End) -> u8 {
    match end {
        End::Interrupted => INTERRUPTED,
        End::Stopped(_) => STOPPED,
        End::Concluded(conclusion) => match conclusion.status {
            Status::CulpritFound | Status::CulpritsFound | Status::SeveralChanges => NAMED,
            Status::EndpointsIndistinguishable | Status::BelowThreshold | Status::ImprovedNotRegressed => {
                NO_LOSS
            }
            Status::CulpritRange
            | Status::MergeBaseBad
            | Status::MachineDependent
            | Status::Inconclusive
            | Status::InfraFailed => NOT_NAMED,
        },
    }
}

pub fn end(session: &Session, end: &End, as_json: bool) {
    let kept = session.state.observations.len();
    match end {
        End::Concluded(conclusion) if as_json => println!("{}", json(session, conclusion)),
        End::Concluded(conclusion) => {
            for commit in conclusion.first_bad.iter().chain(&conclusion.improved) {
                let named = format!("{commit} {}", session.local.subject(commit));
                println!("{}", session.display.tint(&named, Tint::Strong));
            }
            println!("{}", sentence(session, conclusion));
            show::conclusion(&conclusion_to_json(conclusion));
            println!("{:<14}{}", "spent", spent(session));
        }
        End::Interrupted | End::Stopped(_) => {
            let (state, why) = match end {
                End::Stopped(why) => ("stopped", why.as_str()),
                _ => ("interrupted", "interrupted"),
            };
            if as_json {
                println!("{}", json!({ "state": state, "why": why, "measurements": kept }));
            }
            eprintln!("perfbisect: {why}");
            eprintln!("{kept} measurements are kept; go on with `perfbisect run --continue`");
        }
    }
}

/// The result in one line.
pub fn sentence(session: &Session, conclusion: &Conclusion) -> String {
    let (_, new) = &session.state.settings.terms;
    let gain = conclusion.status == Status::ImprovedNotRegressed;
    match (conclusion.first_bad.as_slice(), conclusion.status) {
        ([_], _) => format!("is the first {new} commit: {}", effect(conclusion)),
        ([_, ..], _) => format!("are the first {new} commits"),
        (_, Status::EndpointsIndistinguishable) => "The ends do not differ by what was asked about.".into(),
        (_, Status::BelowThreshold) => "The ends differ, but by less than was asked about.".into(),
        (_, _) if gain => {
            "The second end is the better one: exchange the ends, say --higher-is-better if more is better, or --gain."
                .into()
        }
        (_, Status::CulpritRange) => "It is one of these; what lies between them cannot be tested.".into(),
        (_, Status::MergeBaseBad) => "Where both ends fork, it is slow already: the first end has a fix.".into(),
        (_, Status::InfraFailed) => "An end could not be built or measured.".into(),
        _ => "No commit can be named for sure.".into(),
    }
}

fn effect(conclusion: &Conclusion) -> String {
    let Some(effect) = conclusion.effect_pct else {
        return "its size was not measured".into();
    };
    let interval = conclusion.ci95_pct.map_or(String::new(), |(low, high)| {
        format!(" (95 % interval {low:+.1} to {high:+.1} %)")
    });
    format!(
        "{effect:+.1} %{interval}, confidence {:.3}",
        conclusion.confidence
    )
}

fn spent(session: &Session) -> String {
    let state = &session.state;
    let boots = state.observations.len();
    format!(
        "{} commits, {boots} measurements, {}",
        state.kernels(),
        duration(state.spent_s())
    )
}

/// What `--notes` writes.
pub fn note(session: &Session, conclusion: &Conclusion) -> String {
    let settings = &session.state.settings;
    format!(
        "perfbisect: {} {}: {}\nrange {}..{}, {}",
        session.state.policy.metric.name,
        conclusion.status.word().replace('_', " "),
        effect(conclusion),
        session.state.good.as_ref().map(short).unwrap_or_default(),
        settings
            .bad
            .chars()
            .take(super::session::SHORT)
            .collect::<String>(),
        spent(session)
    )
}

fn json(session: &Session, conclusion: &Conclusion) -> serde_json::Value {
    let state = &session.state;
    json!({
        "state": "concluded",
        "good": state.good.as_ref().map(|c| c.as_str()),
        "bad": state.settings.bad,
        "terms": { "old": state.settings.terms.0, "new": state.settings.terms.1 },
        "conclusion": conclusion_to_json(conclusion),
        "counts": { "kernels": state.kernels(), "boots": state.observations.len() },
        "spent_s": state.spent_s(),
        "exit_code": exit_code(&End::Concluded(Box::new(conclusion.clone()))),
    })
}
