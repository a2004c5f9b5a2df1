//! Words that all agents use, whatever their tools: function words, what verbs do, and how plans are announced. Nothing
//! here belongs to one domain, tool or framework.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use crate::offline::word_form::normalize_y_ending;

/// What a verb does, as bits. Many verbs have several meanings ("open a file", "open a ticket").
pub(super) type ActionFlags = u32;

pub(super) const READ: ActionFlags = 1;
pub(super) const LIST: ActionFlags = 1 << 1;
pub(super) const SEARCH: ActionFlags = 1 << 2;
pub(super) const CREATE: ActionFlags = 1 << 3;
pub(super) const UPDATE: ActionFlags = 1 << 4;
pub(super) const DELETE: ActionFlags = 1 << 5;
pub(super) const CLOSE: ActionFlags = 1 << 6;
pub(super) const MERGE: ActionFlags = 1 << 7;
pub(super) const SEND: ActionFlags = 1 << 8;
pub(super) const COMPUTE: ActionFlags = 1 << 9;
pub(super) const RUN: ActionFlags = 1 << 10;
pub(super) const BUY: ActionFlags = 1 << 11;
pub(super) const HAND_OVER: ActionFlags = 1 << 12;
pub(super) const CANCEL: ActionFlags = 1 << 13;
pub(super) const MOVE: ActionFlags = 1 << 14;
pub(super) const PLAY: ActionFlags = 1 << 15;

/// Actions that only read. They are interchangeable: what one finds, another may find as well.
pub(super) const RETRIEVE: ActionFlags = READ | LIST | SEARCH | COMPUTE;
/// Actions that change something.
pub(super) const CHANGES: ActionFlags =
    CREATE | UPDATE | DELETE | CLOSE | MERGE | SEND | RUN | BUY | CANCEL | MOVE | HAND_OVER | PLAY;

/// Actions and the stems (see `words::stem_word`) of the verbs that perform them.
const VERBS: &[(ActionFlags, &str)] = &[
    (
        READ,
        "read se inspect print load examin describ summaris summariz review access visit extract \
        pars track",
    ),
    (LIST | READ, "show view display"),
    (
        LIST | READ | SEARCH,
        "get fetch look check retriev obtain browse brows collect gather know \
        explor query identify",
    ),
    (READ | SEND, "tell"),
    (LIST | READ | SEARCH | SEND, "ask"),
    (READ | SEARCH, "verify learn understand lookup scan"),
    (READ | UPDATE, "confirm"),
    (COMPUTE | READ, "analys analyz"),
    (COMPUTE | LIST | READ, "compar"),
    (LIST, "list enumerat"),
    (COMPUTE | LIST, "count"),
    (COMPUTE | LIST | READ | SEARCH, "determin find"),
    (SEARCH, "search grep discover"),
    (LIST | SEARCH, "locat recommend suggest"),
    (CREATE, "creat mak initialis initializ init setup register draft log rais plan"),
    (CREATE | READ, "open clon import export"),
    (CREATE | UPDATE, "add insert commit writ sav stor record put append set configur"),
    (COMPUTE | CREATE, "generat plot draw"),
    (CREATE | RUN, "build deploy start install"),
    (CREATE | SEND, "submit upload post publish comment"),
    (CREATE | SEND | UPDATE, "push"),
    (BUY | CREATE, "schedul"),
    (
        UPDATE,
        "updat edit chang modify replac alter adjust patch fix revis assign label mark enabl \
        disabl increas reduc turn correct reset switch reopen sync",
    ),
    (MOVE | UPDATE, "renam"),
    (DELETE, "delet remov drop eras purg destroy uninstall clear"),
    (CANCEL | DELETE, "unsubscrib cancel revok"),
    (CLOSE, "clos finish"),
    (CLOSE | READ, "resolv"),
    (CLOSE | UPDATE, "complet lock"),
    (CLOSE | MOVE, "archiv"),
    (MERGE, "merg combin join concatenat rebas"),
    (SEND, "send email mail messag notify shar reply respond inform forward text"),
    (RUN | SEND, "call"),
    (COMPUTE, "calculat comput sum convert evaluat estimat solv predict translat multiply divid sort"),
    (COMPUTE | RUN, "simulat"),
    (RUN, "run execut launch trigger restart test"),
    (CANCEL | CLOSE, "stop"),
    (BUY, "book reserv buy purchas order rent"),
    (BUY | SEND, "pay"),
    (BUY | READ | SEND, "request"),
    (HAND_OVER | MOVE | SEND, "transfer"),
    (HAND_OVER, "handoff handover delegat escalat rout"),
    (CANCEL, "abort refund"),
    (CANCEL | READ, "return"),
    (BUY | UPDATE, "exchang"),
    (MOVE, "mov"),
    (CREATE | MOVE, "copy duplicat"),
    (MOVE | READ, "download"),
    (PLAY, "play listen stream"),
    (PLAY | READ, "watch"),
    (PLAY | UPDATE, "paus"),
];

/// Properties of a stem.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StemTraits {
    /// Its actions; 0 for unknown verbs.
    pub action_flags: ActionFlags,
    /// It is the first word of a phrase in `PHRASES`.
    pub opens_phrase: bool,
}

/// Looks up the traits of a stem, in a table built once from the lists in this file. Unknown stems have none.
pub(super) fn stem_traits(stem: &str) -> StemTraits {
    static TABLE: LazyLock<HashMap<String, StemTraits, RandomState>> = LazyLock::new(|| {
        let mut table: HashMap<String, StemTraits, RandomState> = HashMap::default();
        for (action_flags, stems) in VERBS {
            for stem in stems.split_whitespace() {
                table.entry(normalize_y_ending(stem.to_owned())).or_default().action_flags = *action_flags;
            }
        }
        let openings = PHRASES.iter().flat_map(|(phrases, _)| phrases.split('|'));
        for (first, _) in openings.filter_map(|phrase| phrase.split_once(' ')) {
            table.entry(first.to_owned()).or_default().opens_phrase = true;
        }
        table
    });
    let known = TABLE.get(stem).copied();
    // "reassign", "reschedule"
    let again = || stem.strip_prefix("re").filter(|rest| rest.len() >= 4).and_then(|rest| TABLE.get(rest)).copied();
    known.or_else(again).unwrap_or_default()
}

/// Returns the actions of a stem; 0 for unknown verbs.
pub(super) fn lookup_actions(stem: &str) -> ActionFlags {
    stem_traits(stem).action_flags
}

/// Function words, and words that fill thoughts: they say nothing about the subject.
const STOP_WORD_LIST: &str = "\
    didn haven doesn isn wasn won couldn wouldn don hasn aren shouldn weren hadn \
    observation format maybe perhaps probably today tomorrow nice good great looks \
    a an the this that these those it its i me my we us our you your they them their he she his her is \
    are was were be been being am do does did done have has had having will would shall should can could \
    may might must need needs needed want wants wanted let lets ll re ve s t d m to of in on at by for \
    from with without about into onto as and or but if then else so because since while when where what \
    which who whom whose why how many much any some all both each every no not nor only own same than \
    too very just now again once here there first second next last also still yet already please thanks \
    thank user users task tool tools use using used call calls called calling sure going go right \
    step steps answer question try one two up out over after before available provide provided provides \
    given based specific specified return returns returned result results think thought action input \
    output function parameter parameters argument arguments value values via like such well ok okay yes \
    more most other another new something thing things help able per etc";

pub(super) fn is_stop_word(word: &str) -> bool {
    word_traits(word).has(STOPS)
}

/// Words after which the speaker announces an action: "I will", "let me", "we need to".
const ANNOUNCING_WORDS: &str = "will ll let lets shall should must need needs going gonna have try want wants can could \
    plan now first then next please would to";

/// Announcing words that can also state what a thing will do.
const MODALS: &str = "will shall should must can could would";

/// Words that may stand between the announcement and its verb.
const FILLING_WORDS: &str = "i me us we you to now then first also again just try next simply and go ahead be able like \
    please kindly quickly directly still start begin by actually really once more will need \
    want help so use with";

/// The lists above that contain a word, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WordTraits(u8);

pub(super) const STOPS: u8 = 1;
pub(super) const ANNOUNCES: u8 = 1 << 2;
pub(super) const FILLS: u8 = 1 << 5;
pub(super) const IS_MODAL: u8 = 1 << 6;

impl WordTraits {
    pub(super) fn has(self, list: u8) -> bool {
        self.0 & list != 0
    }

    pub(super) fn with(self, list: u8) -> WordTraits {
        WordTraits(self.0 | list)
    }
}

/// Expects lower case.
pub(super) fn word_traits(word: &str) -> WordTraits {
    static TABLE: LazyLock<HashMap<&str, WordTraits, RandomState>> = LazyLock::new(|| {
        let mut table: HashMap<&str, WordTraits, RandomState> = HashMap::default();
        let lists =
            [(STOP_WORD_LIST, STOPS), (ANNOUNCING_WORDS, ANNOUNCES), (FILLING_WORDS, FILLS), (MODALS, IS_MODAL)];
        for (words, list) in lists {
            for word in words.split_whitespace() {
                let traits = table.entry(word).or_default();
                *traits = traits.with(list);
            }
        }
        table
    });
    TABLE.get(word).copied().unwrap_or_default()
}

/// Verbs of two words: stem of the first and the second word, alternatives separated by `|`, and their common action. 0
/// means that the phrase is no action at all.
pub(super) const PHRASES: &[(&str, ActionFlags)] = &[
    ("mak sure|mak sens", 0),
    ("look up", SEARCH | READ),
    ("look at|tak look|giv me", READ | LIST),
    ("look for", SEARCH | LIST),
    ("look into|check out", READ),
    ("set up", CREATE),
    ("hand over|hand off|hand it|hand thi|pass thi|pass it", HAND_OVER),
    ("find out|figur out", SEARCH | READ | LIST),
    ("clean up", DELETE),
    ("shut down", CLOSE),
];

/// Phrases by which an answer admits a failure, in common languages of answers.
pub(super) const ADMISSION_PHRASES: &str = "\
    sorry|could not|couldn't|couldn’t|cannot|can't|can’t|can not|unable|not able|fail|error|\
    unfortunately|however|problem|denied|forbidden|not found|not possible|does not exist|\
    doesn't exist|doesn’t exist|not exist|no such|did not|didn't|didn’t|was not|wasn't|wasn’t|\
    were not|is not|isn't|isn’t|not permitted|not allowed|permission|rejected|refused|unsuccessful|\
    timed out|timeout|try again|unavailable|apolog|blocked|missing|no longer|impossible|\
    without success|not been|not yet|nothing|no file|invalid|stopped|need more steps|抱歉|无法|失败|不能|错误|\
    未能|没有|對不起|无权|できません|失敗|エラー|申し訳|죄송|실패|오류|leider|konnte nicht|nicht|fehler|désolé|échec|erreur|\
    n'a pas|pas pu|lo siento|no pude|no se pudo|no fue posible|falló|не удалось|ошибка|извините|לא |\
    שגיאה|مصطل|خطأ|لم |não foi|desculpe|falhou|mi dispiace|non è stato";

/// Whether the text contains one of the phrases, which are separated by `|`.
pub(super) fn contains_phrase(text: &str, phrases: &str) -> bool {
    phrases.split('|').any(|phrase| text.contains(phrase))
}

/// Whether a text contains a name that is not a part of a longer one. Letters that are not ASCII end a name: some scripts
/// put no spaces around it.
pub(super) fn contains_name(text: &str, name: &str) -> bool {
    let continues = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
    };
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            !continues(text[..at].chars().next_back()) && !continues(text[at + name.len()..].chars().next())
        })
}
