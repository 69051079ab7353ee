//! What the attribute accepts, and what it says of the rest. `TRYBUILD=overwrite cargo test --test ui` rewrites the
//! expected messages.

#[test]
fn every_shape_compiles() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}

#[test]
fn every_mistake_is_explained_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
