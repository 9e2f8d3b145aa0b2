//! Numbers by chance, for names that must never meet and for times that must not fall together. Nobody outside can guess them; keys and
//! secrets are not made of them.

use std::hash::{BuildHasher as _, RandomState};

/// A number that nobody else draws: each [`RandomState`] has keys of its own, from the system's source of chance.
pub fn drawn() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// One that no two of ever so many are the same.
pub fn drawn_wide() -> u128 {
    u128::from(drawn()) << 64 | u128::from(drawn())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_drawn_twice_on_any_thread_and_every_bit_is_chance() {
        let draw = || (0..2_000).map(|_| drawn_wide()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let all: Vec<u128> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        let halves: HashSet<Vec<u8>> =
            all.iter().flat_map(|wide| wide.to_be_bytes().chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect();
        assert_eq!(halves.len(), 2 * all.len());
        for bit in 0..128 {
            let set = all.iter().filter(|wide| *wide >> bit & 1 == 1).count();
            // 8,000 throws of a coin: nine standard deviations.
            assert!((3_600..=4_400).contains(&set), "bit {bit}: {set} of 8000");
        }
    }
}
