use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use super::Mentions;

fn mentions_id(tokens: TokenStream) -> bool {
    let mut mentions = Mentions::default();
    mentions.add(tokens);
    mentions.contains("id")
}

#[test]
fn a_variable_is_mentioned_wherever_it_stands() {
    let group: TokenTree = Group::new(Delimiter::None, quote!(id)).into();
    let table = [
        quote!(id),
        quote!(r#id),
        quote!(id.len()),
        quote!(&*id),
        quote!(order.items[..id]),
        quote!(order.items[id..]),
        quote!(hash(CONFIG, id)),
        quote!(id as u8),
        quote!(id(3)),
        quote!(a | id),
        quote!(a || b || id),
        quote!(!id),
        quote!(id != 3),
        quote!(K { id }),
        quote!(K { id, ..other }),
        quote!(K { a: id }),
        quote!(K::<u8> { id }),
        quote!(list.iter().map(|a| a + id)),
        quote!(call(|id| id, id)),
        quote!({
            let id = id + 1;
            id
        }),
        quote!(match x {
            A => id,
        }),
        quote!(if id == 1 { 2 } else { 3 }),
        quote!(json!({ id: 1 })),
        quote!(#group.len()),
        quote!(K { #group }),
        quote!(format!("{id}")),
        quote!(format!("a{{b}}{id:>4}")),
        quote!(format!("{{{id}}}")),
        quote!(format!("{a:id$}")),
        quote!(format!("{a:>id$.b$}")),
        quote!(format!("{a:.id$}")),
        quote!(format!("{}", id)),
        quote!(format!("{a}", a = id)),
        quote!(std::format!(r#"{id}"#)),
        quote!(write!(text, "{id}")),
        quote!(info!(a = 1, "of {id}")),
        quote!(custom! { ["{id}"] }),
        quote!(vec![id]),
        quote!(f(a, format!("{id}"))),
        quote!(async move {
            let a = 1;
            println!("{id}")
        }),
    ];
    for tokens in table {
        assert!(mentions_id(tokens.clone()), "`{tokens}`");
    }
}

#[test]
fn what_is_spelled_like_a_variable_and_is_none_is_not_mentioned() {
    let table = [
        quote!(CONFIG.id + a.id()),
        quote!(hash("id")),
        quote!("order:{id}".to_owned()),
        quote!(String::from("order:{id}")),
        quote!(["order:{id}"].concat()),
        quote!(concat!("app:", "order:{id}")),
        quote!(stringify!(id)),
        quote!(vec!["order:{id}"].concat()),
        quote!(format!("{{id}}")),
        quote!(format!("{}", "order:{id}")),
        quote!(format!("{}", String::from("order:{id}"))),
        quote!(format!("{id}", id = 3)),
        quote!(info!("{}", text("{id}"))),
        quote!(format!("{a} id {b:id}")),
        quote!(id::key()),
        quote!(config::id),
        quote!(id!(3)),
        quote!(K { id: 3 }),
        quote!(m::K::<u8> { id: 3 }.id),
        quote!(list.iter().map(|id| id + 1)),
        quote!(list.iter().map(move |&id: &u8| { id })),
        quote!(list.iter().map(|(K { id, .. }, b)| f(id, b))),
        quote!(fold(0, |sum, id| sum + id, 3)),
        quote!({
            let id: u8 = 3;
            format!("{id}")
        }),
        quote!({
            let a = 1;
            let (id, b) = pair();
            id
        }),
        quote!('id: loop {
            break 'id;
        }),
        quote!(b"{id}"),
        quote!(f(b"{id}", '{', 1)),
    ];
    for tokens in table {
        assert!(!mentions_id(tokens.clone()), "`{tokens}`");
    }
}
