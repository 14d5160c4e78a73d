//! Pages and filters of what belongs to one bisection: rows in their order, from after a row on.
//!
//! Without `limit` all of them, as their number is bounded by the search's own limits.

use super::api::Query;
use super::error::Problem;

/// Rows of a page at most.
const MOST: i64 = 1000;
/// What such a list may be asked for, besides its filters.
pub const PARAMETERS: [&str; 2] = ["after", "limit"];

/// The rows asked for, and the id to go on from where there are more.
pub fn page<T>(
    mut rows: Vec<T>,
    id: impl Fn(&T) -> String,
    query: &Query,
) -> Result<(Vec<T>, Option<String>), Problem> {
    if let Some(after) = query.get("after") {
        let found = rows.iter().position(|row| id(row) == after);
        let at = found.ok_or_else(|| Problem::not_found("no row here has the id given as `after`"))?;
        rows.drain(..=at);
    }
    let Some(limit) = query.whole("limit", 1, MOST)? else {
        return Ok((rows, None));
    };
    let limit = limit as usize;
    let next = (rows.len() > limit).then(|| id(&rows[limit - 1]));
    rows.truncate(limit);
    Ok((rows, next))
}

/// The name of one of a few states, or nothing.
pub fn one_of<'a, T>(query: &'a Query, name: &str, known: &[(&str, T)]) -> Result<Option<&'a str>, Problem> {
    match query.get(name) {
        Some(word) if !known.iter().any(|(known, _)| *known == word) => {
            let known: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
            let message = format!("must be one of {}, is `{word}`", known.join(", "));
            Err(Problem::bad_query(name, message))
        }
        word => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Result<(Vec<i32>, Option<String>), u16> {
        let query = Query::read(Some(raw), &PARAMETERS).map_err(|p| p.status)?;
        page(vec![3, 1, 4, 5], |n| n.to_string(), &query).map_err(|p| p.status)
    }

    #[test]
    fn pages_join_without_gaps() {
        assert_eq!(read(""), Ok((vec![3, 1, 4, 5], None)));
        assert_eq!(read("limit=2"), Ok((vec![3, 1], Some("1".into()))));
        assert_eq!(read("limit=2&after=1"), Ok((vec![4, 5], None)));
        assert_eq!(read("after=5"), Ok((vec![], None)));
        assert_eq!(read("after=9"), Err(404));
        assert_eq!(read("limit=0"), Err(400));
        assert_eq!(read("page=2"), Err(400));
    }
}
