//! How a bisection ended: read back from stored rows by pages and mails.

use super::fields::{At, Fields, Malformed, any_text, array, number, text};
use bisect::{Check, CheckResult, Checked, CommitId, Conclusion, MachineId, Status};
use serde_json::{Value, json};

fn check_word(check: Check) -> &'static str {
    match check {
        Check::Parents => "parents",
        Check::Revert => "revert",
        Check::Layout => "layout",
        Check::SameBinary => "same_binary",
    }
}

fn result_word(result: CheckResult) -> &'static str {
    match result {
        CheckResult::Passed => "passed",
        CheckResult::Failed => "failed",
        CheckResult::NotPossible => "not_possible",
    }
}

pub fn conclusion_to_json(conclusion: &Conclusion) -> Value {
    let Conclusion {
        status,
        first_bad,
        improved,
        suspects,
        confidence,
        size_confidence,
        effect_pct,
        ci95_pct,
        share_of_loss,
        machines,
        not_reproduced_on,
        checks,
        notes,
    } = conclusion;
    let commits = |list: &[CommitId]| list.iter().map(|c| json!(c.as_str())).collect::<Vec<_>>();
    let names = |list: &[MachineId]| list.iter().map(|m| json!(m.as_str())).collect::<Vec<_>>();
    let checked = |c: &Checked| {
        let Checked {
            check,
            result,
            detail,
        } = c;
        json!({ "check": check_word(*check), "result": result_word(*result), "detail": detail })
    };
    json!({
        "status": status.word(),
        "first_bad": commits(first_bad),
        "improved": commits(improved),
        "suspects": commits(suspects),
        "confidence": confidence,
        "size_confidence": size_confidence,
        "effect_pct": effect_pct,
        "ci95_pct": ci95_pct.map(|(low, high)| [low, high]),
        "share_of_loss": share_of_loss,
        "machines": names(machines),
        "not_reproduced_on": names(not_reproduced_on),
        "checks": checks.iter().map(checked).collect::<Vec<_>>(),
        "notes": notes,
    })
}

pub fn conclusion_from_json(value: &Value) -> Result<Conclusion, Malformed> {
    let mut fields = Fields::of(value, "")?;
    let (word, at) = fields.need("status")?;
    let word = text((word, at.clone()))?;
    let status = Status::ALL
        .into_iter()
        .find(|s| s.word() == word)
        .ok_or_else(|| Malformed::field(at, format!("unknown status `{word}`")))?;
    let first_bad = list(fields.get("first_bad"), |v| Ok(CommitId::new(text(v)?)))?;
    let improved = list(fields.get("improved"), |v| Ok(CommitId::new(text(v)?)))?;
    let suspects = list(fields.get("suspects"), |v| Ok(CommitId::new(text(v)?)))?;
    let confidence = number(fields.need("confidence")?)?;
    let size_confidence = fields.get("size_confidence").map(number).transpose()?;
    let effect_pct = fields.get("effect_pct").map(number).transpose()?;
    let ci95_pct = fields.get("ci95_pct").map(pair).transpose()?;
    let share_of_loss = fields.get("share_of_loss").map(number).transpose()?;
    let machines = list(fields.get("machines"), |v| Ok(MachineId::new(text(v)?)))?;
    let not_reproduced_on = list(fields.get("not_reproduced_on"), |v| Ok(MachineId::new(text(v)?)))?;
    let checks = list(fields.get("checks"), checked_from_json)?;
    let notes = list(fields.get("notes"), |v| Ok(any_text(v)?.to_owned()))?;
    fields.end()?;
    Ok(Conclusion {
        status,
        first_bad,
        improved,
        suspects,
        confidence,
        size_confidence,
        effect_pct,
        ci95_pct,
        share_of_loss,
        machines,
        not_reproduced_on,
        checks,
        notes,
    })
}

fn list<T>(value: Option<At<'_>>, one: impl Fn(At<'_>) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    match value {
        Some(value) => array(value)?.into_iter().map(one).collect(),
        None => Ok(Vec::new()),
    }
}

fn pair(value: At<'_>) -> Result<(f64, f64), Malformed> {
    let at = value.1.clone();
    let numbers = array(value)?
        .into_iter()
        .map(number)
        .collect::<Result<Vec<_>, _>>()?;
    match numbers.as_slice() {
        [low, high] => Ok((*low, *high)),
        _ => Err(Malformed::field(at, "expected two numbers")),
    }
}

fn checked_from_json((value, at): At<'_>) -> Result<Checked, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let (word, check_at) = fields.need("check")?;
    let word = text((word, check_at.clone()))?;
    let check = [Check::Parents, Check::Revert, Check::Layout, Check::SameBinary]
        .into_iter()
        .find(|c| check_word(*c) == word)
        .ok_or_else(|| Malformed::field(check_at, format!("unknown check `{word}`")))?;
    let (word, result_at) = fields.need("result")?;
    let word = text((word, result_at.clone()))?;
    let result = [CheckResult::Passed, CheckResult::Failed, CheckResult::NotPossible]
        .into_iter()
        .find(|r| result_word(*r) == word)
        .ok_or_else(|| Malformed::field(result_at, format!("unknown result `{word}`")))?;
    let detail = fields
        .get("detail")
        .map(any_text)
        .transpose()?
        .unwrap_or("")
        .to_owned();
    fields.end()?;
    Ok(Checked {
        check,
        result,
        detail,
    })
}
