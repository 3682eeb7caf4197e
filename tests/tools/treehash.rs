//! `treehash [--list] DIR…` prints the hash of each tree, or every entry that goes into it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::path::Path;
use std::process::ExitCode;
use testkit::treehash::treehash;

fn main() -> ExitCode {
    let mut list = false;
    let mut trees = vec![];
    for word in std::env::args_os().skip(1) {
        if word == "--list" {
            list = true;
        } else {
            trees.push(word);
        }
    }
    if trees.is_empty() {
        eprintln!("usage: treehash [--list] DIR…");
        return ExitCode::from(2);
    }
    for tree in &trees {
        match treehash(Path::new(tree)) {
            Ok(hash) => {
                if list {
                    hash.lines.iter().for_each(|line| println!("{line}"));
                }
                println!("{}  {}", hash.total, Path::new(tree).display());
            }
            Err(error) => {
                eprintln!("treehash: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
