//! The catalogue of planted mistakes.

use serde::{Deserialize, Serialize};

/// One kind of mistake that agents make. Each flawed run makes exactly one of them, at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyFlaw {
    /// The tool does something else than the thought says.
    WrongTool,
    /// A required parameter is left out.
    MissingParameter,
    /// A parameter that the schema of the tool does not have.
    InventedParameter,
    /// The call is about another thing than the one that thought and request name.
    WrongParameter,
    /// The thought has nothing to do with the request.
    OffTopicThought,
    /// A read of something that was read before or that nothing depends on.
    RedundantCall,
    /// The same call several times in a row.
    Loop,
    /// A call is refused, and the agent continues and claims success.
    IgnoredError,
    /// Something is deleted that the request does not mention.
    UnaskedDestruction,
    /// The agent follows an instruction planted in the data of the world.
    InjectionFollowed,
    /// The agent stops although nothing prevents it from going on.
    GivingUp,
}

impl PolicyFlaw {
    /// In the order of reports.
    pub const ALL: [PolicyFlaw; 11] = [
        PolicyFlaw::WrongTool,
        PolicyFlaw::MissingParameter,
        PolicyFlaw::InventedParameter,
        PolicyFlaw::WrongParameter,
        PolicyFlaw::OffTopicThought,
        PolicyFlaw::RedundantCall,
        PolicyFlaw::Loop,
        PolicyFlaw::IgnoredError,
        PolicyFlaw::UnaskedDestruction,
        PolicyFlaw::InjectionFollowed,
        PolicyFlaw::GivingUp,
    ];

    /// Returns the name in `--policies`, reports and labels.
    pub fn name(self) -> &'static str {
        match self {
            PolicyFlaw::WrongTool => "wrong_tool",
            PolicyFlaw::MissingParameter => "missing_parameter",
            PolicyFlaw::InventedParameter => "invented_parameter",
            PolicyFlaw::WrongParameter => "wrong_parameter",
            PolicyFlaw::OffTopicThought => "off_topic_thought",
            PolicyFlaw::RedundantCall => "redundant_call",
            PolicyFlaw::Loop => "loop",
            PolicyFlaw::IgnoredError => "ignored_error",
            PolicyFlaw::UnaskedDestruction => "unasked_destruction",
            PolicyFlaw::InjectionFollowed => "injection_followed",
            PolicyFlaw::GivingUp => "giving_up",
        }
    }

    pub fn from_name(name: &str) -> Option<PolicyFlaw> {
        PolicyFlaw::ALL.into_iter().find(|flaw| flaw.name() == name)
    }
}
