//! From a path as it is written to the module that declares the item, or to another crate.

use std::collections::BTreeMap;

use super::read::Module;

pub(super) enum Target {
    /// The module of this crate, by its path without `crate`.
    Module(Vec<String>),
    /// The path in another crate. A name of the prelude, such as `Vec::new`, is one as well.
    External(Vec<String>),
}

type Modules = BTreeMap<Vec<String>, Module>;

/// More re-exports of re-exports than any crate has; two modules that import each other's names have no end.
const MAX_DEPTH: usize = 16;

/// Where `segments`, written in module `from`, leads to.
pub(super) fn target(modules: &Modules, from: &[String], segments: &[String]) -> Target {
    resolve(modules, from, segments, MAX_DEPTH)
}

fn resolve(modules: &Modules, from: &[String], segments: &[String], depth: usize) -> Target {
    let mut start = from.to_vec();
    let mut rest = segments;
    let mut is_absolute = false;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => start.clear(),
            "self" => {}
            "super" => drop(start.pop()),
            _ => break,
        }
        is_absolute = true;
        rest = after;
    }
    if is_absolute {
        return within(modules, from, start, rest, depth);
    }
    let Some(first) = segments.first() else { return Target::Module(start) };
    let here = &modules[from];
    let is_child = modules.contains_key(&[from, std::slice::from_ref(first)].concat());
    // `use tonic::Status` binds a name like any other; a binding of its own first segment, such as `use tonic;`, is the crate itself.
    let is_bound = here.bindings.get(first).is_some_and(|path| path.first() != Some(first));
    if is_child || is_bound || here.items.contains(first) {
        return within(modules, from, start, segments, depth);
    }
    Target::External(segments.to_vec())
}

/// Where `rest` leads from inside `module`. Another module's re-export of another crate's item counts as an item of that module.
fn within(
    modules: &Modules,
    from: &[String],
    mut module: Vec<String>,
    rest: &[String],
    depth: usize,
) -> Target {
    let mut rest = rest;
    while let Some((first, after)) = rest.split_first() {
        let child = [module.as_slice(), std::slice::from_ref(first)].concat();
        if !modules.contains_key(&child) {
            break;
        }
        module = child;
        rest = after;
    }
    let (Some(first), Some(here)) = (rest.first(), modules.get(&module)) else {
        return Target::Module(module);
    };
    if depth == 0 || here.items.contains(first) {
        return Target::Module(module);
    }
    if let Some(path) = here.bindings.get(first) {
        let path = [path.as_slice(), &rest[1..]].concat();
        return match resolve(modules, &module, &path, depth - 1) {
            Target::External(_) if module != from => Target::Module(module),
            target => target,
        };
    }
    for glob in &here.globs {
        let path = [glob.as_slice(), rest].concat();
        if let Target::Module(found) = resolve(modules, &module, &path, depth - 1)
            && modules[&found].items.contains(first)
        {
            return Target::Module(found);
        }
    }
    Target::Module(module)
}
