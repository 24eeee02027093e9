//! How cost grows with the number of managers: through all commands of Terraform, with real sessions of a real sshd.
//!
//! Two layouts are measured. In the recommended one, each manager has a drain resource ("drains"): Terraform's own cost grows with the
//! square of their number (it compares each object with each other object of a resource, and evaluates each `for_each` again for each of
//! its objects), so its commands are beside those of the same graph of `terraform_data`. In the layout with a directory for each version
//! ("map"), one health check and one shutdown resource have all managers in a map: Terraform has two objects, and the growth of the
//! provider is visible up to 1,000 managers.
//!
//! All managers share this machine with Terraform, so the wall time contains the work of all hosts.

mod hosts;
mod measured;

use anyhow::Context as _;

use self::{
    hosts::{Counts, Hosts},
    measured::{Measured, Used},
};
use super::{Row, Settings, machine, milliseconds};

const BENCH: &str = "growth";

/// Managers with a drain resource each. More of them are not usable in one state: see docs/guides/limits.md.
const DRAINS: [usize; 2] = [10, 100];
/// Managers in one map.
const MAP: [usize; 3] = [10, 100, 1000];

/// The memory of the provider, in MB.
const MEMORY: f64 = 250.0;
/// The provider's limit of parallel handshakes (`max_parallel`).
const HANDSHAKES: f64 = 64.0;

/// Saved plans, so that each command starts one process for its calls. Otherwise an apply reads the hosts in a first process.
const PLAN: &[&str] = &["plan", "-out=plan"];
const APPLY: &[&str] = &["apply", "plan"];
/// Fails if there is a change.
const UNCHANGED: &[&str] = &["plan", "-detailed-exitcode"];
const REFRESH: &[&str] = &["apply", "-refresh-only", "-auto-approve"];
const PLAN_DESTROY: &[&str] = &["plan", "-destroy", "-out=plan"];

pub(super) fn run(settings: &Settings) -> anyhow::Result<Vec<Row>> {
    let mut hosts = Hosts::start()?;
    let sizes = |all: &'static [usize]| if settings.quick { &all[..1] } else { all };
    let mut rows = Vec::new();
    for count in sizes(&DRAINS) {
        rows.extend(drains(&mut hosts, *count).with_context(|| format!("{count} drains"))?);
    }
    let mut fewer = None;
    for count in sizes(&MAP) {
        let (more, cost) = map(&mut hosts, *count, fewer).with_context(|| format!("a map of {count}"))?;
        rows.extend(more);
        fewer = Some((*count, cost));
    }
    Ok(rows)
}

/// A command's name, and what it used here and on the hosts.
type Phase = (&'static str, Used, Counts);

/// Runs the commands of a layout in order.
struct Walk<'a> {
    hosts: &'a Hosts,
    workspace: &'a Measured,
    phases: Vec<Phase>,
}

impl<'a> Walk<'a> {
    fn new(hosts: &'a Hosts, workspace: &'a Measured) -> Self {
        Self { hosts, workspace, phases: Vec::new() }
    }

    fn step(&mut self, name: &'static str, arguments: &[&str]) -> anyhow::Result<()> {
        let (used, counts) = self.hosts.count(|| self.workspace.run(arguments)).context(name)?;
        self.phases.push((name, used, counts));
        Ok(())
    }

    fn used(&self) -> Used {
        self.phases.iter().fold(Used::default(), |sum, (_, used, _)| sum.and(*used))
    }

    /// The rows about memory and hosts, whose limits apply to each build.
    fn limits(&self, name: &str, count: usize) -> Vec<Row> {
        let row = |what: &str, value: f64, unit| Row::new(BENCH, format!("{name}: {what}"), value, unit);
        let most = |value: fn(&Counts) -> usize| {
            self.phases.iter().map(|(_, _, counts)| value(counts)).max().unwrap_or_default() as f64
        };
        let sum = |value: fn(&Counts) -> usize| {
            self.phases.iter().map(|(_, _, counts)| value(counts)).sum::<usize>() as f64 / count as f64
        };
        vec![
            row("memory of the provider, peak", self.used().memory, "MB").limit(MEMORY),
            row("connections to a host, one command", most(|counts| counts.per_host), "").limit(1.0),
            row("handshakes at the same time", most(|counts| counts.handshakes), "").limit(HANDSHAKES),
            row("connections per manager, all commands", sum(|counts| counts.connections), ""),
            row("requests per manager, all commands", sum(|counts| counts.requests), ""),
        ]
    }
}

/// The recommended layout, beside the same graph of `terraform_data`.
fn drains(hosts: &mut Hosts, count: usize) -> anyhow::Result<Vec<Row>> {
    let ours = Measured::new(include_str!("drains.tf"), &["grit"])?;
    let built_in = Measured::new(include_str!("drains_built_in.tf"), &[])?;
    let versions = [hosts.add(count, 1)?, hosts.add(count, 2)?];
    let hosts = &*hosts;
    let mut walks = [&ours, &built_in].map(|workspace| Walk::new(hosts, workspace));
    let mut sizes = Vec::new();
    for walk in &mut walks {
        walk.workspace.set(hosts, &versions[0], &serde_json::json!({}))?;
        walk.step("plan", PLAN)?;
        walk.step("apply", APPLY)?;
        walk.step("plan without changes", UNCHANGED)?;
        walk.step("refresh", REFRESH)?;
        walk.workspace.set(hosts, &versions[1], &serde_json::json!({}))?;
        walk.step("plan of the rollout", PLAN)?;
        walk.step("rollout", APPLY)?;
        sizes.push(walk.workspace.state_size());
        walk.step("plan of the destroy", PLAN_DESTROY)?;
        walk.step("destroy", APPLY)?;
    }
    hosts.assert_stopped(2 * count)?;

    let [own, core] = &walks;
    let name = format!("{count} drains");
    let row = |what: &str, value: f64, unit| Row::new(BENCH, format!("{name}: {what}"), value, unit);
    let mut rows = Vec::new();
    for ((phase, ours, _), (_, theirs, _)) in own.phases.iter().zip(&core.phases) {
        let against = format!("terraform_data, {:.0} ms", theirs.wall);
        rows.push(row(phase, ours.wall, "ms").against(against, theirs.wall));
    }
    let (used, theirs) = (own.used(), core.used().terraform);
    let against = format!("terraform_data, {theirs:.0} ms");
    let provider = row("CPU of the provider", used.provider, "ms").against(&against, theirs);
    rows.push(row("CPU of Terraform", used.terraform, "ms").against(&against, theirs));
    // With more drains the ratio falls, because Terraform's share grows faster. With few, the starts of the provider count.
    rows.push(if count >= 100 { provider.budget_ratio(0.25) } else { provider });
    rows.extend(own.limits(&name, count));
    if let [ours, theirs] = sizes[..] {
        let against = format!("terraform_data, {:.0} KB", theirs / 1000.0);
        rows.push(row("state", ours / 1000.0, "KB").against(against, theirs / 1000.0));
    }
    Ok(rows)
}

/// The layout with maps. Returns its rows, and the provider's CPU time per manager, which must not grow. `fewer`: those of fewer managers.
fn map(hosts: &mut Hosts, count: usize, fewer: Option<(usize, f64)>) -> anyhow::Result<(Vec<Row>, f64)> {
    let ours = Measured::new(include_str!("maps.tf"), &["grit"])?;
    let versions = [hosts.add(count, 1)?, hosts.add(count, 2)?];
    let hosts = &*hosts;
    let mut walk = Walk::new(hosts, &ours);
    ours.set(hosts, &versions[0], &serde_json::json!({}))?;
    walk.step("plan", PLAN)?;
    walk.step("apply", APPLY)?;
    let first = walk.used();
    walk.step("plan without changes", UNCHANGED)?;
    ours.set(hosts, &versions[1], &versions[0])?;
    walk.step("plan of the rollout", PLAN)?;
    walk.step("rollout", APPLY)?;

    let name = format!("{count} in a map");
    let row = |what: &str, value: f64, unit| Row::new(BENCH, format!("{name}: {what}"), value, unit);
    let mut rows = Vec::new();
    for (phase, used, counts) in &walk.phases {
        let floor = counts.sshd_cpu / machine::cores();
        let wall = row(phase, used.wall, "ms");
        rows.push(if counts.connections == 0 {
            wall
        } else {
            wall.against(format!("sshd's CPU time / cores, {floor:.0} ms"), floor)
        });
    }
    let cost = walk.used().provider / count as f64;
    let each = row("CPU of the provider, per manager", cost, "ms");
    rows.push(match fewer {
        // The starts of the provider count for 10 managers.
        Some((fewer, before)) => each.against(format!("{fewer}, {before:.1} ms"), before).budget_ratio(1.1),
        None => each,
    });
    if count >= 1000 {
        let instances = Measured::new(include_str!("instances.tf"), &[])?;
        instances.set(hosts, &versions[0], &serde_json::json!({}))?;
        let core = instances.run(PLAN)?.and(instances.run(APPLY)?).terraform;
        let provider = row("CPU of the provider, plan and apply", first.provider, "ms");
        let against = format!("{count} terraform_data, {core:.0} ms");
        rows.push(provider.against(against, core).budget_ratio(0.25));
    }
    rows.extend(walk.limits(&name, count));
    rows.push(row("state", ours.state_size() / 1000.0, "KB"));
    Ok((rows, cost))
}
