//! The real window, as a person uses it: what is on screen is read, buttons are pressed, keys are typed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod asks;
mod journey;
mod preview;
mod screen;
mod start;
mod terminal;
