//! Limits of names and ids that are copied into every trajectory, step or defect. A span or a resource states them
//! once, so a long one would otherwise be multiplied by the number of steps.

use std::borrow::Cow;

/// Maximum bytes of a name. No person or framework gives longer ones.
pub(crate) const MAX_NAME_BYTES: usize = 300;

/// Cuts a name to [`MAX_NAME_BYTES`] and appends `…`.
pub(crate) fn cut_name(name: &str) -> Cow<'_, str> {
    cut_text(name, MAX_NAME_BYTES)
}

/// Cuts an id to [`MAX_NAME_BYTES`] and appends `…` and a digest, so that different ids stay different.
pub(crate) fn cut_id(id: &str) -> Cow<'_, str> {
    match cut_text(id, MAX_NAME_BYTES) {
        Cow::Owned(cut) => Cow::Owned(format!("{cut}{:032x}", crate::stable_digest(id.as_bytes()))),
        whole => whole,
    }
}

/// Cuts a text to `max_bytes` and appends `…`.
pub(crate) fn cut_text(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(max_bytes)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(cut_name("agent"), "agent");
        let exact = "n".repeat(MAX_NAME_BYTES);
        assert_eq!(cut_name(&exact), exact);
        assert_eq!(cut_name(&(exact.clone() + "n")), exact + "…");
        assert_eq!(cut_text("aéé", 4), "aé…");
    }

    #[test]
    fn long_ids_stay_different() {
        let (a, b) = ("s".repeat(400) + "a", "s".repeat(400) + "b");
        assert!(cut_id(&a) != cut_id(&b) && cut_id(&a).len() < 400);
        assert_eq!(cut_id("session"), "session");
    }
}
