//! What the compiler offers to write would not be written over the template of a key.

use crate::scratch::Scratch;

const CASES: &str = r#"
#![allow(dead_code)]

use distlock::{LockError, distributed_lock};

fn take(name: String) -> usize {
    name.len()
}

fn look(name: &str) -> usize {
    name.len()
}

#[distributed_lock(key = "a:{name.into_bytes().len()}")]
async fn moves_by_a_method(name: String) -> Result<String, LockError> {
    Ok(name)
}

#[distributed_lock(key = "a:{take(name)}")]
async fn moves_into_a_call(name: String) -> Result<String, LockError> {
    Ok(name)
}

#[distributed_lock(key = "a:{look(name)}")]
async fn is_of_another_type(name: String) -> Result<String, LockError> {
    Ok(name)
}

#[distributed_lock(key = "a:{name.leng()}")]
async fn misspells_a_method(name: String) -> Result<String, LockError> {
    Ok(name)
}
"#;

#[test]
fn no_template_is_edited() {
    let mut scratch = Scratch::new("suggestions");
    // Each part alone, since of a type that is wrong the compiler speaks before it looks at what moves.
    let (moved, wrong) = CASES.split_at(CASES.find("#[distributed_lock(key = \"a:{look").unwrap());
    let header = CASES.split_at(CASES.find("#[distributed_lock").unwrap()).0;
    scratch.library("moved", "2024", moved, "");
    scratch.library("wrong", "2024", &format!("{header}{wrong}"), "");
    let edits = scratch.edits("check");
    assert!(edits.len() >= 3, "the mistakes are no longer of the kind for which something is offered: {edits:?}");
    for (line, edited) in edits {
        let template = line.find(" = \"").map(|start| &line[start..]).unwrap_or_default();
        assert!(edited.ends_with(template), "`{line}` would become `{edited}`");
    }
}
