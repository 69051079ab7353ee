//! A mistake in the body is an error at the same tokens with the attribute and without it.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::scratch::{Finding, Scratch, plain};

const HEADER: &str = "
#![allow(dead_code, unused, clippy::all)]

use std::fmt::Display;
use std::future::ready;
use std::rc::Rc;

use distlock::{LockError, distributed_lock};

pub struct Failure;

impl From<LockError> for Failure {
    fn from(_: LockError) -> Failure {
        Failure
    }
}

async fn next(id: u64) -> u64 {
    ready(id).await
}

fn send<T: Send>(_: T) {}
";

/// A shape has the parameters `id: u64` and `text: String`, and returns a `Result<u64, Failure>`. `call` is a call of it.
struct Shape {
    name: &'static str,
    code: &'static str,
    call: &'static str,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "free_function",
        code: "#[distributed_lock(key = \"k:<id>\")]\nasync fn f(id: u64, text: String) -> Result<u64, Failure> {\nBODY\n}",
        call: "f(1, String::new())",
    },
    Shape {
        name: "returns_an_alias",
        code: "type Answer<T> = Result<T, Failure>;\n#[distributed_lock(key = \"k:<id>\", ttl = \"3s\", lease = lease)]\n\
               async fn f(id: u64, text: String) -> Answer<u64> {\nBODY\n}",
        call: "f(1, String::new())",
    },
    Shape {
        name: "method",
        code: "struct Shop(u64);\nimpl Shop {\n#[distributed_lock(key = \"k:<self.0>:<id>\")]\n\
               async fn f(&self, id: u64, text: String) -> Result<u64, Failure> {\nBODY\n}\n}",
        call: "Shop(1).f(1, String::new())",
    },
    Shape {
        name: "method_by_value",
        code: "struct Shop(u64);\nimpl Shop {\n#[distributed_lock(key = \"k:<id>\")]\n\
               async fn f(mut self, id: u64, text: String) -> Result<u64, Failure> {\nBODY\n}\n}",
        call: "Shop(1).f(1, String::new())",
    },
    Shape {
        name: "trait_method",
        code: "struct Shop;\ntrait Pay {\nasync fn f(&self, id: u64, text: String) -> Result<u64, Failure>;\n}\n\
               impl Pay for Shop {\n#[distributed_lock(key = \"k:<id>\")]\n\
               async fn f(&self, id: u64, text: String) -> Result<u64, Failure> {\nBODY\n}\n}",
        call: "Shop.f(1, String::new())",
    },
    Shape {
        name: "default_method",
        code: "trait Pay {\n#[distributed_lock(key = \"k:<id>\")]\n\
               async fn f(&self, id: u64, text: String) -> Result<u64, Failure> {\nBODY\n}\n}\n\
               struct Shop;\nimpl Pay for Shop {}",
        call: "Shop.f(1, String::new())",
    },
    Shape {
        name: "generic",
        code: "#[distributed_lock(key = \"k:<id>:{N}\")]\n\
               async fn f<'a, T, const N: usize>(id: u64, text: String, more: [&'a T; N]) -> Result<u64, Failure>\n\
               where\nT: Display + ?Sized,\n{\nBODY\n}",
        call: "f(1, String::new(), [\"\"])",
    },
    Shape {
        name: "impl_argument",
        code: "#[distributed_lock(key = \"k:<id>\")]\n\
               async fn f(id: u64, text: String, more: impl Display) -> Result<u64, Failure> {\nBODY\n}",
        call: "f(1, String::new(), 3)",
    },
    Shape {
        name: "patterns",
        code: "#[distributed_lock(key = \"k:<id>\")]\n\
               async fn f((id, text): (u64, String), _: u8, _more: String) -> Result<u64, Failure> {\nBODY\n}",
        call: "f((1, String::new()), 1, String::new())",
    },
];

/// Mistakes that the compiler finds before it knows types, and after which it does not go on.
const UNRESOLVED: &[&str] = &[
    "Ok(idd)",
    "Ok(nxt(id).await)",
    "let n: Strin = text;\nOk(id)",
    "nope!(id);\nOk(id)",
    "use std::nowhere;\nOk(id)",
    "Ok(Failur)",
    "break;\nOk(id)",
    "Ok(call)",
    "Ok(ret)",
];

const WRONG: &[&str] = &[
    "let n: u64 = \"x\";\nOk(n + id)",
    "Ok(\"x\")",
    "id",
    "Ok(text)",
    "Ok(())",
    "Err(())",
    "if id == 1 {\nreturn 5;\n}\nOk(id)",
    "if id == 1 {\nreturn Ok(text);\n}\nOk(id)",
    "if id == 1 {\nreturn;\n}\nOk(id)",
    "next(id).await;",
    "if id == 1 {\nOk(id)\n}",
    "match id {\n1 => Ok(id),\n_ => id,\n}",
    "",
    "let n: u64 = next(id);\nOk(n)",
    "Ok(next(id))",
    "Ok(id.await)",
    "next(id, 2).await;\nOk(id)",
    "Ok(text.lenn())",
    "Ok(text.field)",
    "let n = text.parse::<u64>()?;\nOk(n)",
    "let n = Some(1)?;\nOk(n)",
    "let n = id?;\nOk(n)",
    "let n = Default::default();\nOk(id)",
    "let list = vec![id].into_iter().collect();\nOk(id)",
    "let mut own = text;\nlet a = &mut own;\nlet b = &mut own;\na.push('x');\nb.push('y');\nOk(id)",
    "drop(text);\nOk(text.len() as u64)",
    "let moved = move || text;\ndrop(text);\nOk(id)",
    "text.push('x');\nOk(id)",
    "id = 5;\nOk(id)",
    "let n = 1;\nn += id;\nOk(n)",
    "let n: u64;\nOk(n)",
    "let outer;\n{\nlet inner = id;\nouter = &inner;\n}\nOk(*outer)",
    "std::thread::spawn(|| println!(\"{id}\"));\nOk(id)",
    "let all: &'static str = &text;\nOk(id)",
    "match Some(id) {\nNone => Ok(1),\n}",
    "let Some(n) = Some(id);\nOk(n)",
    "send(Rc::new(id));\nOk(id)",
    "const N: u64 = id;\nOk(id)",
    "unsafe_one();\nunsafe fn unsafe_one() {}\nOk(id)",
];

/// Bodies without fault, but for a caller that asks for `Send`.
const NOT_SEND: &[&str] = &[
    "let shared = Rc::new(id);\nnext(id).await;\nOk(*shared)",
    "let pointer = &raw const id;\nnext(id).await;\nlet same = pointer;\nOk(id)",
];

#[test]
fn errors_are_at_the_tokens_of_the_plain_function() {
    let files =
        [("unresolved", code(UNRESOLVED, false)), ("wrong", code(WRONG, false)), ("not-send", code(NOT_SEND, true))];
    let mut scratch = Scratch::new("errors");
    for (name, code) in &files {
        scratch.library(&format!("{name}-plain"), "2024", &plain(code), "");
        scratch.library(&format!("{name}-locked"), "2024", code, "");
    }
    let mut differences = String::new();
    for (pair, (name, code)) in scratch.findings("check").chunks(2).zip(&files) {
        assert!(pair[0].len() >= SHAPES.len(), "the cases of `{name}` have {} errors alone", pair[0].len());
        describe(&pair[0], &pair[1], "missing", code, &mut differences);
        describe(&pair[1], &pair[0], "added", code, &mut differences);
    }
    assert!(differences.is_empty(), "with the attribute there are differences:\n{differences}");
}

fn code(mistakes: &[&str], called: bool) -> String {
    let mut code = String::from(HEADER);
    for shape in SHAPES {
        for (number, mistake) in mistakes.iter().enumerate() {
            let call = if called { format!("\nfn call() {{\nsend({});\n}}", shape.call) } else { String::new() };
            let (name, function) = (shape.name, shape.code.replace("BODY", mistake));
            writeln!(code, "\nmod {name}_{number} {{\nuse super::*;\n\n{function}{call}\n}}").unwrap();
        }
    }
    code
}

fn describe(these: &BTreeSet<Finding>, others: &BTreeSet<Finding>, what: &str, code: &str, to: &mut String) {
    for finding in these.difference(others) {
        let line = usize::try_from(finding.line).unwrap();
        let before: Vec<&str> = code.lines().take(line).filter(|line| line.starts_with("mod ")).collect();
        let case = before.last().copied().unwrap_or_default().trim_end_matches(" {");
        writeln!(to, "{what} in {case}, {}: {:?}", code.lines().nth(line - 1).unwrap_or_default(), finding).unwrap();
    }
}
