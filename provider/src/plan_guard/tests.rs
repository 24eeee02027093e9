use super::*;

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

fn take(guard: &PlanGuard, number: usize, step: Step) -> Result<(), Conflict> {
    match step {
        Stored(instance, id) => {
            guard.stored(instance, id);
            Ok(())
        }
        // The calls of this plan may not prove that it is a plan: the provider must then be careful.
        New(instance) => guard.plans_new(instance, &number.to_string(), Walk::Unknown),
        Again(instance) => guard.plans_new(instance, &(number - 1).to_string(), Walk::Unknown),
        Kept(instance, id) => guard.plans_kept(instance, id, None),
        End(instance, id) => guard.plans_end(instance, id, None),
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
    let orders = interleavings(objects);
    let run = |order: Vec<Step>| {
        let guard = PlanGuard::default();
        let found =
            order.iter().enumerate().filter_map(|(number, step)| take(&guard, number, *step).err()).collect();
        (order, found)
    };
    orders.into_iter().map(run).collect()
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
    let guard = PlanGuard::default();
    assert_eq!(guard.plans_new("i-1", "new", Walk::Apply), Ok(()));
    assert_eq!(guard.plans_new("i-1", "other", Walk::Apply), Ok(()), "a create does not fail in an apply");
    assert_passes(&[&[New("i-1"), Again("i-1")]]);
}

#[test]
fn rollouts_pass_in_any_order() {
    let in_place: &[Step] = &[Stored("i-1", "a"), End("i-1", "a"), New("i-2")];
    let other: &[Step] = &[Stored("i-5", "e"), Kept("i-5", "e")];
    assert_passes(&[in_place, other]);
    let by_key: &[Step] = &[Stored("i-1", "a"), End("i-1", "a")];
    assert_passes(&[by_key, &[New("i-2")], other]);
}

#[test]
fn new_drain_of_same_instance_supersedes_stored_drain() {
    let guard = PlanGuard::default();
    guard.created("i-1", Some("10.0.0.1".to_owned()));
    assert_eq!(guard.plans_end("i-1", "a", None), Ok(()));
    assert_eq!(guard.successor("i-1", "10.0.0.1"), Some(Successor::SameManager));
    assert_eq!(guard.successor("i-1", "10.0.0.2"), Some(Successor::OtherManager));
    guard.created("i-2", None);
    assert_eq!(guard.successor("i-2", "10.0.0.1"), Some(Successor::OtherManager));
    guard.reset(None).unwrap();
    assert_eq!(guard.successor("i-1", "10.0.0.1"), None);
}

/// A saved plan is applied: the state has a drain resource of the instance to which an unknown id resolves, and no call shows that this is an apply.
#[tokio::test(start_paused = true)]
async fn create_is_refused_only_where_plan_is_certain() {
    let guard = PlanGuard::default();
    guard.stored("i-1", "a");
    let conflict = guard.plans_new("i-1", "new", Walk::Unknown).unwrap_err();
    assert_eq!(conflict, Conflict::Superseded);
    let refuses = async |walk| guard.refuses_new("i-1", conflict, walk).await;
    assert!(refuses(Walk::Unknown).await, "a taint, in a plan without a refresh");
    // In a plan, the stored drain resource may follow, and is refused.
    assert_eq!(guard.plans_kept("i-1", "a", None), Err(Conflict::Superseded));
    assert!(!refuses(Walk::Unknown).await, "an apply can update it");
    assert!(refuses(Walk::Plan).await);
    assert_eq!(
        guard.reported(),
        [("i-1".to_owned(), Conflict::Superseded)],
        "the health check of a plan refuses it"
    );
    assert_eq!(guard.plans_end("i-1", "a", None), Err(Conflict::Superseded));
    assert!(refuses(Walk::Unknown).await, "its destroy is planned");
    assert!(!guard.refuses_new("i-1", Conflict::Twice, Walk::Unknown).await);

    // The update is planned a moment later.
    let guard = PlanGuard::default();
    guard.stored("i-1", "a");
    guard.plans_new("i-1", "new", Walk::Unknown).unwrap_err();
    let update = async {
        sleep(Duration::from_millis(300)).await;
        guard.plans_kept("i-1", "a", None)
    };
    let (refused, _) = tokio::join!(guard.refuses_new("i-1", conflict, Walk::Unknown), update);
    assert!(!refused);
    guard.created("i-1", None);
    assert_eq!(guard.plans_kept("i-1", "a", None), Ok(()));
}

#[test]
fn destroyed_drain_does_not_block_new_drain() {
    let guard = PlanGuard::default();
    guard.stored("i-1", "a");
    guard.destroyed("i-1", "a");
    assert_eq!(guard.plans_new("i-1", "new", Walk::Unknown), Ok(()));
}

#[test]
fn plan_guard_variable_accepts_only_off() {
    for off in ["off", "OFF", " Off "] {
        let guard = PlanGuard::default();
        assert_eq!(guard.reset(Some(off)), Ok(true), "{off:?}");
        guard.stored("i-1", "a");
        guard.created("i-1", Some("m1".to_owned()));
        assert_eq!(guard.plans_new("i-1", "new", Walk::Plan), Ok(()));
        assert_eq!(guard.successor("i-1", "m1"), None);
    }
    for on in [None, Some(""), Some("on")] {
        assert_eq!(PlanGuard::default().reset(on), Ok(false), "{on:?}");
    }
    let error = PlanGuard::default().reset(Some("false")).unwrap_err();
    assert_eq!(error.to_string(), "GRIT_PLAN_GUARD is \"false\"; it must be `on`, `off` or unset");
}

#[test]
fn import_of_a_guarded_instance_is_refused_in_either_order() {
    let stored_first = PlanGuard::default();
    stored_first.stored("i-1", "a");
    assert_eq!(stored_first.imports("i-1", "imported"), Err(Conflict::Superseded));

    for order in [["a", "imported"], ["imported", "a"]] {
        let imported_first = PlanGuard::default();
        assert_eq!(imported_first.imports("i-1", "imported"), Ok(()));
        assert_eq!(imported_first.plans_kept("i-1", order[0], None), Ok(()));
        assert_eq!(imported_first.plans_kept("i-1", order[1], None), Err(Conflict::Superseded));
    }
}

#[test]
fn drain_at_address_of_kept_instance_is_refused_in_any_order() {
    for kept_first in [true, false] {
        let guard = PlanGuard::default();
        let kept = |manager| guard.plans_kept("i-2", "b", Some(manager));
        let end = |manager| guard.plans_end("i-1", "a", Some(manager));
        assert_eq!((kept("m2"), end("m1")), (Ok(()), Ok(())));
        let (first, second) = if kept_first { (kept("m"), end("m")) } else { (end("m"), kept("m")) };
        assert_eq!((first, second), (Ok(()), Err(Conflict::SameAddress)));
    }
    let guard = PlanGuard::default();
    guard.reset(Some("off")).unwrap();
    assert_eq!(guard.plans_kept("i-2", "b", Some("m")), Ok(()));
    assert_eq!(guard.plans_end("i-1", "a", Some("m")), Ok(()));
}

#[test]
fn instance_created_at_address_of_old_one_is_found() {
    for switch in [None, Some("off")] {
        let guard = PlanGuard::default();
        guard.reset(switch).unwrap();
        guard.created("i-2", Some("m".to_owned()));
        guard.created("i-3", None);
        assert_eq!(guard.successor("i-1", "m"), Some(Successor::OtherInstance("i-2".to_owned())));
        assert_eq!(guard.successor("i-1", "m1"), None);
    }
}
