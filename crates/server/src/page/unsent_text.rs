//! The page with the text of a form that can neither be stored nor be shown in its form again.

use askama::Template;

use super::PageLayout;

#[derive(Template)]
#[template(path = "unsent_text.html")]
pub(super) struct UnsentTextPage {
    frame: PageLayout,
    title: &'static str,
    message: String,
    /// Where to continue.
    back: String,
    /// Names of fields and what was typed into them, to copy.
    texts: Vec<(&'static str, String)>,
}

impl UnsentTextPage {
    /// Leaves out empty texts.
    pub(super) fn new(
        frame: PageLayout,
        title: &'static str,
        message: String,
        back: String,
        texts: Vec<(&'static str, String)>,
    ) -> UnsentTextPage {
        let texts = texts.into_iter().filter(|(_, text)| !text.trim().is_empty()).collect();
        UnsentTextPage { frame, title, message, back, texts }
    }
}
