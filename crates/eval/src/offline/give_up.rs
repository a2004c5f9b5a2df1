//! Finds statements by which an answer says that the request itself could not be done. Words of inability are also
//! common in findings ("the two rules cannot both hold"), so the agent or the task must be their subject.

use super::excerpt::{take_prefix, take_suffix};
use super::vocabulary::contains_phrase;

/// What an answer with words of inability says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveUpStatement<'a> {
    /// The agent did not do what it was asked to do. Holds the sentence that says so.
    Stated(&'a str),
    /// The answer asks the user for what is missing.
    AsksUser,
    /// The words are of a language in which the rules cannot tell what they are about.
    Unclear,
}

/// Maximum bytes at the beginning of an answer that are searched. Later sentences may mention other things that do not
/// work.
const MAX_OPENING_BYTES: usize = 600;
/// Maximum number of sentences at the beginning that are searched.
const MAX_OPENING_SENTENCES: usize = 3;
/// Maximum bytes at the end of an answer in which a request to the user counts.
const MAX_CLOSING_BYTES: usize = 1_000;
/// Maximum bytes of an answer that gives up. A longer one delivers something.
const MAX_ANSWER_BYTES: usize = 4_000;
/// The same for a statement whose subject is the task: it may be about a part of it.
const MAX_TASK_ANSWER_BYTES: usize = 1_500;
/// Maximum bytes of an answer in another language than English that counts as giving up: one or two sentences.
const MAX_SHORT_ANSWER_BYTES: usize = 240;

/// Statements of the agent about itself, in lower case. The space in front keeps "the API cannot" out.
const AGENT_PHRASES: &str = " \
    i cannot | i can't | i can not | i could not | i couldn't | i was unable | i am unable | i'm unable | \
    i was not able | i wasn't able | i am not able | i'm not able | i failed to | i did not manage | \
    i don't have access | i do not have access | i have no access | i have no tool | i don't have a tool | \
    i do not have a tool | i don't have the tool | i do not have the tool | i don't have permission | \
    i do not have permission | it was not possible to | not possible for me to | the task failed ";
/// Statements that count behind a subject of [`TASK_SUBJECTS`].
const TASK_PHRASES: &str = "\
    could not be completed|couldn't be completed|cannot be completed|can't be completed|\
    could not complete|couldn't complete|cannot complete";
/// Last words of a subject that is the task or the agent.
const TASK_SUBJECTS: [&str; 8] = ["task", "request", "change", "work", "it", "this", "we", "agent"];
/// Phrases that are no failure: that nothing was found can be the answer.
const NOTHING_FOUND_PHRASES: &str = "find any|see any|found any|find other|see other|find a reason|see why";

/// Words of inability in other languages. Their subject is often left out.
const FOREIGN_INABILITIES: &str = "\
    无法|無法|未能|做不到|没办法|沒辦法|できません|할 수 없|konnte nicht|konnte ich nicht|kann ich nicht|kann nicht|\
    je ne peux pas|pas pu|no puedo|no pude|no se pudo|не могу|не удалось|não posso|não consegui|não foi possível|\
    non posso|non sono riuscit";
/// Apologies in other languages. Alone they do not say what went wrong.
const FOREIGN_APOLOGIES: &str = "抱歉|對不起|申し訳|죄송|leider|désolé|lo siento|извините|desculpe|mi dispiace";

/// Phrases by which an answer asks the user for information, in lower case.
const ASKING_PHRASES: &str = "\
    please provide|please confirm|please specify|please clarify|please share|please tell me|could you please|\
    could you tell me|could you share|could you clarify|could you confirm|指定してください|教えてください|\
    教えて下さい|お知らせください|提供してください|请提供|請提供|请告诉我|請告訴我|请指定|請指定|请确认：|請確認：|\
    等你确认|等您确认|알려주세요|알려 주세요";

/// Finds what an answer says about not having done what was asked. `None` if nothing.
pub(super) fn find_give_up_statement(answer: &str) -> Option<GiveUpStatement<'_>> {
    let answer = answer.trim();
    let opening = take_prefix(answer, MAX_OPENING_BYTES);
    let stated = split_sentences(opening).into_iter().take(MAX_OPENING_SENTENCES).find(|sentence| {
        let text = format!(" {} ", sentence.to_lowercase().replace('’', "'"));
        is_inability(&text, answer.len()) && !contains_phrase(&text, NOTHING_FOUND_PHRASES)
    });
    let opening = opening.to_lowercase();
    let is_foreign = contains_phrase(&opening, FOREIGN_INABILITIES);
    if (stated.is_some() || is_foreign) && asks_for_information(answer) {
        return Some(GiveUpStatement::AsksUser);
    }
    if let Some(sentence) = stated {
        return Some(GiveUpStatement::Stated(sentence));
    }
    let is_short = answer.len() <= MAX_SHORT_ANSWER_BYTES && !answer.contains("\n\n");
    match (is_foreign, is_short) {
        (true, true) => Some(GiveUpStatement::Stated(answer)),
        (true, false) => Some(GiveUpStatement::Unclear),
        (false, true) if contains_phrase(&opening, FOREIGN_APOLOGIES) => Some(GiveUpStatement::Unclear),
        (false, _) => None,
    }
}

/// Whether a sentence says that the agent or the task did not come to its end. Expects lower case with a space at both
/// ends.
fn is_inability(sentence: &str, answer_bytes: usize) -> bool {
    let has_task_subject = |phrase: &str| {
        sentence.find(phrase).is_some_and(|at| {
            let subject = sentence[..at].trim_end().rsplit(|letter: char| !letter.is_alphanumeric()).next();
            subject.is_some_and(|subject| TASK_SUBJECTS.contains(&subject))
        })
    };
    answer_bytes <= MAX_ANSWER_BYTES && contains_phrase(sentence, AGENT_PHRASES)
        || answer_bytes <= MAX_TASK_ANSWER_BYTES && TASK_PHRASES.split('|').any(has_task_subject)
}

/// Whether the end of an answer asks the user for something, also if it goes on afterwards.
fn asks_for_information(answer: &str) -> bool {
    contains_phrase(&take_suffix(answer, MAX_CLOSING_BYTES).to_lowercase(), ASKING_PHRASES)
}

/// Splits a text into sentences. The dot in `setup.exe` or `1.2` ends none.
fn split_sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        let after = at + letter.len_utf8();
        let is_end = match letter {
            '\n' | '。' | '！' => true,
            '.' | '!' => !text[after..].starts_with(char::is_alphanumeric),
            _ => false,
        };
        if is_end {
            sentences.push(text[start..at].trim());
            start = after;
        }
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stated(answer: &str) -> bool {
        matches!(find_give_up_statement(answer), Some(GiveUpStatement::Stated(_)))
    }

    #[test]
    fn giving_up_is_a_statement_about_the_request() {
        for answer in [
            "I am sorry, I cannot do that.",
            "Unfortunately, I was unable to open the file.",
            "I can’t see your limits from here.\n\nCurrent ways to check them:\n- the dashboard",
            "The request could not be completed: the server is down.",
            "抱歉，我做不到。",
            "No se pudo abrir el archivo.",
        ] {
            assert!(is_stated(answer), "{answer}");
        }
        for answer in [
            "Yes, in a.go. We avoid reading files that didn't change.",
            "The check fails if the cache is invalid, which is not an error.",
            "I couldn't find any other use of it.",
            "Done. It no longer fails.",
            "The API cannot read it, so the page stays empty.",
            "The upload could not be completed because the port is closed. Open port 443.",
            "No, it is not possible to join both tables without a key.",
        ] {
            assert_eq!(find_give_up_statement(answer), None, "{answer}");
        }
        let report = format!("I cannot open the page.\n\n{}", "| 1 | found in the archive |\n".repeat(200));
        assert_eq!(find_give_up_statement(&report), None, "it delivers something");
    }

    #[test]
    fn other_languages_count_only_in_short_answers() {
        let cause = "setup.exe 是 64 位程序，32 位的库无法加载。\n\n解决办法：\n\n1. 构建 64 位的库。\n2. 重新启动。";
        assert_eq!(find_give_up_statement(cause), Some(GiveUpStatement::Unclear));
        let review = "要件が矛盾しており、検証基準を定義できません。\n\n- 一つ目の指摘\n- 二つ目の指摘";
        assert_eq!(find_give_up_statement(review), Some(GiveUpStatement::Unclear));
        assert_eq!(find_give_up_statement("Leider ist die Datei leer."), Some(GiveUpStatement::Unclear));
        let explained = "抱歉，两个测试都不算数。\n\n原因：路径写错了。\n\n请这样重测：打开两个窗口。";
        assert_eq!(find_give_up_statement(explained), None);
    }

    #[test]
    fn an_answer_that_lacks_information_asks_the_user() {
        for answer in [
            "対象が不明なため、値を確定できません。\n\n- 候補1\n- 候補2\n\n対象のキー名を1つ指定してください。値を即答します。",
            "目前缺少资料，无法完成。\n\n请确认：\n- 用哪个版本？\n\n等你确认后我马上编写。",
            "I can't run it without the command. Please provide its path, e.g. `bin/run`. Then I will start it.",
        ] {
            assert_eq!(find_give_up_statement(answer), Some(GiveUpStatement::AsksUser), "{answer}");
        }
        assert_eq!(find_give_up_statement("The file is read. Please confirm the order."), None);
    }

    #[test]
    fn dots_inside_of_names_end_no_sentence() {
        assert_eq!(
            split_sentences("Run setup.exe 1.2 now. Then wait!\nDone"),
            ["Run setup.exe 1.2 now", "Then wait", "Done"]
        );
        assert_eq!(split_sentences("..."), [""; 0]);
    }
}
