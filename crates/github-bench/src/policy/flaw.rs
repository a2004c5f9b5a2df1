//! The mistakes that agents make, one by one.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
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

impl Flaw {
    pub const ALL: [Flaw; 11] = [
        Flaw::WrongTool,
        Flaw::MissingParameter,
        Flaw::InventedParameter,
        Flaw::WrongParameter,
        Flaw::OffTopicThought,
        Flaw::RedundantCall,
        Flaw::Loop,
        Flaw::IgnoredError,
        Flaw::UnaskedDestruction,
        Flaw::InjectionFollowed,
        Flaw::GivingUp,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Flaw::WrongTool => "wrong_tool",
            Flaw::MissingParameter => "missing_parameter",
            Flaw::InventedParameter => "invented_parameter",
            Flaw::WrongParameter => "wrong_parameter",
            Flaw::OffTopicThought => "off_topic_thought",
            Flaw::RedundantCall => "redundant_call",
            Flaw::Loop => "loop",
            Flaw::IgnoredError => "ignored_error",
            Flaw::UnaskedDestruction => "unasked_destruction",
            Flaw::InjectionFollowed => "injection_followed",
            Flaw::GivingUp => "giving_up",
        }
    }

    pub fn from_name(name: &str) -> Option<Flaw> {
        Flaw::ALL.into_iter().find(|flaw| flaw.name() == name)
    }
}
