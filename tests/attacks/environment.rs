//! The person's environment: what decides what runs, says where the session is, or is a secret, stays outside.

use std::fmt::Write as _;
use testkit::Sandbox;

const VALUE: &str = "of-the-hostile-environment";

/// Variables by which a program loads or runs something else, finds a socket, or has a secret.
const NAMES: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_DEBUG_OUTPUT",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "MALLOC_TRACE",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "ZDOTDIR",
    "IFS",
    "CDPATH",
    "INPUTRC",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "ELECTRON_RUN_AS_NODE",
    "DENO_DIR",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONWARNINGS",
    "PYTHONUSERBASE",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "GEM_HOME",
    "BUNDLE_GEMFILE",
    "LUA_INIT",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC",
    "RUSTFLAGS",
    "CARGO_HOME",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "GOFLAGS",
    "GOPROXY",
    "npm_config_registry",
    "npm_config_script_shell",
    "NPM_CONFIG_USERCONFIG",
    "YARN_RC_FILENAME",
    "PIP_INDEX_URL",
    "UV_INDEX_URL",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG_GLOBAL",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GIT_PROXY_COMMAND",
    "GIT_OBJECT_DIRECTORY",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "FCEDIT",
    "VIMINIT",
    "EXINIT",
    "MAKEFLAGS",
    "MAKEFILES",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
    "XAUTHORITY",
    "ICEAUTHORITY",
    "SESSION_MANAGER",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_CONNECTION",
    "SUDO_ASKPASS",
    "GPG_AGENT_INFO",
    "GPG_TTY",
    "GNUPGHOME",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "KUBECONFIG",
    "KRB5CCNAME",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    "CREDENTIALS_DIRECTORY",
    "TMUX",
    "STY",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
    "XDG_SESSION_ID",
    "XDG_CURRENT_DESKTOP",
    "GTK_MODULES",
    "GTK_PATH",
    "GIO_EXTRA_MODULES",
    "QT_PLUGIN_PATH",
    "QT_QPA_PLATFORM_PLUGIN_PATH",
    "GST_PLUGIN_PATH",
    "PULSE_SERVER",
    "PIPEWIRE_REMOTE",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "no_proxy",
    "CURL_HOME",
    "WGETRC",
    "NETRC",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSLKEYLOGFILE",
    "OPENSSL_CONF",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "RES_OPTIONS",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "TERMINFO",
    "TERMCAP",
    "AIRLOCK_LOG",
    "AIRLOCK_SOCKET",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITLAB_TOKEN",
    "NPM_TOKEN",
    "NODE_AUTH_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "DB_PASSWORD",
    "MYSQL_PWD",
    "PGPASSWORD",
    "SENTRY_DSN",
    "SLACK_WEBHOOK_URL",
    "HF_TOKEN",
    "VAULT_TOKEN",
    "JWT_SECRET",
    "STRIPE_SECRET_KEY",
    "TWINE_PASSWORD",
    "DIGITALOCEAN_ACCESS_TOKEN",
    "CF_API_TOKEN",
    "SUDO_COMMAND",
    "SUDO_USER",
    "SYSTEMD_EDITOR",
    "ANSIBLE_CONFIG",
    "CARGO_NET_GIT_FETCH_WITH_CLI",
    "RUSTUP_HOME",
    "JULIA_LOAD_PATH",
    "LD_BIND_NOT",
    "LD_ORIGIN_PATH",
    "LD_PROFILE",
    "DYLD_INSERT_LIBRARIES",
    "BASH_LOADABLES_PATH",
    "BASH_XTRACEFD",
    "PYTHONPYCACHEPREFIX",
    "PYTHONEXECUTABLE",
    "PERLLIB",
    "RUBYSHELL",
    "NODE_REPL_EXTERNAL_MODULE",
    "GOENV",
    "GOROOT",
    "GOBIN",
    "BUN_INSTALL",
    "PNPM_HOME",
    "PIP_CONFIG_FILE",
    "UV_CONFIG_FILE",
    "YARN_GLOBAL_FOLDER",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "XDG_BIN_HOME",
    "GPG_AGENT_SOCK",
    "WAYLAND_DEBUG",
    "DBUS_STARTER_ADDRESS",
    "MANAGERPID",
    "R_PROFILE",
];

#[test]
fn p2_nothing_of_a_hostile_environment_comes_in_by_any_pattern() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    // Every name that there can be, as far as patterns go.
    let patterns: String = ('A'..='Z').chain('a'..='z').chain(['_']).fold(String::new(), |mut all, letter| {
        write!(all, "\"{letter}*\", ").unwrap();
        all
    });
    let policy = person
        .file("wide.toml", &format!("version = 1\nname = \"wide\"\n[env]\npass = [{patterns}]\n[network]\ndefault = \"deny\"\n"));
    let policy = policy.to_str().unwrap();
    assert!(NAMES.len() >= 200, "{} names", NAMES.len());
    // What would break the programs under test themselves has an empty value there, and is looked for by its name.
    let harmful = |name: &str| {
        ["LD_", "GLIBC", "GCONV", "MALLOC", "GIT_", "SSL", "OPENSSL", "IFS", "AIRLOCK_LOG", "LOCPATH"]
            .iter()
            .any(|h| name.starts_with(h))
    };
    let values = NAMES.iter().map(|name| (*name, if harmful(name) { "" } else { VALUE }));
    let mut outside = person.command("/usr/bin/env");
    outside.envs(values.clone()).env("PLAIN", VALUE);
    let outside = person.finish(outside, b"").ok();
    let has = |out: &str, name: &str| out.lines().any(|l| l.split_once('=').is_some_and(|(k, _)| k == name));
    let shown = NAMES.iter().filter(|name| has(&outside.out(), name)).count();
    assert_eq!(shown, NAMES.len(), "a program outside has them all");

    let mut c = person.airlock_command(["run", "--policy", policy, "--repo"]);
    c.arg(&repo.path).args(["--env", "GITHUB_TOKEN=given", "--", "/usr/bin/env"]).envs(values).env("PLAIN", VALUE);
    let inside = person.finish(c, b"").ok().out();
    let own = ["XDG_RUNTIME_DIR"];
    let came: Vec<&&str> = NAMES.iter().filter(|n| has(&inside, n) && !own.contains(n) && **n != "GITHUB_TOKEN").collect();
    // A name that the jail sets anew is there with a value of its own.
    let came: Vec<&&&str> =
        came.iter().filter(|n| inside.lines().any(|l| l == format!("{n}={VALUE}") || l == format!("{n}="))).collect();
    println!("environment: {shown} controls succeeded, {} held inside ({})", shown - came.len(), testkit::wait::column());
    assert!(came.is_empty(), "none of these may be inside: {came:?}\n{inside}");
    assert!(inside.contains(&format!("PLAIN={VALUE}\n")), "what is harmless goes by the pattern: {inside}");
    assert!(inside.contains("GITHUB_TOKEN=given\n"), "what the person gives for this run by hand is there: {inside}");
}
