//! A whole supervisor in a fake world under a fake clock: messages that are slow, late, repeated or missing,
//! workers that end in every way, spawns, workspaces and disks that fail, clocks that are set, configurations that
//! change, and crashes at any step.
//!
//! A run of it follows from one number. `PRUN_SIM_SEEDS` plays more of them, `PRUN_SIM_SEED` begins elsewhere. A
//! seed that fails is made smaller and told, with how to play it again.

mod script;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::outcome::tests::good_facts;
use script::{Again, Script, Step};
use world::{Dispatcher, Turn, World, class_of};

use crate::outcome::{StopReason, Usage};
use crate::schedule::Pressure;

/// Seeds that are played where nobody asks for more.
const SEEDS: u64 = 2_000;

/// What somebody may ask for.
fn command(unit: UnitId, what: u8) -> Command {
    match what % 9 {
        0 => Command::Stop { unit: Some(unit), now: false },
        1 => Command::Stop { unit: Some(unit), now: true },
        2 => Command::Stop { unit: None, now: what > 128 },
        3 => Command::Retry { unit, how: RetryHow::Fresh, message: None },
        4 => Command::Retry { unit, how: RetryHow::Continue, message: Some("m".into()) },
        5 => Command::Accept { unit, why: "w".into(), salvaged: what > 128 },
        6 => Command::Exclude { unit, why: "w".into() },
        7 => Command::Unreview { unit },
        _ => Command::Submit { unit },
    }
}

/// Plays a script to the end of the run; every step is followed by every check.
fn play(script: &Script) {
    let mut world = World::new(script.units, script.retries);
    let mut supervisor = world.supervisor(false);
    let mut token = 0;
    for (number, step) in script.steps.iter().enumerate() {
        if world.left {
            // Whoever wants more after the end starts another supervisor.
            world.left = false;
            supervisor = world.supervisor(true);
        }
        let turn = take(&mut world, &mut supervisor, *step, script.units, &mut token);
        if turn == Turn::Died {
            supervisor = world.supervisor(number % 2 == 0);
        }
        world.check(&supervisor);
    }
    finish(world, supervisor);
}

fn take(world: &mut World, supervisor: &mut Supervisor, step: Step, units: usize, token: &mut u64) -> Turn {
    match step {
        Step::Deliver { which, again } => {
            let messages = world.pending.len() + world.late.len();
            if messages == 0 {
                return Turn::Done;
            }
            let place = which % messages;
            let is_late = place >= world.pending.len();
            let input =
                if is_late { world.late.remove(place - world.pending.len()) } else { world.pending.remove(place) };
            // An answer of the driver's own comes once.
            let again = if matches!(input, Input::SlotsTaken { .. }) { Again::No } else { again };
            match again {
                Again::AtOnce if world.feed(supervisor, input.clone()) == Turn::Died => return Turn::Died,
                Again::Later if !is_late => world.late.push(input.clone()),
                _ => {}
            }
            world.feed(supervisor, input)
        }
        Step::End { which, dies, flavour } => {
            let alive = world.living();
            if let Some(key) = alive.get(which % alive.len().max(1)) {
                let how = match (dies, flavour % 2) {
                    (true, 0) => Dispatcher::Vanished,
                    (true, _) => Dispatcher::Dead,
                    (false, _) => Dispatcher::Settled,
                };
                world.end(key, how, flavour);
            }
            Turn::Done
        }
        Step::Wait { millis } => {
            world.now.mono += u64::from(millis);
            world.now.wall = world.now.wall.plus(i64::from(millis));
            world.feed(supervisor, Input::Tick)
        }
        Step::Use { which, tokens } => {
            let alive = world.living();
            let Some((unit, attempt)) = alive.get(which % alive.len().max(1)).cloned() else { return Turn::Done };
            let note = Note::Used(Usage { input_tokens: tokens, ..Usage::default() });
            world.feed(supervisor, Input::Noted { unit, attempt, note })
        }
        Step::Press(is_busy) => {
            let pressed = is_busy.then(|| Pressed { what: Pressure::Cpu, why: "w".into() });
            world.feed(supervisor, Input::Pressed(pressed))
        }
        Step::Jump { millis } => {
            world.now.wall = world.now.wall.plus(i64::from(millis));
            Turn::Done
        }
        Step::Ask { unit, what } => {
            *token += 1;
            let unit = format!("u{}", unit % units).parse().unwrap();
            let turn = world.feed(supervisor, Input::Asked { token: *token, command: command(unit, what) });
            assert!(turn == Turn::Died || world.answers.contains_key(token), "every command is answered");
            turn
        }
        Step::FailSpawn => fail(|| world.faults.spawn = true),
        Step::FailPrepare => fail(|| world.faults.prepare = true),
        Step::FailDisk => fail(|| world.faults.disk = true),
        Step::Crash { after } => fail(|| world.faults.crash = Some(after)),
        Step::Configure { without } => fail(|| world.faults.without = without),
    }
}

fn fail(what: impl FnOnce()) -> Turn {
    what();
    Turn::Done
}

/// With a world that answers everything, ends every worker and lacks nothing, each run comes to its end.
fn finish(mut world: World, mut supervisor: Supervisor) {
    let is_complete = world.faults.without == 0;
    world.faults = world::Faults::default();
    if !is_complete && !world.left {
        supervisor = world.supervisor(false);
    }
    for _ in 0..2_000 {
        if world.left {
            return world.check_end();
        }
        if world.pending.is_empty() {
            world.living().iter().for_each(|key| world.end(key, Dispatcher::Settled, 0));
        }
        let input = if world.pending.is_empty() { Input::Tick } else { world.pending.remove(0) };
        // While nothing is under way a hold may be what is waited for.
        let millis = if matches!(input, Input::Tick) { 60_000 } else { 1_000 };
        world.now.mono += millis;
        world.now.wall = world.now.wall.plus(i64::try_from(millis).unwrap());
        let _ = world.feed(&mut supervisor, input);
        world.check(&supervisor);
    }
    panic!("the run never ends: {:?}", supervisor.run().units.iter().map(|unit| &unit.state).collect::<Vec<_>>());
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_order_of_events_breaks_a_run() {
    let first = number("PRUN_SIM_SEED").unwrap_or(0);
    for seed in first..first + number("PRUN_SIM_SEEDS").unwrap_or(SEEDS) {
        let script = Script::of(seed);
        let fails = |script: &Script| catch_unwind(AssertUnwindSafe(|| play(script))).is_err();
        if !fails(&script) {
            continue;
        }
        // Thousands of tries to make it smaller would all tell how they failed.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let shrunk = script.shrunk(fails);
        std::panic::set_hook(hook);
        let failed = catch_unwind(AssertUnwindSafe(|| play(&shrunk)));
        let again = format!("PRUN_SIM_SEED={seed} PRUN_SIM_SEEDS=1 cargo nextest run -p prun-core no_order_of_events");
        panic!("seed {seed} fails (see above): {shrunk:#?}\nplay it again: {again}\n{}", failed.is_err());
    }
}

/// Delivers everything that is under way, and what a short time brings.
fn deliver(world: &mut World, supervisor: &mut Supervisor) {
    for _ in 0..2 {
        while !world.pending.is_empty() {
            let input = world.pending.remove(0);
            world.feed(supervisor, input);
        }
        world.now.mono += 100;
        world.feed(supervisor, Input::Tick);
    }
}

fn first_attempt(unit: &str) -> (UnitId, Attempt) {
    (unit.parse().unwrap(), Attempt(1))
}

#[test]
fn what_a_retry_was_told_survives_the_death_of_its_supervisor() {
    let mut world = World::new(1, 0);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    world.end(&first_attempt("u0"), Dispatcher::Settled, 1);
    deliver(&mut world, &mut supervisor);
    let (unit, message) = ("u0".parse().unwrap(), Some("shorter".to_owned()));
    let retry = Command::Retry { unit, how: RetryHow::Continue, message };
    world.feed(&mut supervisor, Input::Asked { token: 1, command: retry });
    let slot = world.pending.remove(0);
    world.feed(&mut supervisor, slot);
    // Its workspace is being prepared; nobody hears of its end.
    assert!(matches!(supervisor.run().units[0].state, UnitState::Preparing));
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    let third = &supervisor.run().units[0].attempts[2];
    assert_eq!((third.begins.how, third.begins.message.as_deref()), (RetryHow::Continue, Some("shorter")));
}

/// A seed found it: a budget that only the words of living workers had spent was forgotten with its supervisor, and
/// nobody stopped what came back into the queue.
#[test]
fn a_budget_that_was_spent_on_the_way_stays_spent_under_the_next_supervisor() {
    let deliver = |which, again| Step::Deliver { which, again };
    let steps = vec![
        Step::Ask { unit: 23_692, what: 223 },
        deliver(34_364, Again::No),
        deliver(4_663, Again::No),
        Step::Wait { millis: 45_881 },
        Step::End { which: 2_038, dies: false, flavour: 240 },
        deliver(57_196, Again::No),
        deliver(11_730, Again::No),
        Step::Ask { unit: 49_114, what: 199 },
        Step::Crash { after: 0 },
        deliver(10_920, Again::AtOnce),
        deliver(28_964, Again::No),
        deliver(42_128, Again::No),
        deliver(29_833, Again::No),
        Step::Use { which: 53_160, tokens: 337 },
        Step::Ask { unit: 22_241, what: 107 },
        Step::Wait { millis: 51_287 },
        deliver(33_188, Again::No),
        Step::Wait { millis: 16_965 },
        Step::Use { which: 20_669, tokens: 338 },
        Step::Crash { after: 1 },
        Step::Ask { unit: 65_335, what: 173 },
    ];
    play(&Script { units: 6, retries: 0, steps });
}

#[test]
fn units_that_meet_a_limit_together_tell_it_once_and_all_go_on_elsewhere() {
    let mut world = World::new(2, 0);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    let limit = 64;
    assert_eq!(class_of(limit), Some(Cause::UsageLimit));
    for unit in ["u0", "u1"] {
        world.end(&first_attempt(unit), Dispatcher::Settled, limit);
    }
    deliver(&mut world, &mut supervisor);
    let held = world.ledger.iter().filter(|event| event.kind.name() == "executor-held").count();
    assert_eq!(held, 1);
    for unit in &supervisor.run().units {
        let second = unit.attempts.get(1).expect("it went on");
        assert_eq!((second.executor.as_str(), second.begins.how), ("command", RetryHow::Continue));
        assert_eq!((unit.retries_spent, unit.repeats), (0, 1));
    }
}

#[test]
fn only_a_unit_that_the_stop_interrupted_goes_on_in_its_workspace() {
    let mut world = World::new(2, 1);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    // The first unit failed and waits for its second attempt, the second one works.
    world.end(&first_attempt("u0"), Dispatcher::Settled, 1);
    deliver(&mut world, &mut supervisor);
    world.feed(&mut supervisor, Input::Asked { token: 1, command: Command::Stop { unit: None, now: false } });
    let interrupted = AttemptFacts { stopped: Some(StopReason::Signal), ..good_facts() };
    let (unit, attempt) = first_attempt("u1");
    world.dispatchers.insert((unit.clone(), attempt), Dispatcher::Settled);
    world.pending.clear();
    let exited = Input::DispatcherExited { unit, attempt, facts: Some(Box::new(interrupted)) };
    world.feed(&mut supervisor, exited);
    let supervisor = world.supervisor(true);
    let how = |unit: &Unit| unit.next.how;
    let begun = |unit: &Unit| unit.attempts.get(1).map(|second| second.begins.how);
    let hows: Vec<RetryHow> = supervisor.run().units.iter().map(|unit| begun(unit).unwrap_or(how(unit))).collect();
    assert_eq!(hows, [RetryHow::Fresh, RetryHow::Continue]);
}
