//! What a reviewer would otherwise have to remember.

use std::fmt::Write;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 60;

/// The library: what is published.
const LIBRARY: &[&str] = &["src", "distlock-macros/src", "distlock-runtime/src"];
/// All Rust that is ours to keep tidy. The attribute's ui tests are left out: they hold mistakes on purpose.
const CODE: &[&str] = &[
    "src",
    "distlock-macros/src",
    "distlock-runtime/src",
    "examples",
    "benches",
    "compare/src",
    "harness/src",
    "robustness/src",
    "tests/it",
    "xtask/src",
];

#[test]
fn no_file_of_the_library_is_too_long() {
    let long = files(LIBRARY, "rs").into_iter().filter(|file| file.text.lines().count() > LONGEST_FILE);
    none_of("files over 400 lines", long.map(|file| file.at(file.text.lines().count())));
}

#[test]
fn no_function_of_the_library_is_too_long() {
    let files = files(LIBRARY, "rs");
    let long = files.iter().flat_map(|file| {
        let functions = functions(&file.text).into_iter();
        functions.filter(|(_, length)| *length > LONGEST_FUNCTION).map(|(line, _)| file.at(line))
    });
    none_of("functions over 60 lines", long);
}

#[test]
fn nothing_unfinished_is_left() {
    // Written in halves, so that this file passes its own test.
    let unfinished =
        [("to", "do!"), ("unimple", "mented!"), ("db", "g!"), ("#[ig", "nore"), ("FIX", "ME"), ("XX", "X")];
    let unfinished = unfinished.map(|(left, right)| format!("{left}{right}"));
    none_of("unfinished code", lines(CODE, "rs", |line| unfinished.iter().any(|mark| line.contains(mark))));
}

#[test]
fn no_line_ends_in_white_space() {
    for extension in ["rs", "lua", "md", "toml"] {
        none_of("white space at the end of a line", lines(&["."], extension, |line| line != line.trim_end()));
    }
}

#[test]
fn every_script_says_what_it_takes_and_returns() {
    let scripts = files(&["distlock-runtime/scripts"], "lua");
    assert!(!scripts.is_empty(), "no scripts found");
    // Parts are functions, which speak for themselves.
    let whole = scripts.iter().filter(|file| !file.text.contains("local function"));
    let silent = whole.filter(|file| {
        let header: String = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        !["KEYS", "ARGV", "Returns"].iter().all(|word| header.to_lowercase().contains(&word.to_lowercase()))
    });
    none_of("scripts without KEYS, ARGV and Returns in their header", silent.map(|file| file.at(1)));
}

#[test]
fn the_documents_speak_of_this_version() {
    let (version, minor) = (env!("CARGO_PKG_VERSION"), minor(env!("CARGO_PKG_VERSION")));
    let changelog = read(&root().join("CHANGELOG.md"));
    assert!(changelog.contains(version), "CHANGELOG.md doesn't mention {version}");
    let readme = read(&root().join("README.md"));
    assert!(readme.contains(&minor), "README.md doesn't mention {minor}");
}

#[test]
fn every_fixed_sleep_of_a_test_has_a_reason() {
    let files = files(&["harness/src", "tests/it", "examples/order_service/tests"], "rs");
    let sleeps = files.iter().flat_map(|file| {
        let lines: Vec<&str> = file.text.lines().collect();
        let unreasoned = move |at: &usize| is_fixed_pause(lines[*at]) && !has_reason(&lines, *at);
        (0..file.text.lines().count()).filter(unreasoned).map(|at| file.at(at + 1))
    });
    none_of("sleeps without a comment that gives the reason", sleeps);
}

fn is_fixed_pause(line: &str) -> bool {
    // In halves, as above.
    line.contains(concat!("sle", "ep(")) && !line.trim_start().starts_with("//")
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    lines[at].contains("//") || at > 0 && lines[at - 1].trim_start().starts_with("//")
}

fn minor(version: &str) -> String {
    version.rsplit_once('.').unwrap().0.to_owned()
}

/// Functions by their first line and length in lines. Formatted code ends a function with a brace as far to the right as
/// its beginning.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = (0..lines.len()).filter(|at| is_function(lines[*at]));
    begins
        .filter_map(|at| {
            let indent = lines[at].len() - lines[at].trim_start().len();
            let closing = format!("{}}}", " ".repeat(indent));
            let length = lines[at..].iter().position(|line| *line == closing || one_line(lines[at], line))?;
            Some((at + 1, length + 1))
        })
        .collect()
}

fn is_function(line: &str) -> bool {
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "default", "const", "async", "unsafe", "extern", "\"C\""];
    let mut words = line.split_whitespace().skip_while(|word| qualifiers.contains(word));
    words.next() == Some("fn")
}

/// Whether a function is over on the line on which it begins: a declaration, or a body of one line.
fn one_line(first: &str, line: &str) -> bool {
    std::ptr::eq(first, line) && (line.ends_with(';') || line.ends_with('}'))
}

struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.strip_prefix(root()).unwrap().display())
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn files(folders: &[&str], extension: &str) -> Vec<File> {
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.into_iter().map(|path| File { text: read(&path), path }).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    // A folder that isn't there holds nothing untidy.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" && name != ".git" {
                walk(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

fn lines(folders: &[&str], extension: &str, is_bad: impl Fn(&str) -> bool) -> Vec<String> {
    let files = files(folders, extension);
    let numbered =
        files.iter().flat_map(|file| file.text.lines().zip(1..).map(move |(line, number)| (file, line, number)));
    numbered.filter(|(_, line, _)| is_bad(line)).map(|(file, _, number)| file.at(number)).collect()
}

fn none_of(what: &str, places: impl IntoIterator<Item = String>) {
    let list = places.into_iter().fold(String::new(), |mut list, place| {
        writeln!(list, "  {place}").unwrap();
        list
    });
    assert!(list.is_empty(), "{what}:\n{list}");
}

mod tests {
    use super::{functions, has_reason};

    #[test]
    fn functions_are_measured_from_their_first_line_to_their_brace() {
        let text = "fn a() {\n    1;\n}\n\nimpl B {\n    pub(crate) async fn b(\n        c: u8,\n    ) {\n        if c {\n        }\n    }\n}\n";
        assert_eq!(functions(text), [(1, 3), (6, 6)]);
        assert_eq!(functions("fn a() -> u8 { 1 }\n    fn b();\nfn c() {\n}\n"), [(1, 1), (2, 1), (3, 2)]);
    }

    #[test]
    fn a_reason_stands_beside_or_above() {
        assert!(has_reason(&["// why", "sleep"], 1));
        assert!(has_reason(&["sleep // why"], 0));
        assert!(!has_reason(&["// why", "", "sleep"], 2));
    }
}
