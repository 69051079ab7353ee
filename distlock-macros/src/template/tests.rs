use proc_macro2::Span;

use super::{Piece, is_format, parse};

/// Prints literals as they are, and placeholders as `[expression|format]` without spaces.
fn shown(template: &str) -> Result<String, Vec<String>> {
    use quote::ToTokens;
    let (pieces, problems) = parse(template, Span::call_site());
    if !problems.is_empty() {
        return Err(problems);
    }
    let show = |piece: &Piece| match piece {
        Piece::Literal(text) => text.clone(),
        Piece::Placeholder(placeholder) => {
            let expr = placeholder.expr.to_token_stream().to_string();
            let format = placeholder.format.value();
            let format = format.trim_matches(['{', '}', ':']);
            format!("[{}|{format}]", expr.replace(' ', ""))
        }
    };
    Ok(pieces.iter().map(show).collect())
}

#[test]
fn templates_are_read_as_documented() {
    let table = [
        ("nightly", "nightly"),
        ("order:<id>", "order:[id|]"),
        ("order:{id}", "order:[id|]"),
        ("< id >:{ no }", "[id|]:[no|]"),
        ("<order.id>/x", "[order.id|]/x"),
        ("<Self::KIND>:{self.tenant}", "[Self::KIND|]:[self.tenant|]"),
        ("{req.user_id()}", "[req.user_id()|]"),
        ("<order.items::<u8>()>!", "[order.items::<u8>()|]!"),
        ("{<T as Named>::NAME}", "[<TasNamed>::NAME|]"),
        ("{a > b}", "[a>b|]"),
        ("{match id { A => 1, _ => 2 }}.", "[matchid{A=>1,_=>2}|]."),
        ("{map[\"a}b\"]}", "[map[\"a}b\"]|]"),
        ("{id:04}:{id:?}", "[id|04]:[id|?]"),
        ("<id:>8>:<x:^+#10.3e>", "[id|>8]:[x|^+#10.3e]"),
        ("{a::b:x}", "[a::b|x]"),
        ("{Foo { a: 1 }.b}", "[Foo{a:1}.b|]"),
        ("<<a>>{{b}}", "<a>{b}"),
        ("<id>>>", "[id|]>"),
        ("grün:<größe>", "grün:[größe|]"),
        ("{r#type}", "[r#type|]"),
        ("{a.gen(|n| n)}", "[a.r#gen(|n|n)|]"),
    ];
    for (template, pieces) in table {
        assert_eq!(shown(template).as_deref(), Ok(pieces), "for `{template}`");
    }
}

#[test]
fn what_is_wrong_with_a_template_is_named() {
    let table = [
        ("order:<>", "`<>` in the key is empty"),
        ("order:{ }", "`{ }` in the key is empty"),
        ("order:<id", "`<id` is not closed in the key; add `>`"),
        ("order:{id>", "`{id>` is not closed in the key; add `}`"),
        ("order:id>", "`>` closes no placeholder"),
        ("order:id}", "`}` closes no placeholder"),
        ("<a><b>", "between `<a>` and `<b>`"),
        ("<1 +>", "`<1 +>` in the key is not an expression: "),
        ("{id:zz}", "the unknown format `zz`"),
        ("{id:}", "the unknown format ``"),
        ("{id:p}", "the unknown format `p`"),
        ("{id:width$}", "the unknown format `width$`"),
        ("<a b>:<id>", "`<a b>` in the key is not an expression: "),
    ];
    for (template, part) in table {
        let problems = shown(template).err().unwrap_or_default();
        assert!(problems.iter().any(|problem| problem.contains(part)), "`{template}`: {problems:?}");
    }
}

#[test]
fn all_problems_of_a_template_are_reported() {
    assert_eq!(shown("<>:<a><b>:}").map_err(|problems| problems.len()), Err(3));
}

#[test]
fn formats_are_those_of_the_standard_library() {
    for format in ["?", "04", "#?", "x?", "*^8", "<", "<<4", ".2", "+8.3e", "é>3", "#010x"] {
        assert!(is_format(format), "`{format}`");
    }
    for format in ["", "p", "zz", ".", ".*", "4$", "w$", "4 ", "??"] {
        assert!(!is_format(format), "`{format}`");
    }
}

#[test]
fn variables_are_the_names_that_only_a_parameter_can_stand_for() {
    let table: [(&str, &[&str]); 9] = [
        ("{id}", &["id"]),
        ("{order.lines[n].id(x)}", &["order", "n", "x"]),
        ("{&*a + -b as u8}", &["a", "b"]),
        ("{shard(id)}", &["id"]),
        ("{self.a}", &["self"]),
        ("{LIMIT}", &[]),
        ("{Self::KIND}", &[]),
        ("{config::region}", &[]),
        ("{list.find(|x| x.id)}", &["list"]),
    ];
    for (template, names) in table {
        let (pieces, _) = parse(template, Span::call_site());
        let variables = pieces.iter().flat_map(|piece| match piece {
            Piece::Placeholder(placeholder) => placeholder.variables(),
            Piece::Literal(_) => Vec::new(),
        });
        assert_eq!(variables.collect::<Vec<_>>(), names, "for `{template}`");
    }
}
