//! Kits: which agents this person can start, and how.

use crate::error::{Code, Error};
use crate::{Engine, Host};
use model::run::Stdio;
use policy::{Form, Program};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A kit as a person chooses it.
#[derive(Debug, Clone, Serialize)]
pub struct KitView {
    /// Name on the command line.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// What a person must know before using it; may be empty.
    pub note: String,
    /// Where its program was found; none says that it is not installed.
    pub program: Option<PathBuf>,
}

/// One kit with the machine's word on it.
pub(crate) struct Kit(pub(crate) policy::Kit);

impl Engine {
    /// All kits.
    pub fn kits(&self) -> Result<Vec<KitView>, Error> {
        let kits = policy::kits().map_err(|p| Error::new(Code::Machine, format!("a shipped kit is broken: {p:?}")))?;
        Ok(kits
            .into_iter()
            .map(|k| {
                let kit = Kit(k);
                let program = kit.find(&self.host).ok();
                KitView { name: kit.0.name, title: kit.0.title, note: kit.0.note, program }
            })
            .collect())
    }

    pub(crate) fn kit(&self, name: &str) -> Result<Kit, Error> {
        match policy::kit(name) {
            Ok(Some(kit)) => Ok(Kit(kit)),
            Ok(None) => {
                let known: Vec<String> = self.kits()?.into_iter().map(|k| k.name).collect();
                Err(Error::new(Code::NotFound, format!("there is no agent kit `{name}`: there are {}", known.join(", "))))
            }
            Err(p) => Err(Error::new(Code::Machine, format!("the kit `{name}` is broken: {p:?}"))),
        }
    }
}

impl Kit {
    /// Finds its program.
    pub(crate) fn find(&self, host: &Host) -> Result<PathBuf, Error> {
        let executable = |p: PathBuf| {
            use std::os::unix::fs::PermissionsExt;
            p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0).then_some(p)
        };
        let found = self.0.program.iter().find_map(|p| match p {
            Program::OnPath(name) => host.which(name),
            Program::At(path) => executable(path.under(&host.home)),
            Program::Shell => host.var("SHELL").map(PathBuf::from).filter(|p| p.is_absolute()).and_then(executable),
        });
        found.ok_or_else(|| {
            let names: Vec<String> = self
                .0
                .program
                .iter()
                .map(|p| match p {
                    Program::OnPath(n) => format!("`{n}` on your PATH"),
                    Program::At(p) => format!("`{p}`"),
                    Program::Shell => "$SHELL".into(),
                })
                .collect();
            Error::new(
                Code::NotFound,
                format!("{} is not installed: looked for {}. Install it and try again", self.0.title, names.join(", ")),
            )
        })
    }

    /// Argv, and the directories of its install.
    pub(crate) fn command(&self, host: &Host, prompt: &str, stdio: Stdio) -> Result<(Vec<String>, Vec<PathBuf>), Error> {
        let found = self.find(host)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the person's own install, outside every workspace; the jail mounts what this names"
        )]
        let real = std::fs::canonicalize(&found).map_err(crate::error::io("following", &found))?;
        let program = real.to_str().ok_or_else(|| Error::new(Code::Usage, format!("{} is not UTF-8", real.display())))?;
        let prompt = (!prompt.trim().is_empty()).then_some(prompt);
        let form = match (stdio, prompt) {
            (Stdio::Pipes, Some(_)) => Form::Print,
            (Stdio::Pipes, None) | (Stdio::Terminal { .. }, _) => Form::Interactive,
        };
        let argv = self.0.argv(program, form, prompt).or_else(|| self.0.argv(program, Form::Print, prompt)).ok_or_else(|| {
            Error::new(
                Code::Usage,
                format!("{} can't be started this way: give it a prompt (--prompt TEXT), or none", self.0.title),
            )
        })?;
        let mut tools: Vec<PathBuf> = self.0.install.iter().map(|p| p.under(&host.home)).filter(|p| p.is_dir()).collect();
        tools.extend(install_of(&real));
        tools.sort();
        tools.dedup();
        Ok((argv, tools))
    }

    /// Environment that it sets.
    pub(crate) fn env_set(&self) -> Vec<(String, String)> {
        self.0.env.set.clone()
    }
}

/// The directory that a program's install is: the outermost `node_modules`, else the directory it lies in; none for the
/// system's own, which every jail shows.
fn install_of(program: &Path) -> Option<PathBuf> {
    if ["/usr", "/bin", "/sbin", "/lib", "/nix/store"].iter().any(|d| program.starts_with(d)) {
        return None;
    }
    let mut above = PathBuf::new();
    for part in program.components() {
        above.push(part);
        if part.as_os_str() == "node_modules" {
            return Some(above);
        }
    }
    program.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_install_is_the_outermost_node_modules_or_the_programs_own_directory() {
        let of = |p: &str| install_of(Path::new(p)).map(|p| p.display().to_string());
        assert_eq!(of("/home/u/n/lib/node_modules/@a/b/node_modules/c/bin/x").as_deref(), Some("/home/u/n/lib/node_modules"));
        assert_eq!(of("/home/u/.local/share/claude/versions/2").as_deref(), Some("/home/u/.local/share/claude/versions"));
        assert_eq!(of("/usr/bin/bash"), None);
    }
}
