//! What people write on a command line for cores and bytes. Owns these two notations; must never guess.

/// A list of cores: `2-5,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

impl std::str::FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let wrong = || format!("{text:?} is no list of cores; write 2-5,8 for cores 2, 3, 4, 5 and 8");
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong())?;
            let last: usize = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last >= 4096 {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        Ok(Cores(cores))
    }
}

/// A number of bytes: `512M`, `2G`; powers of 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("{text:?} is no size; write 512M or 2G");
        let digits = text.trim_end_matches(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't', 'i', 'B']);
        let shift =
            match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
                "" => 0,
                "K" => 10,
                "M" => 20,
                "G" => 30,
                "T" => 40,
                _ => return Err(wrong()),
            };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(wrong)
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 && bytes % (1 << 30) == 0 => write!(f, "{}G", bytes >> 30),
            bytes => write!(f, "{}M", bytes.div_ceil(1 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!("2-5,8".parse(), Ok(Cores(vec![2, 3, 4, 5, 8])));
        assert_eq!("0".parse(), Ok(Cores(vec![0])));
        for wrong in ["", "a", "5-2", "1,,2", "1-", "9999"] {
            let refused = wrong.parse::<Cores>().expect_err(wrong);
            assert!(refused.contains("2-5,8"), "{refused}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!("2G".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("512MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("64k".parse(), Ok(Bytes(64 << 10)));
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        for wrong in ["", "G", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
        assert_eq!(Bytes(3 << 30).to_string(), "3G");
    }
}
