//! What a person does, from start to end, with Airlock's real programs: create, run, watch, review, apply, undo.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod applying;
mod asks;
mod bad_input;
mod bad_plan;
mod brought;
mod clients;
mod codes_and_streams;
mod databases;
mod doors;
mod forges;
mod killed;
mod limits;
mod pressure;
mod preview;
mod proxied;
mod raised;
mod reading;
mod real_agent;
mod registries;
mod shell_agent;
mod signed;
mod sources;
mod steps;
mod together;
mod upstreams;
mod watching;
mod wire;
