import { isDeepStrictEqual } from 'node:util';
import { isMap, parseDocument } from 'yaml';

/**
 * Returns the text of a YAML or JSON file with another value of one top-level key. Comments, the order of keys, and the
 * values of all other keys stay; spaces between them may not. Returns undefined if the text is not one mapping, or if
 * another value would change.
 * @param value undefined removes the key
 */
export function withKey(text: string, key: string, value: string | boolean | undefined): string | undefined {
  // Without types, each scalar is written as it was read: kubelet reads 0644 as another number than YAML 1.2 does.
  const document = parseDocument(text, { schema: 'failsafe', uniqueKeys: false, logLevel: 'error' });
  const { contents, errors } = document;
  if (errors.length > 0 || !(contents === null || isMap(contents))) return undefined;
  const json = contents?.flow === true ? jsonIn(text) : undefined;
  if (json !== undefined) {
    const indent = text.trim().includes('\n') ? 2 : undefined;
    return `${JSON.stringify({ ...json, [key]: value }, undefined, indent)}${text.endsWith('\n') ? '\n' : ''}`;
  }
  if (value === undefined && !document.has(key)) return text;
  if (value === undefined) document.delete(key);
  else document.set(key, String(value));
  const changed = document.toString({ lineWidth: 0, indentSeq: !/^- /m.test(text) });
  return isDeepStrictEqual(othersIn(changed, key), othersIn(text, key)) ? changed : undefined;
}

function jsonIn(text: string): object | undefined {
  try {
    return JSON.parse(text) as object;
  } catch {
    return undefined;
  }
}

function othersIn(text: string, key: string): object {
  const content: unknown = parseDocument(text, { merge: true, uniqueKeys: false, logLevel: 'error' }).toJS();
  return { ...(content as object | null), [key]: undefined };
}
