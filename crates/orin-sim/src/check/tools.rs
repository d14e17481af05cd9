//! The tools of a checker.

bitflags::bitflags! {
    /// The tools of a [`Checker`](super::Checker).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tools: u8 {
        /// Accesses outside of live objects.
        const MEMCHECK = 1;
        /// Unordered accesses of two warps.
        const RACECHECK = 2;
        /// Loads of memory that was never written.
        const INITCHECK = 4;
        /// Misuse of barriers.
        const SYNCCHECK = 8;
        /// Objects alive at the end.
        const LEAKCHECK = 16;
        /// Work of the GPU without order, stale caches, unwritten words and unproven encodings: errors of a driver.
        const ORDERING = 32;
        /// The tools for kernels that `all` means: those without [`Tools::ORDERING`] and [`Tools::WARPCHECK`].
        const KERNELS = 31;
        /// Accesses of two lanes of a warp that only lockstep orders.
        const WARPCHECK = 64;
    }
}

/// Names of the tools.
const NAMES: [(&str, Tools); 7] = [
    ("memcheck", Tools::MEMCHECK),
    ("racecheck", Tools::RACECHECK),
    ("initcheck", Tools::INITCHECK),
    ("synccheck", Tools::SYNCCHECK),
    ("leakcheck", Tools::LEAKCHECK),
    ("ordering", Tools::ORDERING),
    ("warpcheck", Tools::WARPCHECK),
];

/// An unknown name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown tool '{0}'; known are memcheck, racecheck, initcheck, synccheck, leakcheck, ordering, warpcheck and all"
)]
pub struct UnknownTool(pub String);

impl core::str::FromStr for Tools {
    type Err = UnknownTool;

    /// Names separated by commas; `all` and `1` mean [`Tools::KERNELS`].
    fn from_str(text: &str) -> Result<Self, UnknownTool> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).try_fold(
            Self::empty(),
            |tools, name| {
                let tool = match name {
                    "all" | "1" => Some(Self::KERNELS),
                    "0" => Some(Self::empty()),
                    _ => NAMES.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool),
                };
                Ok(tools | tool.ok_or_else(|| UnknownTool(name.to_owned()))?)
            },
        )
    }
}

impl Tools {
    /// The names of the tools, as they are parsed.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// Name of a single tool.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, tool)| *tool == self).map_or("check", |(name, _)| name)
    }

    /// Whether kernels must be examined.
    pub(crate) fn examine_kernels(self) -> bool {
        self.intersects(Self::KERNELS | Self::WARPCHECK)
    }

    /// Whether the global accesses of kernels must be examined.
    pub(crate) fn examine_global(self) -> bool {
        self.intersects(Self::MEMCHECK | Self::RACECHECK | Self::INITCHECK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tools() {
        let all: Vec<&str> = Tools::names().collect();
        assert_eq!(all.join(",").parse(), Ok(Tools::all()));
        assert_eq!("all".parse(), Ok(Tools::KERNELS));
        assert_eq!(" 1 ,ordering,warpcheck".parse(), Ok(Tools::all()));
        assert_eq!(["", "0"].map(str::parse), [Ok(Tools::empty()), Ok(Tools::empty())]);
        let unknown = "memcheck,racechek".parse::<Tools>().unwrap_err();
        assert_eq!(unknown, UnknownTool("racechek".to_owned()));
        assert!(all.iter().all(|name| unknown.to_string().contains(name)), "{unknown}");
    }
}
