// What chunks of a stream add to an answer.

/**
 * For /v1/chat/completions.
 * @param {import("./state.js").Answer} answer
 */
export function chatFold(answer) {
  const decoder = new TextDecoder();
  return (choice) => {
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta ?? {};
    answer.text += content ?? "";
    answer.reasoning += reasoning ?? "";
    for (const call of calls ?? []) addCall(answer, call);
    const listed = choice.logprobs?.content ?? [];
    for (const entry of listed) answer.tokens.push(chatToken(entry, decoder));
    countTokens(answer, listed.length, Boolean(content || reasoning || calls?.length));
    answer.finish = choice.finish_reason ?? answer.finish;
  };
}

/**
 * For /v1/completions.
 * @param {import("./state.js").Answer} answer
 */
export function completionFold(answer) {
  return (choice) => {
    answer.text += choice.text ?? "";
    const { tokens = [], token_logprobs: values = [], top_logprobs: top = [] } = choice.logprobs ?? {};
    tokens.forEach((text, place) => {
      const others = Object.entries(top?.[place] ?? {}).sort((one, other) => other[1] - one[1]);
      answer.tokens.push([text, values[place], others]);
    });
    countTokens(answer, tokens.length, Boolean(choice.text));
    answer.finish = choice.finish_reason ?? answer.finish;
  };
}

/** Where tokens are not listed, a chunk counts as one: the end of the stream says how many they were. */
function countTokens(answer, numListed, hasText) {
  answer.numTokens += numListed || (hasText ? 1 : 0);
}

function chatToken(entry, decoder) {
  // A character in several tokens shows with the last of them.
  const text = entry.bytes ? decoder.decode(new Uint8Array(entry.bytes), { stream: true }) : entry.token;
  return [text, entry.logprob, (entry.top_logprobs ?? []).map((other) => [other.token, other.logprob])];
}

function addCall(answer, call) {
  const known = (answer.calls[call.index] ??= { id: "", name: "", arguments: "" });
  known.id = call.id ?? known.id;
  known.name += call.function?.name ?? "";
  known.arguments += call.function?.arguments ?? "";
}
