use super::*;
use crate::manager::Identities;

fn row(event: Event, instance: &str, id: &str, manager: Option<&str>) -> Row {
    let manager = Identities { wrapper: manager.map(WrapperIdentity::example), instances: Vec::new() };
    Row { event, object: id.to_owned(), name: id.to_owned(), instance: Some(instance.to_owned()), manager }
}

fn ending() -> Event {
    Event::Ending { early: None, gone: false }
}

/// The conflict in what a call of a plan adds. The calls may not prove that it is a plan: the provider must then be careful.
fn conflict(run: &Run, event: Event, instance: &str, id: &str, manager: Option<&str>) -> Option<Conflict> {
    let refusals = run.record(row(event, instance, id, manager), Walk::Unknown);
    refusals.into_iter().find_map(|refusal| match refusal {
        Refusal::Conflict { conflict, .. } => Some(conflict),
        Refusal::SharedRunner(_) | Refusal::Kept { .. } => None,
    })
}

/// A call of a plan, as Terraform makes it for one object.
#[derive(Debug, Clone, Copy)]
enum Step {
    Stored(&'static str, &'static str),
    New(&'static str),
    /// Terraform plans the same object again.
    Again(&'static str),
    Kept(&'static str, &'static str),
    End(&'static str, &'static str),
}

use Step::{Again, End, Kept, New, Stored};

fn take(run: &Run, number: usize, step: Step) -> Option<Conflict> {
    let object = |number: usize| number.to_string();
    match step {
        Stored(instance, id) => conflict(run, Event::Stored, instance, id, None),
        New(instance) => conflict(run, Event::New, instance, &object(number), None),
        Again(instance) => conflict(run, Event::New, instance, &object(number - 1), None),
        Kept(instance, id) => conflict(run, Event::Kept, instance, id, None),
        End(instance, id) => conflict(run, ending(), instance, id, None),
    }
}

/// Every order of the steps of several objects in which each object keeps its own order.
fn interleavings(objects: &[&[Step]]) -> Vec<Vec<Step>> {
    if objects.iter().all(|steps| steps.is_empty()) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, steps) in objects.iter().enumerate() {
        let Some((first, rest)) = steps.split_first() else { continue };
        let mut left = objects.to_vec();
        left[index] = rest;
        for mut tail in interleavings(&left) {
            tail.insert(0, *first);
            all.push(tail);
        }
    }
    all
}

/// The conflicts that each order of a plan ends in.
fn conflicts(objects: &[&[Step]]) -> Vec<(Vec<Step>, Vec<Conflict>)> {
    let orders = interleavings(objects).into_iter();
    let in_order = |order: Vec<Step>| {
        let run = Run::default();
        let found = order.iter().enumerate().filter_map(|(number, step)| take(&run, number, *step)).collect();
        (order, found)
    };
    orders.map(in_order).collect()
}

#[track_caller]
fn assert_refused(objects: &[&[Step]]) {
    for (order, found) in conflicts(objects) {
        assert!(!found.is_empty(), "passes in the order {order:?}");
    }
}

#[track_caller]
fn assert_passes(objects: &[&[Step]]) {
    for (order, found) in conflicts(objects) {
        assert_eq!(found, [], "refused in the order {order:?}");
    }
}

#[test]
fn count_insertion_is_refused_in_any_order() {
    // ["b"] -> ["a", "b"]: index 0 is replaced, index 1 is new and takes over the instance of index 0.
    let shifted: &[Step] = &[Stored("i-b", "b"), End("i-b", "b"), New("i-a")];
    assert_refused(&[shifted, &[New("i-b")]]);
    // ["a", "b"] -> ["b"]: index 0 takes over the instance of index 1, which goes.
    let first: &[Step] = &[Stored("i-a", "a"), End("i-a", "a"), New("i-b")];
    assert_refused(&[first, &[Stored("i-b", "b"), End("i-b", "b")]]);
}

#[test]
fn rename_replace_and_taint_are_refused_in_any_order() {
    assert_refused(&[&[Stored("i-1", "a"), End("i-1", "a")], &[New("i-1")]]);
    assert_refused(&[&[Stored("i-1", "a"), Kept("i-1", "a"), New("i-1")]]);
    assert_refused(&[&[Stored("i-1", "a"), New("i-1")]]);
}

#[test]
fn removing_one_of_two_drains_is_refused_in_any_order() {
    let stays: &[Step] = &[Stored("i-1", "a"), Kept("i-1", "a")];
    let goes: &[Step] = &[Stored("i-1", "b"), End("i-1", "b")];
    assert_refused(&[stays, goes]);
    // Both may go together.
    assert_passes(&[goes, &[Stored("i-1", "a"), End("i-1", "a")]]);
}

#[test]
fn two_new_drains_of_one_instance_are_refused_at_plan() {
    assert_refused(&[&[New("i-1")], &[New("i-1")]]);
    assert_passes(&[&[New("i-1"), Again("i-1")]]);
    let run = Run::default();
    for object in ["new", "other"] {
        let refusals = run.record(row(Event::New, "i-1", object, None), Walk::Apply);
        assert_eq!(refusals, [], "a create does not fail in an apply");
    }
}

#[test]
fn rollouts_pass_in_any_order() {
    let in_place: &[Step] = &[Stored("i-1", "a"), End("i-1", "a"), New("i-2")];
    let other: &[Step] = &[Stored("i-5", "e"), Kept("i-5", "e")];
    assert_passes(&[in_place, other]);
    let by_key: &[Step] = &[Stored("i-1", "a"), End("i-1", "a")];
    assert_passes(&[by_key, &[New("i-2")], other]);
}

fn successor(run: &Run, instance: &str, manager: &str) -> Option<Successor> {
    run.successor(instance, &WrapperIdentity::example(manager))
}

#[test]
fn new_drain_of_same_instance_supersedes_stored_drain() {
    let run = Run::default();
    assert_eq!(conflict(&run, Event::Created, "i-1", "new", Some("10.0.0.1")), None);
    assert_eq!(conflict(&run, ending(), "i-1", "a", None), None);
    assert_eq!(successor(&run, "i-1", "10.0.0.1"), Some(Successor::SameManager));
    assert_eq!(successor(&run, "i-1", "10.0.0.2"), Some(Successor::OtherManager));
    assert_eq!(conflict(&run, Event::Created, "i-2", "other", None), None);
    assert_eq!(successor(&run, "i-2", "10.0.0.1"), Some(Successor::OtherManager));
    run.start(|_| None).unwrap();
    assert_eq!(successor(&run, "i-1", "10.0.0.1"), None);
}

/// No call shows that these are of a plan, until the health check is planned.
#[test]
fn contradictions_of_new_drains_are_found_later() {
    let refusal = |conflict| Refusal::Conflict { instance: "i-1".to_owned(), conflict };
    let run = Run::default();
    assert_eq!(run.contradictions(), []);
    take(&run, 0, New("i-1"));
    take(&run, 1, New("i-2"));
    assert_eq!(run.contradictions(), []);
    take(&run, 2, New("i-1"));
    assert_eq!(run.contradictions(), [refusal(Conflict::Twice)]);
    let run = Run::default();
    take(&run, 0, Stored("i-1", "a"));
    take(&run, 1, New("i-1"));
    assert_eq!(run.contradictions(), [refusal(Conflict::Superseded)]);
    run.destroyed("a");
    assert_eq!(run.contradictions(), []);
}

/// In an apply, the new one is created before the stored one is updated.
#[test]
fn update_after_the_create_of_another_drain_passes() {
    let run = Run::default();
    take(&run, 0, Stored("i-1", "a"));
    take(&run, 1, New("i-1"));
    assert_eq!(conflict(&run, Event::Created, "i-1", "new", None), None);
    assert_eq!(take(&run, 2, Kept("i-1", "a")), None);
}

#[test]
fn destroyed_drain_does_not_block_new_drain() {
    let run = Run::default();
    take(&run, 0, Stored("i-1", "a"));
    run.destroyed("a");
    assert_eq!(take(&run, 1, New("i-1")), None);
}

/// A run with this value of `GRIT_PLAN_CHECK`.
fn switched(value: Option<&str>) -> (Run, Result<bool, InvalidSwitch>) {
    let run = Run::default();
    let off = run.start(|name| value.filter(|_| name == PLAN_CHECK).map(str::to_owned));
    (run, off)
}

#[test]
fn plan_check_variable_accepts_only_off() {
    for off in ["off", "OFF", " Off "] {
        let (run, is_off) = switched(Some(off));
        assert_eq!(is_off, Ok(true), "{off:?}");
        take(&run, 0, Stored("i-1", "a"));
        conflict(&run, Event::Created, "i-1", "new", Some("m1"));
        assert_eq!(take(&run, 1, New("i-1")), None);
        assert_eq!(successor(&run, "i-1", "m1"), None);
    }
    for on in [None, Some(""), Some("on")] {
        assert_eq!(switched(on).1, Ok(false), "{on:?}");
    }
    let error = switched(Some("false")).1.unwrap_err();
    assert_eq!(error.to_string(), "GRIT_PLAN_CHECK is \"false\"; it must be `on`, `off` or unset");
}

#[test]
fn drain_at_address_of_kept_instance_is_refused_in_any_order() {
    for kept_first in [true, false] {
        let run = Run::default();
        let kept = |manager| conflict(&run, Event::Kept, "i-2", "b", Some(manager));
        let end = |manager| conflict(&run, ending(), "i-1", "a", Some(manager));
        assert_eq!((kept("m2"), end("m1")), (None, None));
        let (first, second) = if kept_first { (kept("m"), end("m")) } else { (end("m"), kept("m")) };
        assert_eq!((first, second), (None, Some(Conflict::SameAddress)));
    }
    let (run, _) = switched(Some("off"));
    assert_eq!(conflict(&run, Event::Kept, "i-2", "b", Some("m")), None);
    assert_eq!(conflict(&run, ending(), "i-1", "a", Some("m")), None);
}

#[test]
fn instance_created_at_address_of_old_one_is_found() {
    for switch in [None, Some("off")] {
        let (run, _) = switched(switch);
        conflict(&run, Event::Created, "i-2", "b", Some("m"));
        conflict(&run, Event::Created, "i-3", "c", None);
        assert_eq!(successor(&run, "i-1", "m"), Some(Successor::OtherInstance("i-2".to_owned())));
        assert_eq!(successor(&run, "i-1", "m1"), None);
    }
}

/// The other instance that has the same runner manager.
fn shared(run: &Run, event: &Event, instance: &str, manager: &str) -> Option<String> {
    let refusals = run.record(row(event.clone(), instance, instance, Some(manager)), Walk::Unknown);
    refusals.into_iter().find_map(|refusal| match refusal {
        Refusal::SharedRunner(shared) => Some(shared.other),
        Refusal::Conflict { .. } | Refusal::Kept { .. } => None,
    })
}

#[test]
fn second_instance_of_one_runner_is_refused() {
    for event in [Event::New, Event::Kept, ending(), Event::Drained] {
        let run = Run::default();
        assert_eq!(shared(&run, &event, "i-1", "h w"), None);
        assert_eq!(shared(&run, &event, "i-1", "h w"), None, "one instance, planned twice");
        assert_eq!(shared(&run, &event, "i-2", "h2 w"), None);
        assert_eq!(shared(&run, &event, "i-2", "h w").as_deref(), Some("i-1"));
        run.start(|_| None).unwrap();
        assert_eq!(shared(&run, &event, "i-2", "h w"), None);
        let (off, _) = switched(Some("off"));
        for instance in ["i-1", "i-2"] {
            assert_eq!(shared(&off, &event, instance, "h w"), None);
        }
    }
}

#[test]
fn replacement_at_a_fixed_address_passes() {
    let run = Run::default();
    assert_eq!(shared(&run, &ending(), "i-1", "h w"), None);
    assert_eq!(shared(&run, &Event::New, "i-2", "h w"), None);
    assert_eq!(shared(&run, &Event::Drained, "i-1", "h w"), None);
}

#[test]
fn destroyed_instance_shares_no_runner() {
    let gone = Event::Ending { early: None, gone: true };
    let run = Run::default();
    assert_eq!(shared(&run, &gone, "i-1", "h w"), None);
    assert_eq!(shared(&run, &ending(), "i-2", "h w"), None);
    assert_eq!(shared(&run, &gone, "i-3", "h w"), None);
}

/// The resource that keeps a manager with these instances, which a shutdown resource retires; as one of the two calls finds it.
fn keeper(run: &Run, event: Event, instances: &[&str]) -> Option<Keeper> {
    let instances = instances.iter().map(|&instance| instance.to_owned()).collect();
    let manager = Identities { wrapper: None, instances };
    let row = Row { event, object: String::new(), name: "m1".to_owned(), instance: None, manager };
    run.record(row, Walk::Unknown).into_iter().find_map(|refusal| match refusal {
        Refusal::Kept { by, .. } => Some(by),
        Refusal::Conflict { .. } | Refusal::SharedRunner(_) => None,
    })
}

#[test]
fn retired_manager_that_is_kept_is_found_in_both_orders() {
    let keepers =
        [(Event::New, Keeper::Drain), (Event::Kept, Keeper::Drain), (Event::Checked, Keeper::Health)];
    for (event, by) in keepers {
        let run = Run::default();
        assert_eq!(keeper(&run, event.clone(), &["a", "i-1 w"]), None);
        assert_eq!(keeper(&run, Event::Retired, &["b", "i-1 w"]), Some(by));
        let run = Run::default();
        assert_eq!(keeper(&run, Event::Retired, &["a"]), None);
        assert_eq!(keeper(&run, event, &["a", "i-1 w"]), Some(by));
    }
}

#[test]
fn other_managers_and_unknown_identities_do_not_overlap() {
    let run = Run::default();
    assert_eq!(keeper(&run, Event::Retired, &["a", "i-1 w"]), None);
    assert_eq!(keeper(&run, Event::Retired, &[]), None);
    assert_eq!(keeper(&run, Event::Kept, &["b", "i-2 w"]), None);
    assert_eq!(keeper(&run, Event::Checked, &[]), None);
    run.start(|_| None).unwrap();
    assert_eq!(keeper(&run, Event::Kept, &["a"]), None);
}

#[test]
fn drain_resource_is_named_before_health_check() {
    for order in [[Event::Kept, Event::Checked], [Event::Checked, Event::Kept]] {
        let run = Run::default();
        for event in order {
            keeper(&run, event, &["a"]);
        }
        assert_eq!(keeper(&run, Event::Retired, &["a"]), Some(Keeper::Drain));
    }
}

#[test]
fn drain_is_stored_until_the_next_run() {
    let run = Run::default();
    take(&run, 0, Stored("i-1", "m1@h#1"));
    assert!(run.is_stored("m1@h#1") && !run.is_stored("m2@h#2"));
    run.start(|_| None).unwrap();
    assert!(!run.is_stored("m1@h#1"));
}
