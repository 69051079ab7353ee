//! What the attribute writes, printed as people would write it.

use proc_macro2::TokenStream;
use quote::quote;

use crate::attribute;

fn expansion(args: TokenStream, item: TokenStream) -> String {
    let expanded = attribute(args, item).to_string();
    match syn::parse_file(&expanded) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => format!("{error}:\n{expanded}"),
    }
}

/// Methods are written outside of an impl here; the parser doesn't mind.
macro_rules! snapshot {
    ($name:ident, #[distributed_lock($($args:tt)*)] $($item:tt)*) => {
        #[test]
        fn $name() {
            let expansion = expansion(quote!($($args)*), quote!($($item)*));
            insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(stringify!($name), expansion);
            });
        }
    };
}

/// How many lines of formatted code the attribute adds to a function.
fn added_lines(args: TokenStream, item: TokenStream) -> usize {
    let lines = |code: &str| code.lines().count();
    let plain = syn::parse_file(&item.to_string()).map(|file| prettyplease::unparse(&file)).unwrap_or_default();
    lines(&expansion(args, item)) - lines(&plain)
}

#[test]
fn the_expansion_is_short() {
    let function = quote!(
        async fn pay(id: u64, amount: Cents) -> Result<Receipt, OrderError> {
            charge(id, amount).await
        }
    );
    let usual = added_lines(quote!(key = "order:<id>", ttl = "30s", retry = 3), function.clone());
    assert!(usual <= 35, "{usual} lines");
    let every_option = quote!(
        key = "order:<id>:<amount>",
        ttl = "30s",
        retry = 3,
        backoff = "50ms..1s",
        max_hold = "5m",
        on_lost = finish
    );
    let every_option = added_lines(every_option, function);
    assert!(every_option <= 40, "{every_option} lines");
    let pattern = quote!(
        async fn pay(Path((from, to)): Path<(u64, u64)>) -> Result<Receipt, OrderError> {
            transfer(from, to).await
        }
    );
    // Where a pattern is looked into before it is taken apart, the lines around the key are more.
    let pattern = added_lines(quote!(key = "order:<from>:<to>", ttl = "30s"), pattern);
    assert!(pattern <= 60, "{pattern} lines with a pattern in the key");
}

snapshot! {
    a_free_function,
    #[distributed_lock(key = "order:<id>", ttl = "30s", retry = 3)]
    pub async fn pay(id: u64, amount: Cents) -> Result<Receipt, OrderError> {
        charge(id, amount).await
    }
}

snapshot! {
    every_option,
    #[distributed_lock(
        key = "order:<order.id>/{shard:02}", ttl = "1m 30s", retry = 3, backoff = "50ms..800ms", watchdog = true,
        max_hold = "5m", on_lost = finish, lease = lease, mode = read, manager = self.locks, crate = my::distlock
    )]
    async fn pay(&self, order: Order, shard: u8) -> Result<(), Error> {
        lease.ensure_held()
    }
}

snapshot! {
    options_that_are_expressions_follow_the_constant_ones,
    #[distributed_lock(key = self.key(), ttl = self.ttl, retry = 3, backoff = BACKOFF, watchdog = self.long, permits = self.permits)]
    async fn refresh(&self) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    a_number_of_permits,
    #[distributed_lock(key = "geocoder", global, permits = 5)]
    async fn locate(address: Address) -> Result<Place, Error> {
        ask(address).await
    }
}

snapshot! {
    a_receiver_by_value,
    #[distributed_lock(key = "job:<self.id>")]
    async fn run(mut self, _log: Log) -> Result<Self, Error> {
        self.step().await?;
        Ok(self)
    }
}

snapshot! {
    a_typed_receiver,
    #[distributed_lock(key = "job:<self.id>")]
    async fn run(self: Arc<Self>) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    patterns_in_the_key,
    #[distributed_lock(key = "account:<from>:<to>")]
    async fn transfer(Path((from, to)): Path<(u64, u64)>, mut total: Cents, _: Audit) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    patterns_outside_of_the_key,
    #[distributed_lock(key = "account:<to>")]
    async fn transfer(Form { amount, .. }: Form, to: u64) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    generics_and_impl_trait,
    #[distributed_lock(key = "batch:<name>")]
    async fn batch<'a, T, const N: usize>(name: &'a str, items: [T; N], by: impl Fn(&T) -> u8)
        -> Result<impl Iterator<Item = T> + use<'a, T, N>, Error>
    where
        T: Send,
    {
        Ok(items.into_iter())
    }
}

snapshot! {
    no_return_type,
    #[distributed_lock(key = "nightly-report", global, or_else = |error| warn(error))]
    async fn report(day: Day) {
        write(day).await;
    }
}

snapshot! {
    a_function_that_returns_its_future,
    #[distributed_lock(key = "order:<id>", lease = lease, or_else = |_| total)]
    fn pay(id: u64, mut total: Cents) -> impl Future<Output = Cents> + Send {
        total += 1;
        async move {
            lease.lost().await;
            total
        }
    }
}

snapshot! {
    a_function_that_returns_a_boxed_future,
    #[distributed_lock(key = "order:<self.id>", manager = self.locks)]
    fn call(&mut self, (_, count): (u8, u8)) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        if count == 0 {
            return Box::pin(ready(Ok(())));
        }
        Box::pin(self.inner.call())
    }
}

snapshot! {
    a_method_after_async_trait,
    #[distributed_lock(key = "order:<id>:<from>", lease = lease)]
    fn save<'life0, 'async_trait>(&'life0 self, id: u64, __arg2: (u64, u64))
        -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
    {
        Box::pin(async move {
            if let Some(__ret) = None::<Result<(), Error>> {
                return __ret;
            }
            let __self = self;
            let id = id;
            let (from, to) = {
                let __arg2 = __arg2;
                __arg2
            };
            let __ret: Result<(), Error> = { lease.ensure_held() };
            __ret
        })
    }
}

snapshot! {
    two_locks,
    #[distributed_lock(key = "from:<from>", lease = first)]
    #[must_use]
    #[distlock::distributed_lock(key = "to:<to>", ttl = "30s", lease = second)]
    async fn transfer(from: u64, to: u64) -> Result<(), Error> {
        first.ensure_held()?;
        second.ensure_held()
    }
}

snapshot! {
    attributes_of_function_and_parameters,
    #[distributed_lock(key = "a:<r#type>")]
    #[must_use]
    #[doc = "Does it."]
    async unsafe fn f(#[cfg(unix)] r#type: u8, #[expect(unused_variables)] n: u8) -> Result<(), Error> {
        #![allow(dead_code)]
        Ok(())
    }
}

snapshot! {
    mistakes_keep_the_function,
    #[distributed_lock(key = "order:<idd>", timeout = "30s", retry = -1)]
    async fn pay(id: u64) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    mistakes_in_two_attributes_are_told_once,
    #[distributed_lock(key = "order:<idd>")]
    #[must_use]
    #[distributed_lock(timeout = "30s")]
    pub async fn pay(id: u64) -> Result<(), Error> {
        Ok(())
    }
}

snapshot! {
    what_is_no_async_function_is_kept,
    #[distributed_lock(key = "order:<id>")]
    struct Order {
        id: u64,
    }
}
