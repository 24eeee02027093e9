//! From source text to modules: what each declares, and which paths it uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// One module: a file, or a block inside of one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The file it is written in, relative to the source directory.
    pub(super) file: String,
    pub(super) paths: Vec<UsedPath>,
    /// The names that `use` declarations bring into it, with their paths as written.
    pub(super) bindings: BTreeMap<String, Vec<String>>,
    /// The paths before `::*`.
    pub(super) globs: Vec<Vec<String>>,
    /// The items that are declared in it.
    pub(super) items: BTreeSet<String>,
}

/// A path as it is written.
#[derive(Debug)]
pub(super) struct UsedPath {
    pub(super) segments: Vec<String>,
    /// It is in a `pub use`.
    pub(super) is_re_export: bool,
}

/// All modules of the crate, by their paths without `crate`.
pub(super) fn modules(source: &Path) -> BTreeMap<Vec<String>, Module> {
    let mut reader = Reader { source: source.to_owned(), modules: BTreeMap::new() };
    reader.file(Vec::new(), "lib.rs", source);
    reader.modules
}

struct Reader {
    source: PathBuf,
    modules: BTreeMap<Vec<String>, Module>,
}

impl Reader {
    /// Reads a file. Its child modules are in `directory`.
    fn file(&mut self, name: Vec<String>, file: &str, directory: &Path) {
        let path = self.source.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.module(name, file, directory, &parsed.items);
    }

    fn module(&mut self, name: Vec<String>, file: &str, directory: &Path, items: &[syn::Item]) {
        let mut collector = Collector { module: Module { file: file.to_owned(), ..Module::default() } };
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            let syn::Item::Mod(child) = item else {
                collector.visit_item(item);
                continue;
            };
            let ident = child.ident.to_string();
            let child_name = [name.as_slice(), std::slice::from_ref(&ident)].concat();
            let child_directory = directory.join(&ident);
            if let Some((_, items)) = &child.content {
                self.module(child_name, file, &child_directory, items);
                continue;
            }
            let beside = directory.join(format!("{ident}.rs"));
            let path = if beside.exists() { beside } else { child_directory.join("mod.rs") };
            let relative = path.strip_prefix(&self.source).unwrap_or(&path).to_string_lossy().into_owned();
            self.file(child_name, &relative, &child_directory);
        }
        self.modules.insert(name, collector.module);
    }
}

struct Collector {
    module: Module,
}

impl Collector {
    fn use_tree(&mut self, tree: &syn::UseTree, before: &[String], is_re_export: bool) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&path.tree, &with(&path.ident), is_re_export),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, before, is_re_export);
                }
            }
            syn::UseTree::Glob(_) => {
                self.module.globs.push(before.to_vec());
                self.module.paths.push(UsedPath { segments: before.to_vec(), is_re_export });
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.binding(before.last().cloned().unwrap_or_default(), before.to_vec(), is_re_export);
            }
            syn::UseTree::Name(name) => self.binding(name.ident.to_string(), with(&name.ident), is_re_export),
            syn::UseTree::Rename(rename) => {
                self.binding(rename.rename.to_string(), with(&rename.ident), is_re_export);
            }
        }
    }

    fn binding(&mut self, name: String, path: Vec<String>, is_re_export: bool) {
        self.module.paths.push(UsedPath { segments: path.clone(), is_re_export });
        self.module.bindings.insert(name, path);
    }

    /// Adds every path with more than one segment. A macro's arguments may be anything, so that they are read as tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
                other => {
                    self.path(std::mem::take(&mut path));
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                    }
                }
            }
            colons = 0;
        }
        self.path(path);
    }

    fn path(&mut self, segments: Vec<String>) {
        if segments.len() > 1 {
            self.module.paths.push(UsedPath { segments, is_re_export: false });
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.module.items.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_re_export = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&item.tree, &[], is_re_export);
    }

    /// `pub(in crate::a)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }
}

/// Whether an attribute is `cfg(test)`, alone or in an `any` or `all`.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let mentions_test = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        }
        _ => false,
    };
    attributes.iter().any(mentions_test)
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
