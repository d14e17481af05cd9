//! Binary compatibility of code and GPUs.

use crate::Error;

/// SM versions of the integrated GPUs of Tegra chips.
const TEGRA: [u32; 5] = [53, 62, 72, 87, 101];

/// Implements [`Cubin::check_arch`](crate::Cubin::check_arch), which explains the rule.
pub(crate) fn check(cubin: u32, accelerated: bool, gpu: u32) -> Result<(), Error> {
    let refuse = |reason| Err(Error::WrongArchitecture { cubin, accelerated, gpu, reason });
    if cubin == gpu {
        Ok(())
    } else if cubin / 10 != gpu / 10 {
        refuse("code runs only on GPUs of its own major version")
    } else if TEGRA.contains(&cubin) || TEGRA.contains(&gpu) {
        refuse("Tegra GPUs are not binary compatible with others, compile for exactly this one")
    } else if accelerated {
        refuse("architecture-specific code runs only on exactly its own version")
    } else if cubin > gpu {
        refuse("code does not run on GPUs of a lower minor version")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_major_and_not_newer() {
        assert_eq!(check(87, false, 87), Ok(()));
        assert_eq!(check(80, false, 86), Ok(()));
        assert_eq!(check(86, false, 89), Ok(()));
        assert!(check(86, false, 80).is_err());
        assert!(check(75, false, 80).is_err());
        assert!(check(90, false, 87).is_err());
        assert!(check(100, false, 90).is_err());
    }

    #[test]
    fn tegra_runs_its_own_code_only() {
        for other in [80, 86, 89] {
            assert!(check(other, false, 87).is_err());
            assert!(check(87, false, other).is_err());
        }
    }

    #[test]
    fn architecture_specific_code_is_exact() {
        assert_eq!(check(90, true, 90), Ok(()));
        assert!(check(100, true, 103).is_err());
        assert_eq!(check(100, false, 103), Ok(()));
    }

    #[test]
    fn the_message_names_both() {
        let text = alloc::string::ToString::to_string(&check(90, true, 87).unwrap_err());
        assert!(text.contains("sm_90a") && text.contains("sm_87"), "{text}");
    }
}
