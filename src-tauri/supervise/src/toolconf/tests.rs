//! Samples of every family with canaries, and texts that nobody would write.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CANARY: &str = "cAnArYsEcReT";

/// What a home with these files becomes.
fn home(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let files: BTreeMap<PathBuf, &str> = files.iter().map(|(at, text)| (Path::new("/home/u").join(at), *text)).collect();
    let read = |path: &Path| files.get(path).map(|t| (*t).to_owned());
    of_home(Path::new("/home/u"), &read).into_iter().map(|(at, text)| (at.display().to_string(), text)).collect()
}

fn one(at: &str, text: &str) -> String {
    home(&[(at, text)]).remove(at).unwrap_or_default()
}

#[test]
fn p2_an_address_loses_what_could_be_secret() {
    let url = |text| value::url(text);
    for (from, to) in [
        ("https://registry.example.org/", "https://registry.example.org/"),
        ("https://me:pass@registry.example.org:8443/npm/a-b_c", "https://registry.example.org:8443/npm/a-b_c"),
        ("https://a@b:p@ss@registry.example.org", "https://registry.example.org"),
        ("https://registry.example.org/simple?token=x#y", "https://registry.example.org/simple"),
        ("sparse+https://me@registry.example.org/index/", "sparse+https://registry.example.org/index/"),
        ("http://[::1]:4873/", "http://[::1]:4873/"),
    ] {
        assert_eq!(url(from).as_deref(), Some(to), "{from}");
    }
    for bad in [
        "https://${TOKEN}@registry.example.org/",
        "https://registry.example.org/${TOKEN}/simple",
        "https://registry.example.org/dGhpc2lzYXRva2VuMTIz/simple",
        "https://ab12cd34ef56ab12cd34.example.org/",
        "file:///home/u/.ssh",
        "ssh://git@example.org/x",
        "https://",
        "https://a b/",
        "https://registry.example.org/\u{202e}x",
        "registry.example.org",
        "https://registry.example.org/a;b=c",
        "https://registry.example.org:pass/",
    ] {
        // A user is taken away before anything is looked at, so that one with a reference is kept without it.
        let clean = url(bad);
        assert!(clean.is_none() || !clean.unwrap().contains('$'), "{bad}");
    }
    assert_eq!(url("https://registry.example.org/dGhpc2lzYXRva2VuMTIz/simple"), None, "a key as a part of the path");
}

/// Of each family: a file, what must be kept of it, all else with a canary.
const SAMPLES: &[(&str, &str, &[&str])] = &[
    (
        ".npmrc",
        "registry=https://me:{C}@npm.example.org/\n@corp:registry = \"https://corp.example.org/npm/\"\nfetch-timeout=60000\n\
         //npm.example.org/:_authToken={C}\n//corp.example.org/npm/:_password={C}\n_auth={C}\nemail={C}\nproxy=http://u:{C}@p:1\n\
         https-proxy=http://{C}\nscript-shell=/bin/{C}\ngit={C}\nregistry2=https://x/{C}\ncafile=/{C}\nkey=\"{C}\"\ninit-author-name={C}\n\
         [section]\nregistry=https://{C}.example.org/\nloglevel={C}\nsave-exact=${TOKEN}\n",
        &["registry=https://npm.example.org/\n", "@corp:registry=https://corp.example.org/npm/\n", "fetch-timeout=60000\n"],
    ),
    (
        ".config/pnpm/rc",
        "registry=https://npm.example.org/\nnode-linker=hoisted\n//npm.example.org/:tokenHelper=/bin/{C}\nstore-dir=/{C}\n",
        &["registry=https://npm.example.org/\n", "node-linker=hoisted\n"],
    ),
    (
        ".yarnrc",
        "registry \"https://u:{C}@yarn.example.org/\"\n\"@corp:registry\" \"https://corp.example.org/\"\nyarn-path \"/{C}\"\n\
         \"//yarn.example.org/:_authToken\" \"{C}\"\nlastUpdateCheck 1\n# {C}\n",
        &["\"registry\" \"https://yarn.example.org/\"\n", "\"@corp:registry\" \"https://corp.example.org/\"\n"],
    ),
    (
        ".yarnrc.yml",
        "npmRegistryServer: \"https://u:{C}@berry.example.org/\" # {C}\nnodeLinker: node-modules\nnpmAuthToken: \"{C}\"\nnpmScopes:\n  corp:\n    \
         npmRegistryServer: https://corp.example.org/\n    npmAuthToken: {C}\n    npmAuthIdent: \"u:{C}\"\nnpmRegistries:\n  \"//x\":\n    npmAuthToken: {C}\n\
         yarnPath: {C}\nplugins:\n  - path: {C}\nhttpProxy: http://u:{C}@p\nlogFilters: |\n  npmRegistryServer: https://{C}.example.org/\n",
        &[
            "npmRegistryServer: \"https://berry.example.org/\"\n",
            "nodeLinker: \"node-modules\"\n",
            "  \"corp\":\n    npmRegistryServer: \"https://corp.example.org/\"\n",
        ],
    ),
    (
        ".config/pip/pip.conf",
        "[global]\nindex-url = https://u:{C}@pypi.example.org/simple\nextra-index-url =\n    https://one.example.org/simple\n    https://u:{C}@two.example.org/simple\n\
         trusted-host = pypi.example.org\ntimeout = 60\nproxy = http://u:{C}@p:1\nclient-cert = /{C}\nkeyring-provider = {C}\n[install]\nuser = {C}\n[{C}]\nindex-url=https://{C}.example.org/\n",
        &[
            "[global]\nindex-url = https://pypi.example.org/simple\n",
            "https://one.example.org/simple\n    https://two.example.org/simple\n",
            "trusted-host = pypi.example.org\n",
            "timeout = 60\n",
        ],
    ),
    (
        ".config/uv/uv.toml",
        "index-url = \"https://u:{C}@uv.example.org/simple\"\nkeyring-provider = \"{C}\"\nextra-index-url = [\"https://a.example.org/s\", \"https://b.example.org/?t={C}\"]\n\
         [[index]]\nname = \"corp\"\nurl = \"https://u:{C}@corp.example.org/simple\"\npublish-url = \"https://{C}.example.org/\"\ndefault = true\n[[index]]\nname = \"{C}\"\nurl = \"{C}\"\n[pip]\nindex-url = \"https://pip.example.org/s\"\nextra = \"{C}\"\n[env]\nX = \"{C}\"\n",
        &[
            "index-url = \"https://uv.example.org/simple\"\n",
            "url = \"https://corp.example.org/simple\"\n",
            "\"https://a.example.org/s\"",
            "index-url = \"https://pip.example.org/s\"\n",
        ],
    ),
    (
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://u:{C}@crates.example.org/index/\"\n[registries.corp]\nindex = \"https://git.example.org/index\"\ntoken = \"{C}\"\ncredential-provider = \"{C}\"\n\
         [registry]\ntoken = \"{C}\"\ndefault = \"corp\"\n[net]\nretry = 5\n[http]\nproxy = \"u:{C}@p:1\"\ncainfo = \"/{C}\"\n[build]\njobs = 4\nrustc-wrapper = \"/{C}\"\nrustflags = [\"-Clinker={C}\"]\n[alias]\nx = \"{C}\"\n[env]\nT = \"{C}\"\n[target.x86_64-unknown-linux-gnu]\nlinker = \"/{C}\"\nrunner = \"{C}\"\n",
        &[
            "replace-with = \"mirror\"",
            "registry = \"sparse+https://crates.example.org/index/\"",
            "index = \"https://git.example.org/index\"",
            "default = \"corp\"",
            "retry = 5",
            "jobs = 4",
        ],
    ),
    (
        ".config/go/env",
        "GOPROXY=https://u:{C}@go.example.org,https://second.example.org|direct\nGOPRIVATE=*.corp.example.org,git.example.org/team\nGOFLAGS=-mod=mod -toolexec=/{C}\nGOAUTH=netrc {C}\nCC=/{C}\nGOSUMDB=sum.example.org\nGONOSUMDB=${C}\n",
        &[
            "GOPROXY=https://go.example.org,https://second.example.org|direct\n",
            "GOPRIVATE=*.corp.example.org,git.example.org/team\n",
            "GOFLAGS=-mod=mod\n",
            "GOSUMDB=sum.example.org\n",
        ],
    ),
    (
        ".m2/settings.xml",
        "<?xml version=\"1.0\"?>\n<settings xmlns=\"http://maven.apache.org/SETTINGS/1.0.0\"><localRepository>/{C}</localRepository>\n<servers><server><id>corp</id><username>{C}</username><password>{C}</password><privateKey>{C}</privateKey></server></servers>\n\
         <proxies><proxy><host>{C}</host><password>{C}</password></proxy></proxies><mirrors><mirror><id>corp</id><name>Corp mirror</name><mirrorOf>*,!internal</mirrorOf><url>https://u:{C}@maven.example.org/all?x={C}</url></mirror><mirror><id>{C}</id></mirror></mirrors>\n\
         <profiles><profile><id>p</id><properties><token>{C}</token></properties><repositories><repository><id>r</id><url>https://repo.example.org/r</url><releases><enabled>true</enabled></releases></repository></repositories></profile></profiles><activeProfiles><activeProfile>p</activeProfile></activeProfiles><!-- {C} --></settings>",
        &[
            "<url>https://maven.example.org/all</url>",
            "<mirrorOf>*,!internal</mirrorOf>",
            "<name>Corp mirror</name>",
            "<url>https://repo.example.org/r</url>",
            "<activeProfile>p</activeProfile>",
        ],
    ),
    (
        ".gradle/gradle.properties",
        "org.gradle.parallel=true\norg.gradle.jvmargs=-Xmx2g -javaagent:/{C} -Dtoken={C}\norg.gradle.java.home=/{C}\nsigning.password={C}\nmavenPassword={C}\nsystemProp.https.proxyPassword={C}\norg.gradle.workers.max=4\n",
        &["org.gradle.parallel=true\n", "org.gradle.jvmargs=-Xmx2g\n", "org.gradle.workers.max=4\n"],
    ),
    (
        ".gemrc",
        "---\n:sources:\n- https://u:{C}@gems.example.org/\n- https://second.example.org/\n:verbose: true\ngem: --no-document --key {C}\n:rubygems_api_key: {C}\n:http_proxy: http://u:{C}@p\n:ssl_client_cert: /{C}\n",
        &[
            ":sources:\n  - \"https://gems.example.org/\"\n  - \"https://second.example.org/\"\n",
            ":verbose: true\n",
            "gem: \"--no-document\"\n",
        ],
    ),
    (
        ".gitconfig",
        "[user]\n\tname = Ada \"the \\\"first\\\"\"\n\temail = ada@example.org ; {C}\n\tsigningKey = {C}\n[init] defaultBranch = main\n[pull]\n\trebase = true\n[core]\n\tautocrlf = input\n\tpager = {C}\n\teditor = {C}\n\tsshCommand = {C}\n\thooksPath = /{C}\n\tfsmonitor = /{C}\n\
         [alias]\n\tx = !{C}\n[credential]\n\thelper = store --file {C}\n[credential \"https://example.org\"]\n\tusername = {C}\n[url \"https://{C}@example.org/\"]\n\tinsteadOf = https://example.org/\n[http]\n\textraHeader = Authorization: {C}\n\tproxy = http://u:{C}@p\n[filter \"x\"]\n\tclean = {C}\n[diff \"x\"]\n\talgorithm = histogram\n\ttextconv = {C}\n[diff]\n\talgorithm = patience\n\texternal = {C}\n[github]\n\ttoken = {C}\n[sendemail]\n\tsmtpPass = {C}\n[color \"{C}\"]\n\tui = auto\n[gpg]\n\tprogram = {C}\n",
        &[
            "[user]\n\tname = \"Ada the \\\"first\\\"\"\n",
            "\temail = \"ada@example.org\"\n",
            "defaultbranch = \"main\"",
            "rebase = \"true\"",
            "autocrlf = \"input\"",
            "algorithm = \"patience\"",
        ],
    ),
];

#[test]
fn p2_each_tool_keeps_its_registries_and_no_secret_or_program() {
    let families: std::collections::BTreeSet<&str> = SAMPLES.iter().map(|(at, ..)| *at).collect();
    let all = FILES.iter().map(|(at, _)| *at).chain([".gitconfig"]);
    let alike = [(".pip/pip.conf", ".config/pip/pip.conf"), (".cargo/config", ".cargo/config.toml")];
    for at in all {
        assert!(families.contains(at) || alike.iter().any(|(other, _)| *other == at), "{at} has a sample");
    }
    for (at, text, kept) in SAMPLES {
        let out = one(at, &text.replace("{C}", CANARY));
        assert!(!out.contains(CANARY), "{at}: a secret or a program came along:\n{out}");
        for line in *kept {
            assert!(out.contains(line), "{at}: {line:?} is kept:\n{out}");
        }
        assert_eq!(one(at, &out), out, "{at}: what is written is read back as it is");
        assert!(!out.contains('$'), "{at}: no reference to a variable:\n{out}");
    }
}

#[test]
fn what_is_no_file_of_its_kind_becomes_nothing() {
    for (at, ..) in SAMPLES {
        for text in [
            "",
            "\0\0",
            "<<<>>>",
            "[[[",
            "{\"a\": 1}",
            "\u{feff}",
            "= = =",
            ": : :",
            "- - -",
            "<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><settings><offline>&e;</offline></settings>",
        ] {
            assert_eq!(home(&[(at, text)]).get(*at).map(String::as_str).unwrap_or_default(), "", "{at}: {text:?}");
        }
    }
}

#[test]
fn git_includes_and_lists_of_names_come_along() {
    let files = home(&[
        (
            ".gitconfig",
            "[include]\n\tpath = .gitconfig.local\n[include]\n\tpath = loop\n[core]\n\texcludesFile = ~/.ignored\n[includeIf \"gitdir:~/job/\"]\n\tpath = work\n",
        ),
        (".gitconfig.local", "[user]\n\temail = local@example.org\n[credential]\n\thelper = secret\n"),
        ("loop", "[include]\n\tpath = loop\n"),
        ("work", "[user]\n\temail = work@example.org\n"),
        (".ignored", "*.swp\n.idea/\nbad\u{202e}line\n"),
        (".config/git/attributes", "*.png binary\n"),
    ]);
    assert_eq!(files[".gitconfig"], "[user]\n\temail = \"local@example.org\"\n");
    assert_eq!(files[".config/git/ignore"], "*.swp\n.idea/\n");
    assert_eq!(files[".config/git/attributes"], "*.png binary\n");
    assert_eq!(files.len(), 3, "{files:?}");
}

#[test]
fn npms_second_file_lies_where_its_programs_do() {
    let files = home(&[
        (".npmrc", "prefix=~/.packages\n"),
        (".packages/etc/npmrc", "registry=https://npm.example.org/\n//npm.example.org/:_authToken=x\n"),
    ]);
    assert_eq!(files[".packages/etc/npmrc"], "registry=https://npm.example.org/\n");
    assert_eq!(files.len(), 1, "{files:?}");
}

/// Keys that no family knows, and some that hold secrets.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z][a-zA-Z0-9_.-]{0,20}x9",
        Just("//npm.example.org/:_authToken".to_owned()),
        Just("_password".to_owned()),
        Just("token".to_owned()),
        Just("credential-provider".to_owned()),
        Just("proxy".to_owned()),
        Just("npmAuthToken".to_owned()),
        Just("helper".to_owned()),
        Just(":rubygems_api_key".to_owned()),
    ]
}

/// How a canary stands in a value.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(CANARY.to_owned()),
        Just(format!("\"{CANARY}\"")),
        Just(format!("https://user:{CANARY}@host.example.org/")),
        Just(format!("https://host.example.org/?key={CANARY}")),
        Just(format!("[\"{CANARY}\"]")),
        Just(format!("{{ a = \"{CANARY}\" }}")),
        Just(format!("|\n  {CANARY}")),
        Just(format!("x \\\n  {CANARY}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn p2_no_value_of_a_key_that_is_not_listed_survives(
        lines in proptest::collection::vec((key(), value(), 0_usize..6, "[ \t]{0,4}"), 1..12),
        at in 0_usize..SAMPLES.len(),
    ) {
        let (file, sample, kept) = SAMPLES[at];
        let mut text = sample.replace("{C}", CANARY);
        for (key, value, form, indent) in lines {
            text.push_str(&match form {
                0 => format!("{indent}{key}={value}\n"),
                1 => format!("{indent}{key}: {value}\n"),
                2 => format!("{indent}{key} {value}\n"),
                3 => format!("\n[{key}]\n{key} = {value}\n"),
                4 => format!("\n[{key} \"{CANARY}\"]\n\t{key} = {value}\n"),
                _ => format!("<server><{key}>{value}</{key}></server>\n"),
            });
        }
        let out = one(file, &text);
        prop_assert!(!out.contains(CANARY), "{}:\n{}\nbecame\n{}", file, text, out);
        // Lines by lines, what was good stays good; a file with a grammar of its own may be none any more.
        if [".npmrc", ".yarnrc", ".gradle/gradle.properties", ".config/go/env"].contains(&file) {
            for line in kept {
                prop_assert!(out.contains(line), "{}: {:?} in {}", file, line, out);
            }
        }
    }

    #[test]
    fn no_text_breaks_a_reader(text in "\\PC*", at in 0_usize..SAMPLES.len()) {
        one(SAMPLES[at].0, &text);
    }

    #[test]
    fn no_piece_of_a_file_breaks_a_reader(at in 0_usize..SAMPLES.len(), from in 0_usize..400, len in 0_usize..400) {
        let (file, text, _) = SAMPLES[at];
        let end = (from + len).min(text.len());
        let piece = text.get(from.min(end)..end).unwrap_or_default().replace("{C}", CANARY);
        let out = one(file, &piece);
        prop_assert!(!out.contains('$'), "{}", out);
    }
}
