//! The order in which runs are judged.

/// Positions of `ids` in a random order that depends on `seed` and the ids alone: by the BLAKE3 hash of the seed (eight
/// bytes, little endian) followed by the id in UTF-8. Equal ids keep their order. The same run is judged early or late
/// on every machine, whatever else is in the population.
pub fn sampling_order<S: AsRef<str>>(seed: u64, ids: &[S]) -> Vec<usize> {
    let hash = |id: &S| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(id.as_ref().as_bytes());
        *hasher.finalize().as_bytes()
    };
    let mut keyed: Vec<([u8; 32], usize)> = ids.iter().map(hash).zip(0..).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_stable_and_depends_on_the_seed() {
        let ids: Vec<String> = (0..8).map(|at| format!("run-{at}")).collect();
        // Fixed: a changed order would make decided gates undecided.
        assert_eq!(sampling_order(1, &ids), sampling_order(1, &ids));
        assert_ne!(sampling_order(1, &ids), sampling_order(2, &ids));
        let mut sorted = sampling_order(7, &ids);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>());
        // Without some of the runs the others keep their order.
        let fewer = &ids[2..];
        let without: Vec<usize> = sampling_order(1, &ids).into_iter().filter(|at| *at >= 2).map(|at| at - 2).collect();
        assert_eq!(sampling_order(1, fewer), without);
        assert_eq!(sampling_order(3, &["same", "same", "same"]), [0, 1, 2]);
    }

    #[test]
    fn every_run_is_as_likely_early_as_late() {
        let ids: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        let mut sums = [0; 10];
        for seed in 0..2_000 {
            for (position, at) in sampling_order(seed, &ids).into_iter().enumerate() {
                sums[at] += position;
            }
        }
        // The mean position is 4.5 with a standard error of 0.064.
        assert!(sums.iter().all(|sum| (8_500..9_500).contains(sum)), "{sums:?}");
    }
}
