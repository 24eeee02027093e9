//! The structure of a crate, read from its source: which files import which others, and which other crates each file uses.
//!
//! The files are found through their `mod` declarations, from `lib.rs` down. Code under `#[cfg(test)]` is left out. A path that leads through
//! re-exports counts as an import of the file that declares the item, and a re-export of a module's own descendant is not an import.

mod read;
mod resolve;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use self::read::Module;

/// The most lines that a source file may have, tests included (CONTRIBUTING.md).
pub const MAX_FILE_LINES: usize = 400;

/// The Rust files below `directory` with more than [`MAX_FILE_LINES`] lines, with their numbers of lines.
///
/// # Panics
///
/// When a file or directory cannot be read.
#[must_use]
pub fn long_files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(directory)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            open.extend(entries.flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let (lines, name) = (text.lines().count(), path.strip_prefix(directory).unwrap_or(&path));
            if lines > MAX_FILE_LINES {
                found.push(format!("{}: {lines} lines", name.display()));
            }
        }
    }
    found.sort();
    found
}

/// A file of the crate at `source` imports its own layer and those below it. `layers`: see [`Architecture::imports_that_run_up`].
///
/// # Panics
///
/// When a file imports a higher layer, or is in no layer.
#[track_caller]
pub fn assert_layers(source: &Path, layers: &[&[&str]]) {
    let found = Architecture::read(source).imports_that_run_up(layers);
    assert!(
        found.is_empty(),
        "A file may import its own layer and those below it, in this order: {layers:?}. Move the item to the lowest layer that needs it, or \
         pass it as an argument:\n{}",
        found.join("\n")
    );
}

/// No files of the crate at `source` import each other.
///
/// # Panics
///
/// When some do.
#[track_caller]
pub fn assert_no_circles(source: &Path) {
    let circles: Vec<_> =
        Architecture::read(source).circles().iter().map(|circle| circle.join(", ")).collect();
    assert!(
        circles.is_empty(),
        "Files must not import each other, directly or through others. Move what both need into a file of its own:\n{}",
        circles.join("\n")
    );
}

/// Only the files below these places of the crate at `source` name the library.
///
/// # Panics
///
/// When another file names it, and when none does.
#[track_caller]
pub fn assert_named_only_in(source: &Path, library: &str, places: &[&str]) {
    let uses = Architecture::read(source).files_that_use(&[library]);
    assert!(!uses.is_empty(), "{library} is not used: the rule checks nothing");
    let is_elsewhere = |(file, _): &&(String, String)| !places.iter().any(|place| file.starts_with(place));
    let elsewhere: Vec<_> = uses.iter().filter(is_elsewhere).collect();
    assert!(elsewhere.is_empty(), "only {places:?} may name {library}: {elsewhere:#?}");
}

/// No file of the crate at `source` has more than [`MAX_FILE_LINES`] lines.
///
/// # Panics
///
/// When one has.
#[track_caller]
pub fn assert_line_limit(source: &Path) {
    let found = long_files(source);
    assert!(
        found.is_empty(),
        "A source file has at most {MAX_FILE_LINES} lines, tests included. Split it by subject, or move its tests to `tests.rs`:\n{}",
        found.join("\n")
    );
}

/// One file that imports another one of the same crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// Relative to the source directory, such as `daemon/run.rs`.
    pub from: String,
    pub to: String,
    /// The first path in `from` that leads to `to`.
    pub path: String,
}

/// The structure of one crate.
#[derive(Debug)]
pub struct Architecture {
    imports: BTreeMap<(String, String), String>,
    /// File and path, such as (`daemon/run.rs`, `tokio::select`).
    external: BTreeSet<(String, String)>,
    files: BTreeSet<String>,
}

impl Architecture {
    /// Reads the crate whose root is `lib.rs` in the directory `source`.
    ///
    /// # Panics
    ///
    /// When a file is missing or is not valid Rust.
    #[must_use]
    pub fn read(source: &Path) -> Self {
        let modules = read::modules(source);
        let mut architecture = Self {
            imports: BTreeMap::new(),
            external: BTreeSet::new(),
            files: modules.values().map(|module| module.file.clone()).collect(),
        };
        for (name, module) in &modules {
            architecture.add(&modules, name, module);
        }
        architecture
    }

    /// Every import, sorted.
    #[must_use]
    pub fn imports(&self) -> Vec<Import> {
        let import = |((from, to), path): (&(String, String), &String)| Import {
            from: from.clone(),
            to: to.clone(),
            path: path.clone(),
        };
        self.imports.iter().map(import).collect()
    }

    /// The imports that lead from a lower layer to a higher one, and the files that are in no layer.
    ///
    /// `layers` goes from the highest to the lowest. A layer is a list of files (`run.rs`) and directories (`fleet/`); for each file
    /// the longest match counts.
    #[must_use]
    pub fn imports_that_run_up(&self, layers: &[&[&str]]) -> Vec<String> {
        let layer = |file: &str| {
            let matches = |place: &str| file == place || (place.ends_with('/') && file.starts_with(place));
            let all = layers.iter().enumerate().flat_map(|(index, layer)| {
                layer.iter().filter(|place| matches(place)).map(move |place| (place.len(), index))
            });
            all.max().map(|(_, index)| index)
        };
        let without = self.files.iter().filter(|file| layer(file).is_none());
        let mut found: Vec<_> = without.map(|file| format!("{file} is in no layer")).collect();
        for Import { from, to, path } in self.imports() {
            if layer(&to) < layer(&from) {
                found.push(format!("{from} imports {to} ({path})"));
            }
        }
        found
    }

    /// The groups of files that import each other, directly or through other files.
    #[must_use]
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reachable = |start: &str| {
            let mut found = BTreeSet::new();
            let mut open = vec![start.to_owned()];
            while let Some(file) = open.pop() {
                let next = self.imports.keys().filter(|(from, _)| *from == file).map(|(_, to)| to);
                open.extend(next.filter(|to| found.insert((*to).clone())).cloned());
            }
            found
        };
        let reach: BTreeMap<_, _> = self.files.iter().map(|file| (file, reachable(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, from_here) in &reach {
            let circle: Vec<_> =
                from_here.iter().filter(|other| reach[other].contains(*file)).cloned().collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// The files that use one of these paths of other crates, such as `tonic` or `std::env`, each with the path it uses.
    #[must_use]
    pub fn files_that_use(&self, paths: &[&str]) -> Vec<(String, String)> {
        let within = |used: &str, path: &str| {
            used.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let matches = |used: &str| paths.iter().any(|path| within(used, path));
        self.external.iter().filter(|(_, used)| matches(used)).cloned().collect()
    }

    /// Adds the imports of one module.
    fn add(&mut self, modules: &BTreeMap<Vec<String>, Module>, name: &[String], module: &Module) {
        for used in &module.paths {
            match resolve::target(modules, name, &used.segments) {
                resolve::Target::Module(target) => {
                    let to = &modules[&target].file;
                    let of_descendant = used.is_re_export && target.starts_with(name);
                    if *to != module.file && !of_descendant {
                        let key = (module.file.clone(), to.clone());
                        self.imports.entry(key).or_insert_with(|| used.segments.join("::"));
                    }
                }
                resolve::Target::External(path) => {
                    self.external.insert((module.file.clone(), path.join("::")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `read` returns for a directory with these files.
    fn read_files<T>(files: &[(&str, &str)], read: impl FnOnce(&Path) -> T) -> T {
        let directory = std::env::temp_dir().join(format!("grit-architecture-{}", std::process::id()));
        let thread = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_digit(), "");
        let directory = directory.join(thread);
        for (name, text) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let result = read(&directory);
        fs::remove_dir_all(&directory).unwrap();
        result
    }

    /// A crate of these files.
    fn crate_of(files: &[(&str, &str)]) -> Architecture {
        read_files(files, Architecture::read)
    }

    #[test]
    fn files_above_the_line_limit_are_found() {
        let (long, short) = ("\n".repeat(MAX_FILE_LINES + 1), "\n".repeat(MAX_FILE_LINES));
        let files = [("lib.rs", short.as_str()), ("a/b.rs", long.as_str()), ("a/long.txt", long.as_str())];
        assert_eq!(read_files(&files, long_files), ["a/b.rs: 401 lines"]);
    }

    fn pairs(architecture: &Architecture) -> Vec<(String, String)> {
        architecture.imports().into_iter().map(|import| (import.from, import.to)).collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn imports_come_from_uses_paths_and_macros_not_tests() {
        let architecture = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            (
                "a.rs",
                "use crate::{b::{self, B}, other::X}; fn f() { b::g(); }\n#[cfg(test)] mod tests { use crate::d::D; }",
            ),
            ("b.rs", "pub struct B; pub fn g() { super::c::h() }"),
            ("c.rs", "pub fn h() { println!(\"{}\", crate::d::D) }"),
            ("d.rs", "pub const D: u8 = 1;"),
        ]);
        let expected = [pair("a.rs", "b.rs"), pair("b.rs", "c.rs"), pair("c.rs", "d.rs")];
        let without_root: Vec<_> =
            pairs(&architecture).into_iter().filter(|(_, to)| to != "lib.rs").collect();
        assert_eq!(without_root, expected);
        assert!(architecture.circles().is_empty());
    }

    #[test]
    fn re_exports_resolve_to_defining_file() {
        let architecture = crate_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; mod other; pub use self::inner::Inner; pub(crate) use other::*;"),
            ("a/inner.rs", "use super::Other; pub struct Inner;"),
            ("a/other.rs", "pub struct Other;"),
            ("b.rs", "use crate::a::{Inner as I, Other}; type T = I;"),
        ]);
        let expected =
            [pair("a/inner.rs", "a/other.rs"), pair("b.rs", "a/inner.rs"), pair("b.rs", "a/other.rs")];
        assert_eq!(pairs(&architecture), expected);
    }

    #[test]
    fn cycles_and_upward_imports_are_found() {
        let architecture = crate_of(&[
            ("lib.rs", "mod low; mod high; mod lost;"),
            ("low/mod.rs", "mod part; fn f() { part::g() }"),
            ("low/part.rs", "pub fn g() { crate::high::h() }"),
            ("high.rs", "use crate::low; pub fn h() {}"),
            ("lost.rs", ""),
        ]);
        assert_eq!(architecture.circles(), [["high.rs", "low/mod.rs", "low/part.rs"]]);
        let found = architecture.imports_that_run_up(&[&["lib.rs", "high.rs"], &["low/"]]);
        assert_eq!(found, ["lost.rs is in no layer", "low/part.rs imports high.rs (crate::high::h)"]);
    }

    #[test]
    fn external_crate_uses_are_found() {
        let architecture = crate_of(&[
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "use std::env; use tonic::{Status, Code as C}; fn f(s: Status) { env::var(\"X\"); hyper::go!(1) }",
            ),
        ]);
        let used: Vec<_> = architecture
            .files_that_use(&["tonic", "std::env", "hyper"])
            .into_iter()
            .map(|(_, path)| path)
            .collect();
        assert_eq!(used, ["hyper::go", "std::env", "std::env::var", "tonic::Code", "tonic::Status"]);
        assert!(architecture.files_that_use(&["ton", "std::io"]).is_empty());
    }
}
