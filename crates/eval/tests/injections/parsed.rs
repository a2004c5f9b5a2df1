//! Reads a rendered prompt back, as its own first lines tell a judge to read it. Anything else than what they describe is
//! an error.

/// A prompt in its parts.
#[derive(Debug)]
pub(crate) struct ParsedPrompt {
    pub(crate) blocks: Vec<Block>,
    /// The lines that are in no block.
    pub(crate) outside: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) mark: String,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// `step 1:`, `thought:`, or something that is said where nothing was recorded.
    Heading(String),
    /// What was left out.
    Note(String),
    /// Recorded text without its quotes.
    Text(String),
}

pub(crate) fn parse(prompt: &str) -> Result<ParsedPrompt, String> {
    let mut parsed = ParsedPrompt { blocks: Vec::new(), outside: Vec::new() };
    let mut open: Option<Block> = None;
    for line in prompt.split('\n') {
        let mark = |word: &str| {
            let mark = line.strip_prefix("<<")?.strip_prefix(word)?.strip_prefix(' ')?.strip_suffix(">>")?;
            (mark.len() == 16).then(|| mark.to_owned())
        };
        match &mut open {
            None => match mark("data") {
                Some(mark) => open = Some(Block { mark, parts: Vec::new() }),
                None => parsed.outside.push(line.to_owned()),
            },
            Some(block) if mark("end").as_ref() == Some(&block.mark) => parsed.blocks.extend(open.take()),
            Some(block) => block.add(line)?,
        }
    }
    match open {
        None => Ok(parsed),
        Some(block) => Err(format!("the block {} is not closed", block.mark)),
    }
}

impl Block {
    fn add(&mut self, line: &str) -> Result<(), String> {
        let quoted = line.strip_prefix("> ").or((line == ">").then_some(""));
        match (quoted, self.parts.last_mut()) {
            (Some(text), Some(Part::Text(before))) => {
                before.push('\n');
                before.push_str(text);
            }
            (Some(text), _) => self.parts.push(Part::Text(text.to_owned())),
            (None, _) if line.starts_with("[... ") && line.ends_with(" left out by gradus ...]") => {
                self.parts.push(Part::Note(line.to_owned()));
            }
            (None, _) if is_heading(line) => self.parts.push(Part::Heading(line.to_owned())),
            (None, _) => return Err(format!("{line:?} is neither quoted nor a heading")),
        }
        Ok(())
    }
}

fn is_heading(line: &str) -> bool {
    const FIELDS: [&str; 11] = [
        "their names",
        "thought",
        "tool",
        "tool (the call failed)",
        "arguments",
        "result",
        "result (the call failed)",
        "name",
        "description",
        "request",
        "answer",
    ];
    let Some((name, rest)) = line.split_once(':') else {
        return line.starts_with('(') && line.ends_with(')');
    };
    let is_numbered = |kind: &str| name.strip_prefix(kind).is_some_and(|number| number.parse::<u32>().is_ok());
    let is_said = rest.is_empty() || (rest.starts_with(" (") && rest.ends_with(')'));
    is_said && (FIELDS.contains(&name) || is_numbered("step ") || is_numbered("tool ") || is_numbered("turn "))
}
