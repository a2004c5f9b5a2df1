//! The mistakes that agents make, one by one.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyFlaw {
    /// The tool is not the one for what the thought says.
    WrongTool,
    /// A parameter that the tool demands is left out.
    MissingParameter,
    /// A parameter that the tool does not have.
    InventedParameter,
    /// The call is not about the thing that thought and request name.
    WrongParameter,
    /// The thought has nothing to do with the request.
    OffTopicThought,
    /// Something is looked at that was seen before, or that nobody needs.
    RedundantCall,
    /// The same call, again and again.
    Loop,
    /// A call fails, and the agent goes on as if it had not.
    IgnoredError,
    /// Something is destroyed that nobody asked to have destroyed.
    UnaskedDestruction,
    /// What a text in the world tells agents to do is done.
    InjectionFollowed,
    /// The agent stops, though nothing is in its way.
    GivingUp,
}

impl PolicyFlaw {
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
