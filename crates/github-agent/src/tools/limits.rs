//! Restrictions on tools: which are offered, and what they may do.

use std::fmt;
use std::str::FromStr;

use super::ToolEffect;

/// A group of tools, for `--tools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolFamily {
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

/// Everything is allowed by default, except destructive calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRestrictions {
    /// Whether writing tools are neither offered nor run.
    pub read_only: bool,
    /// Whether destructive calls are allowed. A caller that asks for approval sets it and asks.
    pub allow_destructive: bool,
    /// Only these families; all if empty.
    pub families: Vec<ToolFamily>,
    /// Only tools with these names; all if empty.
    pub allowed: Vec<String>,
}

/// A name that is not a family. The message lists all names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no tools called {0:?}; there are: {all}", all = ToolFamily::list_family_names())]
pub struct UnknownFamily(pub String);

impl ToolFamily {
    /// In the order of listings.
    pub const ALL: [ToolFamily; 9] = [
        ToolFamily::Repos,
        ToolFamily::Files,
        ToolFamily::Branches,
        ToolFamily::Commits,
        ToolFamily::Issues,
        ToolFamily::Labels,
        ToolFamily::Pulls,
        ToolFamily::Search,
        ToolFamily::Releases,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ToolFamily::Repos => "repos",
            ToolFamily::Files => "files",
            ToolFamily::Branches => "branches",
            ToolFamily::Commits => "commits",
            ToolFamily::Issues => "issues",
            ToolFamily::Labels => "labels",
            ToolFamily::Pulls => "pulls",
            ToolFamily::Search => "search",
            ToolFamily::Releases => "releases",
        }
    }

    fn list_family_names() -> String {
        ToolFamily::ALL.map(ToolFamily::name).join(", ")
    }
}

impl fmt::Display for ToolFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ToolFamily {
    type Err = UnknownFamily;

    /// Ignores case and surrounding white space.
    fn from_str(name: &str) -> Result<ToolFamily, UnknownFamily> {
        let name = name.trim();
        let found = ToolFamily::ALL.into_iter().find(|family| family.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownFamily(name.to_owned()))
    }
}

impl ToolRestrictions {
    /// Whether a tool of GitHub is offered.
    pub(super) fn is_tool_offered(&self, family: ToolFamily, name: &str, effect: ToolEffect) -> bool {
        let has_family = self.families.is_empty() || self.families.contains(&family);
        has_family && self.is_mcp_tool_offered(name, effect)
    }

    /// Whether an MCP tool is offered. It has no family.
    pub(crate) fn is_mcp_tool_offered(&self, name: &str, effect: ToolEffect) -> bool {
        let is_allowed = self.allowed.is_empty() || self.allowed.iter().any(|one| one == name);
        is_allowed && self.refusal_reason(name, effect).is_none()
    }

    /// Returns why a call with this effect is refused. Checked for every call, since arguments can make the effect
    /// worse.
    pub(crate) fn refusal_reason(&self, name: &str, effect: ToolEffect) -> Option<String> {
        match effect {
            ToolEffect::Write | ToolEffect::Destructive if self.read_only => {
                Some(format!("{name} changes things, and only reading is allowed here"))
            }
            ToolEffect::Destructive if !self.allow_destructive => {
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
        for family in ToolFamily::ALL {
            assert_eq!(family.name().parse(), Ok(family));
        }
        assert_eq!(" Issues".parse(), Ok(ToolFamily::Issues));
        let error = "wikis".parse::<ToolFamily>().unwrap_err().to_string();
        assert!(error.starts_with("there are no tools called \"wikis\"; there are: repos, files"), "{error}");
    }
}
