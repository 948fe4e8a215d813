// Constraints to begin with.

export const EXAMPLES = {
  json_schema: [
    ["Person", JSON.stringify({
      type: "object",
      properties: {
        name: { type: "string", maxLength: 40 },
        age: { type: "integer", minimum: 0, maximum: 130 },
        languages: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 3 },
      },
      required: ["name", "age", "languages"],
    }, null, 2)],
    ["Sentiment", JSON.stringify({
      type: "object",
      properties: { sentiment: { enum: ["positive", "neutral", "negative"] }, confidence: { type: "number", minimum: 0, maximum: 1 } },
      required: ["sentiment", "confidence"],
    }, null, 2)],
    ["List of steps", JSON.stringify({
      type: "array",
      items: { type: "object", properties: { step: { type: "integer" }, action: { type: "string", maxLength: 60 } }, required: ["step", "action"] },
      minItems: 2,
      maxItems: 5,
    }, null, 2)],
  ],
  regex: [
    ["Date", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"],
    ["One sentence", "[A-Z][^.!?\\n]{5,120}[.!?]"],
    ["IPv4 address", "((25[0-5]|2[0-4]\\d|1?\\d?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1?\\d?\\d)"],
  ],
  choices: [
    ["Yes or no", "yes\nno"],
    ["Rating", "poor\nfair\ngood\nexcellent"],
  ],
  ebnf: [
    ["Arithmetic (GBNF)", 'root ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\nfactor ::= [0-9]+ | "(" root ")"'],
    ["Arithmetic (Lark)", 'start: term (("+" | "-") term)*\nterm: factor (("*" | "/") factor)*\nfactor: /[0-9]+/ | "(" start ")"'],
  ],
};
