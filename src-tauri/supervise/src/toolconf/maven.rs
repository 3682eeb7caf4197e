//! Maven's `settings.xml`.

use super::value::{Kind, keep, name, plain};
use roxmltree::{Document, Node};
use std::fmt::Write as _;

/// What a settings file may have: an element, with its kind where it holds text.
enum Shape {
    Text(&'static str, Kind),
    /// Text of a name that may hold spaces.
    Title(&'static str),
    /// Patterns of repositories, as in `*,!internal`.
    Pattern(&'static str),
    Inside(&'static str, &'static [Shape]),
}

use Shape::{Inside, Pattern, Text, Title};

const UPDATES: &[Shape] = &[
    Text("enabled", Kind::Flag),
    Text("updatePolicy", Kind::OneOf(&["always", "daily", "never"])),
    Text("checksumPolicy", Kind::OneOf(&["fail", "warn", "ignore"])),
];
const REPOSITORY: &[Shape] = &[
    Text("id", Kind::Name),
    Title("name"),
    Text("url", Kind::Url),
    Text("layout", Kind::OneOf(&["default", "legacy"])),
    Inside("releases", UPDATES),
    Inside("snapshots", UPDATES),
];
const MIRROR: &[Shape] =
    &[Text("id", Kind::Name), Title("name"), Text("url", Kind::Url), Pattern("mirrorOf"), Text("blocked", Kind::Flag)];
const PROFILE: &[Shape] = &[
    Text("id", Kind::Name),
    Inside("activation", &[Text("activeByDefault", Kind::Flag)]),
    Inside("repositories", &[Inside("repository", REPOSITORY)]),
    Inside("pluginRepositories", &[Inside("pluginRepository", REPOSITORY)]),
];
const SETTINGS: &[Shape] = &[
    Text("interactiveMode", Kind::Flag),
    Text("offline", Kind::Flag),
    Inside("mirrors", &[Inside("mirror", MIRROR)]),
    Inside("pluginGroups", &[Text("pluginGroup", Kind::Name)]),
    Inside("profiles", &[Inside("profile", PROFILE)]),
    Inside("activeProfiles", &[Text("activeProfile", Kind::Name)]),
];

pub(super) fn anew(text: &str) -> String {
    // A document type could name other files; the parser takes none.
    let Ok(document) = Document::parse(text) else { return String::new() };
    let root = document.root_element();
    let mut out = String::new();
    if root.tag_name().name() == "settings" {
        inside(root, SETTINGS, 1, &mut out);
    }
    if out.is_empty() { out } else { format!("<settings>\n{out}</settings>\n") }
}

fn inside(node: Node<'_, '_>, shapes: &[Shape], depth: usize, out: &mut String) {
    let space = "  ".repeat(depth);
    for child in node.children().filter(Node::is_element) {
        let tag = child.tag_name().name();
        let text = child.text().map(str::trim).unwrap_or_default();
        let value = shapes.iter().find_map(|shape| match shape {
            Text(t, kind) if *t == tag => keep(*kind, text),
            Title(t) if *t == tag => Some(text).filter(|v| title(v)).map(str::to_owned),
            Pattern(t) if *t == tag => Some(text).filter(|v| v.split(',').all(pattern)).map(str::to_owned),
            _ => None,
        });
        if let Some(value) = value {
            let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            _ = writeln!(out, "{space}<{tag}>{value}</{tag}>");
            continue;
        }
        let below = shapes.iter().find_map(|shape| match shape {
            Inside(t, below) if *t == tag => Some(below),
            _ => None,
        });
        let mut inner = String::new();
        if let Some(below) = below {
            inside(child, below, depth + 1, &mut inner);
        }
        // A mirror or repository without its address is none.
        let useful = !["mirror", "repository", "pluginRepository"].contains(&tag) || inner.contains("<url>");
        if !inner.is_empty() && useful {
            _ = write!(out, "{space}<{tag}>\n{inner}{space}</{tag}>\n");
        }
    }
}

fn title(text: &str) -> bool {
    plain(text) && text.split(' ').all(|word| word.is_empty() || name(word))
}

fn pattern(text: &str) -> bool {
    let text = text.trim().trim_start_matches('!');
    text == "*" || name(text) || text.strip_prefix("external:").is_some_and(|t| t == "*" || t == "http:*")
}
