//! Which tools an agent gets, and what it may do with them.

use std::fmt;
use std::str::FromStr;

use super::Effect;

/// Tools that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Repos,
    Files,
    Branches,
    Commits,
    Issues,
    Labels,
    Pulls,
    Search,
    Releases,
}

/// Nothing is forbidden unless it is said, apart from what cannot be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Tools that write are not offered, and not carried out if they are called all the same.
    pub read_only: bool,
    /// Also what cannot be undone. Whoever asks a person first lets this be true, and asks.
    pub allow_destructive: bool,
    /// Only these families; all if there are none.
    pub families: Vec<Family>,
    /// Only tools of these names; all if there are none.
    pub allowed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no tools called {0:?}; there are: {all}", all = Family::all_names())]
pub struct UnknownFamily(pub String);

impl Family {
    pub const ALL: [Family; 9] = [
        Family::Repos,
        Family::Files,
        Family::Branches,
        Family::Commits,
        Family::Issues,
        Family::Labels,
        Family::Pulls,
        Family::Search,
        Family::Releases,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Family::Repos => "repos",
            Family::Files => "files",
            Family::Branches => "branches",
            Family::Commits => "commits",
            Family::Issues => "issues",
            Family::Labels => "labels",
            Family::Pulls => "pulls",
            Family::Search => "search",
            Family::Releases => "releases",
        }
    }

    fn all_names() -> String {
        Family::ALL.map(Family::name).join(", ")
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(name: &str) -> Result<Family, UnknownFamily> {
        let name = name.trim();
        let found = Family::ALL.into_iter().find(|family| family.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownFamily(name.to_owned()))
    }
}

impl Limits {
    pub(super) fn offers(&self, family: Family, name: &str, effect: Effect) -> bool {
        let has_family = self.families.is_empty() || self.families.contains(&family);
        has_family && self.offers_any(name, effect)
    }

    /// Whatever the family.
    pub(crate) fn offers_any(&self, name: &str, effect: Effect) -> bool {
        let is_allowed = self.allowed.is_empty() || self.allowed.iter().any(|one| one == name);
        is_allowed && self.refusal(name, effect).is_none()
    }

    /// Why a call with this effect is not carried out.
    pub(crate) fn refusal(&self, name: &str, effect: Effect) -> Option<String> {
        match effect {
            Effect::Write | Effect::Destructive if self.read_only => {
                Some(format!("{name} changes things, and only reading is allowed here"))
            }
            Effect::Destructive if !self.allow_destructive => {
                Some(format!("{name} with these arguments cannot be undone, which is not allowed here"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_names() {
        for family in Family::ALL {
            assert_eq!(family.name().parse(), Ok(family));
        }
        assert_eq!(" Issues".parse(), Ok(Family::Issues));
        let error = "wikis".parse::<Family>().unwrap_err().to_string();
        assert!(error.starts_with("there are no tools called \"wikis\"; there are: repos, files"), "{error}");
    }
}
