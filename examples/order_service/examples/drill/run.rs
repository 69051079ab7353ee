//! One mode, from the start of its processes to its report.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use order_service::Failure;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::customers::{Answers, Customer};
use crate::faults;
use crate::modes::Mode;
use crate::plan::{Order, Plan};
use crate::progress::Progress;
use crate::report::{Bill, Report};
use crate::world::World;

#[derive(Deserialize)]
struct Created {
    id: String,
}

#[derive(Deserialize)]
struct Stored {
    status: String,
}

/// What came of one device: the order that it wanted paid, and how long it took to get the receipt.
type Paid = (String, Option<Duration>);

pub(crate) async fn run(mode: Mode, plan: &Plan, folder: &Path, progress: &Arc<Progress>) -> Result<Report, Failure> {
    progress.begin(mode.name);
    let world = Arc::new(World::start(mode, &folder.join(mode.name)).await?);
    let orders = create_orders(&world, plan).await?;

    let answers = Arc::<Mutex<Answers>>::default();
    let begin = Instant::now();
    let (mut strikes, mut rest) = (JoinSet::new(), orders.iter().cloned());
    for group in plan.groups.clone() {
        let orders = rest.by_ref().take(group.orders.len()).collect();
        strikes.spawn(faults::strike(world.clone(), group, orders, begin, progress.clone()));
    }
    let mut customers = JoinSet::new();
    for (order, id) in plan.groups.iter().flat_map(|group| &group.orders).zip(&orders) {
        for (number, device) in order.devices.iter().enumerate() {
            let (world, answers, key) = (world.clone(), answers.clone(), format!("{id}-device-{number}"));
            let customer = Customer { world, answers, order: id.clone(), key };
            let (id, device) = (id.clone(), device.clone());
            customers.spawn(async move { customer.pay(device, begin).await.map(|after| (id, after)) });
        }
    }
    let paid = watch(&world, customers, orders.len(), progress).await?;
    while let Some(struck) = strikes.join_next().await {
        struck??;
    }
    be_quiet(&world).await?;
    let answers = *answers.lock().unwrap_or_else(PoisonError::into_inner);
    report(mode, &world, &orders, &paid, answers).await
}

/// Waits until the provider has charged what it was asked for, be it by somebody who is not there any more.
async fn be_quiet(world: &World) -> Result<(), Failure> {
    let mut quiet = 0;
    // A few looks in a row, since the last request of a customer may still be on its way.
    while quiet < 5 {
        quiet = if world.under_way().await?.is_empty() { quiet + 1 } else { 0 };
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn create_orders(world: &World, plan: &Plan) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    for Order { amount, .. } in plan.groups.iter().flat_map(|group| &group.orders) {
        let url = format!("{}/orders", world.address(ids.len()));
        let created = world.client().post(url).json(&json!({ "amount": amount })).send().await?.error_for_status()?;
        ids.push(created.json::<Created>().await?.id);
    }
    Ok(ids)
}

/// Waits for all customers, and tells how far they are meanwhile.
async fn watch(
    world: &World,
    mut customers: JoinSet<Result<Paid, Failure>>,
    orders: usize,
    progress: &Progress,
) -> Result<Vec<Paid>, Failure> {
    let mut paid = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            customer = customers.join_next() => match customer {
                Some(customer) => paid.push(customer??),
                None => return Ok(paid),
            },
            _ = tick.tick() => {
                let charges = world.charges().await?.len();
                let (done, devices) = (paid.len(), paid.len() + customers.len());
                progress.tell_state(&format!(
                    "{charges} charges for {orders} orders; {done} of {devices} devices have their receipt or gave up"
                ));
            }
        }
    }
}

async fn report(
    mode: Mode,
    world: &World,
    orders: &[String],
    paid: &[Paid],
    answers: Answers,
) -> Result<Report, Failure> {
    let charges = world.charges().await?;
    let mut bills = Vec::new();
    for id in orders {
        let stored: Stored = world.get(format!("{}/orders/{id}", world.address(0))).await?;
        bills.push(Bill {
            order: id.clone(),
            charges: charges.iter().filter(|charge| charge.order == *id).count(),
            has_receipt: paid.iter().any(|(order, after)| order == id && after.is_some()),
            is_stored: stored.status == "paid",
        });
    }
    let mut waits: Vec<Duration> = paid.iter().filter_map(|(_, after)| *after).collect();
    waits.sort_unstable();
    Ok(Report { mode, bills, gave_up: paid.len() - waits.len(), waits, answers })
}
