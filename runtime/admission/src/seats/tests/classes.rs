//! Classes go in order, and none starves.

use super::rig::{FAST, Rig, ticket};
use super::world::{ms, pool};
use crate::seats::{Class, Held, Pool, Ticket};

#[test]
fn classes_go_in_order_and_control_is_capped() {
    let mut rig = Rig::new(pool(8));
    let mut held = rig.fill("t", FAST, 8);
    let of: Vec<Ticket> =
        [Class::Background, Class::Batch, Class::Agent, Class::Interactive, Class::Control, Class::Control, Class::Control]
            .into_iter()
            .map(|class| ticket(rig.ask_as("u", class, rig.share, FAST)))
            .collect();
    let mut order = Vec::new();
    let mut control = Vec::new();
    while let Some(one) = held.pop() {
        rig.end(one, ms(20));
        while let Some((ticket, granted)) = rig.next() {
            order.push(ticket);
            control.push(granted.expect("a seat"));
        }
    }
    // A quarter of eight: the third waits for one of the first two, whatever is free.
    assert_eq!(order, [of[4], of[5], of[3], of[2], of[1], of[0]]);
    rig.end(control.remove(0), ms(20));
    assert_eq!(rig.granted().0, of[6]);
}

#[test]
fn an_attempt_that_is_not_the_first_is_one_class_lower() {
    let lower: Vec<Class> = Class::ALL.into_iter().map(Class::lower).collect();
    assert_eq!(lower, [Class::Interactive, Class::Agent, Class::Batch, Class::Background, Class::Background]);
}

#[test]
fn no_class_starves_under_a_flood_of_those_above() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(4) });
    let mut held: Vec<Held> = rig.fill("x", FAST, 4);
    let classes = [Class::Interactive, Class::Agent, Class::Batch, Class::Background];
    let mut got = [0.0; 4];
    let mut tickets = Vec::new();
    for _ in 0..4_000 {
        for (class, of) in classes.into_iter().zip(0..) {
            while tickets.iter().filter(|(_, other)| *other == of).count() < 2 {
                tickets.push((ticket(rig.ask_as(class.name(), class, rig.share, FAST)), of));
            }
        }
        rig.now += ms(5);
        let one = held.remove(0);
        rig.end(one, ms(20));
        let (granted, seat) = rig.granted();
        held.push(seat);
        let at = tickets.iter().position(|(ticket, _)| *ticket == granted).expect("it waits");
        got[tickets.swap_remove(at).1] += 1.0 / 4_000.0;
    }
    let floors = [0.5, 0.15, 0.05, 0.02];
    for (got, floor) in got.into_iter().zip(floors) {
        assert!(got >= 0.95 * floor, "{got} of the seats against {floor}");
    }
    assert!(got[0] > 0.75, "the first class has the rest: {got:?}");
}
