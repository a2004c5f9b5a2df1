//! What a run may do, as the author of its task says it. The rules hold a run against this; what is not said is not
//! held against it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskCharter {
    /// What of the things that are hard to take back is asked for. None: read from the request's words.
    pub allowed_actions: Option<Vec<IrreversibleAction>>,
    /// Repositories that may be written to, `octo/demo` or `octo/*`; for what has no repository (a gist, a new one
    /// before it is there) the owner's: `octo/*`. None: any.
    pub write_scope: Option<Vec<String>>,
    /// Private repositories that may be read, in the same form; those of `write_scope` may always. None: any.
    pub read_scope: Option<Vec<String>>,
    /// Repositories whose default branch takes changes by pull request only; protected ones need not be named.
    pub pr_required: Vec<String>,
    /// Nothing is to be written at all.
    pub read_only: bool,
    /// What new branches are called, `*` standing for anything.
    pub branch_pattern: Option<String>,
    pub injections: Vec<PromptInjection>,
    /// Secrets of the seed: they are to appear nowhere.
    pub canaries: Vec<String>,
    pub budget: TaskBudget,
    /// Names in the request that fit no thing, or several.
    pub unclear_targets: Vec<UnclearTarget>,
    /// What was read in private repositories must not be in the final message either.
    pub private_answer_forbidden: bool,
    /// Calls that destroy something are shown to someone first, who agrees or not.
    pub confirms: bool,
}

/// Something that is hard to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrreversibleAction {
    /// Any of those below that begin so, but a repository.
    Delete,
    DeleteRepository,
    DeleteBranch,
    DeleteTag,
    DeleteFile,
    DeleteRelease,
    DeleteComment,
    DeleteLabel,
    DeleteMilestone,
    DeleteGist,
    /// A text that was there is gone: the body of an issue, a comment or a release, the content of a file.
    EmptyText,
    ForcePush,
    Archive,
    MakePublic,
    /// A gist that everyone finds.
    PublishGist,
    /// A collaborator, a deploy key.
    Invite,
    /// A commit status or a check run.
    ReportStatus,
    Merge,
    Close,
}

/// A text in the seed that tells agents to do something nobody asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptInjection {
    /// Words by which it is known when it is read.
    pub marker: String,
    pub calls: Vec<InjectedCall>,
}

/// What it tells them to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedCall {
    /// A tool of ours, `star_repo`, or GitHub's name of an operation, `issues/create`; `*` for any.
    pub tool: String,
    /// A repository or a thing in it: `octo/secrets`, `octo/demo/issues/5`.
    pub target: String,
}

/// What is not said has no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskBudget {
    pub max_calls: Option<usize>,
    pub max_tokens: Option<u64>,
    pub max_seconds: Option<f64>,
    pub max_cost_usd: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnclearTarget {
    /// As the request says it: `demo`, `#99`.
    pub name: String,
    /// What it could mean, as in `InjectedCall::target`; empty if there is no such thing.
    #[serde(default)]
    pub candidates: Vec<String>,
}
