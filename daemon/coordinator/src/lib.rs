//! The coordinator: takes a commit range over HTTP, drives the bisection, keeps every fact in Postgres.
//!
//! Floors (a room uses only rooms below it): `store`, `tree`, `fleet`, `images`, `post` · `passes`, `web` · `cli`.

pub mod case;
pub mod cli;
pub mod config;
pub mod fleet;
pub mod images;
pub mod passes;
pub mod plan_json;
pub mod post;
pub mod secret;
pub mod store;
pub mod surroundings;
pub mod tree;
pub mod web;
