//! Which role each route needs: one table, read by the gate and by the description of the API.
//!
//! A route that is not named here can be read by viewers and changed by admins only: who adds one and forgets this
//! table opens nothing.

use crate::store::tokens::Role;
use axum::http::Method;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    Nothing,
    Role(Role),
}

/// `route` as the router has it: `/api/v1/bisections/{name}`; none where nothing is found, which anybody may be told.
pub fn of(method: &Method, route: Option<&str>) -> Need {
    let Some(route) = route else {
        return Need::Nothing;
    };
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match (reads, route) {
        (_, "/login") | (true, "/healthz" | "/assets/{name}" | "/api/v1/openapi.json") => Need::Nothing,
        (true, "/api/v1/tokens" | "/api/v1/actions" | "/access") => Need::Role(Role::Admin),
        (true, _) | (false, "/logout") => Need::Role(Role::Viewer),
        (false, "/api/v1/bisections" | "/submit" | "/api/v1/preview") => Need::Role(Role::Submitter),
        (false, "/api/v1/bisections/{name}/cancel" | "/bisections/{name}/cancel") => {
            Need::Role(Role::Submitter)
        }
        (false, "/api/v1/bisections/{name}/retry" | "/bisections/{name}/retry") => {
            Need::Role(Role::Submitter)
        }
        (false, "/api/v1/machines/{name}/admit") => Need::Role(Role::Operator),
        (false, _) => Need::Role(Role::Admin),
    }
}
