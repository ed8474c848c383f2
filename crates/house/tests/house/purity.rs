//! Which names a room's shipped code uses: parsed, so that neither a comment nor a string counts, nor anything that is there for tests alone.

use crate::read;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Macro, UseTree};

/// What code without I/O, clock, threads and chance must not name: paths, by their beginning.
const IMPURE_PATHS: [&str; 13] = [
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "std::os::fd",
    "std::os::unix::net",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "rand::rng",
    "rand::random",
    "rustix",
    "tokio",
];

/// Likewise, wherever they come from.
const IMPURE_NAMES: [&str; 11] = [
    "File",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "Instant",
    "SystemTime",
    "thread_rng",
    "from_os_rng",
    "OsRng",
];

const IMPURE_MACROS: [&str; 5] = ["print", "println", "eprint", "eprintln", "dbg"];

/// What of it the shipped code below `top` names, a module's file, as `file: name`.
pub(crate) fn impurities(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let parsed =
            syn::parse_file(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut look = Look::default();
        look.visit_file(&parsed);
        found.extend(look.found.iter().map(|name| format!("{}: `{name}`", path.display())));
        left.extend(look.modules.iter().map(|(name, at)| file_of(&path, name, at.as_deref())));
    }
    found
}

/// Where the module `name` that `parent` declares is; `at`: where that says it is.
fn file_of(parent: &Path, name: &str, at: Option<&str>) -> PathBuf {
    let folder = parent.parent().expect("a file is in a folder");
    if let Some(at) = at {
        return folder.join(at);
    }
    let stem = parent.file_stem().and_then(|stem| stem.to_str()).expect("module names are ASCII");
    let folder = if ["lib", "main", "mod"].contains(&stem) { folder.to_owned() } else { folder.join(stem) };
    let beside = folder.join(format!("{name}.rs"));
    if beside.exists() { beside } else { folder.join(name).join("mod.rs") }
}

#[derive(Default)]
struct Look {
    found: Vec<String>,
    /// Declared here, and in files of their own.
    modules: Vec<(String, Option<String>)>,
}

impl Look {
    fn name(&mut self, path: &str) {
        let begins = |with: &&str| {
            path.strip_prefix(*with).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let names = |name: &&str| path.split("::").any(|segment| segment == *name);
        if IMPURE_PATHS.iter().any(begins) || IMPURE_NAMES.iter().any(names) {
            self.found.push(path.to_owned());
        }
    }

    fn used(&mut self, before: &str, tree: &UseTree) {
        let joined = |name: &dyn ToString| match before {
            "" => name.to_string(),
            before => format!("{before}::{}", name.to_string()),
        };
        match tree {
            UseTree::Path(path) => self.used(&joined(&path.ident), &path.tree),
            UseTree::Name(name) => self.name(&joined(&name.ident)),
            UseTree::Rename(rename) => self.name(&joined(&rename.ident)),
            UseTree::Glob(_) => self.name(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.used(before, tree)),
        }
    }
}

/// Whether an item is there for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|of| of.is_ident("test"))
    };
    attributes.iter().any(is_cfg_test)
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Where a module says that its file is.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    Some(text.value())
}

impl<'ast> Visit<'ast> for Look {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes_of(item)) {
            return;
        }
        match item {
            Item::Use(item) => self.used("", &item.tree),
            Item::Mod(module) if module.content.is_none() => {
                self.modules.push((module.ident.to_string(), path_of(&module.attrs)));
            }
            item => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Fn(function) if is_for_tests(&function.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(&segments.join("::"));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let name = called.path.segments.last().expect("a macro has a name").ident.to_string();
        if IMPURE_MACROS.contains(&name.as_str()) {
            self.found.push(format!("{name}!"));
        }
        // What is inside is no syntax tree yet: words are told from strings there, and paths from words.
        let words = called.tokens.to_string().replace(' ', "");
        let mut words = words
            .split('"')
            .step_by(2)
            .flat_map(|code| code.split(|of: char| !(of.is_alphanumeric() || "_:".contains(of))));
        words.by_ref().for_each(|word| self.name(word));
    }
}

#[test]
fn what_is_impure_is_found_where_it_ships_and_nowhere_else() {
    let folder = std::env::temp_dir().join(format!("forebay-house-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write(
        "lib.rs",
        "#[cfg(test)]\nmod tests;\nmod deep;\nuse std::{collections::BTreeMap, thread};\nfn f() { let a = \"std::fs\"; /* std::env */ }\n",
    );
    write("tests.rs", "use std::fs;");
    write(
        "deep/mod.rs",
        "use std::time::{Duration, Instant as Now};\n#[cfg(test)]\nfn g() { println!() }\nmod deeper;\n",
    );
    write(
        "deep/deeper.rs",
        "impl A { fn h() { assert!(std::env::args().count() > 1, \"std::fs {}\", 1); eprintln!() } #[cfg(test)] fn i() { std::fs::read(\"\"); } }\nfn j() -> std::fs::File { panic!() }",
    );
    let mut found: Vec<String> = impurities(&folder.join("lib.rs"))
        .iter()
        .map(|told| told.rsplit_once(": ").unwrap().1.to_owned())
        .collect();
    found.sort();
    assert_eq!(
        found,
        ["`eprintln!`", "`std::env::args`", "`std::fs::File`", "`std::thread`", "`std::time::Instant`"]
    );
    std::fs::remove_dir_all(folder).unwrap();
}
