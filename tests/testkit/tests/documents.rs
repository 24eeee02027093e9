//! Paths and links in the documents lead to files and headings that exist.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The addresses of a release: its registry pages, and its files, directories and pictures on GitHub.
const REGISTRY: &str =
    concat!("https://registry.terraform.io/providers/runner-tools/grit/", env!("CARGO_PKG_VERSION"), "/docs");
const FILES: &str =
    concat!("https://github.com/runner-tools/terraform-provider-grit/blob/v", env!("CARGO_PKG_VERSION"), "/");
const DIRECTORIES: &str =
    concat!("https://github.com/runner-tools/terraform-provider-grit/tree/v", env!("CARGO_PKG_VERSION"), "/");

const PICTURES: &str = concat!(
    "https://raw.githubusercontent.com/runner-tools/terraform-provider-grit/v",
    env!("CARGO_PKG_VERSION"),
    "/"
);

/// Links with these beginnings lead to documents of this repository.
const OWN: [&str; 3] = [
    "https://registry.terraform.io/providers/runner-tools/grit/",
    "https://github.com/runner-tools/terraform-provider-grit/",
    "https://raw.githubusercontent.com/runner-tools/terraform-provider-grit/",
];

/// The directories below `docs/` that the registry shows, with `docs/index.md`.
const REGISTRY_DIRECTORIES: [&str; 4] = ["actions", "data-sources", "guides", "resources"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All documents of the repository.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        found.extend(markdown(&directory));
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                directories.push(path);
            }
        }
    }
    assert!(found.len() > 40, "{found:?}");
    found
}

fn markdown(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Whether the registry shows the document.
fn is_registry_page(document: &Path) -> bool {
    let root = root();
    let path = document.strip_prefix(&root).unwrap();
    path == Path::new("docs/index.md")
        || REGISTRY_DIRECTORIES.iter().any(|directory| path.starts_with(format!("docs/{directory}")))
}

/// A document without its frontmatter and its blocks of code.
fn prose(document: &Path) -> String {
    without_code(&fs::read_to_string(document).unwrap())
}

fn without_code(text: &str) -> String {
    let text = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map_or(text, |it| it.1);
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !line.starts_with("    ")
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The anchors of a document: `<a id="…">`, and those of the headings, as GitHub and the registry make them.
fn anchors(document: &Path) -> Vec<String> {
    let text = prose(document);
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_matches(['#', ' ']));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let headings =
        titles.map(|title| title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"));
    let named =
        text.lines().filter_map(|line| line.strip_prefix("<a id=\"")?.split('"').next().map(str::to_owned));
    headings.chain(named).collect()
}

/// The file that a link leads to, and the anchor in it; `None` for a link to another site.
fn target(document: &Path, link: &str) -> Option<(PathBuf, String)> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let own = [FILES, DIRECTORIES, PICTURES].iter().find_map(|prefix| path.strip_prefix(prefix));
    let file = if let Some(page) = path.strip_prefix(REGISTRY) {
        let page = page.trim_start_matches('/');
        root().join(if page.is_empty() { "docs/index.md".to_owned() } else { format!("docs/{page}.md") })
    } else if let Some(own) = own {
        root().join(own)
    } else if path.contains("://") {
        return None;
    } else if path.is_empty() {
        document.to_owned()
    } else {
        document.parent().unwrap().join(path)
    };
    Some((file, anchor.to_owned()))
}

/// The links of a document.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The absolute form of a relative link.
fn released_link(document: &Path, link: &str) -> String {
    let (file, anchor) = target(document, link).unwrap();
    let file = file.canonicalize().unwrap_or_else(|error| panic!("{}: {link}: {error}", document.display()));
    let root = root();
    let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
    let page = path.strip_prefix("docs/").and_then(|page| page.strip_suffix(".md"));
    let address = match page {
        Some("index") => REGISTRY.to_owned(),
        Some(page) if is_registry_page(&file) => format!("{REGISTRY}/{page}"),
        _ if path.ends_with(".svg") => format!("{PICTURES}{path}"),
        _ if file.is_dir() => format!("{DIRECTORIES}{path}"),
        _ => format!("{FILES}{path}"),
    };
    if anchor.is_empty() { address } else { format!("{address}#{anchor}") }
}

/// A registry page as a release has it: Terraform's registry and OpenTofu's registry show a page at another address than GitHub, and do not
/// have the files outside the registry pages.
fn released(document: &Path) -> String {
    let mut text = fs::read_to_string(document).unwrap();
    for link in links(&prose(document)) {
        if !link.contains("://") && !link.starts_with('#') {
            text = text.replace(&format!("]({link})"), &format!("]({})", released_link(document, link)));
        }
    }
    text
}

#[test]
fn every_document_link_has_a_target() {
    let (mut count, mut broken) = (0, Vec::new());
    for document in documents() {
        for link in links(&prose(&document)) {
            let Some((file, anchor)) = target(&document, link) else { continue };
            count += 1;
            let is_found = file.exists() && (anchor.is_empty() || anchors(&file).contains(&anchor));
            if !is_found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these links have no target:\n{}", broken.join("\n"));
    assert!(count > 150, "{count} links");
}

/// A reader of a clone, or of GitHub, can follow a relative link. Only the commit of a release has absolute ones, in all its registry pages.
#[test]
fn links_to_own_documents_are_relative_except_in_a_release() {
    let (mut relative, mut absolute) = (0, Vec::new());
    for document in documents() {
        for link in links(&prose(&document)) {
            if OWN.iter().any(|own| link.starts_with(own)) {
                absolute.push((is_registry_page(&document), format!("{}: {link}", document.display())));
            } else if is_registry_page(&document) && !link.contains("://") && !link.starts_with('#') {
                relative += 1;
            }
        }
    }
    let is_released = relative == 0;
    absolute.retain(|(is_registry_page, _)| !(is_released && *is_registry_page));
    assert!(absolute.is_empty(), "use relative links: {absolute:#?}");
    assert!(is_released || relative > 150, "{relative} links");
}

/// `cargo xtask gen --release` writes these pages.
#[test]
fn released_pages_have_absolute_links_with_targets() {
    let pages = documents().into_iter().filter(|document| is_registry_page(document));
    let pages: Vec<_> = pages.map(|document| (released(&document), document)).collect();
    let (mut count, mut broken) = (0, Vec::new());
    for (text, document) in &pages {
        for link in links(&without_code(text)) {
            let is_followed = link.starts_with('#')
                || link.contains("://")
                    && target(document, link).is_none_or(|(file, _)| {
                        let is_page = file.exists() && is_registry_page(&file.canonicalize().unwrap());
                        count += 1;
                        file.exists() && is_page == link.starts_with(REGISTRY)
                    });
            if !is_followed {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "not absolute, or without a target:\n{}", broken.join("\n"));
    assert!(count > 150, "{count} links");
    if env::var_os("GRIT_RELEASE_LINKS").is_some() {
        for (text, document) in pages {
            fs::write(document, text).unwrap();
        }
    }
}

#[test]
fn registry_pages_have_frontmatter() {
    for document in documents().into_iter().filter(|document| is_registry_page(document)) {
        let text = fs::read_to_string(&document).unwrap();
        let frontmatter =
            text.strip_prefix("---\npage_title: \"").and_then(|rest| rest.split_once("\n---\n\n# "));
        let (frontmatter, _) =
            frontmatter.unwrap_or_else(|| panic!("{}: no frontmatter", document.display()));
        let mut lines: Vec<_> = frontmatter.lines().collect();
        // The page of the provider must not have one: tfplugindocs refuses it.
        let is_index = document.ends_with("docs/index.md");
        let subcategory = if is_index { "" } else { lines.remove(1) };
        let [title, description, text] = lines[..] else {
            panic!("{}: {frontmatter}", document.display());
        };
        let is_right = title.ends_with('"')
            && title.len() > 5
            && (is_index || subcategory.starts_with("subcategory: \""))
            && description == "description: |-"
            && text.starts_with("  ")
            && text.ends_with('.');
        assert!(is_right, "{}: {frontmatter}", document.display());
    }
}

#[test]
fn every_path_in_developer_guides_exists() {
    let (mut count, mut missing) = (0, Vec::new());
    let guides = ["CONTRIBUTING.md", "docs/architecture.md"].map(|guide| root().join(guide));
    for guide in guides.into_iter().chain(markdown(&root().join("docs/adr"))) {
        let text = prose(&guide);
        for span in text.split('`').skip(1).step_by(2) {
            // `docs/`, `provider/src/main.rs`: not a command, and in a directory of the repository.
            let Some((first, _)) = span.split_once('/') else { continue };
            if span.contains([' ', '*']) || !root().join(first).is_dir() {
                continue;
            }
            count += 1;
            if !root().join(span).exists() {
                missing.push(format!("{}: {span}", guide.display()));
            }
        }
    }
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
    assert!(count > 60, "{count} paths");
}
