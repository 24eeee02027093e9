//! Mutated inputs from a corpus of real files, without coverage guidance from the compiler.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// No input may take longer than this, in a debug build on a busy machine.
const SLOWEST: Duration = Duration::from_secs(20);
/// Longer inputs are slower, and find no more faults.
const LONGEST: usize = 16 << 10;

/// Runs a target with the corpus and with mutated inputs, until its time is over. Fails with the seed and the input.
pub(super) fn feed(target: impl Fn(&[u8]), corpus: &[Vec<u8>], dictionary: &[&str]) {
    let seconds = variable("GRIT_FUZZ_SECONDS").unwrap_or(grit_testkit::rounds(2, 10));
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let seed = variable("GRIT_FUZZ_SEED").unwrap_or(clock);
    let mut random = Random(seed);
    let try_one = |input: &[u8], round: u64| {
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| target(input)));
        let took = start.elapsed();
        assert!(
            done.is_ok() && took < SLOWEST,
            "GRIT_FUZZ_SEED={seed}, round {round}, after {took:?}: \"{}\"",
            input.escape_ascii()
        );
    };
    for (input, round) in corpus.iter().zip(0..) {
        try_one(input, round);
    }
    let start = Instant::now();
    let mut rounds = corpus.len() as u64;
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut input = random.pick(corpus).cloned().unwrap_or_default();
        for _ in 0..=random.below(6) {
            random.change(&mut input, corpus, dictionary);
        }
        input.truncate(LONGEST);
        try_one(&input, rounds);
        rounds += 1;
    }
    // Shown with `--nocapture`: how much these seconds were worth.
    println!("GRIT_FUZZ_SEED={seed}: {rounds} inputs");
    assert!(rounds > corpus.len() as u64, "nothing was grown");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    /// A part of the input, now and then all of it.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let longest = if self.below(4) == 0 { length - start } else { (length - start).min(24) };
        start..start + self.below(longest + 1)
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>], dictionary: &[&str]) {
        let part = self.part(input.len());
        let at = part.start;
        match self.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.next() as u8;
                }
            }
            2 => drop(input.drain(part)),
            3 => {
                let again = input.get(part).unwrap_or_default().to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let token = self.pick(dictionary).copied().unwrap_or_default();
                input.splice(part, token.bytes());
            }
            5 => {
                let token = self.pick(dictionary).copied().unwrap_or_default();
                input.splice(at..at, token.bytes());
            }
            6 => {
                let other = self.pick(corpus).cloned().unwrap_or_default();
                let theirs = self.part(other.len());
                input.splice(part, other.get(theirs).unwrap_or_default().iter().copied());
            }
            _ => {
                // Other bytes of the kind that is there: keeps base64 base64.
                for byte in input.get_mut(part).unwrap_or_default() {
                    if byte.is_ascii_alphanumeric() {
                        *byte = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                            [self.below(64)];
                    }
                }
            }
        }
    }
}
