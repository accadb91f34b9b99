import { isDeepStrictEqual } from 'node:util';
import { isMap, isScalar, type Pair, parseDocument } from 'yaml';

/**
 * Returns the text of a YAML or JSON file with a changed value of one top-level key. Comments, the order of keys and
 * all other values stay the same; spaces between them may change. Returns undefined if the text is not a single
 * mapping, or if another value would change.
 * @param value undefined removes the key
 */
export function withKey(text: string, key: string, value: string | boolean | undefined): string | undefined {
  // Without types, each scalar is written as read: kubelet and YAML 1.2 interpret 0644 as different numbers.
  const document = parseDocument(text, { schema: 'failsafe', uniqueKeys: false, logLevel: 'error' });
  const { contents, errors } = document;
  if (errors.length > 0 || !(contents === null || isMap(contents))) return undefined;
  const json = contents?.flow === true ? jsonIn(text) : undefined;
  if (json !== undefined) {
    const indent = text.trim().includes('\n') ? 2 : undefined;
    return `${JSON.stringify({ ...json, [key]: value }, undefined, indent)}${text.endsWith('\n') ? '\n' : ''}`;
  }
  if (value === undefined && !document.has(key)) return text;
  if (value === undefined) withoutKey(contents?.items ?? [], key);
  else document.set(key, String(value));
  const changed = document.toString({ lineWidth: 0, indentSeq: !/^- /m.test(text) });
  return isDeepStrictEqual(othersIn(changed, key), othersIn(text, key)) ? changed : undefined;
}

/** Removes a key, and keeps the comment above it. */
function withoutKey(items: Pair[], key: string): void {
  const at = items.findIndex((pair) => isScalar(pair.key) && pair.key.value === key);
  const [removed] = items.splice(at, 1);
  const next = items[at]?.key;
  if (!isScalar(removed?.key) || removed.key.commentBefore === undefined || !isScalar(next)) return;
  next.commentBefore = [removed.key.commentBefore, next.commentBefore].filter((text) => text !== undefined).join('\n');
}

/** Parts of JSON in ES2026, which Node 24 has: numbers stay as written, so that none loses digits. */
const exactJson = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { readonly source: string }) => unknown): object;
  rawJSON(text: string): unknown;
};

function jsonIn(text: string): object | undefined {
  try {
    return exactJson.parse(text, (_, value, { source }) =>
      typeof value === 'number' ? exactJson.rawJSON(source) : value,
    );
  } catch {
    return undefined;
  }
}

function othersIn(text: string, key: string): object {
  const content: unknown = parseDocument(text, { merge: true, uniqueKeys: false, logLevel: 'error' }).toJS();
  return { ...(content as object | null), [key]: undefined };
}
