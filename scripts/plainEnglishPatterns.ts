/**
 * A pattern of sentences that have to be read twice, and what to write instead. `files`: the pattern applies
 * only to files whose path matches.
 */
export type Pattern = { name: string; pattern: RegExp; advice: string; files?: RegExp };

/**
 * Where a sentence starts: at the start of a passage or line, after a full stop or colon, in a list or a
 * table cell.
 */
const sentenceStart = String.raw`(?<=^|[.!?:]\s|[.!?]\)\s|\n|^[*-]\s|\|\s)\**`;

const atStart = (rest: string): RegExp => new RegExp(sentenceStart + rest, "gm");

/** The documents for users. Those for contributors use the words of the code. */
const userDocuments =
  /^(?:README|docs\/(?!decisions\/|vocabulary|style|architecture|life-of-a-batch|versioning).*)\.md$/;

/** The patterns that are wrong in nearly every case, in the order of docs/style.md. */
export const patterns: readonly Pattern[] = [
  {
    name: "who-subject",
    pattern: new RegExp(
      String.raw`\b[Ww]hoever\b|(?<=^|[.;:]\s)Who (?!is|are|was|else|does|did|sends|can|may|will|` +
        String.raw`has)[a-z]+s?\b(?![^.?!]*\?)`,
      "gm",
    ),
    advice: "name the actor: the caller, a message, a node",
  },
  {
    name: "what-subject",
    pattern: atStart(String.raw`What (?!is it\b|happens\b|to\b|changes\b)(?![^.!?|]*\?)[^.!?|]{3,}[.,;]`),
    advice: "start with the noun: 'Excluded rows …'",
  },
  {
    name: "where-condition",
    pattern: /(?<=[.!?]\s)\**Where (?!things|to\b)(?![^.!?|]*\?)[^.!?:|]*,/gm,
    advice: "use 'If' or 'When'",
  },
  {
    name: "of-start",
    pattern: atStart(
      String.raw`Of (?:an?|the|this|these|those|such|each|all|what|messages|runs|headers|one|two|several)\b`,
    ),
    advice: "start with the subject",
  },
  {
    name: "same-start",
    pattern: atStart(
      String.raw`The same (?:of|for|as|from|in|with|to|holds|question|is|where|by|back|under)\b`,
    ),
    advice: "say it in full; no sentence leans on the one before",
  },
  {
    name: "one-that",
    pattern: atStart(
      String.raw`(?:One (?:that|which|who|alone|is|with|without|of (?:an?|the) \w+ that)|Another one|` +
        String.raw`Those (?:that|of|who|which|with|there)|That of)\b`,
    ),
    advice: "repeat the noun",
  },
  { name: "besides-end", pattern: /\bbesides(?=\s*(?:[.,;:)]|$))/gm, advice: "use 'also' or 'as well'" },
  {
    name: "of-above",
    pattern: /\bof (?:above|below|before (?:version|there|that))\b|\bthe above\b/g,
    advice: "name the thing, or link to it",
  },
  { name: "under-way", pattern: /\bunder way\b/g, advice: "running, in flight, being sent" },
  { name: "ask-again", pattern: /\bask again\b/g, advice: "retry" },
  {
    name: "told",
    pattern: new RegExp(
      String.raw`\b(?:(?:is|are|was|were|be|been) told|tells? (?:of|that|how|what|apart)|told of|` +
        String.raw`say(?:s)? so|said of|in words)\b`,
      "g",
    ),
    advice: "reports, receives, returns, distinguishes",
  },
  {
    name: "come-of",
    pattern: new RegExp(
      String.raw`\b(?:came|comes?|become|became) of\b|\bcomes? to (?:so|an?|its end|more|[\dX])|` +
        String.raw`\b(?:come|comes|came) through\b`,
      "g",
    ),
    advice: "the result of; amounts to; succeeds",
  },
  { name: "goes-on", pattern: /\b(?:go|goes|went|gone|going) on\b/g, advice: "continues, resumes" },
  {
    name: "so-many",
    pattern: /\b(?:for |after )?so (?:long|many|much|often|large)\b(?!,? (?:as|that|a)\b)/gi,
    advice: "state the amount or name the constant",
  },
  {
    name: "n-at-most",
    pattern: /\b(?:\d[\d,]*|[a-z]+s|deep|second|once|X|all|many) at (?:most|least)(?=\s*(?:[.,;:)|]|$))/g,
    advice: "'at most 100 entries', before the amount",
  },
  {
    name: "is-no",
    pattern: new RegExp(
      String.raw`(?<!\b[Tt]here )\b(?:is|are|was|were) (?:no|none)\b(?! (?:longer|more|need|way|` +
        String.raw`reason|room|problem)\b)`,
      "g",
    ),
    advice: "is not a …",
  },
  {
    name: "is-to",
    pattern: /\b(?:is|are|was|were) to (?:be|begin|come|do|go|have|hold|send|say|stay|wait|look)\b/g,
    advice: "must, will, should",
  },
  {
    name: "could-apply",
    pattern: new RegExp(
      String.raw`(?<!\bso )\bthat (?:it|they|he) could\b|\b[Tt]here (?:is|are) no such\b|` +
        String.raw`\bwith no such\b|\bthose there are\b|\bthat there (?:is|are) (?:not|of|now)\b`,
      "g",
    ),
    advice: "requires …; does not exist; unknown …",
  },
  {
    name: "of-own",
    pattern: /\bof (?:its|their|his|your|our) own\b/g,
    advice: "put 'own' before the noun: 'its own X'",
  },
  {
    name: "stand",
    pattern: /\bstands? (?:in|before|behind|beside|for|at|between|above|under|there)\b|\bstood\b/g,
    advice: "is, waits, precedes, represents",
  },
  {
    name: "anew",
    pattern: new RegExp(
      String.raw`\b(?:anew|meanwhile\.|once more|thereby|hence|shall|whom|for ever|anyhow|in vain|` +
        String.raw`beside (?:it|them)|mend(?:s|ed)?)\b`,
      "g",
    ),
    advice: "again, at the same time, must, fix, futile",
  },
  {
    name: "answers",
    pattern: atStart(String.raw`(?:Answers (?!may|are|on|can|to\b|with\b|whose|come)|Says )`),
    advice: "docstrings: 'Returns …', 'Reports whether …'",
  },
  {
    name: "retired",
    pattern: new RegExp(
      String.raw`(?<!\b(?:by|in) )(?<!\b[Dd]ead[ -])(?<!\bbare )\b(?:hands?(?= (?:for|is|free|` +
        String.raw`were)\b)|hands(?! out| over| on| it| its)|letters?(?! or\b| case)|envelopes?|shelf|` +
        String.raw`desk|sightings?|allowances?|onward|put aside|puts? aside|linger|folding)\b`,
      "g",
    ),
    advice: "the word of docs/vocabulary.md: capacity, input, stored message, …",
  },
  { name: "holds-for", pattern: /\bholds? for\b/g, advice: "applies to" },
  {
    name: "most-noun",
    pattern: atStart(String.raw`(?:most|The most) (?!generous)(?:(?:waiting|dropped) )?[a-z]+s(?= |$)`),
    advice: "'the maximum number of …'",
  },
  {
    name: "inverted",
    pattern: atStart(
      String.raw`(?:(?:Always|Never|Only|Also|Not) (?:known|shown|kept|sent|left|found|[a-z]+ed)|Known|` +
        String.raw`Shown|Kept|Sent|Left|Found|Lost|[A-Z][a-z]+ed) (?:is|are|was|were)\b`,
    ),
    advice: "start with the subject: 'X is shown'",
  },
  { name: "a-text", pattern: /\ba text\b/gi, advice: "a string" },
  {
    name: "late-clause",
    pattern: new RegExp(
      String.raw`\b(?:is|are|was|were|has been|have been) (?:due|kept|sent|stored|read|left|found|known|` +
        String.raw`delivered|counted|removed|listed|deleted) that\b`,
      "g",
    ),
    advice: "put the clause after its noun",
  },
  { name: "seal", pattern: /\b(?:un)?seal(?:s|ed|ing)?\b/gi, advice: "encrypt" },
  {
    name: "code-word",
    pattern: /\b(?:refusals?|brands?|passive accounts?)\b(?!">)/gi,
    advice: "error, prefix, disabled account",
    files: userDocuments,
  },
  {
    name: "long",
    pattern: /(?<=^|[.!?]\s)(?:[^\s.!?|]+(?: +|\n(?![\n*-]))){30,}[^\s.!?|]+[.!?](?=\s|$)/gm,
    advice: "split: one idea per sentence, at most 30 words",
  },
];
