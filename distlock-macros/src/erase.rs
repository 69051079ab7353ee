//! The return type as it may stand inside the function.

use syn::punctuated::Punctuated;
use syn::{
    AngleBracketedGenericArguments, GenericArgument, Path, PathArguments, Token, Type, TypeInfer, TypeParamBound,
};

// Input:
//     Result<impl Iterator<Item = u8>, Error>
//
// Output:
//     Result<_, Error>
//
/// Leaves every `impl Trait` to inference, since it can't be named inside the function.
pub(crate) fn impl_traits(ty: &mut Type) {
    match ty {
        Type::ImplTrait(opaque) => {
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token: Token![_](opaque.impl_token.span) });
        }
        Type::Array(array) => impl_traits(&mut array.elem),
        Type::Group(group) => impl_traits(&mut group.elem),
        Type::Paren(paren) => impl_traits(&mut paren.elem),
        Type::Ptr(pointer) => impl_traits(&mut pointer.elem),
        Type::Reference(reference) => impl_traits(&mut reference.elem),
        Type::Slice(slice) => impl_traits(&mut slice.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(impl_traits),
        Type::TraitObject(object) => in_bounds(&mut object.bounds),
        Type::Path(path) => {
            if let Some(qself) = &mut path.qself {
                impl_traits(&mut qself.ty);
            }
            in_path(&mut path.path);
        }
        _ => {}
    }
}

fn in_bounds(bounds: &mut Punctuated<TypeParamBound, Token![+]>) {
    for bound in bounds {
        if let TypeParamBound::Trait(bound) = bound {
            in_path(&mut bound.path);
        }
    }
}

fn in_path(path: &mut Path) {
    for segment in &mut path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            in_arguments(arguments);
        }
    }
}

fn in_arguments(arguments: &mut AngleBracketedGenericArguments) {
    for argument in &mut arguments.args {
        match argument {
            GenericArgument::Type(ty) => impl_traits(ty),
            GenericArgument::AssocType(assoc) => impl_traits(&mut assoc.ty),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};
    use syn::Type;

    use super::impl_traits;

    #[test]
    fn impl_traits_are_erased_wherever_they_stand() -> syn::Result<()> {
        let table = [
            (quote!(impl Iterator<Item = u8>), quote!(_)),
            (quote!(Result<impl Display, E>), quote!(Result<_, E>)),
            (quote!((u8, [impl Copy; 2])), quote!((u8, [_; 2]))),
            (quote!(Box<dyn Iterator<Item = impl Copy> + 'a>), quote!(Box<dyn Iterator<Item = _> + 'a>)),
            (quote!(&'a mut impl Copy), quote!(&'a mut _)),
            (quote!(<T as Tr<'a>>::Out<3>), quote!(<T as Tr<'a>>::Out<3>)),
        ];
        for (input, output) in table {
            let mut ty: Type = syn::parse2(input)?;
            impl_traits(&mut ty);
            let output: Type = syn::parse2(output)?;
            assert_eq!(ty.to_token_stream().to_string(), output.to_token_stream().to_string());
        }
        Ok(())
    }
}
