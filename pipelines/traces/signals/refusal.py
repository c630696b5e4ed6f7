"""The model declined a task.

Evidence: `finish_reason` refusal; an answer without a call that opens with a clear refusal, in one of the languages below. Not:
apologies, a fact that could not be found, asking for what is missing before going on ("not without your order number"), and
whatever a content filter stopped (`guardrail`). Few openings on purpose: a refusal in other words is missed rather than
politeness taken for one.
"""

# ruff: noqa: RUF001 (the words of other languages)

import re
from collections.abc import Iterator

from pipelines.traces.model import Message, Role, Signal, SignalKind, Trace

WEIGHT = 0.3

_OPENINGS = (
    # English
    r"(?:as an ai(?: language model| assistant)?,? )?(?:i|we)"
    r"(?: can't| cannot| can not| won't| will not| am (?:not able|unable) to|'m (?:not able|unable|not going) to|'m not comfortable)"
    r" (?:help(?:ing)?(?! but| noticing| feeling| wondering)|assist(?:ing)?|comply|fulfill?|participate|engage|discuss"
    r"|do (?:this|that)|provide (?:assistance|instructions|guidance|help))\b",
    r"(?:i|we) (?:(?:must|have to) decline|decline to)\b",
    r"(?:this|that)(?:'s not| is not| isn't) something i can (?:help|assist|do|discuss)\b",
    # German
    r"(?:ich|wir) (?:kann|können|darf)\b[^.!?\n]{0,40}\bnicht (?:weiter)?(?:helfen|behilflich sein|unterstützen|nachkommen|erfüllen)",
    r"(?:kann|darf|können) (?:ich|wir)\b[^.!?\n]{0,40}\bnicht (?:weiter)?(?:helfen|behilflich sein|unterstützen|nachkommen|erfüllen)",
    # French
    r"(?:je|nous) ne (?:peux|puis|pouvons)(?: pas)? (?:vous |t')?(?:aider|assister|répondre à cette demande|accéder à (?:cette|votre))",
    # Spanish, Portuguese, Italian
    r"no (?:puedo|podemos) (?:ayudar|asistir|cumplir con|atender)(?:te|le|lo|la|los|las)?\b",
    r"(?:eu )?não (?:posso|podemos) (?:ajudar|ajudá|auxiliar|atender|cumprir)",
    r"non (?:posso|possiamo) (?:aiutar|assister|soddisfare|esaudire)",
    # Dutch, Polish, Turkish, Russian
    r"(?:ik kan|kan ik|wij kunnen)\b[^.!?\n]{0,40}\bniet (?:mee |bij )?helpen",
    r"nie mogę (?:\w+ ){0,3}pomóc",
    r"(?:bu konuda |size )?yardımcı olam(?:am|ıyorum|ayız)",
    r"(?:я )?не (?:могу|можем) (?:вам |тебе )?(?:с этим )?(?:помочь|выполнить)",
    # Chinese, Japanese, Korean
    r"我?(?:无法|不能|無法)(?:为您|為您|向您)?(?:协助|協助|帮助|幫助|满足|滿足|提供(?:帮助|协助|此类|这类))",
    r"[^。\n]{0,40}(?:お手伝い|お答え|対応|お応え)[^。\n]{0,12}(?:できません|できかねます|いたしかねます)",
    r"[^.\n]{0,40}(?:도와드릴|도와 드릴|도움을 드릴) 수 없",
    # Arabic
    r"(?:لا أستطيع|لا يمكنني) (?:مساعدتك|المساعدة|تلبية)",
)
_SORRY = (
    r"(?:i am|i'm) (?:so |very |really )?(?:sorry|afraid)|sorry|unfortunately|i apologi[sz]e"
    r"|es tut mir (?:sehr )?leid|tut mir leid|leider|entschuldigung|je suis désolée?|désolée?|malheureusement"
    r"|lo siento(?: mucho)?|lamentablemente|desculpe|sinto muito|lamento|infelizmente|mi dispiace|spiacente|purtroppo"
    r"|het spijt me|helaas|przepraszam|niestety|przykro mi|üzgünüm|maalesef|извините|к сожалению|простите"
    r"|很?抱歉|对不起|對不起|申し訳(?:ありません|ございません)|すみません|죄송하지만|죄송합니다만|죄송합니다|عذرا|آسف|للأسف"
)
_LINK = r"(?:[\s,.:;!，。、،]|\b(?:but|that|aber|dass|mais|que|pero|mas|ma|che|maar|ale|ama|но)\b|が|但是|但|ولكن|لكن)*"
_REFUSAL = re.compile(rf"\W*(?:(?:{_SORRY}){_LINK})?(?:{'|'.join(_OPENINGS)})", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:without|until|unless|before|yet|right now|ohne|bevor|sans|avant|sin|antes|sem|senza|prima|zonder|bez|без|пока)\b"
    r"|没有|沒有|ないと|なければ|なしで|없이|없으면",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?\n。！？]")
_OPENING_CHARS = 300


def find(trace: Trace) -> Iterator[Signal]:
    if trace.attributes.get("finish_reason", "").casefold() == "refusal":
        yield Signal(SignalKind.REFUSAL, "the provider says that the model refused")
    for message in trace.messages:
        if is_refusal(message):
            yield Signal(SignalKind.REFUSAL, message.content or "")


def is_refusal(message: Message) -> bool:
    """Whether an assistant's message declines in its opening sentence and calls nothing."""
    if message.role is not Role.ASSISTANT or message.tool_calls:
        return False
    opening = (message.content or "")[:_OPENING_CHARS].replace("\u2019", "'")
    found = _REFUSAL.match(opening)
    return found is not None and not _CONDITION.search(found[0] + _SENTENCE_END.split(opening[found.end() :])[0])
