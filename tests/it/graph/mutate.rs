//! Damaged texts, made from good ones by a fixed seed.

/// A small generator with a fixed sequence (xorshift64*), so that a failing input comes again.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// One damaged text: a seed with a few splices, cuts, repeats and foreign tokens.
pub fn mutate(random: &mut Random, seeds: &[&str], tokens: &[&str]) -> String {
    let mut text: Vec<char> = seeds[random.below(seeds.len())].chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(24)).min(text.len());
        let insert: Vec<char> = match random.below(5) {
            0 => Vec::new(),
            1 => tokens[random.below(tokens.len())].chars().collect(),
            2 => text[at..end].repeat(1 + random.below(6)),
            3 => {
                let other: Vec<char> = seeds[random.below(seeds.len())].chars().collect();
                let from = random.below(other.len() + 1);
                let to = (from + random.below(40)).min(other.len());
                other[from..to].to_vec()
            }
            _ => char::from_u32(random.next() as u32 % 0x11_0000)
                .into_iter()
                .collect(),
        };
        text.splice(at..end, insert);
    }
    text.into_iter().collect()
}

/// Inputs of a fuzz test: 20,000, or as many as ten minutes hold with `SOAK=1`.
pub fn fuzz(seeds: &[&str], tokens: &[&str], mut check: impl FnMut(&str)) {
    let soak = std::env::var_os("SOAK").is_some();
    let inputs = if soak { 20_000_000 } else { 20_000 };
    let started = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    for seed in 0..inputs {
        check(&mutate(&mut Random::new(seed), seeds, tokens));
        if soak && seed % 1_024 == 0 {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            if (now - started).as_secs() > 600 {
                break;
            }
        }
    }
}
