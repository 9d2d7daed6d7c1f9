//! What happens in a simulated world, made from a seed, and made smaller while it still fails.

/// One thing that the world does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A message that is under way arrives; some arrive a second time, at once or much later.
    Deliver { which: usize, again: Again },
    /// A dispatcher ends.
    End { which: usize, dies: bool, flavour: u8 },
    /// Time passes.
    Wait { millis: u32 },
    /// A dispatcher tells what its worker has used so far.
    Use { which: usize, tokens: u64 },
    /// The machine becomes busy, or is not any more.
    Press(bool),
    /// Somebody sets the wall clock.
    Jump { millis: i32 },
    /// Somebody asks for something.
    Ask { unit: usize, what: u8 },
    /// The next dispatcher cannot be started.
    FailSpawn,
    /// The next workspace cannot be made.
    FailPrepare,
    /// The next turn cannot be recorded: nothing of it is carried out, and the supervisor leaves.
    FailDisk,
    /// The supervisor is killed while it carries out what follows from the next message, after so many acts.
    Crash { after: usize },
    /// The next supervisor finds another configuration: an executor is gone, or back.
    Configure { without: u8 },
}

/// Whether a message arrives a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    No,
    AtOnce,
    Later,
}

/// A whole simulated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) units: usize,
    pub(super) retries: u32,
    pub(super) steps: Vec<Step>,
}

/// A small generator (SplitMix64): a seed means the same on every machine and with every version of a library.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn index(&mut self) -> usize {
        usize::try_from(self.below(1 << 16)).expect("it is small")
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("it is a byte")
    }
}

impl Script {
    /// The script of a seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let units = usize::try_from(random.below(6) + 1).expect("it is small");
        let retries = u32::try_from(random.below(3)).expect("it is small");
        let steps = (0..random.below(120)).map(|_| step(&mut random)).collect();
        Self { units, retries, steps }
    }

    /// The smallest script that is found to fail still, by leaving out ever smaller pieces.
    pub(super) fn shrunk(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut size = self.steps.len().max(1);
        while size > 0 {
            let mut at = 0;
            while at < self.steps.len() {
                let mut smaller = self.clone();
                smaller.steps.drain(at..(at + size).min(self.steps.len()));
                if fails(&smaller) {
                    self = smaller;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        for units in 1..self.units {
            let smaller = Self { units, ..self.clone() };
            if fails(&smaller) {
                return smaller;
            }
        }
        self
    }
}

fn step(random: &mut Random) -> Step {
    match random.below(64) {
        0..23 => {
            let again = match random.below(10) {
                0 => Again::AtOnce,
                1 => Again::Later,
                _ => Again::No,
            };
            Step::Deliver { which: random.index(), again }
        }
        23 => Step::Use { which: random.index(), tokens: random.below(400) },
        24..36 => Step::End { which: random.index(), dies: random.below(5) == 0, flavour: random.byte() },
        36 => Step::Press(random.below(2) == 0),
        37..47 => Step::Wait { millis: u32::try_from(random.below(70_000)).expect("it is small") },
        47 => Step::Jump { millis: i32::try_from(random.below(7_200_000)).expect("it is small") - 3_600_000 },
        48..54 => Step::Ask { unit: random.index(), what: random.byte() },
        54..56 => Step::FailSpawn,
        56..58 => Step::FailPrepare,
        58 => Step::FailDisk,
        59..63 => Step::Crash { after: usize::try_from(random.below(6)).expect("it is small") },
        _ => Step::Configure { without: random.byte() % 4 },
    }
}

#[test]
fn a_seed_always_means_the_same_and_a_failure_is_made_small() {
    assert_eq!(Script::of(7), Script::of(7));
    assert_ne!(Script::of(7), Script::of(8));
    let script = (0..).map(Script::of).find(|script| script.steps.contains(&Step::FailDisk)).unwrap();
    let shrunk = script.shrunk(|script| script.steps.contains(&Step::FailDisk));
    assert_eq!(shrunk, Script { units: 1, retries: shrunk.retries, steps: vec![Step::FailDisk] });
}
