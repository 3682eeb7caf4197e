//! A canary in every place where a home keeps a secret: none is found from inside, wherever one looks.

use std::collections::BTreeSet;
use std::fs;
use testkit::Sandbox;

/// Where secrets lie, below the home, with `{C}` for a canary. Each `{C}` is another one.
const PLACES: &[(&str, &str)] = &[
    // Keys, tokens and passwords that no jail has any business with.
    (".ssh/id_ed25519", "{C}"),
    (".ssh/config", "Host x\n  User {C}\n"),
    (".gnupg/private-keys-v1.d/key", "{C}"),
    (".aws/credentials", "[default]\naws_secret_access_key = {C}\n"),
    (".aws/sso/cache/token.json", "{\"accessToken\":\"{C}\"}"),
    (".config/gcloud/application_default_credentials.json", "{\"refresh_token\":\"{C}\"}"),
    (".config/gcloud/credentials.db", "{C}"),
    (".azure/msal_token_cache.json", "{C}"),
    (".kube/config", "users: [{token: {C}}]"),
    (".docker/config.json", "{\"auths\":{\"x\":{\"auth\":\"{C}\"}}}"),
    (".config/containers/auth.json", "{C}"),
    (".config/gh/hosts.yml", "github.com:\n  oauth_token: {C}\n"),
    (".config/glab-cli/config.yml", "{C}"),
    (".config/hub", "{C}"),
    (".netrc", "machine example.org login me password {C}\n"),
    (".git-credentials", "https://me:{C}@example.org\n"),
    (".config/git/credentials", "https://me:{C}@example.org\n"),
    (".pypirc", "[pypi]\npassword = {C}\n"),
    (".cargo/credentials.toml", "[registry]\ntoken = \"{C}\"\n"),
    (".cargo/credentials", "{C}"),
    (".gem/credentials", ":rubygems_api_key: {C}\n"),
    (".local/share/gem/credentials", "{C}"),
    (".bundle/config", "BUNDLE_GEMS__EXAMPLE__ORG: \"{C}\"\n"),
    (".composer/auth.json", "{\"http-basic\":{\"x\":{\"password\":\"{C}\"}}}"),
    (".config/composer/auth.json", "{C}"),
    (".m2/settings-security.xml", "<settingsSecurity><master>{C}</master></settingsSecurity>"),
    (".gradle/init.d/corp.gradle", "println '{C}'"),
    (".gradle/init.gradle", "println '{C}'"),
    (".terraform.d/credentials.tfrc.json", "{C}"),
    (".terraformrc", "credentials \"x\" { token = \"{C}\" }"),
    (".vault-token", "{C}"),
    (".config/op/config", "{C}"),
    (".password-store/mail.gpg", "{C}"),
    (".local/share/keyrings/login.keyring", "{C}"),
    (".local/share/kwalletd/kdewallet.kwl", "{C}"),
    (".mozilla/firefox/p.default/logins.json", "{C}"),
    (".config/google-chrome/Default/Login Data", "{C}"),
    (".config/chromium/Default/Cookies", "{C}"),
    (".thunderbird/p/logins.json", "{C}"),
    (".bash_history", "export TOKEN={C}\n"),
    (".zsh_history", "{C}"),
    (".local/share/fish/fish_history", "{C}"),
    (".python_history", "{C}"),
    (".psql_history", "{C}"),
    (".pgpass", "*:*:*:*:{C}"),
    (".my.cnf", "[client]\npassword={C}\n"),
    (".env", "SECRET={C}\n"),
    (".bashrc", "export API_KEY={C}\n"),
    (".profile", "export API_KEY={C}\n"),
    (".zshenv", "export API_KEY={C}\n"),
    (".config/environment.d/keys.conf", "API_KEY={C}\n"),
    (".claude/.credentials.json", "{C}"),
    (".claude.json", "{\"primaryApiKey\":\"{C}\"}"),
    (".codex/auth.json", "{C}"),
    (".gemini/oauth_creds.json", "{C}"),
    (".local/share/opencode/auth.json", "{C}"),
    (".config/rclone/rclone.conf", "pass = {C}\n"),
    (".config/doctl/config.yaml", "access-token: {C}\n"),
    (".fly/config.yml", "access_token: {C}\n"),
    (".config/hcloud/cli.toml", "token = \"{C}\"\n"),
    (".vercel/auth.json", "{C}"),
    (".huggingface/token", "{C}"),
    (".cache/huggingface/token", "{C}"),
    (".config/pip/.netrc", "{C}"),
    // Beside tools that are shown.
    (".nvm/.npmrc", "//x/:_authToken={C}\n"),
    (".rustup/secret", "{C}"),
    (".pyenv/secret", "{C}"),
    (".volta/secret", "{C}"),
    (".sdkman/etc/config", "{C}"),
    (".bun/secret", "{C}"),
    (".local/share/uv/credentials/credentials.toml", "{C}"),
    (".local/share/pnpm/secret", "{C}"),
    ("go/pkg/secret", "{C}"),
    // Configuration that a jail has, without these.
    (
        ".npmrc",
        "prefix=${HOME}/.npm-global\nregistry=https://me:{C}@npm.example.org/\n//npm.example.org/:_authToken={C}\n//npm.example.org/:_password={C}\n_auth={C}\nhttps-proxy=http://me:{C}@proxy.example.org:3128\n@corp:registry=https://corp.example.org/npm/\n",
    ),
    (".npm-global/etc/npmrc", "//npm.example.org/:_authToken={C}\nfetch-retries=7\n"),
    (".config/pnpm/rc", "registry=https://pnpm.example.org/\n//pnpm.example.org/:_authToken={C}\n"),
    (".yarnrc", "registry \"https://me:{C}@yarn.example.org/\"\n\"//yarn.example.org/:_authToken\" \"{C}\"\n"),
    (
        ".yarnrc.yml",
        "npmRegistryServer: \"https://berry.example.org/\"\nnpmAuthToken: \"{C}\"\nnpmScopes:\n  corp:\n    npmAuthToken: {C}\n",
    ),
    (".pip/pip.conf", "[global]\nindex-url = https://me:{C}@pip.example.org/simple\nproxy = http://me:{C}@p:1\n"),
    (".config/pip/pip.conf", "[global]\nextra-index-url = https://me:{C}@extra.example.org/simple\n"),
    (
        ".config/uv/uv.toml",
        "index-url = \"https://me:{C}@uv.example.org/simple\"\n[[index]]\nurl = \"https://second.example.org/simple?k={C}\"\n",
    ),
    (
        ".cargo/config.toml",
        "[registries.corp]\nindex = \"sparse+https://crates.example.org/index/\"\ntoken = \"{C}\"\n[http]\nproxy = \"me:{C}@p:1\"\n[env]\nX = \"{C}\"\n",
    ),
    (".config/go/env", "GOPROXY=https://me:{C}@go.example.org,direct\nGOAUTH=netrc {C}\n"),
    (
        ".m2/settings.xml",
        "<settings><servers><server><password>{C}</password></server></servers><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>https://me:{C}@maven.example.org/</url></mirror></mirrors><profiles><profile><properties><k>{C}</k></properties></profile></profiles></settings>",
    ),
    (".gradle/gradle.properties", "org.gradle.parallel=true\nsigning.password={C}\nsystemProp.https.proxyPassword={C}\n"),
    (".gemrc", ":sources:\n- https://me:{C}@gems.example.org/\n:rubygems_api_key: {C}\n"),
    (
        ".gitconfig",
        "[user]\n\tname = Ada\n\temail = ada@example.org\n[github]\n\ttoken = {C}\n[url \"https://{C}@github.example.org/\"]\n\tinsteadOf = https://github.example.org/\n[credential]\n\thelper = !echo {C}\n[http]\n\textraHeader = Authorization: {C}\n",
    ),
    (".config/git/config", "[core]\n\tautocrlf = input\n[sendemail]\n\tsmtpPass = {C}\n"),
];

/// Programs, so that the tools beside the secrets are shown.
const PROGRAMS: &[&str] = &[
    ".cargo/bin/one",
    ".rustup/toolchains/stable/bin/rustc",
    ".nvm/versions/node/v20.0.0/bin/node",
    ".pyenv/shims/python",
    ".volta/bin/node",
    ".sdkman/candidates/java/current/bin/java",
    ".bun/bin/bun",
    ".local/share/uv/tools/ruff/bin/ruff",
    ".local/share/pnpm/pnpm",
    ".npm-global/bin/two",
    "go/bin/three",
    ".claude/local/claude",
    ".local/bin/four",
];

const VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "CARGO_REGISTRY_TOKEN",
    "LD_PRELOAD_SECRET",
    "DATABASE_URL",
];

/// What is kept of the configuration, by file.
const KEPT: &[(&str, &str)] = &[
    (".npmrc", "registry=https://npm.example.org/"),
    (".npmrc", "@corp:registry=https://corp.example.org/npm/"),
    (".npm-global/etc/npmrc", "fetch-retries=7"),
    (".config/pnpm/rc", "registry=https://pnpm.example.org/"),
    (".yarnrc", "https://yarn.example.org/"),
    (".yarnrc.yml", "npmRegistryServer: \"https://berry.example.org/\""),
    (".pip/pip.conf", "index-url = https://pip.example.org/simple"),
    (".config/pip/pip.conf", "extra-index-url = https://extra.example.org/simple"),
    (".config/uv/uv.toml", "https://uv.example.org/simple"),
    (".config/uv/uv.toml", "https://second.example.org/simple"),
    (".cargo/config.toml", "sparse+https://crates.example.org/index/"),
    (".config/go/env", "GOPROXY=https://go.example.org,direct"),
    (".m2/settings.xml", "<url>https://maven.example.org/</url>"),
    (".gradle/gradle.properties", "org.gradle.parallel=true"),
    (".gemrc", "https://gems.example.org/"),
    (".gitconfig", "ada@example.org"),
    (".config/git/config", "autocrlf"),
];

/// Looks at everything that can be read but the programs of the system, and prints each canary that it finds. The pattern does
/// not match the command that holds it.
const SEARCH: &str = "cd /; for f in /* /.[!.]*; do case $f in /usr|/proc|/sys|/bin|/sbin|/lib*) ;; *) echo \"$f\";; esac; done | \
     xargs -d '\\n' grep -rsaoh 'CANARY[-]OF[-][0-9]*' /usr/etc /usr/local/etc /usr/local/share; \
     for p in /proc/[0-9]* /proc/self /proc/thread-self; do \
       for f in environ cmdline mountinfo maps comm status; do tr '\\0' '\\n' < $p/$f; done; ls -l $p/fd $p/cwd $p/root; done 2>/dev/null | grep -ao 'CANARY[-]OF[-][0-9]*'; \
     env | grep -ao 'CANARY[-]OF[-][0-9]*'; true";

#[test]
fn p2_no_secret_of_a_home_is_found_inside_and_registries_are() {
    let person = Sandbox::new();
    let home = person.home();
    let mut planted = BTreeSet::new();
    let mut canary = || {
        let word = format!("CANARY-OF-{}", planted.len() + 1);
        planted.insert(word.clone());
        word
    };
    for (at, template) in PLACES {
        let mut text = (*template).to_owned();
        while text.contains("{C}") {
            text = text.replacen("{C}", &canary(), 1);
        }
        person.file(&format!("home/{at}"), &text);
    }
    for program in PROGRAMS {
        let path = person.file(&format!("home/{program}"), "#!/bin/sh\necho here\n");
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let secrets: Vec<(&str, String)> = VARIABLES.iter().map(|v| (*v, canary())).collect();
    assert!(PLACES.len() >= 40 && planted.len() >= 100, "{} canaries in {} places", planted.len(), PLACES.len());

    // The control: the same search, as the person, finds every one of them.
    let found = |said: &str| -> BTreeSet<String> { said.lines().map(str::to_owned).filter(|l| planted.contains(l)).collect() };
    let mut outside = person.command("sh");
    let places = format!("grep -rsaoh 'CANARY[-]OF[-][0-9]*' {}; env | grep -ao 'CANARY[-]OF[-][0-9]*'", home.display());
    outside.args(["-c", &places]).envs(secrets.iter().map(|(k, v)| (*k, v.as_str())));
    assert_eq!(found(&person.finish(outside, b"").out()), planted, "every canary is in sight outside");

    let repo = person.small_repo();
    let inside = |script: &str| {
        let mut c = person.airlock_command(["run", "--repo"]);
        c.arg(&repo.path).args(["--", "sh", "-c", script]).envs(secrets.iter().map(|(k, v)| (*k, v.as_str())));
        person.finish(c, b"").ok().out()
    };
    let said = inside(&format!("echo CANARY-OF-$((0)) > /tmp/mine; {SEARCH}"));
    assert!(said.contains("CANARY-OF-0\n"), "the search finds what is there: {said}");
    assert_eq!(found(&said), BTreeSet::new(), "and none of the person's: {said}");
    println!(
        "{} canaries in {} places and {} variables: all found outside, none inside",
        planted.len(),
        PLACES.len(),
        VARIABLES.len()
    );

    let script = KEPT.iter().map(|(at, _)| format!("echo '== {at}'; cat ~/{at}; ")).collect::<String>();
    let said = inside(&script);
    let mut file = "";
    let mut by_file: Vec<(&str, &str)> = Vec::new();
    for line in said.lines() {
        match line.strip_prefix("== ") {
            Some(at) => file = at,
            None => by_file.push((file, line)),
        }
    }
    for (at, kept) in KEPT {
        assert!(by_file.iter().any(|(f, line)| f == at && line.contains(kept)), "{kept} is kept in {at}:\n{said}");
    }
    let tools = inside(
        "for p in one two three four; do command -v $p; $p; done; git config user.email; echo mine >> ~/.npmrc && echo writable",
    );
    let here = tools.lines().filter(|l| *l == "here").count();
    assert_eq!(here, 4, "the tools beside them run: {tools}");
    assert!(tools.contains("ada@example.org\nwritable\n"), "and the agent may change its own copy: {tools}");
}
