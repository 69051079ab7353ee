//! Lints that the user's code earns are raised, and no others.

use std::collections::BTreeSet;

use crate::scratch::{Finding, Scratch, plain};

const CASES: &str = include_str!("cases/lints.rs");

/// Everything that a strict project asks for. As a warning, each of them is said, and not only the first.
const STRICT: &str = "
[lints.rust]
warnings = \"warn\"
missing_docs = \"warn\"
unreachable_code = \"warn\"
unreachable_pub = \"warn\"
unused_qualifications = \"warn\"
unsafe_code = \"forbid\"
rust_2018_idioms = { level = \"warn\", priority = -1 }
unused = { level = \"warn\", priority = -1 }

[lints.clippy]
all = { level = \"warn\", priority = -1 }
pedantic = { level = \"warn\", priority = -1 }
nursery = { level = \"warn\", priority = -1 }
unreachable = \"warn\"
unwrap_used = \"warn\"
expect_used = \"warn\"
panic = \"warn\"
shadow_unrelated = \"warn\"
";

#[test]
fn the_lints_are_those_of_the_plain_function() {
    let mut scratch = Scratch::new("lints");
    for edition in ["2021", "2024"] {
        scratch.library(&format!("plain-{edition}"), edition, &plain(CASES), STRICT);
        scratch.library(&format!("locked-{edition}"), edition, CASES, STRICT);
    }
    let found = scratch.findings("clippy");
    for (pair, edition) in found.chunks(2).zip(["2021", "2024"]) {
        assert!(pair[0].len() > 40, "the cases raise {} lints alone", pair[0].len());
        assert_eq!(missing_in(&pair[1], &pair[0]), [], "lints that the attribute swallows in edition {edition}");
        assert_eq!(missing_in(&pair[0], &pair[1]), [], "lints that the attribute adds in edition {edition}");
    }
}

/// The limits that the attribute's documentation names: a function that waits for its lock does need its `async`, a
/// pattern is none of the signature's any more, and the body is not the last that the function has.
const LIMITS: &[&str] = &["clippy::unused_async", "clippy::toplevel_ref_arg", "clippy::needless_return"];

/// What `these` lack of `others`.
fn missing_in(these: &BTreeSet<Finding>, others: &BTreeSet<Finding>) -> Vec<Finding> {
    others.difference(these).filter(|finding| !LIMITS.contains(&&*finding.code)).cloned().collect()
}

#[test]
fn functions_without_fault_raise_no_lint() {
    let mut scratch = Scratch::new("no-lints");
    for edition in ["2021", "2024"] {
        let fits = |shape: &&String| edition == "2024" || !ONLY_2024.iter().any(|name| shape.contains(name));
        let targets: String = shapes().iter().filter(fits).map(|shape| target(shape)).collect();
        scratch.package(&format!("shapes-{edition}"), edition, OTHERS, &format!("{targets}{STRICT}"));
    }
    for (found, edition) in scratch.findings("clippy").into_iter().zip(["2021", "2024"]) {
        let strange: Vec<Finding> = found.into_iter().filter(|finding| !OWN.contains(&&*finding.code)).collect();
        assert_eq!(strange, [], "in edition {edition}");
    }
}

/// What borrows from arguments in a way that edition 2021 does not know, or uses the later prelude under other names.
const ONLY_2024: &[&str] = &["returned_futures", "hygiene", "renamed_crate"];

/// The crates whose attributes stand beside ours in the ui tests.
const OTHERS: &str = "\
async-recursion = \"1\"
async-trait = \"0.1\"
rstest = { version = \"*\", default-features = false }
tokio = { version = \"1\", default-features = false, features = [\"macros\", \"rt-multi-thread\", \"time\"] }
tracing = \"0.1\"
";

/// What the ui tests do by themselves, for the sake of shortness.
const OWN: &[&str] = &[
    "missing_docs",
    "unreachable_pub",
    "unused_parens",
    "clippy::cast_possible_truncation",
    "clippy::double_must_use",
    "clippy::elidable_lifetime_names",
    "clippy::missing_errors_doc",
    "clippy::must_use_candidate",
    "clippy::non_minimal_cfg",
    "clippy::redundant_pub_crate",
    "clippy::use_self",
    "clippy::let_underscore_future",
    "clippy::future_not_send",
    "clippy::missing_const_for_fn",
    "clippy::too_many_arguments",
    "clippy::cast_lossless",
    "clippy::needless_raw_string_hashes",
    "clippy::default_trait_access",
    "clippy::iter_on_single_items",
    "clippy::redundant_closure_for_method_calls",
];

/// The ui tests that pass.
fn shapes() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui/pass");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<String> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    files.sort();
    files
}

fn target(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap().trim_end_matches(".rs");
    format!("[[bin]]\nname = {name:?}\npath = {path:?}\n\n")
}
