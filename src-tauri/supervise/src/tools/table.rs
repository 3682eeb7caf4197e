//! The places of a home in which tools lie. Each line holds programs and libraries, and nothing that a tool keeps of its
//! user: credentials, caches, history and configuration lie beside them.

/// What one tool calls its own.
pub(super) struct Family {
    /// The person's variable that says where it is, if it is not in its usual place.
    pub(super) var: Option<&'static str>,
    /// The usual place below the home.
    pub(super) root: &'static str,
    /// What of it is shown. `*` stands for every name.
    pub(super) parts: &'static [Part],
    /// Whether the variable is set inside where it is set outside: a home that the tool writes to stays where it usually is.
    pub(super) set: bool,
}

/// One place in a family's root.
pub(super) enum Part {
    /// A directory of programs that belongs in `PATH`.
    Programs(&'static str),
    /// Anything else.
    Tools(&'static str),
    /// The programs that lie directly in the root, beside what is not shown.
    Beside,
}

use Part::{Beside, Programs, Tools};

const fn at(root: &'static str, parts: &'static [Part]) -> Family {
    Family { var: None, root, parts, set: false }
}

/// Moved by a variable, which needs not be known inside.
const fn moved(var: &'static str, root: &'static str, parts: &'static [Part]) -> Family {
    Family { var: Some(var), root, parts, set: false }
}

/// Moved by a variable, without which the tool would not find itself.
const fn named(var: &'static str, root: &'static str, parts: &'static [Part]) -> Family {
    Family { var: Some(var), root, parts, set: true }
}

/// The file of nvm that names the version to use, and where the versions are.
pub(super) const NVM: (&str, &str, &str) = (".nvm", "alias/default", "versions/node");

/// Where sdkman keeps the Java in use.
pub(super) const SDKMAN_JAVA: &str = ".sdkman/candidates/java/current";

const NPM: &[Part] = &[Programs("bin"), Tools("lib/node_modules")];
const SHIMS: &[Part] = &[
    Programs("shims"),
    Programs("bin"),
    Tools("versions"),
    Tools("libexec"),
    Tools("plugins"),
    Tools("version"),
    Tools("pyenv.d"),
    Tools("rbenv.d"),
    Tools("available-plugins"),
];

/// Every family, in the order in which their programs are found where the person's own `PATH` says nothing.
pub(super) const TABLE: &[Family] = &[
    // Rust. What cargo keeps (registry, credentials, configuration) stays in the private home, whatever CARGO_HOME says.
    moved("CARGO_HOME", ".cargo", &[Programs("bin")]),
    named("RUSTUP_HOME", ".rustup", &[Tools("toolchains"), Tools("settings.toml")]),
    // Node.
    named("NVM_DIR", ".nvm", &[Tools("versions"), Tools("alias"), Tools("nvm.sh"), Tools("nvm-exec"), Tools("bash_completion")]),
    at(".config/nvm", &[Tools("versions"), Tools("alias"), Tools("nvm.sh"), Tools("nvm-exec")]),
    named("FNM_DIR", ".local/share/fnm", &[Programs("aliases/default/bin"), Tools("aliases"), Tools("node-versions"), Beside]),
    at(".fnm", &[Programs("aliases/default/bin"), Tools("aliases"), Tools("node-versions"), Beside]),
    named("VOLTA_HOME", ".volta", &[Programs("bin"), Tools("tools"), Tools("layout.v4")]),
    moved("NPM_CONFIG_PREFIX", ".npm-global", NPM),
    at(".npm-packages", NPM),
    moved("PNPM_HOME", ".local/share/pnpm", &[Programs("bin"), Beside, Tools("global"), Tools("nodejs"), Tools(".tools")]),
    at(".yarn", &[Programs("bin"), Programs("switch/bin"), Tools("releases"), Tools("plugins")]),
    at(".config/yarn/global", &[Programs("node_modules/.bin"), Tools("node_modules")]),
    moved("BUN_INSTALL", ".bun", &[Programs("bin"), Tools("install/global")]),
    moved("DENO_INSTALL", ".deno", &[Programs("bin")]),
    // Python.
    named("PYENV_ROOT", ".pyenv", SHIMS),
    named("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", &[Tools("")]),
    moved("UV_TOOL_DIR", ".local/share/uv/tools", &[Tools("")]),
    moved("PIPX_HOME", ".local/share/pipx", &[Tools("venvs"), Tools("py"), Tools("shared")]),
    at(".local/pipx", &[Tools("venvs"), Tools("shared")]),
    // Go. What modules are downloaded stays in the private home.
    moved("GOPATH", "go", &[Programs("bin")]),
    moved("GOBIN", "go/bin", &[Programs("")]),
    named(
        "GOROOT",
        ".local/go",
        &[Programs("bin"), Tools("pkg"), Tools("src"), Tools("lib"), Tools("misc"), Tools("VERSION"), Tools("go.env")],
    ),
    at("sdk", &[Tools("*/bin"), Tools("*/pkg"), Tools("*/src"), Tools("*/lib"), Tools("*/VERSION"), Tools("*/go.env")]),
    // Java.
    named(
        "SDKMAN_DIR",
        ".sdkman",
        &[Programs("candidates/*/current/bin"), Tools("candidates/*"), Tools("bin"), Tools("libexec")],
    ),
    named("JENV_ROOT", ".jenv", SHIMS),
    // Ruby, and managers of many languages.
    named("RBENV_ROOT", ".rbenv", SHIMS),
    named(
        "ASDF_DATA_DIR",
        ".asdf",
        &[Programs("shims"), Programs("bin"), Tools("installs"), Tools("plugins"), Tools("lib"), Tools("asdf.sh")],
    ),
    named("MISE_DATA_DIR", ".local/share/mise", &[Programs("shims"), Tools("installs"), Tools("plugins")]),
    // Agents' own installs; those that npm made lie with npm's.
    at(".claude/local", &[Tools("")]),
    at(".local/share/claude", &[Tools("")]),
    at(".codex/packages", &[Tools("")]),
    at(".opencode", &[Programs("bin")]),
    at(".gemini/local", &[Tools("")]),
    // Everyone's.
    at(".local/bin", &[Programs("")]),
    at(".local/lib/node_modules", &[Tools("")]),
    at(".nix-profile", NIX),
    at(".local/state/nix/profile", NIX),
    at(".tool-versions", &[Tools("")]),
];

const NIX: &[Part] = &[Programs("bin"), Tools("lib"), Tools("libexec"), Tools("share")];

/// The variables that say where tools are, beside `PATH` and `HOME`.
pub(super) fn variables() -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter_map(|f| f.var)
}
