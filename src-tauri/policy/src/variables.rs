//! Which variables of the person's environment never go into a jail, however a pattern is written.

/// Names that Airlock sets itself.
pub(crate) const OWN: [&str; 6] = ["HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS"];

/// Beginnings of names that make a program load or run something, or that say where something of the person's session is.
const CLOSED_STARTS: [&str; 46] = [
    "AIRLOCK_",
    "ANSIBLE_",
    "BASH_",
    "BUNDLE_",
    "BUN_",
    "CARGO_",
    "CURL_",
    "DBUS_",
    "DENO_",
    "DESKTOP_",
    "DOCKER_",
    "DYLD_",
    "ELECTRON_",
    "GDK_",
    "GEM_",
    "GIO_",
    "GIT_",
    "GLIBC_",
    "GPG_",
    "GST_",
    "GTK_",
    "JULIA_",
    "LD_",
    "LESS",
    "LISTEN_",
    "LUA_",
    "MALLOC_",
    "NPM_CONFIG_",
    "OPENSSL_",
    "PERL",
    "PIPEWIRE_",
    "PIP_",
    "PNPM_",
    "PULSE_",
    "PYTHON",
    "QT_",
    "RUBY",
    "RUSTC_",
    "SSH_",
    "SSL_",
    "SUDO_",
    "SYSTEMD_",
    "UV_",
    "WAYLAND_",
    "XDG_",
    "YARN_",
];

/// Whole names of the same kind.
const CLOSED_NAMES: [&str; 87] = [
    "ALL_PROXY",
    "BROWSER",
    "CDPATH",
    "CLASSPATH",
    "CONTAINER_HOST",
    "CREDENTIALS_DIRECTORY",
    "DISPLAY",
    "EDITOR",
    "EMACSLOADPATH",
    "ENV",
    "EXINIT",
    "FCEDIT",
    "FPATH",
    "FTP_PROXY",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLOBIGNORE",
    "GNUPGHOME",
    "GOBIN",
    "GOENV",
    "GOFLAGS",
    "GOPATH",
    "GOPROXY",
    "GOROOT",
    "GRADLE_OPTS",
    "GRADLE_USER_HOME",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HOSTALIASES",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ICEAUTHORITY",
    "IFS",
    "INPUTRC",
    "INVOCATION_ID",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JOURNAL_STREAM",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "KUBECONFIG",
    "LOCALDOMAIN",
    "LOCPATH",
    "MAINPID",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANAGERPID",
    "MANPAGER",
    "MAVEN_ARGS",
    "MAVEN_OPTS",
    "NETRC",
    "NIX_REMOTE",
    "NLSPATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "NOTIFY_SOCKET",
    "NO_PROXY",
    "PAGER",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "REQUESTS_CA_BUNDLE",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_HOME",
    "R_PROFILE",
    "SESSION_MANAGER",
    "SHELLOPTS",
    "BASHOPTS",
    "SSLKEYLOGFILE",
    "STY",
    "TERMCAP",
    "TERMINFO",
    "TMUX",
    "VIMINIT",
    "VISUAL",
    "WGETRC",
    "XAUTHORITY",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Whether a variable's name says that it holds a secret.
pub(crate) fn looks_secret(name: &str) -> bool {
    const WORDS: [&str; 20] = [
        "KEY",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASS",
        "PWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
        "AUTH",
        "COOKIE",
        "JWT",
        "BEARER",
        "PRIVATE",
        "DSN",
        "WEBHOOK",
    ];
    let name = name.to_ascii_uppercase();
    name.split('_').any(|w| WORDS.contains(&w)) || ["TOKEN", "PASSWORD", "SECRET", "APIKEY"].iter().any(|s| name.ends_with(s))
}

/// Whether a variable is the jail's own: set by Airlock, or one by which the person's environment would decide what runs inside
/// or which say where the person's session is. In any case of letters, since some programs read them so.
pub(crate) fn jails_own(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    OWN.contains(&upper.as_str())
        || CLOSED_NAMES.contains(&upper.as_str())
        || CLOSED_STARTS.iter().any(|start| upper.starts_with(start))
}

/// Whether a variable is never passed in.
pub(crate) fn closed(name: &str) -> bool {
    jails_own(name) || looks_secret(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a person's session may have that no jail may.
    const HOSTILE: [&str; 60] = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "NODE_OPTIONS",
        "BASH_ENV",
        "ENV",
        "BASH_FUNC_ls%%",
        "GIT_SSH_COMMAND",
        "GIT_DIR",
        "GIT_CONFIG_COUNT",
        "GIT_EXTERNAL_DIFF",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "RUBYLIB",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_HOME",
        "CARGO_BUILD_RUSTC_WRAPPER",
        "npm_config_registry",
        "NPM_CONFIG_SCRIPT_SHELL",
        "XDG_CONFIG_HOME",
        "XDG_DATA_DIRS",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "BROWSER",
        "DBUS_SESSION_BUS_ADDRESS",
        "DBUS_SYSTEM_BUS_ADDRESS",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "GPG_AGENT_INFO",
        "GPG_TTY",
        "DOCKER_HOST",
        "KUBECONFIG",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "TMUX",
        "http_proxy",
        "HTTPS_PROXY",
        "no_proxy",
        "PROMPT_COMMAND",
        "GTK_MODULES",
        "QT_PLUGIN_PATH",
        "GIO_EXTRA_MODULES",
        "GCONV_PATH",
        "LESSOPEN",
        "MAKEFLAGS",
        "GOFLAGS",
        "AIRLOCK_LOG",
        "SSL_CERT_FILE",
    ];

    #[test]
    fn what_decides_what_runs_inside_is_never_the_persons() {
        for name in HOSTILE {
            assert!(closed(name), "{name}");
        }
        for name in [
            "GITHUB_TOKEN",
            "ANTHROPIC_API_KEY",
            "MYSQL_PWD",
            "SENTRY_DSN",
            "SLACK_WEBHOOK_URL",
            "DB_PASS",
            "MY_JWT",
            "npm_token",
        ] {
            assert!(closed(name), "{name} holds a secret");
        }
        for name in [
            "LANG",
            "LC_ALL",
            "TERM",
            "COLORTERM",
            "TZ",
            "NO_COLOR",
            "CI",
            "NODE_ENV",
            "RUST_LOG",
            "RUST_BACKTRACE",
            "JAVA_HOME",
            "DEBUG",
            "MAKE",
        ] {
            assert!(!closed(name), "{name} may be passed where a policy names it");
        }
    }

    #[test]
    fn no_pattern_passes_what_is_closed() {
        let letters = ('A'..='Z').chain('a'..='z').chain(['_']);
        let env = crate::Env { pass: letters.map(|l| format!("{l}*")).collect(), set: Vec::new() };
        let passed: Vec<&str> = HOSTILE.into_iter().filter(|name| env.passes(name)).collect();
        assert_eq!(passed, Vec::<&str>::new());
        assert!(env.passes("LANG") && env.passes("ci"), "the rest goes by the pattern");
    }

    #[test]
    fn the_lists_are_in_upper_case() {
        for name in CLOSED_STARTS.iter().chain(&CLOSED_NAMES).chain(&OWN) {
            assert_eq!(*name, name.to_ascii_uppercase(), "names are compared in upper case");
        }
    }
}
